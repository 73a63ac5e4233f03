//! The key of a request: the request as the backend sees it.

use std::borrow::Cow;

use lighty_cache::key::{Key, KeyWriter};
use lighty_cache::purge::KeyPlaces;
use lighty_cache::rules::QueryRule;
use lighty_core::Exchange;
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
        .part(&target(own, ex));
    if own.query == QueryRule::All {
        // A backend may get the target as it was sent.
        key = key.part(&request.target_raw);
    }
    for name in &spec.fields {
        key = key.part(&request.fields.joined(name));
    }
    for name in &spec.cookies {
        key = key.part(cookie(ex, name).unwrap_or_default());
    }
    if spec.user {
        key = key.part(&request.remote_user);
    }
    Some(key.finish())
}

/// Path and query, with the parameters that are part of the key.
pub(super) fn target<'a>(own: &CacheSettings, ex: &'a Exchange) -> Cow<'a, [u8]> {
    let request = &ex.request;
    if own.query == QueryRule::All {
        return Cow::Borrowed(&request.target);
    }
    let has_query = request.path_end < request.target.len();
    let kept = own.query.apply(has_query.then(|| request.query()));
    let mut target = request.path_encoded().to_vec();
    if let Some(query) = kept {
        target.push(b'?');
        target.extend_from_slice(&query);
    }
    Cow::Owned(target)
}

/// The value of the first cookie with a name.
fn cookie<'a>(ex: &'a Exchange, name: &[u8]) -> Option<&'a [u8]> {
    let lines = ex.request.fields.get_all(Known::Cookie);
    let mut pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.find_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
}
