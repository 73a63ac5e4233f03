//! The variables that describe a request to programs and pages: RFC 3875 section 4.1.

use std::net::SocketAddr;

use lighty_http::{Method, Status, host};
use lighty_io::transport::Peer;
use lighty_wire::cgi::Params;

use crate::exchange::Exchange;
use crate::log::Level;

/// Seconds between two error-log lines about withheld fields.
const LOG_AGAIN_S: i64 = 10;

/// Maximum field names listed in such a line.
const LOGGED_NAMES_MAX: usize = 5;

/// Calls `visit` with the name and value of each variable; `script` is the responding file. No
/// value contains a NUL, so each fits a program's environment.
pub fn for_each(ex: &Exchange, script: &[u8], mut visit: impl FnMut(&[u8], &[u8])) {
    let request = &ex.request;
    let server_addr = server_addr(ex);
    let extra: Vec<_> = ex.environment.iter().collect();
    let user = ex.request.remote_user.as_slice();
    let (script_name, path_info) = split_path(ex);
    let params = Params {
        server_software: ex.settings.core.tag.as_bytes(),
        server_name: server_name(ex),
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
        script_name,
        path_info,
        script_filename: script,
        document_root: &ex.physical.docroot,
        https: request.scheme == "https",
        redirect_status: redirect_status(ex),
        extra: &extra,
        odd_names: ex.settings.server.odd_field_variables,
        ..Params::new(&request.fields)
    };
    let colliding = params.for_each(|name, value| {
        if !value.contains(&0) {
            visit(name, value);
        }
    });
    if colliding > 0 {
        log_colliding(ex, &params);
    }
}

/// `SERVER_NAME`: `server.name` if set, as in lighttpd 1.4, otherwise the requested host without
/// its port.
pub fn server_name(ex: &Exchange) -> &[u8] {
    match &ex.settings.core.server_name {
        Some(named) if !named.is_empty() => named.as_bytes(),
        _ => host::parts(&ex.request.authority).0,
    }
}

/// Counts fields withheld from programs because their names collide or could, and logs some of
/// them, rate-limited.
#[cold]
pub fn log_colliding(ex: &Exchange, params: &Params<'_>) {
    let counters = &ex.machine.counters;
    let names: Vec<&[u8]> = params.colliding().collect();
    counters.fields_withheld.add(names.len() as u64);
    let now_s = ex.machine.clock.unix_s();
    if now_s.saturating_sub(counters.logged_withheld_s.get()) < LOG_AGAIN_S {
        return;
    }
    counters.logged_withheld_s.set(now_s);
    let withheld: Vec<String> =
        names.iter().take(LOGGED_NAMES_MAX).map(|name| name.escape_ascii().to_string()).collect();
    let more = if names.len() > LOGGED_NAMES_MAX { ", ..." } else { "" };
    let all = counters.fields_withheld.get();
    let text = format!(
        "not passed to the program: {}{more}: as a variable it could have the name of another \
         field ({all} such fields so far)",
        withheld.join(", ")
    );
    ex.log(Level::Notice, &text);
}

/// `REDIRECT_STATUS`: the error a program handles, otherwise 200.
pub fn redirect_status(ex: &Exchange) -> u16 {
    ex.state.error_handler.and(ex.state.error_status).map_or(200, Status::code)
}

/// `SCRIPT_NAME` and `PATH_INFO` of the file found. Both are taken from the URL's path, wherever
/// the file is and whatever the case of its name.
pub fn split_path(ex: &Exchange) -> (&[u8], &[u8]) {
    let (path, info) = (&*ex.request.path, &*ex.physical.path_info);
    let split = path.len().checked_sub(info.len()).map(|at| path.split_at(at));
    match split {
        Some((name, rest)) if rest.eq_ignore_ascii_case(info) => (name, rest),
        _ => (path, info),
    }
}

/// `SERVER_ADDR`. For a wildcard listener, the address of the connection.
fn server_addr(ex: &Exchange) -> String {
    let listener: Option<SocketAddr> = ex.request.local_socket.parse().ok();
    let listener = listener.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
    let requested = || ex.client.as_ref().and_then(|client| client.borrow().local_ip());
    listener.or_else(requested).map(|ip| ip.to_string()).unwrap_or_default()
}
