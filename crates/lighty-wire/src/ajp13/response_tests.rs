use alloc::vec;

use lighty_testkit::shredder::shred;
use proptest::prelude::*;

use super::*;
use crate::ajp13::container::{CPONG, encode_chunk, encode_end, encode_get_body, encode_headers};
use crate::ajp13::{EncodeFault, FIELDS_MAX};

/// Decoded events, with adjacent body chunks joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DecodedResponse {
    events: Vec<ReceivedEvent>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    between: bool,
    fault: Option<AjpFault>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ReceivedEvent {
    Headers(u16, Vec<u8>),
    Body(Vec<u8>),
    Other(AjpEvent),
}

fn decode_pieces(decoder: &mut ResponseDecoder, pieces: &[&[u8]]) -> DecodedResponse {
    let mut seen = DecodedResponse::default();
    'all: for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let step = match decoder.feed(rest) {
                Ok(step) => step,
                Err(fault) => {
                    assert_eq!(decoder.feed(b""), Err(fault), "a fault stays");
                    seen.fault = Some(fault);
                    break 'all;
                }
            };
            assert!(step.consumed > 0);
            match step.event {
                Some(AjpEvent::Body(range)) => match seen.events.last_mut() {
                    Some(ReceivedEvent::Body(data)) => data.extend_from_slice(&rest[range]),
                    _ => seen.events.push(ReceivedEvent::Body(rest[range].to_vec())),
                },
                Some(AjpEvent::Headers) => {
                    let received =
                        ReceivedEvent::Headers(decoder.status().code(), decoder.reason().to_vec());
                    seen.events.push(received);
                }
                Some(other) => seen.events.push(ReceivedEvent::Other(other)),
                None => {}
            }
            rest = &rest[step.consumed..];
        }
    }
    let fields = decoder.fields().iter();
    seen.fields = fields.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    seen.between = decoder.is_between_packets();
    seen
}

/// Decodes the response to a request, with the same result for every cut.
fn decode(wire: &[u8]) -> DecodedResponse {
    let mut decoder = ResponseDecoder::new(PacketSize::DEFAULT, FIELDS_MAX);
    let mut first = None;
    shred(wire, |pieces| {
        decoder = ResponseDecoder { fault: None, ..decoder.clone() };
        decoder.begin_request();
        let seen = decode_pieces(&mut decoder, pieces);
        assert_eq!(first.get_or_insert_with(|| seen.clone()), &seen, "{pieces:?}");
    });
    first.expect("at least one run")
}

/// A packet of the container.
fn packet(payload: &[u8]) -> Vec<u8> {
    let mut wire = b"AB".to_vec();
    wire.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    wire.extend_from_slice(payload);
    wire
}

/// Send Headers with these bytes as its fields.
fn headers(count: u16, fields: &[u8]) -> Vec<u8> {
    let mut payload = b"\x04\0\xC8\0\x02OK\0".to_vec();
    payload.extend_from_slice(&count.to_be_bytes());
    payload.extend_from_slice(fields);
    packet(&payload)
}

const NO_FIELDS: &[u8] = b"AB\0\x0A\x04\0\xC8\0\x02OK\0\0\0";
const END: &[u8] = b"AB\0\x02\x05\x01";

fn refuse(wire: &[&[u8]], fault: AjpFault) {
    assert_eq!(decode(&wire.concat()).fault, Some(fault), "{wire:?}");
}

/// Tomcat's messages for a page: headers, a chunk with a NUL after it, a flush, the end.
#[test]
fn a_response_as_tomcat_sends_it() {
    let wire = [
        &headers(2, b"\xA0\x01\0\x09text/html\0\xA0\x03\0\x02 5\0")[..],
        b"AB\0\x09\x03\0\x05hello\0",
        b"AB\0\x04\x03\0\0\0",
        END,
    ]
    .concat();
    let seen = decode(&wire);
    assert_eq!(
        seen.events,
        [
            ReceivedEvent::Headers(200, b"OK".to_vec()),
            ReceivedEvent::Body(b"hello".to_vec()),
            ReceivedEvent::Other(AjpEvent::Flush),
            ReceivedEvent::Other(AjpEvent::End { reuse: true }),
        ]
    );
    let text = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    assert_eq!(seen.fields, [text("Content-Type", "text/html"), text("Content-Length", "5")]);
    assert!(seen.between && seen.fault.is_none());
}

/// The document's form, without a NUL after chunks.
#[test]
fn chunks_of_the_document() {
    let seen = decode(
        &[NO_FIELDS, b"AB\0\x05\x03\0\x02hi", b"AB\0\x03\x03\0\0", b"AB\0\x02\x05\0"].concat(),
    );
    assert_eq!(
        seen.events[1..],
        [
            ReceivedEvent::Body(b"hi".to_vec()),
            ReceivedEvent::Other(AjpEvent::Flush),
            ReceivedEvent::Other(AjpEvent::End { reuse: false })
        ]
    );
}

#[test]
fn body_is_asked_for_before_and_after_headers() {
    let ask = b"AB\0\x03\x06\x1F\xFA";
    let seen = decode(&[&ask[..], NO_FIELDS, ask, END].concat());
    assert_eq!(seen.events[0], ReceivedEvent::Other(AjpEvent::GetBody { len: 8186 }));
    assert_eq!(seen.events[2], ReceivedEvent::Other(AjpEvent::GetBody { len: 8186 }));
    refuse(&[b"AB\0\x03\x06\0\0"], AjpFault::BodyRequestEmpty);
    refuse(&[b"AB\0\x02\x06\x01"], AjpFault::Truncated);
    refuse(&[b"AB\0\x04\x06\0\x01\0"], AjpFault::Trailing);
}

#[test]
fn the_order_is_kept() {
    refuse(&[b"AB\0\x05\x03\0\x02hi"], AjpFault::HeadersMissing);
    refuse(&[END], AjpFault::HeadersMissing);
    refuse(&[NO_FIELDS, NO_FIELDS], AjpFault::HeadersRepeated);
    refuse(&[NO_FIELDS, END, NO_FIELDS], AjpFault::AfterEnd);
    refuse(&[NO_FIELDS, END, b"A"], AjpFault::AfterEnd);
    refuse(&[NO_FIELDS, END, &CPONG], AjpFault::AfterEnd);
    refuse(&[&CPONG], AjpFault::Unrequested);
    refuse(&[NO_FIELDS, &CPONG], AjpFault::Unrequested);
    let mut decoder = ResponseDecoder::new(PacketSize::DEFAULT, FIELDS_MAX);
    assert_eq!(decoder.feed(NO_FIELDS), Err(AjpFault::Unrequested));
}

#[test]
fn a_ping_is_answered_by_a_pong_and_nothing_else() {
    shred(&CPONG, |pieces| {
        let mut decoder = ResponseDecoder::new(PacketSize::DEFAULT, FIELDS_MAX);
        decoder.begin_ping();
        let seen = decode_pieces(&mut decoder, pieces);
        assert_eq!(seen.events, [ReceivedEvent::Other(AjpEvent::Pong)]);
        assert_eq!(decoder.feed(b"A"), Err(AjpFault::Unrequested));
    });
    for wire in [NO_FIELDS, END, b"AB\0\x02\x09\0"] {
        let mut decoder = ResponseDecoder::new(PacketSize::DEFAULT, FIELDS_MAX);
        decoder.begin_ping();
        assert!(decode_pieces(&mut decoder, &[wire]).fault.is_some());
    }
}

#[test]
fn packets_that_are_none() {
    refuse(&[b"B"], AjpFault::Magic);
    refuse(&[b"AA"], AjpFault::Magic);
    refuse(&[b"\x12\x34\0\x01"], AjpFault::Magic);
    refuse(&[b"HTTP/1.1 400 \r\n"], AjpFault::Magic);
    refuse(&[b"AB\0\0"], AjpFault::PacketEmpty);
    refuse(&[b"AB\x1F\xFD"], AjpFault::PacketTooLarge);
    assert_eq!(decode(b"AB\x1F\xFC").fault, None);
    refuse(&[b"AB\0\x01\x02"], AjpFault::Code);
    refuse(&[b"AB\0\x01\x07"], AjpFault::Code);
    refuse(&[b"AB\0\x01\x08"], AjpFault::Code);
    refuse(&[b"AB\0\x01\x0A"], AjpFault::Code);
    refuse(&[b"AB\0\x01\x04"], AjpFault::Truncated);
    refuse(&[NO_FIELDS, b"AB\0\x01\x05"], AjpFault::Truncated);
    refuse(&[NO_FIELDS, b"AB\0\x03\x05\x01\0"], AjpFault::Trailing);
}

#[test]
fn wrong_lengths_are_reported_in_numbers() {
    for (wire, numbers) in [
        (vec![&b"HTTP/1.1 400 "[..]], Some("\"H\" in place of \"AB\"")),
        (vec![b"AA"], Some("\"AA\" in place of \"AB\"")),
        (vec![b"AB\x1F\xFD"], Some("8193 bytes, of 8192 at most")),
        (vec![NO_FIELDS, b"AB\0\x05\x03\xFF\xFFhi"], Some("65535 bytes in a message of 5")),
        (vec![b"AB\0\0"], None),
    ] {
        let mut decoder = ResponseDecoder::new(PacketSize::DEFAULT, FIELDS_MAX);
        decoder.begin_request();
        assert_eq!(decoder.particulars(), None);
        let input = wire.concat();
        let mut at = 0;
        while let Ok(step) = decoder.feed(&input[at..]) {
            at += step.consumed;
        }
        assert_eq!(decoder.particulars().as_deref(), numbers);
    }
}

#[test]
fn chunks_stay_within_their_packets() {
    refuse(&[NO_FIELDS, b"AB\0\x01\x03"], AjpFault::Truncated);
    refuse(&[NO_FIELDS, b"AB\0\x02\x03\0"], AjpFault::Truncated);
    refuse(&[NO_FIELDS, b"AB\0\x04\x03\0\x02h"], AjpFault::ChunkLength);
    refuse(&[NO_FIELDS, b"AB\0\x05\x03\xFF\xFFhi"], AjpFault::ChunkLength);
    refuse(&[NO_FIELDS, b"AB\0\x07\x03\0\x02hi\0\0"], AjpFault::Trailing);
    refuse(&[NO_FIELDS, b"AB\0\x06\x03\0\x02hi!"], AjpFault::StringEnd);
    refuse(&[NO_FIELDS, b"AB\0\x04\x03\0\0!"], AjpFault::StringEnd);
}

#[test]
fn the_largest_packet() {
    for size in [PacketSize::DEFAULT, PacketSize::MAX] {
        let mut wire = NO_FIELDS.to_vec();
        // Prefix, code, length and NUL.
        let data = vec![b'x'; size.bytes() - 8];
        encode_chunk(&data, size, &mut wire).expect("fits");
        assert_eq!(wire.len(), NO_FIELDS.len() + size.bytes());
        let mut decoder = ResponseDecoder::new(size, FIELDS_MAX);
        decoder.begin_request();
        let seen = decode_pieces(&mut decoder, &[&wire]);
        assert_eq!((seen.events.len(), seen.between, seen.fault), (2, true, None));
        let too_much = encode_chunk(&vec![0; size.bytes() - 7], size, &mut wire);
        assert_eq!(too_much, Err(EncodeFault::BodyTooLarge));
    }
    assert_eq!(
        encode_chunk(&[0; 65536], PacketSize::MAX, &mut vec![]),
        Err(EncodeFault::BodyTooLarge)
    );
}

#[test]
fn heads_that_are_none() {
    let one = |fields: &[u8], fault| refuse(&[&headers(1, fields)], fault);
    one(b"", AjpFault::Truncated);
    one(b"\xA0\x01", AjpFault::Truncated);
    one(b"\xA0\x01\0\x05a\0", AjpFault::Truncated);
    one(b"\xA0\x01\0\x01a\0x", AjpFault::Trailing);
    one(b"\xA0\x01\0\x01ax", AjpFault::StringEnd);
    one(b"\xA0\x0C\0\x01a\0", AjpFault::FieldCode);
    one(b"\xA0\x00\0\x01a\0", AjpFault::FieldCode);
    one(b"\xFF\xFF\0\x01a\0", AjpFault::StringNull);
    one(b"\0\x03X A\0\0\x01a\0", AjpFault::FieldName);
    one(b"\0\x02X:\0\0\x01a\0", AjpFault::FieldName);
    one(b"\0\0\0\0\x01a\0", AjpFault::FieldName);
    one(b"\xA0\x06\0\x04a\r\nb\0", AjpFault::FieldValue);
    one(b"\xA0\x06\0\x03a\nb\0", AjpFault::FieldValue);
    one(b"\xA0\x06\0\x03a\rb\0", AjpFault::FieldValue);
    one(b"\xA0\x06\0\x03a\0b\0", AjpFault::FieldValue);
    refuse(&[&headers(0, b"\0")], AjpFault::Trailing);
    refuse(&[&packet(b"\x04\0\xC8\0\x01\n\0\0\0")], AjpFault::FieldValue);
    assert_eq!(decode(&packet(b"\x04\0\xC8\xFF\xFF\0\0")).fault, None);
    for status in [0_u16, 99, 100, 101, 199, 1000, 0xFFFF] {
        let mut wire = NO_FIELDS.to_vec();
        wire[5..7].copy_from_slice(&status.to_be_bytes());
        refuse(&[&wire], AjpFault::Status);
    }
}

#[test]
fn fields_have_a_bound() {
    let run =
        |count: u16| decode(&headers(count, &b"\xA0\x01\0\x01a\0".repeat(count.into()))).fault;
    assert_eq!(run(FIELDS_MAX), None);
    assert_eq!(run(FIELDS_MAX + 1), Some(AjpFault::TooManyFields));
    // The announced count alone is rejected before any field is read.
    refuse(&[&headers(u16::MAX, b"")], AjpFault::TooManyFields);
}

#[test]
fn lengths_agree() {
    let length = |value: &str| {
        let mut bytes = b"\xA0\x03\0".to_vec();
        bytes.push(value.len() as u8);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
        bytes
    };
    let run = |values: &[&str]| {
        let fields: Vec<u8> = values.iter().flat_map(|value| length(value)).collect();
        let mut decoder = ResponseDecoder::new(PacketSize::DEFAULT, FIELDS_MAX);
        decoder.begin_request();
        let seen = decode_pieces(&mut decoder, &[&headers(values.len() as u16, &fields)]);
        seen.fault.map_or(Ok((decoder.content_length(), seen.fields.len())), Err)
    };
    assert_eq!(run(&[]), Ok((None, 0)));
    assert_eq!(run(&["0"]), Ok((Some(0), 1)));
    assert_eq!(run(&["18446744073709551615"]), Ok((Some(u64::MAX), 1)));
    assert_eq!(run(&["5", "05"]), Ok((Some(5), 1)));
    assert_eq!(run(&["5", "6"]), Err(AjpFault::LengthConflict));
    for bad in ["", "+5", "-1", "5, 5", "5,6", "0x5", "5 5", "18446744073709551616"] {
        assert_eq!(run(&[bad]), Err(AjpFault::LengthMalformed), "{bad}");
    }
    // A field name sent as text is the same field as its code.
    let both = [&length("5")[..], b"\0\x0eCONTENT-LENGTH\0\0\x016\0"].concat();
    refuse(&[&headers(2, &both)], AjpFault::LengthConflict);
}

#[test]
fn connection_fields_are_dropped() {
    let fields = b"\0\x11Transfer-Encoding\0\0\x07chunked\0\0\x0aConnection\0\0\x05close\0\
                   \xA0\x0A\0\x03404\0\0\x03X-A\0\0\x01b\0";
    let seen = decode(&headers(4, fields));
    assert_eq!(seen.fields, [(b"X-A".to_vec(), b"b".to_vec())]);
    assert_eq!(seen.events, [ReceivedEvent::Headers(200, b"OK".to_vec())]);
}

#[test]
fn the_next_response_begins_afresh() {
    let mut decoder = ResponseDecoder::new(PacketSize::DEFAULT, FIELDS_MAX);
    decoder.begin_request();
    decode_pieces(&mut decoder, &[&headers(1, b"\xA0\x03\0\x019\0"), b"AB\0\x02"]);
    assert!(!decoder.is_between_packets() && decoder.capacity() > 0);
    decoder.begin_request();
    let seen = decode_pieces(&mut decoder, &[NO_FIELDS, END]);
    assert_eq!((seen.fields.len(), decoder.content_length(), seen.fault), (0, None, None));
}

proptest! {
    // Each case is cut at every position.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn encoded_response_is_decoded(
        status in 200_u16..=999,
        reason in "[ -~]{0,12}",
        lines in proptest::collection::vec(("X-[A-Za-z-]{1,8}|Location|SET-COOKIE", "([!-~]([ -~]{0,8}[!-~])?)?"), 0..8),
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..6),
        requested in any::<Option<u16>>(),
        reuse in any::<bool>(),
    ) {
        let mut sent = Fields::new();
        for (name, value) in &lines {
            sent.push(name.as_bytes(), value.as_bytes());
        }
        let mut wire = Vec::new();
        let requested = requested.filter(|&len| len > 0);
        let code = Status::new(status).expect("three digits");
        if let Some(len) = requested {
            encode_get_body(len, &mut wire);
        }
        encode_headers(code, reason.as_bytes(), &sent, PacketSize::DEFAULT, &mut wire).expect("legal");
        for chunk in &chunks {
            encode_chunk(chunk, PacketSize::DEFAULT, &mut wire).expect("fits");
        }
        encode_end(reuse, &mut wire);
        let seen = decode(&wire);
        prop_assert_eq!((seen.fault, seen.between), (None, true));
        let lower = |(name, value): (&[u8], &[u8])| (name.to_ascii_lowercase(), value.to_vec());
        let got: Vec<_> = seen.fields.iter().map(|(n, v)| lower((n, v))).collect();
        prop_assert_eq!(got, sent.iter().map(lower).collect::<Vec<_>>());
        let bodies = seen.events.iter().filter_map(|received| match received {
            ReceivedEvent::Body(data) => Some(data.as_slice()),
            _ => None,
        });
        prop_assert_eq!(bodies.collect::<Vec<_>>().concat(), chunks.concat());
        let flushes = seen.events.iter().filter(|received| **received == ReceivedEvent::Other(AjpEvent::Flush)).count();
        prop_assert_eq!(flushes, chunks.iter().filter(|chunk| chunk.is_empty()).count());
        prop_assert_eq!(seen.events.last(), Some(&ReceivedEvent::Other(AjpEvent::End { reuse })));
        prop_assert!(seen.events.contains(&ReceivedEvent::Headers(status, reason.into_bytes())));
    }

    /// Malformed responses have the same result in every cut.
    #[test]
    fn cuts_do_not_matter(edits in proptest::collection::vec((0_usize..60, any::<u8>()), 1..4)) {
        let mut wire = headers(1, b"\xA0\x01\0\x09text/html\0");
        wire.extend_from_slice(b"AB\0\x09\x03\0\x05hello\0AB\0\x04\x03\0\0\0");
        wire.extend_from_slice(END);
        for (at, byte) in edits {
            let at = at % wire.len();
            wire[at] = byte;
        }
        decode(&wire);
    }
}
