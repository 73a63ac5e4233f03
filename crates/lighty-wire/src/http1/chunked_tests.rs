//! Tests of `chunked`: every vector in every cut.

use std::format;
use std::string::String;
use std::vec;

use lighty_testkit::shredder::shred;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct ChunkedOutcome {
    data: Vec<u8>,
    /// Bytes up to the end of the body; `None` if it did not end.
    end: Option<usize>,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
    fault: Option<ChunkFault>,
}

fn decode_pieces(decoder: &mut ChunkedDecoder, pieces: &[&[u8]]) -> ChunkedOutcome {
    let (mut data, mut used, mut fault) = (Vec::new(), 0, None);
    'pieces: for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !decoder.is_done() {
            match decoder.feed(rest) {
                Ok(event) => {
                    assert!(event.consumed > 0, "each call makes headway");
                    data.extend_from_slice(&rest[event.data.clone()]);
                    used += event.consumed;
                    rest = &rest[event.consumed..];
                }
                Err(found) => {
                    fault = Some(found);
                    break 'pieces;
                }
            }
        }
    }
    let trailers = decoder.trailers().iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
    ChunkedOutcome { data, end: decoder.is_done().then_some(used), trailers, fault }
}

fn decode(input: &[u8]) -> ChunkedOutcome {
    let mut reused = ChunkedDecoder::new();
    let whole = decode_pieces(&mut reused, &[input]);
    shred(input, |pieces| {
        reused.clear();
        assert_eq!(decode_pieces(&mut reused, pieces), whole, "{pieces:?}");
    });
    whole
}

#[track_caller]
fn accept(input: &str, data: &str, rest: &str) {
    let outcome = decode(input.as_bytes());
    assert_eq!(outcome.fault, None, "{input:?}");
    assert_eq!(outcome.data, data.as_bytes(), "{input:?}");
    assert_eq!(outcome.end, Some(input.len() - rest.len()), "{input:?}");
}

#[track_caller]
fn refuse(fault: ChunkFault, inputs: &[&str]) {
    for input in inputs {
        assert_eq!(decode(input.as_bytes()).fault, Some(fault), "{input:?}");
    }
}

#[test]
fn bodies() {
    accept("0\r\n\r\n", "", "");
    accept("5\r\nhello\r\n0\r\n\r\nGET", "hello", "GET");
    accept("5\r\nhello\r\nA\r\n, worlds!!\r\n000\r\n\r\n", "hello, worlds!!", "");
    accept("5;a=b;c=\"d\\\" e\"\r\nhello\r\n0;last\r\n\r\n", "hello", "");
    accept("5 \t; a\r\nhello\r\n0\r\n\r\n", "hello", "");
    accept("0000000000000005\r\nhello\r\n0\r\n\r\n", "hello", "");
    accept("3\r\n\r\n0\r\n0\r\n\r\n", "\r\n0", "");
}

#[test]
fn an_unfinished_body_is_not_done() {
    let body = b"5\r\nhello\r\n0\r\nA: b\r\n\r\n";
    for len in 0..body.len() {
        let outcome = decode(&body[..len]);
        assert_eq!((outcome.end, outcome.fault), (None, None), "{len}");
    }
}

#[test]
fn sizes_that_are_none() {
    refuse(
        ChunkFault::Size,
        &[
            "\r\n",
            ";a\r\n",
            " 5\r\n",
            "g\r\n",
            "0x5\r\n",
            "+5\r\n",
            "-5\r\n",
            "5 \r\n",
            "5 a\r\n",
            "5\0\r\n",
            "5\thello",
            "5.\r\n",
            "5\r\nhello\r\n\r\n",
            "٥\r\n",
        ],
    );
    let beyond = ["10000000000000000\r\n", "000010000000000000000\r\n", "ffffffffffffffff0\r\n"];
    refuse(ChunkFault::SizeTooLarge, &beyond);
    assert_eq!(decode(b"ffffffffffffffff\r\nabc").fault, None);
    assert_eq!(decode(b"0000ffffffffffffffff\r\nabc").fault, None);
}

#[test]
fn leading_zeros_carry_no_value() {
    for zeros in [1, 12, 15, 16, 17, 300] {
        let zeros = "0".repeat(zeros);
        accept(&format!("{zeros}5\r\nhello\r\n{zeros}\r\n\r\nGET"), "hello", "GET");
        accept(&format!("{zeros}5;a=b\r\nhello\r\n{zeros};c\r\n\r\n"), "hello", "");
        refuse(ChunkFault::Size, &[&format!("{zeros}x5\r\n"), &format!("{zeros} 5\r\n")]);
    }
}

#[test]
fn line_ends_that_are_none() {
    refuse(
        ChunkFault::LineEnd,
        &["5\nhello", "5\r\rhello", "5\rhello", "5;a\nhello", "0\n\r\n", "0\r\n\n", "0\r\nA: b\n"],
    );
    refuse(
        ChunkFault::DataEnd,
        &["5\r\nhello!\r\n", "5\r\nhello\n", "5\r\nhello\r\r\n", "5\r\nhello0\r\n\r\n"],
    );
}

#[test]
fn extensions_follow_the_grammar() {
    for extension in [
        ";a",
        " ; a",
        ";a=b",
        ";a = b",
        "; a\t=\tb ; c",
        ";a=\"\"",
        ";a=\"b;c=d\"",
        ";a=\"b\\\"c\" ;d",
        ";a=\"b\\\\\"",
        ";a=\"\u{e4}\tb\"",
        ";!#$%&'*+-.^_`|~=1",
    ] {
        accept(&format!("5{extension}\r\nhello\r\n0{extension}\r\n\r\n"), "hello", "");
    }
    for extension in [
        ";",
        ";;a",
        ";a;",
        ";=b",
        ";a=",
        ";a =",
        ";a b",
        ";a=b c",
        ";a=b=c",
        ";a=\"b",
        ";a=\"b\"c",
        ";a=\"b\\\"",
        ";a=b\"c\"",
        ";a ",
        ";a=b ",
        ";a=\"b\" ",
        ";@",
        ";a\u{e4}",
        ";a=\u{e4}",
        ";a,b",
        ";a\x01",
        ";\0",
        ";\x7f",
        ";a=\"\x01\"",
        ";a=\"\\\x01\"",
    ] {
        refuse(ChunkFault::Extension, &[&format!("5{extension}\r\nhello\r\n0\r\n\r\n")]);
    }
}

#[test]
fn trailers_are_kept_but_for_the_dangerous() {
    let body =
        "0\r\nX-Sum: 1\r\nContent-Length: 5\r\nhost: x\r\nX-B:\t\r\nAUTHORIZATION: y\r\n\r\n";
    let outcome = decode(body.as_bytes());
    assert_eq!(outcome.end, Some(body.len()));
    assert_eq!(
        outcome.trailers,
        [(b"X-Sum".to_vec(), b"1".to_vec()), (b"X-B".to_vec(), Vec::new())]
    );
    refuse(
        ChunkFault::Trailer,
        &[
            "0\r\nno colon\r\n\r\n",
            "0\r\n: a\r\n",
            "0\r\nA : b\r\n",
            "0\r\n A: b\r\n",
            "0\r\nA: b\r\n folded\r\n",
            "0\r\nA: \x01\r\n",
            "0\r\nA: b\rc\r\n",
            "0\r\n\rA: b\r\n",
        ],
    );
}

#[test]
fn nothing_is_allocated_without_trailers() {
    shred(b"3\r\nabc\r\n0\r\n\r\n", |pieces| {
        let mut decoder = ChunkedDecoder::new();
        assert_eq!(decode_pieces(&mut decoder, pieces).end, Some(13));
        assert_eq!((decoder.line.capacity(), decoder.trailers.capacity()), (0, 0));
    });
}

#[test]
fn limits_at_n_and_one_more() {
    let extension = |n: usize| format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(n - 1));
    let max = EXTENSION_BYTES_MAX as usize;
    assert_eq!(decode(extension(max).as_bytes()).fault, None);
    assert_eq!(decode(extension(max + 1).as_bytes()).fault, Some(ChunkFault::ExtensionTooLong));

    let digits = |n: usize| format!("{:0>n$}\r\nhello\r\n0\r\n\r\n", 5);
    let max = usize::from(SIZE_DIGITS_MAX);
    for mut decoder in [ChunkedDecoder::new(), ChunkedDecoder::of_response()] {
        for (n, fault) in [(max, None), (max + 1, Some(ChunkFault::SizeTooLarge))] {
            decoder.clear();
            let outcome = decode_pieces(&mut decoder, &[digits(n).as_bytes()]);
            assert_eq!(outcome.fault, fault, "{n}");
        }
    }

    let field = |n: usize| format!("0\r\nA: {}\r\n\r\n", "x".repeat(n - 5));
    let run = |input: &str| decode_pieces(&mut ChunkedDecoder::new(), &[input.as_bytes()]);
    assert_eq!(run(&field(TRAILER_BYTES_MAX)).fault, None);
    assert_eq!(run(&field(TRAILER_BYTES_MAX + 1)).fault, Some(ChunkFault::TrailersTooLarge));

    let fields = |n: usize| format!("0\r\n{}\r\n", "A: b\r\n".repeat(n));
    assert_eq!(decode(fields(TRAILERS_MAX).as_bytes()).fault, None);
    assert_eq!(
        decode(fields(TRAILERS_MAX + 1).as_bytes()).fault,
        Some(ChunkFault::TrailersTooLarge)
    );
}

#[test]
fn framing_may_not_outweigh_data() {
    // Some clients send any number of one-byte chunks.
    let run = |input: &str| decode_pieces(&mut ChunkedDecoder::new(), &[input.as_bytes()]).fault;
    assert_eq!(run(&format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(100_000))), None);
    // Each of these chunks exceeds its allowance by two: 20 bytes of framing for one byte of data.
    let fat = |n: u64| format!("{}0\r\n\r\n", "0000000000000001\r\nx\r\n".repeat(n as usize));
    let count = OVERHEAD_BYTES_MAX / 2;
    assert_eq!(run(&fat(count)), None);
    assert_eq!(run(&fat(count + 1)), Some(ChunkFault::Overhead));
    let mut of_response = ChunkedDecoder::of_response();
    let body = fat(count + 1);
    assert_eq!(decode_pieces(&mut of_response, &[body.as_bytes()]).end, Some(body.len()));
    of_response.clear();
    assert_eq!(decode_pieces(&mut of_response, &[body.as_bytes()]).fault, None, "and so reused");
    // A long upload in signed chunks of 64 KiB passes.
    let mut decoder = ChunkedDecoder::new();
    let line = format!("10000;chunk-signature={}\r\n", "a".repeat(64));
    let data = vec![b'x'; 0x1_0000];
    for _ in 0..1000 {
        decode_pieces(&mut decoder, &[line.as_bytes(), &data, b"\r\n"]);
    }
    assert_eq!(decode_pieces(&mut decoder, &[b"0\r\n\r\n"]).fault, None);
    assert!(decoder.is_done());
}

#[test]
fn a_fault_stays() {
    let mut decoder = ChunkedDecoder::new();
    assert_eq!(decoder.feed(b"x"), Err(ChunkFault::Size));
    assert_eq!(decoder.feed(b"0\r\n\r\n"), Err(ChunkFault::Size));
    decoder.clear();
    assert!(decoder.feed(b"0\r\n\r\n").is_ok_and(|event| event.done));
}

#[test]
fn heads_of_chunks() {
    for (len, text) in [(1, "1\r\n"), (255, "ff\r\n"), (u64::MAX, "ffffffffffffffff\r\n")] {
        assert_eq!(ChunkHead::new(len).as_bytes(), text.as_bytes());
    }
    let mut trailers = Fields::new();
    trailers.push(b"A", b"b");
    let mut out = Vec::new();
    push_last_chunk(&trailers, &mut out).expect("legal");
    assert_eq!(out, b"0\r\nA: b\r\n\r\n");
    trailers.push(b"C", b"d\n");
    assert_eq!(push_last_chunk(&trailers, &mut out), Err(EncodeFault::Value));
    assert_eq!(out, b"0\r\nA: b\r\n\r\n");
}

proptest! {
    #[test]
    fn encoded_chunks_are_decoded(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
    ) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            wire.extend_from_slice(ChunkHead::new(chunk.len() as u64).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(CHUNK_END);
        }
        wire.extend_from_slice(LAST_CHUNK);
        let outcome = decode(&wire);
        prop_assert_eq!(outcome.data, chunks.concat());
        prop_assert_eq!(outcome.end, Some(wire.len()));
    }

    #[test]
    fn cuts_do_not_matter(
        input in "([0-9a-f]{0,2}(;[a-z]{0,3})?\r?\n[a-z]{0,6}(\r\n)?){0,4}\
                  (0\r\n\r\n)?",
    ) {
        let input: String = input;
        decode(input.as_bytes());
    }
}

#[test]
fn blanks_behind_a_size_are_read_from_backends_alone() {
    let body = b"2  \r\nhi\r\n0 \t\r\n\r\n";
    let decoded = decode_pieces(&mut ChunkedDecoder::of_response(), &[body]);
    assert_eq!((decoded.end, decoded.fault), (Some(body.len()), None));
    let fault = |decoder: &mut ChunkedDecoder, body: &[u8]| decode_pieces(decoder, &[body]).fault;
    assert_eq!(fault(&mut ChunkedDecoder::new(), body), Some(ChunkFault::Size));
    for body in [&b" 2\r\nhi\r\n"[..], b"2 0\r\nhi\r\n"] {
        assert_eq!(fault(&mut ChunkedDecoder::of_response(), body), Some(ChunkFault::Size));
    }
}

#[test]
fn extensions_of_backends_are_skipped() {
    let extensions = [
        ";", " ;", "; ", "\t;\t", ";;", ";a;", ";a ", ";a=", ";a = b ", ";a=\"b", ";=b", ";a b",
        ";@", ";\u{e4}",
    ];
    for extension in extensions {
        let body = format!("5{extension}\r\nhello\r\n0{extension}\r\n\r\nHTTP");
        let mut decoder = ChunkedDecoder::of_response();
        let whole = decode_pieces(&mut decoder, &[body.as_bytes()]);
        assert_eq!((&*whole.data, whole.fault), (&b"hello"[..], None), "{extension:?}");
        assert_eq!(whole.end, Some(body.len() - 4), "{extension:?}");
        shred(body.as_bytes(), |pieces| {
            decoder.clear();
            assert_eq!(decode_pieces(&mut decoder, pieces), whole, "{extension:?} {pieces:?}");
        });
    }
    for (extension, fault) in [
        (";\0", ChunkFault::Extension),
        (";a\x01", ChunkFault::Extension),
        (";\n", ChunkFault::LineEnd),
        (";\r;", ChunkFault::LineEnd),
        (";\r\r", ChunkFault::LineEnd),
        (" a;", ChunkFault::Size),
    ] {
        let body = format!("5{extension}\r\nhello\r\n0\r\n\r\n");
        let outcome = decode_pieces(&mut ChunkedDecoder::of_response(), &[body.as_bytes()]);
        assert_eq!(outcome.fault, Some(fault), "{extension:?}");
    }
}
