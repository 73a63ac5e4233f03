//! Locations of the configured databases. A database beneath a served directory would have a URL.

use lighty_config::{Config, Diagnostic, Level, Span, Value};
use lighty_core::Settings;
use lighty_io::file::tree::{canonical, canonical_through};

use super::store::is_below;

/// Lists the configured databases and their positions in the configuration.
pub fn databases(config: &Config<Settings>) -> impl Iterator<Item = (&str, Span)> {
    config
        .assigned("webdav.sqlite-db-name")
        .filter_map(|given| Some((given.value.as_str()?, given.span)))
        .filter(|(path, _)| !path.is_empty())
}

/// Warns of databases in a document root or in the target of an alias.
pub fn check(config: &Config<Settings>) -> Vec<Diagnostic> {
    let served = served(config);
    let mut findings = Vec::new();
    for (path, span) in databases(config) {
        let canonical_paths = [canonical(path.as_bytes()), canonical_through(path.as_bytes())];
        let lies_in = |directory: &[u8]| {
            canonical_paths.iter().any(|canonical| is_below(canonical, directory))
        };
        let around = served.iter().find(|(_, directory)| lies_in(directory));
        if let Some((name, directory)) = around {
            let text = format!(
                "the database \"{path}\" lies in {name} \"{}\": requests for it are refused, but it \
                 belongs where no URL leads",
                String::from_utf8_lossy(directory)
            );
            findings.push(Diagnostic::new(Level::Warning, "value", span, text));
        }
    }
    findings
}

/// Returns the served directories with links resolved, and the directive that serves each.
fn served(config: &Config<Settings>) -> Vec<(&'static str, Vec<u8>)> {
    let roots = config.assigned("server.document-root").filter_map(|given| given.value.as_str());
    let roots = roots.map(|root| ("server.document-root", root.to_owned()));
    let aliases = config.assigned("alias.url").flat_map(|given| targets(&given.value));
    let aliases = aliases.map(|target| ("alias.url", target));
    let resolve = |path: String| {
        // The last path component may be a link, too.
        let inside = canonical(format!("{}/.", path.trim_end_matches('/')).as_bytes());
        inside.strip_suffix(b"/.").unwrap_or(&inside).to_vec()
    };
    roots.chain(aliases).map(|(name, path)| (name, resolve(path))).collect()
}

fn targets(value: &Value) -> Vec<String> {
    let map = lighty_config::parse_map(value).unwrap_or_default();
    map.iter().map(|(_, target)| target.to_string()).collect()
}
