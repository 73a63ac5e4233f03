//! The directives `vhostdb.*`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lighty_config::{
    CompileCtx, Directive, Kind, NeedKind, Reject, Value, parse_int_clamped, parse_string,
    parse_switch,
};
use lighty_core::{Settings, module_settings};
use lighty_identity::directory::{
    BindPassword, DirectoryOptions, DirectoryServer, HostFilter, TIMEOUT_DEFAULT,
};

use super::statement::with_parameter;

/// Settings of the module.
#[derive(Clone, Debug)]
pub(super) struct VhostdbSettings {
    pub(super) backend: Option<VhostBackend>,
    pub(super) cache_ms: u64,
    sqlite: Option<Arc<SqliteVhosts>>,
    ldap: Option<Arc<LdapVhosts>>,
}
module_settings!(VhostdbSettings);

impl Default for VhostdbSettings {
    fn default() -> Self {
        Self { backend: None, cache_ms: 600_000, sqlite: None, ldap: None }
    }
}

/// `vhostdb.backend`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VhostBackend {
    Dbi,
    Ldap,
}

/// `vhostdb.dbi`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SqliteVhosts {
    /// The statement, with the host as `?1`.
    pub(super) sql: String,
    /// Path of the database.
    pub(super) path: String,
}

/// `vhostdb.ldap`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LdapVhosts {
    pub(super) directory: DirectoryOptions,
    pub(super) base: Arc<str>,
    pub(super) filter: HostFilter,
    pub(super) attribute: Arc<str>,
}

/// The source of document roots.
#[derive(Clone, Copy)]
pub(super) enum VhostSource<'a> {
    Sqlite(&'a Arc<SqliteVhosts>),
    Ldap(&'a Arc<LdapVhosts>),
}

impl VhostSource<'_> {
    /// A text that tells it from others.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Sqlite(options) => format!("{}\n{}", options.path, options.sql),
            Self::Ldap(options) => {
                let servers: Vec<String> =
                    options.directory.servers.iter().map(ToString::to_string).collect();
                let (base, attribute) = (&options.base, &options.attribute);
                format!("{}\n{base}\n{}\n{attribute}", servers.join(" "), options.filter)
            }
        }
    }
}

impl VhostdbSettings {
    /// The source that the backend names, if it is configured.
    pub(super) fn source(&self) -> Option<VhostSource<'_>> {
        match self.backend? {
            VhostBackend::Dbi => self.sqlite.as_ref().map(VhostSource::Sqlite),
            VhostBackend::Ldap => self.ldap.as_ref().map(VhostSource::Ldap),
        }
    }
}

fn own(s: &mut Settings) -> &mut VhostdbSettings {
    s.module_mut()
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_vhostdb").since("1.4")
}

/// All rows.
pub(super) fn directives() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed(
            "vhostdb.backend",
            Kind::Choice(&["", "dbi", "ldap"]),
            |value, _| parse_backend(value),
            |s, v| own(s).backend = *v,
        ))
        .default("")
        .doc(
            "Source of the document roots of hosts: `dbi` for a database of SQLite \
             (`vhostdb.dbi`), `ldap` for a directory (`vhostdb.ldap`). A host without an entry is \
             left to `simple-vhost.*`, `evhost.*` and `server.document-root`. If the source fails, \
             or names no directory, the response is 500.",
        )
        .example("vhostdb.backend = \"dbi\""),
        row(Directive::parsed("vhostdb.cache", Kind::Array, parse_cache, |s, v| {
            own(s).cache_ms = *v;
        }))
        .default("( \"max-age\" => 600 )")
        .doc(
            "Seconds for which a document root is remembered, 0 to 86400. Hosts without an entry \
             are remembered for ten seconds at most, and 10,000 hosts in all.",
        )
        .example("vhostdb.cache = ( \"max-age\" => 60 )"),
        row(Directive::parsed("vhostdb.dbi", Kind::Array, parse_dbi, |s, v| {
            own(s).sqlite = v.clone();
        }))
        .needs_at("sqlite3_dbdir", NeedKind::ReadDirectory)
        .default("()")
        .doc(
            "A database of SQLite. `dbtype` is `sqlite3`, `sqlite3_dbdir` its directory, `dbname` \
             its file, `sql` the statement: the first column of the first row is the document \
             root. Each `?`, also within quotes, is the host without its port; it is passed as a \
             parameter.",
        )
        .example(
            "vhostdb.dbi = (\n    \"dbtype\" => \"sqlite3\",\n    \"sqlite3_dbdir\" => \
             \"/var/lib/lighty\",\n    \"dbname\" => \"vhosts.db\",\n    \"sql\" => \"SELECT \
             docroot FROM vhosts WHERE host = '?'\"\n)",
        ),
        row(Directive::parsed("vhostdb.ldap", Kind::Array, parse_ldap, |s, v| {
            own(s).ldap = v.clone();
        }))
        .needs_at("host", NeedKind::DirectoryServers)
        .needs_at("cafile", NeedKind::Read)
        .needs_at("ca-file", NeedKind::Read)
        .default("()")
        .doc(
            "A directory. `host` lists its servers, as `auth.backend.ldap.hostname` does; `filter` \
             finds the entry of a host, with the host for each `?`, beneath `base-dn`; `attr` is \
             the attribute with the document root (`documentRoot`). Further keys: `bind-dn`, \
             `bind-pw`, `ca-file`, `starttls`, `timeout` (microseconds, `2000000`).",
        )
        .example(
            "vhostdb.ldap = (\n    \"host\" => \"ldaps://ldap.example.org\",\n    \"base-dn\" => \
             \"ou=hosts,dc=example,dc=org\",\n    \"filter\" => \"(associatedDomain=?)\"\n)",
        ),
    ]
}

fn parse_backend(value: &Value) -> Result<Option<VhostBackend>, Reject> {
    match value.as_str() {
        Some("") => Ok(None),
        Some("dbi") => Ok(Some(VhostBackend::Dbi)),
        Some("ldap") => Ok(Some(VhostBackend::Ldap)),
        Some(name @ ("mysql" | "pgsql")) => {
            let text = format!("is \"{name}\", which is not available");
            Err(Reject::new(text).help(
                "there are \"dbi\" with SQLite and \"ldap\"; or write the hosts to a file that an \
                 `include_shell` makes from the database",
            ))
        }
        _ => Err(Reject::new("must be \"dbi\" or \"ldap\"")),
    }
}

fn parse_cache(value: &Value, ctx: &CompileCtx) -> Result<u64, Reject> {
    let form =
        || Reject::new("must be an array of \"max-age\"").help("write `( \"max-age\" => 600 )`");
    let mut seconds = 600;
    for (key, item) in value.as_list().ok_or_else(form)? {
        if key.as_deref() != Some("max-age") {
            return Err(form().at(item.span));
        }
        let warn = |warning: Reject| ctx.warn(warning.at(item.span));
        seconds = parse_int_clamped(&item.value, &(0..=86_400), warn)
            .map_err(|reject| reject.at(item.span))?;
    }
    Ok(seconds.unsigned_abs() * 1000)
}

/// The values of an array of texts, by key; the last one of a key counts.
fn texts<'a>(
    value: &'a Value,
    keys: &[&'static str],
) -> Result<Vec<(&'static str, &'a Value)>, Reject> {
    let form = || Reject::new("must be an array of keys and values");
    let mut found = Vec::new();
    for (key, item) in value.as_list().ok_or_else(form)? {
        let key = key.as_deref().ok_or_else(|| form().at(item.span))?;
        let Some(known) = keys.iter().find(|known| **known == key) else {
            let reject = Reject::new(format!("has an unknown key \"{key}\"")).at(item.span);
            return Err(reject.did_you_mean(key, keys.iter().copied()));
        };
        found.push((*known, &item.value));
    }
    Ok(found)
}

fn parse_dbi(value: &Value, _: &CompileCtx) -> Result<Option<Arc<SqliteVhosts>>, Reject> {
    let keys = [
        "sql",
        "dbtype",
        "dbname",
        "sqlite3_dbdir",
        "sqlite_dbdir",
        "host",
        "port",
        "username",
        "password",
        "encoding",
    ];
    let given = texts(value, &keys)?;
    if given.is_empty() {
        return Ok(None);
    }
    let text = |key: &str| -> Result<Arc<str>, Reject> {
        let found = given.iter().rev().find(|(known, _)| *known == key);
        found.map_or(Ok("".into()), |(_, value)| parse_string(value))
    };
    let needed = |key: &str| match text(key)? {
        text if text.is_empty() => Err(Reject::new(format!("needs \"{key}\""))),
        text => Ok(text),
    };
    let kind = needed("dbtype")?;
    if !matches!(&*kind, "sqlite3" | "sqlite") {
        let text = format!("has the dbtype \"{kind}\", which is not available");
        return Err(Reject::new(text).help("there is \"sqlite3\""));
    }
    let (directory, name) = (needed("sqlite3_dbdir")?, needed("dbname")?);
    let sql = with_parameter(&needed("sql")?);
    let sql = sql.ok_or_else(|| Reject::new("has no \"?\" for the host in \"sql\""))?;
    let path = format!("{}/{name}", directory.trim_end_matches('/'));
    Ok(Some(Arc::new(SqliteVhosts { sql, path })))
}

fn parse_ldap(value: &Value, ctx: &CompileCtx) -> Result<Option<Arc<LdapVhosts>>, Reject> {
    let keys = [
        "host", "base-dn", "filter", "attr", "bind-dn", "bind-pw", "cafile", "ca-file", "starttls",
        "timeout",
    ];
    let given = texts(value, &keys)?;
    if given.is_empty() {
        return Ok(None);
    }
    let error = |error: &dyn fmt::Display, key: &str| Reject::new(format!("\"{key}\" {error}"));
    let mut directory = DirectoryOptions::default();
    let (mut base, mut attribute): (Arc<str>, Arc<str>) = ("".into(), "documentRoot".into());
    let mut filter = None;
    for (key, value) in given {
        let text = || parse_string(value);
        match key {
            "host" => {
                let servers = DirectoryServer::parse_list(&text()?);
                directory.servers = servers.map_err(|why| error(&why, key))?.into();
            }
            "base-dn" => base = text()?,
            "filter" => {
                let parsed = HostFilter::parse(&text()?);
                filter = Some(parsed.map_err(|why| error(&why, key))?);
            }
            "attr" => attribute = text()?,
            "bind-dn" => directory.bind_dn = text()?,
            "bind-pw" => directory.bind_password = BindPassword::Text(text()?),
            "cafile" | "ca-file" => {
                directory.ca_file = Some(text()?).filter(|file| !file.is_empty());
            }
            "starttls" => directory.starttls = parse_switch(value, ctx)?,
            _ => directory.timeout = parse_timeout(value)?,
        }
    }
    if directory.servers.is_empty() {
        return Err(Reject::new("needs \"host\""));
    }
    let filter = filter.ok_or_else(|| Reject::new("needs \"filter\""))?;
    Ok(Some(Arc::new(LdapVhosts { directory, base, filter, attribute })))
}

/// Microseconds, as in lighttpd.
fn parse_timeout(value: &Value) -> Result<Duration, Reject> {
    let text = value.as_str();
    if text == Some("") {
        return Ok(TIMEOUT_DEFAULT);
    }
    let micros = value.as_int().or_else(|| text?.parse().ok());
    let micros = micros.filter(|micros| (1_000..=60_000_000).contains(micros));
    let micros = micros
        .ok_or_else(|| Reject::new("\"timeout\" must be from 1000 to 60000000 microseconds"))?;
    Ok(Duration::from_micros(micros.unsigned_abs()))
}
