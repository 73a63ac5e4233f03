//! Tokens of header fields: cookies, and words, separators and quoted strings of any field.

use std::borrow::Cow;

const SPACE: [u8; 4] = *b" \t\r\n";

/// Names and values of a `Cookie` field. A quoted value keeps its quotes; an unquoted one ends
/// after its first word.
pub fn cookies(field: &[u8]) -> impl Iterator<Item = (&[u8], Cow<'_, [u8]>)> {
    let mut rest = field;
    std::iter::from_fn(move || {
        let begin = rest.iter().position(|byte| *byte != b';' && !SPACE.contains(byte))?;
        rest = &rest[begin..];
        let name = cookie_word(&mut rest);
        skip_space(&mut rest);
        let mut value = Cow::Borrowed(&b""[..]);
        if rest.first() == Some(&b'=') {
            rest = &rest[1..];
            skip_space(&mut rest);
            value = match rest.first() {
                Some(b'"') => quoted(&mut rest),
                _ => Cow::Borrowed(cookie_word(&mut rest)),
            };
        }
        let end = rest.iter().position(|byte| *byte == b';').unwrap_or(rest.len());
        rest = &rest[end..];
        Some((name, value))
    })
}

/// Words, separators (`,`, `;` and `=`, each by itself) and quoted strings of a field, in order and
/// without the space between them. Quoted strings keep their quotes.
pub fn header(field: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let mut rest = field;
    std::iter::from_fn(move || {
        skip_space(&mut rest);
        Some(match rest.first()? {
            b',' | b';' | b'=' => Cow::Borrowed(split_off(&mut rest, 1)),
            b'"' => quoted(&mut rest),
            _ => Cow::Borrowed(word(&mut rest, |byte| matches!(byte, b',' | b';' | b'='))),
        })
    })
}

fn cookie_word<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    word(rest, |byte| matches!(byte, b'=' | b';'))
}

fn word<'a>(rest: &mut &'a [u8], ends: impl Fn(u8) -> bool) -> &'a [u8] {
    let end = rest.iter().position(|byte| ends(*byte) || SPACE.contains(byte));
    split_off(rest, end.unwrap_or(rest.len()))
}

/// Reads a quoted string with its quotes. A missing end is added; a final backslash is escaped.
fn quoted<'a>(rest: &mut &'a [u8]) -> Cow<'a, [u8]> {
    let mut at = 1;
    loop {
        match rest.get(at) {
            Some(b'"') => return Cow::Borrowed(split_off(rest, at + 1)),
            Some(b'\\') if at + 1 == rest.len() => {
                let text = split_off(rest, rest.len());
                return Cow::Owned([text, b"\\\""].concat());
            }
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return Cow::Owned([split_off(rest, rest.len()), b"\""].concat()),
        }
    }
}

fn skip_space(rest: &mut &[u8]) {
    let begin = rest.iter().position(|byte| !SPACE.contains(byte)).unwrap_or(rest.len());
    split_off(rest, begin);
}

fn split_off<'a>(rest: &mut &'a [u8], at: usize) -> &'a [u8] {
    let (first, second) = rest.split_at(at);
    *rest = second;
    first
}
