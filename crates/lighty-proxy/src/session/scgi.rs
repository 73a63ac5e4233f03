//! SCGI: the variables in one block, then the body. The response has no framing.

use lighty_core::{Fault, FaultReport};
use lighty_http::Fields;
use lighty_wire::scgi::{self, HeadWriter, ScgiFault};

use super::{BackendResponse, Session, Step, head_unfit};
use crate::request::cgi_variables::{RequestListener, body_length, unfit, write_variables};
use crate::request::upstream_request::UpstreamRequest;
use crate::response::cgi_response::CgiResponse;

/// A request and its response over SCGI.
pub(super) struct ScgiSession {
    response: CgiResponse,
    listener: Option<RequestListener>,
}

/// Creates a session over SCGI.
pub(super) fn session() -> ScgiSession {
    ScgiSession { response: CgiResponse::new(), listener: None }
}

impl Session for ScgiSession {
    fn clear(&mut self) {
        self.response.clear();
    }

    fn open(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport> {
        self.response.begin(upstream_request.ex.request.method);
        let length = body_length(upstream_request).ok_or_else(|| {
            FaultReport::new(Fault::LengthRequired, "SCGI announces the body's length first")
        })?;
        let mut writer = HeadWriter::new(length, out);
        write_variables(upstream_request, &mut self.listener, |params| {
            params.for_each(|name, value| writer.pair(name, value))
        });
        let needed_bytes = writer.needed_bytes();
        writer.finish().map_err(|fault| match fault {
            ScgiFault::HeadTooLarge => head_unfit("SCGI", needed_bytes, scgi::HEAD_BYTES_MAX),
            other => unfit(other.message()),
        })
    }

    fn push_body(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(piece);
    }

    fn end_body(&mut self, _trailers: Option<&Fields>, _out: &mut Vec<u8>) {}

    fn read_head(
        &mut self,
        input: &[u8],
        response: &mut BackendResponse,
    ) -> Result<Step, FaultReport> {
        self.response.read_head(input, response)
    }

    fn read_body(&mut self, input: &[u8]) -> Result<Step, FaultReport> {
        self.response.read_body(input)
    }

    fn ends_with_close(&self) -> bool {
        self.response.may_end()
    }

    fn is_reusable(&self) -> bool {
        false
    }
}
