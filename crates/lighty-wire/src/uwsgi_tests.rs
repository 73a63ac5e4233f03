//! Tests of `uwsgi`: both sides against each other.

use std::vec;
use std::vec::Vec;

use lighty_testkit::shredder::shred;
use proptest::prelude::*;

use super::*;

type Owned = Vec<(Vec<u8>, Vec<u8>)>;

fn write(modifiers: Modifiers, pairs: &[(&[u8], &[u8])]) -> Result<Vec<u8>, UwsgiFault> {
    let mut out = b"before".to_vec();
    let mut writer = VarsWriter::new(modifiers, &mut out);
    pairs.iter().for_each(|(name, value)| writer.pair(name, value));
    let result = writer.finish();
    assert!(result.is_ok() || out == b"before", "nothing is appended with a fault");
    result.map(|()| out.split_off(6))
}

fn parse_pieces(pieces: &[&[u8]]) -> Result<Option<(usize, Modifiers, Owned)>, UwsgiFault> {
    let mut buf = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        let mut request = UwsgiRequest::default();
        if let Head::Complete { consumed } = parse_request(&buf, &mut request)? {
            let pairs = request.pairs().map(|(name, value)| (name.to_vec(), value.to_vec()));
            return Ok(Some((consumed, request.modifiers, pairs.collect())));
        }
    }
    Ok(None)
}

fn parse(input: &[u8]) -> Result<Option<(usize, Modifiers, Owned)>, UwsgiFault> {
    let whole = parse_pieces(&[input]);
    shred(input, |pieces| assert_eq!(parse_pieces(pieces), whole, "{pieces:?}"));
    whole
}

#[test]
fn a_packet_is_written_byte_for_byte() {
    let modifiers = Modifiers { first: 14, second: 3 };
    let out = write(modifiers, &[(b"A", b"bc"), (b"", b"")]).expect("fits");
    assert_eq!(out, b"\x0E\x0B\0\x03\x01\0A\x02\0bc\0\0\0\0");
    let mut input = out.clone();
    input.extend_from_slice(b"body");
    let pairs = vec![(b"A".to_vec(), b"bc".to_vec()), (Vec::new(), Vec::new())];
    assert_eq!(parse(&input), Ok(Some((out.len(), modifiers, pairs))));
    let nothing = write(Modifiers::default(), &[]).expect("fits");
    assert_eq!(nothing, [0; 4]);
    assert_eq!(parse(&nothing), Ok(Some((4, Modifiers::default(), Vec::new()))));
}

#[test]
fn packet_holds_variables_up_to_its_limit() {
    // Two lengths, and the name.
    let value = vec![b'v'; VARS_BYTES_MAX - 5 + 1];
    let fits = write(Modifiers::default(), &[(b"N", &value[1..])]).expect("fits");
    assert_eq!((fits.len(), &fits[..4]), (HEADER_LEN + VARS_BYTES_MAX, &b"\0\xFF\xFF\0"[..]));
    assert!(parse_pieces(&[&fits]).expect("legal").is_some());
    let outcome = write(Modifiers::default(), &[(b"N", &value)]);
    assert_eq!(outcome, Err(UwsgiFault::TooLarge));
    // Later pairs do not make it fit again.
    let outcome = write(Modifiers::default(), &[(b"N", &value), (b"A", b"b")]);
    assert_eq!(outcome, Err(UwsgiFault::TooLarge));
    let mut out = Vec::new();
    let mut writer = VarsWriter::new(Modifiers::default(), &mut out);
    writer.pair(b"N", &value);
    writer.pair(b"A", b"b");
    assert_eq!(writer.needed_bytes(), VARS_BYTES_MAX + 1 + 6);
    assert_eq!(writer.finish(), Err(UwsgiFault::TooLarge));
    let half = vec![b'v'; 32_763];
    let pairs: [(&[u8], &[u8]); 2] = [(b"N", &half), (b"M", &half[1..])];
    assert!(write(Modifiers::default(), &pairs).is_ok());
    let pairs: [(&[u8], &[u8]); 2] = [(b"N", &half), (b"M", &half)];
    assert_eq!(write(Modifiers::default(), &pairs), Err(UwsgiFault::TooLarge));
    assert_eq!(write(Modifiers::default(), &[(&[b'n'; 70_000], b"")]), Err(UwsgiFault::TooLarge));
}

#[test]
fn texts_longer_than_their_packet_are_refused() {
    for content in [
        &b"\x01"[..],
        b"\x01\0",
        b"\x01\0A",
        b"\x01\0A\x01",
        b"\x01\0A\x01\0",
        b"\x01\0A\x02\0b",
        b"\xFF\xFFA\0\0",
        b"\0\0\xFF\xFFx",
    ] {
        let mut input = vec![0, content.len() as u8, 0, 0];
        input.extend_from_slice(content);
        input.extend_from_slice(&[b'x'; 300]);
        assert_eq!(parse(&input), Err(UwsgiFault::Truncated), "{content:?}");
    }
}

proptest! {
    #[test]
    fn written_packet_is_read(
        pairs in proptest::collection::vec((any_text(), any_text()), 0..12),
        first: u8,
        second: u8,
    ) {
        let modifiers = Modifiers { first, second };
        let borrowed: Vec<_> =
            pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        let out = write(modifiers, &borrowed).expect("fits");
        prop_assert_eq!(parse_pieces(&[&out]), Ok(Some((out.len(), modifiers, pairs))));
    }
}

fn any_text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (250_usize..260).prop_map(|len| vec![b'm'; len]),
    ]
}
