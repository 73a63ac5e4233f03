//! Holds the libraries to `deny.toml` without cargo-deny: licences, bans and sources.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The strings of a list in `deny.toml`: one a line, or `{ name = "..." }`.
fn list(rules: &str, name: &str) -> Vec<String> {
    let (_, rest) = rules.split_once(&format!("\n{name} = [")).expect("a list of this name");
    let (items, _) = rest.split_once(']').expect("its end");
    let found: Vec<_> = items.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(!found.is_empty(), "{name} is empty");
    found
}

/// True if the expression (SPDX, or with a slash as old manifests write it) leaves a choice of
/// licences that are all allowed.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    expression.split(" AND ").all(|part| {
        part.split(" OR ").any(|licence| allowed.iter().any(|known| known == licence.trim()))
    })
}

fn packages() -> Vec<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{text}"));
    let all = found["packages"].as_array().expect("packages").clone();
    assert!(all.len() > 50, "only {} packages", all.len());
    all
}

#[test]
fn libraries_have_licences_and_sources_that_are_allowed() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml");
    let rules = std::fs::read_to_string(rules).expect("deny.toml");
    let (licences, banned) = (list(&rules, "allow"), list(&rules, "deny"));
    let registries = list(&rules, "allow-registry");
    for package in packages() {
        let name = package["name"].as_str().expect("a name");
        let licence = package["license"].as_str().unwrap_or("none");
        assert!(is_allowed(licence, &licences), "{name}: licence {licence}");
        assert!(!banned.iter().any(|one| one == name), "{name} is banned");
        let source = package["source"].as_str();
        let is_own = source.is_none() && name.starts_with("lighty");
        let registry = source.and_then(|source| source.strip_prefix("registry+"));
        let is_known = registry.is_some_and(|it| registries.iter().any(|known| known == it));
        assert!(is_own || is_known, "{name} comes from {source:?}");
    }
}

#[test]
fn a_licence_that_is_not_listed_is_refused() {
    let allowed = ["MIT".to_owned(), "ISC".to_owned()];
    for good in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(MIT OR GPL-3.0) AND ISC"] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["none", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0"] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}
