use lighty_http::Known;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::vary::normalised_value;
use super::super::{
    CacheStatus, RequestDirectives, RequestUri, Reuse, SetCookie, ValidRow, Vary, cache_groups,
    client_condition, fill_fields, invalidated_targets, language_key, may_serve_after_error,
    not_modified_fields, preferred_language_key, refresh, reuse, selecting_key, selecting_names,
    stored_fields, tags, types_agree, update, updated_variants, validation_fields,
};
use super::reference::{PlainRequest, PlainResponse};
use super::*;

const NAMES: [&str; 28] = [
    "Cache-Control",
    "CDN-Cache-Control",
    "Surrogate-Control",
    "Pragma",
    "Expires",
    "Date",
    "Age",
    "Last-Modified",
    "ETag",
    "Vary",
    "Set-Cookie",
    "Cookie",
    "Authorization",
    "Connection",
    "Content-Language",
    "Accept-Language",
    "Accept-Encoding",
    "If-None-Match",
    "If-Modified-Since",
    "If-Range",
    "Range",
    "Location",
    "Content-Location",
    "Content-Range",
    "Cache-Groups",
    "Surrogate-Key",
    "X-Forwarded-Host",
    "Foo",
];

const VALUES: [&str; 24] = [
    "max-age=60",
    "max-age=60, no-cache",
    "s-maxage=9, stale-while-revalidate=5",
    "no-store, must-understand",
    "private=\"foo\", no-cache=\"bar, x",
    "public, stale-if-error=99999999999",
    "only-if-cached, max-stale, min-fresh=5",
    "*",
    "Foo, accept-language, Accept-Encoding",
    "Sun, 29 Nov 2026 09:00:00 GMT",
    "Sun, 29 Nov 2099 09:00:00 GMT",
    "Sunday, 29-Nov-26 09:00:00 GMT",
    "\"1\"",
    "W/\"1\"",
    "\"1\", \"2",
    "7200, 0",
    "99999999999999999999",
    "en, de;q=0.5, *;q=0",
    "gzip;q=0, *",
    "http://a.example/../x?y#z",
    "//a.example:80",
    "\"a\", \"b\"",
    "foo",
    "",
];

fn any_fields() -> impl Strategy<Value = Fields> {
    let value = prop_oneof![
        4 => prop::sample::select(&VALUES[..]).prop_map(|value| value.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..20),
        1 => "[a-z\" =,;*\\\\0-9-]{0,24}".prop_map(String::into_bytes),
    ];
    let name = prop::sample::select(&NAMES[..]);
    vec((name, value), 0..8).prop_map(|lines| {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.push(name.as_bytes(), &value);
        }
        fields
    })
}

const DIRECTIVES: [RequestDirectives; 3] =
    [RequestDirectives::Ignore, RequestDirectives::Revalidate, RequestDirectives::Honor];

fn any_policy() -> impl Strategy<Value = Policy> {
    let set_cookie =
        prop::sample::select(&[SetCookie::Pass, SetCookie::Store, SetCookie::Strip][..]);
    let row = (option::of(200_u16..210), any::<u32>())
        .prop_map(|(status, seconds)| ValidRow { status, seconds });
    (
        vec(row, 0..3),
        any::<bool>(),
        any::<[u32; 4]>(),
        any::<u8>(),
        set_cookie,
        prop::sample::select(&DIRECTIVES[..]),
    )
        .prop_map(|(valid, overrides, seconds, percent, set_cookie, directives)| Policy {
            ordered_s: None,
            valid,
            overrides,
            heuristic_percent: percent,
            heuristic_max_s: seconds[0],
            max_age_s: seconds[1],
            stale_while_revalidate_s: seconds[2],
            stale_if_error_s: seconds[3],
            targets: vec!["CDN-Cache-Control".into(), "Surrogate-Control".into()],
            set_cookie,
            request_directives: directives,
        })
}

fn any_status() -> impl Strategy<Value = Status> {
    prop_oneof![3 => Just(200), 1 => 100_u16..1000].prop_map(status)
}

fn any_time() -> impl Strategy<Value = i64> {
    prop_oneof![4 => NOW - 100_000..NOW + 100_000, 1 => any::<i64>()]
}

/// All rules after storing, with nothing to check but that none panics.
fn use_all(request: &Fields, response: &Fields, policy: &Policy, times: Exchanged, now_s: i64) {
    let mut stored = stored_fields(Status::OK, response, policy);
    let _ = client_condition(request, Method::Get, Status::OK, &stored, times.received_s, now_s);
    let _ = (not_modified_fields(&stored), fill_fields(request, &[b"foo"[..].into()]));
    let _ = (validation_fields(&stored), cache_groups(response));
    let _ = tags(response, &["Surrogate-Key".into(), "Foo".into()], 3);
    let _ = updated_variants(&[&stored, response], 7, response, now_s);
    let target = request.get(Known::Location).unwrap_or(b"/a/b?c");
    let uri = RequestUri { scheme: "http", authority: b"a.example", target };
    let _ = invalidated_targets(uri, response);
    let _ = types_agree(target, response.get(Known::ContentLocation));
    if let Vary::Names(names) = selecting_names(response) {
        let _ = (selecting_key(&names, request), preferred_language_key(&names, request));
        let _ = language_key(&names, request, response);
    }
    update(&mut stored, response, policy, now_s);
    let _ = refresh(&get(request), Status::OK, &stored, response, policy, times);
    let status = CacheStatus { name: "a", ttl_s: Some(now_s), ..CacheStatus::default() };
    let _ = status.member();
}

proptest! {
    #[test]
    fn no_input_panics_and_ages_never_decrease(
        request in any_fields(),
        response in any_fields(),
        policy in any_policy(),
        code in any_status(),
        times in [any_time(), any_time(), any_time(), any_time()],
    ) {
        let [sent_s, received_s, mut early_s, mut late_s] = times;
        let exchanged = Exchanged { sent_s, received_s };
        if early_s > late_s {
            (early_s, late_s) = (late_s, early_s);
        }
        use_all(&request, &response, &policy, exchanged, late_s);
        let request = get(&request);
        let Ok(stored) = storable(&request, code, &response, &policy, exchanged) else {
            return Ok(());
        };
        prop_assert!(stored.age_s(early_s) <= stored.age_s(late_s));
        prop_assert!(stored.ttl_s(early_s) >= stored.ttl_s(late_s));
        let is_configured = stored.flags.contains(crate::rules::FreshnessFlags::CONFIGURED);
        let begun_s = if is_configured { stored.initial_age_s } else { 0 };
        prop_assert!(stored.lifetime_s <= policy.max_age_s.saturating_add(begun_s));
        // No response becomes usable again by waiting.
        let is_used = |now_s| {
            matches!(reuse(&stored, &request, &policy, now_s), Reuse::Fresh | Reuse::Stale { .. })
        };
        prop_assert!(is_used(early_s) || !is_used(late_s));
        let covers = |now_s| may_serve_after_error(&stored, now_s, None);
        prop_assert!(covers(early_s) || !covers(late_s));
    }

    #[test]
    fn restrictions_never_make_a_response_storable(
        request in any_fields(),
        response in any_fields(),
        policy in any_policy(),
        code in any_status(),
        restriction in prop::sample::select(&["no-store", "private", "max-age=0", "no-cache"][..]),
    ) {
        // `must-understand` permits ignoring `no-store`, but not more than without it.
        let policy = Policy { overrides: false, valid: Vec::new(), ..policy };
        let lifetime = |response: &Fields| {
            storable(&get(&request), code, response, &policy, TIMES).map(|stored| stored.lifetime_s)
        };
        let mut restricted = response.clone();
        restricted.push(b"Cache-Control", restriction.as_bytes());
        let may_name_first_lifetime = restriction == "max-age=0" || restriction == "no-cache";
        match (lifetime(&response), lifetime(&restricted)) {
            (Err(_), Ok(seconds)) => {
                prop_assert!(may_name_first_lifetime && seconds == 0);
            }
            (Ok(before), Ok(after)) => prop_assert!(after <= before),
            _ => {}
        }
    }

    #[test]
    fn storing_agrees_with_the_reference(
        (code, flags) in (
            prop_oneof![Just(200), Just(404), Just(302), Just(503), Just(201)],
            any::<[bool; 11]>(),
        ),
        ages in (option::of(0..200_u32), option::of(0..200_u32), option::of(0..200_u32)),
        dates in (option::of(-500..500_i64), option::of(-500..500_i64), option::of(-5000..500_i64)),
    ) {
        let response = PlainResponse {
            code,
            max_age: ages.0,
            s_maxage: ages.1,
            age: ages.2,
            expires: dates.0,
            date: dates.1,
            last_modified: dates.2,
            // Rare, because they forbid storing.
            no_store: flags[0] && flags[1] && flags[2],
            private: flags[0] && flags[1] && flags[3],
            set_cookie: flags[0] && flags[2] && flags[3],
            no_cache: flags[4] && flags[0],
            public: flags[5],
            must_revalidate: flags[6],
            etag: flags[7],
        };
        let request = PlainRequest {
            authorization: flags[8] && flags[1],
            cookie: flags[9] && flags[2],
            no_store: flags[8] && flags[9] && flags[3],
            query: flags[10],
        };
        let sent = request.fields();
        let sent = CacheRequest { has_query: request.query, ..get(&sent) };
        let found = storable(&sent, status(code), &response.fields(), &Policy::default(), TIMES);
        let found = found.ok().map(|stored| (stored.lifetime_s, stored.initial_age_s));
        prop_assert_eq!(found, response.stored(&request));
    }

    #[test]
    fn selecting_keys_are_equal_only_for_equal_values(
        one in any_fields(),
        other in any_fields(),
        names in vec(prop::sample::select(&["foo", "cookie", "accept-language"][..]), 0..3),
    ) {
        let mut names: Vec<Box<[u8]>> = names.iter().map(|name| name.as_bytes().into()).collect();
        names.sort();
        names.dedup();
        let values = |request: &Fields| -> Vec<Option<Vec<u8>>> {
            names.iter().map(|name| Some(normalised_value(name, request)?.into_owned())).collect()
        };
        let is_same = selecting_key(&names, &one) == selecting_key(&names, &other);
        prop_assert_eq!(is_same, values(&one) == values(&other));
    }

    #[test]
    fn stored_fields_stay_the_same_when_stored_again(response in any_fields(), policy in any_policy()) {
        let once = stored_fields(Status::OK, &response, &policy);
        let twice = stored_fields(Status::OK, &once, &policy);
        prop_assert_eq!(lines(&once), lines(&twice));
        prop_assert!(!once.contains_any(&[Known::Connection, Known::Age]));
        prop_assert!(policy.set_cookie == SetCookie::Store || !once.contains(Known::SetCookie));
    }
}
