//! SCGI: the variables in one block, then the body. The response has no framing.

use lighty_core::{Fault, FaultReport};
use lighty_wire::scgi::{self, HeadWriter, ScgiFault};

use super::head_unfit;
use crate::request::cgi_variables::{RequestListener, body_length, unfit, write_variables};
use crate::request::upstream_request::UpstreamRequest;
use crate::response::unframed_session::{UnframedSession, VariablesBlock};

/// The head of SCGI.
pub(super) struct ScgiHead;

/// Creates a session over SCGI.
pub(super) fn session() -> UnframedSession<ScgiHead> {
    UnframedSession::new(ScgiHead)
}

impl VariablesBlock for ScgiHead {
    fn encode(
        &self,
        upstream_request: &UpstreamRequest<'_>,
        listener: &mut Option<RequestListener>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport> {
        let length = body_length(upstream_request).ok_or_else(|| {
            FaultReport::new(Fault::LengthRequired, "SCGI announces the body's length first")
        })?;
        let mut writer = HeadWriter::new(length, out);
        write_variables(upstream_request, listener, |params| {
            params.for_each(|name, value| writer.pair(name, value))
        });
        let needed_bytes = writer.needed_bytes();
        writer.finish().map_err(|fault| match fault {
            ScgiFault::HeadTooLarge => head_unfit("SCGI", needed_bytes, scgi::HEAD_BYTES_MAX),
            other => unfit(other.message()),
        })
    }
}
