//! The request to the service: the client's request without its body, and fields that tell of it.

use lighty_core::Exchange;
use lighty_core::pipeline::locate::is_locating;
use lighty_core::pipeline::subrequest::ServiceRequest;
use lighty_http::hop_by_hop::end_to_end;
use lighty_http::variable_name::is_alias;
use lighty_http::{Fields, Known, Method, uri};
use lighty_io::transport::Peer;

use super::rule::ForwardRule;
use super::spelling::begins_with;

/// Beginnings of fields that describe the client's body, conditions, connection and proxies. The
/// service gets none of them.
const LEFT_OUT: [&[u8]; 5] =
    [b"content-", b"if-", b"sec-websocket-", b"x-forwarded-", b"x-original-"];

/// Further fields that the service does not get.
const LEFT_OUT_WHOLE: [&[u8]; 7] =
    [b"host", b"expect", b"range", b"forwarded", b"x-real-ip", b"max-forwards", b"te"];

/// The URL that the service judges: path and query of the client's request, as lighty understands
/// them. The bytes as received could name another resource to the service than to the backend, by
/// dot segments or encoded slashes.
pub(super) fn judged_target(ex: &Exchange) -> Vec<u8> {
    let request = &ex.request;
    if is_locating(ex) {
        return request.target.clone();
    }
    let mut target = Vec::new();
    let all = uri::ParseOpts::default();
    let normalised = uri::normalise(&request.target_raw, &all, &mut target);
    if normalised.is_ok() { target } else { request.target.clone() }
}

/// Builds the request.
pub(super) fn build(ex: &Exchange, rule: &ForwardRule, target: &[u8]) -> ServiceRequest {
    let request = &ex.request;
    let preset = rule.preset;
    let method = request.method.unwrap_or(Method::Get);
    let mut own = Fields::default();
    push_own(ex, rule, target, method, &mut own);
    let mut fields = Fields::default();
    for (known, name, value) in end_to_end(&request.fields) {
        if rule.passes_to_service(name) && !is_left_out(name) && !is_set(&own, name) {
            fields.push_looked_up(known, name, value);
        }
    }
    fields.append(&own);
    let own_target = match preset.appends_target {
        true => [rule.target.trim_end_matches('/').as_bytes(), target].concat(),
        false => rule.target.as_bytes().to_vec(),
    };
    let authority = match &rule.authority {
        Some(own) if !preset.keeps_host => own.as_bytes().to_vec(),
        _ => ex.url_parts().authority.to_vec(),
    };
    let method = if preset.keeps_method { method } else { Method::Get };
    ServiceRequest { method, target: own_target, authority, fields }
}

fn is_left_out(name: &[u8]) -> bool {
    LEFT_OUT.iter().any(|beginning| begins_with(name, beginning))
        || LEFT_OUT_WHOLE.iter().any(|whole| is_alias(whole, name))
}

/// True if lighty sets the field itself, in any spelling.
fn is_set(own: &Fields, name: &[u8]) -> bool {
    own.iter().any(|(set, _)| is_alias(set, name))
}

/// Adds the fields that tell of the client's request.
fn push_own(ex: &Exchange, rule: &ForwardRule, target: &[u8], method: Method, own: &mut Fields) {
    let request = &ex.request;
    let host = ex.url_parts().authority;
    let method = method.as_str().as_bytes();
    if let Some(client) = request.remote_ip() {
        own.push_known(Known::XForwardedFor, client.to_string());
    }
    own.push_known(Known::XForwardedProto, request.scheme);
    own.push_known(Known::XForwardedHost, host);
    own.push(b"X-Forwarded-Method", method);
    own.push(b"X-Forwarded-Uri", target);
    if rule.preset.tells_original {
        let url = [request.scheme.as_bytes(), b"://", host, target].concat();
        own.push(b"X-Original-URL", &url);
        own.push(b"X-Original-URI", target);
        own.push(b"X-Original-Method", method);
    }
    if let (true, Peer::Inet(client)) = (rule.preset.tells_address, &request.peer) {
        own.push(b"Remote-Addr", client.ip().to_canonical().to_string().as_bytes());
        own.push(b"Remote-Port", client.port().to_string().as_bytes());
    }
    for (name, value) in rule.set_fields.iter() {
        own.remove_named(name.as_bytes());
        own.push(name.as_bytes(), value.as_bytes());
    }
}
