//! The directives of `mod_magnet`.

use std::sync::Arc;

use lighty_config::{
    CompileCtx, Directive, Kind, NeedKind, Pairs, Reject, Scope, Value, parse_map, parse_strings,
};
use lighty_core::{Settings, module_settings};

type Strings = Arc<[Arc<str>]>;

/// Names of dictionaries and their maximum sizes in KB.
pub(crate) type DictionarySizes = Arc<[(Arc<str>, u64)]>;

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct MagnetSettings {
    pub(crate) raw_url: Strings,
    pub(crate) physical_path: Strings,
    pub(crate) response_start: Strings,
    pub(crate) response_content: Strings,
    pub(crate) http_hosts: Strings,
    /// Names and addresses.
    pub(crate) backends: Pairs,
    pub(crate) max_time_ms: u64,
    pub(crate) max_memory_kbytes: u64,
    pub(crate) max_instructions: u64,
    pub(crate) max_restarts: u8,
    pub(crate) unsafe_calls: bool,
    /// Dictionaries of `lighty.shared`.
    pub(crate) shared: DictionarySizes,
}

impl Default for MagnetSettings {
    fn default() -> Self {
        let none: Strings = Arc::new([]);
        Self {
            raw_url: Arc::clone(&none),
            physical_path: Arc::clone(&none),
            response_start: Arc::clone(&none),
            response_content: Arc::clone(&none),
            http_hosts: none,
            backends: Arc::new([]),
            max_time_ms: 60_000,
            max_memory_kbytes: 8 * 1024,
            max_instructions: 100_000_000,
            max_restarts: 10,
            unsafe_calls: false,
            shared: Arc::new([]),
        }
    }
}
module_settings!(MagnetSettings);

impl MagnetSettings {
    /// Resource limits of a run.
    pub(crate) fn limits(&self) -> lighty_lua::RunLimits {
        lighty_lua::RunLimits {
            time_ms: self.max_time_ms,
            instructions: self.max_instructions,
            memory: (self.max_memory_kbytes as usize).saturating_mul(1024),
        }
    }
}

fn scripts(
    name: &'static str,
    set: impl Fn(&mut MagnetSettings, Strings) + Copy + Send + Sync + 'static,
) -> Directive<Settings> {
    let parse = |value: &Value, _: &CompileCtx| parse_strings(value);
    Directive::parsed(name, Kind::List, parse, move |s: &mut Settings, paths| {
        set(s.module_mut(), Arc::clone(paths));
    })
    .module("mod_magnet")
    .default("()")
    .needs(NeedKind::Read)
    // `lighty.http` reaches every port of this machine.
    .needs(NeedKind::Addresses)
}

/// Parses names and sizes in KB.
fn parse_shared(value: &Value, _: &CompileCtx) -> Result<DictionarySizes, Reject> {
    let pairs = parse_map(value)?;
    let entry = |(name, kbytes): &(Arc<str>, Arc<str>)| match kbytes.parse::<u32>() {
        Ok(kbytes @ 1..) => Ok((Arc::clone(name), u64::from(kbytes))),
        _ => Err(Reject::new(format!("has {name:?} => {kbytes:?}: write a number of KB"))),
    };
    pairs.iter().map(entry).collect()
}

fn number(
    name: &'static str,
    most: i64,
    set: impl Fn(&mut MagnetSettings, i64) + Copy + Send + Sync + 'static,
) -> Directive<Settings> {
    Directive::int(name, 1..=most, move |s: &mut Settings, n| set(s.module_mut(), n))
        .module("mod_magnet")
        .since("lighty 0.1")
}

pub(super) fn directives() -> Vec<Directive<Settings>> {
    [attractions(), limits(), reach()].concat()
}

/// Directives that select the scripts of each phase.
fn attractions() -> Vec<Directive<Settings>> {
    vec![
        scripts("magnet.attract-raw-url-to", |s, v| s.raw_url = v)
            .since("1.4")
            .doc(
                "Lua scripts that run when the URL is known and access was granted, before it leads \
                 to a path. They run in order until one responds or starts the request over.",
            )
            .example("magnet.attract-raw-url-to = ( \"/etc/lighty/redirect.lua\" )"),
        scripts("magnet.attract-physical-path-to", |s, v| s.physical_path = v)
            .since("1.4")
            .doc(
                "Lua scripts that run when the physical path is known, before it is looked up. They \
                 may change it.",
            )
            .example("magnet.attract-physical-path-to = ( \"/etc/lighty/clean-urls.lua\" )"),
        scripts("magnet.attract-response-start-to", |s, v| s.response_start = v)
            .since("1.4")
            .alias("magnet.attract-response-header-to")
            .doc(
                "Lua scripts that run before the response's head is sent. They may change the \
                 fields, and the status by returning a number.",
            )
            .example("magnet.attract-response-start-to = ( \"/etc/lighty/headers.lua\" )"),
        scripts("magnet.attract-response-content-to", |s, v| s.response_content = v)
            .since("1.5")
            .doc(
                "Lua scripts that filter the response's body while it is sent. Each returns a \
                 function (or defines one named `filter`) that is called with each piece of the \
                 body, and at the end with nil, and returns the replacement. `Range` and \
                 `Accept-Encoding` are removed from the request, so that backends send whole, \
                 uncompressed bodies; compressed and partial responses are sent unchanged.",
            )
            .example("magnet.attract-response-content-to = ( \"/etc/lighty/links.lua\" )"),
    ]
}

/// Directives that limit the resources of a run.
fn limits() -> Vec<Directive<Settings>> {
    vec![
        number("magnet.max-time", 3_600_000, |s, v| s.max_time_ms = v.unsigned_abs())
            .default("60000")
            .doc(
                "Milliseconds after which a script is stopped, waiting included; the response is \
                 503.",
            )
            .example("magnet.max-time = 2000"),
        number("magnet.max-memory", 4 << 20, |s, v| s.max_memory_kbytes = v.unsigned_abs())
            .default("8192")
            .doc(
                "KB that one run of a script may hold before it is stopped with a 503, garbage not \
                 counted; and as many that it may give to its response and its request: bodies, \
                 fields, variables.",
            )
            .example("magnet.max-memory = 65536"),
        number("magnet.max-instructions", i64::MAX, |s, v| s.max_instructions = v.unsigned_abs())
            .default("100000000")
            .doc(
                "Instructions of Lua's machine that one run of a script may execute before it is \
                 stopped with a 503. Work in functions that are no Lua counts as the instructions \
                 that would take as long.",
            )
            .example("magnet.max-instructions = 1000000"),
        number("magnet.max-restarts", 10, |s, v| s.max_restarts = v as u8)
            .default("10")
            .doc(
                "Maximum number of restarts of one request by scripts (`lighty.RESTART_REQUEST`); \
                 beyond it the response is 500.",
            )
            .example("magnet.max-restarts = 3"),
    ]
}

/// Directives for resources other than the request.
fn reach() -> Vec<Directive<Settings>> {
    vec![
        Directive::map("magnet.backends", |s: &mut Settings, pairs| {
            s.module_mut::<MagnetSettings>().backends = pairs;
        })
        .needs(NeedKind::Addresses)
        .module("mod_magnet")
        .default("()")
        .since("lighty 0.1")
        .doc(
            "Names and addresses of HTTP backends that scripts may request from \
             (`lighty.backend(NAME, ...)`).",
        )
        .example("magnet.backends = ( \"api\" => \"127.0.0.1:8000\" )"),
        Directive::strings("magnet.http-hosts", |s: &mut Settings, list| {
            s.module_mut::<MagnetSettings>().http_hosts = list;
        })
        .needs(NeedKind::Addresses)
        .module("mod_magnet")
        .default("()")
        .since("lighty 0.1")
        .doc(
            "Hosts that `lighty.http` may request from, as `host:port`, besides this machine's \
             loopback addresses.",
        )
        .example("magnet.http-hosts = ( \"api.example.org:80\" )"),
        Directive::parsed("magnet.shared", Kind::Map, parse_shared, |s: &mut Settings, own| {
            s.module_mut::<MagnetSettings>().shared = Arc::clone(own);
        })
        .module("mod_magnet")
        .scope(Scope::Server)
        .default("()")
        .since("lighty 0.1")
        .doc(
            "Dictionaries that all workers share (`lighty.shared.NAME`), and the KB that each may \
             take. A full dictionary removes the entries that were not used for longest. A reload \
             keeps dictionaries.",
        )
        .example("magnet.shared = ( \"cache\" => \"16384\" )"),
        Directive::bool("magnet.unsafe", |s: &mut Settings, on| {
            s.module_mut::<MagnetSettings>().unsafe_calls = on;
        })
        .needs(NeedKind::Program)
        .module("mod_magnet")
        .scope(Scope::Server)
        .default("disable")
        .since("lighty 0.1")
        .doc(
            "Allows scripts `os.execute`, `os.remove`, `os.rename`, `io.popen` and files open for \
             writing. These calls block the worker, and all its connections, until they return.",
        )
        .example("magnet.unsafe = \"enable\""),
    ]
}
