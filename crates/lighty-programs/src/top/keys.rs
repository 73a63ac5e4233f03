//! Parser of keyboard input.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Enter,
    Escape,
    Backspace,
    Left,
    Right,
    Up,
    Down,
    PageUp,
    PageDown,
    Char(char),
    /// A key without a function.
    Other,
}

/// Escape sequences of terminals, and their keys.
const SEQUENCES: [(&str, Key); 10] = [
    ("\x1b[A", Key::Up),
    ("\x1b[B", Key::Down),
    ("\x1b[C", Key::Right),
    ("\x1b[D", Key::Left),
    ("\x1bOA", Key::Up),
    ("\x1bOB", Key::Down),
    ("\x1bOC", Key::Right),
    ("\x1bOD", Key::Left),
    ("\x1b[5~", Key::PageUp),
    ("\x1b[6~", Key::PageDown),
];

/// Parses typed bytes. The end of the input counts as [`Key::Quit`].
pub(super) fn parse(bytes: &[u8]) -> Vec<Key> {
    if bytes.is_empty() {
        return vec![Key::Quit];
    }
    let text = String::from_utf8_lossy(bytes);
    let (mut left, mut keys) = (&*text, Vec::new());
    while let Some(first) = left.chars().next() {
        if let Some((sequence, key)) = SEQUENCES.iter().find(|(known, _)| left.starts_with(known)) {
            keys.push(*key);
            left = &left[sequence.len()..];
            continue;
        }
        left = &left[first.len_utf8()..];
        keys.push(match first {
            '\x03' | '\x04' => Key::Quit,
            '\r' | '\n' => Key::Enter,
            '\x7f' | '\x08' => Key::Backspace,
            '\t' => Key::Right,
            '\x1b' if left.starts_with('[') => {
                // An unknown sequence ends with a letter or a tilde.
                let end = left[1..].find(|one: char| one.is_ascii_alphabetic() || one == '~');
                left = end.map_or("", |end| &left[end + 2..]);
                Key::Other
            }
            '\x1b' => Key::Escape,
            other if other.is_control() => Key::Other,
            other => Key::Char(other),
        });
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_keys() {
        assert_eq!(parse(b"\x1b[Aq"), [Key::Up, Key::Char('q')]);
        assert_eq!(parse(b"\x1b\x03"), [Key::Escape, Key::Quit]);
        assert_eq!(parse(b"\x1b[15~x\x1b[5~"), [Key::Other, Key::Char('x'), Key::PageUp]);
        assert_eq!(parse("é\t\x7f".as_bytes()), [Key::Char('é'), Key::Right, Key::Backspace]);
        assert_eq!(parse(b"\x1b["), [Key::Other]);
    }
}
