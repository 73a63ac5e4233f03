use super::super::{CacheStatus, ForwardReason};
use super::*;

fn text(status: &CacheStatus<'_>) -> String {
    String::from_utf8(status.member()).expect("ASCII")
}

#[test]
fn members_have_parameters() {
    let name = "lighty";
    let hit = CacheStatus { name, is_hit: true, ttl_s: Some(30), ..CacheStatus::default() };
    assert_eq!(text(&hit), "lighty; hit; ttl=30");
    assert_eq!(text(&CacheStatus { ttl_s: Some(-412), ..hit }), "lighty; hit; ttl=-412");
    let miss = CacheStatus {
        name,
        forwarded: Some(ForwardReason::UriMiss),
        forwarded_status: Some(Status::OK),
        is_stored: true,
        is_collapsed: true,
        detail: Some("no-lifetime"),
        ..CacheStatus::default()
    };
    let member = "lighty; fwd=uri-miss; fwd-status=200; stored; collapsed; detail=no-lifetime";
    assert_eq!(text(&miss), member);
    for (reason, token) in [
        (ForwardReason::Bypass, "bypass"),
        (ForwardReason::Method, "method"),
        (ForwardReason::VaryMiss, "vary-miss"),
        (ForwardReason::Miss, "miss"),
        (ForwardReason::Request, "request"),
        (ForwardReason::Stale, "stale"),
        (ForwardReason::Partial, "partial"),
    ] {
        let status = CacheStatus { name, forwarded: Some(reason), ..CacheStatus::default() };
        assert_eq!(text(&status), format!("lighty; fwd={token}"));
    }
}

#[test]
fn names_and_details_are_tokens_or_strings() {
    for (detail, written) in [
        ("a", "a"),
        ("*a/b:c", "*a/b:c"),
        ("a b", "\"a b\""),
        ("1", "\"1\""),
        ("", "\"\""),
        ("a\"\\", "\"a\\\"\\\\\""),
        ("é\r\n", "\"????\""),
    ] {
        let status = CacheStatus { name: detail, detail: Some(detail), ..CacheStatus::default() };
        assert_eq!(text(&status), format!("{written}; detail={written}"));
    }
}

#[test]
fn members_come_after_those_of_other_caches() {
    let mut response = fields(&["Cache-Status: origin; hit", "X-A: 1"]);
    let status = CacheStatus { name: "lighty", is_hit: true, ..CacheStatus::default() };
    status.append_to(&mut response);
    let expected = ["Cache-Status: origin; hit", "X-A: 1", "Cache-Status: lighty; hit"];
    assert_eq!(lines(&response), expected);
}
