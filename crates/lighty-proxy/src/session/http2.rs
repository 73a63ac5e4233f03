//! HTTP/2 to a backend: RFC 9113. A request in the form of records; the connection that carries it
//! among others is in `connect/h2`.

use lighty_core::FaultReport;
use lighty_http::fields::is_token;
use lighty_http::{Fields, Known, Method, Status, decimal};
use lighty_wire::http1::BodyFraming;

use super::{BackendResponse, Event, Session, Step, cut_short};
use crate::connect::h2::record::{self, HEAD_BYTES, Kind, Payload, Record};
use crate::request::upstream_request::UpstreamRequest;
use crate::request::websocket_key::accept;

/// Handshake field of HTTP/1 that an extended CONNECT does not have.
const KEY: &[u8] = b"sec-websocket-key";
const ACCEPT: &[u8] = b"sec-websocket-accept";

/// A request and its response.
#[derive(Default)]
pub(super) struct Http2Session {
    is_head_request: bool,
    has_ended: bool,
    /// The received part of the record after the last piece: for content only its header, for the
    /// end all of it.
    record: Vec<u8>,
    /// Unread bytes of the current piece of content.
    piece_left: usize,
    /// Bytes that Content-Length announced; `left` is the number still to come.
    announced: Option<u64>,
    left: Option<u64>,
    trailers: Fields,
    /// Protocol that the client switches to, requested by an extended CONNECT (RFC 8441).
    upgrade: Option<Upgrade>,
}

/// A requested upgrade.
struct Upgrade {
    protocol: Vec<u8>,
    /// `Sec-WebSocket-Accept`, which HTTP/1 requires in the response to an accepted WebSocket.
    accept: Option<Vec<u8>>,
}

/// Creates a session over HTTP/2.
pub(super) fn session() -> Http2Session {
    Http2Session::default()
}

impl Session for Http2Session {
    fn clear(&mut self) {
        *self = Self::default();
    }

    fn open(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport> {
        let request = &upstream_request.ex.request;
        let protocol =
            upstream_request.upgrade.then(|| upgrade_protocol(&request.fields)).flatten();
        self.upgrade = protocol.map(|protocol| Upgrade {
            protocol: protocol.to_vec(),
            accept: request.fields.get_named(KEY).map(accept),
        });
        let is_connect = protocol.is_some();
        let method = match protocol {
            Some(_) => "CONNECT",
            None => request.method.map_or("GET", Method::as_str),
        };
        self.is_head_request = method == "HEAD";
        let rewritten = upstream_request.rewritten;
        record::push(Kind::Head, out, |out| {
            out.push(u8::from(upstream_request.framing == BodyFraming::None && !is_connect));
            record::push_text(method.as_bytes(), out);
            record::push_text(&rewritten.target, out);
            record::push_text(&rewritten.host, out);
            record::push_text(protocol.unwrap_or_default(), out);
            let extra = rewritten.extra.iter_known();
            for (known, name, value) in upstream_request.fields().chain(extra) {
                // RFC 8441 section 5.1: there is no key.
                if !(is_connect && name.eq_ignore_ascii_case(KEY)) {
                    push_field(known, name, value, out);
                }
            }
            if let BodyFraming::Length(length) = upstream_request.framing {
                let mut digits = Vec::new();
                decimal::push(length, &mut digits);
                record::push_field(b"content-length", &digits, out);
            }
        });
        Ok(())
    }

    fn push_body(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        if !piece.is_empty() {
            record::push_data(piece, out);
        }
    }

    fn end_body(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) {
        record::push_end(trailers, out);
    }

    fn read_head(
        &mut self,
        input: &[u8],
        response: &mut BackendResponse,
    ) -> Result<Step, FaultReport> {
        let whole = Record::parse(input).filter(|record| input.len() >= HEAD_BYTES + record.len);
        let Some(record) = whole else { return Ok(Step { consumed: 0, event: Event::More }) };
        let consumed = HEAD_BYTES + record.len;
        let mut payload = Payload(&input[HEAD_BYTES..consumed]);
        response.status = payload.status();
        let ends = payload.byte() != 0;
        payload.fields(&mut response.fields);
        if record.kind == Kind::Interim {
            return Ok(Step { consumed, event: Event::Interim });
        }
        if let Some(upgrade) = self.upgrade.take().filter(|_| response.status.is_success()) {
            upgrade.agree(response);
            return Ok(Step { consumed, event: Event::Head });
        }
        self.announced = response.fields.get(Known::ContentLength).and_then(decimal::parse);
        let has_none = ends || self.is_head_request || !allows_content(response.status);
        response.length = if has_none { Some(0) } else { self.announced };
        self.left = response.length;
        self.has_ended = has_none;
        Ok(Step { consumed, event: Event::Head })
    }

    fn read_body(&mut self, input: &[u8]) -> Result<Step, FaultReport> {
        if self.has_ended {
            return Ok(Step { consumed: 0, event: Event::Done });
        }
        let mut consumed = 0;
        if self.piece_left == 0 {
            let Some((record, taken)) = self.collect(input) else {
                return Ok(Step { consumed: input.len(), event: Event::More });
            };
            consumed = taken;
            let payload = std::mem::take(&mut self.record);
            if record.kind != Kind::Data {
                Payload(&payload[HEAD_BYTES..]).fields(&mut self.trailers);
                self.has_ended = true;
                return match self.left {
                    Some(1..) => Err(cut_short(self.announced, self.left)),
                    _ => Ok(Step { consumed, event: Event::Done }),
                };
            }
            self.piece_left = record.len;
        }
        let count = self.piece_left.min(input.len() - consumed);
        self.piece_left -= count;
        // The connection's codec has compared the content with the announced length.
        debug_assert!(self.left.is_none_or(|left| count as u64 <= left), "{count} {:?}", self.left);
        self.left = self.left.map(|left| left.saturating_sub(count as u64));
        let piece = consumed..consumed + count;
        let event = if count > 0 { Event::Data(piece) } else { Event::More };
        Ok(Step { consumed: consumed + count, event })
    }

    fn trailers(&self) -> Option<&Fields> {
        (!self.trailers.is_empty()).then_some(&self.trailers)
    }

    /// Its stream ends with it; the connection remains for other requests.
    fn is_reusable(&self) -> bool {
        false
    }
}

impl Http2Session {
    /// Collects the next record from the front of `input`. Returns it with the number of bytes
    /// taken; `None` if all were taken and it is not complete.
    fn collect(&mut self, input: &[u8]) -> Option<(Record, usize)> {
        let mut taken = 0;
        loop {
            let record = Record::parse(&self.record);
            let payload = record.filter(|record| record.kind != Kind::Data);
            let wanted = HEAD_BYTES + payload.map_or(0, |record| record.len);
            let missing = wanted - self.record.len();
            if let (Some(record), 0) = (record, missing) {
                return Some((record, taken));
            }
            let more = input[taken..].get(..missing).unwrap_or(&input[taken..]);
            self.record.extend_from_slice(more);
            taken += more.len();
            if more.len() < missing {
                return None;
            }
        }
    }
}

impl Upgrade {
    /// Turns the response to an extended CONNECT into HTTP/1's response to an upgrade. The bytes
    /// after it belong to the other protocol.
    fn agree(self, response: &mut BackendResponse) {
        response.status = Status::SWITCHING_PROTOCOLS;
        response.upgrade = true;
        response.length = None;
        response.fields.remove(Known::ContentLength);
        response.fields.remove(Known::Upgrade);
        response.fields.push_known(Known::Upgrade, self.protocol);
        if let Some(accept) = self.accept {
            response.fields.set_named(ACCEPT, &accept);
        }
    }
}

/// Returns the protocol that a request wants to switch to, if it names exactly one.
pub(crate) fn upgrade_protocol(fields: &Fields) -> Option<&[u8]> {
    let mut values = fields.get_all(Known::Upgrade);
    let protocol = values.next().filter(|protocol| is_token(protocol))?;
    values.next().is_none().then_some(protocol)
}

fn allows_content(status: Status) -> bool {
    !matches!(status.code(), 204 | 304)
}

/// Appends a field of the request, unless it is specific to HTTP/1 connections or expressed by the
/// framing (RFC 9113 section 8.2.2).
fn push_field(known: Option<Known>, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    use Known as K;
    match known {
        Some(
            K::Host
            | K::Connection
            | K::ProxyConnection
            | K::KeepAlive
            | K::TransferEncoding
            | K::Upgrade
            | K::ContentLength,
        ) => {}
        Some(K::Te) => {
            let mut codings = value.split(|byte| *byte == b',');
            if codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers")) {
                record::push_field(b"te", b"trailers", out);
            }
        }
        _ => record::push_field(name, value, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_answered_as_its_specification_shows() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn only_one_protocol_is_asked_for() {
        for (values, wanted) in [
            (&["websocket"][..], Some(&b"websocket"[..])),
            (&[], None),
            (&["websocket, other"], None),
            (&["websocket", "other"], None),
            (&["a b"], None),
        ] {
            let mut fields = Fields::new();
            values.iter().for_each(|value| fields.push_known(Known::Upgrade, *value));
            assert_eq!(upgrade_protocol(&fields), wanted, "{values:?}");
        }
    }

    /// Returns the body, the trailers and whether it ended, for input in pieces of this many bytes.
    fn read(input: &[u8], piece: usize) -> (Vec<u8>, Fields, bool) {
        let (mut session, mut body) = (session(), Vec::new());
        for mut piece in input.chunks(piece) {
            loop {
                let step = session.read_body(piece).expect("no fault");
                match step.event {
                    Event::Data(range) => body.extend_from_slice(&piece[range]),
                    Event::Done => return (body, session.trailers, true),
                    _ => assert_eq!(step.consumed, piece.len(), "no byte is needed twice"),
                }
                piece = &piece[step.consumed..];
                if piece.is_empty() {
                    break;
                }
            }
        }
        (body, session.trailers, false)
    }

    #[test]
    fn a_body_is_read_wherever_its_records_are_cut() {
        let mut trailers = Fields::new();
        trailers.push(b"x-sum", b"7");
        let mut input = Vec::new();
        for piece in [&b"a"[..], b"piece", &[b'x'; 300]] {
            record::push_data(piece, &mut input);
        }
        record::push_end(Some(&trailers), &mut input);
        let whole = [&b"apiece"[..], &[b'x'; 300]].concat();
        for piece in 1..=input.len() {
            let (body, fields, has_ended) = read(&input, piece);
            assert!(body == whole && has_ended, "{piece}");
            assert!(fields.iter().eq(trailers.iter()), "{piece}");
        }
        let (body, _, has_ended) = read(&input[..input.len() - 1], 7);
        assert!(body == whole && !has_ended);
    }
}
