//! Tests of `decode`: every vector in every cut.

use std::vec;
use std::vec::Vec;

use lighty_testkit::matrix::assert_next_states;
use lighty_testkit::shredder::{byte_by_byte, random_fragments, shred};
use proptest::prelude::*;

use super::*;
use crate::fastcgi::app::{
    push_end_of_stdout, push_end_request, push_stderr, push_stdout, push_unknown_type, push_values,
};
use crate::fastcgi::record::{CONTENT_LEN_MAX, HEADER_LEN};
use crate::fastcgi::{MANAGEMENT_ID, VARIABLES};

const COMPLETE: EndRequest =
    EndRequest { app_status: 0, protocol_status: ProtocolStatus::RequestComplete };

/// Events, with adjacent data joined.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DecodedEvent {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Other(FastcgiEvent),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ResponseDecoded {
    events: Vec<DecodedEvent>,
    used: usize,
    fault: Option<FastcgiFault>,
}

impl ResponseDecoded {
    fn hear(&mut self, input: &[u8], event: FastcgiEvent) {
        match (event, self.events.last_mut()) {
            (FastcgiEvent::Stdout(range), Some(DecodedEvent::Stdout(data)))
            | (FastcgiEvent::Stderr(range), Some(DecodedEvent::Stderr(data))) => {
                data.extend_from_slice(&input[range]);
            }
            (FastcgiEvent::Stdout(range), _) => {
                self.events.push(DecodedEvent::Stdout(input[range].to_vec()))
            }
            (FastcgiEvent::Stderr(range), _) => {
                self.events.push(DecodedEvent::Stderr(input[range].to_vec()))
            }
            (other, _) => self.events.push(DecodedEvent::Other(other)),
        }
    }
}

fn decode_pieces(decoder: &mut FastcgiDecoder, pieces: &[&[u8]]) -> ResponseDecoded {
    let mut outcome = ResponseDecoded::default();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match decoder.feed(rest) {
                Ok(FastcgiStep { consumed, event }) => {
                    outcome.used += consumed;
                    assert!(event.is_some() || consumed == rest.len() || decoder.is_done());
                    let Some(event) = event else { break };
                    outcome.hear(rest, event);
                    rest = &rest[consumed..];
                }
                Err(fault) => {
                    assert_eq!(decoder.feed(b""), Err(fault), "a fault stays");
                    return ResponseDecoded { used: 0, fault: Some(fault), ..outcome };
                }
            }
        }
    }
    outcome
}

fn decode(input: &[u8]) -> ResponseDecoded {
    let mut reused = FastcgiDecoder::new();
    let whole = decode_pieces(&mut reused, &[input]);
    shred(input, |pieces| {
        reused.clear();
        assert_eq!(decode_pieces(&mut reused, pieces), whole, "{pieces:?}");
    });
    whole
}

fn record(kind: u8, request_id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let content_len = content.len() as u16;
    let header = RecordHeader { kind, request_id, content_len, padding_len: padding };
    let mut out = header.to_bytes().to_vec();
    out.extend_from_slice(content);
    out.resize(out.len() + usize::from(padding), 0xAA);
    out
}

#[track_caller]
fn refuse(fault: FastcgiFault, input: &[u8]) {
    assert_eq!(decode(input).fault, Some(fault));
}

#[test]
fn a_response_is_read_up_to_its_end() {
    let mut input = Vec::new();
    push_stdout(1, b"Status: 200\n\nhello", &mut input);
    push_stderr(1, b"a warning\n", &mut input);
    input.extend(record(6, 1, b", world", 5));
    push_end_of_stdout(1, &mut input);
    input.extend(record(7, 1, b"", 0));
    push_end_request(1, COMPLETE, &mut input);
    let len = input.len();
    input.extend_from_slice(b"what nobody asked for");
    let outcome = decode(&input);
    assert_eq!((outcome.used, outcome.fault), (len, None));
    let expected = [
        DecodedEvent::Stdout(b"Status: 200\n\nhello".to_vec()),
        DecodedEvent::Stderr(b"a warning\n".to_vec()),
        DecodedEvent::Stdout(b", world".to_vec()),
        DecodedEvent::Other(FastcgiEvent::EndOfStdout),
        DecodedEvent::Other(FastcgiEvent::End(COMPLETE)),
    ];
    assert_eq!(outcome.events, expected);
}

#[test]
fn an_end_without_an_end_of_output_is_legal() {
    let end = EndRequest { app_status: 0xFF00_0001, protocol_status: ProtocolStatus::Overloaded };
    let mut input = Vec::new();
    push_end_request(1, end, &mut input);
    assert_eq!(decode(&input).events, [DecodedEvent::Other(FastcgiEvent::End(end))]);
}

#[test]
fn the_end_waits_for_its_padding() {
    let input = record(3, 1, &[0; 8], 7);
    let mut decoder = FastcgiDecoder::new();
    let step = decoder.feed(&input[..input.len() - 1]).expect("legal");
    assert_eq!(step, FastcgiStep { consumed: input.len() - 1, event: None });
    assert!(!decoder.is_done() && !decoder.is_between_records());
    let step = decoder.feed(&input[input.len() - 1..]).expect("legal");
    assert_eq!(step, FastcgiStep { consumed: 1, event: Some(FastcgiEvent::End(COMPLETE)) });
    assert!(decoder.is_done() && decoder.is_between_records());
    assert_eq!(decoder.feed(b"x"), Ok(FastcgiStep { consumed: 0, event: None }));
    decoder.clear();
    assert_eq!(decoder.feed(b"x"), Err(FastcgiFault::Version));
}

#[test]
fn every_length_of_content_and_padding() {
    for len in [1, 127, 128, 65_535] {
        for padding in [0, 1, 255] {
            let content: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut input = record(6, 1, &content, padding);
            push_end_request(1, COMPLETE, &mut input);
            let expected =
                [DecodedEvent::Stdout(content), DecodedEvent::Other(FastcgiEvent::End(COMPLETE))];
            let mut decoder = FastcgiDecoder::new();
            let mut check = |pieces: &[&[u8]]| {
                decoder.clear();
                let outcome = decode_pieces(&mut decoder, pieces);
                assert_eq!((&outcome.events[..], outcome.fault), (&expected[..], None));
                assert_eq!(outcome.used, input.len());
            };
            check(&[&input]);
            byte_by_byte(&input, &mut check);
            random_fragments(&input, 7, 3, &mut check);
        }
    }
}

#[test]
fn bodies_around_multiples_of_64_kib() {
    for len in [65_534, 65_535, 65_536, 65_537, 2 * 65_535, 2 * 65_536, 16 * 65_536 + 1] {
        let body = vec![b'b'; len];
        let mut input = Vec::new();
        push_stdout(1, &body, &mut input);
        let records = len.div_ceil(CONTENT_LEN_MAX);
        assert_eq!(input.len(), len + records * HEADER_LEN);
        push_end_request(1, COMPLETE, &mut input);
        let outcome = decode_pieces(&mut FastcgiDecoder::new(), &[&input]);
        assert!(outcome.events[0] == DecodedEvent::Stdout(body), "{len}");
        assert_eq!(outcome.events.len(), 2);
    }
}

#[test]
fn data_are_handed_out_as_they_come() {
    let input = record(6, 1, b"hello", 0);
    let mut decoder = FastcgiDecoder::new();
    let step = decoder.feed(&input[..10]).expect("legal");
    assert_eq!(step, FastcgiStep { consumed: 10, event: Some(FastcgiEvent::Stdout(8..10)) });
    let step = decoder.feed(&input[10..]).expect("legal");
    assert_eq!(step, FastcgiStep { consumed: 3, event: Some(FastcgiEvent::Stdout(0..3)) });
    assert!(decoder.is_between_records());
}

#[test]
fn values_are_read() {
    let values = Values { max_conns: Some(50), max_reqs: None, multiplexes: Some(false) };
    let mut input = Vec::new();
    push_values(VARIABLES, &values, &mut input);
    assert_eq!(decode(&input).events, [DecodedEvent::Other(FastcgiEvent::Values(values))]);
    let odd = record(10, 0, b"\x0E\x02FCGI_MAX_CONNSno\x01\x01ab", 3);
    assert_eq!(decode(&odd).events, [DecodedEvent::Other(FastcgiEvent::Values(Values::default()))]);
    refuse(FastcgiFault::PairTruncated, &record(10, 0, b"\x0E\x02FCGI_MAX", 0));
    refuse(FastcgiFault::PairTruncated, &record(10, 0, b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFx", 0));
}

#[test]
fn management_records_have_a_limit() {
    let filled = |len: usize| {
        let mut content = vec![0x80, 0, 0, 0, 0x80, 0, 0, 0];
        content.resize(len, b'v');
        let value_len = (len - 8) as u16;
        content[6..8].copy_from_slice(&value_len.to_be_bytes());
        record(10, MANAGEMENT_ID, &content, 0)
    };
    let limit = usize::from(VALUES_BYTES_MAX);
    assert_eq!(decode(&filled(limit)).fault, None);
    refuse(FastcgiFault::ManagementTooLarge, &filled(limit + 1));
}

#[test]
fn an_unknown_type_is_reported() {
    let mut input = Vec::new();
    push_unknown_type(9, &mut input);
    assert_eq!(decode(&input).events, [DecodedEvent::Other(FastcgiEvent::UnknownType(9))]);
}

#[test]
fn malformed_and_misdirected_records_are_refused() {
    for version in [0, 2, 255, b'H'] {
        let mut input = record(6, 1, b"x", 0);
        input[0] = version;
        refuse(FastcgiFault::Version, &input);
    }
    for request_id in [0, 2, 256, 65_535] {
        for kind in [3, 6, 7] {
            refuse(FastcgiFault::RequestId, &record(kind, request_id, &[0; 8], 0));
        }
    }
    for kind in [10, 11] {
        refuse(FastcgiFault::RequestId, &record(kind, 1, &[0; 8], 0));
    }
    for kind in [0, 1, 2, 4, 5, 8, 9, 12, 255] {
        refuse(FastcgiFault::RecordType, &record(kind, 1, b"", 0));
    }
    for len in [0, 7, 9, 65_535] {
        refuse(FastcgiFault::RecordLength, &record(3, 1, &vec![0; len], 0)[..HEADER_LEN]);
        refuse(FastcgiFault::RecordLength, &record(11, 0, &vec![0; len], 0)[..HEADER_LEN]);
    }
    refuse(FastcgiFault::ProtocolStatus, &record(3, 1, &[0, 0, 0, 0, 4, 0, 0, 0], 0));
}

#[test]
fn output_after_its_end_is_refused() {
    let ended = record(6, 1, b"", 2);
    refuse(FastcgiFault::StreamEnded, &[ended.clone(), record(6, 1, b"x", 0)].concat());
    let twice = decode(&[ended.clone(), ended].concat());
    assert_eq!((twice.events.len(), twice.fault), (1, None));
}

#[test]
fn every_truncation_is_noticed() {
    let mut input = Vec::new();
    push_stdout(1, b"abc", &mut input);
    push_end_request(1, COMPLETE, &mut input);
    let mut decoder = FastcgiDecoder::new();
    for len in 0..input.len() {
        decoder.clear();
        decode_pieces(&mut decoder, &[&input[..len]]);
        assert!(!decoder.is_done(), "{len}");
        assert_eq!(decoder.is_between_records(), len == 0 || len == 11, "{len}");
    }
}

proptest! {
    #[test]
    fn written_response_is_read(
        pieces in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 1..300), any::<u8>()), 0..12),
        app_status: u32,
        step in 1_usize..40,
    ) {
        let end = EndRequest { app_status, protocol_status: ProtocolStatus::RequestComplete };
        let (mut input, mut expected) = (Vec::new(), ResponseDecoded::default());
        for (is_output, data, padding) in &pieces {
            input.extend(record(if *is_output { 6 } else { 7 }, 1, data, *padding));
            let event = if *is_output { FastcgiEvent::Stdout } else { FastcgiEvent::Stderr };
            expected.hear(data, event(0..data.len()));
        }
        push_end_request(1, end, &mut input);
        expected.events.push(DecodedEvent::Other(FastcgiEvent::End(end)));
        expected.used = input.len();
        let cut: Vec<&[u8]> = input.chunks(step).collect();
        prop_assert_eq!(&decode_pieces(&mut FastcgiDecoder::new(), &cut), &expected);
        prop_assert_eq!(decode_pieces(&mut FastcgiDecoder::new(), &[&input]), expected);
    }

    #[test]
    fn no_bytes_are_read_two_ways(input in proptest::collection::vec(any_byte(), 0..200), step in 1_usize..9) {
        let whole = decode_pieces(&mut FastcgiDecoder::new(), &[&input]);
        let cut: Vec<&[u8]> = input.chunks(step).collect();
        prop_assert_eq!(decode_pieces(&mut FastcgiDecoder::new(), &cut), whole);
    }
}

/// Bytes that are likely to form records.
fn any_byte() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0_u8), 4 => Just(1_u8), 1 => 2_u8..12, 1 => any::<u8>()]
}

const MATRIX: &str = "
                       Stdout  EndOfStdout  EndRequest  Fault(RecordType)
0 Output               0       1            2           3
1 OutputEnded          4       1            2           3
2 Done                 2       2            2           2
3 Failed(RecordType)   3       3            3           3
4 Failed(StreamEnded)  4       4            4           4
";

#[test]
fn every_event_has_a_defined_effect_in_every_phase() {
    use DecoderEvent as E;
    let events = [E::Stdout, E::EndOfStdout, E::EndRequest, E::Fault(FastcgiFault::RecordType)];
    let next = |phase: DecoderPhase, event| Some(phase.after(event));
    assert_next_states(DecoderPhase::Output, &events, next, MATRIX);
}
