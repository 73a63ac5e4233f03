//! Keeps malformed responses of backends in the worker's list of bad messages, for operators.

use lighty_core::Fault;
use lighty_core::machine::bad_messages::{BadMessage, BadMessageKind, Excerpt};
use lighty_http::Method;
use lighty_wire::http1::fault_position;

use super::Serving;
use super::local::Local;
use crate::connect::pool::Connection;
use crate::serve::upstream_call::{CallFailure, UpstreamCall};
use crate::upstream::spec::Protocol;

/// Maximum bytes kept of a body.
const BODY_BYTES_MAX: usize = 64;

impl Serving<'_> {
    /// Keeps the head of a response that has failed a call, if it is malformed.
    pub(super) fn keep_bad_response(
        &self,
        failure: &CallFailure,
        call: &UpstreamCall,
        connection: &Connection,
    ) {
        let CallFailure::Backend { fault, .. } = failure else { return };
        if !matches!(fault.fault, Fault::BackendMalformed | Fault::BackendHeadTooLarge) {
            return;
        }
        let head = call.pending();
        let excerpt = match self.upstream.spec.protocol {
            Protocol::Http { .. } => Excerpt::of(head, fault_position::in_response(head)),
            // Frames of the machine, which are no head of a response.
            Protocol::Http2 {} => Excerpt::default(),
            _ => Excerpt::of(head, None),
        };
        let request = &self.ex.request;
        let method = request.method.map_or("", Method::as_str);
        self.local.bad_messages.add(BadMessage {
            unix_s: self.local.clock.unix_s(),
            kind: BadMessageKind::Response,
            client: request.peer_text.as_ref().to_owned(),
            backend: connection.permit.address.spec.text.as_ref().to_owned(),
            request: format!("{method} {}", request.target_raw.escape_ascii()),
            reason: fault.detail.clone().into_owned(),
            excerpt,
        });
    }
}

impl Local {
    /// Keeps the beginning of the input that is no body.
    #[cold]
    pub(crate) fn keep_bad_body(&self, connection: &Connection, input: &[u8], reason: &str) {
        let shown = &input[..input.len().min(BODY_BYTES_MAX)];
        self.bad_messages.add(BadMessage {
            unix_s: self.clock.unix_s(),
            kind: BadMessageKind::Response,
            client: String::new(),
            backend: connection.permit.address.spec.text.as_ref().to_owned(),
            request: String::new(),
            reason: format!("in the body: {reason}"),
            excerpt: Excerpt::of(shown, Some(0).filter(|_| !shown.is_empty())),
        });
    }
}
