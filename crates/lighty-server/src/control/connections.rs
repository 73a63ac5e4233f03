//! Open connections: the list of them, and their end at an order.

use lighty_core::machine::status_board::{ConnectionReport, ReportParts, WorkerOrder};
use serde::{Deserialize, Serialize};

use super::fault::ControlFault;
use super::message::ControlRequest;
use super::route::read_body;
use super::{ChangeDone, ControlledServer};

/// Seconds for which the targets of requests are recorded after a look at the connections.
const TARGETS_FOR_S: u32 = 600;

/// A connection without streams, or a stream.
#[derive(Serialize)]
pub(super) struct ConnectionView {
    /// As `kill` takes it.
    id: String,
    worker: usize,
    client: String,
    state: &'static str,
    for_s: u32,
    protocol: &'static str,
    method: &'static str,
    host: String,
    target: String,
    bytes: u64,
}

/// The connections that a request asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct ConnectionFilter {
    client: Option<String>,
    state: Option<String>,
    older_s: Option<u32>,
}

impl ConnectionFilter {
    fn of(request: &ControlRequest) -> Result<Self, ControlFault> {
        let mut filter = Self::default();
        for (name, value) in request.parameters() {
            match name.as_str() {
                "client" => filter.client = Some(value),
                "state" => filter.state = Some(value.to_ascii_lowercase()),
                "older" => {
                    let seconds = value.parse();
                    filter.older_s = Some(seconds.map_err(|_| ControlFault::Parameter(name))?);
                }
                _ => return Err(ControlFault::Parameter(name)),
            }
        }
        Ok(filter)
    }

    fn admits(&self, row: &ConnectionReport) -> bool {
        self.client.as_ref().is_none_or(|client| **client == *row.client)
            && self.state.as_ref().is_none_or(|state| row.doing.label().starts_with(&**state))
            && self.older_s.is_none_or(|older_s| row.for_s >= older_s)
    }
}

/// Lists the connections that a request asks for.
///
/// # Errors
/// It has an unknown parameter.
pub(super) async fn list(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<Vec<ConnectionView>, ControlFault> {
    let filter = ConnectionFilter::of(request)?;
    let board = server.plan().shared.board.clone();
    let wanted = ReportParts { connections: true, ..ReportParts::default() };
    let (reports, _) = board.ask(wanted).await;
    board.order(&WorkerOrder::NoteTargets { for_s: TARGETS_FOR_S }).await;
    let mut views = Vec::new();
    for report in reports {
        let worker = report.worker;
        let rows = report.connections.into_iter().flat_map(ConnectionReport::into_rows);
        views.extend(rows.filter(|row| filter.admits(row)).map(|row| view(worker, row)));
    }
    Ok(views)
}

fn view(worker: usize, row: ConnectionReport) -> ConnectionView {
    let mut id = format!("{worker}.{}.{}", row.number, row.serial);
    if row.stream != 0 {
        id += &format!(".{}", row.stream);
    }
    ConnectionView {
        id,
        worker,
        client: row.client.to_string(),
        state: row.doing.label(),
        for_s: row.for_s,
        protocol: row.protocol,
        method: row.method,
        host: row.host,
        target: row.target,
        bytes: row.bytes,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KillBody {
    id: String,
}

/// Ends a connection or a stream.
///
/// # Errors
/// The body is malformed, or there is no such connection any more.
pub(super) async fn kill(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<ChangeDone, ControlFault> {
    let KillBody { id } = read_body(&request.body)?;
    let Some(order) = kill_order(&id) else { return Err(ControlFault::NoConnection(id)) };
    match server.plan().shared.board.order(&order).await {
        0 => Err(ControlFault::NoConnection(id)),
        _ => Ok(ChangeDone { message: format!("{id} is ended") }),
    }
}

/// Reads `WORKER.NUMBER.SERIAL`, and `.STREAM` for a stream.
fn kill_order(id: &str) -> Option<WorkerOrder> {
    let mut parts = id.split('.').map(|part| part.parse::<u32>().ok());
    let mut next = || parts.next().flatten();
    let (worker, number, serial) = (next()? as usize, next()?, next()?);
    let stream = match parts.next() {
        None => 0,
        Some(stream) => stream.filter(|stream| *stream > 0)?,
    };
    let is_over = parts.next().is_none();
    is_over.then_some(WorkerOrder::Kill { worker, number, serial, stream })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_names_worker_connection_and_stream() {
        let order = |stream| WorkerOrder::Kill { worker: 1, number: 2, serial: 3, stream };
        assert_eq!(kill_order("1.2.3"), Some(order(0)));
        assert_eq!(kill_order("1.2.3.5"), Some(order(5)));
        for bad in ["", "1", "1.2", "1.2.", "1.2.3.", "1.2.3.0", "1.2.3.4.5", "-1.2.3", "a.2.3"] {
            assert_eq!(kill_order(bad), None, "{bad}");
        }
    }
}
