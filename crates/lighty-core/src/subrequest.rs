//! A request within a request: another URL of ours whose answer becomes a part of the answer.
//!
//! It goes through all phases like the client's own would, with the client's fields and rights: it
//! reaches nothing that the client could not ask for itself. Its head goes nowhere.

use std::any::Any;
use std::rc::Rc;

use lighty_http::{Known, Method};

use crate::exchange::Exchange;
use crate::{Fault, pipeline};

/// Fields that speak of the client's own request: its body, which part of the answer is wanted and
/// whether at all, how it is to be coded, what becomes of the connection.
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

/// Asks for a URL, a path with or without a query, and returns the exchange with its answer.
/// `within` is what the parts of one answer share ([`Exchange::within`]).
///
/// # Errors
/// [`Fault::NotFound`]: it is no URL.
pub async fn answer(
    parent: &Exchange,
    method: Method,
    target: &[u8],
    within: Rc<dyn Any>,
) -> Result<Box<Exchange>, Fault> {
    let mut part = begin(parent, method);
    part.within = Some(within);
    part.set_target(target).map_err(|_| Fault::NotFound)?;
    part.request.target_raw.clone_from(&part.request.target);
    part.resolve_settings();
    // A future within a future of its own kind.
    Box::pin(pipeline::respond(&mut part)).await;
    Ok(part)
}

fn begin(parent: &Exchange, method: Method) -> Box<Exchange> {
    let (services, settings) = (Rc::clone(&parent.services), Rc::clone(&parent.settings));
    let mut part = Box::new(Exchange::new(services, settings));
    let (from, request) = (&parent.request, &mut part.request);
    request.method = Some(method);
    request.version = from.version;
    request.scheme = from.scheme;
    request.line.clone_from(&from.line);
    request.authority.clone_from(&from.authority);
    request.fields = from.fields.clone();
    for name in OF_THE_WHOLE {
        request.fields.remove(name);
    }
    request.peer = from.peer;
    request.local_socket = Rc::clone(&from.local_socket);
    request.local_port = from.local_port;
    request.peer_text = Rc::clone(&from.peer_text);
    part.environment = parent.environment.clone();
    part.link.clone_from(&parent.link);
    part.started_us = parent.started_us;
    part.ordinal = parent.ordinal;
    part.fields_changed = parent.fields_changed;
    part.client_known = parent.client_known;
    part.counted = parent.counted;
    part.share_id(parent);
    part.key_bucket.clone_from(&parent.key_bucket);
    part
}
