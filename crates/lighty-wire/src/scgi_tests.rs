//! Tests of `scgi`: both sides against each other and against the specification's example.

use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use lighty_testkit::shredder::shred;
use proptest::prelude::*;

use super::*;

type Owned = Vec<(Vec<u8>, Vec<u8>)>;

fn write(content_length: u64, pairs: &[(&[u8], &[u8])]) -> Result<Vec<u8>, ScgiFault> {
    let mut out = b"before".to_vec();
    let mut writer = HeadWriter::new(content_length, &mut out);
    pairs.iter().for_each(|(name, value)| writer.pair(name, value));
    let result = writer.finish();
    assert!(result.is_ok() || out == b"before", "nothing is appended with a fault");
    result.map(|()| out.split_off(6))
}

fn parse_pieces(pieces: &[&[u8]]) -> Result<Option<(usize, u64, Owned)>, ScgiFault> {
    let mut buf = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        let mut request = ScgiRequest::default();
        if let Head::Complete { consumed } = parse_request(&buf, &mut request)? {
            let pairs = request.pairs().map(|(name, value)| (name.to_vec(), value.to_vec()));
            return Ok(Some((consumed, request.content_length, pairs.collect())));
        }
    }
    Ok(None)
}

fn parse(input: &[u8]) -> Result<Option<(usize, u64, Owned)>, ScgiFault> {
    let whole = parse_pieces(&[input]);
    shred(input, |pieces| assert_eq!(parse_pieces(pieces), whole, "{pieces:?}"));
    whole
}

fn netstring(content: &str) -> String {
    format!("{}:{content},", content.len())
}

#[test]
fn the_example_of_the_specification() {
    let pairs = [(&b"REQUEST_METHOD"[..], &b"POST"[..]), (b"REQUEST_URI", b"/deepthought")];
    let out = write(27, &pairs).expect("legal");
    let expected = "70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0\
                    REQUEST_URI\0/deepthought\0,";
    assert_eq!(out, expected.as_bytes());
    let mut input = out.clone();
    input.extend_from_slice(b"What is the answer to life?");
    let (consumed, content_length, read) = parse(&input).expect("legal").expect("complete");
    assert_eq!((consumed, content_length), (out.len(), 27));
    assert_eq!(read.len(), 4);
    assert_eq!(read[3], (b"REQUEST_URI".to_vec(), b"/deepthought".to_vec()));
}

#[test]
fn the_first_variables_cannot_be_replaced() {
    let pairs = [(&b"SCGI"[..], &b"2"[..]), (b"CONTENT_LENGTH", b"99"), (b"A", b"")];
    let out = write(0, &pairs).expect("legal");
    assert_eq!(out, netstring("CONTENT_LENGTH\x000\0SCGI\x001\0A\0\0").into_bytes());
}

#[test]
fn names_and_values_that_would_shift_the_pairs_are_refused() {
    assert_eq!(write(0, &[(b"A\0B", b"c")]), Err(ScgiFault::Nul));
    assert_eq!(write(0, &[(b"A", b"c\0"), (b"B", b"")]), Err(ScgiFault::Nul));
    assert_eq!(write(0, &[(b"", b"c")]), Err(ScgiFault::Name));
}

#[test]
fn variables_have_a_limit() {
    // The first two variables, and the name with both NULs.
    let rest = HEAD_BYTES_MAX - b"CONTENT_LENGTH\x000\0SCGI\x001\0".len() - 3;
    let out = write(0, &[(b"A", &vec![b'v'; rest])]).expect("fits");
    assert!(out.starts_with(b"1048576:CONTENT"));
    assert_eq!(parse_pieces(&[&out]).map(|read| read.is_some()), Ok(true));
    let outcome = write(0, &[(b"A", &vec![b'v'; rest + 1])]);
    assert_eq!(outcome, Err(ScgiFault::HeadTooLarge));
    assert_eq!(write(0, &[(b"A", &vec![b'v'; HEAD_BYTES_MAX])]), Err(ScgiFault::HeadTooLarge));
    let mut out = Vec::new();
    let mut writer = HeadWriter::new(0, &mut out);
    for len in [rest, 0, HEAD_BYTES_MAX] {
        writer.pair(b"A", &vec![b'v'; len]);
    }
    assert_eq!(writer.needed_bytes(), 2 * HEAD_BYTES_MAX + 3 + 3);
    assert_eq!(writer.finish(), Err(ScgiFault::HeadTooLarge));
    assert_eq!(parse(b"1048576"), Ok(None));
    assert_eq!(parse(b"1048577:"), Err(ScgiFault::HeadTooLarge));
    // Rejected at once, not after a megabyte.
    assert_eq!(parse(b"9999999x"), Err(ScgiFault::HeadTooLarge));
}

#[test]
fn malformed_requests_are_refused() {
    let start = "CONTENT_LENGTH\x000\0SCGI\x001\0";
    for (fault, input) in [
        (ScgiFault::Netstring, "GET / HTTP/1.1\r\n".into()),
        (ScgiFault::Netstring, "070:".into()),
        (ScgiFault::Netstring, "00:,".into()),
        (ScgiFault::Netstring, "+5:".into()),
        (ScgiFault::Netstring, netstring(start).replace(',', ";")),
        (ScgiFault::Pairs, "0:,".into()),
        (ScgiFault::Pairs, ":,".into()),
        (ScgiFault::Pairs, netstring("CONTENT_LENGTH\x000\0SCGI\x001")),
        (ScgiFault::Pairs, netstring(&format!("{start}A\0"))),
        (ScgiFault::ContentLength, netstring("SCGI\x001\0CONTENT_LENGTH\x000\0")),
        (ScgiFault::ContentLength, netstring("CONTENT_LENGTH\0\0SCGI\x001\0")),
        (ScgiFault::ContentLength, netstring("CONTENT_LENGTH\0-1\0SCGI\x001\0")),
        (ScgiFault::Version, netstring("CONTENT_LENGTH\x000\0")),
        (ScgiFault::Version, netstring("CONTENT_LENGTH\x000\0SCGI\x002\0")),
        (ScgiFault::Name, netstring(&format!("{start}\0x\0"))),
        (ScgiFault::Duplicate, netstring(&format!("{start}A\x001\0A\x002\0"))),
        (ScgiFault::Duplicate, netstring(&format!("{start}CONTENT_LENGTH\x005\0"))),
    ] {
        assert_eq!(parse(input.as_bytes()), Err(fault), "{input:?}");
    }
    assert_eq!(parse(b""), Ok(None));
    assert_eq!(parse(b"7"), Ok(None));
}

proptest! {
    #[test]
    fn written_request_is_read(
        content_length: u64,
        pairs in proptest::collection::btree_map("[A-Z_]{1,12}", "[ -~\n]{0,40}", 0..12),
    ) {
        let borrowed: Vec<_> =
            pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let out = write(content_length, &borrowed).expect("legal");
        let (consumed, length, read) = parse_pieces(&[&out]).expect("legal").expect("complete");
        prop_assert_eq!((consumed, length), (out.len(), content_length));
        let read: Vec<_> = read[2..].iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let sent = |name: &[u8]| !matches!(name, CONTENT_LENGTH | SCGI);
        let expected: Vec<_> = borrowed.into_iter().filter(|(name, _)| sent(name)).collect();
        prop_assert_eq!(read, expected);
    }
}
