//! The gateway protocols: takes any bytes, and panics when a promise is broken.

use lighty_wire::cgi::{CgiFault, CgiHead, Head, HeadLimits, Params, parse_head};
use lighty_wire::fastcgi::app::{self, RequestDecoder};
use lighty_wire::fastcgi::{
    self, ApplicationRole, Begin, FastcgiDecoder, FastcgiEvent, FastcgiFault,
};
use lighty_wire::{scgi, uwsgi};

/// Most bytes of header that the targets allow, so that limits are met.
const HEAD_BYTES_MAX: usize = 1024;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// What a FastCGI application sends means the same in one piece and in many.
pub fn fastcgi_response(data: &[u8]) {
    let Some((&step, input)) = data.split_first() else { return };
    let whole = answer_in_pieces(input, usize::MAX);
    let cut = answer_in_pieces(input, usize::from(step).max(1));
    assert_eq!(whole, cut, "the pieces must not matter");
}

/// Output, standard error, all other events, bytes used, fault.
type Answer = (Vec<u8>, Vec<u8>, Vec<FastcgiEvent>, usize, Option<FastcgiFault>);

fn answer_in_pieces(input: &[u8], step: usize) -> Answer {
    let mut decoder = FastcgiDecoder::new();
    let (mut output, mut log, mut others, mut used) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for piece in input.chunks(step.min(input.len().max(1))) {
        let mut rest = piece;
        loop {
            let step = match decoder.feed(rest) {
                Ok(step) => step,
                Err(fault) => return (output, log, others, 0, Some(fault)),
            };
            assert!(step.consumed <= rest.len());
            assert!(step.event.is_some() || step.consumed == rest.len() || decoder.is_done());
            used += step.consumed;
            match step.event {
                None => break,
                Some(FastcgiEvent::Stdout(range)) => output.extend_from_slice(&rest[range]),
                Some(FastcgiEvent::Stderr(range)) => log.extend_from_slice(&rest[range]),
                Some(other) => others.push(other),
            }
            rest = &rest[step.consumed..];
        }
    }
    (output, log, others, used, None)
}

/// What a web server sends means the same in one piece and in many, and a request that was
/// understood is understood again when it is written anew.
pub fn fastcgi_request(data: &[u8]) {
    let Some((&step, input)) = data.split_first() else { return };
    let whole = request_in_pieces(input, usize::MAX);
    let cut = request_in_pieces(input, usize::from(step).max(1));
    assert_eq!(whole, cut, "the pieces must not matter");
    let [DecodedMessage::Begin(begin), DecodedMessage::Params(pairs), rest @ ..] =
        whole.0.as_slice()
    else {
        return;
    };
    let mut out = Vec::new();
    fastcgi::encode::begin_request(*begin, &mut out);
    let borrowed = pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    fastcgi::encode::params(borrowed, &mut out).expect("what was read can be written");
    if let [DecodedMessage::Stdin(body), ..] = rest {
        for piece in body.chunks(usize::from(step).max(1)) {
            let (header, padding) = fastcgi::encode::stdin_header_padded(piece.len() as u16);
            out.extend_from_slice(&header);
            out.extend_from_slice(piece);
            out.extend_from_slice(padding);
        }
    }
    let again = request_in_pieces(&out, usize::MAX);
    assert_eq!(again.1, None);
    let kept = 2 + usize::from(matches!(rest, [DecodedMessage::Stdin(_), ..]));
    assert_eq!(again.0, whole.0[..kept]);
}

/// An event of a request, with neighbouring pieces of the body put together.
#[derive(Debug, PartialEq, Eq)]
enum DecodedMessage {
    Begin(Begin),
    Params(Pairs),
    Stdin(Vec<u8>),
    RequestedValues(Vec<Vec<u8>>),
    Other(app::FastcgiRequestEvent),
}

fn request_in_pieces(input: &[u8], step: usize) -> (Vec<DecodedMessage>, Option<FastcgiFault>) {
    let (mut decoder, mut messages) = (RequestDecoder::new(), Vec::new());
    for piece in input.chunks(step.min(input.len().max(1))) {
        let mut rest = piece;
        loop {
            let step = match decoder.feed(rest) {
                Ok(step) => step,
                Err(fault) => return (messages, Some(fault)),
            };
            let Some(event) = step.event else { break };
            match (event, messages.last_mut()) {
                (app::FastcgiRequestEvent::Stdin(range), Some(DecodedMessage::Stdin(body))) => {
                    body.extend_from_slice(&rest[range]);
                }
                (app::FastcgiRequestEvent::Stdin(range), _) => {
                    messages.push(DecodedMessage::Stdin(rest[range].to_vec()))
                }
                (app::FastcgiRequestEvent::Begin(begin), _) => {
                    messages.push(DecodedMessage::Begin(begin))
                }
                (app::FastcgiRequestEvent::Params, _) => {
                    messages.push(DecodedMessage::Params(owned(decoder.params())))
                }
                (app::FastcgiRequestEvent::GetValues, _) => {
                    messages.push(DecodedMessage::RequestedValues(
                        decoder.requested().map(<[u8]>::to_vec).collect(),
                    ));
                }
                (other, _) => messages.push(DecodedMessage::Other(other)),
            }
            rest = &rest[step.consumed..];
        }
    }
    (messages, None)
}

fn owned<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Pairs {
    pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// The head of a response means the same in one piece and in many, lets nothing through that could
/// split the response to the client, and becomes variables that no program can take for another's.
pub fn cgi_head(data: &[u8]) {
    let Some((&step, input)) = data.split_first() else { return };
    let whole = head_in_pieces(input, usize::MAX);
    let cut = head_in_pieces(input, usize::from(step).max(1));
    assert_eq!(whole.as_ref().map(seen), cut.as_ref().map(seen), "the pieces must not matter");
    let Ok(Some((_, head))) = whole else { return };
    for (name, value) in head.fields.iter() {
        assert!(!name.is_empty() && !name.iter().any(|byte| b": \r\n\0".contains(byte)));
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        let dropped = [&b"connection"[..], b"transfer-encoding", b"content-length", b"status"];
        assert!(!dropped.iter().any(|other| other.eq_ignore_ascii_case(name)));
    }
    check_variables(&Params::new(&head.fields));
}

fn check_variables(params: &Params<'_>) {
    let mut names = std::collections::BTreeSet::new();
    params.for_each(|name, _| {
        assert!(name.iter().all(|byte| byte.is_ascii_uppercase() || b"_0123456789".contains(byte)));
        assert!(name != b"HTTP_PROXY" && name != b"HTTP_CONTENT_LENGTH");
        assert!(names.insert(name.to_vec()), "a name occurs once");
    });
}

type Seen = (usize, u16, Option<u64>, bool, Pairs);

fn seen(found: &Option<(usize, CgiHead)>) -> Option<Seen> {
    let (consumed, head) = found.as_ref()?;
    let (status, local) = (head.status.code(), head.is_local_redirect);
    Some((*consumed, status, head.content_length, local, owned(head.fields.iter())))
}

fn head_in_pieces(input: &[u8], step: usize) -> Result<Option<(usize, CgiHead)>, CgiFault> {
    let limits = HeadLimits { head_bytes_max: HEAD_BYTES_MAX, fields_max: 20 };
    let (mut head, mut len) = (CgiHead::new(), 0);
    while len < input.len() {
        len = len.saturating_add(step).min(input.len());
        if let Head::Complete { consumed } = parse_head(&input[..len], &limits, &mut head)? {
            assert!(consumed > 0 && consumed <= len);
            return Ok(Some((consumed, head)));
        }
    }
    Ok(None)
}

/// SCGI variables that are understood are written again as they were.
pub fn scgi(data: &[u8]) {
    let mut request = scgi::ScgiRequest::default();
    let result = scgi::parse_request(data, &mut request);
    for len in 0..data.len().min(HEAD_BYTES_MAX) {
        let early = scgi::parse_request(&data[..len], &mut scgi::ScgiRequest::default());
        assert!(early == Ok(Head::Partial) || early == result, "at {len}");
    }
    let Ok(Head::Complete { consumed }) = result else { return };
    let pairs = owned(request.pairs());
    let mut out = Vec::new();
    let mut writer = scgi::HeadWriter::new(request.content_length, &mut out);
    pairs.iter().for_each(|(name, value)| writer.pair(name, value));
    writer.finish().expect("what was read can be written");
    let mut again = scgi::ScgiRequest::default();
    let result = scgi::parse_request(&out, &mut again);
    assert_eq!(result, Ok(Head::Complete { consumed: out.len() }));
    assert_eq!(again.content_length, request.content_length);
    let sorted = |mut pairs: Pairs| {
        // The length may have been written with zeros in front, and the version later.
        pairs.retain(|(name, _)| name != b"CONTENT_LENGTH");
        pairs.sort();
        pairs
    };
    assert_eq!(sorted(owned(again.pairs())), sorted(pairs));
    assert!(consumed >= out.len());
}

/// uwsgi variables that are understood are written again as they were.
pub fn uwsgi(data: &[u8]) {
    let mut request = uwsgi::UwsgiRequest::default();
    let result = uwsgi::parse_request(data, &mut request);
    for len in 0..data.len().min(HEAD_BYTES_MAX) {
        let early = uwsgi::parse_request(&data[..len], &mut uwsgi::UwsgiRequest::default());
        assert!(early == Ok(Head::Partial) || early == result, "at {len}");
    }
    let Ok(Head::Complete { consumed }) = result else { return };
    let mut out = Vec::new();
    let mut writer = uwsgi::VarsWriter::new(request.modifiers, &mut out);
    request.pairs().for_each(|(name, value)| writer.pair(name, value));
    writer.finish().expect("what was read can be written");
    assert_eq!(out, data[..consumed]);
}

/// A request for an application, made of what a fuzzer may choose, arrives as it was.
pub fn fastcgi_params(data: &[u8]) {
    let Some((&[keep, cut], text)) = data.split_first_chunk() else { return };
    let mut parts = text.split(|byte| *byte == cut);
    let mut pairs = Vec::new();
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        // Longer than what the fuzzer has patience for: around and beyond a record.
        let value = value.repeat(1 + usize::from(keep >> 1) * 16);
        pairs.push((name.to_vec(), value));
    }
    if pairs.iter().map(|(name, value)| name.len() + value.len() + 8).sum::<usize>()
        > app::PARAMS_BYTES_MAX
    {
        return;
    }
    let begin = Begin { role: ApplicationRole::Authorizer, keep_conn: keep & 1 != 0 };
    let mut out = Vec::new();
    fastcgi::encode::begin_request(begin, &mut out);
    let borrowed = pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    fastcgi::encode::params(borrowed, &mut out).expect("short enough");
    let messages = request_in_pieces(&out, usize::MAX);
    assert_eq!(messages, (vec![DecodedMessage::Begin(begin), DecodedMessage::Params(pairs)], None));
}
