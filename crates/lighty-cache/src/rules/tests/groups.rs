use super::super::{
    GROUP_BYTES_MAX, GROUPS_MAX, TAG_BYTES_MAX, TAG_FIELD_BYTES_MAX, cache_groups,
    invalidated_groups, tags,
};
use super::*;

fn texts(found: Vec<Box<[u8]>>) -> Vec<String> {
    found.into_iter().map(|one| String::from_utf8_lossy(&one).into_owned()).collect()
}

#[test]
fn groups_are_a_list_of_strings() {
    for (value, groups) in [
        ("\"a\", \"B c\";x=1, \"a\"", &["a", "B c"][..]),
        ("\"a\\\"b\"", &["a\"b"]),
        ("", &[]),
        ("a", &[]),
        ("\"a\", b", &[]),
        ("\"a\", (\"b\")", &[]),
        ("\"a\",", &[]),
    ] {
        let response = fields(&[&format!("Cache-Groups: {value}")]);
        assert_eq!(texts(cache_groups(&response)), groups, "{value}");
    }
    let lines = fields(&["cache-groups: \"a\"", "Cache-Groups: \"b\""]);
    assert_eq!(texts(cache_groups(&lines)), ["a", "b"]);
}

#[test]
fn groups_have_limits() {
    let count = |groups: Vec<String>| {
        cache_groups(&fields(&[&format!("Cache-Groups: {}", groups.join(","))])).len()
    };
    assert_eq!(count((0..GROUPS_MAX + 5).map(|n| format!("\"{n}\"")).collect()), GROUPS_MAX);
    assert_eq!(count(vec![format!("\"{}\"", "a".repeat(GROUP_BYTES_MAX))]), 1);
    assert_eq!(count(vec![format!("\"{}\"", "a".repeat(GROUP_BYTES_MAX + 1))]), 0);
}

#[test]
fn only_unsafe_methods_invalidate_groups() {
    let response = fields(&["Cache-Group-Invalidation: \"a\", \"b\""]);
    let found = |method, code| texts(invalidated_groups(method, status(code), &response));
    assert_eq!(found(Some(Method::Post), 200), ["a", "b"]);
    assert_eq!(found(None, 200), ["a", "b"]);
    assert_eq!(found(Some(Method::Get), 200), [""; 0]);
    assert_eq!(found(Some(Method::Post), 500), [""; 0]);
}

#[test]
fn tags_are_separated_by_spaces_or_commas() {
    let names: Vec<Box<str>> = ["Surrogate-Key", "xkey", "Cache-Tag"].map(Into::into).into();
    let response = fields(&[
        "surrogate-key: a  b,c",
        "xkey: d\te",
        "XKEY: a",
        "Cache-Tag: f g , h,,f g",
        "Other: i",
    ]);
    assert_eq!(texts(tags(&response, &names, 64)), ["a", "b,c", "d", "e", "f g", "h"]);
    assert_eq!(texts(tags(&response, &names, 2)), ["a", "b,c"]);
    assert_eq!(texts(tags(&response, &names, 0)), [""; 0]);
    assert_eq!(texts(tags(&response, &["Other".into()], 64)), ["i"]);
    assert_eq!(texts(tags(&response, &[], 64)), [""; 0]);
}

#[test]
fn tags_have_limits() {
    let names: Vec<Box<str>> = vec!["Cache-Tag".into()];
    let count = |value: &str| tags(&fields(&[&format!("Cache-Tag: {value}")]), &names, 9999).len();
    assert_eq!(count(&"a".repeat(TAG_BYTES_MAX)), 1);
    assert_eq!(count(&format!("{},b", "a".repeat(TAG_BYTES_MAX + 1))), 1);
    let all: Vec<String> = (0..4096).map(|n| format!("{n:03x}")).collect();
    let all = all.join(",");
    assert_eq!(all.len(), TAG_FIELD_BYTES_MAX - 1);
    assert_eq!(count(&all), 4096);
    assert_eq!(count(&format!("{all},x")), 4096);
    assert_eq!(count(&format!("{},x", &all[1..])), 4097);
    let lines = fields(&[&format!("Cache-Tag: {all}"), "Cache-Tag: y,z"]);
    assert_eq!(tags(&lines, &names, 9999).len(), 4096);
}
