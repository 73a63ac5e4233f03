//! A sample of a status page's JSON.

use std::io;

use lighty_io::clock::Clock;
use serde_json::Value;

use crate::plain::plain;

/// Distribution of request durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Durations {
    pub(super) requests: u64,
    pub(super) sum_us: u64,
    pub(super) p50_us: u64,
    pub(super) p90_us: u64,
    pub(super) p99_us: u64,
    pub(super) p99_9_us: u64,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) name: String,
    pub(super) errors: u64,
    pub(super) durations: Durations,
}

/// A backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Backend {
    pub(super) pool: String,
    pub(super) address: String,
    pub(super) state: String,
    /// Reason that it is down.
    pub(super) why: String,
    pub(super) in_use: u64,
    pub(super) idle: u64,
    pub(super) requests: u64,
    pub(super) failed: u64,
    pub(super) first_byte_us: u64,
}

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Worker {
    pub(super) number: u64,
    pub(super) requests: u64,
    pub(super) bytes_out: u64,
    pub(super) open: u64,
    pub(super) idle: u64,
    pub(super) cpu_us: u64,
    pub(super) late_us: u64,
    pub(super) engine: String,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) client: String,
    pub(super) state: String,
    pub(super) seconds: u64,
    pub(super) bytes: u64,
    pub(super) host: String,
    pub(super) request: String,
}

/// A host that the configuration names (`status.hosts`), or all others together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) requests: u64,
    pub(super) client_errors: u64,
    pub(super) server_errors: u64,
    pub(super) bytes_out: u64,
}

/// The latest whole second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Second {
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) bytes_out: u64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
}

/// Data of one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Time of the sample, in microseconds of the monotonic clock.
    pub(super) taken_us: u64,
    pub(super) version: String,
    pub(super) uptime_s: u64,
    pub(super) workers_expected: u64,
    pub(super) requests: u64,
    pub(super) busy: u64,
    pub(super) idle: u64,
    pub(super) waiting: u64,
    pub(super) second: Second,
    pub(super) routes: Vec<Route>,
    pub(super) stages: Vec<Route>,
    pub(super) backends: Vec<Backend>,
    pub(super) workers: Vec<Worker>,
    pub(super) connections: Vec<Connection>,
    pub(super) hosts: Vec<Host>,
}

impl Sample {
    /// Parses the JSON.
    pub(super) fn read(json: &[u8]) -> io::Result<Self> {
        let value: Value = serde_json::from_slice(json).map_err(io::Error::other)?;
        if value["routes"].as_array().is_none() {
            return Err(io::Error::other("it has no routes"));
        }
        Ok(Self {
            taken_us: Clock::start().mono_us(),
            version: text(&value, "version"),
            uptime_s: number(&value, "Uptime"),
            workers_expected: number(&value, "workers_expected"),
            requests: number(&value, "TotalRequests"),
            busy: number(&value, "BusyServers"),
            idle: number(&value, "IdleServers"),
            waiting: items(&value["pools"]).map(|pool| number(pool, "waiting")).sum(),
            second: items(&value["history"]).last().map(second).unwrap_or_default(),
            routes: items(&value["routes"]).map(|route| of_route(route, "route")).collect(),
            stages: items(&value["stages"]).map(|stage| of_route(stage, "stage")).collect(),
            backends: items(&value["pools"]).flat_map(backends).collect(),
            workers: items(&value["workers"]).map(worker).collect(),
            connections: items(&value["connections"]).map(connection).collect(),
            hosts: items(&value["hosts"]).map(host).collect(),
        })
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(0)
}

/// Sanitises text, which may come from clients.
fn text(value: &Value, name: &str) -> String {
    plain(value[name].as_str().unwrap_or_default())
}

fn second(value: &Value) -> Second {
    Second {
        requests: number(value, "requests"),
        errors: number(value, "errors"),
        bytes_out: number(value, "bytes_out"),
        p50_us: number(value, "p50_us"),
        p99_us: number(value, "p99_us"),
    }
}

fn of_route(value: &Value, name: &str) -> Route {
    let durations = Durations {
        requests: number(value, "requests"),
        sum_us: number(value, "sum_us"),
        p50_us: number(value, "p50_us"),
        p90_us: number(value, "p90_us"),
        p99_us: number(value, "p99_us"),
        p99_9_us: number(value, "p99_9_us"),
    };
    Route { name: text(value, name), errors: number(value, "errors"), durations }
}

fn backends(pool: &Value) -> impl Iterator<Item = Backend> {
    let name = text(pool, "name");
    items(&pool["backends"]).map(move |backend| Backend {
        pool: name.clone(),
        address: text(backend, "address"),
        state: text(backend, "state"),
        why: text(backend, "why"),
        in_use: number(backend, "in_use"),
        idle: number(backend, "idle"),
        requests: number(backend, "requests"),
        failed: number(backend, "failed"),
        first_byte_us: number(backend, "first_byte_us"),
    })
}

fn worker(value: &Value) -> Worker {
    Worker {
        number: number(value, "worker"),
        requests: number(value, "requests"),
        bytes_out: number(value, "bytes_out"),
        open: number(value, "open"),
        idle: number(value, "idle"),
        cpu_us: number(value, "cpu_us"),
        late_us: number(value, "late_us"),
        engine: text(value, "file_engine"),
    }
}

fn host(value: &Value) -> Host {
    Host {
        name: text(value, "host"),
        requests: number(value, "requests"),
        client_errors: number(value, "client_errors"),
        server_errors: number(value, "server_errors"),
        bytes_out: number(value, "bytes_out"),
    }
}

fn connection(value: &Value) -> Connection {
    let request = format!("{} {}", text(value, "method"), text(value, "url"));
    Connection {
        client: text(value, "client"),
        state: text(value, "state"),
        seconds: number(value, "seconds"),
        bytes: number(value, "bytes"),
        host: text(value, "host"),
        request: request.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_page_is_read_and_steers_no_terminal() {
        let json = br#"{"version":"1","Uptime":5,"TotalRequests":7,"routes":[{"route":"a",
            "requests":3,"p99_us":9}],"pools":[{"name":"p","waiting":2,"backends":[{"address":"b",
            "in_use":1}]}],"connections":[{"method":"GET","url":"/\u001b[2J"}]}"#;
        let sample = Sample::read(json).expect("a sample");
        assert_eq!((sample.uptime_s, sample.requests, sample.waiting), (5, 7, 2));
        assert_eq!((&*sample.routes[0].name, sample.routes[0].durations.p99_us), ("a", 9));
        assert_eq!((&*sample.backends[0].pool, sample.backends[0].in_use), ("p", 1));
        assert_eq!(sample.connections[0].request, "GET /?[2J");
        assert!(Sample::read(b"{}").is_err() && Sample::read(b"<html>").is_err());
    }
}
