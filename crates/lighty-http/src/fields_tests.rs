//! Tests of `fields`.

use alloc::vec::Vec;

use super::*;

#[test]
fn each_byte_up_to_cr_is_noticed_wherever_it_stands() {
    for byte in 0..=u8::MAX {
        for at in 0..20 {
            for filler in [14, b'a', 0x80, 0xFF] {
                let mut value = [filler; 20];
                value[at] = byte;
                assert_eq!(may_end_line(&value), byte <= b'\r', "{byte} at {at}");
                for len in at + 1..value.len() {
                    let short = &value[..len];
                    assert_eq!(may_end_line(short), byte <= b'\r', "{byte} at {at} of {len}");
                }
            }
        }
    }
    assert!(!may_end_line(b""));
}

fn sample() -> Fields {
    let mut fields = Fields::new();
    fields.push(b"hOSt", b"a");
    fields.push(b"X-One", b"1");
    fields.push(b"Vary", b"a, b");
    fields.push(b"x-one", b"2");
    fields.push_known(Known::Vary, "C");
    fields
}

#[test]
fn several_fields_of_a_name_are_joined() {
    let mut fields = Fields::new();
    for (name, value) in [
        ("Cookie", "a=1"),
        ("X-K", ""),
        ("Cookie", "b=2"),
        ("x-k", "a"),
        ("Content-Type", "t"),
        ("X-K", ""),
        ("X-Kk", "other"),
        ("Content-Type", "t"),
        ("X-K", "b"),
    ] {
        fields.push(name.as_bytes(), value.as_bytes());
    }
    let joined = |name: &str| fields.joined(name.as_bytes());
    assert_eq!(&*joined("cookie"), b"a=1; b=2");
    assert_eq!(&*joined("X-K"), b"a, b");
    assert_eq!(&*joined("content-type"), b"t");
    assert_eq!((&*joined("Referer"), &*joined("x-none")), (&b""[..], &b""[..]));
    assert!(matches!(joined("x-kk"), Cow::Borrowed(b"other")), "one is not copied");
}

#[test]
fn appended_lists_read_as_one() {
    let mut fields = sample();
    let mut more = sample();
    more.remove(Known::Host);
    fields.append(&more);
    let all: Vec<_> = sample().iter().chain(more.iter()).map(owned).collect();
    assert_eq!(fields.iter().map(owned).collect::<Vec<_>>(), all);
    assert!(fields.contains(Known::Vary) && fields.names_are_tokens());
    more.push(b"a b", b"c");
    fields.append(&more);
    assert!(!fields.names_are_tokens());
    assert_eq!(fields.as_wire(), None, "what was removed still lies in the buffer");
    let mut fields = Fields::new();
    fields.push_known(Known::Vary, "a");
    fields.append(&fields.clone());
    assert_eq!(fields.as_wire(), Some(&b"Vary: a\r\nVary: a\r\n"[..]));
}

/// Records the lines of a section, split at their colons.
fn push_lines(text: &[u8], section: &mut Section<'_>) {
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let name_end = line.iter().position(|&byte| byte == b':').expect("a colon");
        let value = line[name_end + 1..].iter().position(|&byte| !matches!(byte, b' ' | b'\t'));
        let value = name_end + 1 + value.expect("a line end");
        let end = line.len();
        let is_known = section.push(line, FieldLine { name_end, value, value_end: end - 2, end });
        assert_eq!(is_known, Known::from_bytes(&line[..name_end]).is_some());
    }
}

#[test]
fn a_section_is_taken_over_as_it_came() {
    for (text, wire) in [
        (&b"Host: a\r\nx-One: 1\r\nVary: \r\n"[..], true),
        (b"Host:a\r\nx-One:  1\r\nVary:\r\n", false),
        (b"Host:\ta\r\nx-One: 1\r\nVary: \r\n", false),
    ] {
        let mut fields = sample();
        let mut section = fields.section();
        push_lines(text, &mut section);
        assert!(section.len() == 3 && !section.is_empty());
        section.finish(text);
        assert_eq!(fields.get(Known::Host), Some(&b"a"[..]));
        assert_eq!(fields.get(Known::Vary), Some(&b""[..]));
        assert_eq!(fields.iter().nth(1), Some((&b"x-One"[..], &b"1"[..])));
        assert_eq!(fields.as_wire(), wire.then_some(text));
        assert!(!fields.names_are_tokens());
        fields.push_known(Known::Via, "b");
        assert_eq!(fields.get(Known::Via), Some(&b"b"[..]));
        fields.set(Known::Host, "c");
        let mut written = b"before ".to_vec();
        fields.write_to(&mut written);
        let lines = "before Host: c\r\nx-One: 1\r\nVary: \r\nVia: b\r\n";
        assert_eq!(written, lines.as_bytes(), "blanks as usual, leftovers not at all");
    }
}

#[test]
fn a_section_given_up_leaves_nothing() {
    let mut fields = sample();
    let text = b"Host: a\r\n";
    let mut section = fields.section();
    push_lines(text, &mut section);
    drop(section);
    assert!(fields.is_empty() && !fields.contains(Known::Host));
    fields.section().finish(b"");
    assert!(fields.is_empty());
}

fn owned(field: (&[u8], &[u8])) -> (Vec<u8>, Vec<u8>) {
    (field.0.to_vec(), field.1.to_vec())
}

#[test]
fn keeps_order_and_spelling() {
    let fields = sample();
    let all: Vec<_> = fields.iter().collect();
    assert_eq!(all[0], (&b"hOSt"[..], &b"a"[..]));
    assert_eq!(all[3], (&b"x-one"[..], &b"2"[..]));
    assert_eq!(all[4], (&b"Vary"[..], &b"C"[..]));
    assert_eq!(fields.len(), 5);
}

#[test]
fn looks_up_in_any_case() {
    let fields = sample();
    assert_eq!(fields.get(Known::Host), Some(&b"a"[..]));
    assert_eq!(fields.get_named(b"HOST"), Some(&b"a"[..]));
    assert_eq!(fields.get_named(b"X-ONE"), Some(&b"1"[..]));
    assert_eq!(fields.get_named(b"x-two"), None);
    assert_eq!(fields.get(Known::Cookie), None);
    assert_eq!(fields.get_all(Known::Vary).count(), 2);
    assert!(fields.list_contains(Known::Vary, "B") && fields.list_contains(Known::Vary, "c"));
    assert!(!fields.list_contains(Known::Vary, "d"));
}

#[test]
fn set_replaces_in_place_and_remove_removes_all() {
    let mut fields = sample();
    fields.set(Known::Vary, "z");
    assert_eq!(fields.get_all(Known::Vary).collect::<Vec<_>>(), [b"z"]);
    assert_eq!(fields.iter().nth(2), Some((&b"Vary"[..], &b"z"[..])));
    fields.set_named(b"X-oNe", b"3");
    assert_eq!(fields.iter().nth(1), Some((&b"X-oNe"[..], &b"3"[..])));
    assert_eq!(fields.len(), 3);
    assert!(fields.remove(Known::Vary) && !fields.remove(Known::Vary));
    assert!(fields.remove_named(b"x-ONE") && !fields.remove_named(b"x-one"));
    assert!(!fields.contains(Known::Vary) && fields.contains(Known::Host));
    fields.set(Known::Age, "1");
    assert_eq!(fields.get(Known::Age), Some(&b"1"[..]));
}

#[test]
fn a_value_with_a_control_byte_is_suspect_until_all_is_forgotten() {
    let mut fields = sample();
    assert!(fields.values_are_clean());
    for byte in [0, b'\t', b'\n', b'\r'] {
        let mut bad = Fields::new();
        bad.push_known(Known::Vary, [b'a', byte]);
        assert!(!bad.values_are_clean(), "{byte}");
        fields.append(&bad);
        assert!(!fields.values_are_clean(), "{byte}");
        fields.remove(Known::Vary);
        assert!(!fields.values_are_clean(), "its bytes still lie in the buffer");
        fields.clear();
        assert!(fields.values_are_clean());
    }
}

#[test]
fn clear_keeps_the_memory() {
    let mut fields = sample();
    let capacity = fields.capacity();
    fields.clear();
    assert!(fields.is_empty() && !fields.contains(Known::Host));
    assert_eq!(fields.capacity(), capacity);
}

#[test]
fn list_items_are_trimmed() {
    let items: Vec<_> = list_items(b" a ,, b\t,").collect();
    assert_eq!(items, [b"a", b"b"]);
}

#[test]
fn token_bytes_are_those_of_the_rfc() {
    let extra = b"!#$%&'*+-.^_`|~";
    for byte in 0..=u8::MAX {
        let expected = byte.is_ascii_alphanumeric() || extra.contains(&byte);
        assert_eq!(is_token_byte(byte), expected, "{byte}");
    }
}
