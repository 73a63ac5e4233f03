//! The directives of limits per key.

use std::net::IpAddr;
use std::sync::Arc;

use lighty_config::{CompileCtx, Directive, Kind, Reject, Value, parse_int, parse_string};
use lighty_core::settings::cidr::network;
use lighty_core::{Exchange, Settings, module_settings};
use sha2::{Digest, Sha256};

use super::rate::Rate;
use super::table::{EvasiveKey, KeyTable, Speed};

/// Default maximum number of keys of a limit.
const KEYS_DEFAULT: u64 = 65_536;

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub struct LimitSettings {
    pub(super) per_ip: Option<Keyed<Arc<KeyTable>>>,
    pub(super) silent: bool,
    pub(super) location: Option<Arc<str>>,
    pub(super) requests: Option<Keyed<Arc<Rate>>>,
    pub(super) connections: Option<Keyed<Arc<KeyTable>>>,
    pub(super) bandwidth: Option<Keyed<Arc<Speed>>>,
}
module_settings!(LimitSettings);

impl LimitSettings {
    /// Continues the counts of limits by the same key.
    pub(super) fn continue_from(&self, before: &Self) {
        if let Some((next, old)) = pair(&self.per_ip, &before.per_ip) {
            next.continue_from(old);
        }
        if let Some((next, old)) = pair(&self.requests, &before.requests) {
            next.continue_from(old);
        }
        if let Some((next, old)) = pair(&self.connections, &before.connections) {
            next.continue_from(old);
        }
        if let Some((next, old)) = pair(&self.bandwidth, &before.bandwidth) {
            next.continue_from(old);
        }
    }
}

/// Returns the tables of two limits that count by the same key.
fn pair<'a, T>(
    next: &'a Option<Keyed<Arc<T>>>,
    before: &'a Option<Keyed<Arc<T>>>,
) -> Option<(&'a T, &'a T)> {
    let (next, before) = (next.as_ref()?, before.as_ref()?);
    (next.key == before.key).then_some((&*next.table, &*before.table))
}

/// The table of a limit and its kind of key. All requests to which an assignment applies share it.
#[derive(Clone)]
pub(super) struct Keyed<T> {
    pub(super) key: KeyKind,
    pub(super) table: T,
    /// The value in the configuration file.
    written: Arc<str>,
}

/// Shows the configured value without the table, so that equal settings have equal output.
impl<T> std::fmt::Debug for Keyed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.written)
    }
}

/// The property by which requests are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum KeyKind {
    #[default]
    Address,
    User,
    /// A field of the request; without it, the address.
    Header(Arc<str>),
}

/// As in the configuration.
impl std::fmt::Display for KeyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address => f.write_str("address"),
            Self::User => f.write_str("user"),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

impl KeyKind {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "address" => Some(Self::Address),
            "user" => Some(Self::User),
            _ => text
                .strip_prefix("header:")
                .filter(|name| !name.is_empty())
                .map(|name| Self::Header(name.into())),
        }
    }

    /// The key of a request.
    pub(super) fn of(&self, ex: &Exchange) -> EvasiveKey {
        let request = &ex.request;
        match self {
            Self::User => hash(b"u", &request.remote_user),
            Self::Header(name) => match request.fields.get_named(name.as_bytes()) {
                Some(value) => hash(b"h", value),
                None => of_address(ex),
            },
            Self::Address => of_address(ex),
        }
    }
}

/// The key of a client's address.
fn of_address(ex: &Exchange) -> EvasiveKey {
    ex.request.remote_ip().map_or(0, key_of)
}

/// The key of an address, or for IPv6 of its network: an IPv6 client can use any address of its
/// network.
pub(super) fn key_of(ip: IpAddr) -> EvasiveKey {
    match network(ip.to_canonical(), 32, 64) {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) | 0xffff << 32,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn hash(kind: &[u8], value: &[u8]) -> EvasiveKey {
    let sum = Sha256::new().chain_update(kind).chain_update(value).finalize();
    EvasiveKey::from_be_bytes(std::array::from_fn(|at| sum[at]))
}

fn own(s: &mut Settings) -> &mut LimitSettings {
    s.module_mut()
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_evasive")
}

/// All rows.
pub(super) fn directives() -> Vec<Directive<Settings>> {
    let mut rows = evasive();
    rows.extend(limits());
    rows
}

fn evasive() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed(
            "evasive.max-conns-per-ip",
            Kind::Int { min: 0, max: 65_535 },
            |value, _| parse_per_ip(value),
            |s, v| own(s).per_ip = v.clone(),
        ))
        .since("1.4")
        .default("0")
        .doc(
            "Connections of one address (of IPv6: network, /64) that may be busy with a request at \
             a time; one more is answered 403. 0: no limit.",
        )
        .example("evasive.max-conns-per-ip = 50"),
        row(Directive::bool("evasive.silent", |s, on| own(s).silent = on))
            .since("1.4")
            .default("disable")
            .doc("Suppresses the log message about clients beyond `evasive.max-conns-per-ip`.")
            .example("evasive.silent = \"enable\""),
        row(Directive::string("evasive.location", |s, v| {
            own(s).location = Some(v).filter(|v| !v.is_empty());
        }))
        .since("1.4")
        .default("")
        .doc("Where clients above `evasive.max-conns-per-ip` are redirected to (302).")
        .example("evasive.location = \"https://www.example.org/busy.html\""),
    ]
}

fn limits() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed("limit.requests", Kind::Array, parse_requests, |s, v| {
            own(s).requests = v.clone();
        }))
        .since("lighty 0.1")
        .default("()")
        .doc(
            "How often a client may ask: `rate` requests in `per` seconds (1), of which `burst` \
             (as many as `rate`) may come at once; one more is answered 429 with Retry-After. \
             `key` identifies clients: `address` (for IPv6 the /64 network), `user`, or \
             `header:NAME` (without that field: the address). All workers together remember `keys` \
             clients (65536). The URL before rewriting chooses the limit.",
        )
        .example("limit.requests = ( \"rate\" => 10, \"burst\" => 50, \"key\" => \"address\" )"),
        row(Directive::parsed("limit.connections", Kind::Array, parse_connections, |s, v| {
            own(s).connections = v.clone();
        }))
        .since("lighty 0.1")
        .default("()")
        .doc(
            "How much a client may ask for at a time: `max` connections that are busy with a \
             request; one more is answered 429. `key` as in `limit.requests`.",
        )
        .example("limit.connections = ( \"max\" => 20 )"),
        row(Directive::parsed("limit.bandwidth", Kind::Array, parse_bandwidth, |s, v| {
            own(s).bandwidth = v.clone();
        }))
        .since("lighty 0.1")
        .default("()")
        .doc(
            "How fast a client is answered: `kbytes-per-second` for all its connections together. \
             `key` and `keys` as in `limit.requests`.",
        )
        .example("limit.bandwidth = ( \"kbytes-per-second\" => 1024 )"),
    ]
}

fn parse_per_ip(value: &Value) -> Result<Option<Keyed<Arc<KeyTable>>>, Reject> {
    let most = u32::try_from(parse_int(value, &(0..=65_535))?).unwrap_or(0);
    let written = value.to_source().into();
    let table = || Arc::new(KeyTable::new(most));
    Ok((most > 0).then(|| Keyed { key: KeyKind::Address, table: table(), written }))
}

/// Parsed array of a directive: numbers by name, and `key`.
struct Numbers<'a> {
    value: &'a Value,
    key: KeyKind,
    found: Vec<(&'a str, u64)>,
}

impl<'a> Numbers<'a> {
    fn parse(value: &'a Value, known: &'static [&'static str]) -> Result<Self, Reject> {
        let list = value.as_list().ok_or_else(|| Reject::new("must be an array"))?;
        let mut numbers = Self { value, key: KeyKind::default(), found: Vec::new() };
        for (name, item) in list {
            match name.as_deref() {
                Some("key") => {
                    let text = parse_string(&item.value).map_err(|r| r.at(item.span))?;
                    numbers.key = KeyKind::parse(&text).ok_or_else(|| {
                        Reject::new("\"key\" is \"address\", \"user\" or \"header:NAME\"")
                            .at(item.span)
                    })?;
                }
                Some(name) if known.contains(&name) => {
                    let number = parse_int(&item.value, &(1..=10_000_000));
                    let number = number.map_err(|r| {
                        Reject { message: format!("\"{name}\" {}", r.message), ..r }.at(item.span)
                    })?;
                    numbers.found.push((name, number.unsigned_abs()));
                }
                other => {
                    let name = other.unwrap_or_default();
                    let reject = Reject::new(format!("has an unknown key \"{name}\""));
                    return Err(reject.at(item.span).did_you_mean(name, known.iter().copied()));
                }
            }
        }
        Ok(numbers)
    }

    fn get(&self, name: &str) -> Option<u64> {
        self.found.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
    }

    fn need(&self, name: &str) -> Result<u64, Reject> {
        self.get(name).ok_or_else(|| Reject::new(format!("needs \"{name}\"")))
    }

    fn keys(&self) -> usize {
        usize::try_from(self.get("keys").unwrap_or(KEYS_DEFAULT)).unwrap_or(1)
    }

    fn keyed<T>(self, table: T) -> Option<Keyed<Arc<T>>> {
        let written = self.value.to_source().into();
        Some(Keyed { key: self.key, table: Arc::new(table), written })
    }
}

fn is_off(value: &Value) -> bool {
    value.as_list().is_some_and(<[_]>::is_empty)
}

fn parse_requests(value: &Value, _: &CompileCtx) -> Result<Option<Keyed<Arc<Rate>>>, Reject> {
    if is_off(value) {
        return Ok(None);
    }
    let numbers = Numbers::parse(value, &["rate", "per", "burst", "keys"])?;
    let rate = numbers.need("rate")?;
    let (per, burst) = (numbers.get("per").unwrap_or(1), numbers.get("burst").unwrap_or(rate));
    let table = Rate::new(rate, per, burst, numbers.keys());
    Ok(numbers.keyed(table))
}

fn parse_connections(
    value: &Value,
    _: &CompileCtx,
) -> Result<Option<Keyed<Arc<KeyTable>>>, Reject> {
    if is_off(value) {
        return Ok(None);
    }
    let numbers = Numbers::parse(value, &["max"])?;
    let table = KeyTable::new(u32::try_from(numbers.need("max")?).unwrap_or(u32::MAX));
    Ok(numbers.keyed(table))
}

fn parse_bandwidth(value: &Value, _: &CompileCtx) -> Result<Option<Keyed<Arc<Speed>>>, Reject> {
    if is_off(value) {
        return Ok(None);
    }
    let numbers = Numbers::parse(value, &["kbytes-per-second", "keys"])?;
    let table = Speed::new(numbers.need("kbytes-per-second")?, numbers.keys());
    Ok(numbers.keyed(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_names() {
        assert_eq!(KeyKind::parse("address"), Some(KeyKind::Address));
        assert_eq!(KeyKind::parse("header:X-Key"), Some(KeyKind::Header("X-Key".into())));
        assert_eq!(KeyKind::parse("header:"), None);
        assert_eq!(KeyKind::parse("ip"), None);
        assert_ne!(hash(b"u", b"a"), hash(b"h", b"a"));
    }
}
