//! The decision to store a response: RFC 9111 section 3.

use lighty_http::hop_by_hop::{is_essential, is_hop_by_hop};
use lighty_http::{Fields, Known, Method, Status};

use super::directives::{RequestLimits, ResponseDirectives};
use super::lifetime::{
    accel_lifetime_s, age_field_s, explicit_lifetime_s, heuristic_lifetime_s, initial_age_s,
    is_heuristically_cacheable,
};
use super::validators::{has_strong_validator, has_validator};
use super::vary::{Vary, selecting_names};
use super::{CacheRequest, Exchanged, Freshness, FreshnessFlags, Policy, SetCookie};

/// Reasons not to store a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unstorable {
    /// Only responses to GET are stored.
    #[error("the method is not GET")]
    Method,
    /// Backends may read the content of a GET, which is not part of the key.
    #[error("the request has content")]
    RequestContent,
    /// `no-store` of the client.
    #[error("the request has no-store")]
    RequestNoStore,
    /// `Authorization` or a verified identity, and nothing that allows sharing.
    #[error("the request has credentials")]
    Authorized,
    /// `Cookie`, and no lifetime that the response names.
    #[error("the request has a cookie and the response no lifetime of its own")]
    Cookie,
    /// Status 1xx.
    #[error("the response is interim")]
    Interim,
    /// Status 206 or 304 in place of a whole response.
    #[error("the response is partial")]
    Partial,
    /// `no-store`.
    #[error("the response has no-store")]
    NoStore,
    /// `private`.
    #[error("the response is private")]
    Private,
    /// `must-understand` on a status without a meaning here.
    #[error("the status is not understood")]
    NotUnderstood,
    /// `Set-Cookie`, by `cache.set-cookie = "pass"`.
    #[error("the response sets a cookie")]
    SetCookie,
    /// `Vary: *`.
    #[error("the response varies by everything")]
    Varies,
    /// `no-cache` without a validator.
    #[error("the response has no-cache and no validator")]
    NoValidator,
    /// `X-Accel-Expires: 0`, or a time in the past.
    #[error("X-Accel-Expires forbids storing")]
    AccelExpires,
    /// Lifetime 0 by a script.
    #[error("a script forbids storing")]
    Ordered,
    /// Lifetime 0 in `cache.valid`.
    #[error("cache.valid forbids storing")]
    Forbidden,
    /// The extension of the path has another type than the content, which may be a user's page.
    #[error("the content has another type than the extension of the path, and no lifetime")]
    OtherType,
    /// The body is larger than `max-object-size`.
    #[error("the body is larger than max-object-size")]
    TooLarge,
    /// More tags than `cache.max-tags`.
    #[error("the response has more tags than cache.max-tags")]
    TooManyTags,
    /// A server error without a lifetime.
    #[error("the response is an error without a lifetime")]
    ServerError,
    /// No lifetime, and none can be estimated.
    #[error("the response has no lifetime")]
    NoLifetime,
}

/// The requests for which a reason holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorabilityScope {
    /// The next request for the same key may well be different.
    Request,
    /// All requests for the key for now: a mark lets them pass without waiting for each other.
    Key,
}

impl Unstorable {
    /// The requests for which the reason holds.
    #[must_use]
    pub const fn scope(self) -> StorabilityScope {
        match self {
            Self::Method
            | Self::RequestContent
            | Self::RequestNoStore
            | Self::Authorized
            | Self::Cookie
            | Self::Interim
            | Self::Partial
            | Self::ServerError => StorabilityScope::Request,
            Self::NoStore
            | Self::Private
            | Self::NotUnderstood
            | Self::SetCookie
            | Self::Varies
            | Self::NoValidator
            | Self::AccelExpires
            | Self::Ordered
            | Self::Forbidden
            | Self::OtherType
            | Self::TooLarge
            | Self::TooManyTags
            | Self::NoLifetime => StorabilityScope::Key,
        }
    }

    /// A token for `detail` in `Cache-Status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::RequestContent => "request-content",
            Self::RequestNoStore => "request-no-store",
            Self::Authorized => "authorization",
            Self::Cookie => "cookie",
            Self::Interim => "interim",
            Self::Partial => "partial",
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::NotUnderstood => "must-understand",
            Self::SetCookie => "set-cookie",
            Self::Varies => "vary",
            Self::NoValidator => "no-cache",
            Self::AccelExpires => "x-accel-expires",
            Self::Ordered => "script",
            Self::Forbidden => "cache-valid",
            Self::OtherType => "content-type",
            Self::TooLarge => "too-large",
            Self::TooManyTags => "tags",
            Self::ServerError => "error",
            Self::NoLifetime => "no-lifetime",
        }
    }
}

/// Decides about storing a whole response, and for how long it is fresh.
///
/// A response may be stale on arrival (`max-age=0`): see [`Freshness::is_worth_keeping`].
///
/// # Errors
/// The first reason that forbids it.
pub fn storable(
    request: &CacheRequest<'_>,
    status: Status,
    response: &Fields,
    policy: &Policy,
    times: Exchanged,
) -> Result<Freshness, Unstorable> {
    if matches!(status, Status::PARTIAL_CONTENT | Status::NOT_MODIFIED) {
        return Err(Unstorable::Partial);
    }
    judge(request, status, response, age_field_s(response), policy, times)
}

/// Like [`storable`], for a 206 that becomes a slice of a large response: it needs a strong
/// validator and a `Content-Range`.
///
/// # Errors
/// The first reason that forbids it.
pub fn storable_part(
    request: &CacheRequest<'_>,
    response: &Fields,
    policy: &Policy,
    times: Exchanged,
) -> Result<Freshness, Unstorable> {
    if !has_strong_validator(response) || !response.contains(Known::ContentRange) {
        return Err(Unstorable::Partial);
    }
    let age_s = age_field_s(response);
    judge(request, part_status(policy), response, age_s, policy, times)
}

/// The status by which `cache.valid` gives a slice its lifetime: 206 if it has a row for that,
/// otherwise that of the whole.
#[must_use]
pub fn part_status(policy: &Policy) -> Status {
    let partial = Status::PARTIAL_CONTENT;
    let has_row = policy.valid.iter().any(|row| row.status == Some(partial.code()));
    if has_row { partial } else { Status::OK }
}

/// The rules of [`storable`], for a response with this `Age`.
pub(super) fn judge(
    request: &CacheRequest<'_>,
    status: Status,
    response: &Fields,
    age_s: u32,
    policy: &Policy,
    times: Exchanged,
) -> Result<Freshness, Unstorable> {
    check_request(request)?;
    if status.is_interim() {
        return Err(Unstorable::Interim);
    }
    let configured = policy.configured_lifetime_s(status);
    let accel_s = policy.ordered_s.or_else(|| accel_lifetime_s(response, times.received_s));
    let is_overridden = policy.overrides && configured.is_some() && accel_s.is_none();
    let directives = if is_overridden || accel_s.is_some() {
        ResponseDirectives::default()
    } else {
        ResponseDirectives::of(response, policy)
    };
    check_response(status, response, &directives, policy)?;
    if request.is_authorized() && !directives.allow_authorized() {
        return Err(Unstorable::Authorized);
    }
    let lifetime = match accel_s {
        Some(0) if policy.ordered_s.is_some() => return Err(Unstorable::Ordered),
        Some(0) => return Err(Unstorable::AccelExpires),
        Some(seconds) => Lifetime { seconds, flags: FreshnessFlags::default() },
        None if is_overridden => configured_lifetime(request, configured)?,
        None => lifetime(request, status, response, &directives, policy, times)?,
    };
    let no_stale = directives.forbid_stale();
    let limit = |declared: Option<u32>, default| {
        if no_stale { 0 } else { declared.unwrap_or(default) }
    };
    let flags = lifetime
        .flags
        .with_if(no_stale, FreshnessFlags::MUST_REVALIDATE)
        .with_if(directives.no_cache, FreshnessFlags::NO_CACHE)
        .with_if(directives.is_immutable, FreshnessFlags::IMMUTABLE)
        .with_if(has_validator(response), FreshnessFlags::HAS_VALIDATOR)
        .with_if(request.is_authorized(), FreshnessFlags::AUTHORIZED);
    let initial_age_s = initial_age_s(response, age_s, times);
    let lifetime_s = lifetime.seconds.min(policy.max_age_s);
    // An operator's time begins with the receipt, whatever the clock of the backend says.
    let is_configured = flags.contains(FreshnessFlags::CONFIGURED) || accel_s.is_some();
    let begun_s = if is_configured { initial_age_s } else { 0 };
    Ok(Freshness {
        received_s: times.received_s,
        initial_age_s,
        lifetime_s: lifetime_s.saturating_add(begun_s).min(1 << 31),
        stale_while_revalidate_s: limit(
            directives.stale_while_revalidate_s,
            policy.stale_while_revalidate_s,
        ),
        stale_if_error_s: limit(directives.stale_if_error_s, policy.stale_if_error_s),
        flags,
    })
}

fn check_request(request: &CacheRequest<'_>) -> Result<(), Unstorable> {
    if request.method != Some(Method::Get) {
        return Err(Unstorable::Method);
    }
    if request.has_body {
        return Err(Unstorable::RequestContent);
    }
    if RequestLimits::of(request.fields).no_store {
        return Err(Unstorable::RequestNoStore);
    }
    Ok(())
}

fn check_response(
    status: Status,
    response: &Fields,
    directives: &ResponseDirectives,
    policy: &Policy,
) -> Result<(), Unstorable> {
    if directives.must_understand && status.reason().is_empty() {
        return Err(Unstorable::NotUnderstood);
    }
    if directives.no_store && !directives.must_understand {
        return Err(Unstorable::NoStore);
    }
    if directives.is_private {
        return Err(Unstorable::Private);
    }
    let mut unstored = directives.unstored.iter();
    let sets_cookie = response.contains(Known::SetCookie)
        && !unstored.any(|name| name.eq_ignore_ascii_case(b"set-cookie"));
    if sets_cookie && policy.set_cookie == SetCookie::Pass {
        return Err(Unstorable::SetCookie);
    }
    if selecting_names(response) == Vary::Everything {
        return Err(Unstorable::Varies);
    }
    if directives.no_cache && !has_validator(response) {
        return Err(Unstorable::NoValidator);
    }
    Ok(())
}

/// A lifetime and its origin.
struct Lifetime {
    seconds: u32,
    flags: FreshnessFlags,
}

/// The lifetime by the response, then by `cache.valid`, then by estimate.
fn lifetime(
    request: &CacheRequest<'_>,
    status: Status,
    response: &Fields,
    directives: &ResponseDirectives,
    policy: &Policy,
    times: Exchanged,
) -> Result<Lifetime, Unstorable> {
    let has_cookie = request.fields.contains(Known::Cookie);
    let received_s = times.received_s;
    if let Some(seconds) = explicit_lifetime_s(response, directives, received_s) {
        // A response that is stale on arrival would be shared with the requests that wait for it.
        if has_cookie && seconds == 0 {
            return Err(Unstorable::Cookie);
        }
        return Ok(Lifetime { seconds, flags: FreshnessFlags::default() });
    }
    if has_cookie {
        return Err(Unstorable::Cookie);
    }
    if directives.no_cache {
        let is_cacheable = is_heuristically_cacheable(status) || directives.is_public;
        let found = Lifetime { seconds: 0, flags: FreshnessFlags::default() };
        return if is_cacheable { Ok(found) } else { Err(Unstorable::NoLifetime) };
    }
    let configured = policy.configured_lifetime_s(status);
    if configured.is_some() {
        return configured_lifetime(request, configured);
    }
    let has_query = request.has_query;
    let estimate =
        heuristic_lifetime_s(status, response, directives, has_query, policy, received_s);
    match estimate {
        Some(seconds) => Ok(Lifetime { seconds, flags: FreshnessFlags::HEURISTIC }),
        None if status.code() >= 500 => Err(Unstorable::ServerError),
        None => Err(Unstorable::NoLifetime),
    }
}

/// The lifetime by `cache.valid`, which is not for requests with credentials: the response says
/// nothing about sharing.
fn configured_lifetime(
    request: &CacheRequest<'_>,
    configured: Option<u32>,
) -> Result<Lifetime, Unstorable> {
    if request.is_authorized() {
        return Err(Unstorable::Authorized);
    }
    if request.fields.contains(Known::Cookie) {
        return Err(Unstorable::Cookie);
    }
    match configured {
        Some(seconds) if seconds > 0 => Ok(Lifetime { seconds, flags: FreshnessFlags::CONFIGURED }),
        _ => Err(Unstorable::Forbidden),
    }
}

/// The fields to store: all but fields of a connection or its proxies, names in `Connection`,
/// `private="..."` and `no-cache="..."`, and `Age`, which [`Freshness::initial_age_s`] keeps.
/// `Set-Cookie` stays only if the policy stores it. Field names count even where `cache.override`
/// ignores lifetimes.
#[must_use]
pub fn stored_fields(_status: Status, response: &Fields, policy: &Policy) -> Fields {
    let directives = ResponseDirectives::of(response, policy);
    let mut stored = Fields::new();
    for (known, name, value) in response.iter_known() {
        if is_stored(response, &directives, policy, known, name) {
            stored.push_looked_up(known, name, value);
        }
    }
    stored
}

/// The fields that the response keeps from other clients (`private="..."`), and from reuse without
/// validation (`no-cache="..."`): only the client of this request gets them.
#[must_use]
pub fn withheld_fields(response: &Fields, policy: &Policy) -> Fields {
    let directives = ResponseDirectives::of(response, policy);
    let mut withheld = Fields::new();
    if directives.unstored.is_empty() {
        return withheld;
    }
    let stores_cookies = Policy { set_cookie: SetCookie::Store, ..Policy::default() };
    let policy = if policy.set_cookie == SetCookie::Strip { policy } else { &stores_cookies };
    for (known, name, value) in response.iter_known() {
        let is_named = directives.unstored.iter().any(|other| other.eq_ignore_ascii_case(name));
        let none = ResponseDirectives::default();
        if is_named && is_stored(response, &none, policy, known, name) {
            withheld.push_looked_up(known, name, value);
        }
    }
    withheld
}

/// True if a field of a response belongs into the store.
pub(super) fn is_stored(
    response: &Fields,
    directives: &ResponseDirectives,
    policy: &Policy,
    known: Option<Known>,
    name: &[u8],
) -> bool {
    match known {
        Some(Known::Age | Known::ProxyAuthenticate | Known::ProxyAuthorization) => return false,
        Some(Known::SetCookie) if policy.set_cookie != SetCookie::Store => return false,
        Some(known) if is_hop_by_hop(known) => return false,
        _ => {}
    }
    let is_same = |other: &[u8]| other.eq_ignore_ascii_case(name);
    !name.eq_ignore_ascii_case(b"proxy-authentication-info")
        && !directives.unstored.iter().any(|other| is_same(other))
        && (is_essential(known, name) || !is_nominated(response, name))
}

/// True if `Connection` names the field.
fn is_nominated(response: &Fields, name: &[u8]) -> bool {
    let mut options = response.get_all(Known::Connection).flat_map(lighty_http::fields::list_items);
    options.any(|option| option.eq_ignore_ascii_case(name))
}
