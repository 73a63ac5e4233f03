//! The documentation site (`scripts/docs.sh`) and the language of the documentation.

use std::path::{Path, PathBuf};
use std::process::Command;

use lighty_testkit::real::find_optional;

use crate::manual::{files, said, source_tree};

/// Builds the site in a directory of its own. `None`, and the test is skipped, where the generator
/// is not installed: `scripts/docs.sh --install`.
fn built_site(name: &str) -> Option<PathBuf> {
    let tree = source_tree();
    let generator = tree.join("target/docs/venv/bin/mkdocs");
    find_optional(&[generator.to_str().expect("UTF-8")])?;
    let site = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new(tree.join("scripts/docs.sh")).arg(&site).output();
    let output = output.expect("scripts/docs.sh starts");
    // A link to a page or heading that does not exist is an error of the generator.
    assert!(output.status.success(), "{}", said(&output));
    Some(site)
}

#[test]
fn documentation_site_is_complete_searchable_and_local() {
    let Some(site) = built_site("docs-site") else { return };
    let rendered = files(&site, ".html");
    for page in files(&source_tree().join("docs/manual"), ".md").keys() {
        let page = page.replace(".md", ".html");
        assert!(rendered.contains_key(&page), "{page} is missing");
    }
    for (page, text) in &rendered {
        for element in text.split('<').filter(|element| !element.starts_with("a ")) {
            let tag = element.split('>').next().expect("split returns a part");
            let is_remote =
                ["=\"http://", "=\"https://", "=\"//"].iter().any(|of| tag.contains(of));
            assert!(!is_remote, "{page}: <{tag}> is of another host");
        }
    }
    let Some(node) = find_optional(&["node"]) else { return };
    find_every_phrase(&node, &site);
}

/// `scripts/docs/keywords.txt` names the page that each phrase must find first; the search is the
/// site's own, run by Node.
fn find_every_phrase(node: &Path, site: &Path) {
    let script = source_tree().join("scripts/docs/search.js");
    let output = Command::new(node).arg(script).arg(site).output().expect("node starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", said(&output));
    let count = text.trim().rsplit('\n').next().and_then(|line| line.split(' ').next());
    let count: usize = count.and_then(|count| count.parse().ok()).expect("a number of phrases");
    assert!(count >= 26, "{text}");
}
