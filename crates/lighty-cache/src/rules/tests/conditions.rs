use super::super::{ClientOutcome, client_condition, not_modified_fields};
use super::*;

const WHOLE: ClientOutcome = ClientOutcome::Respond { ranges: true };
const UNMODIFIED: ClientOutcome = ClientOutcome::NotModified;

fn evaluate(request: &[&str], stored: &[&str]) -> ClientOutcome {
    client_condition(&fields(request), Method::Get, Status::OK, &fields(stored), NOW, NOW + 9)
}

// conditional-inm: conditional-etag-*.
#[test]
fn if_none_match_is_compared_weakly() {
    for (condition, stored, expected) in [
        ("\"1\"", "\"1\"", UNMODIFIED),   // -strong-respond
        ("W/\"1\"", "\"1\"", UNMODIFIED), // -weak-respond-...
        ("\"1\"", "W/\"1\"", UNMODIFIED),
        ("\"0\", \"1\"", "\"1\"", UNMODIFIED), // -strong-respond-multiple-first, -last
        ("\"1\", \"2\"", "\"1\"", UNMODIFIED),
        ("\"1, 2\"", "\"1, 2\"", UNMODIFIED),
        ("*", "\"1\"", UNMODIFIED),
        ("abc", "abc", UNMODIFIED), // -unquoted-respond-unquoted
        ("\"0\"", "\"1\"", WHOLE),
        ("\"1\"", "\"1", WHOLE),
        ("", "\"1\"", WHOLE),
        ("w/\"1\"", "\"1\"", WHOLE),
    ] {
        let found =
            evaluate(&[&format!("If-None-Match: {condition}")], &[&format!("ETag: {stored}")]);
        assert_eq!(found, expected, "{condition} {stored}");
    }
    let lines = ["If-None-Match: \"0\"", "If-None-Match: \"1\""];
    assert_eq!(evaluate(&lines, &["ETag: \"1\""]), UNMODIFIED);
    assert_eq!(evaluate(&["If-None-Match: \"1\""], &[]), WHOLE);
}

// conditional-lm: conditional-lm-fresh, conditional-lm-fresh-earlier, conditional-lm-fresh-no-lm.
#[test]
fn if_modified_since_is_compared_with_the_last_change_or_the_date() {
    let since = |offset_s| format!("If-Modified-Since: {}", date(offset_s));
    let changed = &*format!("Last-Modified: {}", date(-100));
    for (offset_s, expected) in [(-100, UNMODIFIED), (-99, UNMODIFIED), (-101, WHOLE)] {
        assert_eq!(evaluate(&[&since(offset_s)], &[changed]), expected, "{offset_s}");
    }
    let dated = &*format!("Date: {}", date(-50));
    assert_eq!(evaluate(&[&since(-50)], &[dated]), UNMODIFIED);
    assert_eq!(evaluate(&[&since(-51)], &[dated]), WHOLE);
    assert_eq!(evaluate(&[&since(0)], &[]), UNMODIFIED);
    assert_eq!(evaluate(&["If-Modified-Since: yesterday"], &[changed]), WHOLE);
    assert_eq!(evaluate(&[&since(0), &since(0)], &[changed]), WHOLE);
    assert_eq!(evaluate(&[&since(0)], &["Last-Modified: yesterday", dated]), WHOLE);
    // conditional-304-etag: If-None-Match wins.
    let both = ["If-None-Match: \"0\"", &since(0)];
    assert_eq!(evaluate(&both, &["ETag: \"1\"", changed]), WHOLE);
}

#[test]
fn conditions_of_the_origin_are_ignored() {
    let request = ["If-Match: \"0\"", &format!("If-Unmodified-Since: {}", date(-1000))];
    let stored = ["ETag: \"1\"", &format!("Last-Modified: {}", date(0))];
    assert_eq!(evaluate(&request, &stored), WHOLE);
}

#[test]
fn only_successes_are_unmodified() {
    let (request, stored) = (fields(&["If-None-Match: \"1\""]), fields(&["ETag: \"1\""]));
    for (method, code, expected) in [
        (Method::Get, 200, UNMODIFIED),
        (Method::Head, 200, UNMODIFIED),
        (Method::Get, 404, ClientOutcome::Respond { ranges: false }),
        (Method::Post, 200, ClientOutcome::Respond { ranges: false }),
        (Method::Get, 301, ClientOutcome::Respond { ranges: false }),
    ] {
        let found = client_condition(&request, method, status(code), &stored, NOW, NOW);
        assert_eq!(found, expected, "{method} {code}");
    }
}

#[test]
fn ranges_depend_on_if_range() {
    let changed = &*format!("Last-Modified: {}", date(-100));
    let stored = ["ETag: \"1\"", changed];
    let whole = ClientOutcome::Respond { ranges: false };
    for (condition, expected) in [
        ("\"1\"", WHOLE),
        ("\"0\"", whole),
        ("W/\"1\"", whole),
        (&date(-100), WHOLE),
        (&date(-99), whole),
        ("x", whole),
    ] {
        let found = evaluate(&[&format!("If-Range: {condition}")], &stored);
        assert_eq!(found, expected, "{condition}");
    }
    assert_eq!(evaluate(&["Range: bytes=0-1"], &stored), WHOLE);
}

#[test]
fn not_modified_has_few_fields() {
    let mut stored = vec![
        "ETag: \"1\"",
        "Date: x",
        "Cache-Control: max-age=1",
        "Content-Location: /a",
        "Expires: x",
        "Vary: a",
        "Vary: b",
        "Last-Modified: x",
        "Content-Type: a/b",
        "Content-Length: 1",
        "Set-Cookie: a=b",
        "X-A: 1",
    ];
    assert_eq!(lines(&not_modified_fields(&fields(&stored))), stored[..7]);
    stored.remove(0);
    assert_eq!(lines(&not_modified_fields(&fields(&stored))), stored[..7]);
}
