//! HTTP/1: the loop over a connection's requests.

use std::rc::Rc;
use std::task::{Context, Poll};

use lighty_core::log::About;
use lighty_core::settings::CoreSettings;
use lighty_core::status_board::ConnState;
use lighty_core::{
    Exchange, Fate, Fault, FaultReport, Level, Request, RequestBody, limits, pipeline, trace,
};
use lighty_http::{Known, Method, Version, host};
use lighty_io::panics::{self, Panicked};
use lighty_io::transport::{Idle, LingerLimits, Peer, Stream};
use lighty_wire::http1::{BodyFraming, Head, RequestFault, RequestHead, parse_request};

use super::answer::Rest;
use super::{H1Exchange, answer, proxy_header};
use crate::conn_table::{ConnEntry, Limits, Presence};
use crate::worker::{ListenerInfo, Worker};

/// One accepted connection.
pub(crate) struct Conn {
    pub stream: Rc<Stream>,
    pub peer: Peer,
    /// The client's address as text. Formatted once, for conditions and logs.
    pub peer_text: Rc<str>,
    pub entry: Presence,
    pub listener_info: Rc<ListenerInfo>,
    /// `http` or `https`, as the client sees it.
    pub scheme: &'static str,
    /// Common name from a client certificate that a trusted proxy has verified.
    pub certified: Option<Rc<[u8]>>,
}

/// What to do after a burst of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    /// Wait for the next request without holding a buffer.
    Idle,
    /// Close; no client bytes are unread.
    Close,
    /// Close, but linger so that a client that is still sending can read its response.
    Linger,
}

/// Serves a connection from its first byte to its close.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn keeps its arguments twice in its future, and ten thousand idle \
              connections keep ten thousand futures"
)]
pub(crate) fn serve(mut conn: Conn, worker: Rc<Worker>) -> impl Future<Output = ()> {
    async move {
        let mut ordinal = 0;
        let mut prefaced = !worker.generation().needs.proxy_header;
        loop {
            wait_idle(&conn, &worker, ordinal);
            let readable = wait_readable(&conn.stream).await;
            if readable.is_err() || conn.entry.kicked().is_some() {
                log_idle_end(&conn, &worker, ordinal);
                break;
            }
            let mut h1 = worker.acquire();
            h1.input.borrow_mut().attach(&conn.stream, &conn.entry);
            if !prefaced {
                let reading = Box::pin(proxy_header::read(&mut conn, &mut h1, &worker));
                prefaced = panics::catch(reading).await.unwrap_or(false);
            }
            let after = match prefaced {
                true => panics::catch(serve_pipelined(&mut h1, &conn, &worker, &mut ordinal)).await,
                false => Ok(After::Close),
            };
            let after = match after {
                Ok(after) => after,
                Err(panicked) => {
                    // The exchange may be in any state, so it is not reused.
                    Box::pin(recover(h1, &conn, &worker, panicked)).await;
                    break;
                }
            };
            h1.input.borrow_mut().detach();
            worker.give_back(h1);
            match after {
                // During a stop, requests that have already arrived are still read and answered.
                After::Idle => {}
                After::Linger => {
                    // The connection still counts towards the limit and may be closed to make room.
                    worker.idle(&conn.entry);
                    if let Some(stream) = Rc::into_inner(conn.stream) {
                        // The connection ends whatever the result.
                        let _ = Box::pin(stream.linger_close(LingerLimits::default())).await;
                    }
                    break;
                }
                After::Close => break,
            }
        }
    }
}

/// Waits until the stream is reported readable, without probing the socket. Wake-ups may be
/// spurious: the caller then reads and finds nothing.
fn wait_readable(stream: &Stream) -> impl Future<Output = std::io::Result<()>> {
    let mut woken = false;
    std::future::poll_fn(move |cx| {
        if woken {
            return Poll::Ready(Ok(()));
        }
        woken = true;
        stream.poll_readable(cx)
    })
}

/// Applies the idle limits before the first request and between requests.
fn wait_idle(conn: &Conn, worker: &Worker, ordinal: u32) {
    if ordinal == 0 {
        let core = &worker.global().core;
        let (idle_s, log_idle) = (core.max_connection_idle_s, core.log_timeouts);
        conn.entry.limit(Limits { idle_s, log_idle, ..conn.entry.limits() });
    }
    worker.idle(&conn.entry);
    if conn.entry.is_closing() {
        conn.entry.close_soon(worker.now_s());
    }
}

/// Logs the end of an idle connection, which is routine and so needs `debug.log-timeouts`.
fn log_idle_end(conn: &Conn, worker: &Worker, ordinal: u32) {
    let limits = conn.entry.limits();
    if !limits.log_idle || conn.entry.kicked() != Some(Fault::ClientGone) {
        return;
    }
    let limit = match ordinal {
        0 => "server.max-connection-idle",
        _ => "server.max-keep-alive-idle",
    };
    let about = About { client: &conn.peer_text, limit, ..About::default() };
    let message = format!("no request within {} s after {ordinal}", limits.idle_s);
    worker.machine.log.line(Level::Notice, worker.machine.clock.unix_s(), &message, about);
}

/// Recovers from a panic in a request: sends 500 and closes, or resets the connection if a response
/// had begun.
#[cold]
async fn recover(mut h1: Box<H1Exchange>, conn: &Conn, worker: &Rc<Worker>, panicked: Panicked) {
    let has_begun = h1.exchange.bytes_sent > 0 || conn.entry.is_writing();
    let recovering = panics::catch(async {
        h1.queue.clear();
        h1.exchange.response.tunnel = None;
        if has_begun {
            // An orderly close could be mistaken for the end of the body.
            conn.stream.reset_on_close();
            worker.machine.counters.cut.add(1);
            h1.exchange.fault = Some(Fault::Internal);
            h1.exchange.log_fault(Fault::Internal, &panicked.0);
            conclude(&mut h1, worker);
        } else {
            h1.exchange.fail_saying(Fault::Internal, &panicked.0);
            last_word(&mut h1, conn, worker).await;
        }
    });
    if recovering.await.is_err() {
        conn.stream.reset_on_close();
    }
    h1.input.borrow_mut().detach();
}

/// Serves requests until none is pending.
async fn serve_pipelined(
    h1: &mut H1Exchange,
    conn: &Conn,
    worker: &Rc<Worker>,
    ordinal: &mut u32,
) -> After {
    let mut in_a_row = 0;
    loop {
        h1.head.begin();
        h1.exchange.pin(&worker.generation());
        let read = std::future::poll_fn(|cx| poll_head(cx, h1, conn, worker)).await;
        match read {
            Read::Request => {}
            Read::Nothing => return After::Idle,
            Read::Gone => return After::Close,
            Read::Refused(fault) => return refuse(h1, conn, worker, fault).await,
            Read::TimedOut => return time_out(h1, conn, worker).await,
        }
        *ordinal += 1;
        in_a_row += 1;
        conn.entry.wait_for(ConnState::Handler, worker.now_s());
        conn.entry.mark_request_received();
        begin(h1, conn, worker, *ordinal);
        pipeline::respond(&mut h1.exchange).await;
        settle(h1, conn);
        let after = match answer::send_at_once(h1, &conn.stream, &conn.entry, worker) {
            Ok(Rest::Nothing) if !h1.input.borrow().is_body_unread() => {
                finish(h1, conn, worker, Ok(()))
            }
            rest => Box::pin(answer_and_drain(h1, conn, worker, rest)).await,
        };
        if after != After::Idle {
            return after;
        }
        if h1.input.borrow().pending().is_empty() {
            return After::Idle;
        }
        if in_a_row >= limits::PIPELINE_BURST_MAX {
            in_a_row = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Outcome of waiting for a request head.
enum Read {
    Request,
    /// The wake-up was spurious.
    Nothing,
    /// End of file or reset before a complete head.
    Gone,
    Refused(RequestFault),
    TimedOut,
}

fn poll_head(
    cx: &mut Context<'_>,
    h1: &mut H1Exchange,
    conn: &Conn,
    worker: &Worker,
) -> Poll<Read> {
    loop {
        let mut input = h1.input.borrow_mut();
        let pending = input.pending();
        if !pending.is_empty() {
            let rules = &h1.exchange.generation.rules;
            match parse_request(pending, &rules.limits, &rules.options, &mut h1.head) {
                Ok(Head::Complete { consumed }) => {
                    input.consume(consumed);
                    h1.exchange.request.head_bytes = consumed as u64;
                    return Poll::Ready(Read::Request);
                }
                Ok(Head::Partial) => {}
                Err(fault) => return Poll::Ready(Read::Refused(fault)),
            }
            wait_for_head(conn, worker);
        }
        match input.poll_fill(cx, limits::HEAD_BYTES_MAX + 1) {
            // Nothing is pending, and an idle wait needs no buffer.
            Poll::Pending if input.pending().is_empty() => return Poll::Ready(Read::Nothing),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(1..)) => {}
            Poll::Ready(Ok(0)) if conn.entry.kicked() == Some(Fault::HeadTimeout) => {
                return Poll::Ready(Read::TimedOut);
            }
            Poll::Ready(_) => return Poll::Ready(Read::Gone),
        }
    }
}

/// Starts the head timeout once part of a head has arrived.
fn wait_for_head(conn: &Conn, worker: &Worker) {
    if conn.entry.state() != ConnState::Head {
        let head_s = worker.global().server.max_head_time_s;
        conn.entry.limit(Limits { head_s, ..conn.entry.limits() });
        conn.entry.wait_for(ConnState::Head, worker.now_s());
    }
}

/// Turns the parsed head into a request.
fn begin(h1: &mut H1Exchange, conn: &Conn, worker: &Worker, ordinal: u32) {
    let ex = &mut h1.exchange;
    take_head(ex, &mut h1.head, conn);
    if ex.generation.needs.targets {
        let request = &ex.request;
        let method = request.method.map_or("", |method| method.as_str());
        conn.entry.note(method, &request.authority, &request.target_raw);
    }
    ex.ordinal = ordinal;
    ex.started_us = worker.machine.clock.mono_us();
    ex.keep_alive = h1.head.keep_alive && !conn.entry.is_closing();
    if h1.head.has_plain_path() {
        ex.request.path.clear();
        ex.request.path.extend_from_slice(&ex.request.target[..ex.request.path_end]);
    } else {
        // The parser has already rejected undecodable paths.
        let _ = ex.decode_path();
    }
    if let Some(name) = &conn.certified {
        take_certificate(ex, name);
    }
    ex.resolve_settings();
    let core = &ex.settings.core;
    if ordinal >= core.max_keep_alive_requests || !ex.generation.global.server.protocol_http11 {
        ex.keep_alive = false;
    }
    if ex.request.method == Some(Method::Connect) {
        // Following bytes may be meant for the refused tunnel (RFC 9110 section 9.3.6).
        ex.keep_alive = false;
    }
    if conn.entry.is_new_to(ex.settings.variant.number()) {
        limit(&conn.entry, core);
    }
    let mut input = h1.input.borrow_mut();
    input.begin_body(h1.head.framing, h1.head.expect_continue, core.max_request_bytes);
    let announced = match h1.head.framing {
        BodyFraming::None => return,
        BodyFraming::Length(length) => Some(length),
        BodyFraming::Chunked => None,
    };
    drop(input);
    let source = Rc::clone(&h1.input);
    ex.body = RequestBody::incoming(source, announced);
}

/// Applies the limits from the request's settings.
fn limit(entry: &ConnEntry, core: &CoreSettings) {
    entry.limit(Limits {
        idle_s: core.max_keep_alive_idle_s,
        log_idle: core.log_timeouts,
        read_idle_s: core.max_read_idle_s,
        write_idle_s: core.max_write_idle_s,
        half_closed_idle_s: core.max_half_closed_idle_s,
        min_read_rate: core.min_read_rate,
        min_write_rate: core.min_write_rate,
        ..entry.limits()
    });
}

/// Moves the head's buffers into the request without copying.
fn take_head(ex: &mut Exchange, head: &mut RequestHead, conn: &Conn) {
    let request = &mut ex.request;
    request.method = head.method;
    request.version = head.version;
    request.scheme = conn.scheme;
    request.target_raw.extend_from_slice(head.path_and_query_raw());
    head.swap_line(&mut request.line);
    request.path_end = head.path().len();
    std::mem::swap(&mut request.fields, &mut head.fields);
    std::mem::swap(&mut request.target, &mut head.target);
    take_host(request, head.authority(), conn.scheme);
    take_peer(request, conn);
    if !Rc::ptr_eq(&request.local_socket, &conn.listener_info.name) {
        request.local_socket = Rc::clone(&conn.listener_info.name);
    }
    request.local_port = conn.listener_info.port;
    request.upgrade = head.upgrade;
}

/// Normalises the host for conditions, logs and backends, as lighttpd does.
fn take_host(request: &mut Request, authority: &[u8], scheme: &str) {
    let authority = host::without_default_port(authority, scheme);
    request.authority.extend_from_slice(authority);
    if request.fields.get(Known::Host).is_some_and(|sent| sent != authority) {
        request.fields.set(Known::Host, authority);
    }
}

/// Sets the client's address and its text, which is formatted once per connection.
pub(super) fn take_peer(request: &mut Request, conn: &Conn) {
    request.peer = conn.peer;
    request.peer_text = Rc::clone(&conn.peer_text);
}

/// Uses the variable names of lighttpd's `mod_extforward`.
fn take_certificate(ex: &mut Exchange, name: &[u8]) {
    ex.request.remote_user = name.to_vec();
    for (variable, value) in [
        ("SSL_CLIENT_VERIFY", &b"SUCCESS"[..]),
        ("SSL_CLIENT_S_DN_CN", name),
        ("REMOTE_USER", name),
        ("AUTH_TYPE", &b"SSL_CLIENT_VERIFY"[..]),
    ] {
        ex.environment.set(variable.as_bytes(), value);
    }
}

/// Decides whether the connection can be reused after the response.
fn settle(h1: &mut H1Exchange, conn: &Conn) {
    let is_too_much = h1.input.borrow().is_body_unread() && !can_drain(h1);
    if is_too_much || conn.entry.is_closing() {
        h1.exchange.keep_alive = false;
    }
}

/// Sends the rest of a response and drains the unread part of the request body.
async fn answer_and_drain(
    h1: &mut H1Exchange,
    conn: &Conn,
    worker: &Rc<Worker>,
    rest: std::io::Result<Rest>,
) -> After {
    let sent = match rest {
        Ok(rest) => answer::send_rest(rest, h1, &conn.stream, &conn.entry, worker).await,
        Err(error) => Err(error),
    };
    let keep = sent.is_ok() && h1.exchange.keep_alive;
    let is_whole = sent.is_ok();
    let after = finish(h1, conn, worker, sent);
    if !h1.input.borrow().is_body_unread() || !is_whole {
        return after;
    }
    match keep && drain(h1).await {
        true => After::Idle,
        false => After::Linger,
    }
}

/// Counts, logs and clears an exchange whose response was sent or cut short.
fn finish(h1: &mut H1Exchange, conn: &Conn, worker: &Worker, sent: std::io::Result<()>) -> After {
    h1.exchange.completed = sent.is_ok();
    if let Err(error) = &sent {
        cut(h1, conn, worker, error);
    }
    conclude(h1, worker);
    let keep = sent.is_ok() && h1.exchange.keep_alive;
    h1.exchange.clear();
    h1.queue.clear();
    match keep {
        true => After::Idle,
        false if sent.is_ok() && may_send_more(h1, conn) => After::Linger,
        false => After::Close,
    }
}

/// True if the client may have sent more after its last served request. Closing with unread bytes
/// would reset the connection and could destroy the response (RFC 9112 section 9.6).
fn may_send_more(h1: &H1Exchange, conn: &Conn) -> bool {
    let means_to = h1.head.keep_alive && !conn.entry.is_closing();
    means_to || !h1.input.borrow().pending().is_empty() || conn.stream.probe() == Idle::Unsolicited
}

/// True if the unread rest of a body may be short enough to drain.
fn can_drain(h1: &H1Exchange) -> bool {
    let input = h1.input.borrow();
    !input.owes_continue() && input.may_be_dropped()
}

/// Drains the rest of a body. Returns `false` if it is too long, malformed or incomplete.
async fn drain(h1: &mut H1Exchange) -> bool {
    Box::pin(async {
        let mut rest = RequestBody::incoming(Rc::clone(&h1.input) as _, None);
        while let Some(piece) = rest.next().await {
            if piece.is_err() || rest.received() > limits::DRAIN_BYTES_MAX {
                return false;
            }
        }
        true
    })
    .await
}

/// Records why the response could not be completed.
fn cut(h1: &mut H1Exchange, conn: &Conn, worker: &Worker, error: &std::io::Error) {
    worker.machine.counters.cut.add(1);
    let report = error.get_ref().and_then(|inner| inner.downcast_ref::<FaultReport>());
    let known = report
        .map(|report| report.fault)
        .or(h1.exchange.fault.filter(|fault| fault.verdict().fate == Fate::Cut));
    let fault = conn.entry.kicked().or(known).unwrap_or_else(|| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Fault::FileShrank,
        std::io::ErrorKind::BrokenPipe
        | std::io::ErrorKind::ConnectionReset
        | std::io::ErrorKind::ConnectionAborted
        | std::io::ErrorKind::NotConnected => Fault::ClientGone,
        _ => Fault::DiskError,
    });
    h1.exchange.fault = Some(fault);
    h1.exchange.log_fault(fault, &error.to_string());
}

/// Counts and logs a finished request.
fn conclude(h1: &mut H1Exchange, worker: &Worker) {
    let counters = &worker.machine.counters;
    counters.requests.add(1);
    counters.bytes_out.add(h1.exchange.bytes_sent);
    counters.bytes_in.add(std::mem::take(&mut h1.input.borrow_mut().received));
    pipeline::finish(&h1.exchange);
}

/// Rejects an unacceptable head and closes: the bytes after it cannot be trusted.
async fn refuse(
    h1: &mut H1Exchange,
    conn: &Conn,
    worker: &Rc<Worker>,
    fault: RequestFault,
) -> After {
    worker.machine.counters.refused.add(1);
    Box::pin(async {
        let ex = &mut h1.exchange;
        take_head(ex, &mut h1.head, conn);
        note_received(&mut ex.request, h1.input.borrow().pending());
        ex.request.version = version_of(&ex.request.line);
        ex.settings = Rc::clone(&ex.generation.global);
        ex.log(
            Level::Info,
            &format!("{} ({}): {}", fault.status().code(), fault.slug(), fault.words()),
        );
        name_protocol(ex, h1.input.borrow().pending(), worker);
        trace::refused_head(ex, h1.input.borrow().pending());
        ex.fail_status(fault.status());
        last_word(h1, conn, worker).await;
        After::Linger
    })
    .await
}

/// Logs, rate-limited, that a client speaks the wrong protocol for this port.
fn name_protocol(ex: &Exchange, pending: &[u8], worker: &Worker) {
    let (complaint, message) = match pending {
        // RFC 8446 section 5.1: a handshake record.
        [0x16, 0x03, ..] => {
            (&worker.tls_clients, "the client speaks TLS: this port speaks HTTP/1 in the clear")
        }
        // RFC 9113 section 3.4.
        _ if pending.starts_with(b"PRI * HTTP/2.0\r\n") => {
            (&worker.http2_clients, "the client speaks HTTP/2: this port speaks HTTP/1")
        }
        _ => return,
    };
    if complaint.is_due(worker.now_s()) {
        ex.log(Level::Notice, message);
    }
}

/// The bytes of a rejected head, for the log.
fn note_received(request: &mut Request, pending: &[u8]) {
    request.head_bytes = pending.len() as u64;
    if request.line.is_empty() {
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let start = pending.iter().position(|byte| !is_line_end(byte)).unwrap_or(pending.len());
        let line = pending[start..].split(is_line_end).next().unwrap_or_default();
        request.line.extend_from_slice(line);
    }
}

/// The HTTP version in a rejected request line, if it is recognisable.
fn version_of(line: &[u8]) -> Version {
    if line.ends_with(b" HTTP/1.0") { Version::Http10 } else { Version::Http11 }
}

/// Handles a head that timed out.
async fn time_out(h1: &mut H1Exchange, conn: &Conn, worker: &Rc<Worker>) -> After {
    Box::pin(async {
        let ex = &mut h1.exchange;
        ex.settings = Rc::clone(&ex.generation.global);
        take_peer(&mut ex.request, conn);
        note_received(&mut ex.request, h1.input.borrow().pending());
        ex.fail(Fault::HeadTimeout);
        last_word(h1, conn, worker).await;
        After::Close
    })
    .await
}

/// Sends the final error response and logs it.
async fn last_word(h1: &mut H1Exchange, conn: &Conn, worker: &Rc<Worker>) {
    h1.exchange.keep_alive = false;
    pipeline::complete(&mut h1.exchange).await;
    let sent = answer::send(h1, &conn.stream, &conn.entry, worker).await;
    h1.exchange.completed = sent.is_ok();
    conclude(h1, worker);
    h1.exchange.clear();
    h1.queue.clear();
}
