//! A connection's TLS handshake.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use lighty_core::log::About;
use lighty_core::settings::tls::TlsSettings;
use lighty_core::{Exchange, Fault, Settings};
use lighty_io::tls::{Denial, HandshakeFault, Hello, PairFiles, Policy, TlsInfo};
use lighty_io::transport::Peer;

use super::client_tls::ClientTls;
use super::{Conn, End, h1};
use crate::acme;
use crate::worker::Worker;
use crate::worker::conn_table::ConnLimits;

/// ALPN protocol of certificate authorities that check a proof in the handshake (RFC 8737 section
/// 6.2).
const PROOF: &[u8] = b"acme-tls/1";

/// Performs the handshake and counts its result. Returns `None` to continue with HTTP/1. A client
/// that is refused has been sent an alert or response, if possible.
pub(super) async fn secure(conn: &mut Conn) -> Option<End> {
    if !conn.has_early() && !conn.wait_for_bytes().await {
        return Some(End::Cut);
    }
    let worker = Rc::clone(conn.worker());
    let head_s = worker.global().server.max_handshake_time_s;
    conn.entry.limit(ConnLimits { head_s, ..conn.entry.limits() });
    conn.entry.wait_for_head(&worker.machine.clock);
    let early = conn.early.take().map_or_else(Vec::new, |early| *early);
    let mut choice = Choice::new(conn);
    let Some(stream) = Rc::get_mut(&mut conn.stream) else { return Some(End::Cut) };
    let began_us = worker.machine.clock.mono_us();
    let accepting = stream.accept_tls(
        early,
        async |hello: &Hello<'_>| choice.make(hello).await,
        async || worker.tls.take_turn().await,
    );
    match accepting.await {
        Ok(info) => {
            if info.alpn.as_deref() == Some(PROOF) {
                // The authority has seen the proof.
                return Some(End::Cut);
            }
            let is_http2 = info.alpn.as_deref() == Some(b"h2");
            let took_us = worker.machine.clock.mono_us().saturating_sub(began_us);
            take(conn, info, &choice.exchange.settings, took_us);
            is_http2.then_some(End::Http2)
        }
        Err(fault) => Some(refuse(conn, fault, choice).await),
    }
}

/// Finds the TLS policy for a ClientHello, by conditions on listener, address and host.
struct Choice {
    worker: Rc<Worker>,
    exchange: Box<Exchange>,
    is_raw: bool,
    /// The local address that the client has connected to.
    reached: Option<IpAddr>,
    /// Reason for the lack of a policy.
    why: String,
    /// The part of that reason that the client chose: its offered protocols.
    wanted: String,
}

impl Choice {
    fn new(conn: &Conn) -> Self {
        let worker = Rc::clone(conn.worker());
        let mut exchange = Box::new(Exchange::new(&worker.generation()));
        conn.describe(&mut exchange.request);
        exchange.request.scheme = "https";
        let is_raw = conn.listener.raw.borrow().is_some();
        let reached = match conn.stream.local() {
            Ok(Peer::Inet(address)) => Some(address.ip().to_canonical()),
            _ => None,
        };
        Self { worker, exchange, is_raw, reached, why: String::new(), wanted: String::new() }
    }

    async fn make(&mut self, hello: &Hello<'_>) -> Result<Arc<Policy>, Denial> {
        let worker = &self.worker;
        let limit = worker.global().server.max_handshake_backlog;
        if limit > 0 && worker.tls.waiting() >= limit {
            worker.machine.counters.tls_shed.add(1);
            "too many handshakes wait (server.max-handshake-backlog)".clone_into(&mut self.why);
            return Err(Denial::Internal);
        }
        let authority = &mut self.exchange.request.authority;
        let unnamed = match hello.server_name {
            Some(_) => None,
            None => worker.tls.unnamed(self.reached),
        };
        match (hello.server_name, unnamed) {
            (Some(name), _) => authority.extend_from_slice(name.as_bytes()),
            (None, Some(IpAddr::V6(address))) => {
                authority.extend_from_slice(format!("[{address}]").as_bytes());
            }
            (None, Some(address)) => authority.extend_from_slice(address.to_string().as_bytes()),
            (None, None) => {}
        }
        // A reload during the handshake has loaded other certificates.
        self.exchange.pin(&worker.generation());
        self.exchange.resolve_settings();
        if hello.wants_proof && !self.is_raw {
            return self.proof(hello.server_name.unwrap_or_default()).await;
        }
        if let Some(demand) = worker.tls.demand(&self.exchange.settings)
            && let Some(name) = hello.server_name
        {
            demand.certificate(name, self.exchange.request.remote_ip()).await;
        }
        let policy = worker.tls.policy(&self.exchange.settings, self.is_raw, unnamed);
        policy.map_err(|error| {
            self.why = error.to_string();
            Denial::Internal
        })
    }
}

impl Choice {
    /// Returns the proof that an authority requests under this name, from the directory of
    /// `ssl.acme-tls-1`, where other programs put it, or from the store.
    async fn proof(&mut self, name: &str) -> Result<Arc<Policy>, Denial> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            "an authority has said no name (acme-tls/1)".clone_into(&mut self.why);
            return Err(Denial::UnknownName);
        }
        let settings = &self.exchange.settings;
        let own = acme::proof(settings, name);
        let own = own.map(|path| PairFiles { chain: path.to_string_lossy().into(), key: None });
        let mut places: Vec<PairFiles> = own.into_iter().collect();
        if let Some(directory) = &settings.module::<TlsSettings>().acme_tls_1 {
            let file = |kind: &str| format!("{directory}/{name}.{kind}.pem").into();
            places.push(PairFiles { chain: file("crt"), key: Some(file("key")) });
        }
        let read = move || places.into_iter().map(Policy::of_proof).find_map(Result::ok);
        let found = self.worker.machine.engine.run(read).await.ok().flatten();
        found.map(Arc::new).ok_or_else(|| {
            "no proof for the name that an authority asks for (acme-tls/1)"
                .clone_into(&mut self.why);
            name.clone_into(&mut self.wanted);
            Denial::UnknownName
        })
    }
}

/// Applies the result of a finished handshake.
fn take(conn: &mut Conn, info: TlsInfo, settings: &Settings, took_us: u64) {
    let counters = &conn.worker().machine.counters;
    counters.tls_handshakes.add(1);
    counters.tls_resumed.add(info.is_resumed.into());
    let auth = &settings.module::<TlsSettings>().client_auth;
    let mut tls = ClientTls::of(info, auth);
    tls.handshake_us = u32::try_from(took_us).ok();
    tls.share_variables(&conn.worker().tls.variables);
    conn.tls = Some(Box::new(tls));
    conn.entry.secure(&conn.stream);
}

/// Logs a failed handshake, once for each cause, and responds to plain HTTP.
async fn refuse(conn: &mut Conn, fault: HandshakeFault, choice: Choice) -> End {
    let worker = Rc::clone(conn.worker());
    worker.machine.counters.tls_failed.add(1);
    let is_late = conn.entry.shut_down_for() == Some(Fault::HeadTimeout);
    let is_http = match &fault {
        HandshakeFault::ClearText(bytes) => bytes.first().is_some_and(u8::is_ascii_alphabetic),
        _ => false,
    };
    let log_noise = choice.exchange.settings.module::<TlsSettings>().log_noise;
    let noise = |message: &str| (log_noise, message.to_owned());
    // Clients choose the offered protocols, so they do not distinguish causes.
    let mut offered = "";
    let (is_logged, message) = match &fault {
        _ if is_late => noise("the TLS handshake took too long (server.max-handshake-time)"),
        HandshakeFault::ClearText(_) if is_http => {
            (true, "the client speaks HTTP in the clear: this port speaks TLS".to_owned())
        }
        HandshakeFault::ClearText(_) => noise("the client does not speak TLS"),
        HandshakeFault::Gone => noise("the client went away during the TLS handshake"),
        HandshakeFault::Unserved => {
            offered = &choice.wanted;
            (true, format!("no TLS: {}", choice.why))
        }
        HandshakeFault::Refused { cause, offer } => {
            offered = offer;
            (true, format!("TLS handshake failed: {cause}"))
        }
    };
    if is_logged && let Some(mut message) = worker.tls.causes.meet(&message, worker.now_s()) {
        if !offered.is_empty() {
            message += &format!("; {offered}");
        }
        let about = About { client: &conn.peer_text, ..About::default() };
        conn.log(&message, about);
    }
    match fault {
        HandshakeFault::ClearText(bytes) if is_http => {
            conn.early.set(Some(Box::new(bytes)));
            h1::refuse_clear_text(conn).await
        }
        _ => End::Cut,
    }
}
