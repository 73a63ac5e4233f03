//! Keeps malformed requests in the worker's list of bad messages, for operators.

use lighty_core::Request;
use lighty_core::machine::bad_messages::{BadMessage, BadMessageKind, Excerpt};

use super::Conn;

impl Conn {
    /// Keeps a refused request.
    #[cold]
    pub(super) fn keep_malformed(&self, request: &Request, reason: &str, excerpt: Excerpt) {
        self.keep_bad(request.line.escape_ascii().to_string(), reason, excerpt);
    }

    /// Keeps the beginning of a frame that ended the connection.
    #[cold]
    pub(super) fn keep_malformed_frame(&self, frame: &[u8], reason: &str) {
        self.keep_bad(String::new(), reason, Excerpt::of(frame, None));
    }

    fn keep_bad(&self, request: String, reason: &str, excerpt: Excerpt) {
        let machine = &self.worker().machine;
        machine.bad_messages.add(BadMessage {
            unix_s: machine.clock.unix_s(),
            kind: BadMessageKind::Request,
            client: self.peer_text.as_ref().to_owned(),
            backend: String::new(),
            request,
            reason: reason.to_owned(),
            excerpt,
        });
    }
}

/// A request that arrived in frames, as lines.
pub(super) fn head_of(request: &Request) -> Vec<u8> {
    let mut head = request.line.clone();
    head.extend_from_slice(b"\r\n");
    for (name, value) in request.fields.iter() {
        for part in [name, b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head
}
