//! `lighty.server`: server data for scripts.

use std::borrow::Cow;
use std::time::Duration;

use lighty_core::Exchange;
use lighty_core::machine::status_board::{
    ConnState, ConnectionReport, Report, ReportParts, StatusBoard,
};
use lighty_lua::accounts::Accounts;
use lighty_lua::{OpenRequest, ScriptValue};

/// Name and version, as `lighty.server.stats.version` gives them.
const VERSION: &[u8] = concat!("lighty/", env!("CARGO_PKG_VERSION")).as_bytes();

/// Process data for scripts.
pub(crate) struct ScriptServer {
    pub(super) accounts: Accounts,
    board: StatusBoard,
    /// Wall-clock seconds when it was started.
    started_s: i64,
}

impl ScriptServer {
    pub(super) fn new(accounts: Accounts, board: &StatusBoard, started_s: i64) -> Self {
        Self { accounts, board: board.clone(), started_s }
    }

    /// A value of `lighty.server.stats` that needs no other worker; `None` for an unknown name.
    pub(super) fn stats(&self, ex: &Exchange, name: &[u8]) -> Option<ScriptValue<'static>> {
        match name {
            b"version" => Some(ScriptValue::Bytes(Cow::Borrowed(VERSION))),
            b"uptime" => {
                Some(ScriptValue::Int((ex.machine.clock.unix_s() - self.started_s).max(0)))
            }
            _ => None,
        }
    }

    /// Open connections of all workers.
    pub(super) async fn clients_open(&self) -> i64 {
        let (reports, _) = self.board.ask(ReportParts::default()).await;
        let open: u64 = reports.iter().map(Report::open).sum();
        i64::try_from(open).unwrap_or(i64::MAX)
    }

    /// The open requests of all workers, as many as on the status page.
    pub(super) async fn requests(&self) -> Vec<OpenRequest> {
        let wanted = ReportParts { connections: true, ..ReportParts::default() };
        let (reports, _) = self.board.ask(wanted).await;
        let connections = reports.into_iter().flat_map(|report| report.connections);
        let rows = connections.flat_map(ConnectionReport::into_rows);
        rows.filter(|one| one.doing != ConnState::Idle).map(open_request).collect()
    }
}

fn open_request(one: ConnectionReport) -> OpenRequest {
    let target = one.target.into_bytes();
    let end = target.iter().position(|byte| *byte == b'?');
    let (path, query) = target.split_at(end.unwrap_or(target.len()));
    let stage: &[u8] = match one.doing {
        ConnState::Idle => b"req-start",
        ConnState::Head => b"read",
        ConnState::Body => b"readpost",
        ConnState::Handler => b"handle-req",
        ConnState::Write | ConnState::Duplex => b"write",
    };
    let mut decoded = Vec::with_capacity(path.len());
    lighty_http::uri::decode_into(path, &mut decoded);
    let (bytes_in, bytes_out) = match one.doing {
        ConnState::Write | ConnState::Duplex => (0, one.bytes),
        ConnState::Idle | ConnState::Head | ConnState::Body | ConnState::Handler => (one.bytes, 0),
    };
    let mut attributes: Vec<(&'static str, Vec<u8>)> = vec![
        ("request.method", one.method.as_bytes().to_vec()),
        ("request.stage", stage.to_vec()),
        ("request.remote-addr", one.client.as_bytes().to_vec()),
        ("request.remote-ip", one.client.as_bytes().to_vec()),
        ("request.remote-port", one.remote_port.to_string().into_bytes()),
        ("request.server-port", one.local_port.to_string().into_bytes()),
        ("request.server-name", one.host.as_bytes().to_vec()),
        ("request.protocol", one.protocol.as_bytes().to_vec()),
        ("request.orig-uri", target.clone()),
        ("uri.scheme", one.scheme.as_bytes().to_vec()),
        ("uri.authority", one.host.into_bytes()),
        ("uri.path", decoded),
        ("uri.path-raw", path.to_vec()),
    ];
    if let Some(query) = query.get(1..) {
        attributes.push(("uri.query", query.to_vec()));
    }
    attributes.push(("request.uri", target));
    let age = Duration::from_secs(one.for_s.into());
    OpenRequest { attributes, bytes: one.bytes, bytes_in, bytes_out, age }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_lighttpds_names() {
        let one = ConnectionReport {
            number: 0,
            serial: 0,
            stream: 0,
            doing: ConnState::Write,
            for_s: 3,
            client: "192.0.2.1".into(),
            method: "GET",
            host: "a.example".to_owned(),
            target: "/a%20b?b=c".to_owned(),
            scheme: "https",
            protocol: "HTTP/1.1",
            local_port: 443,
            remote_port: 5000,
            bytes: 7,
            streams: Vec::new(),
        };
        let reported = open_request(one);
        let find = |name: &str| {
            let pair = reported.attributes.iter().find(|(known, _)| *known == name);
            pair.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        for (name, value) in [
            ("request.stage", "write"),
            ("uri.path-raw", "/a%20b"),
            ("uri.path", "/a b"),
            ("uri.scheme", "https"),
            ("uri.authority", "a.example"),
            ("request.orig-uri", "/a%20b?b=c"),
            ("request.server-port", "443"),
            ("request.remote-port", "5000"),
            ("request.protocol", "HTTP/1.1"),
            ("uri.query", "b=c"),
            ("request.uri", "/a%20b?b=c"),
            ("request.remote-addr", "192.0.2.1"),
        ] {
            assert_eq!(find(name).as_deref(), Some(value), "{name}");
        }
        assert_eq!((reported.bytes_in, reported.bytes_out), (0, 7));
        assert_eq!((reported.bytes, reported.age.as_secs()), (7, 3));
    }
}
