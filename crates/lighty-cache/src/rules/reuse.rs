//! The decision to use a stored response: RFC 9111 section 4.

use lighty_http::{Method, Status};

use super::directives::RequestLimits;
use super::{CacheRequest, Freshness, FreshnessFlags, Policy, RequestDirectives};

/// The use of a stored response for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// It is served.
    Fresh,
    /// It is stale and served all the same.
    Stale {
        /// True within `stale-while-revalidate`: a validation starts beside the response.
        may_revalidate_in_background: bool,
    },
    /// It is validated first.
    Validate,
    /// It is validated first although it is fresh, because the client demands that.
    ValidateOnDemand,
    /// 504: it needs validation, and the request has `only-if-cached`.
    GatewayTimeout,
    /// The cache is not concerned: another method than GET and HEAD, or a request with content.
    Never,
}

/// Decides about a stored response that has the key and the selecting fields of the request.
#[must_use]
pub fn reuse(
    freshness: &Freshness,
    request: &CacheRequest<'_>,
    policy: &Policy,
    now_s: i64,
) -> Reuse {
    if !request.method.is_some_and(Method::is_get_or_head) || request.has_body {
        return Reuse::Never;
    }
    let limits = RequestLimits::of(request.fields);
    match without_network(freshness, &limits, policy, now_s) {
        Reuse::Validate | Reuse::ValidateOnDemand if limits.only_if_cached => Reuse::GatewayTimeout,
        use_ => use_,
    }
}

fn without_network(
    freshness: &Freshness,
    limits: &RequestLimits,
    policy: &Policy,
    now_s: i64,
) -> Reuse {
    if freshness.flags.contains(FreshnessFlags::NO_CACHE) {
        return Reuse::Validate;
    }
    if is_validation_demanded(freshness, limits, policy, now_s) {
        return Reuse::ValidateOnDemand;
    }
    if freshness.is_fresh(now_s) {
        return Reuse::Fresh;
    }
    if freshness.flags.contains(FreshnessFlags::MUST_REVALIDATE) {
        return Reuse::Validate;
    }
    if freshness.is_within(now_s, freshness.stale_while_revalidate_s) {
        return Reuse::Stale { may_revalidate_in_background: true };
    }
    let honors = policy.request_directives == RequestDirectives::Honor;
    let accepted = limits.max_stale_s.filter(|_| honors);
    // A response may be stale by exactly this time.
    if accepted.is_some_and(|seconds| freshness.ttl_s(now_s) >= -i64::from(seconds)) {
        return Reuse::Stale { may_revalidate_in_background: false };
    }
    Reuse::Validate
}

fn is_validation_demanded(
    freshness: &Freshness,
    limits: &RequestLimits,
    policy: &Policy,
    now_s: i64,
) -> bool {
    match policy.request_directives {
        RequestDirectives::Ignore => false,
        RequestDirectives::Revalidate => limits.no_cache || limits.max_age_s == Some(0),
        RequestDirectives::Honor => {
            let ttl_s = freshness.ttl_s(now_s);
            let is_old = limits.max_age_s.is_some_and(|limit| freshness.age_s(now_s) > limit);
            let ends_soon = limits.min_fresh_s.is_some_and(|limit| ttl_s < i64::from(limit));
            // `max-age=0` demands validation even within the second of the receipt.
            limits.no_cache || limits.max_age_s == Some(0) || is_old || ends_soon
        }
    }
}

/// True if a request may only be answered from the cache; without a usable stored response, by 504.
#[must_use]
pub fn is_only_if_cached(request: &CacheRequest<'_>) -> bool {
    RequestLimits::of(request.fields).only_if_cached
}

/// True if the response to a request may not be stored.
#[must_use]
pub fn forbids_storing(request: &CacheRequest<'_>) -> bool {
    RequestLimits::of(request.fields).no_store
}

/// True if a stored response may be served in place of an error of the backend: RFC 5861 section 4.
/// `status` is `None` if the backend cannot be reached or does not respond.
#[must_use]
pub fn may_serve_after_error(freshness: &Freshness, now_s: i64, status: Option<Status>) -> bool {
    let is_error = status.is_none_or(|status| matches!(status.code(), 500 | 502 | 503 | 504));
    is_error
        && (freshness.is_fresh(now_s) || freshness.is_within(now_s, freshness.stale_if_error_s))
}
