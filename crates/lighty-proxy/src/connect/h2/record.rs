//! Records that a request's session exchanges with the connection that carries it.
//!
//! Both are in this process. A record consists of its kind, the length of its payload in four
//! bytes, and the payload; strings in it follow their lengths.

use lighty_http::{Fields, Status};

/// Bytes before a payload.
pub(crate) const HEAD_BYTES: usize = 5;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The head of a request, or of a final response.
    Head = 1,
    /// The head of an interim response.
    Interim = 2,
    /// Content.
    Data = 3,
    /// The end, with optional trailers.
    End = 4,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub kind: Kind,
    pub len: usize,
}

impl Record {
    /// Parses the record at the front of `bytes`; `None` if its header is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let &[kind, len @ ..] = bytes.first_chunk::<HEAD_BYTES>()?;
        debug_assert!((1..=4).contains(&kind), "{kind}");
        let kind = match kind {
            1 => Kind::Head,
            2 => Kind::Interim,
            3 => Kind::Data,
            _ => Kind::End,
        };
        Some(Self { kind, len: u32::from_be_bytes(len) as usize })
    }
}

/// Appends a record with the payload that `fill` appends.
pub(crate) fn push(kind: Kind, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[kind as u8, 0, 0, 0, 0]);
    fill(out);
    // Heads and pieces are far below 4 GiB.
    let len = out.len() - start - HEAD_BYTES;
    debug_assert!(u32::try_from(len).is_ok(), "{len}");
    let len = len as u32;
    out[start + 1..start + HEAD_BYTES].copy_from_slice(&len.to_be_bytes());
}

/// Appends content.
pub(crate) fn push_data(piece: &[u8], out: &mut Vec<u8>) {
    push(Kind::Data, out, |out| out.extend_from_slice(piece));
}

/// Appends the end.
pub(crate) fn push_end(trailers: Option<&Fields>, out: &mut Vec<u8>) {
    push(Kind::End, out, |out| {
        for (_, name, value) in trailers.into_iter().flat_map(Fields::iter_known) {
            push_field(name, value, out);
        }
    });
}

/// Appends a string.
pub(crate) fn push_text(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text);
}

/// Appends a field.
pub(crate) fn push_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    push_text(name, out);
    push_text(value, out);
}

/// Reads a payload.
pub(crate) struct Payload<'a>(pub &'a [u8]);

impl<'a> Payload<'a> {
    /// Returns the next bytes; fewer if the payload ends before.
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        debug_assert!(count <= self.0.len(), "{count} of {}", self.0.len());
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Returns the next byte.
    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Returns the next string.
    pub(crate) fn text(&mut self) -> &'a [u8] {
        let len = self.bytes(4).try_into().map_or(0, u32::from_be_bytes);
        self.bytes(len as usize)
    }

    /// Reads the remaining fields.
    pub(crate) fn fields(mut self, into: &mut Fields) {
        while !self.0.is_empty() {
            let (name, value) = (self.text(), self.text());
            into.push(name, value);
        }
    }

    /// Reads a status.
    pub(crate) fn status(&mut self) -> Status {
        let code = self.bytes(2).try_into().map_or(0, u16::from_be_bytes);
        Status::new(code).unwrap_or(Status::OK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_written() {
        let mut fields = Fields::new();
        fields.push(b"a", b"1");
        fields.push(b"b", b"");
        let mut out = Vec::new();
        push_data(b"piece", &mut out);
        push_end(Some(&fields), &mut out);
        assert_eq!(Record::parse(&out), Some(Record { kind: Kind::Data, len: 5 }));
        assert_eq!(Record::parse(&out[..4]), None);
        let rest = &out[HEAD_BYTES + 5..];
        let end = Record::parse(rest).expect("a record");
        assert_eq!((end.kind, end.len), (Kind::End, rest.len() - HEAD_BYTES));
        let mut read = Fields::new();
        Payload(&rest[HEAD_BYTES..]).fields(&mut read);
        assert!(read.iter().eq(fields.iter()));
    }
}
