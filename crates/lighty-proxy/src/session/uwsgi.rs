//! uwsgi: the variables in one packet, then the body. The response has no framing.

use lighty_core::FaultReport;
use lighty_http::Fields;
use lighty_wire::uwsgi::{Modifiers, VARS_BYTES_MAX, VarsWriter};

use super::{BackendResponse, Session, Step, head_unfit};
use crate::request::cgi_variables::{RequestListener, write_variables};
use crate::request::upstream_request::UpstreamRequest;
use crate::response::cgi_response::CgiResponse;

/// A request and its response over uwsgi.
pub(super) struct UwsgiSession {
    modifiers: Modifiers,
    response: CgiResponse,
    listener: Option<RequestListener>,
}

/// Creates a session over uwsgi.
pub(super) fn session(modifier1: &u8) -> UwsgiSession {
    UwsgiSession {
        modifiers: Modifiers { first: *modifier1, second: 0 },
        response: CgiResponse::new(),
        listener: None,
    }
}

impl Session for UwsgiSession {
    fn clear(&mut self) {
        self.response.clear();
    }

    fn open(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport> {
        self.response.begin(upstream_request.ex.request.method);
        let mut writer = VarsWriter::new(self.modifiers, out);
        write_variables(upstream_request, &mut self.listener, |params| {
            params.for_each(|name, value| writer.pair(name, value))
        });
        let needed_bytes = writer.needed_bytes();
        writer.finish().map_err(|_| head_unfit("uwsgi", needed_bytes, VARS_BYTES_MAX))
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
