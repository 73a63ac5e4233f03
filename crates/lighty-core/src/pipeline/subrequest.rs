//! Subrequests: requests for another local URL whose response becomes part of a response.
//!
//! It goes through all phases like the client's own, with the client's fields and privileges, so it
//! reaches nothing that the client could not request itself. Its head is discarded.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use lighty_http::{Fields, Known, Method};
use lighty_io::transport::Peer;

use crate::exchange::Exchange;
use crate::exchange::body::RequestBody;
use crate::exchange::extensions::Extension;
use crate::exchange::stage::Stage;
use crate::module::Step;
use crate::settings::services::ServiceSpec;
use crate::{Fault, pipeline};

/// Fields specific to the client's own request: its body, conditions and ranges, encodings, and
/// connection handling.
const OF_THE_WHOLE: [Known; 18] = [
    Known::ContentLength,
    Known::ContentType,
    Known::ContentEncoding,
    Known::TransferEncoding,
    Known::Trailer,
    Known::Te,
    Known::Expect,
    Known::IfMatch,
    Known::IfNoneMatch,
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
    Known::IfRange,
    Known::Range,
    Known::AcceptEncoding,
    Known::Connection,
    Known::KeepAlive,
    Known::Upgrade,
    Known::ProxyConnection,
];

/// Requests a URL, a path with or without a query, and returns the exchange with its response. The
/// subrequest starts with the data that features let it inherit, and with `within`.
///
/// # Errors
/// [`Fault::NotFound`] if `target` is not a valid URL.
pub async fn respond<T: Extension>(
    parent: &Exchange,
    method: Method,
    target: &[u8],
    within: T,
) -> Result<Box<Exchange>, Fault> {
    respond_with(parent, method, target, within, Own::default()).await
}

/// Request data of a subrequest that does not come from its parent.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Fields that replace the client's fields of the same names.
    pub fields: Fields,
    /// The content; empty for none.
    pub body: Bytes,
    /// A backend learns the client's address.
    pub tells_client: bool,
}

impl Own {
    fn give(self, part: &mut Exchange) {
        for (name, _) in self.fields.iter() {
            part.request.fields.remove_named(name);
        }
        part.request.fields.append(&self.fields);
        if !self.body.is_empty() {
            let length = self.body.len().to_string();
            part.request.fields.set(Known::ContentLength, length);
            part.body = RequestBody::given(self.body);
        }
    }
}

/// Like [`respond`], with fields and a body.
///
/// # Errors
/// [`Fault::NotFound`] if `target` is not a valid URL.
pub async fn respond_with<T: Extension>(
    parent: &Exchange,
    method: Method,
    target: &[u8],
    within: T,
    own: Own,
) -> Result<Box<Exchange>, Fault> {
    let mut part = begin(parent, method);
    *part.ext_mut() = within;
    own.give(&mut part);
    part.set_target(target).map_err(|_| Fault::NotFound)?;
    part.request.target_raw.clone_from(&part.request.target);
    part.resolve_settings();
    // Boxed, because the future contains one of its own type.
    Box::pin(pipeline::respond(&mut part)).await;
    Ok(part)
}

/// Requests a URL from an HTTP backend at an address, `host:port` or `unix:/path`. The request has
/// only the fields in `own`. It waits and is limited like other requests to backends.
///
/// # Errors
/// [`Fault::NotFound`] if `target` is not a valid URL, or if no module has backends.
pub async fn respond_from_backend(
    parent: &Exchange,
    method: Method,
    (address, authority): (&str, &[u8]),
    target: &[u8],
    own: Own,
) -> Result<Box<Exchange>, Fault> {
    let mut part = begin(parent, method);
    part.settings = Rc::clone(&part.generation.global);
    part.request.fields.clear();
    part.request.fields.set(Known::Host, authority);
    part.request.authority = authority.to_ascii_lowercase();
    part.environment.clear();
    // The backend's interim responses must not reach the client.
    part.client = None;
    if !own.tells_client {
        part.request.peer = Peer::Unix;
        part.request.peer_text = "".into();
    }
    own.give(&mut part);
    part.set_target(target).map_err(|_| Fault::NotFound)?;
    part.request.target_raw.clone_from(&part.request.target);
    let generation = Rc::clone(&part.generation);
    let backends = generation.modules.backends().ok_or(Fault::NotFound)?;
    if let Step::Wait(wait) = backends.send(&mut part, address) {
        drop(wait.await);
    }
    // A fault's status is meant for clients; the backend has not responded with it.
    match part.state.fault {
        Some(fault) => Err(fault),
        None => Ok(part),
    }
}

/// A request to a service about another request.
#[derive(Debug)]
pub struct ServiceRequest {
    /// The method; a body is never sent.
    pub method: Method,
    /// Path and query.
    pub target: Vec<u8>,
    /// Value of Host.
    pub authority: Vec<u8>,
    /// The other fields.
    pub fields: Fields,
}

/// Asks a service, and returns the exchange with its response. A dropped future cancels the
/// request.
///
/// # Errors
/// The fault for which there is no response. It is in the log.
pub async fn ask_service(
    parent: &Exchange,
    service: &Arc<ServiceSpec>,
    request: ServiceRequest,
) -> Result<Box<Exchange>, Fault> {
    let mut part = begin_apart(parent, request.method);
    part.settings = Rc::clone(&part.generation.global);
    part.request.path_end =
        request.target.iter().position(|byte| *byte == b'?').unwrap_or(request.target.len());
    part.request.target_raw.clone_from(&request.target);
    part.request.target = request.target;
    part.request.fields = request.fields;
    part.request.fields.set(Known::Host, &request.authority);
    part.request.authority = request.authority;
    let generation = Rc::clone(&part.generation);
    let backends = generation.modules.backends().ok_or(Fault::Internal)?;
    if let Step::Wait(wait) = backends.ask(&mut part, service) {
        drop(wait.await);
    }
    match part.state.fault {
        Some(fault) => Err(fault),
        None => Ok(part),
    }
}

fn begin(parent: &Exchange, method: Method) -> Box<Exchange> {
    let mut part = begin_apart(parent, method);
    part.settings = Rc::clone(&parent.settings);
    let (from, request) = (&parent.request, &mut part.request);
    request.authority.clone_from(&from.authority);
    request.fields = from.fields.clone();
    for name in OF_THE_WHOLE {
        request.fields.remove(name);
    }
    part.environment = parent.environment.clone();
    part.client.clone_from(&parent.client);
    part
}

/// Begins a request without its parent's fields, variables and client: no interim response reaches
/// the client.
fn begin_apart(parent: &Exchange, method: Method) -> Box<Exchange> {
    let mut part = Box::new(Exchange::new(&parent.generation));
    let (from, request) = (&parent.request, &mut part.request);
    request.method = Some(method);
    request.version = from.version;
    request.scheme = from.scheme;
    request.line.clone_from(&from.line);
    request.peer = from.peer;
    request.local_socket = Rc::clone(&from.local_socket);
    request.local_port = from.local_port;
    request.peer_text = Rc::clone(&from.peer_text);
    part.stages = parent.stages;
    part.enter(Stage::Head);
    part.ordinal = parent.ordinal;
    part.inherit(parent);
    part.state.keeps_settings = parent.state.keeps_settings;
    part.share_id(parent);
    part.state.key_bucket.clone_from(&parent.state.key_bucket);
    part
}
