use std::io::Read;

use super::*;
use crate::deflate::coding::Coding;

/// Text that compresses, and bytes that do not.
fn sample(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let phrases = [&b"the quick "[..], b"brown fox ", b"jumps over ", b"<a href=\"/\">"];
    let mut out = Vec::new();
    while out.len() < length {
        match random() {
            byte @ 0..=99 => out.extend_from_slice(phrases[usize::from(byte % 4)]),
            byte => out.push(byte),
        }
    }
    out.truncate(length);
    out
}

fn decode(coding: Coding, mut bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match coding {
        Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out)?,
        Coding::Deflate => flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut out)?,
        Coding::Bzip2 => ::bzip2::read::BzDecoder::new(bytes).read_to_end(&mut out)?,
        Coding::Zstd => ::zstd::stream::read::Decoder::new(bytes)?.read_to_end(&mut out)?,
        Coding::Brotli => {
            ::brotli::BrotliDecompress(&mut bytes, &mut out)?;
            out.len()
        }
    };
    Ok(out)
}

/// Decodes as much as possible of an incomplete stream.
fn decode_begun(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut piece = [0; 1];
    let mut reader: Box<dyn Read + '_> = match coding {
        Coding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
        Coding::Deflate => Box::new(flate2::read::ZlibDecoder::new(bytes)),
        Coding::Bzip2 => Box::new(::bzip2::read::BzDecoder::new(bytes)),
        Coding::Zstd => Box::new(::zstd::stream::read::Decoder::new(bytes).expect("a decoder")),
        Coding::Brotli => Box::new(::brotli::Decompressor::new(bytes, 4096)),
    };
    while let Ok(1) = reader.read(&mut piece) {
        out.push(piece[0]);
    }
    out
}

/// Runs an operation to its end with little room for output.
fn run_all(encoder: &mut Encoder, mut input: &[u8], op: Op, room: usize, out: &mut Vec<u8>) {
    let mut turns = 0;
    loop {
        let mut piece = Vec::new();
        let (taken, done) = encoder.run(input, op, &mut piece, room).expect("encoded");
        assert!(piece.len() <= room.saturating_add(ROOM_BYTES), "{} bytes", piece.len());
        input = &input[taken..];
        out.extend_from_slice(&piece);
        turns += 1;
        assert!(taken > 0 || !piece.is_empty() || done, "nothing moves");
        if done {
            assert!(input.is_empty());
            return;
        }
        assert!(turns < 1_000_000, "it does not end");
    }
}

#[test]
fn every_coding_carries_every_length() {
    let params = EncoderParams::default();
    for coding in Coding::ALL {
        for length in [0, 1, 2, 255, 4096, 65_536, 300_001] {
            let text = sample(length);
            for hint in [None, Some(length as u64)] {
                let mut encoder = Encoder::new(coding, &params, hint).expect("an encoder");
                let mut out = Vec::new();
                run_all(&mut encoder, &text, Op::Finish, usize::MAX, &mut out);
                assert!(decode(coding, &out).expect("decoded") == text, "{coding:?} {length}");
            }
        }
    }
}

#[test]
fn pieces_and_small_buffers_change_nothing() {
    let params = EncoderParams::default();
    let text = sample(70_000);
    for coding in Coding::ALL {
        for (piece, room) in [(1000, 1), (7919, 100), (70_000, 10), (333, usize::MAX)] {
            let mut encoder = Encoder::new(coding, &params, None).expect("an encoder");
            let mut out = Vec::new();
            for part in text.chunks(piece) {
                run_all(&mut encoder, part, Op::Run, room, &mut out);
            }
            run_all(&mut encoder, &[], Op::Finish, room, &mut out);
            assert!(decode(coding, &out).expect("decoded") == text, "{coding:?} {piece} {room}");
        }
    }
}

#[test]
fn flushed_output_can_be_decoded() {
    let params = EncoderParams::default();
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
        for room in [1, 5, usize::MAX] {
            let mut encoder = Encoder::new(coding, &params, None).expect("an encoder");
            let (mut out, mut text) = (Vec::new(), Vec::new());
            for at in 0..20 {
                let event = format!("data: {at} {}\n\n", "x".repeat(at * 37));
                text.extend_from_slice(event.as_bytes());
                run_all(&mut encoder, event.as_bytes(), Op::Flush, room, &mut out);
                assert!(decode_begun(coding, &out) == text, "{coding:?} {at} {room}");
            }
            run_all(&mut encoder, &[], Op::Finish, room, &mut out);
            assert!(decode(coding, &out).expect("decoded") == text, "{coding:?}");
        }
    }
}

#[test]
fn every_level_works() {
    let text = sample(20_000);
    for level in 1..=9 {
        let mut params = EncoderParams::default();
        params.set_level(level);
        params.zlib_window = 9;
        for coding in Coding::ALL {
            let mut encoder = Encoder::new(coding, &params, None).expect("an encoder");
            let mut out = Vec::new();
            run_all(&mut encoder, &text, Op::Finish, usize::MAX, &mut out);
            assert!(decode(coding, &out).expect("decoded") == text, "{coding:?} {level}");
            assert!(out.len() < text.len(), "{coding:?} {level}");
        }
    }
}
