use lighty_http::cache_control::SECONDS_MAX;

use super::super::{FreshnessFlags, ValidRow};
use super::*;

fn lifetime(response: &[&str]) -> u32 {
    let policy = Policy { max_age_s: SECONDS_MAX, ..Policy::default() };
    store_with(&[], 200, response, &policy).expect("storable").lifetime_s
}

#[test]
fn lifetimes_have_an_order() {
    let (expires, now) = (&*format!("Expires: {}", date(100)), &*format!("Date: {}", date(0)));
    for (response, seconds) in [
        (&["Cache-Control: max-age=3600"][..], 3600), // freshness-max-age
        (&["Cache-Control: max-age=3600", expires], 3600), // freshness-max-age-expires
        (&["Cache-Control: max-age=3600, s-maxage=7"], 7), // freshness-max-age-s-maxage-shared-*
        (&["Cache-Control: s-maxage=7, max-age=3600"], 7),
        (&["Cache-Control: s-maxage=7", expires], 7),
        (&[expires, now], 100), // freshness-expires-future
        (&[expires], 100),
        (&["Date: yesterday", expires], 100),
        (&["Cache-Control: public", expires], 100),
        (&["Cache-Control: max-age=2147483647"], 2_147_483_647), // freshness-max-age-max-minus-1
        (&["Cache-Control: max-age=2147483648"], SECONDS_MAX),   // freshness-max-age-max
        (&["Cache-Control: max-age=2147483649"], SECONDS_MAX),   // freshness-max-age-max-plus-1
        (&["Cache-Control: max-age=99999999999"], SECONDS_MAX),  // freshness-max-age-max-plus
        (&["Cache-Control: a=1, max-age=60, b"], 60),            // freshness-max-age-extension
        (&["Cache-Control: MaX-aGe=60"], 60), // freshness-max-age-case-insenstive
    ] {
        assert_eq!(lifetime(response), seconds, "{response:?}");
    }
    // freshness-expires-old-date, freshness-expires-age-slow-date
    let old = &*format!("Date: {}", date(-1000));
    assert_eq!(lifetime(&[expires, old]), 1100);
    let fast = &*format!("Date: {}", date(1000));
    assert_eq!(lifetime(&[expires, fast]), 0);
}

// cc-parse: freshness-max-age-*.
#[test]
fn malformed_lifetimes_are_zero() {
    for (control, seconds) in [
        ("max-age=\"3600\"", 3600), // -quoted
        ("max-age=003600", 3600),   // -leading-zero
        ("max-age='3600'", 0),      // -single-quoted
        ("max-age=-1", 0),          // -negative
        ("max-age=-3600", 0),
        ("max-age=3600.0", 0), // -decimal-zero
        ("max-age=3600.5", 0), // -decimal-five
        ("max-age=a3600", 0),  // -a100
        ("max-age=3600a", 0),  // -100a
        ("max-age =3600", 0),  // -space-before-equals
        ("max-age= 3600", 0),  // -space-after-equals
        ("max-age", 0),
        ("max-age=", 0),
        ("max-age=1800, max-age=1", 1), // -two-fresh-stale-sameline
        ("max-age=1, max-age=1800", 1), // -two-stale-fresh-sameline
        ("max-age=1800, max-age=x", 0),
        ("ext=\"max-age=3600\", max-age=1", 1), // -ignore-quoted
        ("max-age=1, ext=\"max-age=3600\"", 1), // -ignore-quoted-rev
        ("ext=\"\\\", max-age=3600\", max-age=1", 1),
        ("s-maxage=x, max-age=3600", 0),
    ] {
        assert_eq!(lifetime(&[&format!("Cache-Control: {control}")]), seconds, "{control}");
    }
    // -two-fresh-stale-sepline
    assert_eq!(lifetime(&["Cache-Control: max-age=1800", "Cache-Control: max-age=1"]), 1);
}

// expires-parse: freshness-expires-*.
#[test]
fn expires_has_three_forms_and_all_else_is_past() {
    let year = 2030;
    for (expires, is_future) in [
        (format!("Thu, 28 Nov {year} 08:49:37 GMT"), true),
        (format!("tHU, 28 nOV {year} 08:49:37 gmt"), true), // -wrong-case-*
        (format!("Thursday, 28-Nov-{} 08:49:37 GMT", year % 100), true), // -rfc850
        (format!("Thu Nov 28 08:49:37 {year}"), true),      // -ansi-c
        ("Tue, 19 Jan 2038 14:14:08 GMT".into(), true),     // -32bit
        ("Sun, 21 Nov 2286 04:46:39 GMT".into(), true),     // -far-future
        ("Thursday, 28-Nov-75 08:49:37 GMT".into(), true),
        ("Thursday, 28-Nov-77 08:49:37 GMT".into(), false),
        ("0".into(), false), // -invalid-date
        ("-1".into(), false),
        (String::new(), false),
        (format!("Thu, 28 Nov {} 08:49:37 GMT", year % 100), false), // -invalid-2-digit-year
        (format!("Thu, 28 Nov {year} 8:49:37 GMT"), false),          // -invalid-1-digit-hour
        (format!("Thu, 28 Nov {year} 08:49:37 UTC"), false),         // -invalid-utc
        (format!("Thu, 28 Nov {year} 08:49:37 AEST"), false),        // -invalid-aest
        (format!("Thu 28 Nov {year} 08:49:37 GMT"), false),          // -invalid-no-comma
        (format!("Thu, 28-Nov-{year} 08:49:37 GMT"), false),         // -invalid-date-dashes
        (format!("Thu, 28  Nov  {year} 08:49:37 GMT"), false),       // -invalid-multiple-spaces
        (format!("Thu, 28 Nov {year} 08.49.37 GMT"), false),         // -invalid-time-periods
        ("Thu, 28 Nov 2024 08:49:37 GMT".into(), false),             // -past
    ] {
        assert_eq!(lifetime(&[&format!("Expires: {expires}")]) > 0, is_future, "{expires}");
    }
    let line = &*format!("Expires: {}", date(100));
    assert_eq!(lifetime(&[line, line]), 0); // -invalid-multiple-lines
    assert_eq!(lifetime(&[&format!("Expires: {}", date(0))]), 0); // -present
}

#[test]
fn heuristics_are_a_part_of_the_time_since_the_last_change() {
    let request = Fields::new();
    let run = |changed_s: i64, control: &str, has_query, policy: &Policy| {
        let response = fields(&[
            &format!("Last-Modified: {}", date(-changed_s)),
            &format!("Date: {}", date(0)),
            &format!("Cache-Control: {control}"),
        ]);
        let request = CacheRequest { has_query, ..get(&request) };
        let stored = storable(&request, Status::OK, &response, policy, TIMES).ok()?;
        stored.flags.contains(FreshnessFlags::HEURISTIC).then_some(stored.lifetime_s)
    };
    let usual = Policy::default();
    assert_eq!(run(1000, "x", false, &usual), Some(100));
    assert_eq!(run(86_400 * 365, "x", false, &usual), Some(86_400));
    assert_eq!(run(9, "x", false, &usual), None);
    assert_eq!(run(-1000, "x", false, &usual), None);
    assert_eq!(run(1000, "x", true, &usual), None);
    assert_eq!(run(1000, "public", true, &usual), Some(100));
    assert_eq!(run(1000, "max-age=5", false, &usual), None);
    let off = Policy { heuristic_percent: 0, ..Policy::default() };
    assert_eq!(run(1000, "x", false, &off), None);
    let limited = Policy { heuristic_max_s: 7, heuristic_percent: 100, ..Policy::default() };
    assert_eq!(run(1000, "x", false, &limited), Some(7));
    assert_eq!(store(200, &["ETag: \"1\""]).err(), Some(Unstorable::NoLifetime));
}

#[test]
fn every_lifetime_has_a_limit() {
    let policy = Policy { max_age_s: 50, ..Policy::default() };
    let stored = store_with(&[], 200, &["Cache-Control: max-age=60"], &policy);
    assert_eq!(stored.expect("storable").lifetime_s, 50);
}

// age-parse: age-parse-*.
#[test]
fn age_is_the_first_member_of_the_first_line() {
    let age = |lines: &[&str]| {
        let response: Vec<String> = lines.iter().map(|line| format!("Age: {line}")).collect();
        let mut response: Vec<&str> = response.iter().map(String::as_str).collect();
        response.push("Cache-Control: max-age=60");
        store(200, &response).expect("storable").initial_age_s
    };
    for (lines, seconds) in [
        (&["7200"][..], 7200),
        (&["7200, 0"], 7200), // -dup-old
        (&["0, 7200"], 0),
        (&["7200", "0"], 7200), // -dup-0-twoline
        (&["0", "7200"], 0),
        (&["007"], 7),
        (&["abc"], 0),         // -nonnumeric
        (&["-7200"], 0),       // -negative
        (&["7200.0"], 0),      // -float
        (&["7200;a=1"], 7200), // -parameter
        (&["7200a"], 0),       // -suffix
        (&[""], 0),
        (&[", 7200"], 0),
        (&["2147483647"], 2_147_483_647),         // -large-minus-one
        (&["2147483648"], SECONDS_MAX),           // -large
        (&["99999999999999999999"], SECONDS_MAX), // -larger
    ] {
        assert_eq!(age(lines), seconds, "{lines:?}");
    }
}

// freshness-max-age-age, freshness-expires-age-fast-date, other-age-gen, other-age-delay.
#[test]
fn age_counts_dates_delays_and_residence() {
    let request = Fields::new();
    let run = |date_s: Option<i64>, age: u32, delay_s: i64| {
        let mut response = fields(&["Cache-Control: max-age=60", &format!("Age: {age}")]);
        if let Some(offset_s) = date_s {
            response.push(b"Date", date(offset_s).as_bytes());
        }
        let times = Exchanged { sent_s: NOW - delay_s, received_s: NOW };
        storable(&get(&request), Status::OK, &response, &Policy::default(), times)
            .expect("storable")
    };
    assert_eq!(run(None, 0, 0).initial_age_s, 0);
    assert_eq!(run(Some(-30), 0, 0).initial_age_s, 30);
    assert_eq!(run(Some(30), 0, 0).initial_age_s, 0);
    assert_eq!(run(Some(-30), 10, 5).initial_age_s, 30);
    assert_eq!(run(Some(-10), 10, 5).initial_age_s, 15);
    assert_eq!(run(None, 7, -5).initial_age_s, 7);
    let stored = run(Some(-30), 0, 0);
    assert_eq!((stored.age_s(NOW), stored.ttl_s(NOW)), (30, 30));
    assert_eq!((stored.age_s(NOW + 45), stored.ttl_s(NOW + 45)), (75, -15));
    assert_eq!(stored.age_s(NOW - 100), 30);
    assert_eq!(stored.age_s(i64::MAX), SECONDS_MAX);
    assert_eq!(stored.age_s(i64::MIN), 30);
    let expired = stored.expired(NOW + 5);
    assert!(stored.is_fresh(NOW + 5) && !expired.is_fresh(NOW + 5));
}

// cdn-cache-control: cdn-*.
#[test]
fn targeted_fields_replace_cache_control() {
    let expires = &*format!("Expires: {}", date(100));
    let cdn = "CDN-Cache-Control: max-age=60";
    for (response, seconds) in [
        (&[cdn][..], 60),                            // cdn-max-age
        (&[cdn, "Cache-Control: max-age=3600"], 60), // cdn-max-age-short-cc-max-age
        (&[cdn, "Cache-Control: max-age=1"], 60),    // cdn-max-age-long-cc-max-age
        (&[cdn, "Cache-Control: no-store"], 60),     // cdn-fresh-cc-nostore
        (&[cdn, "Cache-Control: private, s-maxage=1"], 60),
        (&[cdn, expires, "Pragma: no-cache"], 60), // cdn-max-age-expires
        (&["CDN-Cache-Control: max-age=0", "Cache-Control: max-age=5"], 0), // cdn-max-age-0
        (&["CDN-Cache-Control: max-age=-1", "Cache-Control: max-age=5"], 0),
        (&["CDN-Cache-Control: foo, max-age=60"], 60), // cdn-max-age-extension
        (&["CDN-Cache-Control: max-age=60;a=b"], 60),
        (&["CDN-Cache-Control: max-age=999999999999"], SECONDS_MAX), // cdn-max-age-max-plus
        (&["CDN-Cache-Control: max-age=1, max-age=60"], 60),
        (&["CDN-Cache-Control: no-store=?0, max-age=60"], 60),
        (&["CDN-Cache-Control: max-age=1", "CDN-Cache-Control: s-maxage=60"], 60),
        // Malformed ones are absent: cdn-cc-invalid-sh-type-*, cdn-max-age-space-*-equals.
        (&["CDN-Cache-Control: max-age=\"60\"", "Cache-Control: max-age=5"], 5),
        (&["CDN-Cache-Control: max-age=60.0", "Cache-Control: max-age=5"], 5),
        (&["CDN-Cache-Control: max-age", "Cache-Control: max-age=5"], 5),
        (&["CDN-Cache-Control: no-store=1", "Cache-Control: max-age=5"], 5),
        (&["CDN-Cache-Control: max-age=(60)", "Cache-Control: max-age=5"], 5),
        (&["CDN-Cache-Control: max-age=60, &", "Cache-Control: max-age=5"], 5),
        (&["CDN-Cache-Control: max-age =60", "Cache-Control: max-age=5"], 5),
        (&["CDN-Cache-Control: max-age= 60", "Cache-Control: max-age=5"], 5),
        (&["CDN-Cache-Control:", "Cache-Control: max-age=5"], 5),
        (&["CDN-Cache-Control: MAX-AGE=60", "Cache-Control: max-age=5"], 5),
    ] {
        assert_eq!(lifetime(response), seconds, "{response:?}");
    }
    let reason = |line: &str| store(200, &[line, "Cache-Control: max-age=60"]).err();
    let no_store = Some(Unstorable::NoStore); // cdn-no-store-cc-fresh
    assert_eq!(reason("CDN-Cache-Control: no-store"), no_store);
    assert_eq!(reason("CDN-Cache-Control: private"), Some(Unstorable::Private)); // cdn-private
    assert_eq!(reason("CDN-Cache-Control: private=\"x y\""), Some(Unstorable::Private));
    assert_eq!(reason("CDN-Cache-Control: private=\"x\", max-age=1"), None);
    // cdn-no-cache
    assert_eq!(reason("CDN-Cache-Control: no-cache"), Some(Unstorable::NoValidator));
    assert_eq!(reason("CDN-Cache-Control: public"), Some(Unstorable::NoLifetime));
}

#[test]
fn first_valid_target_counts() {
    let policy = Policy {
        targets: vec!["Lighty-Cache-Control".into(), "CDN-Cache-Control".into()],
        ..Policy::default()
    };
    let run =
        |response: &[&str]| store_with(&[], 200, response, &policy).map(|stored| stored.lifetime_s);
    let (own, cdn) = ("lighty-cache-control: max-age=1", "CDN-Cache-Control: max-age=2");
    assert_eq!(run(&[cdn, own, "Cache-Control: max-age=3"]), Ok(1));
    assert_eq!(run(&[cdn, "Lighty-Cache-Control: max-age=?"]), Ok(2));
    let none = Policy { targets: Vec::new(), ..Policy::default() };
    let stored = store_with(&[], 200, &[cdn, "Cache-Control: max-age=3"], &none);
    assert_eq!(stored.map(|stored| stored.lifetime_s), Ok(3));
}

#[test]
fn accel_expires_counts_in_place_of_cache_control() {
    let moment = |seconds: i64| format!("X-Accel-Expires: @{}", NOW + seconds);
    let later = &*moment(300);
    for (response, seconds) in [
        (&["X-Accel-Expires: 60"][..], 60),
        (&["X-Accel-Expires: 60", "Cache-Control: no-store, max-age=5"], 60),
        (&["X-Accel-Expires: 60", "Cache-Control: private", "Expires: 0"], 60),
        (&["X-Accel-Expires: 60", "CDN-Cache-Control: max-age=5"], 60),
        (&["X-Accel-Expires: 60", "Age: 30"], 90),
        (&[later], 300),
        (&["X-Accel-Expires: x", "Cache-Control: max-age=5"], 5),
        (&["X-Accel-Expires: -1", "Cache-Control: max-age=5"], 5),
        (&["X-Accel-Expires: @", "Cache-Control: max-age=5"], 5),
    ] {
        assert_eq!(lifetime(response), seconds, "{response:?}");
    }
    let past = &*moment(-1);
    for response in [&["X-Accel-Expires: 0", "Cache-Control: max-age=60"][..], &[past]] {
        let stored = store_with(&[], 200, response, &Policy::default());
        assert_eq!(stored, Err(Unstorable::AccelExpires), "{response:?}");
    }
    // `cache.override` is about Cache-Control.
    let valid = vec![ValidRow { status: Some(200), seconds: 10 }];
    let policy = Policy { overrides: true, valid, ..Policy::default() };
    let stored = store_with(&[], 200, &["X-Accel-Expires: 60"], &policy).expect("storable");
    assert_eq!(stored.lifetime_s, 60);
}

#[test]
fn surrogate_control_counts_if_it_is_named() {
    let targets = vec!["Surrogate-Control".into(), "CDN-Cache-Control".into()];
    let named = Policy { targets, ..Policy::default() };
    let control = "Cache-Control: max-age=5";
    for (surrogate, seconds, stale_s) in [
        ("max-age=60", 60, 0),
        ("max-age=60+30", 60, 30),
        ("max-age=60, stale-while-revalidate=9", 60, 9),
        ("content=\"ESI/1.0\", max-age=60", 60, 0),
    ] {
        let field = format!("Surrogate-Control: {surrogate}");
        let stored = store_with(&[], 200, &[&field, control], &named).expect("storable");
        assert_eq!((stored.lifetime_s, stored.stale_while_revalidate_s), (seconds, stale_s));
        let stored = store_with(&[], 200, &[&field, control], &Policy::default());
        assert_eq!(stored.expect("storable").lifetime_s, 5);
    }
    let stored = store_with(&[], 200, &["Surrogate-Control: no-store", control], &named);
    assert_eq!(stored, Err(Unstorable::NoStore));
    assert_eq!(store_with(&[], 200, &[control], &named).expect("storable").lifetime_s, 5);
}
