//! The key of a request: the request as the backend sees it.

use std::borrow::Cow;

use lighty_cache::key::{Key, KeyWriter};
use lighty_cache::purge::KeyPlaces;
use lighty_cache::rules::QueryRule;
use lighty_core::Exchange;
use lighty_core::exchange::cache_orders::CacheOrders;
use lighty_core::pipeline::branch::destination;
use lighty_core::pipeline::phase::Phase;
use lighty_http::Known;

use super::settings::CacheSettings;

/// Places of host and target among the parts of a key.
pub(super) const KEY_PLACES: KeyPlaces = KeyPlaces { host: 2, target: 3 };

/// The key of a request that a backend or a CGI program would respond to in this phase. `None` if
/// another handler would, or if a backend decides about access first.
pub(super) fn key(phase: Phase, own: &CacheSettings, ex: &Exchange) -> Option<Key> {
    let spec = &own.key;
    let destination = destination(phase, ex)?;
    let request = &ex.request;
    let mut key = KeyWriter::default()
        .part(destination.as_bytes())
        .part(request.scheme.as_bytes())
        .part(&request.authority)
        .part(&target(own, ex))
        .part(&raw_target(own, ex));
    // Backends differ in which of several lines they read, so all count, and their number.
    for name in &spec.fields {
        let is_it = |known: &[u8]| known.eq_ignore_ascii_case(name);
        let lines: Vec<&[u8]> = request
            .fields
            .iter()
            .filter(|(known, _)| is_it(known))
            .map(|(_, value)| value)
            .collect();
        key =
            lines.iter().fold(key.part(&[lines.len().min(255) as u8]), |key, line| key.part(line));
    }
    for name in &spec.cookies {
        let values = cookies(ex, name);
        key =
            values.iter().fold(key.part(&[values.len().min(255) as u8]), |key, one| key.part(one));
    }
    if spec.user {
        key = key.part(&request.remote_user);
    }
    if let Some(part) = ex.ext::<CacheOrders>().and_then(|orders| orders.key.as_deref()) {
        key = key.part(part);
    }
    Some(key.finish())
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
fn cookies<'a>(ex: &'a Exchange, name: &[u8]) -> Vec<&'a [u8]> {
    let lines = ex.request.fields.get_all(Known::Cookie);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"=")).collect()
}
