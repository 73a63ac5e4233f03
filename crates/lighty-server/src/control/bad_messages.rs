//! The view of refused requests and bad responses of backends.

use lighty_core::machine::bad_messages::{BAD_MESSAGES_MAX, BadMessage, BadMessageKind, Excerpt};
use lighty_core::machine::status_board::ReportParts;
use serde::Serialize;

use super::ControlledServer;

#[derive(Serialize)]
pub(super) struct BadMessageView {
    /// In RFC 3339.
    time: String,
    kind: &'static str,
    worker: usize,
    client: String,
    backend: String,
    request: String,
    reason: String,
    /// The bytes around the fault, escaped; credentials are `***`.
    text: String,
    /// Offset of the fault in `text`; null if no byte shows it.
    mark: Option<usize>,
    /// Offset of the fault in the message.
    position: Option<usize>,
    /// Offset of `text` in the message, and the bytes of the message that arrived.
    offset: usize,
    length: usize,
}

/// The latest bad messages of all workers, the oldest first.
pub(super) async fn list(server: &ControlledServer) -> Vec<BadMessageView> {
    let wanted = ReportParts { bad_messages: true, ..ReportParts::default() };
    let (reports, _) = server.plan().shared.board.ask(wanted).await;
    let mut found: Vec<(usize, BadMessage)> = Vec::new();
    for report in reports {
        found.extend(report.bad_messages.into_iter().map(|message| (report.worker, message)));
    }
    found.sort_by_key(|(_, message)| message.unix_s);
    let surplus = found.len().saturating_sub(BAD_MESSAGES_MAX);
    found.into_iter().skip(surplus).map(|(worker, message)| view(worker, message)).collect()
}

fn view(worker: usize, message: BadMessage) -> BadMessageView {
    let Excerpt { text, mark, position, offset, length } = message.excerpt;
    BadMessageView {
        time: String::from_utf8_lossy(&lighty_http::date::iso8601(message.unix_s)).into_owned(),
        kind: match message.kind {
            BadMessageKind::Request => "request",
            BadMessageKind::Response => "response",
        },
        worker,
        client: message.client,
        backend: message.backend,
        request: message.request,
        reason: message.reason,
        text,
        mark,
        position,
        offset,
        length,
    }
}
