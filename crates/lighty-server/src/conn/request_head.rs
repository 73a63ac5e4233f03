//! Turns a received head of any protocol into a request.

use lighty_core::{Exchange, Request};
use lighty_http::{Fields, Known, host};
use lighty_wire::http1::RequestHead;

/// Moves a whole head into the request without copying its buffers.
#[inline(always)]
pub(super) fn take(head: &mut RequestHead, ex: &mut Exchange) {
    take_part(head, &mut ex.request);
    if head.has_plain_path() {
        let request = &mut ex.request;
        request.path.clear();
        request.path.extend_from_slice(&request.target[..request.path_end]);
    } else {
        // The parser has already rejected undecodable paths.
        let _ = ex.decode_path();
    }
}

/// Moves the parsed part of a head.
#[inline(always)]
pub(super) fn take_part(head: &mut RequestHead, request: &mut Request) {
    request.method = head.method;
    request.version = head.version;
    head.push_path_and_query_raw(&mut request.target_raw);
    head.swap_line(&mut request.line);
    request.path_end = head.path().len();
    std::mem::swap(&mut request.fields, &mut head.fields);
    std::mem::swap(&mut request.target, &mut head.target);
    take_host(request, head.authority(), head.is_host_as_sent());
    request.upgrade = head.upgrade;
}

/// Normalises the host for conditions, logs and backends, as lighttpd does. `is_as_sent`: the
/// `Host` field is the authority.
#[inline(always)]
fn take_host(request: &mut Request, named: &[u8], is_as_sent: bool) {
    let authority = host::without_default_port(named, request.scheme);
    request.authority.extend_from_slice(authority);
    if !is_as_sent || authority.len() != named.len() {
        change_host(&mut request.fields, authority);
    }
}

#[cold]
fn change_host(fields: &mut Fields, authority: &[u8]) {
    if fields.contains(Known::Host) {
        fields.set(Known::Host, authority);
    }
}
