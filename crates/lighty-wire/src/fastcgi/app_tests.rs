//! Tests of `app`: messages of a web server, in every cut.

use std::vec;
use std::vec::Vec;

use lighty_testkit::shredder::shred;

use super::*;
use crate::fastcgi::encode::{begin_request, get_values};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Params(Vec<(Vec<u8>, Vec<u8>)>),
    Stdin(Vec<u8>),
    Other(FastcgiRequestEvent),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RequestDecoded {
    heard: Vec<Heard>,
    fault: Option<FastcgiFault>,
}

impl RequestDecoded {
    fn hear(&mut self, decoder: &RequestDecoder, input: &[u8], event: FastcgiRequestEvent) {
        match (event, self.heard.last_mut()) {
            (FastcgiRequestEvent::Stdin(range), Some(Heard::Stdin(all))) => {
                all.extend_from_slice(&input[range])
            }
            (FastcgiRequestEvent::Stdin(range), _) => {
                self.heard.push(Heard::Stdin(input[range].to_vec()))
            }
            (FastcgiRequestEvent::Params, _) => {
                let pairs = decoder.params().map(|(name, value)| (name.to_vec(), value.to_vec()));
                self.heard.push(Heard::Params(pairs.collect()));
            }
            (other, _) => self.heard.push(Heard::Other(other)),
        }
    }
}

fn decode_pieces(decoder: &mut RequestDecoder, pieces: &[&[u8]]) -> RequestDecoded {
    let mut outcome = RequestDecoded::default();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let step = match decoder.feed(rest) {
                Ok(step) => step,
                Err(fault) => return RequestDecoded { fault: Some(fault), ..outcome },
            };
            let Some(event) = step.event else { break };
            outcome.hear(decoder, rest, event);
            rest = &rest[step.consumed..];
        }
    }
    outcome
}

fn decode(input: &[u8]) -> RequestDecoded {
    let whole = decode_pieces(&mut RequestDecoder::new(), &[input]);
    shred(input, |pieces| {
        assert_eq!(decode_pieces(&mut RequestDecoder::new(), pieces), whole, "{pieces:?}");
    });
    whole
}

fn record(kind: RecordType, request_id: u16, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_record(kind, request_id, content, &mut out);
    out
}

fn begin(request_id: u16) -> Vec<u8> {
    record(RecordType::BeginRequest, request_id, &[0, 1, 1, 0, 0, 0, 0, 0])
}

fn begun() -> Heard {
    Heard::Other(FastcgiRequestEvent::Begin(Begin {
        role: ApplicationRole::Responder,
        keep_conn: true,
    }))
}

#[test]
fn a_request_is_read() {
    let input = [
        begin(7),
        record(RecordType::Params, 7, b"\x01\x02Ab"),
        record(RecordType::Params, 7, b"c"),
        record(RecordType::Params, 7, b""),
        record(RecordType::Stdin, 7, b"bo"),
        record(RecordType::Stdin, 7, b"dy"),
        record(RecordType::Stdin, 7, b""),
        record(RecordType::AbortRequest, 7, b""),
    ];
    let expected = [
        begun(),
        Heard::Params(vec![(b"A".to_vec(), b"bc".to_vec())]),
        Heard::Stdin(b"body".to_vec()),
        Heard::Other(FastcgiRequestEvent::EndOfStdin),
        Heard::Other(FastcgiRequestEvent::Abort),
    ];
    assert_eq!(decode(&input.concat()), RequestDecoded { heard: expected.to_vec(), fault: None });
}

#[test]
fn one_request_follows_another() {
    let mut decoder = RequestDecoder::new();
    for request_id in [1, 1, 3] {
        let input = [begin(request_id), record(RecordType::Params, request_id, b"")].concat();
        let outcome = decode_pieces(&mut decoder, &[&input]);
        assert_eq!(outcome.heard, [begun(), Heard::Params(Vec::new())]);
        assert_eq!(decoder.request_id(), request_id);
        decoder.clear();
        // The rest of the request, which was still in transit.
        let rest = record(RecordType::Stdin, request_id, b"late");
        assert_eq!(decode_pieces(&mut decoder, &[&rest]), RequestDecoded::default());
    }
}

#[test]
fn a_body_that_is_given_up_half_way_is_skipped() {
    let input = [
        begin(1),
        record(RecordType::Params, 1, b""),
        record(RecordType::Stdin, 1, b"body"),
        begin(1),
    ]
    .concat();
    let mut decoder = RequestDecoder::new();
    let half = input.len() - 16 - 2;
    let outcome = decode_pieces(&mut decoder, &[&input[..half]]);
    assert_eq!(outcome.heard.last(), Some(&Heard::Stdin(b"bo".to_vec())));
    decoder.clear();
    assert_eq!(decode_pieces(&mut decoder, &[&input[half..]]).heard, [begun()]);
}

#[test]
fn multiplexing_and_unknown_roles_are_refused() {
    let second = decode(&[begin(1), begin(2)].concat());
    let refusal = FastcgiRequestEvent::Refuse(2, ProtocolStatus::CantMultiplex);
    assert_eq!(second.heard, [begun(), Heard::Other(refusal)]);
    let filter = record(RecordType::BeginRequest, 1, &[0, 3, 0, 0, 0, 0, 0, 0]);
    let refusal = FastcgiRequestEvent::Refuse(1, ProtocolStatus::UnknownRole);
    assert_eq!(decode(&filter).heard, [Heard::Other(refusal)]);
}

#[test]
fn management_is_answered_at_any_time() {
    let mut input = Vec::new();
    get_values(&mut input);
    begin_request(Begin::default(), &mut input);
    input.extend(record(RecordType::Stdout, MANAGEMENT_ID, b"junk"));
    let expected = [
        Heard::Other(FastcgiRequestEvent::GetValues),
        Heard::Other(FastcgiRequestEvent::Begin(Begin::default())),
        Heard::Other(FastcgiRequestEvent::UnknownType(RecordType::Stdout as u8)),
    ];
    assert_eq!(decode(&input).heard, expected);
    let mut out = Vec::new();
    let values = Values { max_conns: Some(1), max_reqs: Some(1), multiplexes: Some(true) };
    push_values([&b"FCGI_MAX_REQS"[..], b"OTHER"], &values, &mut out);
    assert_eq!(out, b"\x01\x0A\0\0\0\x10\0\0\x0D\x01FCGI_MAX_REQS1");
}

#[test]
fn disorder_is_refused() {
    let params = |content: &[u8]| record(RecordType::Params, 1, content);
    let stdin = |content: &[u8]| record(RecordType::Stdin, 1, content);
    for (fault, rest) in [
        (FastcgiFault::Order, begin(1)),
        (FastcgiFault::Order, stdin(b"early")),
        (FastcgiFault::Order, stdin(b"")),
        (FastcgiFault::StreamEnded, [params(b""), params(b"\0\0")].concat()),
        (FastcgiFault::StreamEnded, [params(b""), stdin(b""), stdin(b"late")].concat()),
        (FastcgiFault::PairTruncated, [params(b"\x01"), params(b"")].concat()),
        (FastcgiFault::RecordLength, record(RecordType::AbortRequest, 1, b"x")),
        (FastcgiFault::RecordLength, record(RecordType::BeginRequest, 2, b"short")),
        (FastcgiFault::RecordType, record(RecordType::Data, 1, b"x")),
        (FastcgiFault::RecordType, record(RecordType::Stdout, 1, b"x")),
    ] {
        let outcome = decode(&[begin(1), rest].concat());
        assert_eq!(outcome.fault, Some(fault), "{outcome:?}");
    }
}

#[test]
fn parameters_and_questions_have_limits() {
    // A pair whose length equals the whole limit, minus the pair's length bytes.
    let fill = |total: usize| {
        let mut content = vec![0x80, 0, 0, 0];
        let value_len = u32::try_from(total - 8).expect("a small number") | 0x8000_0000;
        content.extend_from_slice(&value_len.to_be_bytes());
        content.resize(total, b'v');
        let mut input = begin(1);
        for part in content.chunks(CONTENT_LEN_MAX) {
            push_record(RecordType::Params, 1, part, &mut input);
        }
        push_record(RecordType::Params, 1, b"", &mut input);
        decode_pieces(&mut RequestDecoder::new(), &[&input])
    };
    assert_eq!(fill(PARAMS_BYTES_MAX).fault, None);
    assert_eq!(fill(PARAMS_BYTES_MAX + 1).fault, Some(FastcgiFault::ParamsTooLarge));
    let ask = |len: usize| {
        let input = record(RecordType::GetValues, 0, &vec![0; len]);
        decode_pieces(&mut RequestDecoder::new(), &[&input]).fault
    };
    assert_eq!(ask(usize::from(MANAGEMENT_BYTES_MAX)), None);
    assert_eq!(ask(usize::from(MANAGEMENT_BYTES_MAX) + 2), Some(FastcgiFault::ManagementTooLarge));
}
