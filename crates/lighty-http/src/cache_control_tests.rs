use std::vec::Vec;

use super::*;
use DirectiveArgument::{Absent, Malformed, Quoted, Token};

fn read(line: &str) -> Vec<(&str, DirectiveArgument<'_>)> {
    let text = |bytes| str::from_utf8(bytes).expect("ASCII");
    directives(line.as_bytes()).map(|one| (text(one.name), one.argument)).collect()
}

#[test]
fn directives_are_separated_by_commas_outside_of_quotes() {
    for (line, parsed) in [
        ("", &[][..]),
        (" , ,\t,", &[]),
        ("no-store", &[("no-store", Absent)]),
        ("a , b=1 ,c=\"x\"", &[("a", Absent), ("b", Token(b"1")), ("c", Quoted(b"x"))]),
        (
            "ext=\"max-age=3600, no-store\", public",
            &[("ext", Quoted(b"max-age=3600, no-store")), ("public", Absent)],
        ),
        ("a=\"x\\\"y, z\", b", &[("a", Quoted(b"x\\\"y, z")), ("b", Absent)]),
        ("a=\"open, no-store", &[("a", Malformed), ("no-store", Absent)]),
        ("a=\"x\"y, b", &[("a", Malformed), ("b", Absent)]),
        ("max-age =1", &[("max-age", Malformed)]),
        ("max-age= 1", &[("max-age", Malformed)]),
        ("max-age=1 2", &[("max-age", Malformed)]),
        ("max-age=", &[("max-age", Malformed)]),
        ("max-age='1'", &[("max-age", Token(b"'1'"))]),
        ("no-store junk", &[("no-store", Malformed)]),
        ("=1, \"x\", a", &[("a", Absent)]),
        ("max-age=1;q=2", &[("max-age", Malformed)]),
    ] {
        assert_eq!(read(line), parsed, "{line}");
    }
}

#[test]
fn seconds_are_digits_only() {
    for (argument, seconds) in [
        (Token(b"3600"), Some(3600)),
        (Token(b"003600"), Some(3600)),
        (Token(b"0"), Some(0)),
        (Quoted(b"3600"), Some(3600)),
        (Token(b"2147483647"), Some(SECONDS_MAX - 1)),
        (Token(b"2147483648"), Some(SECONDS_MAX)),
        (Token(b"2147483649"), Some(SECONDS_MAX)),
        (Token(b"99999999999999999999999"), Some(SECONDS_MAX)),
        (Token(b"-1"), None),
        (Token(b"+1"), None),
        (Token(b"3600.0"), None),
        (Token(b"36a"), None),
        (Token(b"'3600'"), None),
        (Quoted(b" 3600"), None),
        (Quoted(b""), None),
        (Absent, None),
        (Malformed, None),
    ] {
        assert_eq!(argument.seconds(), seconds, "{argument:?}");
    }
}

#[test]
fn field_names_are_a_quoted_list() {
    let names = |argument: DirectiveArgument<'static>| {
        argument.field_names().map(Iterator::collect::<Vec<&[u8]>>)
    };
    assert_eq!(names(Quoted(b"a, B ,,c")), Some([&b"a"[..], b"B", b"c"].to_vec()));
    for whole in [Absent, Malformed, Token(b"a"), Quoted(b""), Quoted(b" ,"), Quoted(b"a b, c")] {
        assert_eq!(names(whole), None, "{whole:?}");
    }
}

#[test]
fn names_are_compared_in_any_case() {
    let directive = CacheDirective { name: b"No-Store", argument: Absent };
    assert!(directive.is("no-store") && !directive.is("no-cache"));
}
