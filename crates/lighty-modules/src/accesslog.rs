//! `mod_accesslog`: writes a log line for each request, including refused ones.
//!
//! A format is compiled once, when the configuration is loaded. Writing a line appends to a buffer
//! of the worker and hands it to a log's writer thread: no allocation when warm, and no system
//! call in the loop.
//!
//! Reading order: `settings` and `format`, then `record`, `render` with `escape`, `json`, `sinks`,
//! and this file.

mod escape;
mod format;
mod json;
mod record;
mod render;
mod settings;
mod sinks;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};

use lighty_config::Directive;
use lighty_core::exchange::stage::Stage;
use lighty_core::module::{Hooks, Module, Traits};
use lighty_core::settings::limits;
use lighty_core::{Exchange, Request, Settings};
use lighty_io::clock::local_time::LocalTime;
use lighty_io::transport::Peer;

use record::{AccessRecord, ConnectionOutcome, Moment};
use settings::AccessLogSettings;
use sinks::Handles;

pub use sinks::{Sinks, log_names};

/// The module, one per worker.
pub struct AccessLog {
    handles: Handles,
    line: RefCell<Vec<u8>>,
    /// Local times of the last begin and end: most requests share their second.
    begin: Cell<Option<LocalTime>>,
    end: Cell<Option<LocalTime>>,
}

impl AccessLog {
    /// Writes to these logs.
    pub fn new(sinks: &Sinks) -> Self {
        Self {
            handles: sinks.handles(),
            line: RefCell::default(),
            begin: Cell::new(None),
            end: Cell::new(None),
        }
    }
}

impl Module for AccessLog {
    fn name(&self) -> &'static str {
        "mod_accesslog"
    }

    fn traits(&self) -> Traits {
        Hooks { done: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(self.handles.of(settings.module()).is_some())
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::rows()
    }

    fn done(&self, ex: &Exchange) {
        let settings = ex.settings.module::<AccessLogSettings>();
        let Some(log) = self.handles.of(settings) else { return };
        let mut line = self.line.borrow_mut();
        line.clear();
        let record = self.record(ex, settings.json || settings.format.is_timed);
        if settings.json {
            json::line(&record, &mut line);
        } else {
            render::line(&settings.format, settings.escaping, &record, &mut line);
        }
        log.write_line(&line);
        if line.capacity() > limits::KEPT_BUFFER_BYTES_MAX {
            *line = Vec::new();
        }
    }
}

impl AccessLog {
    /// `is_timed`: the line needs the exact time, so the clock is read; otherwise the loop's time
    /// of this turn, which is free, is precise enough for dates.
    fn record<'a>(&self, ex: &'a Exchange, is_timed: bool) -> AccessRecord<'a> {
        let clock = &ex.machine.clock;
        // None if it was rejected before its head was complete.
        let head_us = ex.stages.when_us(Stage::Head);
        let since_start = |now_us: u64| head_us.map_or(0, |head_us| now_us.saturating_sub(head_us));
        let of_turn_us = since_start(clock.mono_us());
        let elapsed_us = if is_timed { since_start(clock.precise_us()) } else { of_turn_us };
        let (end_s, end_us) = (clock.unix_s(), clock.unix_us());
        let (begin_s, begin_us) = before(end_s, end_us, of_turn_us);
        let request = &ex.request;
        AccessRecord {
            client: &request.peer_text,
            client_ip: request.remote_ip(),
            client_port: match &request.peer {
                Peer::Inet(address) => address.port(),
                Peer::Unix => 0,
            },
            local_socket: &request.local_socket,
            local_port: request.local_port,
            user: &request.remote_user,
            method: method(request),
            target: &request.target_raw,
            line: &request.line,
            version: request.version.as_str(),
            request_fields: &request.fields,
            response_fields: &ex.response.fields,
            status: ex.response.status.code(),
            bytes_in: request.head_bytes + ex.body.received(),
            bytes_out: ex.state.bytes_sent,
            head_out: ex.state.head_sent.into(),
            environment: &ex.environment,
            physical: (&ex.physical.docroot, &ex.physical.rel),
            host: &request.authority,
            server_name: ex.settings.core.server_name.as_deref(),
            connection: match (ex.state.completed, ex.state.keeps_connection) {
                (false, _) => ConnectionOutcome::Aborted,
                (true, true) => ConnectionOutcome::KeepAlive,
                (true, false) => ConnectionOutcome::Close,
            },
            elapsed_us,
            stages: &ex.stages,
            upstream: ex.ext(),
            cache: ex.ext(),
            trace: ex.ext(),
            id: ex.id(),
            begin: Moment { local: local(&self.begin, begin_s), micros: begin_us },
            end: Moment { local: local(&self.end, end_s), micros: end_us },
        }
    }
}

/// The local time of a second, cached.
fn local(known: &Cell<Option<LocalTime>>, unix_s: i64) -> LocalTime {
    match known.get() {
        Some(time) if time.unix_s == unix_s => time,
        _ => {
            let time = LocalTime::at(unix_s);
            known.set(Some(time));
            time
        }
    }
}

/// A moment `elapsed_us` before another one.
fn before(unix_s: i64, micros: u32, elapsed_us: u64) -> (i64, u32) {
    let whole = i64::try_from(elapsed_us / 1_000_000).unwrap_or(i64::MAX);
    let part = (elapsed_us % 1_000_000) as u32;
    let seconds = unix_s.saturating_sub(whole);
    if part <= micros { (seconds, micros - part) } else { (seconds - 1, micros + 1_000_000 - part) }
}

/// The method as text. Unknown methods are logged, too.
fn method(request: &Request) -> &[u8] {
    match request.method {
        Some(method) => method.as_str().as_bytes(),
        None if request.target_raw.is_empty() => b"",
        None => request.line.split(|byte| *byte == b' ').next().unwrap_or(b""),
    }
}

/// Keys of the structured form, as the manual names them.
#[cfg(test)]
const JSON_KEYS: &[&str] = &[
    "time",
    "id",
    "client",
    "user",
    "host",
    "method",
    "target",
    "protocol",
    "status",
    "bytes_body",
    "bytes_out",
    "bytes_in",
    "duration_us",
    "referer",
    "user_agent",
    "connection",
    "stages_us",
];
