use super::super::{fill_fields, is_unkeyed};
use super::*;

fn filled(request: &[&str], kept: &[&str]) -> Vec<String> {
    let kept: Vec<Box<[u8]>> = kept.iter().map(|name| name.as_bytes().into()).collect();
    lines(&fill_fields(&fields(request), &kept))
}

#[test]
fn conditions_and_ranges_of_the_client_are_removed() {
    let removed = [
        "If-Match: \"1\"",
        "if-none-match: \"1\"",
        "If-Modified-Since: x",
        "If-Unmodified-Since: x",
        "If-Range: \"1\"",
        "Range: bytes=0-1",
        "Expect: 100-continue",
        "Content-Length: 0",
        "Transfer-Encoding: chunked",
    ];
    assert_eq!(filled(&removed, &[]), ["Accept-Encoding: identity"]);
    let kept = ["Host: a", "Cookie: a=b", "Authorization: x", "Cache-Control: foo", "Req-Num: 1"];
    assert_eq!(filled(&kept, &[])[..5], kept);
    assert_eq!(filled(&kept, &[]).len(), 6);
}

#[test]
fn codings_are_those_that_select_the_variant() {
    let request = ["Accept-Encoding: deflate, gzip;q=0.5", "accept-encoding: br"];
    assert_eq!(filled(&request, &[]), ["Accept-Encoding: br, gzip"]);
}

#[test]
fn unkeyed_fields_are_removed_in_all_spellings() {
    for name in [
        "X-Forwarded-Host",
        "X-Forwarded-Scheme",
        "X-Forwarded-Port",
        "X-Forwarded-Prefix",
        "X-Forwarded-Server",
        "X-Forwarded-Anything",
        "X-Host",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
        "Forwarded",
        "x-now-route-matches",
    ] {
        for name in
            [name.to_owned(), name.to_lowercase(), name.replace('-', "_"), name.replace('-', ".")]
        {
            assert!(is_unkeyed(name.as_bytes()), "{name}");
            assert_eq!(filled(&[&format!("{name}: evil")], &[]).len(), 1, "{name}");
        }
    }
    for name in ["Host", "X-Hosts", "X-Requested-With", "Forwarded2", "X-Forward", ""] {
        assert!(!is_unkeyed(name.as_bytes()), "{name}");
    }
}

#[test]
fn keyed_fields_stay_in_one_spelling() {
    let request = ["X-Forwarded-Host: a", "X_Forwarded_Host: b", "x-forwarded-host: c"];
    assert_eq!(filled(&request, &["x-forwarded-host"]).len(), 3);
    assert_eq!(filled(&["X-Tenant: a", "X_Tenant: b"], &["x-tenant"])[0], "X-Tenant: a");
    assert_eq!(filled(&["X_Tenant: b"], &["x-tenant"]).len(), 1);
    assert_eq!(filled(&["X_Tenant: b"], &[]).len(), 2);
    // Conditions cannot be kept.
    assert_eq!(filled(&["If-None-Match: \"1\""], &["if-none-match"]).len(), 1);
}
