//! Turns a backend's response head into the client's.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use lighty_config::Undecided;
use lighty_core::exchange::response::Maker;
use lighty_core::pipeline::keep_owed;
use lighty_core::pipeline::sendfile;
use lighty_core::{Exchange, FarEnd, Relay, Response, Step, Tunnel, TunnelRoute};
use lighty_http::hop_by_hop::{append_end_to_end, end_to_end};
use lighty_http::{Fields, Known, Status};
use lighty_io::transport::ByteStream;

use crate::connect::pool::Connection;
use crate::response::mapping::{self, Mapping};
use crate::route::rules::Route;
use crate::route::tunnel_route::BackendRoute;
use crate::serve::local::Local;
use crate::serve::upstream_call::UpstreamCall;

/// Forwards an interim response.
pub(crate) fn pass_interim(ex: &Exchange, call: &mut UpstreamCall) {
    let head = &mut call.response;
    ex.pass_interim(head.status, &head.fields);
    head.clear();
}

/// Copies the backend's head into the response, mapped for the client.
///
/// # Errors
/// A pattern ran into its limit.
pub(crate) fn take_head(
    ex: &mut Exchange,
    call: &UpstreamCall,
    route: &Route,
) -> Result<(), Undecided> {
    let head = &call.response;
    let response = &mut ex.response;
    response.maker = Maker::Backend;
    response.status = head.status;
    take_fields(&head.fields, response);
    let request = &ex.request;
    let (requested, sent_host) = (&*request.authority, &*call.rewritten.host);
    let mapping = Mapping::of_response(route, requested, sent_host, request.scheme == "https");
    mapping.map_fields(&mut response.fields);
    mapping::rewrite(&mut response.fields, &route.response.rewrite)
}

/// Replaces an error page by lighty's own (`server.error-intercept`): only the status and its
/// fields remain.
pub(crate) fn intercept(ex: &mut Exchange) {
    let mut owed = Fields::default();
    keep_owed(&ex.response.fields, &mut owed);
    ex.fail_status(ex.response.status);
    ex.response.fields.append(&owed);
}

/// Copies the end-to-end fields. Content-Length is kept for HEAD and 304 if it is in canonical
/// form; otherwise the body determines it.
fn take_fields(fields: &Fields, response: &mut Response) {
    if !response.fields.is_empty() {
        response.yield_to(fields);
    }
    append_end_to_end(fields, &mut response.fields);
    response.drop_empty();
    if response.status == Status::UPGRADE_REQUIRED {
        // RFC 9110 section 15.5.22: a 426 must have the Upgrade field.
        for protocol in fields.get_all(Known::Upgrade) {
            response.fields.push_known(Known::Upgrade, protocol);
        }
    }
    sendfile::take_out(&mut response.fields);
    let mut lengths = fields.get_all(Known::ContentLength);
    let Some(value) = lengths.next() else { return };
    response.head_content_length = lighty_http::decimal::parse(value);
    let is_plain = value == b"0" || matches!(value, [b'1'..=b'9', ..]);
    if is_plain && lengths.next().is_none() && response.status.allows_content() {
        response.declared_length = response.head_content_length;
    } else {
        response.fields.remove(Known::ContentLength);
    }
}

/// Copies an authorizer's `Variable-NAME` fields to the request (FastCGI 1.0 section 6.3).
pub(crate) fn take_variables(ex: &mut Exchange, fields: &Fields) {
    const PREFIX: &[u8] = b"variable-";
    for (name, value) in fields.iter() {
        if let Some((prefix, name)) = name.split_at_checked(PREFIX.len())
            && prefix.eq_ignore_ascii_case(PREFIX)
            && !name.is_empty()
        {
            ex.environment.set(name, value);
        }
    }
}

/// Starts the tunnel after the backend accepted an upgrade.
pub(crate) fn hand_over(
    ex: &mut Exchange,
    mut call: Box<UpstreamCall>,
    connection: Connection,
    (local, route): (&Rc<Local>, &Arc<Route>),
) -> Step<'static> {
    let route = BackendRoute::of_request(ex, route, local, &connection.permit, None);
    let head = &call.response;
    let response = &mut ex.response;
    response.status = Status::SWITCHING_PROTOCOLS;
    for (_, name, value) in end_to_end(&head.fields) {
        response.fields.push(name, value);
    }
    if let Some(protocol) = head.fields.get(Known::Upgrade) {
        response.fields.push_known(Known::Upgrade, protocol);
    }
    let early = call.take_pending();
    response.tunnel = Some(tunnel(connection, early, local, route));
    response.answered = true;
    Step::Answered
}

/// A tunnel between a client and a backend; `early` are the bytes that the backend has already
/// sent.
pub(crate) fn tunnel(
    connection: Connection,
    early: Bytes,
    local: &Local,
    route: Option<Rc<dyn TunnelRoute>>,
) -> Box<dyn Tunnel> {
    let idle_ms = connection.permit.upstream.spec.timeouts.tunnel_ms;
    let (clock, buffers) = (local.clock.clone(), local.pieces.clone());
    Box::new(Relay { far: connection, early, idle_ms, route, clock, buffers })
}

impl FarEnd for Connection {
    fn bytes(&self) -> &dyn ByteStream {
        &*self.stream
    }
}
