//! The variables that tell programs and pages of their request: RFC 3875 section 4.1.

use std::net::SocketAddr;

use lighty_http::{Method, Status, host};
use lighty_io::transport::Peer;
use lighty_wire::cgi::Params;

use crate::exchange::Exchange;

/// Calls `visit` with the name and value of each variable; `script` is the file that answers. No
/// name holds `=`, and nothing a NUL: each of them can be in a program's environment.
pub fn for_each(ex: &Exchange, script: &[u8], mut visit: impl FnMut(&[u8], &[u8])) {
    let request = &ex.request;
    let server_addr = server_addr(ex);
    let named = ex.settings.core.server_name.as_deref().unwrap_or_default().as_bytes();
    let host = host::parts(&request.authority).0;
    let extra: Vec<_> = ex.environment.iter().collect();
    let user = ex.request.remote_user.as_slice();
    let script_name = script_name(ex);
    let params = Params {
        server_software: ex.settings.core.tag.as_bytes(),
        server_name: if host.is_empty() { named } else { host },
        server_port: request.local_port,
        server_addr: server_addr.as_bytes(),
        protocol: request.version,
        remote_addr: request.peer_text.as_bytes(),
        remote_port: match request.peer {
            Peer::Inet(address) => address.port(),
            Peer::Unix => 0,
        },
        remote_user: (!user.is_empty()).then_some(user),
        method: request.method.map_or("GET", Method::as_str).as_bytes(),
        request_uri: &request.target_raw,
        redirect_uri: (request.target != request.target_raw).then_some(&*request.target),
        query: request.query(),
        content_length: if ex.body.exists() { ex.body.announced() } else { Some(0) },
        script_name: &script_name,
        path_info: &ex.physical.path_info,
        script_filename: script,
        document_root: &ex.physical.docroot,
        https: request.scheme == "https",
        redirect_status: redirect_status(ex),
        extra: &extra,
        ..Params::new(&request.fields)
    };
    params.for_each(|name, value| {
        // None of the server's own is left out here.
        if !name.contains(&0) && !value.contains(&0) && !name.contains(&b'=') {
            visit(name, value);
        }
    });
}

/// `REDIRECT_STATUS`: the error that a program is to speak for, else 200.
pub fn redirect_status(ex: &Exchange) -> u16 {
    ex.error_handler.and(ex.error_status).map_or(200, Status::code)
}

/// The URL's path up to the path info; for a directory's index file, with its name.
pub fn script_name(ex: &Exchange) -> Vec<u8> {
    let whole = &ex.request.path;
    let mut name = whole.strip_suffix(&*ex.physical.path_info).unwrap_or(whole).to_vec();
    if name.ends_with(b"/") {
        let rel = &ex.physical.rel;
        let from = rel.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        name.extend_from_slice(&rel[from..]);
    }
    name
}

/// A listener on all addresses does not tell on which of them a client came.
fn server_addr(ex: &Exchange) -> String {
    let listener: Option<SocketAddr> = ex.request.local_socket.parse().ok();
    let listener = listener.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
    let asked = || ex.link.as_ref().and_then(|link| link.borrow().local_ip());
    listener.or_else(asked).map(|ip| ip.to_string()).unwrap_or_default()
}
