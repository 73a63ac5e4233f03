//! AJP13 to a servlet container.

use std::borrow::Cow;
use std::sync::Arc;

use lighty_core::{Fault, FaultReport};
use lighty_http::{Fields, Method};
use lighty_wire::ajp13::{
    self, AjpFault, Body, EncodeFault, PacketSize, RequestBody, ResponseDecoder,
};
use lighty_wire::http1::BodyFraming;

use super::{BackendResponse, Event, Session, Step, cut_short, head_unfit, malformed, push_length};
use crate::request::upstream_request::UpstreamRequest;

/// A request and its response over AJP13. The end of the request and that of the response are
/// independent: a container may respond before it has the whole body.
pub(super) struct AjpSession {
    secret: Option<Arc<str>>,
    size: PacketSize,
    decoder: ResponseDecoder,
    body: RequestBody,
    /// The client's body has ended; the container may still request more.
    request_ended: bool,
    left: Option<u64>,
    /// The response has no body, whatever arrives (HEAD).
    is_head_request: bool,
    /// The response has ended, and the container keeps the connection.
    reuse: bool,
}

/// Creates a session over AJP13.
pub(super) fn session(secret: &Option<Arc<str>>, packet_bytes: &usize) -> AjpSession {
    let size = u32::try_from(*packet_bytes).ok().and_then(PacketSize::new).unwrap_or_default();
    AjpSession {
        secret: secret.clone(),
        size,
        decoder: ResponseDecoder::new(size, ajp13::FIELDS_MAX),
        body: RequestBody::new(Body::None, size),
        request_ended: false,
        left: None,
        is_head_request: false,
        reuse: false,
    }
}

impl AjpSession {
    fn feed(&mut self, input: &[u8]) -> Result<ajp13::AjpStep, FaultReport> {
        self.decoder.feed(input).map_err(|fault| {
            let limit = match fault {
                AjpFault::PacketTooLarge => " (proxy-core.ajp-packet-size)",
                _ => "",
            };
            malformed(match self.decoder.particulars() {
                Some(numbers) => Cow::from(format!("{}: {numbers}{limit}", fault.message())),
                None => fault.message().into(),
            })
        })
    }

    /// Translates an event of the decoder, in the head or the body.
    fn on_event(&mut self, event: Option<ajp13::AjpEvent>) -> Result<Event, FaultReport> {
        Ok(match event {
            Some(ajp13::AjpEvent::Headers) => Event::Head,
            Some(ajp13::AjpEvent::Body(range)) => {
                if let Some(left) = &mut self.left {
                    let announced = self.decoder.content_length().unwrap_or(0);
                    let came = range.len() as u64;
                    *left = left.checked_sub(came).ok_or_else(|| {
                        malformed(format!(
                            "a piece of {came} bytes where {left} are left of the {announced} \
                             that Content-Length announced"
                        ))
                    })?;
                }
                Event::Data(range)
            }
            Some(ajp13::AjpEvent::GetBody { len }) => {
                self.body.on_get_body(len).map_err(|fault| malformed(fault.message()))?;
                Event::More
            }
            Some(ajp13::AjpEvent::End { reuse }) => {
                if self.left.is_some_and(|left| left > 0) {
                    return Err(cut_short(self.decoder.content_length(), self.left));
                }
                self.reuse = reuse;
                Event::Done
            }
            Some(ajp13::AjpEvent::Flush | ajp13::AjpEvent::Pong) | None => Event::More,
        })
    }
}

impl Session for AjpSession {
    fn clear(&mut self) {
        self.decoder.begin_request();
        self.body = RequestBody::new(Body::None, self.size);
        self.request_ended = false;
        self.left = None;
        self.reuse = false;
    }

    fn open(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport> {
        let request = &upstream_request.ex.request;
        self.is_head_request = request.method == Some(Method::Head);
        let body = match upstream_request.framing {
            BodyFraming::None => Body::None,
            BodyFraming::Length(length) => Body::Length(length),
            BodyFraming::Chunked => Body::Unknown,
        };
        let (server_name, port) = lighty_http::host::parts(&upstream_request.rewritten.host);
        let (remote_port, host) = match request.peer {
            lighty_io::transport::Peer::Inet(address) => {
                (Some(address.port()), upstream_request.local_ip())
            }
            lighty_io::transport::Peer::Unix => (None, None),
        };
        let local_addr = host.map(|ip| ip.to_string());
        let environment = &upstream_request.ex.environment;
        let key_bits = environment.get(b"SSL_CIPHER_USEKEYSIZE");
        let (path, query) = upstream_request.rewritten.split_target();
        let ajp = ajp13::AjpRequest {
            method: request.method.map_or("GET", lighty_http::Method::as_str).as_bytes(),
            version: request.version,
            path,
            query,
            remote_addr: request.peer_text.as_bytes(),
            remote_port,
            local_addr: local_addr.as_deref().map(str::as_bytes),
            server_name,
            server_port: port.unwrap_or(request.local_port),
            is_tls: request.scheme == "https",
            tls_protocol: environment.get(b"SSL_PROTOCOL"),
            tls_cipher: environment.get(b"SSL_CIPHER"),
            tls_key_bits: key_bits.and_then(|bits| std::str::from_utf8(bits).ok()?.parse().ok()),
            tls_certificate: environment.get(b"SSL_CLIENT_CERT"),
            remote_user: (!request.remote_user.is_empty()).then_some(&*request.remote_user),
            auth_type: environment.get(b"AUTH_TYPE"),
            secret: self.secret.as_deref().map(str::as_bytes),
            body,
            ..ajp13::AjpRequest::default()
        };
        let fields =
            || upstream_request.fields().chain(upstream_request.rewritten.extra.iter_known());
        ajp13::encode_request(&ajp, fields(), self.size, out).map_err(|fault| match fault {
            EncodeFault::HeadTooLarge => {
                let needed_bytes = ajp13::needed_bytes(&ajp, fields());
                let protocol = "AJP13 (proxy-core.ajp-packet-size)";
                head_unfit(protocol, needed_bytes, self.size.bytes())
            }
            _ => FaultReport::new(Fault::Internal, fault.message()),
        })?;
        self.decoder.begin_request();
        self.body = RequestBody::new(body, self.size);
        self.request_ended = body == Body::None;
        Ok(())
    }

    fn takes(&self) -> usize {
        match self.request_ended {
            true => 0,
            // Everything was sent except the end of the body, which is read now.
            false if self.body.is_complete() => usize::MAX,
            false => self.body.due().unwrap_or(0),
        }
    }

    fn push_body(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let is_due = self.body.due().is_some_and(|due| piece.len() <= due);
        debug_assert!(piece.is_empty() || is_due, "{} bytes were not asked for", piece.len());
        if !piece.is_empty()
            && let Ok(head) = self.body.take_head(piece.len())
        {
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(piece);
        }
    }

    fn end_body(&mut self, _trailers: Option<&Fields>, out: &mut Vec<u8>) {
        self.request_ended = true;
        self.reply(out);
    }

    /// Sends an empty packet if the container requested more than the body has.
    fn reply(&mut self, out: &mut Vec<u8>) {
        if self.body.due().is_some_and(|due| due == 0 || self.request_ended)
            && let Ok(head) = self.body.take_head(0)
        {
            out.extend_from_slice(head.as_bytes());
        }
    }

    fn read_head(
        &mut self,
        input: &[u8],
        response: &mut BackendResponse,
    ) -> Result<Step, FaultReport> {
        let step = self.feed(input)?;
        let event = self.on_event(step.event)?;
        match event {
            Event::Head => {
                response.status = self.decoder.status();
                response.fields.clear();
                response.fields.append(self.decoder.fields());
                let length = self.decoder.content_length();
                let bodiless = self.is_head_request || !response.status.allows_content();
                if bodiless {
                    push_length(length, &mut response.fields);
                }
                (response.length, self.left) =
                    if bodiless { (Some(0), None) } else { (length, length) };
            }
            Event::Done => return Err(malformed("an end without a head")),
            _ => {}
        }
        Ok(Step { consumed: step.consumed, event })
    }

    fn read_body(&mut self, input: &[u8]) -> Result<Step, FaultReport> {
        let step = self.feed(input)?;
        let event = self.on_event(step.event)?;
        Ok(Step { consumed: step.consumed, event })
    }

    fn is_reusable(&self) -> bool {
        // Otherwise the container may still wait for a body packet, and take the next bytes for it.
        self.reuse && self.request_ended && self.decoder.is_between_packets()
    }
}
