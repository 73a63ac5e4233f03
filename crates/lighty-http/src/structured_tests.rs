use alloc::string::String;
use std::format;
use std::vec;

use super::*;

fn value<'a>(value: BareItem<'a>) -> StructuredMember<'a> {
    StructuredMember::Item(StructuredItem { value, parameters: Vec::new() })
}

fn string(text: &str) -> BareItem<'_> {
    BareItem::String(Cow::Borrowed(text.as_bytes()))
}

#[test]
fn dictionaries_have_keys_and_values() {
    for (text, members) in [
        ("", vec![]),
        ("  ", vec![]),
        ("a", vec![("a", value(BareItem::Boolean(true)))]),
        (" max-age=10 ", vec![("max-age", value(BareItem::Integer(10)))]),
        (
            "a=?0,\tb=1.5 , *c-_.*2=tok/:en",
            vec![
                ("a", value(BareItem::Boolean(false))),
                ("b", value(BareItem::Decimal(1500))),
                ("*c-_.*2", value(BareItem::Token(b"tok/:en"))),
            ],
        ),
        (
            "a=1, b=2, a=\"x\\\"\\\\\"",
            vec![("a", value(string("x\"\\"))), ("b", value(BareItem::Integer(2)))],
        ),
        ("a=:aGk=:", vec![("a", value(BareItem::Binary(b"aGk=")))]),
        ("a=@-5", vec![("a", value(BareItem::Date(-5)))]),
        ("a=%\"x%c3%a9\"", vec![("a", value(BareItem::DisplayString(b"x%c3%a9")))]),
    ] {
        let members: Vec<_> = members.into_iter().map(|(key, one)| (key.as_bytes(), one)).collect();
        assert_eq!(dictionary(text.as_bytes()), Ok(members), "{text}");
    }
}

#[test]
fn parameters_belong_to_their_item() {
    let parameters = vec![(&b"x"[..], BareItem::Integer(2)), (b"y", BareItem::Boolean(true))];
    let item = StructuredItem { value: BareItem::Integer(1), parameters: parameters.clone() };
    let members = vec![(&b"a"[..], StructuredMember::Item(item.clone()))];
    assert_eq!(dictionary(b"a=1;x=1; y;x=2"), Ok(members));
    let plain = StructuredItem { value: BareItem::Token(b"t"), parameters: vec![] };
    let inner = StructuredMember::InnerList { items: vec![item, plain], parameters };
    assert_eq!(list(b"( 1;x=2;y  t );x=2;y"), Ok(vec![inner.clone()]));
    assert_eq!(inner.item(), None);
    assert_eq!(list(b"()").map(|members| members.len()), Ok(1));
}

#[test]
fn malformed_dictionaries_are_refused_whole() {
    for text in [
        ",",
        "a,",
        "a,,b",
        ", a",
        "a b",
        "A=1",
        "1=1",
        "a=",
        "a=1;",
        "a=1;X",
        "a=\"",
        "a=\"\\x\"",
        "a=\"\x7f\"",
        "a=?2",
        "a=?",
        "a=:x",
        "a=:x y:",
        "a=(1",
        "a=(1\"x\")",
        "a=(1\t2)",
        "a=@1.5",
        "a=@x",
        "a=%x",
        "a=%\"%C3\"",
        "a=%\"%c",
        "a=-",
        "a=1.",
        "a==1",
        "\ta",
        "a=;b",
        "a=\"ä\"",
        "=",
        "a=()x",
    ] {
        assert!(matches!(dictionary(text.as_bytes()), Err(StructuredFault::Syntax)), "{text:?}");
    }
}

#[test]
fn numbers_have_limited_digits() {
    for (text, number) in [
        ("999999999999999", Ok(BareItem::Integer(999_999_999_999_999))),
        ("-999999999999999", Ok(BareItem::Integer(-999_999_999_999_999))),
        ("1000000000000000", Err(StructuredFault::Number)),
        ("-0", Ok(BareItem::Integer(0))),
        ("007", Ok(BareItem::Integer(7))),
        ("999999999999.999", Ok(BareItem::Decimal(999_999_999_999_999))),
        ("-1.25", Ok(BareItem::Decimal(-1250))),
        ("1000000000000.0", Err(StructuredFault::Number)),
        ("1.0001", Err(StructuredFault::Number)),
    ] {
        assert_eq!(list(text.as_bytes()), number.map(|number| vec![value(number)]), "{text}");
    }
}

#[test]
fn numbers_of_members_are_limited() {
    let members = |count: usize| {
        let keys: Vec<String> = (0..count).map(|index| format!("k{index}")).collect();
        keys.join(",")
    };
    assert_eq!(dictionary(members(MEMBERS_MAX).as_bytes()).map(|m| m.len()), Ok(MEMBERS_MAX));
    assert_eq!(list(members(MEMBERS_MAX).as_bytes()).map(|m| m.len()), Ok(MEMBERS_MAX));
    let too_many = members(MEMBERS_MAX + 1);
    assert_eq!(dictionary(too_many.as_bytes()), Err(StructuredFault::TooMany));
    assert_eq!(list(too_many.as_bytes()), Err(StructuredFault::TooMany));
    let parameters = |count: usize| format!("a;{}", members(count).replace(',', ";"));
    assert!(list(parameters(PARAMETERS_MAX).as_bytes()).is_ok());
    let too_many = parameters(PARAMETERS_MAX + 1);
    assert_eq!(list(too_many.as_bytes()), Err(StructuredFault::TooMany));
    let items = |count: usize| format!("({})", "1 ".repeat(count));
    assert!(list(items(PARAMETERS_MAX).as_bytes()).is_ok());
    assert_eq!(list(items(PARAMETERS_MAX + 1).as_bytes()), Err(StructuredFault::TooMany));
}

#[test]
fn lines_are_combined_with_commas() {
    let join =
        |lines: &[&'static str]| combine(lines.iter().map(|line| line.as_bytes())).into_owned();
    assert_eq!(join(&[]), b"");
    assert_eq!(join(&["a"]), b"a");
    assert_eq!(join(&["a", "b=1"]), b"a, b=1");
    assert!(dictionary(&join(&["a", ""])).is_err());
}
