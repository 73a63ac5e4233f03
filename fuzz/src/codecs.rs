//! One function for each codec: takes any bytes, and panics when a promise is broken.

use lighty_http::fields::is_token_byte;
use lighty_http::if_header::{CONDITIONS_MAX, IfHeader, IfState};
use lighty_http::range::{ByteRange, Selection, select};
use lighty_http::uri::{ParseOpts, decode_path, normalise};
use lighty_http::{Known, Method};
use lighty_wire::http1::chunked::{ChunkFault, ChunkedDecoder};
use lighty_wire::http1::request::TargetForm;
use lighty_wire::http1::response::encode_head;
use lighty_wire::http1::{
    BodyFraming, Head, Http1Limits, RequestFault, RequestHead, RequestLine, ResponseFault,
    ResponseFraming, ResponseHead, ResponseLimits, encode_request, encode_request_fields,
    parse_request, parse_response,
};
use lighty_wire::websocket::{FrameEvent, FrameFault, FrameReader};

/// A request head means the same in one piece and in many, and never names a path outside the
/// document root, whatever the options.
pub fn http1_request(data: &[u8]) {
    let Some((&[a, b, step], input)) = data.split_first_chunk() else { return };
    let opts = options(u16::from_le_bytes([a, b]));
    let limits = Http1Limits { field_bytes_max: 1024, fields_max: 20, ..Http1Limits::default() };
    let whole = request_in_pieces(input, usize::MAX, &limits, &opts);
    let cut = request_in_pieces(input, usize::from(step).max(1), &limits, &opts);
    assert_eq!(whole, cut, "the pieces must not matter");
}

/// Everything that can be observed of a parsed head.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    consumed: usize,
    target: Vec<u8>,
    host: Vec<u8>,
    framing: BodyFraming,
    keep_alive: bool,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

fn request_in_pieces(
    input: &[u8],
    step: usize,
    limits: &Http1Limits,
    opts: &ParseOpts,
) -> Result<Option<Seen>, RequestFault> {
    let mut head = RequestHead::new();
    let mut len = 0;
    while len < input.len() {
        len = len.saturating_add(step).min(input.len());
        if let Head::Complete { consumed } = parse_request(&input[..len], limits, opts, &mut head)?
        {
            assert!(consumed <= len && consumed > 0);
            check_head(&head);
            check_relay(&head, opts);
            let fields = head.fields.iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
            return Ok(Some(Seen {
                consumed,
                target: head.target.clone(),
                host: head.host().to_vec(),
                framing: head.framing,
                keep_alive: head.keep_alive,
                fields,
            }));
        }
    }
    Ok(None)
}

fn check_head(head: &RequestHead) {
    let mut path = Vec::new();
    if matches!(head.form, TargetForm::Origin | TargetForm::Absolute { .. })
        && decode_path(head.path(), &mut path).is_ok()
    {
        assert_below_the_root(&path);
    }
    assert!(!head.host().iter().any(|byte| matches!(byte, b'/' | b'\\' | 0..=0x20)));
    assert!(
        !head.host().split(|&byte| byte == b'.').any(<[u8]>::is_empty)
            || head.host().is_empty()
            || head.host().ends_with(b".")
    );
    for (name, value) in head.fields.iter() {
        assert!(!name.is_empty() && !name.contains(&b':'));
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    }
    let raw_len = head.method_raw().len() + 1 + head.target_raw().len();
    assert!(raw_len <= head.line().len());
}

/// What a backend is asked is what the client asked, read with the same eyes.
fn check_relay(head: &RequestHead, opts: &ParseOpts) {
    let line = RequestLine {
        method: head.method_raw(),
        target: &head.target,
        version: head.version,
        host: head.fields.get(Known::Host).unwrap_or_default(),
        framing: head.framing,
    };
    let (mut wire, mut other) = (Vec::new(), Vec::new());
    let result = encode_request(&line, head.fields.iter_known(), &mut wire);
    assert_eq!(encode_request_fields(&line, &head.fields, &mut other), result);
    assert_eq!(wire, other, "both ways agree");
    let Ok(()) = result else { return };
    let limits = Http1Limits { fields_max: 30, ..Http1Limits::default() };
    let mut again = RequestHead::new();
    // A target may change its form on the way (`*` for an absolute one without a path), and what is
    // strange in it is normalised once more: framing may not change.
    if let Ok(read) = parse_request(&wire, &limits, opts, &mut again) {
        assert_eq!(read, Head::Complete { consumed: wire.len() });
        assert_eq!((again.framing, again.method), (head.framing, head.method));
        assert_eq!((again.keep_alive, again.host()), (head.keep_alive, head.host()));
    }
}

/// A response head means the same in one piece and in many, and what is understood of it can be
/// passed on and is understood the same way then.
pub fn http1_response(data: &[u8]) {
    let Some((&[options, step], input)) = data.split_first_chunk() else { return };
    let strict_lines = options & 0x80 != 0;
    let method = [Method::Get, Method::Head, Method::Connect][usize::from(options) % 3];
    let limits = ResponseLimits { head_bytes_max: 2048, fields_max: 20, strict_lines };
    let whole = answer_in_pieces(input, usize::MAX, method, &limits);
    let cut = answer_in_pieces(input, usize::from(step).max(1), method, &limits);
    assert_eq!(whole, cut, "the pieces must not matter");
    let Ok(Some(seen)) = whole else { return };
    check_answer(&seen.head, method);
}

/// A parsed head, compared by all that can be observed of it.
#[derive(Debug)]
struct SeenAnswer {
    consumed: usize,
    head: ResponseHead,
}

impl PartialEq for SeenAnswer {
    fn eq(&self, other: &Self) -> bool {
        let (one, two) = (&self.head, &other.head);
        self.consumed == other.consumed && one.reason() == two.reason() && same_meaning(one, two)
    }
}

fn same_meaning(one: &ResponseHead, two: &ResponseHead) -> bool {
    (one.status, one.framing, one.upgrade) == (two.status, two.framing, two.upgrade)
        && (one.version, one.keep_alive) == (two.version, two.keep_alive)
        && one.fields.iter().eq(two.fields.iter())
}

fn answer_in_pieces(
    input: &[u8],
    step: usize,
    method: Method,
    limits: &ResponseLimits,
) -> Result<Option<SeenAnswer>, ResponseFault> {
    let mut head = ResponseHead::new();
    let mut len = 0;
    while len < input.len() {
        len = len.saturating_add(step).min(input.len());
        if let Head::Complete { consumed } =
            parse_response(&input[..len], Some(method), limits, &mut head)?
        {
            assert!(consumed <= len && consumed > 0);
            return Ok(Some(SeenAnswer { consumed, head }));
        }
    }
    Ok(None)
}

fn check_answer(head: &ResponseHead, method: Method) {
    for (name, value) in head.fields.iter() {
        assert!(!name.is_empty() && name.iter().all(|&byte| is_token_byte(byte)));
        assert!(!value.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t'));
    }
    assert!(!head.keep_alive || head.framing != ResponseFraming::Close);
    if method == Method::Head || !head.status.allows_content() || head.upgrade {
        assert_eq!(head.framing, ResponseFraming::None);
    }
    let mut wire = Vec::new();
    encode_head(head.version, head.status, &head.fields, None, &mut wire)
        .expect("what was understood can be passed on");
    let mut again = ResponseHead::new();
    let result = parse_response(&wire, Some(method), &ResponseLimits::default(), &mut again);
    assert_eq!(result, Ok(Head::Complete { consumed: wire.len() }));
    assert!(same_meaning(head, &again), "passed on and read again: {head:?} {again:?}");
}

/// A chunked body means the same in one piece and in many.
pub fn http1_chunked(data: &[u8]) {
    let Some((&step, input)) = data.split_first() else { return };
    let whole = body_in_pieces(input, usize::MAX);
    let cut = body_in_pieces(input, usize::from(step).max(1));
    assert_eq!(whole, cut, "the pieces must not matter");
}

type Body = (Vec<u8>, Option<usize>, Option<ChunkFault>);

fn body_in_pieces(input: &[u8], step: usize) -> Body {
    let mut decoder = ChunkedDecoder::new();
    let (mut body, mut used) = (Vec::new(), 0);
    for piece in input.chunks(step.min(input.len().max(1))) {
        let mut rest = piece;
        while !rest.is_empty() && !decoder.is_done() {
            match decoder.feed(rest) {
                Ok(event) => {
                    assert!(event.consumed > 0 && event.data.end <= event.consumed);
                    body.extend_from_slice(&rest[event.data]);
                    used += event.consumed;
                    rest = &rest[event.consumed..];
                }
                Err(fault) => return (body, None, Some(fault)),
            }
        }
    }
    (body, decoder.is_done().then_some(used), None)
}

/// A client's frames mean the same in one piece and in many.
pub fn websocket(data: &[u8]) {
    let Some((&step, input)) = data.split_first() else { return };
    let whole = frames_in_pieces(input, usize::MAX);
    let cut = frames_in_pieces(input, usize::from(step).max(1));
    assert_eq!(whole, cut, "the pieces must not matter");
}

/// The payload of messages, the other events, and the fault that ended the input.
type Frames = (Vec<u8>, Vec<FrameEvent>, Option<FrameFault>);

fn frames_in_pieces(input: &[u8], step: usize) -> Frames {
    let mut reader = FrameReader::default();
    let (mut data, mut events) = (Vec::new(), Vec::new());
    for piece in input.chunks(step.min(input.len().max(1))) {
        let mut piece = piece.to_vec();
        let mut at = 0;
        while at < piece.len() {
            let (consumed, event) = match reader.read(&mut piece[at..]) {
                Ok(read) => read,
                Err(fault) => return (data, events, Some(fault)),
            };
            assert!(consumed > 0 && at + consumed <= piece.len());
            match event {
                FrameEvent::More => {}
                FrameEvent::Data(range) => {
                    assert!(range.end <= consumed);
                    data.extend_from_slice(&piece[at + range.start..at + range.end]);
                }
                FrameEvent::Ping(payload) => {
                    assert!(payload.len() <= 125, "RFC 6455 section 5.5");
                    events.push(FrameEvent::Ping(payload));
                }
                FrameEvent::Close(code) => events.push(FrameEvent::Close(code)),
            }
            at += consumed;
        }
    }
    (data, events, None)
}

/// Normalising twice is normalising once, and no path leaves the root.
pub fn uri(data: &[u8]) {
    let Some((&[a, b], raw)) = data.split_first_chunk() else { return };
    let opts = options(u16::from_le_bytes([a, b]));
    let (mut once, mut twice, mut path) = (Vec::new(), Vec::new(), Vec::new());
    if let Ok(target) = normalise(raw, &opts, &mut once) {
        normalise(&once, &opts, &mut twice).expect("what was accepted stays acceptable");
        assert_eq!(once, twice);
        if decode_path(target.path(&once), &mut path).is_ok() {
            assert_below_the_root(&path);
        }
    }
    if decode_path(raw, &mut path).is_ok() {
        assert_below_the_root(&path);
    }
}

/// Ranges lie within the representation.
pub fn range(data: &[u8]) {
    let Some((len, value)) = data.split_first_chunk() else { return };
    let len = u64::from_le_bytes(*len);
    let mut list = Vec::new();
    let selection = select(value, len, &mut list);
    let inside = |range: &ByteRange| range.start < range.end && range.end <= len;
    assert!(list.iter().all(inside));
    match selection {
        Selection::Single(range) => assert!(inside(&range)),
        Selection::Multiple => assert!(list.len() > 1),
        Selection::Whole | Selection::Unsatisfiable => assert!(list.is_empty()),
    }
}

/// An `If` that is accepted has what its grammar says, and is the same when it is written anew.
pub fn if_header(data: &[u8]) {
    let Ok(header) = IfHeader::parse(data) else { return };
    let tagged = header.lists.first().is_some_and(|list| list.resource.is_some());
    let mut text = Vec::new();
    for list in &header.lists {
        assert_eq!(list.resource.is_some(), tagged);
        assert!(!list.conditions.is_empty());
        list.resource.iter().for_each(|url| text.extend([b"<", *url, b"> "].concat()));
        text.push(b'(');
        for condition in &list.conditions {
            text.extend_from_slice(if condition.negated { b"Not " } else { b"" });
            text.extend(match condition.state {
                IfState::Token(token) => [b"<", token, b">"].concat(),
                IfState::ETag(tag) => [b"[", tag, b"]"].concat(),
            });
        }
        text.push(b')');
    }
    assert_eq!(IfHeader::parse(&text).expect("what was written can be read"), header);
    assert!(header.tokens().count() <= CONDITIONS_MAX);
}

fn assert_below_the_root(path: &[u8]) {
    assert_eq!(path.first(), Some(&b'/'));
    assert!(!path.contains(&0));
    let mut segments = path[1..].split(|&byte| byte == b'/');
    assert!(segments.all(|segment| segment != b"." && segment != b".."));
}

fn options(bits: u16) -> ParseOpts {
    let bit = |index: u32| bits >> index & 1 == 1;
    ParseOpts {
        header_strict: !bit(0),
        host_strict: !bit(1),
        host_normalize: !bit(2),
        method_get_body: bit(3),
        post_needs_length: bit(14),
        url_normalize: !bit(4),
        url_normalize_unreserved: true,
        url_normalize_required: bit(5),
        url_ctrls_reject: !bit(6),
        url_path_backslash_trans: bit(7),
        url_path_2f_decode: !bit(8),
        url_path_2f_reject: bit(9),
        url_path_dotseg_remove: !bit(10),
        url_path_dotseg_reject: bit(11),
        url_query_20_plus: bit(12),
        url_invalid_utf8_reject: !bit(13),
    }
}
