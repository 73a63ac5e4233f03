//! Checks `server.modules` against the existing modules and the ones that directives need.

use lighty_config::{Config, Diagnostic, Level, Reject, Span, Value};
use lighty_core::Settings;
use lighty_core::settings::directives;

use lighty_server::absent;
use lighty_server::modules::{self, directives as rows};

/// lighttpd modules replaced by one of ours or by the core.
const COVERED: &[&str] = &[
    "mod_ajp13",
    "mod_authn_file",
    "mod_authn_ldap",
    "mod_authn_pam",
    "mod_compress",
    "mod_fastcgi",
    "mod_gnutls",
    "mod_mbedtls",
    "mod_nss",
    "mod_openssl",
    "mod_proxy",
    "mod_h2",
    "mod_proxy_backend_ajp13",
    "mod_proxy_backend_fastcgi",
    "mod_proxy_backend_http",
    "mod_proxy_backend_scgi",
    "mod_scgi",
    "mod_sockproxy",
    "mod_vhostdb_dbi",
    "mod_vhostdb_ldap",
    "mod_wolfssl",
    "mod_wstunnel",
];

/// Modules of lighttpd 1.4 and 1.5 that this version does not provide.
const LACKING: &[&str] = &[
    "mod_authn_dbi",
    "mod_authn_gssapi",
    "mod_authn_mysql",
    "mod_authn_sasl",
    "mod_geoip",
    "mod_mcpage",
    "mod_mysql_vhost",
    "mod_postgresql_vhost",
    "mod_rrdtool",
    "mod_sql_vhost_core",
    "mod_vhostdb_mysql",
    "mod_vhostdb_pgsql",
];

/// Modules that lighttpd always loads.
const ALWAYS: &[&str] =
    &["core", "mod_chunked", "mod_dirlisting", "mod_indexfile", "mod_proxy_core", "mod_staticfile"];

/// Reports unknown names, and modules that need not be named.
pub(super) fn check(config: &Config<Settings>) -> Vec<Diagnostic> {
    let mut findings = names(config);
    findings.extend(unnamed(config));
    findings
}

fn names(config: &Config<Settings>) -> Vec<Diagnostic> {
    let Some(list) = config.value("server.modules") else { return Vec::new() };
    let items: Vec<_> = match list.value.as_list() {
        Some(items) => items.iter().map(|(_, item)| (&item.value, item.span)).collect(),
        None => vec![(&list.value, list.span)],
    };
    let ours = modules::names();
    let find = |(value, span): (&Value, Span)| {
        let name = value.as_str()?;
        if ours.contains(&name) || COVERED.contains(&name) {
            return None;
        }
        if let Some(part) = absent::module(name) {
            let text = part.is_missing(&format!("server.modules has \"{name}\""));
            return Some(Diagnostic::error("absent", span, text));
        }
        let is_gone = directives::GONE_MODULES.contains(&name);
        if is_gone || LACKING.contains(&name) {
            let instead = directives::INSTEAD.iter().find(|(module, _)| *module == name);
            let help = instead.map(|(_, help)| (*help).to_owned());
            let (code, text) = match is_gone {
                true => ("gone", format!("{name} is a module of lighttpd's that is gone")),
                false => (
                    "not-yet",
                    format!("{name} is a module of lighttpd that is not available in this version"),
                ),
            };
            let found = Diagnostic::new(Level::Warning, code, span, text);
            return Some(found.maybe_help(help));
        }
        let known = ours.iter().chain(COVERED).chain(LACKING).copied();
        let near = Reject::new("").did_you_mean(name, known);
        let text = format!("server.modules has \"{name}\", which is not a known module");
        let found = Diagnostic::new(Level::Warning, "unknown-directive", span, text);
        Some(found.maybe_help(near.help))
    };
    items.into_iter().filter_map(find).collect()
}

/// Returns a note for each active module missing from the file's list.
fn unnamed(config: &Config<Settings>) -> Vec<Diagnostic> {
    if config.value("server.modules").is_none() {
        return Vec::new();
    }
    let named = &config.global().server.modules;
    let rows = rows();
    let mut reported: Vec<&str> = Vec::new();
    let mut notes = Vec::new();
    for setting in config.blocks().iter().flat_map(|block| &block.settings) {
        let Some(row) = rows.iter().find(|row| row.name == setting.name) else { continue };
        let module = row.module;
        let is_named = named.iter().any(|name| stands_for(name, module));
        if ALWAYS.contains(&module) || is_named || reported.contains(&module) {
            continue;
        }
        reported.push(module);
        let text = format!(
            "{} takes effect though server.modules does not name {module}",
            setting.written
        );
        let note = Diagnostic::new(Level::Note, "module", setting.key_span, text);
        notes.push(note.help("lighttpd ignores it there; remove it if it is to do nothing"));
    }
    notes
}

/// True if naming one module loads the other: successors replace their predecessors.
fn stands_for(name: &str, module: &str) -> bool {
    name == module
        || matches!(
            (name, module),
            ("mod_compress", "mod_deflate") | ("mod_deflate", "mod_compress")
        )
}
