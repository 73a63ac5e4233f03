use super::super::{
    FreshnessFlags, SetCookie, StorabilityScope, ValidRow, storable_part, stored_fields,
    types_agree,
};
use super::*;

#[test]
fn cacheable_responses_are_stored() {
    let lm = &*format!("Last-Modified: {}", date(-86_400));
    let expires = &*format!("Expires: {}", date(60));
    for (code, response) in [
        (200, &["Cache-Control: max-age=60"][..]), // freshness-max-age
        (200, &["Cache-Control: s-maxage=60"]),
        (200, &[expires]),
        (200, &[lm]),
        (200, &["Cache-Control: public, max-age=60"]),
        (200, &["Cache-Control: no-cache", "ETag: \"1\""]),
        (200, &["Cache-Control: private=\"x-a\", max-age=60"]),
        (200, &["Cache-Control: max-age=60", "Pragma: no-cache"]), // pragma-response-no-cache
        (200, &["Cache-Control: no-store, must-understand, max-age=60"]), // status-200-must-understand
        (200, &["Cache-Control: max-age=60, ext=\"no-store, private\""]),
        (599, &["Cache-Control: public", lm]), // heuristic-599-cached
    ] {
        assert!(store(code, response).is_ok(), "{code} {response:?}");
    }
}

#[test]
fn other_responses_name_a_reason() {
    let lm = &*format!("Last-Modified: {}", date(-86_400));
    for (code, response, reason) in [
        (200, &[][..], Unstorable::NoLifetime),
        (200, &["Cache-Control: no-store, max-age=60"], Unstorable::NoStore), // cc-resp-no-store
        (200, &["Cache-Control: No-StOrE, max-age=60"], Unstorable::NoStore), // -case-insensitive
        (200, &["Cache-Control: max-age=60", "Cache-Control: no-store"], Unstorable::NoStore),
        (200, &["Cache-Control: private, max-age=60"], Unstorable::Private),
        (200, &["Cache-Control: private=x, max-age=60"], Unstorable::Private),
        (200, &["Cache-Control: private=\"a\", private, max-age=60"], Unstorable::Private),
        (599, &["Cache-Control: must-understand, max-age=60"], Unstorable::NotUnderstood),
        (599, &["Cache-Control: must-understand, no-store, max-age=60"], Unstorable::NotUnderstood),
        (200, &["Cache-Control: max-age=60", "Set-Cookie: a=b"], Unstorable::SetCookie),
        (200, &["Cache-Control: max-age=60", "Vary: *"], Unstorable::Varies),
        (200, &["Cache-Control: no-cache, max-age=60"], Unstorable::NoValidator),
        (200, &["Pragma: no-cache", "Expires: 0"], Unstorable::NoValidator),
        (103, &["Cache-Control: max-age=60"], Unstorable::Interim), // interim-not-cached
        (206, &["Cache-Control: max-age=60"], Unstorable::Partial),
        (304, &["Cache-Control: max-age=60"], Unstorable::Partial),
        (302, &[lm], Unstorable::NoLifetime),
        (503, &[lm], Unstorable::ServerError),
        (302, &["Cache-Control: no-cache", lm], Unstorable::NoLifetime),
    ] {
        assert_eq!(store(code, response), Err(reason), "{code} {response:?}");
    }
}

// status-*-fresh, heuristic-*-cached, heuristic-*-not_cached.
#[test]
fn statuses_with_heuristics_are_a_closed_list() {
    let lm = &*format!("Last-Modified: {}", date(-86_400));
    for code in 200..=599 {
        if matches!(code, 206 | 304) {
            continue;
        }
        assert!(store(code, &["Cache-Control: max-age=60"]).is_ok(), "{code}");
        assert!(store(code, &["Cache-Control: public", lm]).is_ok(), "{code}");
        let is_heuristic =
            matches!(code, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501);
        assert_eq!(store(code, &[lm]).is_ok(), is_heuristic, "{code}");
    }
}

#[test]
fn requests_decide_too() {
    let fresh = &["Cache-Control: max-age=60"][..];
    let reason = |request: &CacheRequest<'_>, response: &[&str]| {
        storable(request, Status::OK, &fields(response), &Policy::default(), TIMES).err()
    };
    let none = Fields::new();
    assert_eq!(reason(&get(&none), fresh), None);
    for method in [Some(Method::Head), Some(Method::Post), None] {
        let request = CacheRequest { method, ..get(&none) };
        assert_eq!(reason(&request, fresh), Some(Unstorable::Method));
    }
    let fat = CacheRequest { has_body: true, ..get(&none) };
    assert_eq!(reason(&fat, fresh), Some(Unstorable::RequestContent));
    let no_store = fields(&["Cache-Control: no-store"]);
    assert_eq!(reason(&get(&no_store), fresh), Some(Unstorable::RequestNoStore));
    // Names of directives inside of strings are none.
    let quoted = fields(&["Cache-Control: ext=\"no-store\""]);
    assert_eq!(reason(&get(&quoted), fresh), None);
}

// other-authorization, other-authorization-must-revalidate, -public, -smaxage.
#[test]
fn credentials_need_permission_to_share() {
    let authorized = fields(&["Authorization: Basic eDp5"]);
    let none = Fields::new();
    let identified = CacheRequest { is_identified: true, ..get(&none) };
    let reason = |request: &CacheRequest<'_>, control: &str| {
        let response = fields(&[&format!("Cache-Control: {control}")]);
        storable(request, Status::OK, &response, &Policy::default(), TIMES).err()
    };
    for request in [get(&authorized), identified] {
        assert_eq!(reason(&request, "max-age=60"), Some(Unstorable::Authorized));
        assert_eq!(reason(&request, "proxy-revalidate, max-age=60"), Some(Unstorable::Authorized));
        for control in ["public, max-age=60", "s-maxage=60", "must-revalidate, max-age=60"] {
            assert_eq!(reason(&request, control), None, "{control}");
        }
        let response = fields(&["Cache-Control: s-maxage=60"]);
        let stored = storable(&request, Status::OK, &response, &Policy::default(), TIMES);
        assert!(stored.expect("storable").flags.contains(FreshnessFlags::AUTHORIZED));
    }
}

// other-cookie, other-set-cookie.
#[test]
fn requests_with_cookies_need_a_lifetime_of_the_response() {
    let lm = &*format!("Last-Modified: {}", date(-86_400));
    let policy =
        Policy { valid: vec![ValidRow { status: None, seconds: 60 }], ..Policy::default() };
    let run = |response: &[&str], policy: &Policy| {
        store_with(&["Cookie: a=b"], 200, response, policy).err()
    };
    assert_eq!(run(&["Cache-Control: max-age=60"], &policy), None);
    for response in [&[lm][..], &["Cache-Control: public", lm], &["Cache-Control: max-age=0"]] {
        assert_eq!(run(response, &Policy::default()), Some(Unstorable::Cookie), "{response:?}");
    }
    assert_eq!(run(&[], &policy), Some(Unstorable::Cookie));
}

#[test]
fn set_cookie_follows_the_policy() {
    let response = ["Cache-Control: max-age=60", "Set-Cookie: a=b", "Set-Cookie: c=d"];
    for (set_cookie, is_stored, kept) in [
        (SetCookie::Pass, false, 0),
        (SetCookie::Store, true, 2), // headers-store-Set-Cookie
        (SetCookie::Strip, true, 0),
    ] {
        let policy = Policy { set_cookie, ..Policy::default() };
        assert_eq!(store_with(&[], 200, &response, &policy).is_ok(), is_stored);
        let stored = stored_fields(Status::OK, &fields(&response), &policy);
        assert_eq!(stored.get_all(lighty_http::Known::SetCookie).count(), kept);
    }
    let named = ["Cache-Control: max-age=60, private=\"set-cookie\"", "Set-Cookie: a=b"];
    assert!(store(200, &named).is_ok());
    assert_eq!(lines(&stored_fields(Status::OK, &fields(&named), &Policy::default())).len(), 1);
}

// headers-omit-*, headers-omit-headers-listed-in-Connection, -Cache-Control-no-cache, -private.
#[test]
fn fields_of_a_connection_are_not_stored() {
    let response = fields(&[
        "Date: Sun, 29 Nov 2026 09:00:00 GMT",
        "Connection: x-a, close, content-type",
        "connection: X-B",
        "X-A: 1",
        "x-b: 2",
        "Content-Type: text/plain",
        "Cache-Control: max-age=60, private=\"x-c, X-D\", no-cache=\"x-e\"",
        "X-C: 3",
        "X-d: 4",
        "X-E: 5",
        "X-F: 6",
        "Proxy-Connection: keep-alive",
        "Keep-Alive: timeout=5",
        "TE: trailers",
        "Transfer-Encoding: chunked",
        "Upgrade: h2c",
        "Trailer: x-sum",
        "Proxy-Authenticate: Basic",
        "Proxy-Authentication-Info: a=b",
        "Proxy-Authorization: Basic eDp5",
        "Age: 5",
        "ETag: \"1\"",
        "CDN-Cache-Control: max-age", // Malformed, so Cache-Control is in effect.
        "X-F: 7",
    ]);
    let stored = stored_fields(Status::OK, &response, &Policy::default());
    let names: Vec<_> = stored.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
    let kept = ["Date", "Content-Type", "Cache-Control", "X-F", "ETag", "CDN-Cache-Control", "X-F"];
    assert_eq!(names, kept);
}

#[test]
fn configuration_gives_lifetimes() {
    let row = |status, seconds| ValidRow { status, seconds };
    let policy = Policy {
        valid: vec![row(None, 30), row(Some(404), 5), row(Some(410), 0), row(Some(414), 7)],
        ..Policy::default()
    };
    let lifetime = |code, response: &[&str]| {
        store_with(&[], code, response, &policy).map(|freshness| freshness.lifetime_s)
    };
    assert_eq!(lifetime(200, &[]), Ok(30));
    assert_eq!(lifetime(302, &[]), Ok(30));
    assert_eq!(lifetime(404, &[]), Ok(5));
    assert_eq!(lifetime(410, &[]), Err(Unstorable::Forbidden));
    assert_eq!(lifetime(410, &["Cache-Control: max-age=9"]), Ok(9));
    assert_eq!(lifetime(200, &["Cache-Control: max-age=0"]), Ok(0));
    assert_eq!(lifetime(200, &["Cache-Control: private"]), Err(Unstorable::Private));
    assert_eq!(lifetime(414, &[]), Ok(7));
    for code in [400, 405, 408, 411, 413, 417, 421, 426, 429, 431, 501, 505] {
        assert!(lifetime(code, &[]).is_err(), "{code}");
    }
    let stored = store_with(&[], 200, &[], &policy).expect("storable");
    assert!(stored.flags.contains(FreshnessFlags::CONFIGURED));
}

#[test]
fn configuration_overrides_only_statuses_with_a_row() {
    let policy = Policy {
        valid: vec![ValidRow { status: Some(200), seconds: 30 }],
        overrides: true,
        ..Policy::default()
    };
    let control = "Cache-Control: no-store, private, max-age=0";
    let lifetime = |request: &[&str], code, response: &[&str]| {
        store_with(request, code, response, &policy).map(|freshness| freshness.lifetime_s)
    };
    assert_eq!(lifetime(&[], 200, &[control, "Expires: 0", "CDN-Cache-Control: no-store"]), Ok(30));
    assert_eq!(lifetime(&[], 404, &[control]), Err(Unstorable::NoStore));
    assert_eq!(lifetime(&["Cookie: a"], 200, &[control]), Err(Unstorable::Cookie));
    assert_eq!(lifetime(&["Authorization: a"], 200, &[control]), Err(Unstorable::Authorized));
    assert_eq!(lifetime(&[], 200, &["Set-Cookie: a=b"]), Err(Unstorable::SetCookie));
    assert_eq!(lifetime(&[], 200, &["Vary: *"]), Err(Unstorable::Varies));
}

#[test]
fn parts_need_a_strong_validator() {
    let none = Fields::new();
    let run = |response: &[&str]| {
        storable_part(&get(&none), &fields(response), &Policy::default(), TIMES).err()
    };
    let (range, control) = ("Content-Range: bytes 0-4/10", "Cache-Control: max-age=60");
    assert_eq!(run(&[range, control, "ETag: \"1\""]), None);
    assert_eq!(run(&[range, control, "ETag: W/\"1\""]), Some(Unstorable::Partial));
    assert_eq!(run(&[range, control]), Some(Unstorable::Partial));
    assert_eq!(run(&[control, "ETag: \"1\""]), Some(Unstorable::Partial));
    let private = [range, "Cache-Control: private", "ETag: \"1\""];
    assert_eq!(run(&private), Some(Unstorable::Private));
}

#[test]
fn parts_have_the_lifetime_of_the_whole_or_their_own() {
    let none = Fields::new();
    let lifetime = |rows: &[(u16, u32)]| {
        let row =
            |(status, seconds): &(u16, u32)| ValidRow { status: Some(*status), seconds: *seconds };
        let policy = Policy { valid: rows.iter().map(row).collect(), ..Policy::default() };
        let part = fields(&["Content-Range: bytes 0-4/10", "ETag: \"1\""]);
        storable_part(&get(&none), &part, &policy, TIMES).map(|freshness| freshness.lifetime_s)
    };
    assert_eq!(lifetime(&[(200, 30)]), Ok(30));
    assert_eq!(lifetime(&[(200, 30), (206, 60)]), Ok(60));
    assert_eq!(lifetime(&[(404, 30)]), Err(Unstorable::NoLifetime));
}

#[test]
fn reasons_tell_marks_from_single_requests() {
    for reason in [Unstorable::NoStore, Unstorable::SetCookie, Unstorable::NoLifetime] {
        assert_eq!(reason.scope(), StorabilityScope::Key);
    }
    for reason in [Unstorable::Authorized, Unstorable::RequestNoStore, Unstorable::ServerError] {
        assert_eq!(reason.scope(), StorabilityScope::Request);
    }
    assert_eq!(Unstorable::NoStore.as_str(), "no-store");
    assert_eq!(Unstorable::NoStore.to_string(), "the response has no-store");
}

#[test]
fn deceptive_extensions_are_found() {
    for (path, content_type, agrees) in [
        ("/a.css", Some("text/css; charset=utf-8"), true),
        ("/a.CSS", Some("Text/CSS"), true),
        ("/account/x.css", Some("text/html"), false),
        ("/account;x.css", Some("text/html; charset=utf-8"), false),
        ("/a.js", Some("application/x-javascript"), true),
        ("/a.js", None, false),
        ("/a.unknown", Some("text/html"), true),
        ("/account", Some("text/html"), true),
        ("/x.css/", Some("text/html"), true),
        ("", None, true),
        ("/cat.jpg", Some("image/webp"), true),
        ("/cat.jpg", Some("IMAGE/AVIF"), true),
        ("/cat.jpg", Some("image/svg+xml"), false),
        ("/cat.svg", Some("image/png"), false),
        ("/cat.jpg", Some("text/html"), false),
    ] {
        let content_type = content_type.map(str::as_bytes);
        assert_eq!(types_agree(path.as_bytes(), content_type), agrees, "{path}");
    }
}
