//! Tests of `encode`: bytes against the specification, and all output against the application's
//! side.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::fastcgi::app::{FastcgiRequestEvent, RequestDecoder};

/// The messages that an application decodes.
#[derive(Debug, Default, PartialEq, Eq)]
struct DecodedMessages {
    begin: Option<Begin>,
    params: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    stdin: Vec<u8>,
    ended: bool,
    aborted: bool,
    requested: Vec<Vec<u8>>,
}

fn read(bytes: &[u8]) -> DecodedMessages {
    let (mut decoder, mut seen, mut rest) =
        (RequestDecoder::new(), DecodedMessages::default(), bytes);
    loop {
        let step = decoder.feed(rest).expect("legal records");
        match step.event {
            None => break,
            Some(FastcgiRequestEvent::Begin(begin)) => seen.begin = Some(begin),
            Some(FastcgiRequestEvent::Params) => seen.params = Some(owned(decoder.params())),
            Some(FastcgiRequestEvent::Stdin(range)) => seen.stdin.extend_from_slice(&rest[range]),
            Some(FastcgiRequestEvent::EndOfStdin) => seen.ended = true,
            Some(FastcgiRequestEvent::Abort) => seen.aborted = true,
            Some(FastcgiRequestEvent::GetValues) => {
                seen.requested = decoder.requested().map(<[u8]>::to_vec).collect()
            }
            Some(other) => panic!("{other:?}"),
        }
        rest = &rest[step.consumed..];
    }
    seen
}

fn owned<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<(Vec<u8>, Vec<u8>)> {
    pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// The content lengths of the records.
fn lengths(mut bytes: &[u8]) -> Vec<usize> {
    let mut all = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() {
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        all.push(len);
        bytes = &rest[len + usize::from(header[6])..];
    }
    assert!(bytes.is_empty());
    all
}

#[test]
fn a_request_is_written_byte_for_byte() {
    let mut out = b"before".to_vec();
    begin_request(Begin { role: ApplicationRole::Responder, keep_conn: true }, &mut out);
    params([(&b"A"[..], &b"bc"[..]), (b"", b"")], &mut out).expect("short pairs");
    out.extend_from_slice(&stdin_header(2));
    out.extend_from_slice(b"hi");
    out.extend_from_slice(&END_OF_STDIN);
    let expected: &[&[u8]] = &[
        b"before",
        b"\x01\x01\0\x01\0\x08\0\0\0\x01\x01\0\0\0\0\0",
        b"\x01\x04\0\x01\0\x07\0\0\x01\x02Abc\0\0",
        b"\x01\x04\0\x01\0\0\0\0",
        b"\x01\x05\0\x01\0\x02\0\0hi",
        b"\x01\x05\0\x01\0\0\0\0",
    ];
    assert_eq!(out, expected.concat());
    assert_eq!(ABORT_REQUEST, *b"\x01\x02\0\x01\0\0\0\0");
    let mut out = Vec::new();
    begin_request(Begin { role: ApplicationRole::Authorizer, keep_conn: false }, &mut out);
    assert_eq!(out, b"\x01\x01\0\x01\0\x08\0\0\0\x02\0\0\0\0\0\0");
    assert_eq!(stdin_header(0), END_OF_STDIN);
}

#[test]
fn parameters_fill_records_to_the_brim() {
    // One byte for the name's length, four for the value's, one for the name.
    const OVERHEAD: usize = 6;
    let written = |value_len: usize| {
        let mut out = Vec::new();
        params([(&b"N"[..], vec![b'v'; value_len].as_slice())], &mut out).expect("short enough");
        lengths(&out)
    };
    assert_eq!(written(65_535 - OVERHEAD), [65_535, 0]);
    assert_eq!(written(65_536 - OVERHEAD), [65_535, 1, 0]);
    assert_eq!(written(2 * 65_535 - OVERHEAD), [65_535, 65_535, 0]);
    assert_eq!(written(4 * 65_536 - OVERHEAD), [65_535, 65_535, 65_535, 65_535, 4, 0]);
    let mut out = Vec::new();
    params([], &mut out).expect("nothing to refuse");
    assert_eq!(lengths(&out), [0]);
}

#[test]
fn a_pair_is_cut_only_if_no_record_can_hold_it() {
    let written = |lens: &[usize]| {
        let value = vec![b'v'; 70_000];
        let pairs: Vec<_> = lens.iter().map(|len| (&b"NAME"[..], &value[..len - 9])).collect();
        let mut out = Vec::new();
        begin_request(Begin::default(), &mut out);
        let start = out.len();
        params(pairs.iter().copied(), &mut out).expect("short enough");
        assert_eq!(read(&out).params, Some(owned(pairs.into_iter())));
        lengths(&out[start..])
    };
    assert_eq!(written(&[40_000, 25_535]), [65_535, 0]);
    assert_eq!(written(&[40_000, 25_536]), [40_000, 25_536, 0]);
    assert_eq!(written(&[40_000, 65_535, 1_000]), [40_000, 65_535, 1_000, 0]);
    assert_eq!(written(&[40_000, 65_536, 1_000]), [40_000, 65_535, 1_001, 0]);
    assert_eq!(written(&[40_000, 70_009]), [40_000, 65_535, 4_474, 0]);
}

#[test]
fn lengths_and_names_are_cut_where_they_must_be() {
    // The two lengths take eight bytes.
    for name_len in 65_520..65_540 {
        let (name, value) = (vec![b'n'; name_len], vec![b'v'; 200]);
        let pairs = [(&b"FIRST"[..], &b"1"[..]), (&name, &value), (b"LAST", b"2")];
        let mut out = Vec::new();
        begin_request(Begin::default(), &mut out);
        params(pairs, &mut out).expect("short enough");
        assert_eq!(read(&out).params, Some(owned(pairs.into_iter())), "{name_len}");
    }
}

#[test]
fn padding_makes_multiples_of_eight() {
    for len in [1, 7, 8, 9, 65_528, 65_529, 65_535] {
        let (header, padding) = stdin_header_padded(len);
        assert_eq!((usize::from(len) + padding.len()) % 8, 0);
        assert!(padding.len() < 8);
        assert_eq!(usize::from(header[6]), padding.len());
        let mut out = Vec::new();
        begin_request(Begin::default(), &mut out);
        params([], &mut out).expect("nothing to refuse");
        out.extend_from_slice(&header);
        out.resize(out.len() + usize::from(len), b'b');
        out.extend_from_slice(padding);
        out.extend_from_slice(&END_OF_STDIN);
        let seen = read(&out);
        assert_eq!((seen.stdin.len(), seen.ended), (usize::from(len), true));
    }
}

#[test]
fn the_question_for_variables_is_understood() {
    let mut out = Vec::new();
    get_values(&mut out);
    assert_eq!(&out[..8], b"\x01\x09\0\0\0\x30\0\0");
    assert_eq!(lengths(&out), [48]);
    assert_eq!(read(&out).requested, VARIABLES.map(<[u8]>::to_vec));
}

#[test]
fn an_abort_is_understood() {
    let mut out = Vec::new();
    begin_request(Begin::default(), &mut out);
    out.extend_from_slice(&END_OF_PARAMS);
    out.extend_from_slice(&ABORT_REQUEST);
    assert!(read(&out).aborted);
}

proptest! {
    #[test]
    fn written_request_is_read(
        authorizer: bool,
        keep_conn: bool,
        pairs in proptest::collection::vec((any_text(), any_text()), 0..20),
        body in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..5),
    ) {
        let role = if authorizer { ApplicationRole::Authorizer } else { ApplicationRole::Responder };
        let begin = Begin { role, keep_conn };
        let mut out = Vec::new();
        begin_request(begin, &mut out);
        let borrowed = pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
        params(borrowed, &mut out).expect("short enough");
        for piece in &body {
            let (header, padding) = stdin_header_padded(piece.len() as u16);
            out.extend_from_slice(&header);
            out.extend_from_slice(piece);
            out.extend_from_slice(padding);
        }
        out.extend_from_slice(&END_OF_STDIN);
        let seen = read(&out);
        prop_assert_eq!(seen.begin, Some(begin));
        prop_assert_eq!(seen.params, Some(pairs));
        prop_assert_eq!(seen.stdin, body.concat());
        prop_assert!(seen.ended);
    }
}

/// Texts around the lengths at which the encoding changes.
fn any_text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..40),
        2 => (126_usize..130).prop_map(|len| vec![b'm'; len]),
        1 => (65_530_usize..65_540).prop_map(|len| vec![b'l'; len]),
    ]
}
