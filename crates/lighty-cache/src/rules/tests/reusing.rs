use super::super::{
    FreshnessFlags, RequestDirectives, Reuse, is_only_if_cached, may_serve_after_error, reuse,
};
use super::*;

const IN_BACKGROUND: Reuse = Reuse::Stale { may_revalidate_in_background: true };
const AS_ACCEPTED: Reuse = Reuse::Stale { may_revalidate_in_background: false };

/// The use of a response after some seconds.
fn use_after(control: &str, seconds: i64) -> Reuse {
    let stored = store(200, &[&format!("Cache-Control: {control}"), "ETag: \"1\""]);
    let request = Fields::new();
    reuse(&stored.expect("storable"), &get(&request), &Policy::default(), NOW + seconds)
}

#[test]
fn responses_are_fresh_until_their_lifetime_ends() {
    for (control, seconds, expected) in [
        ("max-age=10", 0, Reuse::Fresh),
        ("max-age=10", 9, Reuse::Fresh),
        ("max-age=10", 10, Reuse::Validate), // freshness-max-age-stale
        ("max-age=0", 0, Reuse::Validate),   // freshness-max-age-0
        ("max-age=10, no-cache", 0, Reuse::Validate), // cc-resp-no-cache-revalidate-fresh
        ("no-cache", 0, Reuse::Validate),    // cc-resp-no-cache-revalidate
        ("max-age=10, no-cache=\"x-a\"", 0, Reuse::Fresh),
        ("max-age=10, immutable", 10, Reuse::Validate), // cc-resp-immutable-stale
        ("max-age=10, must-revalidate", 9, Reuse::Fresh), // cc-resp-must-revalidate-fresh
    ] {
        assert_eq!(use_after(control, seconds), expected, "{control} after {seconds}");
    }
}

// stale: stale-while-revalidate, stale-while-revalidate-window, stale-close-must-revalidate, …
#[test]
fn stale_responses_need_permission() {
    for (control, seconds, expected) in [
        ("max-age=10, stale-while-revalidate=5", 10, IN_BACKGROUND),
        ("max-age=10, stale-while-revalidate=5", 14, IN_BACKGROUND),
        ("max-age=10, stale-while-revalidate=5", 15, Reuse::Validate),
        ("max-age=10, stale-while-revalidate=x", 10, Reuse::Validate),
        ("max-age=10, stale-while-revalidate=5, must-revalidate", 10, Reuse::Validate),
        ("max-age=10, stale-while-revalidate=5, proxy-revalidate", 10, Reuse::Validate),
        ("s-maxage=10, stale-while-revalidate=5", 10, Reuse::Validate),
        ("max-age=10, stale-while-revalidate=5, no-cache", 10, Reuse::Validate),
        ("max-age=10, stale-if-error=5", 10, Reuse::Validate),
    ] {
        assert_eq!(use_after(control, seconds), expected, "{control} after {seconds}");
    }
}

#[test]
fn policy_permits_staleness_where_the_response_is_silent() {
    let policy = Policy { stale_while_revalidate_s: 5, stale_if_error_s: 7, ..Policy::default() };
    let limits = |control: &str| {
        let stored = store_with(&[], 200, &[&format!("Cache-Control: {control}")], &policy);
        let stored = stored.expect("storable");
        (stored.stale_while_revalidate_s, stored.stale_if_error_s)
    };
    assert_eq!(limits("max-age=1"), (5, 7));
    assert_eq!(limits("max-age=1, stale-while-revalidate=0, stale-if-error=1"), (0, 1));
    assert_eq!(limits("max-age=1, must-revalidate"), (0, 0));
    assert_eq!(limits("max-age=1, proxy-revalidate, stale-if-error=1"), (0, 0));
    assert_eq!(limits("s-maxage=1"), (0, 0));
}

// stale-sie-503, stale-sie-close, stale-503.
#[test]
fn errors_are_covered_for_a_time() {
    let stored = |control: &str| {
        let response = [&*format!("Cache-Control: {control}"), "ETag: \"1\""];
        store(200, &response).expect("storable")
    };
    let declared = stored("max-age=10, stale-if-error=5");
    for code in [500, 502, 503, 504] {
        assert!(may_serve_after_error(&declared, NOW + 14, Some(status(code))), "{code}");
    }
    for code in [200, 404, 501, 505, 599] {
        assert!(!may_serve_after_error(&declared, NOW + 14, Some(status(code))), "{code}");
    }
    assert!(may_serve_after_error(&declared, NOW + 14, None));
    assert!(!may_serve_after_error(&declared, NOW + 15, None));
    assert!(may_serve_after_error(&stored("max-age=10"), NOW, None));
    assert!(!may_serve_after_error(&stored("max-age=10"), NOW + 10, None));
    let must = stored("max-age=10, must-revalidate, stale-if-error=5");
    assert!(!may_serve_after_error(&must, NOW + 10, None));
    let no_cache = stored("max-age=10, no-cache, stale-if-error=5");
    assert!(!may_serve_after_error(&no_cache, NOW, None));
}

fn use_by(directives: RequestDirectives, request: &[&str], seconds: i64) -> Reuse {
    let stored = store(200, &["Cache-Control: max-age=10", "Age: 2"]).expect("storable");
    let policy = Policy { request_directives: directives, ..Policy::default() };
    let request = fields(request);
    reuse(&stored, &get(&request), &policy, NOW + seconds)
}

// cc-request: ccreq-*; pragma-request-*.
#[test]
fn request_directives_follow_the_policy() {
    use RequestDirectives::{Honor, Ignore, Revalidate};
    const FORCED: Reuse = Reuse::ValidateOnDemand;
    for (request, seconds, ignored, revalidated, honored) in [
        ("Cache-Control: unknown, pragma=foo", 0, Reuse::Fresh, Reuse::Fresh, Reuse::Fresh),
        ("Cache-Control: no-cache", 0, Reuse::Fresh, FORCED, FORCED), // ccreq-no-cache
        ("Cache-Control: max-age=0", 0, Reuse::Fresh, FORCED, FORCED), // ccreq-ma0
        ("Cache-Control: max-age=x", 0, Reuse::Fresh, FORCED, FORCED),
        ("Cache-Control: max-age=1", 0, Reuse::Fresh, Reuse::Fresh, FORCED), // ccreq-magreaterage
        ("Cache-Control: max-age=2", 0, Reuse::Fresh, Reuse::Fresh, Reuse::Fresh),
        ("Cache-Control: min-fresh=8", 0, Reuse::Fresh, Reuse::Fresh, Reuse::Fresh),
        ("Cache-Control: min-fresh=9", 0, Reuse::Fresh, Reuse::Fresh, FORCED), // ccreq-min-fresh
        ("Cache-Control: max-stale", 99, Reuse::Validate, Reuse::Validate, AS_ACCEPTED),
        ("Cache-Control: max-stale=1", 9, Reuse::Validate, Reuse::Validate, AS_ACCEPTED),
        ("Cache-Control: max-stale=1", 10, Reuse::Validate, Reuse::Validate, Reuse::Validate),
        ("Cache-Control: max-stale=x", 9, Reuse::Validate, Reuse::Validate, Reuse::Validate),
        ("Cache-Control: no-store", 0, Reuse::Fresh, Reuse::Fresh, Reuse::Fresh),
        ("Pragma: no-cache", 0, Reuse::Fresh, FORCED, FORCED), // pragma-request-no-cache
        ("Pragma: foo", 0, Reuse::Fresh, Reuse::Fresh, Reuse::Fresh), // pragma-request-extension
    ] {
        for (directives, expected) in
            [(Ignore, ignored), (Revalidate, revalidated), (Honor, honored)]
        {
            let found = use_by(directives, &[request], seconds);
            assert_eq!(found, expected, "{request} {directives:?} after {seconds}");
        }
    }
    let both = ["Pragma: no-cache", "Cache-Control: foo"];
    assert_eq!(use_by(Honor, &both, 0), Reuse::Fresh);
}

#[test]
fn only_if_cached_never_reaches_the_backend() {
    let only = ["Cache-Control: only-if-cached"]; // ccreq-oic
    assert_eq!(use_by(RequestDirectives::Ignore, &only, 0), Reuse::Fresh);
    assert_eq!(use_by(RequestDirectives::Ignore, &only, 10), Reuse::GatewayTimeout);
    let forced = ["Cache-Control: only-if-cached, no-cache"];
    assert_eq!(use_by(RequestDirectives::Honor, &forced, 0), Reuse::GatewayTimeout);
    let (only, none) = (fields(&only), Fields::new());
    assert!(is_only_if_cached(&get(&only)) && !is_only_if_cached(&get(&none)));
}

#[test]
fn stale_by_request_obeys_must_revalidate() {
    let policy = Policy { request_directives: RequestDirectives::Honor, ..Policy::default() };
    let request = fields(&["Cache-Control: max-stale"]);
    for control in ["max-age=1, must-revalidate", "s-maxage=1", "max-age=1, proxy-revalidate"] {
        let stored = store(200, &[&format!("Cache-Control: {control}")]).expect("storable");
        assert!(stored.flags.contains(FreshnessFlags::MUST_REVALIDATE));
        assert_eq!(reuse(&stored, &get(&request), &policy, NOW + 5), Reuse::Validate, "{control}");
    }
}

#[test]
fn other_methods_and_contents_do_not_concern_the_cache() {
    let stored = store(200, &["Cache-Control: max-age=10"]).expect("storable");
    let none = Fields::new();
    let run = |request: &CacheRequest<'_>| reuse(&stored, request, &Policy::default(), NOW);
    assert_eq!(run(&CacheRequest { method: Some(Method::Head), ..get(&none) }), Reuse::Fresh);
    assert_eq!(run(&CacheRequest { method: Some(Method::Post), ..get(&none) }), Reuse::Never);
    assert_eq!(run(&CacheRequest { method: None, ..get(&none) }), Reuse::Never);
    assert_eq!(run(&CacheRequest { has_body: true, ..get(&none) }), Reuse::Never);
}

#[test]
fn stale_arrivals_are_kept_only_for_a_use() {
    for (response, is_kept) in [
        (&["Cache-Control: max-age=0"][..], false),
        (&["Cache-Control: max-age=5", "Age: 5"], false),
        (&["Cache-Control: max-age=5", "Age: 4"], true),
        (&["Cache-Control: max-age=0", "ETag: \"1\""], true),
        (&["Cache-Control: max-age=0, stale-if-error=1"], true),
        (&["Cache-Control: max-age=0, stale-while-revalidate=1"], true),
        (&["Cache-Control: no-cache", "ETag: \"1\""], true),
    ] {
        let stored = store(200, response).expect("storable");
        assert_eq!(stored.is_worth_keeping(NOW), is_kept, "{response:?}");
        let has_validator = stored.flags.contains(FreshnessFlags::HAS_VALIDATOR);
        assert_eq!(stored.is_worth_keeping(NOW + 10), has_validator, "{response:?} later");
    }
}

#[test]
fn flags_survive_as_a_byte() {
    let all = FreshnessFlags::NO_CACHE.with_if(true, FreshnessFlags::AUTHORIZED);
    assert_eq!(FreshnessFlags::from_bits(all.bits()), all);
    assert!(all.contains(FreshnessFlags::NO_CACHE) && !all.contains(FreshnessFlags::IMMUTABLE));
    assert_eq!(all.with_if(false, FreshnessFlags::IMMUTABLE), all);
    assert_eq!(size_of::<Freshness>(), 32);
}
