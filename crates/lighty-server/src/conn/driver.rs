//! Serves one exchange of any protocol: begins it, runs its handlers, sends the response and
//! finishes it.

use std::io;

use lighty_core::exchange::request_state::TracedRequest;
use lighty_core::exchange::stage::Stage;
use lighty_core::pipeline::{self, Attempt};
use lighty_core::settings::CoreSettings;
use lighty_core::{Exchange, Fate, Fault, FaultReport};

use super::sink::{Protocol, Remainder, Sink};
use super::stream::RequestStream;
use crate::worker::conn_table::{ConnLimits, StreamLimits};

/// Progress of [`try_drive`] with an exchange.
pub(super) enum Driven {
    /// The response was sent or cut, and the exchange is cleared.
    Finished { is_whole: bool },
    /// The response has to wait: continue with [`drive_on`].
    Response(Attempt),
    /// The client's windows or socket are full; the remainder is left to send.
    Remainder(Remainder),
}

/// Serves the exchange whose head `io` has received, until something has to wait.
#[inline]
pub(super) fn try_drive(
    on: RequestStream<'_>,
    ex: &mut Exchange,
    io: &mut impl Protocol,
) -> Driven {
    let sink = &mut io.sink();
    let is_refused = begin(on, ex, sink);
    if is_refused {
        return Driven::Response(Attempt::Answered);
    }
    match pipeline::try_respond(ex) {
        Attempt::Done => try_send(on, ex, sink),
        attempt => Driven::Response(attempt),
    }
}

/// Sends the response until the client has no room.
#[inline(always)]
fn try_send(on: RequestStream<'_>, ex: &mut Exchange, sink: &mut Sink<'_>) -> Driven {
    let sent = match sink.try_send(on, ex) {
        Ok(Remainder::Nothing) => {
            let now_us = ex.machine.clock.mono_us();
            ex.stages.enter_all([Stage::FirstByteOut, Stage::LastByteOut], now_us);
            Ok(())
        }
        Ok(remainder) => return Driven::Remainder(remainder),
        Err(error) => Err(error),
    };
    Driven::Finished { is_whole: finish(on, ex, sink, sent) }
}

/// Continues where [`try_drive`] had to wait. Returns whether the whole response was sent. Clears
/// the exchange.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn keeps its arguments twice in its future, and idle connections keep that"
)]
pub(super) fn drive_on(
    mut driven: Driven,
    on: RequestStream<'_>,
    ex: &mut Exchange,
    io: &mut impl Protocol,
) -> impl Future<Output = bool> {
    async move {
        loop {
            driven = match driven {
                Driven::Finished { is_whole } => return is_whole,
                Driven::Response(attempt) => {
                    pipeline::respond_from(ex, attempt).await;
                    try_send(on, ex, &mut io.sink())
                }
                Driven::Remainder(remainder) => {
                    return Box::pin(send_remainder(remainder, on, ex, io)).await;
                }
            };
        }
    }
}

/// Continues a response that had to wait, and sends as much as the client has room for.
pub(super) async fn respond(
    attempt: Attempt,
    on: RequestStream<'_>,
    ex: &mut Exchange,
    io: &mut impl Protocol,
) -> Driven {
    pipeline::respond_from(ex, attempt).await;
    try_send(on, ex, &mut io.sink())
}

/// Sends the remainder that the first attempt left, at the client's pace, and finishes the
/// exchange. Returns whether all was sent.
pub(super) async fn send_remainder(
    remainder: Remainder,
    on: RequestStream<'_>,
    ex: &mut Exchange,
    io: &mut impl Protocol,
) -> bool {
    on.enter(Stage::FirstByteOut, &mut ex.stages);
    let sent = io.send_remainder(remainder, on, ex).await;
    end_remainder(on, ex, &mut io.sink(), sent)
}

/// Finishes the exchange after its remainder was sent or failed. Returns whether it was sent.
pub(super) fn end_remainder(
    on: RequestStream<'_>,
    ex: &mut Exchange,
    sink: &mut Sink<'_>,
    sent: io::Result<()>,
) -> bool {
    if sent.is_ok() {
        ex.enter(Stage::LastByteOut);
    }
    finish(on, ex, sink, sent)
}

/// Sends the error response in `ex`, which needs no handler, as the connection's last response, and
/// finishes the exchange. Returns whether it was sent.
pub(super) async fn send_last(
    on: RequestStream<'_>,
    ex: &mut Exchange,
    io: &mut impl Protocol,
) -> bool {
    match try_send_last(on, ex, io).await {
        Driven::Finished { is_whole } => is_whole,
        Driven::Response(_) => false,
        Driven::Remainder(remainder) => send_remainder(remainder, on, ex, io).await,
    }
}

/// Like [`send_last`], but sends only as much as the client has room for.
pub(super) async fn try_send_last(
    on: RequestStream<'_>,
    ex: &mut Exchange,
    io: &mut impl Protocol,
) -> Driven {
    ex.state.keeps_connection = false;
    // A request refused before its settings were resolved uses the global settings.
    limit(on, &ex.settings.core);
    on.entry.forget_variant();
    pipeline::complete(ex).await;
    try_send(on, ex, &mut io.sink())
}

/// Responds to an exchange that panicked before its response had begun. Returns whether the
/// response was sent.
pub(super) async fn fail(
    on: RequestStream<'_>,
    ex: &mut Exchange,
    io: &mut impl Protocol,
    why: &str,
) -> bool {
    ex.fail_saying(Fault::Internal, why);
    send_last(on, ex, io).await
}

/// Ends an exchange that panicked after its response had begun.
pub(super) fn abandon(on: RequestStream<'_>, ex: &mut Exchange, mut sink: Sink<'_>, why: &str) {
    if let Some(client) = &ex.client {
        client.borrow_mut().cancel();
    }
    on.conn.worker().machine.counters.cut.add(1);
    ex.state.fault = Some(Fault::Internal);
    ex.log_fault(Fault::Internal, why);
    conclude(on, ex, &mut sink);
}

/// Turns the received head into a request with settings and limits. Returns true if the request is
/// refused; the response then has the reason.
#[inline(always)]
fn begin(on: RequestStream<'_>, ex: &mut Exchange, sink: &mut Sink<'_>) -> bool {
    on.enter(Stage::Head, &mut ex.stages);
    let conn = on.conn;
    conn.describe(&mut ex.request);
    sink.take_head(ex);
    let is_watched = ex.machine.watch.is_on();
    if ex.generation.needs.targets || is_watched {
        conn.entry.note(&ex.request);
    }
    if is_watched {
        let host = &ex.request.authority;
        if ex.machine.watch.matches(host, ex.request.remote_ip()) {
            ex.ext_mut::<TracedRequest>().0 = true;
        }
    }
    conn.requests.set(conn.requests.get() + 1);
    ex.ordinal = conn.requests.get();
    if let Some(tls) = &conn.tls {
        tls.describe(ex);
    }
    ex.resolve_settings();
    ex.stages.enter_with(Stage::Head, [Stage::Settings]);
    let core = &ex.settings.core;
    ex.state.keeps_connection =
        ex.ordinal < core.max_keep_alive_requests && !conn.entry.is_closing();
    if on.entry.is_new_to(ex.settings.variant.number()) {
        limit(on, core);
    }
    if let Some(body) = sink.take_body(core.max_request_bytes) {
        ex.body = body;
    }
    conn.tls.as_ref().is_some_and(|tls| tls.is_misdirected(ex))
}

/// Applies the limits from the request's settings.
pub(super) fn limit(on: RequestStream<'_>, core: &CoreSettings) {
    on.conn.entry.limit(ConnLimits {
        idle_s: core.max_keep_alive_idle_s,
        log_idle: core.log_timeouts,
        ..on.conn.entry.limits()
    });
    on.entry.limit(StreamLimits {
        read_idle_s: core.max_read_idle_s,
        write_idle_s: core.max_write_idle_s,
        half_closed_idle_s: core.max_half_closed_idle_s,
        min_read_rate: core.min_read_rate,
        min_write_rate: core.min_write_rate,
    });
}

/// Counts, logs and clears an exchange after its response was sent or cut short.
#[inline(always)]
fn finish(
    on: RequestStream<'_>,
    ex: &mut Exchange,
    sink: &mut Sink<'_>,
    sent: io::Result<()>,
) -> bool {
    let is_whole = sent.is_ok();
    ex.state.completed = is_whole;
    if let Err(error) = &sent {
        ex.stages.cut(ex.machine.clock.mono_us());
        note_cut(on, ex, error);
    }
    conclude(on, ex, sink);
    is_whole
}

/// Records why the response could not be completed.
#[cold]
fn note_cut(on: RequestStream<'_>, ex: &mut Exchange, error: &io::Error) {
    on.conn.worker().machine.counters.cut.add(1);
    let report = error.get_ref().and_then(|inner| inner.downcast_ref::<FaultReport>());
    let known = report
        .map(|report| report.fault)
        .or(ex.state.fault.filter(|fault| fault.verdict().fate == Fate::Cut));
    let ended = on.entry.cut().or(on.conn.entry.shut_down_for());
    let fault = ended.or(known).unwrap_or_else(|| match error.kind() {
        io::ErrorKind::UnexpectedEof => Fault::FileShrank,
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::NotConnected => Fault::ClientGone,
        _ => Fault::DiskError,
    });
    ex.state.fault = Some(fault);
    ex.log_fault(fault, &error.to_string());
}

/// Counts and logs a finished exchange, and clears it.
#[inline(always)]
fn conclude(on: RequestStream<'_>, ex: &mut Exchange, sink: &mut Sink<'_>) {
    let counters = &on.conn.worker().machine.counters;
    counters.requests.add(1);
    counters.bytes_out.add(ex.state.bytes_sent);
    counters.bytes_in.add(sink.take_received());
    pipeline::finish(ex);
    ex.clear();
    sink.clear();
    on.entry.go_idle();
}
