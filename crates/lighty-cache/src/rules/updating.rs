//! Validation of stored responses, and their update by a 304 or the response to a HEAD: RFC 9111
//! sections 4.3.1, 4.3.4 and 4.3.5.

use lighty_http::{Fields, Known, Status, date, decimal, etag};

use super::directives::ResponseDirectives;
use super::lifetime::{age_field_s, valid_date};
use super::storing::{is_stored, judge};
use super::validators::is_strong;
use super::{CacheRequest, Exchanged, Freshness, Policy, Unstorable};

/// Validators of a stored response, as it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredValidators<'a> {
    /// The value of `If-None-Match`.
    pub etag: Option<&'a [u8]>,
    /// The value of `If-Modified-Since`.
    pub last_modified: Option<&'a [u8]>,
}

impl StoredValidators<'_> {
    /// Adds the conditions to a request from `fill_fields`, which has none.
    pub fn add_to(&self, request: &mut Fields) {
        if let Some(etag) = self.etag {
            request.push_known(Known::IfNoneMatch, etag);
        }
        if let Some(last_modified) = self.last_modified {
            request.push_known(Known::IfModifiedSince, last_modified);
        }
    }
}

/// The conditions by which a stored response is validated; `None` if it has no validator.
#[must_use]
pub fn validation_fields(stored: &Fields) -> Option<StoredValidators<'_>> {
    let validators = StoredValidators {
        etag: stored.get(Known::ETag).filter(|tag| !tag.is_empty()),
        last_modified: stored.get(Known::LastModified).filter(|value| !value.is_empty()),
    };
    (validators.etag.is_some() || validators.last_modified.is_some()).then_some(validators)
}

/// The stored variants that a 304 updates, by index. Empty if it concerns none of them: the caller
/// then drops it and fetches again without conditions.
///
/// `validated` is the index of the variant of the sent validators. A strong `ETag` updates all
/// variants that have it, a weak one or `Last-Modified` the newest.
#[must_use]
pub fn updated_variants(
    stored: &[&Fields],
    validated: usize,
    not_modified: &Fields,
    now_s: i64,
) -> Vec<usize> {
    let matching = |matches: &dyn Fn(&Fields) -> bool| -> Vec<usize> {
        (0..stored.len()).filter(|index| matches(stored[*index])).collect()
    };
    if let Some(tag) = not_modified.get(Known::ETag) {
        let has_tag = |fields: &Fields| {
            fields
                .get(Known::ETag)
                .is_some_and(|other| other == tag || etag::weak_match(other, tag))
        };
        return match is_strong(tag) {
            true => matching(&|fields| fields.get(Known::ETag) == Some(tag)),
            false => newest(stored, matching(&has_tag), validated, now_s),
        };
    }
    if let Some(changed) = not_modified.get(Known::LastModified) {
        let is_same = |fields: &Fields| is_same_date(fields.get(Known::LastModified), changed);
        return newest(stored, matching(&is_same), validated, now_s);
    }
    if validated < stored.len() { vec![validated] } else { Vec::new() }
}

/// The index with the newest `Date`; of equal ones the validated variant.
fn newest(stored: &[&Fields], found: Vec<usize>, validated: usize, now_s: i64) -> Vec<usize> {
    let rank = |index: &usize| {
        let date_s = valid_date(stored[*index], Known::Date, now_s);
        (date_s.unwrap_or(i64::MIN), *index == validated)
    };
    found.into_iter().max_by_key(rank).into_iter().collect()
}

fn is_same_date(one: Option<&[u8]>, other: &[u8]) -> bool {
    one.is_some_and(|one| {
        one == other || date::parse(one).is_some_and(|date_s| date::parse(other) == Some(date_s))
    })
}

/// Fields with a digest of the content.
const DIGESTS: [&str; 2] = ["content-md5", "content-digest"];

/// Removes digests of the content, because other bytes than those are sent.
pub fn remove_digests(fields: &mut Fields) {
    for digest in DIGESTS {
        fields.remove_named(digest.as_bytes());
    }
}

/// True for fields that a 304 cannot change, because they describe the stored content.
fn describes_stored_bytes(known: Option<Known>, name: &[u8]) -> bool {
    matches!(known, Some(Known::ContentLength | Known::ContentEncoding | Known::ContentRange))
        || DIGESTS.iter().any(|digest| name.eq_ignore_ascii_case(digest.as_bytes()))
}

/// Replaces stored fields by the fields of a 304, or of a HEAD that [agrees](agrees_with_head).
///
/// Not replaced are fields that are never stored, and fields that describe the stored content:
/// `Content-Length`, `Content-Encoding`, `Content-Range` and digests. Without a `Date` in the
/// response, the time of its receipt becomes the stored one, or the age would be that of the old
/// response.
pub fn update(stored: &mut Fields, response: &Fields, policy: &Policy, received_s: i64) {
    let directives = ResponseDirectives::of(response, policy);
    let is_taken = |known: Option<Known>, name: &[u8]| {
        !describes_stored_bytes(known, name)
            && is_stored(response, &directives, policy, known, name)
    };
    for (known, name, _) in response.iter_known() {
        if is_taken(known, name) {
            stored.remove_named(name);
        }
    }
    for name in &directives.unstored {
        stored.remove_named(name);
    }
    for (known, name, value) in response.iter_known() {
        if is_taken(known, name) {
            stored.push_looked_up(known, name, value);
        }
    }
    if !response.contains(Known::Date) {
        stored.set(Known::Date, date::format(received_s));
    }
}

/// The freshness of a stored response after its [`update`] by `response`. In any case, the stored
/// response is served to the client of this validation.
///
/// # Errors
/// The reason that forbids the update. By its scope, the stored response is removed (`Key`), or
/// stays without the update (`Request`).
pub fn refresh(
    request: &CacheRequest<'_>,
    status: Status,
    updated: &Fields,
    response: &Fields,
    policy: &Policy,
    times: Exchanged,
) -> Result<Freshness, Unstorable> {
    // A HEAD updates the stored response to a GET.
    let method = request.method.map(|method| match method {
        lighty_http::Method::Head => lighty_http::Method::Get,
        other => other,
    });
    let request = CacheRequest { method, ..*request };
    judge(&request, status, updated, age_field_s(response), policy, times)
}

/// True if the response to a HEAD describes the stored response: its length, `ETag` and
/// `Last-Modified` are absent or agree. If false, the stored response becomes stale.
#[must_use]
pub fn agrees_with_head(stored: &Fields, body_bytes: u64, head: &Fields) -> bool {
    let length = head.get(Known::ContentLength);
    let tag = head.get(Known::ETag);
    let changed = head.get(Known::LastModified);
    length.is_none_or(|length| decimal::parse(length) == Some(body_bytes))
        && tag.is_none_or(|tag| stored.get(Known::ETag) == Some(tag))
        && changed.is_none_or(|date| is_same_date(stored.get(Known::LastModified), date))
}
