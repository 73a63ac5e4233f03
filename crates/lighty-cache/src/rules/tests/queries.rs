use super::super::{QueryRule, QueryRuleFault};

fn apply(names: &[&str], query: &str) -> Option<String> {
    let rule = QueryRule::from_names(names.iter().copied()).expect("valid");
    let left = rule.apply(Some(query.as_bytes()))?;
    Some(String::from_utf8(left).expect("ASCII"))
}

#[test]
fn parameters_are_kept_or_dropped_by_name() {
    for (names, query, left) in [
        (&["a"][..], "b=1&a=2&a=3&A=4", Some("a=2&a=3")),
        (&["a"], "b=1", None),
        (&["a"], "", None),
        (&["a*"], "ab=1&a&ba=2", Some("ab=1&a")),
        (&["!utm_*"], "utm_source=x&a=1&utm_=2&utm=3", Some("a=1&utm=3")),
        (&["!utm_*"], "utm_source=x", None),
        (&["!a"], "", Some("")),
        // Parameter cloaking: `;` does not separate, encoded names are others.
        (&["!utm_x"], "utm_x=1;a=2", None),
        (&["!utm_x"], "a=1;utm_x=2", Some("a=1;utm_x=2")),
        (&["!utm_x"], "utm%5Fx=1", Some("utm%5Fx=1")),
        (&["a"], "%61=1&a=2", Some("a=2")),
        (&[], "a=1", None),
    ] {
        assert_eq!(apply(names, query).as_deref(), left, "{names:?} {query}");
    }
    assert_eq!(QueryRule::All.apply(Some(b"&&a")), Some(b"&&a".to_vec()));
    assert_eq!(QueryRule::default().apply(None), None);
    assert_eq!(QueryRule::None.apply(Some(b"a")), None);
}

#[test]
fn invalid_lists_are_named() {
    let fault = |names: &[&str]| QueryRule::from_names(names.iter().copied()).err();
    assert_eq!(fault(&["a", "!b"]), Some(QueryRuleFault::Mixed));
    for name in ["", "!", "*", "!*", "a&b", "a=b", "a*b"] {
        assert_eq!(fault(&[name]), Some(QueryRuleFault::Name), "{name}");
    }
}
