//! Active health checks.
//!
//! [`ask`] runs one check on a connection of its own; [`keep_asking`] is the task of an address: it
//! checks at intervals until the address is gone, and records the results in the address's
//! [`Health`].

use std::time::Duration;

use lighty_http::{Fields, Known, Method, Version};
use lighty_io::clock::Clock;
use lighty_io::connect::{ConnectOptions, Target, connect};
use lighty_io::transport::Stream;
use lighty_wire::ajp13::{self, PacketSize, ResponseDecoder};
use lighty_wire::cgi::{self, CgiHead, HeadLimits, Params};
use lighty_wire::fastcgi::{
    self, ApplicationRole, Begin, FastcgiDecoder, FastcgiEvent, ParamsWriter,
};
use lighty_wire::http1::{
    BodyFraming, Head, RequestLine, ResponseFault, ResponseHead, ResponseLimits, encode_request,
    other_protocol, parse_response,
};
use lighty_wire::proxy_protocol::{self, Command, Header};

use super::active::{first_due_ms, next_due_ms};
use super::check_fault::{CheckFault, RESPONSE_BYTES_MAX, check_status};
use super::http2_checks;
use super::passive::{Health, HealthChange};
use crate::connect::dial::send;
use crate::connect::listen_queue::Standing;
use crate::upstream::backend_tls::BackendTls;
use crate::upstream::spec::{CheckKind, CheckSpec, ProxyProtocol};

/// Statuses of a healthy FastCGI application.
const STATUS_GOOD: (u16, u16) = (200, 399);

/// A handle to a checked address.
pub(crate) trait Checked {
    fn target(&self) -> &Target;
    /// Returns its TLS state; `None` without TLS.
    fn tls(&self) -> Option<&BackendTls> {
        None
    }
    fn health(&self) -> &Health;
    /// True if it is not to be checked for now.
    fn is_in_maintenance(&self) -> bool {
        false
    }
    /// Registers the check's connection in the listen queue.
    fn stand_in_line(&self) -> Option<Standing> {
        None
    }
    /// Reports a check. `fault` is its result, `change` its effect: an event to log and, after a
    /// return, waiting requests to wake.
    fn was_checked(&self, change: HealthChange, fault: Option<&CheckFault>);
}

/// Checks an address at intervals until `address` returns `None`. There is one task per address;
/// all run on one thread.
pub(crate) async fn keep_asking<A: Checked>(
    address: impl Fn() -> Option<A>,
    check: &CheckSpec,
    proxy: Option<ProxyProtocol>,
    clock: Clock,
) {
    clock.refresh();
    let mut due_ms = first_due_ms(clock.mono_ms(), check.interval_ms, random());
    loop {
        let wait_ms = due_ms.saturating_sub(clock.mono_ms());
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        clock.refresh();
        let began_ms = clock.mono_ms();
        let Some(address) = address() else { return };
        if address.is_in_maintenance() {
            due_ms = next_due_ms(began_ms, began_ms, check.interval_ms, random());
            continue;
        }
        let standing = address.stand_in_line();
        let connected = || {
            clock.refresh();
            standing.iter().for_each(|standing| standing.complete(clock.mono_ms()));
        };
        let found = ask(address.target(), address.tls(), check, proxy, &connected).await;
        drop(standing);
        clock.refresh();
        let now_ms = clock.mono_ms();
        due_ms = next_due_ms(began_ms, now_ms, check.interval_ms, random());
        let change = address.health().record_check(found.is_ok(), now_ms, due_ms);
        address.was_checked(change, found.as_ref().err());
    }
}

/// Spreads the checks; needs no secrecy.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Runs one check, on a new connection; calls `connected` once it is open.
///
/// # Errors
/// The check failed; the variant is the reason.
pub(crate) async fn ask(
    target: &Target,
    tls: Option<&BackendTls>,
    check: &CheckSpec,
    proxy: Option<ProxyProtocol>,
    connected: &dyn Fn(),
) -> Result<(), CheckFault> {
    let limit = Duration::from_millis(check.timeout_ms);
    let asking = ask_patiently(target, tls, &check.kind, proxy, connected);
    let outcome = tokio::time::timeout(limit, asking).await;
    outcome.unwrap_or(Err(CheckFault::Timeout { timeout_ms: check.timeout_ms }))
}

async fn ask_patiently(
    target: &Target,
    tls: Option<&BackendTls>,
    kind: &CheckKind,
    proxy: Option<ProxyProtocol>,
    connected: &dyn Fn(),
) -> Result<(), CheckFault> {
    let (mut greeting, mut question) = (Vec::new(), Vec::new());
    push_question(kind, &mut question)?;
    if let Some(version) = proxy {
        push_own_header(version, &mut greeting)?;
    }
    let mut stream =
        connect(target, &ConnectOptions::default()).await.map_err(CheckFault::Connect)?;
    connected();
    if let Some(tls) = tls {
        send(&stream, &greeting).await.map_err(CheckFault::Talk)?;
        greeting.clear();
        tls.shake_hands(&mut stream).await.map_err(CheckFault::Tls)?;
    }
    greeting.extend(question);
    send(&stream, &greeting).await.map_err(CheckFault::Talk)?;
    let mut talk = Talk { stream, received: Vec::new() };
    match kind {
        CheckKind::Tcp => Ok(()),
        CheckKind::Http { status, .. } => talk.read_http(*status).await,
        CheckKind::Http2 { target, host, status } => {
            http2_checks::get(&talk.stream, target, host, *status).await
        }
        CheckKind::Grpc { service, host } => {
            http2_checks::call_health(&talk.stream, service, host).await
        }
        CheckKind::Fastcgi { target: None } => talk.read_values().await,
        CheckKind::Fastcgi { target: Some(_) } => talk.read_fastcgi().await,
        CheckKind::Ajp13 => talk.read_pong().await,
    }
}

/// A PROXY protocol header with LOCAL: the connection is made on behalf of no client.
fn push_own_header(version: ProxyProtocol, out: &mut Vec<u8>) -> Result<(), CheckFault> {
    let version = match version {
        ProxyProtocol::V1 => proxy_protocol::Version::V1,
        ProxyProtocol::V2 => proxy_protocol::Version::V2,
    };
    let header = Header { version, command: Command::Local, ..Header::default() };
    proxy_protocol::encode(&header, out).map_err(|fault| CheckFault::Unfit(fault.to_string()))
}

fn push_question(kind: &CheckKind, out: &mut Vec<u8>) -> Result<(), CheckFault> {
    match kind {
        // HTTP/2 and gRPC frame their requests later.
        CheckKind::Tcp | CheckKind::Http2 { .. } | CheckKind::Grpc { .. } => {}
        CheckKind::Http { target, host, .. } => push_http(target, host, out)?,
        CheckKind::Fastcgi { target: None } => fastcgi::encode::get_values(out),
        CheckKind::Fastcgi { target: Some(target) } => push_fastcgi(target, out)?,
        CheckKind::Ajp13 => out.extend_from_slice(&ajp13::CPING),
    }
    Ok(())
}

fn push_http(target: &str, host: &str, out: &mut Vec<u8>) -> Result<(), CheckFault> {
    let line = RequestLine {
        method: b"GET",
        target: target.as_bytes(),
        version: Version::Http11,
        host: host.as_bytes(),
        framing: BodyFraming::None,
    };
    let fields: [(Option<Known>, &[u8], &[u8]); 2] =
        [(None, b"User-Agent", b"lighty-check"), (None, b"Connection", b"close")];
    encode_request(&line, fields, out).map_err(|fault| CheckFault::Unfit(fault.to_string()))
}

/// Appends a request for `target` in the form of PHP-FPM's `ping.path`: the path is the script.
fn push_fastcgi(target: &str, out: &mut Vec<u8>) -> Result<(), CheckFault> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let fields = Fields::new();
    let facts = Params {
        server_software: b"lighty",
        server_name: b"localhost",
        server_port: 80,
        server_addr: b"127.0.0.1",
        remote_addr: b"127.0.0.1",
        method: b"GET",
        request_uri: target.as_bytes(),
        query: query.as_bytes(),
        script_name: path.as_bytes(),
        script_filename: path.as_bytes(),
        ..Params::new(&fields)
    };
    fastcgi::encode::begin_request(
        Begin { role: ApplicationRole::Responder, keep_conn: false },
        out,
    );
    let mut params = ParamsWriter::new(out);
    facts.for_each(|name, value| params.pair(name, value));
    params.finish().map_err(|fault| CheckFault::Unfit(fault.to_string()))?;
    out.extend_from_slice(&fastcgi::encode::END_OF_STDIN);
    Ok(())
}

/// The connection of one check.
struct Talk {
    stream: Stream,
    /// Bytes read and not yet parsed.
    received: Vec<u8>,
}

impl Talk {
    /// Reads more bytes.
    async fn read_response(&mut self) -> Result<(), CheckFault> {
        const PIECE_BYTES: usize = 2_048;
        let before = self.received.len();
        if before >= RESPONSE_BYTES_MAX {
            return Err(CheckFault::TooLong);
        }
        self.received.resize((before + PIECE_BYTES).min(RESPONSE_BYTES_MAX), 0);
        let read = self.stream.read(&mut self.received[before..]).await;
        self.received.truncate(before + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(0) => Err(CheckFault::Closed),
            Ok(_) => Ok(()),
            Err(error) => Err(CheckFault::Talk(error)),
        }
    }

    async fn read_http(&mut self, good: (u16, u16)) -> Result<(), CheckFault> {
        let limits =
            ResponseLimits { head_bytes_max: RESPONSE_BYTES_MAX, ..ResponseLimits::default() };
        let mut head = ResponseHead::new();
        loop {
            let parsed = parse_response(&self.received, Some(Method::Get), &limits, &mut head);
            let refused =
                |fault: ResponseFault| other_protocol(&self.received).unwrap_or(fault.message());
            match parsed.map_err(|fault| CheckFault::Protocol(refused(fault).into()))? {
                Head::Partial => self.read_response().await?,
                Head::Complete { consumed } if head.is_interim() => {
                    self.received.drain(..consumed);
                }
                Head::Complete { .. } => return check_status(head.status.code(), good),
            }
        }
    }

    /// Any response to FCGI_GET_VALUES will do, even FCGI_UNKNOWN_TYPE.
    async fn read_values(&mut self) -> Result<(), CheckFault> {
        let mut decoder = FastcgiDecoder::new();
        loop {
            match self.fastcgi_event(&mut decoder).await? {
                FastcgiEvent::Values(_) | FastcgiEvent::UnknownType(_) => return Ok(()),
                _ => {}
            }
        }
    }

    async fn read_fastcgi(&mut self) -> Result<(), CheckFault> {
        let limits = HeadLimits { head_bytes_max: RESPONSE_BYTES_MAX, ..HeadLimits::default() };
        let (mut decoder, mut head, mut output) =
            (FastcgiDecoder::new(), CgiHead::new(), Vec::new());
        loop {
            let parsed = cgi::parse_head(&output, &limits, &mut head);
            match parsed.map_err(|fault| CheckFault::Protocol(fault.to_string()))? {
                Head::Complete { consumed } if head.is_interim() => {
                    output.drain(..consumed);
                }
                Head::Complete { .. } => return check_status(head.status.code(), STATUS_GOOD),
                Head::Partial => self.fastcgi_output(&mut decoder, &mut output).await?,
            }
        }
    }

    /// Appends the next piece of output.
    async fn fastcgi_output(
        &mut self,
        decoder: &mut FastcgiDecoder,
        output: &mut Vec<u8>,
    ) -> Result<(), CheckFault> {
        loop {
            let (event, consumed) = self.fastcgi_step(decoder).await?;
            let is_output = match event {
                FastcgiEvent::Stdout(range) => {
                    output.extend_from_slice(&self.received[range]);
                    true
                }
                FastcgiEvent::EndOfStdout | FastcgiEvent::End(_) => return Err(CheckFault::Closed),
                _ => false,
            };
            self.received.drain(..consumed);
            if is_output {
                return Ok(());
            }
        }
    }

    async fn fastcgi_event(
        &mut self,
        decoder: &mut FastcgiDecoder,
    ) -> Result<FastcgiEvent, CheckFault> {
        let (event, consumed) = self.fastcgi_step(decoder).await?;
        self.received.drain(..consumed);
        Ok(event)
    }

    /// Returns the next event, and the number of bytes that it consumed.
    async fn fastcgi_step(
        &mut self,
        decoder: &mut FastcgiDecoder,
    ) -> Result<(FastcgiEvent, usize), CheckFault> {
        loop {
            let step = decoder.feed(&self.received);
            let step = step.map_err(|fault| CheckFault::Protocol(fault.to_string()))?;
            if let Some(event) = step.event {
                return Ok((event, step.consumed));
            }
            self.received.drain(..step.consumed);
            self.read_response().await?;
        }
    }

    async fn read_pong(&mut self) -> Result<(), CheckFault> {
        let mut decoder = ResponseDecoder::new(PacketSize::DEFAULT, ajp13::FIELDS_MAX);
        decoder.begin_ping();
        loop {
            let step = decoder.feed(&self.received);
            let step = step.map_err(|fault| CheckFault::Protocol(fault.to_string()))?;
            self.received.drain(..step.consumed);
            match step.event {
                Some(ajp13::AjpEvent::Pong) => return Ok(()),
                Some(_) => {}
                None => self.read_response().await?,
            }
        }
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
