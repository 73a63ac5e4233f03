//! Conditions of a client, evaluated against a stored response: RFC 9111 section 4.3.2.

use lighty_http::conditional::{PreconditionOutcome, Validators, evaluate};
use lighty_http::fields::trim;
use lighty_http::{Fields, Known, Method, Status, date, etag};

use super::lifetime::{response_date_s, valid_date};

/// The response to a conditional request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOutcome {
    /// The stored response.
    Respond {
        /// True if `Range` may be evaluated.
        ranges: bool,
    },
    /// 304 with [`not_modified_fields`].
    NotModified,
}

/// Evaluates the conditions of a GET or HEAD. `If-Match` and `If-Unmodified-Since` concern only the
/// origin, so the cache ignores them.
#[must_use]
pub fn client_condition(
    request: &Fields,
    method: Method,
    status: Status,
    stored: &Fields,
    received_s: i64,
    now_s: i64,
) -> ClientOutcome {
    let is_conditional = method.is_get_or_head() && status.is_success();
    if is_conditional && is_unmodified(request, stored, received_s, now_s) {
        return ClientOutcome::NotModified;
    }
    let is_whole = method == Method::Get && status == Status::OK;
    ClientOutcome::Respond { ranges: is_whole && range_holds(request, stored, now_s) }
}

/// `If-None-Match` wins over `If-Modified-Since`, which is compared with `Date` if the response has
/// no `Last-Modified`.
fn is_unmodified(request: &Fields, stored: &Fields, received_s: i64, now_s: i64) -> bool {
    if request.contains(Known::IfNoneMatch) {
        let tag = stored.get(Known::ETag);
        return request.get_all(Known::IfNoneMatch).map(trim).any(|list| match list {
            b"*" => true,
            _ => tag.is_some_and(|tag| {
                list == tag || etag::tags(list).any(|other| etag::weak_match(tag, other))
            }),
        });
    }
    let Some(since_s) = valid_date(request, Known::IfModifiedSince, now_s) else { return false };
    let changed_s = match stored.contains(Known::LastModified) {
        true => valid_date(stored, Known::LastModified, now_s),
        false => Some(response_date_s(stored, received_s)),
    };
    changed_s.is_some_and(|changed_s| changed_s <= since_s)
}

fn range_holds(request: &Fields, stored: &Fields, now_s: i64) -> bool {
    let Some(condition) = request.get(Known::IfRange) else { return true };
    let mut fields = Fields::new();
    fields.push_known(Known::IfRange, condition);
    let validators = Validators {
        etag: stored.get(Known::ETag),
        last_modified: stored.get(Known::LastModified).and_then(date::parse),
        now: now_s,
    };
    let outcome = evaluate(Method::Get, &fields, true, &validators);
    outcome == PreconditionOutcome::Proceed { ranges: true }
}

/// The stored fields that a 304 has: RFC 9110 section 15.4.5. `Last-Modified` is the validator of a
/// response without `ETag`.
#[must_use]
pub fn not_modified_fields(stored: &Fields) -> Fields {
    let mut fields = Fields::new();
    let has_tag = stored.contains(Known::ETag);
    for (known, name, value) in stored.iter_known() {
        let belongs = match known {
            Some(Known::ETag | Known::Date | Known::CacheControl | Known::ContentLocation) => true,
            Some(Known::Expires | Known::Vary) => true,
            Some(Known::LastModified) => !has_tag,
            _ => false,
        };
        if belongs {
            fields.push_looked_up(known, name, value);
        }
    }
    fields
}
