//! The key of a request: the request as the backend sees it.

use std::borrow::Cow;

use lighty_cache::key::KeyWriter;
use lighty_cache::purge::KeyPlaces;
use lighty_cache::rules::QueryRule;
use lighty_core::Exchange;
use lighty_core::exchange::cache_orders::CacheOrders;
use lighty_http::Known;

use super::settings::CacheSettings;

/// Places of host and target among the parts of a key.
pub(super) const KEY_PLACES: KeyPlaces = KeyPlaces { host: 2, target: 3 };

/// Writes the key of a request that this destination would respond to.
pub(super) fn write(
    key: KeyWriter,
    destination: &str,
    own: &CacheSettings,
    ex: &Exchange,
) -> KeyWriter {
    let spec = &own.key;
    let request = &ex.request;
    let mut key = key
        .part(destination.as_bytes())
        .part(request.scheme.as_bytes())
        .part(&request.authority)
        .part(&target(own, ex))
        .part(&raw_target(own, ex));
    // Backends differ in which of several lines they read, so all count, and their number.
    for name in &spec.fields {
        key = with_all(key, || {
            let fields = request.fields.iter();
            fields.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        });
    }
    for name in &spec.cookies {
        key = with_all(key, || cookies(ex, name));
    }
    if spec.user {
        key = key.part(&request.remote_user);
    }
    match ex.ext::<CacheOrders>().and_then(|orders| orders.key.as_deref()) {
        Some(part) => key.part(part),
        None => key,
    }
}

/// Adds the number of parts, and the parts.
fn with_all<'a, I>(key: KeyWriter, parts: impl Fn() -> I) -> KeyWriter
where
    I: Iterator<Item = &'a [u8]>,
{
    let count = parts().count().min(255) as u8;
    parts().fold(key.part(&[count]), KeyWriter::part)
}

/// Path and query, with the parameters that are part of the key.
pub(super) fn target<'a>(own: &CacheSettings, ex: &'a Exchange) -> Cow<'a, [u8]> {
    let request = &ex.request;
    let has_query = request.path_end < request.target.len();
    let query = has_query.then(|| request.query());
    kept(own, &request.target, request.path_encoded(), query)
}

/// The same of the target as it was sent. A rewritten target is another one, and programs get both.
pub(super) fn raw_target<'a>(own: &CacheSettings, ex: &'a Exchange) -> Cow<'a, [u8]> {
    let raw = &*ex.request.target_raw;
    let path_end = raw.iter().position(|byte| *byte == b'?').unwrap_or(raw.len());
    kept(own, raw, &raw[..path_end], raw.get(path_end + 1..))
}

fn kept<'a>(
    own: &CacheSettings,
    whole: &'a [u8],
    path: &[u8],
    query: Option<&[u8]>,
) -> Cow<'a, [u8]> {
    if own.query == QueryRule::All {
        return Cow::Borrowed(whole);
    }
    let mut target = path.to_vec();
    if let Some(query) = own.query.apply(query) {
        target.push(b'?');
        target.extend_from_slice(&query);
    }
    Cow::Owned(target)
}

/// The values of all cookies with a name.
fn cookies<'a>(ex: &'a Exchange, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let lines = ex.request.fields.get_all(Known::Cookie);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
}
