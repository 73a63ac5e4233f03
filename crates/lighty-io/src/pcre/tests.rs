use super::*;

const STEPS: u32 = 100_000;

fn find(pattern: &str, subject: &str) -> Option<Vec<Option<(usize, usize)>>> {
    let mut places = Vec::new();
    let pattern = Pattern::compile(pattern, true).expect(pattern);
    pattern.find(subject.as_bytes(), STEPS, &mut places).expect(subject).then_some(places)
}

#[test]
fn patterns_that_go_back_match_and_tell_their_groups() {
    let whole = |from, to| Some(vec![Some((from, to))]);
    assert_eq!(find("^/(?!wp-).*\\.php$", "/a.php"), whole(0, 6));
    assert_eq!(find("^/(?!wp-).*\\.php$", "/wp-a.php"), None);
    assert_eq!(find("(?<=x)a", "axa"), whole(2, 3));
    assert_eq!(find(r"(.)\1", "abb"), Some(vec![Some((1, 3)), Some((1, 2))]));
    assert_eq!(find("(?=(?<n>b))(c)?b", "ab"), Some(vec![Some((1, 2)), Some((1, 2))]));
    assert_eq!(find("(a)?(?=b)(b)", "b"), Some(vec![Some((0, 1)), None, Some((0, 1))]));
    assert_eq!(find("a++a", "aaa"), None);
    assert_eq!(find("^.$(?!x)", "ä"), whole(0, 2));
}

#[test]
fn more_groups_than_are_announced_do_no_harm() {
    let pattern = format!("{}(?!y)", "(x)".repeat(40));
    let found = find(&pattern, &"x".repeat(40)).expect("a match");
    assert_eq!((found.len(), found[1]), (GROUPS_MAX as usize, Some((0, 1))));
}

#[test]
fn malformed_pattern_is_refused_with_its_place() {
    let bad = Pattern::compile("a(?=b", true).unwrap_err();
    assert!(bad.at == 5 && bad.message.contains("parenthesis"), "{bad:?}");
}

#[test]
fn bytes_that_are_no_text_are_bytes() {
    let mut places = Vec::new();
    let bytes = Pattern::compile("^.(?=\\xff)", false).expect("a pattern");
    assert_eq!(bytes.find(b"\xfe\xff", STEPS, &mut places), Ok(true));
    let text = Pattern::compile("b(?!c)", true).expect("a pattern");
    assert_eq!(text.find(b"\xfeb", STEPS, &mut places), Ok(true));
}

/// Patterns that take exponential time, scan to the end at every step, or compare long groups: the
/// step limit stops each of them, wherever a match may begin.
#[test]
fn a_match_ends_with_its_steps_whatever_the_pattern() {
    let subjects = [
        format!("{}xy=!", "a".repeat(8000)),
        format!("{}yx=!", "ab".repeat(4000)),
        "a,=xyPc".repeat(1100),
    ];
    for pattern in [
        "^(a+)+$(?!x)",
        "(?:(?!.*q).)*y$",
        "(?:(?!(?>.*)q)a)*z?$(?<=q)",
        r"(.+)\1\1\1$(?<!x)",
        "(a|b|ab)*q?(?!x)$(?<=q)",
        "(?<!z).*.*=$",
        "(?:.(?=[^q]*+))*$(?!)",
    ] {
        for steps in [1000, 20_000] {
            let compiled = Pattern::compile(pattern, true).expect(pattern);
            let worst = subjects
                .iter()
                .map(|subject| compiled.find(subject.as_bytes(), steps, &mut Vec::new()));
            let given_up = worst.filter(|found| *found == Err(GivenUp::Steps)).count();
            assert!(given_up > 0, "{pattern} within {steps}");
        }
    }
}

/// A well-written pattern matches the longest subject of a request within the limit.
#[test]
fn ordinary_patterns_stay_far_below_the_limit() {
    let long = format!("/{}.phq?{}", "a/b-".repeat(1000), "x=y&".repeat(1000));
    for pattern in ["^/(?!wp-).*\\.php$", "(?<!z)\\.php$", "^(?:(?!foo).)*$", "^/(?:(?!\\.\\.).)*$"]
    {
        let compiled = Pattern::compile(pattern, true).expect(pattern);
        let found = compiled.find(long.as_bytes(), STEPS, &mut Vec::new());
        assert!(found.is_ok(), "{pattern}: {found:?}");
    }
}

#[test]
fn threads_share_patterns() {
    let pattern = std::sync::Arc::new(Pattern::compile("(.)\\1", true).expect("a pattern"));
    let one = |text: &'static str| {
        let pattern = std::sync::Arc::clone(&pattern);
        std::thread::spawn(move || pattern.find(text.as_bytes(), STEPS, &mut Vec::new()))
    };
    let (yes, no) = (one("abb"), one("abc"));
    assert_eq!(
        (yes.join().expect("no panic"), no.join().expect("no panic")),
        (Ok(true), Ok(false))
    );
}

#[test]
fn start_optimisations_are_off_with_older_libraries_only() {
    for (version, expected) in [
        ("10.42 2022-12-11", true),
        ("9.99", true),
        ("nonsense", true),
        ("10.46 2025-08-27", false),
        ("10.47-DEV 2025-10-21", false),
        ("11.0 2030-01-01", false),
    ] {
        assert_eq!(is_older(version), expected, "{version}");
    }
    assert!(version().contains('.'), "{}", version());
}
