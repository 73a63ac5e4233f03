//! Reads the PROXY protocol header that may precede everything else on a connection.

use std::rc::Rc;

use lighty_core::log::About;
use lighty_core::{Exchange, Settings};
use lighty_io::transport::Peer;
use lighty_modules::extforward::ExtforwardSettings;
use lighty_wire::proxy_protocol::{self, Endpoints, Header, Parsed, ProxyFault, V2_BYTES_MAX};

use super::Conn;
use super::client_tls::ClientTls;
use crate::worker::conn_table::ConnLimits;

/// Bytes read at a time; a header without extensions fits. The parser refuses a header longer than
/// [`V2_BYTES_MAX`].
const PIECE_BYTES: usize = 536;

/// Reads the header, if one is expected, and applies it to `conn`. Bytes read after it stay in
/// [`Conn::early`]. On failure logs the reason and returns `false`; the caller must close the
/// connection.
pub(super) async fn read(conn: &mut Conn) -> bool {
    let settings = settings(conn);
    let own = settings.module::<ExtforwardSettings>();
    if !own.expects_header() {
        return true;
    }
    if !own.trusts(&conn.peer) {
        log(conn, "extforward.hap-PROXY: not among extforward.forwarder");
        return false;
    }
    let head_s = conn.worker().global().server.max_head_time_s;
    conn.entry.limit(ConnLimits { head_s, ..conn.entry.limits() });
    conn.entry.wait_for_head(&conn.worker().machine.clock);
    let taken = wait(conn, own.takes_certificates()).await;
    if let Err(why) = &taken {
        let late = conn.entry.shut_down_for().map(|_| HeaderError::Late);
        log(conn, &format!("extforward.hap-PROXY: {}", late.unwrap_or(*why)));
    }
    taken.is_ok()
}

/// Returns the settings that hold before any request is known.
fn settings(conn: &Conn) -> Rc<Settings> {
    let mut exchange = Exchange::new(&conn.worker().generation());
    conn.describe(&mut exchange.request);
    exchange.resolve_settings();
    exchange.settings
}

/// Reason for the lack of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum HeaderError {
    #[error("{}", .0.message())]
    Malformed(ProxyFault),
    #[error("the connection ended before its header")]
    Ended,
    #[error("server.max-head-time ran out")]
    Late,
}

async fn wait(conn: &mut Conn, verify: bool) -> Result<(), HeaderError> {
    let mut read = Vec::new();
    loop {
        match proxy_protocol::parse(&read, V2_BYTES_MAX) {
            Err(fault) => return Err(HeaderError::Malformed(fault)),
            Ok(Parsed::Complete { consumed, header }) => {
                take(conn, &header, verify);
                conn.worker().machine.counters.bytes_in.add(consumed as u64);
                let early = read.split_off(consumed);
                conn.early.set((!early.is_empty()).then(|| Box::new(early)));
                return Ok(());
            }
            Ok(Parsed::Partial) => {}
        }
        let start = read.len();
        read.resize(start + PIECE_BYTES, 0);
        let count = conn.stream.read(&mut read[start..]).await.unwrap_or(0);
        read.truncate(start + count);
        if count == 0 {
            return Err(HeaderError::Ended);
        }
    }
}

fn take(conn: &mut Conn, header: &Header<'_>, verify: bool) {
    if let Endpoints::Inet { source, .. } = header.endpoints {
        conn.peer = Peer::Inet(source);
        conn.peer_text = source.ip().to_canonical().to_string().into();
    }
    let Some(tls) = header.extensions.tls.filter(|tls| tls.is_encrypted) else { return };
    let common_name = tls.common_name.filter(|_| verify && tls.is_verified());
    conn.tls = Some(Box::new(ClientTls::reported(common_name)));
}

fn log(conn: &Conn, message: &str) {
    conn.log(message, About { client: &conn.peer_text, ..About::default() });
}
