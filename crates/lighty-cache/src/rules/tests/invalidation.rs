use super::super::{RequestUri, invalidated_targets, invalidates};
use super::*;

// invalidation: invalidate-POST, -PUT, -DELETE, -M-SEARCH, *-failed.
#[test]
fn successes_of_unsafe_methods_invalidate() {
    let methods = ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "LOCK", "unknown"];
    for method in methods.map(|name| Method::from_bytes(name.as_bytes())) {
        for (code, expected) in [(200, true), (204, true), (303, true), (399, true)] {
            assert_eq!(invalidates(method, status(code)), expected, "{method:?} {code}");
        }
        for code in [103, 400, 404, 500, 999] {
            assert!(!invalidates(method, status(code)), "{method:?} {code}");
        }
    }
    for method in [Method::Get, Method::Head, Method::Options, Method::Propfind, Method::Query] {
        assert!(!invalidates(Some(method), Status::OK), "{method}");
    }
}

fn targets(target: &str, response: &[&str]) -> Vec<String> {
    let uri = RequestUri { scheme: "http", authority: b"A.example", target: target.as_bytes() };
    let found = invalidated_targets(uri, &fields(response));
    found.into_iter().map(|one| String::from_utf8(one).expect("ASCII")).collect()
}

// invalidate-*-location, invalidate-*-cl.
#[test]
fn references_of_the_same_origin_are_invalid_too() {
    for (location, target) in [
        ("/b", Some("/b")),
        ("/b?x#f", Some("/b?x")),
        ("b", Some("/d/b")),
        ("./b/../c", Some("/d/c")),
        ("../b", Some("/b")),
        ("../../../b", Some("/b")),
        ("..", Some("/")),
        (".", Some("/d/")),
        ("?y", Some("/d/a?y")),
        ("//a.example/b", Some("/b")),
        ("http://a.example", Some("/")),
        ("http://a.example?x", Some("/?x")),
        ("HTTP://A.EXAMPLE:80/b", Some("/b")),
        ("http://a.example./b", Some("/b")),
        ("http://a.example:/b", Some("/b")),
        ("b:c", None),
        ("./b:c", Some("/d/b:c")),
        ("", None),
        ("#f", None),
        ("http://a.example:81/b", None),
        ("https://a.example/b", None),
        ("//b.example/b", None),
        ("http://a.example@b.example/b", None),
        ("http://b.example@a.example/b", None),
        ("http:/b", None),
        ("http:", None),
        ("mailto:a@a.example", None),
    ] {
        for name in ["Location", "Content-Location"] {
            let mut expected = vec!["/d/a?q"];
            expected.extend(target);
            assert_eq!(
                targets("/d/a?q", &[&format!("{name}: {location}")]),
                expected,
                "{location}"
            );
        }
    }
    let both = targets("/a", &["Location: /b", "Content-Location: /c"]);
    assert_eq!(both, ["/a", "/b", "/c"]);
    assert_eq!(targets("/a", &["Location: /a", "Content-Location: /a"]), ["/a"]);
    assert_eq!(targets("*", &["Location: x"]), ["*", "/x"]);
}
