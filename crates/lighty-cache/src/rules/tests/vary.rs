use super::super::{
    VARY_NAMES_MAX, Vary, language_key, normalised_accept_encoding, preferred_language_key,
    push_selecting_key, selecting_key, selecting_names,
};
use super::*;

fn names(vary: &[&str]) -> Vec<Box<[u8]>> {
    let response: Vec<String> = vary.iter().map(|line| format!("Vary: {line}")).collect();
    let response: Vec<&str> = response.iter().map(String::as_str).collect();
    match selecting_names(&fields(&response)) {
        Vary::Names(names) => names,
        Vary::Everything => panic!("{vary:?} is a star"),
    }
}

#[test]
fn names_are_sorted_and_single() {
    assert_eq!(names(&[]), [] as [Box<[u8]>; 0]);
    assert_eq!(names(&["", " , "]), [] as [Box<[u8]>; 0]);
    let expected: [Box<[u8]>; 2] = [b"accept"[..].into(), b"foo"[..].into()];
    assert_eq!(names(&["Foo, ,ACCEPT", "foo"]), expected);
    let many = |count: usize| {
        let names: Vec<String> = (0..count).map(|index| format!("x{index}")).collect();
        selecting_names(&fields(&[&format!("Vary: {}", names.join(","))]))
    };
    assert!(matches!(many(VARY_NAMES_MAX), Vary::Names(names) if names.len() == VARY_NAMES_MAX));
    assert_eq!(many(VARY_NAMES_MAX + 1), Vary::Everything);
}

// vary-parse: vary-syntax-*; vary-star.
#[test]
fn star_anywhere_matches_nothing() {
    for vary in [
        &["*"][..],
        &["*, *"],   // vary-syntax-star-star
        &["*", "*"], // vary-syntax-star-star-lines
        &[", *"],    // vary-syntax-empty-star
        &["", "*"],  // vary-syntax-empty-star-lines
        &["*, foo"], // vary-syntax-star-foo
        &["foo, *"], // vary-syntax-foo-star
        &["foo", "bar", " * "],
        &["foo bar"],
        &["foo, \"bar\""],
        &["X-Forwarded-For"],
        &["foo, X-Real-IP"],
        &["Forwarded"],
    ] {
        let response: Vec<String> = vary.iter().map(|line| format!("Vary: {line}")).collect();
        let response: Vec<&str> = response.iter().map(String::as_str).collect();
        assert_eq!(selecting_names(&fields(&response)), Vary::Everything, "{vary:?}");
    }
}

#[test]
fn fields_of_the_key_select_nothing() {
    assert_eq!(names(&["X-Forwarded-Proto, X-Forwarded-Host, X-Original-URL, Range, A"]).len(), 1);
}

/// True if a response to the first request is selected for the second.
fn matches(vary: &str, one: &[&str], other: &[&str]) -> bool {
    let names = names(&[vary]);
    selecting_key(&names, &fields(one)) == selecting_key(&names, &fields(other))
}

// vary: vary-match, vary-no-match, vary-omit, vary-omit-stored, vary-2-*, vary-3-*,
// vary-normalise-*.
#[test]
fn requests_match_by_normalised_values() {
    for (vary, one, other, expected) in [
        ("Foo", &["Foo: 1"][..], &["Foo: 1"][..], true),
        ("Foo", &["Foo: 1"], &["Foo: 2"], false),
        ("Foo", &["Foo: 1"], &[], false),
        ("Foo", &[], &["Foo: 1"], false),
        ("Foo", &[], &[], true),
        ("Foo", &[], &["Foo:"], false),
        ("foo", &["FOO: 1"], &["Foo: 1"], true), // vary-cache-key
        ("Foo", &["Foo: a"], &["Foo: A"], false),
        ("Foo", &["Foo: 1", "Bar: 1"], &["Foo: 1", "Bar: 2"], true),
        ("Foo, Bar", &["Foo: 1", "Bar: abc"], &["Foo: 1", "Bar: abc"], true), // vary-2-match
        ("Foo, Bar", &["Foo: 1", "Bar: abc"], &["Foo: 1", "Bar: abd"], false),
        ("Foo, Bar", &["Foo: 1"], &["Bar: 1"], false),
        ("Foo, Bar", &["Foo: 1", "Bar: 1"], &["Foo: 1"], false), // vary-2-match-omit
        ("Foo", &["Foo: 1, 2"], &["Foo: 1", "Foo: 2"], true),    // vary-normalise-combine
        ("Foo", &["Foo: 1, 2"], &["Foo: 1 ,\t2 "], true),        // vary-normalise-space
        ("Foo", &["Foo: 1, 2"], &["Foo: 2, 1"], false),
        ("Foo", &["Foo: \"a, b\""], &["Foo: \"a,b\""], false),
        ("Foo", &["Foo: 1,2"], &["Foo: 12"], false),
        ("Foo, Bar", &["Foo: 1,2"], &["Foo: 1", "Bar: 2"], false),
        ("Cookie", &["Cookie: a=1; b=2"], &["Cookie: a=1", "Cookie: b=2"], true),
        ("Cookie", &["Cookie: a=1, 2"], &["Cookie: a=1,2"], false),
        (
            "Accept-Encoding",
            &["Accept-Encoding: gzip, br"],
            &["Accept-Encoding: br;q=0.1,x-gzip"],
            true,
        ),
        ("Accept-Encoding", &["Accept-Encoding: gzip"], &["Accept-Encoding: gzip;q=0"], false),
        (
            "Accept-Encoding",
            &["Accept-Encoding: gzip", "Accept-Encoding: br"],
            &["Accept-Encoding: br, gzip"],
            true,
        ), // haproxy#987
        ("Accept-Encoding", &["Accept-Encoding: gzip", "Accept-Encoding: gzip"], &[], false), // haproxy#988
        ("Accept-Encoding", &["Accept-Encoding: deflate"], &[], true),
        ("Accept-Language", &["Accept-Language: en, de"], &["Accept-Language: de, en"], true), // -lang-order
        ("Accept-Language", &["Accept-Language: en, de"], &["Accept-Language: EN, De"], true), // -lang-case
        ("Accept-Language", &["Accept-Language: en, de"], &["Accept-Language: en  ,  de"], true), // -lang-space
        (
            "Accept-Language",
            &["Accept-Language: en, de"],
            &["Accept-Language: en, de;q=0.5"],
            false,
        ),
        (
            "Accept-Language",
            &["Accept-Language: en;q=0.5"],
            &["Accept-Language: en; Q=0.500"],
            true,
        ),
        ("Accept-Language", &["Accept-Language: en;q=0.5"], &["Accept-Language: en;q=0.500"], true),
        ("Accept-Language", &["Accept-Language: en;x"], &["Accept-Language: en"], false),
        ("Accept-Language", &["Accept-Language: en"], &[], false),
    ] {
        assert_eq!(matches(vary, one, other), expected, "{vary} {one:?} {other:?}");
    }
}

#[test]
fn keys_of_different_names_differ() {
    let request = fields(&["A: 1", "B: 1"]);
    assert_ne!(selecting_key(&names(&["A"]), &request), selecting_key(&names(&["B"]), &request));
    assert_eq!(selecting_key(&names(&[]), &request), b"");
    let mut key = b"primary".to_vec();
    push_selecting_key(&names(&["A"]), &request, &mut key);
    assert_eq!(key, [b"primary", &selecting_key(&names(&["A"]), &request)[..]].concat());
}

#[test]
fn codings_are_a_set() {
    for (value, set) in [
        (None, "identity"),
        (Some(""), "identity"),
        (Some("identity"), "identity"),
        (Some("deflate, compress"), "identity"),
        (Some("gzip"), "gzip"),
        (Some("gzip, deflate, br, zstd"), "br, gzip, zstd"),
        (Some("*"), "br, gzip, zstd"),
        (Some("*, br;q=0"), "gzip, zstd"),
        (Some("*;q=0, ZSTD;q=0.001"), "zstd"),
        (Some("br;q=0.0, gzip"), "gzip"),
    ] {
        assert_eq!(normalised_accept_encoding(value.map(str::as_bytes)), set, "{value:?}");
    }
}

// vary-normalise-lang-select.
#[test]
fn responses_match_requests_that_prefer_their_language() {
    let found = |stored: &[&str], languages: &[&str], request: &[&str]| {
        let names = names(&["Accept-Language, Foo"]);
        let stored = language_key(&names, &fields(stored), &fields(languages));
        let wanted = preferred_language_key(&names, &fields(request));
        stored.is_some() && stored == wanted
    };
    let stored = ["Accept-Language: en, de"];
    for (languages, request, expected) in [
        (&["Content-Language: de"][..], &["Accept-Language: fr;q=0.5, DE"][..], true),
        (&["Content-Language: DE"], &["Accept-Language: de"], true),
        (&["Content-Language: de"], &["Accept-Language: fr, de;q=0.5"], false),
        (&["Content-Language: de"], &["Accept-Language: de, fr"], false),
        (&["Content-Language: de"], &["Accept-Language: de", "Foo: 1"], false),
        (&["Content-Language: de, en"], &["Accept-Language: de"], false),
        (&["Content-Language: de", "Content-Language: en"], &["Accept-Language: de"], false),
        (&[], &["Accept-Language: de"], false),
        (&["Content-Language: *"], &["Accept-Language: *"], false),
        (&["Content-Language: de"], &["Accept-Language: de;q=0"], false),
        (&["Content-Language: de"], &[], false),
    ] {
        assert_eq!(found(&stored, languages, request), expected, "{languages:?} {request:?}");
    }
    let (others, german) = (names(&["Foo"]), fields(&["Content-Language: de"]));
    assert_eq!(language_key(&others, &fields(&stored), &german), None);
    assert_eq!(preferred_language_key(&others, &fields(&stored)), None);
    // A language that is preferred is no value of the field.
    let own = names(&["Accept-Language"]);
    let request = fields(&["Accept-Language: de"]);
    assert_ne!(preferred_language_key(&own, &request), Some(selecting_key(&own, &request)));
}
