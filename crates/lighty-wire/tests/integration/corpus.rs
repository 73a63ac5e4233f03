//! Replays `testdata/http1`: every case in one piece and in every cut. The format is described in
//! `testdata/http1/README.md`.

use crate::cases;
use lighty_http::uri::ParseOpts;
use lighty_wire::http1::request::TargetForm;
use lighty_wire::http1::{BodyFraming, Head, Http1Limits, RequestHead, parse_request};

#[test]
fn every_case_in_every_cut() {
    cases::replay_all("http1", 150, |case, pieces| run(pieces, &options(&case.options)));
}

/// The result, in the terms of the corpus with all its keys. If a head is complete before the last
/// piece, bytes that have not arrived yet count as left over.
fn run(pieces: &[&[u8]], opts: &ParseOpts) -> String {
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let (mut buf, mut head) = (Vec::new(), RequestHead::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        match parse_request(&buf, &Http1Limits::default(), opts, &mut head) {
            Ok(Head::Partial) => {}
            Ok(Head::Complete { consumed }) => return describe(&head, total - consumed),
            Err(fault) => return format!("refuse {} {}", fault.status(), fault.slug()),
        }
    }
    "partial".into()
}

fn describe(head: &RequestHead, rest: usize) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let yes = |flag| if flag { "yes" } else { "no" };
    format!(
        "accept method={} version={} path={} query={} host={} port={} body={} keep={} continue={} \
         upgrade={} fields={} form={} rest={rest}",
        head.method.map_or("-", |method| method.as_str()),
        head.version,
        text(head.path()),
        head.query().map_or("-".into(), text),
        text(head.host()),
        head.port.map_or("-".into(), |port| port.to_string()),
        match head.framing {
            BodyFraming::None => "none".into(),
            BodyFraming::Length(len) => len.to_string(),
            BodyFraming::Chunked => "chunked".into(),
        },
        yes(head.keep_alive),
        yes(head.expect_continue),
        yes(head.upgrade),
        head.fields.len(),
        match head.form {
            TargetForm::Origin => "origin",
            TargetForm::Absolute { secure: false } => "absolute",
            TargetForm::Absolute { secure: true } => "absolute-secure",
            TargetForm::Authority => "authority",
            TargetForm::Asterisk => "asterisk",
        },
    )
}

fn options(names: &[String]) -> ParseOpts {
    let mut opts = ParseOpts::default();
    for name in names {
        let (name, value) = name.strip_prefix('-').map_or((&**name, true), |name| (name, false));
        *match name {
            "header-strict" => &mut opts.header_strict,
            "host-strict" => &mut opts.host_strict,
            "method-get-body" => &mut opts.method_get_body,
            "post-needs-length" => &mut opts.post_needs_length,
            "url-path-2f-reject" => &mut opts.url_path_2f_reject,
            "url-path-dotseg-remove" => &mut opts.url_path_dotseg_remove,
            "url-path-dotseg-reject" => &mut opts.url_path_dotseg_reject,
            _ => panic!("no option {name} here yet"),
        } = value;
    }
    opts
}
