//! `X-Sendfile2`: a sequence of file parts, as in lighttpd 1.4.
//!
//! `path first-last, path first-`: a path is percent-encoded, so it contains no space. Ranges are
//! inclusive, and a missing end means the last byte of the file.

use std::sync::Arc;

use super::place_within;
use crate::exchange::Exchange;
use crate::exchange::file_part::FilePart;
use crate::fault::{Fault, FaultReport};
use crate::settings::limits::SENDFILE_PARTS_MAX;

/// Parses the parts.
///
/// # Errors
/// The fault and a message: bad syntax, too many parts, or a part beneath none of the roots.
pub(super) fn parse(
    ex: &Exchange,
    roots: &[Arc<str>],
    value: &[u8],
) -> Result<Vec<FilePart>, FaultReport> {
    let mut parts = Vec::new();
    let mut rest = value.trim_ascii_start();
    while !rest.is_empty() {
        if parts.len() == SENDFILE_PARTS_MAX {
            let message = format!("X-Sendfile2 with more than {SENDFILE_PARTS_MAX} parts");
            return Err(FaultReport::new(Fault::BackendMalformed, message));
        }
        let (path, (first, last), behind) = one(rest).ok_or_else(|| {
            let message = format!("X-Sendfile2 that cannot be read: {}", value.escape_ascii());
            FaultReport::new(Fault::BackendMalformed, message)
        })?;
        let place = place_within(ex, roots, path)?;
        parts.push(FilePart { root: place.root, rel: place.rel, first, last });
        rest = behind;
    }
    Ok(parts)
}

type Range = (u64, Option<u64>);

/// Splits off the first part.
fn one(text: &[u8]) -> Option<(&[u8], Range, &[u8])> {
    let (path, rest) = split_at(text, |byte| byte == b' ')?;
    let end = rest.iter().position(|byte| matches!(byte, b' ' | b',')).unwrap_or(rest.len());
    let range = range(&rest[..end])?;
    let rest = rest[end..].trim_ascii_start();
    match rest.split_first() {
        None => Some((path, range, rest)),
        Some((b',', behind)) => Some((path, range, behind.trim_ascii_start())),
        Some(_) => None,
    }
}

fn range(text: &[u8]) -> Option<Range> {
    let (first, last) = split_at(text, |byte| byte == b'-')?;
    let last = if last.is_empty() { None } else { Some(lighty_http::decimal::parse(last)?) };
    Some((lighty_http::decimal::parse(first)?, last))
}

fn split_at(text: &[u8], is_end: impl Fn(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| is_end(*byte))?;
    Some((&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(String, u64, Option<u64>)>> {
        let (mut rest, mut found) = (text.as_bytes(), Vec::new());
        while !rest.is_empty() {
            let (path, (first, last), behind) = one(rest)?;
            found.push((String::from_utf8_lossy(path).into_owned(), first, last));
            rest = behind;
        }
        Some(found)
    }

    #[test]
    fn parts_are_read() {
        let part = |path: &str, first, last| (path.to_owned(), first, last);
        assert_eq!(read("/a 0-"), Some(vec![part("/a", 0, None)]));
        let two = vec![part("/a,b%20c", 5, Some(9)), part("/d", 0, Some(0))];
        assert_eq!(read("/a,b%20c 5-9 ,  /d 0-0,"), Some(two));
    }

    #[test]
    fn malformed_parts_are_refused() {
        for text in [
            "/a",
            "/a ",
            "/a 1",
            "/a -",
            "/a -5",
            "/a 1-2-3",
            "/a 1-x",
            "/a +1-2",
            "/a 1-2 3",
            "/a 1-2;/b 1-2",
            "/a  1-2",
            "/a 99999999999999999999-",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
