//! The directives `cache.*`.

use std::sync::Arc;

use lighty_cache::disk::DiskLimits;
use lighty_cache::rules::{Policy, QueryRule, RequestDirectives, SetCookie, ValidRow};
use lighty_cache::store::Limits;
use lighty_config::{
    CompileCtx, Directive, Kind, NeedKind, Reject, Scope, Spanned, Value, parse_period, parse_size,
    parse_strings,
};
use lighty_core::{Settings, module_settings};
use lighty_http::fields::is_token;

use super::purging::{self, PurgeRules};

/// Memory of a store, in bytes.
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 44;

/// Largest body that is stored, in bytes.
const OBJECT_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 40;

/// Largest body in memory of a store on a disk, in bytes.
const MEMORY_OBJECT_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 20;

/// Files of a store on a disk, in bytes.
const DISK_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=1 << 48;

/// Slices of large responses, in bytes.
const SLICE_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;

/// Settings of the module.
#[derive(Clone, Debug)]
pub(super) struct CacheSettings {
    pub(super) stores: Arc<[StoreSpec]>,
    pub(super) store: Arc<str>,
    pub(super) policy: Arc<Policy>,
    pub(super) key: Arc<KeySpec>,
    pub(super) query: QueryRule,
    pub(super) variants_max: usize,
    pub(super) head_bytes_max: u64,
    pub(super) lock_ms: u64,
    pub(super) pass_ms: u64,
    pub(super) finish: Finish,
    /// 0: responses are not sliced.
    pub(super) slice_bytes: u64,
    pub(super) tag_fields: Arc<[Box<str>]>,
    pub(super) tags_max: usize,
    pub(super) hides_tags: bool,
    pub(super) purge: Arc<PurgeRules>,
    pub(super) status_field: bool,
    pub(super) name: Arc<str>,
    pub(super) debug: i64,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            stores: Arc::from([]),
            store: "".into(),
            policy: Arc::default(),
            key: Arc::default(),
            query: QueryRule::All,
            variants_max: 32,
            head_bytes_max: 8192,
            lock_ms: 5_000,
            pass_ms: 120_000,
            finish: Finish::Auto,
            slice_bytes: 0,
            tag_fields: ["Surrogate-Key", "xkey", "Cache-Tag"].map(Box::from).into(),
            tags_max: 64,
            hides_tags: true,
            purge: Arc::default(),
            status_field: false,
            name: "lighty".into(),
            debug: 0,
        }
    }
}
module_settings!(CacheSettings);

/// A store as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreSpec {
    pub(super) name: Arc<str>,
    pub(super) memory: u64,
    /// Bytes of the largest body, if it is configured.
    object_bytes: Option<u64>,
    /// Its directory; empty: it is in memory only.
    pub(super) path: Arc<str>,
    /// Bytes of its files.
    size: u64,
    memory_object_bytes: u64,
    free_percent: u8,
    verifies_always: bool,
}

impl StoreSpec {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            memory: 64 << 20,
            object_bytes: None,
            path: "".into(),
            size: 1 << 30,
            memory_object_bytes: 64 << 10,
            free_percent: 5,
            verifies_always: false,
        }
    }

    pub(super) fn is_on_disk(&self) -> bool {
        !self.path.is_empty()
    }

    /// Limits on a disk. One body must not displace most of the others.
    pub(super) fn limits(&self, variants: usize) -> Limits {
        let object_bytes = self.object_bytes.unwrap_or(1 << 30).min(self.size / 4);
        let disk_from_bytes = self.memory_object_bytes;
        Limits { memory: self.memory, object_bytes, disk_from_bytes, variants }
    }

    /// Limits without a disk.
    pub(super) fn memory_limits(&self, variants: usize) -> Limits {
        let object_bytes = self.object_bytes.unwrap_or(1 << 20);
        Limits { memory: self.memory, object_bytes, disk_from_bytes: u64::MAX, variants }
    }

    /// Bytes of the largest body that it holds.
    pub(super) fn object_bytes_max(&self) -> u64 {
        let limits = if self.is_on_disk() { self.limits(1) } else { self.memory_limits(1) };
        limits.object_bytes
    }

    pub(super) fn disk_limits(&self) -> DiskLimits {
        DiskLimits {
            bytes: self.size,
            memory_object_bytes: self.memory_object_bytes,
            queued_bytes: (self.memory / 4).clamp(self.memory.min(2 << 20), 16 << 20),
            free_percent: self.free_percent,
            verifies_always: self.verifies_always,
        }
    }
}

/// Parts of the key beside host and target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeySpec {
    /// Names of request fields.
    pub(super) fields: Vec<Box<[u8]>>,
    /// Names of cookies.
    pub(super) cookies: Vec<Box<[u8]>>,
    /// The user's name.
    pub(super) user: bool,
}

/// The parameters of a query that are part of the key. The backend gets no others.
fn parse_query(value: &Value, _: &CompileCtx) -> Result<QueryRule, Reject> {
    let names = parse_strings(value)?;
    match &*names {
        [only] if &**only == "all" => return Ok(QueryRule::All),
        [only] if &**only == "none" => return Ok(QueryRule::None),
        _ => {}
    }
    QueryRule::from_names(names.iter().map(|name| &**name)).map_err(|fault| {
        Reject::new(fault.to_string())
            .help("write \"all\", \"none\", ( \"page\", \"q\" ) or ( \"!utm_*\" )")
    })
}

/// Fetches that go on when no client waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// The ones that have got at least half of the body, or lack less than 1 MiB of it.
    Auto,
    Always,
    Never,
}

fn own(settings: &mut Settings) -> &mut CacheSettings {
    settings.module_mut()
}

fn policy(settings: &mut Settings) -> &mut Policy {
    Arc::make_mut(&mut own(settings).policy)
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_cache").since("lighty 0.1")
}

/// All rows.
pub(super) fn directives() -> Vec<Directive<Settings>> {
    let mut rows = stores();
    rows.extend(lifetimes());
    rows.extend(responses());
    rows.extend(keys());
    rows.extend(flights());
    rows.extend(purges());
    rows
}

fn stores() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed("cache.stores", Kind::Array, parse_stores, |s, v| {
            own(s).stores = Arc::clone(v);
        }))
        .scope(Scope::Server)
        .needs_at("path", NeedKind::Written)
        .default("()")
        .doc(
            "Stores of responses by name. `memory` is the memory of a store (\"64M\"); `path` its \
             directory, without which it is in memory only; `size` the bytes of its files (\"1G\"); \
             `max-object-size` the largest body that is stored (\"1M\", with a path \"1G\"), at most \
             a quarter of `size`; `memory-object-size` the largest body in memory (\"64K\"); \
             `min-free` the part of the file system that stays free (\"5%\"); `verify` says whether \
             bodies are compared with their checksums the first time (`first`) or `always`. All \
             workers share a store, and a reload keeps its contents. See \
             [Caching](../caching.md#on-a-disk).",
        )
        .example(
            "cache.stores = ( \"pages\" => ( \"memory\" => \"256M\" ),\n                 \"files\" => ( \"path\" => \"/var/cache/lighty/files\", \"size\" => \"20G\" ) )",
        ),
        row(Directive::string("cache.store", |s, v| own(s).store = v))
            .needs(NeedKind::Nothing)
            .default("")
            .doc(
                "Store for the responses of backends and CGI programs to these requests; `\"\"`: \
                 none. Responses decide by their fields whether and how long they are stored (RFC \
                 9111); see [Caching](../caching.md).",
            )
            .example("$HTTP[\"host\"] == \"www.example.org\" { cache.store = \"pages\" }"),
    ]
}

fn lifetimes() -> Vec<Directive<Settings>> {
    let seconds = |value: &Value, _: &CompileCtx| seconds(value);
    vec![
        row(Directive::parsed("cache.valid", Kind::Array, parse_valid, |s, v| {
            policy(s).valid.clone_from(v);
        }))
        .default("()")
        .doc(
            "Lifetimes of responses that name none, by status or \"any\"; 0: such responses are \
             not stored. \"any\" does not cover errors that a client can cause, such as 400 and \
             431.",
        )
        .example("cache.valid = ( \"200\" => \"10min\", \"404\" => 30 )"),
        row(Directive::bool("cache.override", |s, on| policy(s).overrides = on))
            .default("disable")
            .doc(
            "Ignores Cache-Control and Expires of responses for which `cache.valid` has a lifetime, \
             also `private` and `no-store`.",
        )
            .example("cache.override = \"enable\""),
        row(Directive::int("cache.heuristic", 0..=100, |s, v| {
            policy(s).heuristic_percent = u8::try_from(v).unwrap_or(10);
        }))
        .default("10")
        .doc(
            "Lifetime of responses that name none, in percent of the time since their \
             Last-Modified; 0: none.",
        )
        .example("cache.heuristic = 0"),
        row(Directive::parsed("cache.heuristic-max", Kind::String, seconds, |s, v| {
            policy(s).heuristic_max_s = *v;
        }))
        .default("24h")
        .doc("Limit of the lifetime by `cache.heuristic`.")
        .example("cache.heuristic-max = \"1h\""),
        row(Directive::parsed("cache.max-age", Kind::String, seconds, |s, v| {
            policy(s).max_age_s = *v;
        }))
        .default("8760h")
        .doc("Limit of every lifetime.")
        .example("cache.max-age = \"168h\""),
        row(Directive::parsed("cache.stale-while-revalidate", Kind::String, seconds, |s, v| {
            policy(s).stale_while_revalidate_s = *v;
        }))
        .default("0")
        .doc(
            "Time after its lifetime for which a response is served while it is fetched anew, if \
             it names none (RFC 5861). It never overrules `must-revalidate` and the like.",
        )
        .example("cache.stale-while-revalidate = \"1min\""),
        row(Directive::parsed("cache.stale-if-error", Kind::String, seconds, |s, v| {
            policy(s).stale_if_error_s = *v;
        }))
        .default("0")
        .doc(
            "Time after its lifetime for which a response is served if the backend cannot be \
             reached or answers 500, 502, 503 or 504, if it names none.",
        )
        .example("cache.stale-if-error = \"24h\""),
    ]
}

fn responses() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed("cache.targets", Kind::List, parse_names, |s, v| {
            policy(s).targets = v.iter().map(|name| Box::from(&**name)).collect();
        }))
        .default("( \"CDN-Cache-Control\" )")
        .doc(
            "Fields with directives for this cache alone (RFC 9213), in order. The first one that \
             a response has replaces its Cache-Control and Expires.",
        )
        .example("cache.targets = ( \"Lighty-Cache-Control\", \"CDN-Cache-Control\" )"),
        row(Directive::parsed(
            "cache.set-cookie",
            Kind::Choice(&["pass", "store", "strip"]),
            |value, _| parse_set_cookie(value),
            |s, v| policy(s).set_cookie = *v,
        ))
        .default("pass")
        .doc(
            "Responses with Set-Cookie: `pass` does not store them, `store` stores them with the \
             cookie, which every visitor then gets, `strip` without it.",
        )
        .example("cache.set-cookie = \"strip\""),
        row(Directive::parsed(
            "cache.request-directives",
            Kind::Choice(&["ignore", "revalidate", "honor"]),
            |value, _| parse_request_directives(value),
            |s, v| policy(s).request_directives = *v,
        ))
        .default("ignore")
        .doc(
            "Cache-Control of requests: `ignore` obeys only `no-store` and `only-if-cached`, \
             `revalidate` also lets clients that reload have a response validated, `honor` obeys \
             all of it.",
        )
        .example("cache.request-directives = \"revalidate\""),
    ]
}

fn keys() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed("cache.key", Kind::List, parse_key, |s, v| {
            own(s).key = Arc::clone(v);
        }))
        .default("()")
        .doc(
            "Further parts of the key: `header:Name`, `cookie:name`, `user`. The key has the \
             backend, the scheme, the host and the target as the backend gets them. Fields that \
             often change a response without being part of the key, such as X-Forwarded-Host, are \
             removed from the requests that fill the store, unless they are named here.",
        )
        .example("cache.key = ( \"cookie:lang\", \"header:X-Device\" )"),
        row(Directive::parsed("cache.key-query", Kind::List, parse_query, |s, v| {
            own(s).query = v.clone();
        }))
        .default("( \"all\" )")
        .doc(
            "Parameters of the query that are part of the key: `\"all\"`, `\"none\"`, names, or \
             names to leave out (`\"!utm_*\"`). The backend gets no others when it fills the store.",
        )
        .example("cache.key-query = ( \"!utm_*\", \"!fbclid\" )"),
        row(Directive::int("cache.max-variants", 1..=1024, |s, v| {
            own(s).variants_max = usize::try_from(v).unwrap_or(32);
        }))
        .default("32")
        .doc("Responses to one URL that differ by the fields in their Vary. The oldest one leaves.")
        .example("cache.max-variants = 8"),
        row(Directive::parsed(
            "cache.max-request-head",
            Kind::String,
            |value, _| parse_size(value, &(256..=1 << 20)),
            |s, v| own(s).head_bytes_max = *v,
        ))
        .default("8K")
        .doc("Requests with a larger head go past the cache.")
        .example("cache.max-request-head = \"4K\""),
    ]
}

fn flights() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed(
            "cache.lock-timeout",
            Kind::String,
            |value, _| parse_period(value, 1_000),
            |s, v| own(s).lock_ms = *v,
        ))
        .default("5s")
        .doc(
            "Requests for a response that is being fetched wait for it. After this time without a \
             head, one of them asks the backend anew, and later requests wait for that answer.",
        )
        .example("cache.lock-timeout = \"2s\""),
        row(Directive::parsed(
            "cache.pass-time",
            Kind::String,
            |value, _| parse_period(value, 0),
            |s, v| own(s).pass_ms = *v,
        ))
        .default("2min")
        .doc(
            "Time for which requests of a URL do not wait for each other after a response that is \
             not stored.",
        )
        .example("cache.pass-time = \"10s\""),
        row(Directive::parsed(
            "cache.finish-fetch",
            Kind::Choice(&["auto", "always", "never"]),
            |value, _| parse_finish(value),
            |s, v| own(s).finish = *v,
        ))
        .default("auto")
        .doc(
            "Fetches that go on when all their clients have left: `auto` those with at least half \
             of the body, or all but 1 MiB.",
        )
        .example("cache.finish-fetch = \"always\""),
        row(Directive::parsed(
            "cache.slice-size",
            Kind::String,
            |value, _| parse_slice_size(value),
            |s, v| own(s).slice_bytes = *v,
        ))
        .default("0")
        .doc(
            "Requests for a range of a response that is not stored fetch and store it in slices of \
             this size, from 64K to 64M; 0: the backend gets these requests as they are. See \
             [Slices](../caching.md#slices).",
        )
        .example("cache.slice-size = \"1M\""),
    ]
}

fn purges() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed("cache.purge", Kind::Array, purging::parse, |s, v| {
            own(s).purge = Arc::clone(v);
        }))
        .needs_at("token-file", NeedKind::Read)
        .default("()")
        .doc(
            "Paths at which responses are removed from all stores, for clients with an address in \
             `from` (addresses and networks) or with the secret in `token-file` as `Authorization: \
             Bearer`; if both are given, both are needed. See [Purging](../caching.md#purging).",
        )
        .example("cache.purge = ( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )"),
        row(Directive::parsed("cache.tags", Kind::List, parse_names, |s, v| {
            own(s).tag_fields = v.iter().map(|name| Box::from(&**name)).collect();
        }))
        .default("( \"Surrogate-Key\", \"xkey\", \"Cache-Tag\" )")
        .doc("Response fields with tags, by which responses can be purged.")
        .example("cache.tags = ( \"Cache-Tag\" )"),
        row(Directive::int("cache.max-tags", 0..=1024, |s, v| {
            own(s).tags_max = usize::try_from(v).unwrap_or(64);
        }))
        .default("64")
        .doc("Tags of a response. A response with more is not stored.")
        .example("cache.max-tags = 16"),
        row(Directive::bool("cache.hide-tags", |s, on| own(s).hides_tags = on))
            .default("enable")
            .doc("Removes fields with tags from responses to clients.")
            .example("cache.hide-tags = \"disable\""),
        row(Directive::bool("cache.status-header", |s, on| own(s).status_field = on))
            .default("disable")
            .doc("Adds Cache-Status (RFC 9211) to responses.")
            .example("cache.status-header = \"enable\""),
        row(Directive::string("cache.name", |s, v| own(s).name = v))
            .default("lighty")
            .doc("Name of this cache in Cache-Status.")
            .example("cache.name = \"edge-1\""),
        row(Directive::int("cache.debug", 0..=2, |s, v| own(s).debug = v))
            .default("0")
            .doc(
                "Writes to the error log: 1: fetched responses that are not stored, with the \
                 reason; 2: the result of each request, too.",
            )
            .example("cache.debug = 1"),
    ]
}

fn seconds(value: &Value) -> Result<u32, Reject> {
    let ms = parse_period(value, 0)?;
    Ok(u32::try_from(ms / 1000).unwrap_or(u32::MAX))
}

const STORES_FORM: &str = "write `( \"pages\" => ( \"memory\" => \"64M\" ) )`";

fn parse_stores(value: &Value, _: &CompileCtx) -> Result<Arc<[StoreSpec]>, Reject> {
    let items = value.as_list().ok_or_else(|| Reject::new("must be an array").help(STORES_FORM))?;
    let named = |(key, item): &(Option<lighty_config::Key>, Spanned<Value>)| {
        let missing = || Reject::new("has a store without a name").help(STORES_FORM).at(item.span);
        let key = key.as_ref().ok_or_else(missing)?;
        parse_store(key, &item.value).map_err(|mut reject| {
            reject.span = reject.span.or(Some(item.span));
            reject
        })
    };
    let specs: Arc<[StoreSpec]> = items.iter().map(named).collect::<Result<_, _>>()?;
    for (at, spec) in specs.iter().enumerate().filter(|(_, spec)| spec.is_on_disk()) {
        if specs[..at].iter().any(|other| other.path == spec.path) {
            return Err(Reject::new(format!("has two stores in \"{}\"", spec.path)));
        }
    }
    Ok(specs)
}

fn parse_store(key: &str, value: &Value) -> Result<StoreSpec, Reject> {
    let items = value.as_list().ok_or_else(|| Reject::new("needs an array").help(STORES_FORM))?;
    let mut spec = StoreSpec::new(key);
    for (key, item) in items {
        let Some(key) = key else {
            return Err(Reject::new("has an element without a key").help(STORES_FORM));
        };
        set_of_store(&mut spec, key, &item.value).map_err(|reject| reject.at(item.span))?;
    }
    Ok(spec)
}

fn set_of_store(spec: &mut StoreSpec, key: &str, value: &Value) -> Result<(), Reject> {
    match key {
        "memory" => spec.memory = parse_size(value, &MEMORY_BYTES)?,
        "max-object-size" => spec.object_bytes = Some(parse_size(value, &OBJECT_BYTES)?),
        "size" => spec.size = parse_size(value, &DISK_BYTES)?,
        "memory-object-size" => {
            spec.memory_object_bytes = parse_size(value, &MEMORY_OBJECT_BYTES)?;
        }
        "path" => {
            let path = value.as_str().filter(|path| path.starts_with('/'));
            let path =
                path.ok_or_else(|| Reject::new("must be the absolute path of a directory"))?;
            spec.path = path.trim_end_matches('/').into();
        }
        "min-free" => {
            let percent = value.as_str().and_then(|text| text.strip_suffix('%'));
            let percent = percent.and_then(|text| text.parse().ok()).filter(|part| *part <= 90);
            let form = "must be a part of the file system from \"0%\" to \"90%\"";
            spec.free_percent = percent.ok_or_else(|| Reject::new(form))?;
        }
        "verify" => {
            spec.verifies_always = match value.as_str() {
                Some("first") => false,
                Some("always") => true,
                _ => return Err(Reject::new("must be \"first\" or \"always\"")),
            }
        }
        other => {
            let reject = Reject::new(format!("has an unknown key \"{other}\""));
            return Err(reject.did_you_mean(other, STORE_KEYS));
        }
    }
    Ok(())
}

/// Keys of a store.
const STORE_KEYS: [&str; 7] =
    ["memory", "max-object-size", "path", "size", "memory-object-size", "min-free", "verify"];

fn parse_valid(value: &Value, _: &CompileCtx) -> Result<Vec<ValidRow>, Reject> {
    let help = "write `( \"200\" => \"10min\", \"any\" => 60 )`";
    let form = || Reject::new("must be an array of statuses and times").help(help);
    let mut rows = Vec::new();
    for (key, item) in value.as_list().ok_or_else(form)? {
        let status = match key.as_deref() {
            Some("any") => None,
            Some(text) => {
                let status = text.parse().ok().filter(|status| (200..=599).contains(status));
                Some(status.ok_or_else(|| form().at(item.span))?)
            }
            None => return Err(form().at(item.span)),
        };
        let seconds = seconds(&item.value).map_err(|reject| reject.at(item.span))?;
        rows.push(ValidRow { status, seconds });
    }
    Ok(rows)
}

fn parse_set_cookie(value: &Value) -> Result<SetCookie, Reject> {
    match value.as_str() {
        Some("pass") => Ok(SetCookie::Pass),
        Some("store") => Ok(SetCookie::Store),
        Some("strip") => Ok(SetCookie::Strip),
        _ => Err(Reject::new("must be \"pass\", \"store\" or \"strip\"")),
    }
}

fn parse_request_directives(value: &Value) -> Result<RequestDirectives, Reject> {
    match value.as_str() {
        Some("ignore") => Ok(RequestDirectives::Ignore),
        Some("revalidate") => Ok(RequestDirectives::Revalidate),
        Some("honor") => Ok(RequestDirectives::Honor),
        _ => Err(Reject::new("must be \"ignore\", \"revalidate\" or \"honor\"")),
    }
}

fn parse_finish(value: &Value) -> Result<Finish, Reject> {
    match value.as_str() {
        Some("auto") => Ok(Finish::Auto),
        Some("always") => Ok(Finish::Always),
        Some("never") => Ok(Finish::Never),
        _ => Err(Reject::new("must be \"auto\", \"always\" or \"never\"")),
    }
}

pub(super) fn parse_slice_size(value: &Value) -> Result<u64, Reject> {
    let is_off = matches!(value, Value::Int(0)) || value.as_str() == Some("0");
    if is_off { Ok(0) } else { parse_size(value, &SLICE_BYTES) }
}

fn parse_names(value: &Value, _: &CompileCtx) -> Result<Vec<Arc<str>>, Reject> {
    let names = parse_strings(value)?;
    match names.iter().find(|name| !is_token(name.as_bytes())) {
        Some(name) => Err(Reject::new(format!("\"{name}\" is no name of a field"))),
        None => Ok(names.to_vec()),
    }
}

fn parse_key(value: &Value, _: &CompileCtx) -> Result<Arc<KeySpec>, Reject> {
    let mut spec = KeySpec::default();
    for part in parse_strings(value)?.iter() {
        match part.split_once(':') {
            Some(("header", name)) if is_token(name.as_bytes()) => {
                spec.fields.push(name.to_ascii_lowercase().into_bytes().into());
            }
            Some(("cookie", name)) if is_token(name.as_bytes()) => {
                spec.cookies.push(name.as_bytes().into());
            }
            None if &**part == "user" => spec.user = true,
            _ => {
                let help = "write \"header:Name\", \"cookie:name\" or \"user\"";
                return Err(Reject::new(format!("has an unknown part \"{part}\"")).help(help));
            }
        }
    }
    Ok(Arc::new(spec))
}
