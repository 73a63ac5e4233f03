//! Replays `testdata/http1-responses`: every case in one piece and in every cut. The format is
//! described in `testdata/http1-responses/README.md`.

use crate::cases::{self, Case};
use lighty_http::Method;
use lighty_wire::http1::{Head, ResponseFraming, ResponseHead, ResponseLimits, parse_response};

#[test]
fn every_case_in_every_cut() {
    cases::replay_all("http1-responses", 100, run);
}

/// The result, in the terms of the corpus with all its keys. If a head is complete before the last
/// piece, bytes that have not arrived yet count as left over.
fn run(case: &Case, pieces: &[&[u8]]) -> String {
    let method = request_method(&case.options);
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let (mut buf, mut head) = (Vec::new(), ResponseHead::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        match parse_response(&buf, method, &ResponseLimits::default(), &mut head) {
            Ok(Head::Partial) => {}
            Ok(Head::Complete { consumed }) => return describe(&head, total - consumed),
            Err(fault) => return format!("refuse {}", fault.slug()),
        }
    }
    "partial".into()
}

fn describe(head: &ResponseHead, rest: usize) -> String {
    let yes = |flag| if flag { "yes" } else { "no" };
    format!(
        "accept version={} status={} reason={} fields={} body={} keep={} upgrade={} interim={} \
         rest={rest}",
        head.version,
        head.status,
        String::from_utf8_lossy(head.reason()).replace(' ', "_"),
        head.fields.len(),
        match head.framing {
            ResponseFraming::None => "none".into(),
            ResponseFraming::Length(len) => len.to_string(),
            ResponseFraming::Chunked => "chunked".into(),
            ResponseFraming::Close => "close".into(),
        },
        yes(head.keep_alive),
        yes(head.upgrade),
        yes(head.is_interim()),
    )
}

fn request_method(options: &[String]) -> Option<Method> {
    let [name] = options else { return Some(Method::Get) };
    Some(Method::from_bytes(name.as_bytes()).expect("an option is a method"))
}
