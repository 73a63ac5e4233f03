//! The variables of a request to a FastCGI, SCGI or uwsgi application.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;

use lighty_core::exchange::variables;
use lighty_core::{Fault, FaultReport};
use lighty_io::transport::Peer;
use lighty_wire::cgi::Params;
use lighty_wire::http1::BodyFraming;

use crate::request::upstream_request::UpstreamRequest;

/// Returns the length of the request's body, if it is known.
pub(crate) fn body_length(upstream_request: &UpstreamRequest<'_>) -> Option<u64> {
    match upstream_request.framing {
        BodyFraming::Length(length) => Some(length),
        BodyFraming::None => Some(0),
        BodyFraming::Chunked => None,
    }
}

/// Passes the variables of a request to `write`, which returns the number of fields that it had to
/// leave out because their names collide. Logs their names.
pub(crate) fn write_variables(
    upstream_request: &UpstreamRequest<'_>,
    last_listener: &mut Option<RequestListener>,
    write: impl FnOnce(&mut Params<'_>) -> usize,
) {
    let listener = RequestListener::of(upstream_request, last_listener);
    let server_addr = listener.address_of(upstream_request);
    let extra: Vec<_> = upstream_request.ex.environment.iter().collect();
    let length = body_length(upstream_request);
    let mut params = params(upstream_request, server_addr.as_bytes(), length);
    params.extra = &extra;
    let colliding = write(&mut params);
    if colliding > 0 && !upstream_request.rewritten.counted_colliding.replace(true) {
        variables::log_colliding(upstream_request.ex, &params);
    }
}

/// Returns the fault of a request that the engine should have refused.
pub(crate) fn unfit(message: &'static str) -> FaultReport {
    FaultReport::new(Fault::Internal, message)
}

/// The listener of the last request, with its address as text: the next request usually has the
/// same.
pub(crate) struct RequestListener {
    name: Rc<str>,
    /// `None` for a wildcard listener.
    address: Option<Box<str>>,
}

impl RequestListener {
    /// Returns the listener of a request.
    fn of<'l>(upstream_request: &UpstreamRequest<'_>, last: &'l mut Option<Self>) -> &'l Self {
        let name = &upstream_request.ex.request.local_socket;
        let seen = last.take().filter(|seen| Rc::ptr_eq(&seen.name, name));
        last.insert(seen.unwrap_or_else(|| Self::named(name)))
    }

    fn named(name: &Rc<str>) -> Self {
        let at = name.parse::<SocketAddr>().ok().filter(|at| !at.ip().is_unspecified());
        Self { name: Rc::clone(name), address: at.map(|at| at.ip().to_string().into()) }
    }

    /// Returns the address that the client connected to; empty if it is unknown.
    fn address_of(&self, upstream_request: &UpstreamRequest<'_>) -> Cow<'_, str> {
        let own = || upstream_request.local_ip().map(|ip| ip.to_string()).unwrap_or_default();
        self.address.as_deref().map_or_else(|| own().into(), Cow::Borrowed)
    }
}

fn params<'a>(
    upstream_request: &'a UpstreamRequest<'_>,
    server_addr: &'a [u8],
    length: Option<u64>,
) -> Params<'a> {
    let ex = upstream_request.ex;
    let request = &ex.request;
    let remote_port = match request.peer {
        Peer::Inet(address) => address.port(),
        Peer::Unix => 0,
    };
    let script = &upstream_request.rewritten.script;
    Params {
        server_software: ex.settings.core.tag.as_bytes(),
        server_name: variables::server_name(ex),
        server_port: request.local_port,
        server_addr,
        protocol: request.version,
        remote_addr: request.peer_text.as_bytes(),
        remote_port,
        remote_user: (!request.remote_user.is_empty()).then_some(&*request.remote_user),
        method: request.method.map_or("GET", lighty_http::Method::as_str).as_bytes(),
        request_uri: upstream_request.rewritten.request_uri(ex),
        redirect_uri: (request.target != request.target_raw)
            .then_some(&*upstream_request.rewritten.target),
        query: upstream_request.rewritten.split_target().1.unwrap_or_default(),
        content_length: length,
        script_name: &script.name,
        path_info: &script.path_info,
        script_filename: &script.filename,
        document_root: &script.docroot,
        https: request.scheme == "https",
        redirect_status: variables::redirect_status(ex),
        odd_names: ex.settings.server.odd_field_variables,
        ..Params::new(&request.fields)
    }
}
