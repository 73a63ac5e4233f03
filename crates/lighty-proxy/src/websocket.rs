//! WebSockets for backends that do not speak them (`wstunnel.server`): the server speaks WebSocket
//! with the client, and exchanges the payload bytes with the backend.

mod pump;
mod pump_state;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Strings;
use lighty_core::exchange::stage::Stage;
use lighty_core::exchange::upstream_trace::UpstreamTrace;
use lighty_core::{Exchange, FaultReport, Step};
use lighty_http::{Fields, Known, Status};
use lighty_wire::websocket::Opcode;
use tokio::sync::Notify;

use crate::raw;
use crate::request::proxy_header;
use crate::request::websocket_key::accept;
use crate::route::rules::{Route, WebsocketRules};
use crate::route::tunnel_route::BackendRoute;
use crate::serve::local::Local;
use crate::upstream::registry::Naming;
use pump::WebsocketTunnel;

/// Versions of the protocol with these frames: RFC 6455 and the draft that Safari 5 spoke.
const VERSIONS: [&[u8]; 2] = [b"13", b"8"];

/// Connects to a backend and accepts the handshake.
pub(crate) async fn serve(
    ex: &mut Exchange,
    (local, naming): (Rc<Local>, &Arc<Naming>),
    route: Arc<Route>,
    rules: Arc<WebsocketRules>,
) -> Step<'static> {
    let handshake = match Handshake::read(ex, &rules) {
        Ok(handshake) => handshake,
        Err(refusal) => return refuse(ex, &refusal),
    };
    let upstream = local.upstream(&route.upstream, naming);
    upstream.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    ex.enter(Stage::Connect);
    let peer = ex.request.peer;
    let reached = tokio::select! {
        biased;
        reached = raw::reach(&local, &route, &upstream, &peer) => reached,
        fault = ex.client_gone() => Err(FaultReport::new(fault, "while a backend was connected to")),
    };
    let connection = match reached {
        Ok(connection) => connection,
        Err(report) => {
            let mut report = report.about(&upstream.spec.name);
            upstream.fault_log.fail(ex, &mut report, local.clock.mono_ms());
            return Step::Answered;
        }
    };
    *ex.ext_mut::<UpstreamTrace>() = UpstreamTrace {
        upstream: Some(Arc::clone(&upstream.label)),
        address: Some(Arc::clone(&connection.permit.address.spec.text)),
        tries: 1,
        ..UpstreamTrace::default()
    };
    let mut greeting = Vec::new();
    if let Some(version) = upstream.spec.proxy_protocol {
        proxy_header::push(ex, version, &mut greeting);
    }
    let closer = Rc::new(Notify::new());
    let permit = &connection.permit;
    let tied = BackendRoute::of_request(ex, &route, &local, permit, Some(Rc::clone(&closer)));
    let response = &mut ex.response;
    response.status = Status::SWITCHING_PROTOCOLS;
    response.fields.push_known(Known::Upgrade, "websocket");
    response.fields.push(b"Sec-WebSocket-Accept", &handshake.accept);
    if let Some(subprotocol) = handshake.subprotocol {
        response.fields.push(b"Sec-WebSocket-Protocol", subprotocol.as_bytes());
    }
    response.tunnel = Some(Box::new(WebsocketTunnel {
        idle_ms: upstream.spec.timeouts.tunnel_ms,
        ping_ms: u64::from(rules.ping_s) * 1000,
        clock: local.clock.clone(),
        opcode: handshake.opcode,
        greeting,
        route: tied,
        closer,
        connection: Rc::new(connection),
    }));
    response.answered = true;
    Step::Answered
}

/// Result of a handshake.
struct Handshake {
    accept: Vec<u8>,
    subprotocol: Option<&'static str>,
    opcode: Opcode,
}

/// Reason for refusing a handshake.
struct HandshakeRefusal {
    status: Status,
    message: String,
}

impl HandshakeRefusal {
    fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl Handshake {
    fn read(ex: &Exchange, rules: &WebsocketRules) -> Result<Self, HandshakeRefusal> {
        let fields = &ex.request.fields;
        let version = fields.get_named(b"Sec-WebSocket-Version").unwrap_or_default();
        if !VERSIONS.contains(&version.trim_ascii()) {
            let message = format!("WebSocket version \"{}\"", version.escape_ascii());
            return Err(HandshakeRefusal::new(Status::UPGRADE_REQUIRED, message));
        }
        let key = fields.get_named(b"Sec-WebSocket-Key").unwrap_or_default().trim_ascii();
        if !is_key(key) {
            return Err(HandshakeRefusal::new(
                Status::BAD_REQUEST,
                "Sec-WebSocket-Key has no 16 bytes",
            ));
        }
        check_origin(fields, &rules.origins)?;
        let known: &[&str] = if rules.is_binary { &["binary"] } else { &["binary", "base64"] };
        let subprotocol = subprotocol(fields, known);
        let is_binary = rules.is_binary || subprotocol == Some("binary");
        let opcode = if is_binary { Opcode::Binary } else { Opcode::Text };
        Ok(Self { accept: accept(key), subprotocol, opcode })
    }
}

#[cold]
fn refuse(ex: &mut Exchange, refusal: &HandshakeRefusal) -> Step<'static> {
    ex.log(lighty_core::Level::Notice, &format!("wstunnel.server: {}", refusal.message));
    ex.fail_status(refusal.status);
    if refusal.status == Status::UPGRADE_REQUIRED {
        // RFC 6455 section 4.4, RFC 9110 section 15.5.22.
        ex.response.fields.push(b"Sec-WebSocket-Version", b"13");
        ex.response.fields.push_known(Known::Upgrade, "websocket");
    }
    Step::Answered
}

/// RFC 6455 section 4.1: 16 bytes in base64.
fn is_key(key: &[u8]) -> bool {
    key.len() == 24 && key.ends_with(b"==") && key[..22].iter().all(|byte| is_base64(*byte))
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

/// Returns the first of these subprotocols that the client offers. As in lighttpd, "base64" means
/// text frames with content that the client and the backend encode.
fn subprotocol(fields: &Fields, known: &[&'static str]) -> Option<&'static str> {
    let offered = fields.joined(b"Sec-WebSocket-Protocol");
    let mut offered = offered.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    offered.find_map(|name| {
        known.iter().copied().find(|own| name.eq_ignore_ascii_case(own.as_bytes()))
    })
}

/// Checks that the origin is in the list, or ends with a dot and a member of it, like lighttpd.
fn check_origin(fields: &Fields, origins: &Strings) -> Result<(), HandshakeRefusal> {
    if origins.is_empty() {
        return Ok(());
    }
    let origin = fields.get_named(b"Origin").or_else(|| fields.get_named(b"Sec-WebSocket-Origin"));
    let Some(origin) = origin else {
        return Err(HandshakeRefusal::new(Status::BAD_REQUEST, "the client names no origin"));
    };
    let is_allowed = |allowed: &str| {
        let before = origin.strip_suffix(allowed.as_bytes());
        before.is_some_and(|before| before.is_empty() || before.ends_with(b"."))
    };
    if origins.iter().any(|allowed| is_allowed(allowed)) {
        return Ok(());
    }
    let message = format!("{} is none of wstunnel.origins", origin.escape_ascii());
    Err(HandshakeRefusal::new(Status::FORBIDDEN, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_has_16_bytes() {
        assert!(is_key(b"dGhlIHNhbXBsZSBub25jZQ=="));
        for key in
            ["", "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZSEh", "!GhlIHNhbXBsZSBub25jZQ=="]
        {
            assert!(!is_key(key.as_bytes()), "{key}");
        }
    }

    #[test]
    fn origins_match_whole_or_behind_a_dot() {
        let origins: Strings = ["example.org", "https://exact.org"].map(Arc::from).into();
        let status = |origin: &str| {
            let mut fields = Fields::new();
            fields.push(b"Origin", origin.as_bytes());
            check_origin(&fields, &origins).err().map(|refusal| refusal.status.code())
        };
        for origin in ["https://www.example.org", "example.org", "https://exact.org"] {
            assert_eq!(status(origin), None, "{origin}");
        }
        for origin in ["http://example.org", "https://evilexample.org", "http://exact.org", ""] {
            assert_eq!(status(origin), Some(403), "{origin}");
        }
        let none = check_origin(&Fields::new(), &origins).err().map(|refusal| refusal.status);
        assert_eq!(none, Some(Status::BAD_REQUEST));
    }

    #[test]
    fn first_known_subprotocol_is_chosen() {
        let chosen = |offered: &str| {
            let mut fields = Fields::new();
            fields.push(b"Sec-WebSocket-Protocol", offered.as_bytes());
            subprotocol(&fields, &["binary", "base64"])
        };
        assert_eq!(chosen("foo, Binary, base64"), Some("binary"));
        assert_eq!(chosen("base64,binary"), Some("base64"));
        assert_eq!(chosen("binaries, foo"), None);
        assert_eq!(subprotocol(&Fields::new(), &["binary"]), None);
    }
}
