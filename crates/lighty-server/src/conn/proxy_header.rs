//! Reads the PROXY protocol header that may precede the first request.

use std::rc::Rc;

use lighty_core::log::About;
use lighty_core::status_board::ConnState;
use lighty_core::{Level, limits};
use lighty_io::transport::Peer;
use lighty_modules::extforward::ExtforwardSettings;
use lighty_wire::proxy_protocol::{self, Endpoints, Header, Parsed, V2_BYTES_MAX};

use super::H1Exchange;
use super::h1::{Conn, take_peer};
use crate::conn_table::Limits;
use crate::worker::Worker;

/// Reads the header, if one is expected, and applies it to `conn`. On failure logs the reason and
/// returns `false`; the caller must close the connection.
pub(crate) async fn read(conn: &mut Conn, h1: &mut H1Exchange, worker: &Worker) -> bool {
    let ex = &mut h1.exchange;
    take_peer(&mut ex.request, conn);
    ex.request.local_socket = Rc::clone(&conn.listener_info.name);
    ex.resolve_settings();
    let settings = Rc::clone(&ex.settings);
    let own = settings.module::<ExtforwardSettings>();
    if !own.expects_header() {
        return true;
    }
    if !own.trusts(&conn.peer) {
        log(conn, worker, "extforward.hap-PROXY: not among extforward.forwarder");
        return false;
    }
    let head_s = worker.global().server.max_head_time_s;
    conn.entry.limit(Limits { head_s, ..conn.entry.limits() });
    conn.entry.wait_for(ConnState::Head, worker.now_s());
    let taken = wait(conn, h1, own.takes_certificates()).await;
    if let Err(why) = &taken {
        let late = conn.entry.kicked().map(|_| "server.max-head-time ran out");
        log(conn, worker, &format!("extforward.hap-PROXY: {}", late.unwrap_or(*why)));
    }
    taken.is_ok()
}

async fn wait(conn: &mut Conn, h1: &mut H1Exchange, verify: bool) -> Result<(), &'static str> {
    loop {
        {
            let mut input = h1.input.borrow_mut();
            match proxy_protocol::parse(input.pending(), V2_BYTES_MAX) {
                Err(fault) => return Err(fault.words()),
                Ok(Parsed::Complete { consumed, header }) => {
                    take(conn, &header, verify);
                    input.consume(consumed);
                    return Ok(());
                }
                Ok(Parsed::Partial) => {}
            }
        }
        let most = limits::HEAD_BYTES_MAX + 1;
        let filled = std::future::poll_fn(|cx| h1.input.borrow_mut().poll_fill(cx, most)).await;
        if !filled.is_ok_and(|count| count > 0) {
            return Err("the connection ended before its header");
        }
    }
}

fn take(conn: &mut Conn, header: &Header<'_>, verify: bool) {
    if let Endpoints::Inet { source, .. } = header.endpoints {
        conn.peer = Peer::Inet(source);
        conn.peer_text = source.ip().to_canonical().to_string().into();
    }
    let Some(tls) = header.extensions.tls else { return };
    if tls.is_encrypted {
        conn.scheme = "https";
    }
    if verify && tls.is_verified() {
        conn.certified = tls.common_name.map(Rc::from);
    }
}

fn log(conn: &Conn, worker: &Worker, message: &str) {
    let about = About { client: &conn.peer_text, ..About::default() };
    worker.machine.log.line(Level::Notice, worker.machine.clock.unix_s(), message, about);
}
