//! The session of SCGI and uwsgi: a block of variables, the body, and a response without framing.

use lighty_core::FaultReport;
use lighty_http::Fields;

use super::cgi_response::CgiResponse;
use crate::request::cgi_variables::RequestListener;
use crate::request::upstream_request::UpstreamRequest;
use crate::session::{BackendResponse, Session, Step};

/// Encoding of a request's variables.
pub(crate) trait VariablesBlock {
    /// Appends the block.
    ///
    /// # Errors
    /// The protocol cannot express the request.
    fn encode(
        &self,
        upstream_request: &UpstreamRequest<'_>,
        listener: &mut Option<RequestListener>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport>;
}

/// A request that is one block of variables before its body, and a response without framing.
pub(crate) struct UnframedSession<B> {
    block: B,
    response: CgiResponse,
    listener: Option<RequestListener>,
}

impl<B> UnframedSession<B> {
    pub(crate) fn new(block: B) -> Self {
        Self { block, response: CgiResponse::new(), listener: None }
    }
}

impl<B: VariablesBlock> Session for UnframedSession<B> {
    fn clear(&mut self) {
        self.response.clear();
    }

    fn open(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport> {
        self.response.begin(upstream_request.ex.request.method);
        self.block.encode(upstream_request, &mut self.listener, out)
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
