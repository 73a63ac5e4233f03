//! Finds the end of a request head, and rejects an oversized one early.
//!
//! Each byte is scanned once, however small the pieces: [`HeadScan`] stores the position. The
//! result does not depend on the pieces: the byte that exceeds a limit is the fault, whether it
//! arrived alone or with the bytes after it.

use lighty_http::fields::is_token_byte;
use memchr::{memchr, memrchr};

use super::fault::RequestFault;
use super::limits::Http1Limits;

/// Empty lines tolerated before a request line: RFC 9112 section 2.2 asks for at least one.
pub const LEADING_LINES_MAX: u32 = 4;

/// The longest unknown method that gets a 501 instead of a 400.
pub const METHOD_BYTES_MAX: usize = 32;

/// `" HTTP/1.1\r\n"` and the space after the method.
const LINE_REST_BYTES: usize = 12;

/// Progress through an incomplete head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadScan {
    /// Bytes scanned.
    scanned: usize,
    /// Start of the current line.
    line_start: usize,
    /// Start of the request line.
    start: usize,
    /// Start of the header fields; 0 before the request line is complete.
    fields_start: usize,
    leading_lines: u32,
    field_lines: u32,
}

/// Position of a head in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadSpan {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl HeadScan {
    /// True if no byte of a head was scanned yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.scanned == 0
    }

    /// Start of the request line, as far as known.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Scans the bytes that arrived since the last call. `buf` is the same head each time, longer.
    pub(crate) fn advance(
        &mut self,
        buf: &[u8],
        limits: &Http1Limits,
        strict: bool,
    ) -> Result<Option<HeadSpan>, RequestFault> {
        debug_assert!(self.scanned <= buf.len(), "{} of {}", self.scanned, buf.len());
        debug_assert!(self.start <= self.line_start && self.line_start <= self.scanned, "{self:?}");
        while let Some(len) = memchr(b'\n', &buf[self.scanned..]) {
            let end = self.scanned + len + 1;
            let line = &buf[self.line_start..end];
            let blank = matches!(line, b"\r\n" | b"\n");
            self.check_limits(line, blank, limits)?;
            if strict && !line.ends_with(b"\r\n") {
                return Err(RequestFault::BareLf);
            }
            self.scanned = end;
            if blank && self.fields_start != 0 {
                debug_assert!(
                    self.start < self.fields_start && self.fields_start < end,
                    "{self:?}"
                );
                return Ok(Some(HeadSpan { start: self.start, end }));
            }
            self.finish_line(line, blank, limits)?;
            self.line_start = end;
        }
        self.scanned = buf.len();
        let line = &buf[self.line_start..];
        self.check_limits(line, matches!(line, b"" | b"\r"), limits)?;
        Ok(None)
    }

    /// Records a complete line that does not end the head.
    fn finish_line(
        &mut self,
        line: &[u8],
        blank: bool,
        limits: &Http1Limits,
    ) -> Result<(), RequestFault> {
        let end = self.line_start + line.len();
        if self.fields_start != 0 {
            self.field_lines += 1;
            if self.field_lines > limits.fields_max {
                return Err(RequestFault::TooManyFields);
            }
        } else if blank {
            self.leading_lines += 1;
            self.start = end;
            if self.leading_lines > LEADING_LINES_MAX {
                return Err(RequestFault::LeadingLines);
            }
        } else {
            if target_len(line) > limits.target_bytes_max {
                return Err(RequestFault::TargetTooLong);
            }
            self.fields_start = end;
        }
        Ok(())
    }

    /// Checks the limits. `line` is the received part of the current line; `blank` is true if it
    /// may become the empty line.
    fn check_limits(
        &self,
        line: &[u8],
        blank: bool,
        limits: &Http1Limits,
    ) -> Result<(), RequestFault> {
        if self.fields_start == 0 {
            return if blank { Ok(()) } else { check_request_line(line, limits) };
        }
        let counted = self.line_start + if blank { 0 } else { line.len() };
        let fields_end_max = self.fields_start.saturating_add(limits.field_bytes_max);
        let head_end_max = self.start.saturating_add(limits.head_bytes_max);
        if counted <= fields_end_max.min(head_end_max) {
            Ok(())
        } else if fields_end_max <= head_end_max {
            Err(RequestFault::FieldsTooLarge)
        } else {
            Err(RequestFault::HeadTooLarge)
        }
    }
}

/// Checks the received part of a request line: rejects binary data and oversized lines at once.
fn check_request_line(line: &[u8], limits: &Http1Limits) -> Result<(), RequestFault> {
    let method = &line[..line.len().min(METHOD_BYTES_MAX + 1)];
    let method_end = memchr(b' ', method);
    let token = &method[..method_end.unwrap_or(method.len())];
    let bad = token.iter().position(|&byte| !is_token_byte(byte));
    if bad.is_some() || method_end == Some(0) || token.len() > METHOD_BYTES_MAX {
        return Err(RequestFault::RequestLine);
    }
    let line_max = limits.target_bytes_max.saturating_add(token.len() + LINE_REST_BYTES);
    if line.len() > line_max {
        return Err(RequestFault::TargetTooLong);
    }
    Ok(())
}

fn target_len(line: &[u8]) -> usize {
    let (first, last) = (memchr(b' ', line), memrchr(b' ', line));
    first.zip(last).map_or(0, |(first, last)| last.saturating_sub(first + 1))
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::vec::Vec;

    use super::*;

    fn scan(head: &[u8], limits: &Http1Limits) -> Result<Option<HeadSpan>, RequestFault> {
        let whole = HeadScan::default().advance(head, limits, true);
        let mut dripped = HeadScan::default();
        let mut result = Ok(None);
        for len in 1..=head.len() {
            result = dripped.advance(&head[..len], limits, true);
            if result != Ok(None) {
                break;
            }
        }
        assert_eq!(whole, result, "the pieces must not matter");
        whole
    }

    #[test]
    fn the_end_is_found_once() {
        let limits = Http1Limits::default();
        let head = b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(scan(head, &limits), Ok(Some(HeadSpan { start: 4, end: head.len() })));
        let mut more = head.to_vec();
        more.extend_from_slice(b"GET /next HTTP/1.1\r\n\r\n");
        let span = HeadScan::default().advance(&more, &limits, true);
        assert_eq!(span, Ok(Some(HeadSpan { start: 4, end: head.len() })));
        assert_eq!(scan(b"GET / HTTP/1.1\r\nHost: a\r\n\r", &limits), Ok(None));
        assert_eq!(scan(b"", &limits), Ok(None));
    }

    #[test]
    fn bare_line_feeds_depend_on_strictness() {
        let head = b"GET / HTTP/1.1\nHost: a\n\n";
        assert_eq!(scan(head, &Http1Limits::default()), Err(RequestFault::BareLf));
        let lenient = HeadScan::default().advance(head, &Http1Limits::default(), false);
        assert_eq!(lenient, Ok(Some(HeadSpan { start: 0, end: head.len() })));
    }

    #[test]
    fn rubbish_is_refused_at_its_first_byte() {
        for (rubbish, len) in [(&b"\x16\x03\x01"[..], 1), (b" GET", 1), (b"GET\tx", 4)] {
            let limits = Http1Limits::default();
            let cut = &rubbish[..len];
            assert_eq!(scan(cut, &limits), Err(RequestFault::RequestLine), "{rubbish:?}");
            assert_eq!(scan(&rubbish[..len - 1], &limits), Ok(None));
        }
    }

    /// Runs a head built for `n` and one for `n + 1`, and expects only the second to be rejected.
    #[track_caller]
    fn at_the_limit(
        n: usize,
        fault: RequestFault,
        limits: &Http1Limits,
        head: impl Fn(usize) -> Vec<u8>,
    ) {
        assert!(matches!(scan(&head(n), limits), Ok(Some(_))), "{n}");
        assert_eq!(scan(&head(n + 1), limits), Err(fault), "{n} + 1");
    }

    #[test]
    fn limits_at_n_and_one_more() {
        let limits = Http1Limits {
            head_bytes_max: 300,
            field_bytes_max: 200,
            fields_max: 5,
            target_bytes_max: 60,
        };
        let get = |target: usize, fields: &str| {
            format!("GET /{} HTTP/1.1\r\n{fields}\r\n", "a".repeat(target - 1)).into_bytes()
        };
        at_the_limit(60, RequestFault::TargetTooLong, &limits, |n| get(n, ""));
        at_the_limit(200, RequestFault::FieldsTooLarge, &limits, |n| {
            get(1, &format!("A: {}\r\n", "b".repeat(n - 5)))
        });
        at_the_limit(5, RequestFault::TooManyFields, &limits, |n| get(1, &"A: b\r\n".repeat(n)));
        at_the_limit(LEADING_LINES_MAX as usize, RequestFault::LeadingLines, &limits, |n| {
            ["\r\n".repeat(n).as_bytes(), &get(1, "")].concat()
        });
        at_the_limit(METHOD_BYTES_MAX, RequestFault::RequestLine, &limits, |n| {
            format!("{} / HTTP/1.1\r\n\r\n", "A".repeat(n)).into_bytes()
        });
        let small_head = Http1Limits { head_bytes_max: 100, ..limits };
        at_the_limit(100, RequestFault::HeadTooLarge, &small_head, |n| {
            get(1, &format!("A: {}\r\n", "b".repeat(n - 16 - 5)))
        });
    }

    #[test]
    fn an_endless_head_is_refused_before_it_ends() {
        let limits =
            Http1Limits { field_bytes_max: 100, target_bytes_max: 50, ..Http1Limits::default() };
        let line = [b"GET /".as_slice(), &[b'a'; 100]].concat();
        assert_eq!(scan(&line, &limits), Err(RequestFault::TargetTooLong));
        let field = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'a'; 98]].concat();
        assert_eq!(scan(&field, &limits), Err(RequestFault::FieldsTooLarge));
        assert_eq!(scan(&field[..field.len() - 1], &limits), Ok(None));
    }
}
