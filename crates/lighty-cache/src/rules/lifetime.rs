//! Lifetime and age of a response: RFC 9111 section 4.2.

use lighty_http::cache_control::{SECONDS_MAX, seconds};
use lighty_http::fields::trim;
use lighty_http::{Fields, Known, Status, date, decimal};

use super::directives::ResponseDirectives;
use super::{Exchanged, Policy};

/// A positive difference of times in the range of a field of seconds.
pub(super) fn clamp_s(difference_s: i64) -> u32 {
    u32::try_from(difference_s.clamp(0, i64::from(SECONDS_MAX))).unwrap_or(SECONDS_MAX)
}

/// The time of `Date`, or of the receipt if it is absent, invalid or repeated.
#[must_use]
pub fn response_date_s(response: &Fields, received_s: i64) -> i64 {
    valid_date(response, Known::Date, received_s).unwrap_or(received_s)
}

/// A field with a single valid date.
pub(super) fn valid_date(fields: &Fields, name: Known, now_s: i64) -> Option<i64> {
    let mut lines = fields.get_all(name);
    let first = lines.next()?;
    if lines.next().is_some() { None } else { date::parse_near(first, now_s) }
}

/// The age of a response at its receipt, given its `Age`: RFC 9111 section 4.2.3.
pub(super) fn initial_age_s(response: &Fields, age_s: u32, times: Exchanged) -> u32 {
    let received_s = times.received_s;
    let apparent = received_s.saturating_sub(response_date_s(response, received_s));
    let delay_s = clamp_s(received_s.saturating_sub(times.sent_s));
    let corrected = i64::from(age_s) + i64::from(delay_s);
    clamp_s(apparent.max(corrected))
}

/// The first member of the first `Age` line, without parameters; 0 if it is absent or not a number
/// of digits.
pub(super) fn age_field_s(response: &Fields) -> u32 {
    let line = response.get(Known::Age).unwrap_or_default();
    let member = line.split(|byte| matches!(byte, b',' | b';')).next().unwrap_or_default();
    seconds(trim(member)).unwrap_or(0)
}

/// The lifetime that the response names; a malformed one is 0.
pub(super) fn explicit_lifetime_s(
    response: &Fields,
    directives: &ResponseDirectives,
    received_s: i64,
) -> Option<u32> {
    let from_directives = directives.s_maxage_s.or(directives.max_age_s);
    if from_directives.is_some() || directives.is_targeted {
        return from_directives;
    }
    if !response.contains(Known::Expires) {
        return None;
    }
    let Some(expires_s) = valid_date(response, Known::Expires, received_s) else { return Some(0) };
    Some(clamp_s(expires_s.saturating_sub(response_date_s(response, received_s))))
}

/// The lifetime in `X-Accel-Expires`, from the receipt on: seconds, or `@` and the second since
/// 1970 at which it ends. As in nginx, it counts in place of `Cache-Control` and `Expires`, and 0
/// forbids storing. A malformed one counts as absent.
pub(super) fn accel_lifetime_s(response: &Fields, received_s: i64) -> Option<u32> {
    let value = trim(response.get_named(b"X-Accel-Expires")?);
    match value.strip_prefix(b"@") {
        Some(end) => {
            let end_s = i64::try_from(decimal::parse(end)?).ok()?;
            Some(clamp_s(end_s.saturating_sub(received_s)))
        }
        None => seconds(value),
    }
}

/// A lifetime from the time since the last change. `None` without `Last-Modified`, with a query
/// unless the response is `public`, and for a status that does not allow it.
pub(super) fn heuristic_lifetime_s(
    status: Status,
    response: &Fields,
    directives: &ResponseDirectives,
    has_query: bool,
    policy: &Policy,
    received_s: i64,
) -> Option<u32> {
    if !directives.is_public && (has_query || !is_heuristically_cacheable(status)) {
        return None;
    }
    let changed_s = valid_date(response, Known::LastModified, received_s)?;
    let unchanged_s = clamp_s(response_date_s(response, received_s).saturating_sub(changed_s));
    let part = u64::from(unchanged_s) * u64::from(policy.heuristic_percent) / 100;
    let part = u32::try_from(part).unwrap_or(u32::MAX).min(policy.heuristic_max_s);
    (part > 0).then_some(part)
}

/// RFC 9110 section 15.1.
pub(super) const fn is_heuristically_cacheable(status: Status) -> bool {
    matches!(status.code(), 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}
