//! What scripts see of the server: `lighty.server`.

use std::borrow::Cow;
use std::time::Duration;

use lighty_core::Exchange;
use lighty_core::machine::status_board::{ConnState, Connection, Report, StatusBoard, Wanted};
use lighty_lua::accounts::Accounts;
use lighty_lua::{Item, OpenRequest};

/// Name and version, as `lighty.server.stats.version` gives them.
const VERSION: &[u8] = concat!("lighty/", env!("CARGO_PKG_VERSION")).as_bytes();

/// The process that scripts run in.
pub(crate) struct Server {
    pub(super) accounts: Accounts,
    board: StatusBoard,
    /// Wall-clock seconds when it was started.
    started_s: i64,
}

impl Server {
    pub(super) fn new(accounts: Accounts, board: &StatusBoard, started_s: i64) -> Self {
        Self { accounts, board: board.clone(), started_s }
    }

    /// A value of `lighty.server.stats` that needs no other worker; `None` for an unknown name.
    pub(super) fn stats(&self, ex: &Exchange, name: &[u8]) -> Option<Item<'static>> {
        match name {
            b"version" => Some(Item::Bytes(Cow::Borrowed(VERSION))),
            b"uptime" => Some(Item::Int((ex.machine.clock.unix_s() - self.started_s).max(0))),
            _ => None,
        }
    }

    /// Open connections of all workers.
    pub(super) async fn clients_open(&self) -> i64 {
        let (reports, _) = self.board.ask(Wanted::default()).await;
        let open: u64 = reports.iter().map(Report::open).sum();
        i64::try_from(open).unwrap_or(i64::MAX)
    }

    /// The requests that clients wait for, in all workers: as many as the status page tells.
    pub(super) async fn requests(&self) -> Vec<OpenRequest> {
        let wanted = Wanted { connections: true, ..Wanted::default() };
        let (reports, _) = self.board.ask(wanted).await;
        let connections = reports.into_iter().flat_map(|report| report.connections);
        let rows = connections.flat_map(Connection::into_rows);
        rows.filter(|one| one.doing != ConnState::Idle).map(open_request).collect()
    }
}

fn open_request(one: Connection) -> OpenRequest {
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
    let mut attributes: Vec<(&'static str, Vec<u8>)> = vec![
        ("request.method", one.method.as_bytes().to_vec()),
        ("request.stage", stage.to_vec()),
        ("request.remote-addr", one.client.as_bytes().to_vec()),
        ("request.remote-ip", one.client.as_bytes().to_vec()),
        ("uri.authority", one.host.into_bytes()),
        ("uri.path-raw", path.to_vec()),
    ];
    if let Some(query) = query.get(1..) {
        attributes.push(("uri.query", query.to_vec()));
    }
    attributes.push(("request.uri", target));
    OpenRequest { attributes, bytes: one.bytes, age: Duration::from_secs(one.for_s.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_lighttpds_names() {
        let one = Connection {
            number: 0,
            doing: ConnState::Write,
            for_s: 3,
            client: "192.0.2.1".into(),
            method: "GET",
            host: "a.example".to_owned(),
            target: "/a?b=c".to_owned(),
            bytes: 7,
            streams: Vec::new(),
        };
        let told = open_request(one);
        let find = |name: &str| {
            let pair = told.attributes.iter().find(|(known, _)| *known == name);
            pair.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        for (name, value) in [
            ("request.stage", "write"),
            ("uri.path-raw", "/a"),
            ("uri.query", "b=c"),
            ("request.uri", "/a?b=c"),
            ("request.remote-addr", "192.0.2.1"),
        ] {
            assert_eq!(find(name).as_deref(), Some(value), "{name}");
        }
        assert_eq!((told.bytes, told.age.as_secs()), (7, 3));
    }
}
