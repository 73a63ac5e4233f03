//! JSON output of values that derive `Serialize`, in the form of all the server's JSON.
//!
//! Besides the characters that JSON demands, `<` and DEL are escaped, so that a text is harmless
//! inside a `<script>` and on a terminal. Lines of the access log have the same form and are
//! written by `lighty_http::json`, because each request pays for one.

use std::io;

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

/// Depth up to which [`push_lines`] breaks lines.
const DEPTH_OF_LINES: usize = 2;

/// Appends a value on one line.
pub fn push(value: &impl Serialize, out: &mut Vec<u8>) {
    push_with(JsonForm { depth: 0, depth_of_lines: 0 }, value, out);
}

/// Appends a value, with each member and element of the two outermost levels on a line of its own.
pub fn push_lines(value: &impl Serialize, out: &mut Vec<u8>) {
    push_with(JsonForm { depth: 0, depth_of_lines: DEPTH_OF_LINES }, value, out);
}

fn push_with(form: JsonForm, value: &impl Serialize, out: &mut Vec<u8>) {
    let done = value.serialize(&mut serde_json::Serializer::with_formatter(out, form));
    // Writing to a vector does not fail, and keys are texts.
    debug_assert!(done.is_ok(), "{done:?}");
}

/// Text of a client or of a file system. Bytes that are not UTF-8 become U+FFFD.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a [u8]);

impl Text<'_> {
    /// True if there are no bytes; for `skip_serializing_if`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(self.0))
    }
}

/// Layout and escapes.
struct JsonForm {
    depth: usize,
    depth_of_lines: usize,
}

impl JsonForm {
    fn begin<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        out.write_all(bracket)
    }

    fn end<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        out.write_all(bracket)
    }

    fn separate<W: ?Sized + io::Write>(&self, out: &mut W, is_first: bool) -> io::Result<()> {
        out.write_all(match (is_first, self.depth <= self.depth_of_lines) {
            (true, false) => b"",
            (false, false) => b",",
            (true, true) => b"\n",
            (false, true) => b",\n",
        })
    }
}

impl Formatter for JsonForm {
    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        self.separate(out, is_first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        self.separate(out, is_first)
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment.as_bytes();
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'<' | 0x7f)) {
            out.write_all(&rest[..at])?;
            write!(out, "\\u{:04x}", rest[at])?;
            rest = &rest[at + 1..];
        }
        out.write_all(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Serialize)]
    struct Outer<'a> {
        number: u64,
        list: Vec<BTreeMap<&'a str, u8>>,
        none: [u8; 0],
    }

    fn text(push: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn lines_end_at_the_outermost_levels() {
        let inner = || BTreeMap::from([("a", 1), ("b", 2)]);
        let outer = Outer { number: 1, list: vec![inner(), inner()], none: [] };
        assert_eq!(
            text(|out| push(&outer, out)),
            r#"{"number":1,"list":[{"a":1,"b":2},{"a":1,"b":2}],"none":[]}"#
        );
        assert_eq!(
            text(|out| push_lines(&outer, out)),
            "{\n\"number\":1,\n\"list\":[\n{\"a\":1,\"b\":2},\n{\"a\":1,\"b\":2}],\n\"none\":[]}"
        );
    }

    #[test]
    fn strings_have_the_form_of_the_access_log() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&all[..], b"", b"</script><", b"\x7f\x08\x0c", "\u{e9}<\u{20ac}".as_bytes()] {
            let mut by_hand = Vec::new();
            lighty_http::json::push_string(bytes, &mut by_hand);
            let by_hand = String::from_utf8(by_hand).expect("UTF-8");
            assert_eq!(text(|out| push(&Text(bytes), out)), by_hand);
            let read: String = serde_json::from_str(&by_hand).expect("JSON");
            assert_eq!(read, String::from_utf8_lossy(bytes));
            assert!(!by_hand.contains(['<', '\u{7f}']), "{by_hand}");
        }
    }
}
