//! The `debug.log-*` switches: error-log lines about single requests.
//!
//! The switches are part of a request's settings, so a condition can trace a single client or URL.
//! Lines are at level `notice`, because an operator who sets a switch wants to see them.
//! `lighty ctl trace` turns them on for single requests at run time, with secrets left out.

use std::fmt::Write;

use lighty_config::Facts;

use crate::exchange::Exchange;
use crate::log::Level;
use crate::machine::bad_messages::{HIDDEN, is_secret};

/// Maximum bytes of an unparsable head shown in a line.
const RAW_BYTES_MAX: usize = 1024;

/// True if any switch logs requests that succeed.
#[inline]
pub fn is_on(ex: &Exchange) -> bool {
    let core = &ex.settings.core;
    core.log_request_header
        | core.log_condition_handling
        | core.log_request_handling
        | ex.is_traced()
}

/// Logs the head of a request: `debug.log-request-header`.
pub fn request(ex: &Exchange) {
    if ex.settings.core.log_request_header || ex.is_traced() {
        ex.log_in_full(Level::Notice, &request_header(ex));
    }
}

/// Logs the end of the phases, with a response or a restart: `debug.log-condition-handling` and
/// `debug.log-request-handling`.
pub fn pass(ex: &Exchange) {
    let core = &ex.settings.core;
    if core.log_condition_handling || ex.is_traced() {
        conditions(ex);
    }
    if core.log_request_handling || ex.is_traced() {
        let by = if ex.state.handler.is_empty() { "the core" } else { ex.state.handler };
        let fault = ex.state.fault.map_or("", |fault| fault.verdict().message);
        let comma = if fault.is_empty() { "" } else { ", " };
        ex.log_in_full(
            Level::Notice,
            &format!("handled by {by}: {}{comma}{fault}", ex.response.status.code()),
        );
    }
}

/// Records in a rehearsal that the request restarts with another URL.
pub fn restart(ex: &Exchange) {
    if let Some(rehearsal) = &ex.state.rehearsal {
        rehearsal.step(format!("rewritten to {}", ex.request.target.escape_ascii()));
    }
}

/// Records in a rehearsal that an error handler replaces an error.
pub fn error_handler(ex: &Exchange) {
    if let (Some(rehearsal), Some(status)) = (&ex.state.rehearsal, ex.state.error_status) {
        let target = ex.request.target.escape_ascii();
        rehearsal.step(format!("error {} is answered by {target}", status.code()));
    }
}

/// Logs the head of a request whose response is an error: `debug.log-request-header-on-error`.
pub fn response(ex: &Exchange) {
    let core = &ex.settings.core;
    if core.log_request_header_on_error
        && !(core.log_request_header || ex.is_traced())
        && ex.response.status.code() >= 400
    {
        ex.log_in_full(Level::Notice, &request_header(ex));
    }
}

/// Logs the response head as sent: `debug.log-response-header`.
#[inline]
pub fn response_head(ex: &Exchange, head: &[u8]) {
    if ex.settings.core.log_response_header || ex.is_traced() {
        log_response_head(ex, head);
    }
}

#[cold]
fn log_response_head(ex: &Exchange, head: &[u8]) {
    let secrets = secrets_of(ex, ex.settings.core.log_response_header);
    ex.log_in_full(Level::Notice, &format!("response header:{}", bracketed(head, secrets)));
}

/// Values of fields with credentials in a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Secrets {
    Shown,
    Hidden,
}

/// A switch of the configuration shows all fields, and a trace at run time hides credentials.
fn secrets_of(ex: &Exchange, is_configured: bool) -> Secrets {
    if ex.is_traced() && !is_configured { Secrets::Hidden } else { Secrets::Shown }
}

/// Logs a rejected head as received: both request-header switches.
pub fn refused_head(ex: &Exchange, raw: &[u8]) {
    let core = &ex.settings.core;
    if core.log_request_header || core.log_request_header_on_error {
        let shown = &raw[..raw.len().min(RAW_BYTES_MAX)];
        let more = if shown.len() < raw.len() { " ..." } else { "" };
        let lines = bracketed(shown, Secrets::Shown);
        ex.log_in_full(Level::Notice, &format!("request header:{lines}{more}"));
    }
}

/// The lines of a head, each in brackets, so that none of its bytes can forge a log line.
fn bracketed(head: &[u8], secrets: Secrets) -> String {
    let mut text = String::new();
    for line in head.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let _ = match secrets == Secrets::Hidden && is_secret(name) {
            true => write!(text, " [{}: {HIDDEN}]", name.escape_ascii()),
            false => write!(text, " [{}]", line.escape_ascii()),
        };
    }
    text
}

fn request_header(ex: &Exchange) -> String {
    let core = &ex.settings.core;
    let secrets = secrets_of(ex, core.log_request_header || core.log_request_header_on_error);
    let mut text = format!("request header: [{}]", ex.request.line.escape_ascii());
    for (name, value) in ex.request.fields.iter() {
        let _ = match secrets == Secrets::Hidden && is_secret(name) {
            true => write!(text, " [{}: {HIDDEN}]", name.escape_ascii()),
            false => write!(text, " [{}: {}]", name.escape_ascii(), value.escape_ascii()),
        };
    }
    text
}

fn conditions(ex: &Exchange) {
    let facts: &dyn Facts = ex;
    for judgement in ex.generation.config().evaluate_all(facts) {
        let message = format!(
            "condition {} is {}: {}",
            judgement.head,
            judgement.outcome.as_str(),
            judgement.why
        );
        ex.log_in_full(Level::Notice, &message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_one_line_whatever_is_in_it() {
        let text = bracketed(b"GET / HTTP/1.1\r\nA: b\r\x1b[2J\n\r\n", Secrets::Shown);
        assert_eq!(text, " [GET / HTTP/1.1] [A: b\\r\\x1b[2J]");
        let text = bracketed(b"HTTP/1.1 200 OK\r\nSet-Cookie: hush\r\n\r\n", Secrets::Hidden);
        assert_eq!(text, " [HTTP/1.1 200 OK] [Set-Cookie: ***]");
    }
}
