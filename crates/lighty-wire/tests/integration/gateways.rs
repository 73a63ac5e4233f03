//! Replays `testdata/cgi` and `testdata/fastcgi`: every case in one piece and in every cut. The
//! formats are described in the README of each.

use crate::cases::{self, Case};
use lighty_wire::cgi::{CgiHead, Head, HeadLimits, parse_head};
use lighty_wire::fastcgi::{FastcgiDecoder, FastcgiEvent};

#[test]
fn every_head_in_every_cut() {
    cases::replay_all("cgi", 60, read_head);
}

#[test]
fn every_answer_in_every_cut() {
    cases::replay_all("fastcgi", 25, read_response);
}

fn read_head(case: &Case, pieces: &[&[u8]]) -> String {
    let limits = limits(&case.options);
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let (mut buf, mut head) = (Vec::new(), CgiHead::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        match parse_head(&buf, &limits, &mut head) {
            Ok(Head::Partial) => {}
            Ok(Head::Complete { consumed }) => {
                return format!("accept {} rest={}", describe(&head), total - consumed);
            }
            Err(fault) => return format!("refuse {}", fault.slug()),
        }
    }
    "partial".into()
}

fn describe(head: &CgiHead) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(' ', "_");
    let fields: Vec<String> =
        head.fields.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect();
    format!(
        "status={} length={} local={} count={} {}",
        head.status,
        head.content_length.map_or("-".into(), |length| length.to_string()),
        if head.is_local_redirect { "yes" } else { "no" },
        fields.len(),
        fields.join(" "),
    )
}

fn limits(options: &[String]) -> HeadLimits {
    let mut limits = HeadLimits::default();
    for option in options {
        let (name, value) = option.split_once('=').expect("name=value");
        match name {
            "head-bytes-max" => limits.head_bytes_max = value.parse().expect("a number"),
            "fields-max" => limits.fields_max = value.parse().expect("a number"),
            _ => panic!("no option {name}"),
        }
    }
    limits
}

/// An application's output, in the terms of the corpus with all its keys.
fn read_response(_: &Case, pieces: &[&[u8]]) -> String {
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let (mut decoder, mut used) = (FastcgiDecoder::new(), 0);
    let (mut output, mut log, mut message) = (Vec::new(), Vec::new(), String::new());
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let step = match decoder.feed(rest) {
                Ok(step) => step,
                Err(fault) => return format!("refuse {}", fault.slug()),
            };
            used += step.consumed;
            match step.event {
                None => break,
                Some(FastcgiEvent::Stdout(range)) => output.extend_from_slice(&rest[range]),
                Some(FastcgiEvent::Stderr(range)) => log.extend_from_slice(&rest[range]),
                Some(other) => message.push_str(&name(&other)),
            }
            rest = &rest[step.consumed..];
        }
    }
    let state = if decoder.is_done() { "done" } else { "unfinished" };
    let boundary = if decoder.is_between_records() { "between" } else { "inside" };
    let log = String::from_utf8_lossy(&log).trim_end().replace(' ', "_");
    format!("{state} {boundary} {message}rest={} log={log} {}", total - used, response(&output))
}

fn name(event: &FastcgiEvent) -> String {
    match event {
        FastcgiEvent::Stdout(_) | FastcgiEvent::Stderr(_) => String::new(),
        FastcgiEvent::EndOfStdout => "end-of-stdout ".into(),
        FastcgiEvent::End(end) => format!("end={}:{:?} ", end.app_status, end.protocol_status),
        FastcgiEvent::Values(values) => format!(
            "conns={:?} reqs={:?} multiplexes={:?} ",
            values.max_conns, values.max_reqs, values.multiplexes
        ),
        FastcgiEvent::UnknownType(number) => format!("unknown-type={number} "),
    }
}

/// The head in the output, and the length of the body.
fn response(output: &[u8]) -> String {
    let mut head = CgiHead::new();
    match parse_head(output, &HeadLimits::default(), &mut head) {
        Ok(Head::Complete { consumed }) => {
            let body = &output[consumed..];
            let text = String::from_utf8_lossy(body).trim_end().replace(' ', "_");
            format!("{} size={} body={text}", describe(&head), body.len())
        }
        Ok(Head::Partial) => format!("head=partial output={}", output.len()),
        Err(fault) => format!("head={}", fault.slug()),
    }
}
