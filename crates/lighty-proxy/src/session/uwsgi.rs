//! uwsgi: the variables in one packet, then the body. The response has no framing.

use lighty_core::FaultReport;
use lighty_wire::uwsgi::{Modifiers, VARS_BYTES_MAX, VarsWriter};

use super::head_unfit;
use crate::request::cgi_variables::{RequestListener, write_variables};
use crate::request::upstream_request::UpstreamRequest;
use crate::response::unframed_session::{UnframedSession, VariablesBlock};

/// Creates a session over uwsgi.
pub(super) fn session(modifier1: &u8) -> UnframedSession<Modifiers> {
    UnframedSession::new(Modifiers { first: *modifier1, second: 0 })
}

impl VariablesBlock for Modifiers {
    fn encode(
        &self,
        upstream_request: &UpstreamRequest<'_>,
        listener: &mut Option<RequestListener>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport> {
        let mut writer = VarsWriter::new(*self, out);
        write_variables(upstream_request, listener, |params| {
            params.for_each(|name, value| writer.pair(name, value))
        });
        let needed_bytes = writer.needed_bytes();
        writer.finish().map_err(|_| head_unfit("uwsgi", needed_bytes, VARS_BYTES_MAX))
    }
}
