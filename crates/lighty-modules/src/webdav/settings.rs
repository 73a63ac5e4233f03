//! The directives and settings of `mod_webdav`.

use std::sync::Arc;

use lighty_config::{CompileCtx, Kind, NeedKind, Reject, Value, parse_map};
use lighty_core::settings::Directive;
use lighty_core::{Settings, module_settings};

/// Settings of the module.
#[derive(Clone, Debug)]
pub(super) struct DavSettings {
    pub(super) active: bool,
    pub(super) readonly: bool,
    /// `PUT`, `COPY` and `MOVE` may replace existing files.
    pub(super) overwrite: bool,
    /// Path of the database; empty: no locks, and no client properties.
    pub(super) database: Arc<str>,
    pub(super) log_xml: bool,
    pub(super) opts: Opts,
    pub(super) xml_bytes_max: usize,
    pub(super) lock_seconds_max: u32,
    pub(super) locks_max: u32,
    pub(super) property_bytes_max: usize,
}

/// `webdav.opts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Opts {
    /// `PUT` with `Content-Range` writes into the existing file.
    pub(super) unsafe_partial_put: bool,
    /// `PUT` with `Content-Range` changes a copy, which then replaces the file.
    pub(super) partial_put_copy_modify: bool,
    pub(super) propfind_depth_infinity: bool,
    pub(super) propfind_follow_symlink: bool,
}

impl Default for DavSettings {
    fn default() -> Self {
        Self {
            active: false,
            readonly: false,
            overwrite: true,
            database: "".into(),
            log_xml: false,
            opts: Opts::default(),
            xml_bytes_max: 256 * 1024,
            lock_seconds_max: 86_400,
            locks_max: 16_384,
            property_bytes_max: 1024 * 1024,
        }
    }
}
module_settings!(DavSettings);

fn own(settings: &mut Settings) -> &mut DavSettings {
    settings.module_mut::<DavSettings>()
}

/// Every directive of the module.
pub(super) fn rows() -> Vec<Directive> {
    let mut rows = collections();
    rows.extend(limits());
    rows.into_iter().map(|row| row.module("mod_webdav")).collect()
}

fn collections() -> Vec<Directive> {
    vec![
        Directive::bool("webdav.activate", |s, on| own(s).active = on)
            .needs(NeedKind::WritesServed)
            .default("disable")
            .since("1.4")
            .doc(
                "Enables WebDAV (RFC 4918): `PROPFIND`, `PUT`, `MKCOL`, `DELETE`, `COPY`, `MOVE`, \
                 `PROPPATCH`, `LOCK`. Require authentication (`auth.require`) wherever it is \
                 enabled. Symbolic links are neither shown nor followed out of the document root.",
            )
            .example("$HTTP[\"url\"] =^ \"/dav/\" { webdav.activate = \"enable\" }"),
        Directive::bool("webdav.is-readonly", |s, on| own(s).readonly = on)
            .default("disable")
            .since("1.4")
            .doc("Answers 403 to every method that would change something.")
            .example("webdav.is-readonly = \"enable\""),
        Directive::bool("webdav.overwrite", |s, on| own(s).overwrite = on)
            .default("enable")
            .since("lighty 0.1")
            .doc(
                "Lets `PUT`, `COPY` and `MOVE` replace existing files and collections. When \
                 disabled, they are answered 412, as if the client had sent `If-None-Match: *` or \
                 `Overwrite: F`. `DELETE` and `PROPPATCH` are not affected.",
            )
            .example("webdav.overwrite = \"disable\""),
        Directive::string("webdav.sqlite-db-name", |s, path| own(s).database = path)
            .needs(NeedKind::WrittenFile)
            .default("")
            .since("1.4")
            .doc(
                "File of the SQLite database for locks and properties; created if it is missing, \
                 in a directory that the server can write. Empty: there are no locks, and \
                 `PROPPATCH` is refused. Locks and properties belong to the file on the disk, \
                 whichever URL or link leads to it. Tables of lighttpd in the same file are left \
                 alone and not read.",
            )
            .example("webdav.sqlite-db-name = \"/var/lib/lighty/webdav.db\""),
        Directive::bool("webdav.log-xml", |s, on| own(s).log_xml = on)
            .default("disable")
            .since("1.4")
            .doc("Writes the XML of requests and responses to the error log.")
            .example("webdav.log-xml = \"enable\""),
        Directive::parsed("webdav.opts", Kind::Map, parse_opts, |s, opts| own(s).opts = *opts)
            .default("()")
            .since("1.4")
            .doc(
                "`propfind-depth-infinity`: `PROPFIND` of whole trees (else 403). \
                 `unsafe-propfind-follow-symlink`: `PROPFIND` shows the targets of symbolic links \
                 beneath the document root if `server.follow-symlink` allows it; the walk of a \
                 whole tree does not enter them. `partial-put-copy-modify`: `PUT` with \
                 `Content-Range` changes a copy of the file, which then takes its place. \
                 `deprecated-unsafe-partial-put`: the same here, for old clients and \
                 configurations: no file is ever seen half written. Without either, \
                 `Content-Range` is answered 400 (RFC 9110 section 14.5).",
            )
            .example("webdav.opts = ( \"propfind-depth-infinity\" => \"enable\" )"),
    ]
}

fn limits() -> Vec<Directive> {
    vec![
        Directive::int("webdav.max-xml-size", 1..=16 << 20, |s, n| {
            own(s).xml_bytes_max = n as usize
        })
        .default("262144")
        .since("lighty 0.1")
        .doc("Bytes that the XML of one request may have (413).")
        .example("webdav.max-xml-size = 65536"),
        Directive::int("webdav.max-lock-timeout", 1..=i64::from(u32::MAX), |s, n| {
            own(s).lock_seconds_max = n as u32;
        })
        .default("86400")
        .since("lighty 0.1")
        .doc(
            "Maximum lifetime of a lock in seconds unless it is refreshed, whatever the client \
             requests (`Infinite` too). Without a requested lifetime it is 600.",
        )
        .example("webdav.max-lock-timeout = 3600"),
        Directive::int("webdav.max-locks", 0..=i64::from(u32::MAX), |s, n| {
            own(s).locks_max = n as u32
        })
        .default("16384")
        .since("lighty 0.1")
        .doc("Locks in one database at most (507).")
        .example("webdav.max-locks = 1000"),
        Directive::int("webdav.max-property-size", 0..=64 << 20, |s, n| {
            own(s).property_bytes_max = n as usize;
        })
        .default("1048576")
        .since("lighty 0.1")
        .doc("Bytes that the properties of one file may take that clients have set (507).")
        .example("webdav.max-property-size = 65536"),
    ]
}

/// Parses a map from names to `"enable"` or `"disable"`.
fn parse_opts(value: &Value, _: &CompileCtx) -> Result<Opts, Reject> {
    let mut opts = Opts::default();
    for (name, word) in &*parse_map(value)? {
        let on = match &**word {
            "enable" => true,
            "disable" => false,
            _ => {
                return Err(Reject::new(format!(
                    "has {name:?} => {word:?}: use enable or disable"
                )));
            }
        };
        let option = match &**name {
            "deprecated-unsafe-partial-put" => &mut opts.unsafe_partial_put,
            "partial-put-copy-modify" => &mut opts.partial_put_copy_modify,
            "propfind-depth-infinity" => &mut opts.propfind_depth_infinity,
            "unsafe-propfind-follow-symlink" => &mut opts.propfind_follow_symlink,
            _ => {
                return Err(Reject::new(format!("has {name:?}, which is no option")).help(
                    "use propfind-depth-infinity, partial-put-copy-modify, \
                     unsafe-propfind-follow-symlink or deprecated-unsafe-partial-put",
                ));
            }
        };
        *option = on;
    }
    Ok(opts)
}
