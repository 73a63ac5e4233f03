use super::syntax::{beyond_linear, possessive};
use super::*;

const NOTHING_GOES_BACK: Means = Means { backtracking: None, steps: 0 };

#[test]
fn constructs_beyond_linear_time_are_named_with_their_place() {
    for (pattern, at, what) in [
        ("^/(?!a)", 2..5, "look-ahead"),
        ("(?=a)", 0..3, "look-ahead"),
        ("x(?<!a)b", 1..5, "look-behind"),
        ("(.)\\1", 3..5, "back-reference"),
        (r"(?<q>.)\k{q}", 7..12, "back-reference"),
        ("a(?>b)", 1..4, "atomic"),
        ("a*+b", 1..3, "possessive"),
        ("a{2,3}+b", 1..7, "possessive"),
        ("(a(?1)?)", 2..5, "recursion"),
    ] {
        let (found, place) = beyond_linear(pattern).expect(pattern);
        assert!(found.contains(what) && place == at, "{pattern}: {found} at {place:?}");
        let refused = TextPattern::compile(pattern, NOTHING_GOES_BACK);
        assert_eq!(refused.unwrap_err().at, Some(at), "{pattern}");
    }
}

#[test]
fn a_plus_behind_a_brace_that_repeats_nothing_is_no_possessive_repetition() {
    for linear in [
        "[*+]",
        "(?<name>a)",
        "(?:a)",
        r"a\+\+",
        r"\p{L}+",
        r"\x{41}+",
        r"\P{Lu}+x",
        r"a\}+",
        "[]*+]x",
        "[^]*+]x",
        r"[\]*+]",
    ] {
        assert_eq!(possessive(linear), None, "{linear}");
        let compiled = TextPattern::compile(linear, NOTHING_GOES_BACK);
        assert!(matches!(compiled, Ok(TextPattern::Linear(_))), "{linear}");
    }
    assert!(
        TextPattern::compile(r"^\p{L}+$", NOTHING_GOES_BACK).unwrap().is_match("äb") == Ok(true)
    );
}

#[test]
fn classes_and_escapes_mean_what_pcre_means() {
    let is_match = |pattern, text| {
        TextPattern::compile(pattern, NOTHING_GOES_BACK).expect(pattern).is_match(text) == Ok(true)
    };
    for (pattern, hit, miss) in [
        (r"^\<a\>$", "<a>", "a"),
        (r"^\D$", "x", "5"),
        (r"^[\D]$", "x", "5"),
        (r"^\W$", "-", "_"),
        (r"^[^\W-]+$", "a_9", "a-9"),
        (r"^\S$", "x", " "),
        (r"^[]a]+$", "]a", "b"),
        (r"^[^]a]+$", "b", "]"),
        (r"^[a&&b]+$", "&ab", "c"),
        (r"^[+--]+$", "+,-", "."),
        (r"^[--/]+$", "-./", ","),
        (r"^[[:digit:]x]+$", "4x", "y"),
        (r"^[[]$", "[", "]"),
        (r"a\Z", "ba", "ab"),
    ] {
        assert!(is_match(pattern, hit), "{pattern} on {hit}");
        assert!(!is_match(pattern, miss), "{pattern} on {miss}");
    }
}
