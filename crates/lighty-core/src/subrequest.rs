//! A request within a request: another local URL whose response becomes part of the response.
//!
//! It goes through all phases like the client's own, with the client's fields and privileges, so it
//! reaches nothing that the client could not request itself. Its head is discarded.

use std::rc::Rc;

use lighty_http::{Known, Method};

use crate::exchange::Exchange;
use crate::extensions::Extension;
use crate::stage::Stage;
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

/// Requests a URL, a path with or without a query, and returns the exchange with its response.
/// Its exchange begins with what features let it inherit, and with `within`.
///
/// # Errors
/// [`Fault::NotFound`] if it is not a URL.
pub async fn answer<T: Extension>(
    parent: &Exchange,
    method: Method,
    target: &[u8],
    within: T,
) -> Result<Box<Exchange>, Fault> {
    let mut part = begin(parent, method);
    *part.ext_mut() = within;
    part.set_target(target).map_err(|_| Fault::NotFound)?;
    part.request.target_raw.clone_from(&part.request.target);
    part.resolve_settings();
    // Boxed: a future that contains one of its own kind.
    Box::pin(pipeline::respond(&mut part)).await;
    Ok(part)
}

fn begin(parent: &Exchange, method: Method) -> Box<Exchange> {
    let mut part = Box::new(Exchange::new(&parent.generation));
    part.settings = Rc::clone(&parent.settings);
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
    part.client.clone_from(&parent.client);
    part.stages = parent.stages;
    part.enter(Stage::Head);
    part.ordinal = parent.ordinal;
    part.inherit(parent);
    part.state.keeps_settings = parent.state.keeps_settings;
    part.share_id(parent);
    part.state.key_bucket.clone_from(&parent.state.key_bucket);
    part
}
