//! The server's status for programs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lighty_core::json;
use lighty_core::machine::histogram::Histogram;
use lighty_core::machine::metrics::history::Second;
use lighty_core::machine::metrics::hosts::HostCounts;
use lighty_core::machine::status_board::{BackendPool, ConnectionReport, Report, score};
use lighty_io::file::followed::FollowedState;
use serde::{Serialize, Serializer};

use super::facts::Facts;

pub(super) const PLAIN: &str = "text/plain";
pub(super) const JSON: &str = "application/json";
pub(super) const SCRIPT: &str = "application/javascript";

/// Maximum length of a callback's name, in bytes.
const CALLBACK_BYTES_MAX: usize = 100;

/// Lines in the format of Apache's and lighttpd's status modules. Traffic is in bytes per second.
pub(super) fn auto(facts: &Facts) -> String {
    format!(
        "Total Accesses: {}\nTotal kBytes: {}\nUptime: {}\nBusyServers: {}\nIdleServers: {}\n\
         Traffic: {}\nTraffic5s: {}\nScoreboard: {}\n",
        facts.sum(|report| report.requests),
        facts.sum(|report| report.bytes_out) / 1024,
        facts.uptime_s(),
        facts.busy(),
        facts.idle(),
        facts.mean(|report| report.bytes_out),
        facts.recent(|report| report.pace.bytes_out),
        score(facts.reports()),
    )
}

/// Sorted lines of names and values.
pub(super) fn statistics(facts: &Facts) -> String {
    facts.figures.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

/// A JSON object. Its first members have the names and units of lighttpd 1.4.
pub(super) fn json(facts: &Facts) -> Vec<u8> {
    let mut out = Vec::new();
    json::push_lines(&StatusText::of(facts), &mut out);
    out.push(b'\n');
    out
}

/// A JSON object of lighttpd's members alone. A site that loads it as a script learns nothing of
/// clients, their requests or backends.
pub(super) fn totals(facts: &Facts) -> Vec<u8> {
    let mut out = Vec::new();
    json::push(&LighttpdTotals::of(facts), &mut out);
    out
}

/// Wraps the JSON in a call of the callback, for sites that load it as a script.
pub(super) fn call(callback: &str, json: &[u8]) -> Vec<u8> {
    [callback.as_bytes(), b"(", json.trim_ascii_end(), b");\n"].concat()
}

/// Returns the callback of the query. Only the characters that lighttpd accepts are allowed, so
/// that no page can inject others into a script.
pub(super) fn callback(query: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(query.strip_prefix(b"jsonp=")?).ok()?;
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!name.is_empty() && name.len() <= CALLBACK_BYTES_MAX && name.bytes().all(is_fit))
        .then_some(name)
}

/// The members of lighttpd 1.4's object, in its units; traffic is in KB.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct LighttpdTotals {
    requests_total: u64,
    traffic_total: u64,
    uptime: u64,
    busy_servers: u64,
    idle_servers: u64,
    request_average5s: u64,
    traffic_average5s: u64,
}

impl LighttpdTotals {
    fn of(facts: &Facts) -> Self {
        Self {
            requests_total: facts.sum(|report| report.requests),
            traffic_total: facts.sum(|report| report.bytes_out) / 1024,
            uptime: facts.uptime_s(),
            busy_servers: facts.busy(),
            idle_servers: facts.idle(),
            request_average5s: facts.recent(|report| report.pace.requests),
            traffic_average5s: facts.recent(|report| report.pace.bytes_out) / 1024,
        }
    }
}

/// The whole object. Sums have lighttpd's names first, then names with units.
#[derive(Serialize)]
struct StatusText<'a> {
    #[serde(flatten)]
    lighttpd: LighttpdTotals,
    #[serde(rename = "TotalRequests")]
    requests: u64,
    #[serde(rename = "TotalKBytes")]
    kbytes: u64,
    #[serde(rename = "KBytesAverage5s")]
    kbytes_average: u64,
    version: &'static str,
    workers_expected: usize,
    workers: Vec<WorkerRow<'a>>,
    #[serde(serialize_with = "figures")]
    statistics: &'a [(String, String)],
    routes: Vec<RouteRow>,
    hosts: Vec<HostRow<'a>>,
    stages: Vec<StageRow>,
    certificates: Vec<CertificateRow<'a>>,
    data_files: Vec<DataFileRow<'a>>,
    history: &'a [Second],
    pools: Vec<PoolRow<'a>>,
    connections: Vec<ConnectionRow<'a>>,
}

impl<'a> StatusText<'a> {
    fn of(facts: &'a Facts) -> Self {
        let lighttpd = LighttpdTotals::of(facts);
        let mut cached = facts.durations.cached_routes();
        let routes = facts.durations.routes().into_iter().map(|(route, errors, durations)| {
            let cache = cached.remove(&route).unwrap_or_default().into_iter().collect();
            let durations = Percentiles::of(&durations);
            RouteRow { errors, route: route.to_string(), cache, durations }
        });
        let stages = facts
            .durations
            .spans()
            .into_iter()
            .map(|(stage, durations)| StageRow { stage, durations: Percentiles::of(&durations) });
        let hosts = facts.hosts.iter().map(|(host, counts)| HostRow { counts: *counts, host });
        let certificates = facts.certificates.iter();
        Self {
            requests: lighttpd.requests_total,
            kbytes: lighttpd.traffic_total,
            kbytes_average: lighttpd.traffic_average5s,
            lighttpd,
            version: facts.version,
            workers_expected: facts.input.workers,
            workers: facts.reports().iter().map(WorkerRow::of).collect(),
            statistics: &facts.figures,
            routes: routes.collect(),
            hosts: hosts.collect(),
            stages: stages.collect(),
            certificates: certificates
                .map(|(name, expires_s)| CertificateRow { expires_s: *expires_s, name })
                .collect(),
            data_files: facts.data_files.iter().map(DataFileRow::of).collect(),
            history: &facts.history,
            pools: facts.pools.iter().map(PoolRow::of).collect(),
            connections: facts.rows().map(ConnectionRow::of).collect(),
        }
    }
}

/// Figures as members; numbers are numbers.
fn figures<S: Serializer>(figures: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Figure<'a> {
        Number(u64),
        Text(&'a str),
    }
    serializer.collect_map(
        figures
            .iter()
            .map(|(name, value)| (name, value.parse().map_or(Figure::Text(value), Figure::Number))),
    )
}

#[derive(Serialize)]
struct WorkerRow<'a> {
    worker: usize,
    requests: u64,
    bytes_in: u64,
    bytes_out: u64,
    open: u64,
    idle: u64,
    streams: u64,
    cpu_us: u64,
    late_us: u64,
    file_engine: &'a str,
    file_engine_reason: &'a str,
    network_backend: &'a str,
}

impl<'a> WorkerRow<'a> {
    fn of(report: &'a Report) -> Self {
        Self {
            worker: report.worker,
            requests: report.requests,
            bytes_in: report.bytes_in,
            bytes_out: report.bytes_out,
            open: report.open(),
            idle: report.idle(),
            streams: report.streams.iter().sum(),
            cpu_us: report.cpu_us,
            late_us: report.late_us,
            file_engine: &report.engine.0,
            file_engine_reason: &report.engine.1,
            network_backend: &report.network_backend,
        }
    }
}

/// A distribution of durations.
#[derive(Serialize)]
struct Percentiles {
    requests: u64,
    sum_us: u64,
    p50_us: u64,
    p90_us: u64,
    p99_us: u64,
    p99_9_us: u64,
}

impl Percentiles {
    fn of(durations: &Histogram) -> Self {
        let [p50_us, p90_us, p99_us, p99_9_us] =
            [0.5, 0.9, 0.99, 0.999].map(|share| durations.quantile_us(share));
        let (requests, sum_us) = (durations.count(), durations.sum_us());
        Self { requests, sum_us, p50_us, p90_us, p99_us, p99_9_us }
    }
}

#[derive(Serialize)]
struct RouteRow {
    errors: u64,
    route: String,
    /// Requests by the result of the cache.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    cache: BTreeMap<&'static str, u64>,
    #[serde(flatten)]
    durations: Percentiles,
}

#[derive(Serialize)]
struct StageRow {
    stage: &'static str,
    #[serde(flatten)]
    durations: Percentiles,
}

#[derive(Serialize)]
struct HostRow<'a> {
    #[serde(flatten)]
    counts: HostCounts,
    host: &'a str,
}

#[derive(Serialize)]
struct CertificateRow<'a> {
    expires_s: i64,
    name: &'a str,
}

#[derive(Serialize)]
struct DataFileRow<'a> {
    entries: u64,
    read_s: i64,
    fault: Option<&'a str>,
    kind: &'a str,
    name: Cow<'a, str>,
}

impl<'a> DataFileRow<'a> {
    fn of(file: &'a FollowedState) -> Self {
        Self {
            entries: file.entries,
            read_s: file.read_s,
            fault: file.fault.as_deref(),
            kind: file.kind,
            name: file.path.to_string_lossy(),
        }
    }
}

#[derive(Serialize)]
struct PoolRow<'a> {
    requests: u64,
    waiting: u32,
    name: &'a str,
    backends: Vec<BackendRow<'a>>,
}

impl<'a> PoolRow<'a> {
    fn of(pool: &'a BackendPool) -> Self {
        let backends = pool.backends.iter().map(|backend| BackendRow {
            in_use: backend.in_use,
            idle: backend.idle,
            requests: backend.requests,
            failed: backend.failed,
            first_byte_us: backend.first_byte_us,
            address: &backend.address,
            state: backend.state,
            why: &backend.why,
        });
        let BackendPool { name, requests, waiting, .. } = pool;
        Self { requests: *requests, waiting: *waiting, name, backends: backends.collect() }
    }
}

#[derive(Serialize)]
struct BackendRow<'a> {
    in_use: u32,
    idle: u32,
    requests: u64,
    failed: u64,
    first_byte_us: u32,
    address: &'a str,
    state: &'a str,
    why: &'a str,
}

#[derive(Serialize)]
struct ConnectionRow<'a> {
    worker: usize,
    connection: u32,
    seconds: u32,
    bytes: u64,
    state: &'a str,
    client: &'a str,
    method: &'a str,
    host: &'a str,
    url: &'a str,
}

impl<'a> ConnectionRow<'a> {
    fn of((worker, connection): (usize, &'a ConnectionReport)) -> Self {
        Self {
            worker,
            connection: connection.number,
            seconds: connection.for_s,
            bytes: connection.bytes,
            state: connection.doing.label(),
            client: &connection.client,
            method: connection.method,
            host: &connection.host,
            url: &connection.target,
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_core::machine::status_board::{BackendReport, ConnState, Pace};

    use super::*;
    use crate::status::durations::{Durations, RequestLabels};
    use crate::status::facts::FactsInput;

    fn durations() -> Durations {
        let mut durations = Durations::default();
        let mut one = Histogram::default();
        one.record_native(1_000);
        durations.stages.insert((1, "handler", "files".into()), one.clone());
        let labels = RequestLabels {
            route: "files".into(),
            method: "GET",
            status: Some(502),
            version: "2",
            scheme: "https",
        };
        durations.requests.insert(labels, one);
        durations
    }

    fn facts() -> Facts {
        let connection = ConnectionReport {
            number: 4,
            serial: 0,
            stream: 0,
            doing: ConnState::Write,
            for_s: 3,
            client: "127.0.0.1".into(),
            method: "GET",
            host: "a".into(),
            target: "/<\"\u{1}".into(),
            scheme: "http",
            protocol: "HTTP/1.1",
            local_port: 80,
            remote_port: 5000,
            bytes: 9,
            streams: Vec::new(),
        };
        let stream = ConnectionReport { target: "/stream".into(), ..connection.clone() };
        let streams = vec![stream.clone(), stream];
        let both = ConnectionReport { number: 5, streams, ..connection.clone() };
        let report = Report {
            requests: 10,
            bytes_out: 5120,
            pace: Pace { seconds: 5, requests: 5, bytes_out: 2560 },
            doing: [2, 0, 0, 0, 1],
            streams: [0, 0, 0, 2, 0],
            connections: vec![connection, both],
            ..Report::default()
        };
        let input = FactsInput {
            reports: vec![report.clone(), Report { worker: 1, ..report }],
            workers: 2,
            started_s: 100,
            now_s: 110,
            modules: Vec::new(),
            sort: true,
            refresh_s: None,
            host: String::new(),
        };
        let pool = BackendPool {
            name: "\"p\"".to_owned(),
            waiting: 4,
            backends: vec![BackendReport { state: "up", in_use: 2, ..BackendReport::default() }; 2],
            ..BackendPool::default()
        };
        Facts {
            input,
            figures: vec![("a.b".to_owned(), "up".to_owned()), ("c".to_owned(), "2".to_owned())],
            pools: vec![pool],
            certificates: vec![("/a \"b\".pem".to_owned(), 7)],
            data_files: vec![FollowedState {
                path: "/drop".into(),
                kind: "addresses",
                entries: 3,
                read_s: 100,
                fault: Some("gone".to_owned()),
            }],
            durations: durations(),
            hosts: vec![("a".into(), HostCounts { requests: 2, ..HostCounts::default() })],
            history: vec![Second { at_s: 9, requests: 3, ..Second::default() }],
            version: "1",
        }
    }

    #[test]
    fn lines_are_those_of_lighttpd() {
        assert_eq!(
            auto(&facts()),
            "Total Accesses: 20\nTotal kBytes: 10\nUptime: 10\nBusyServers: 2\nIdleServers: 4\n\
             Traffic: 1024\nTraffic5s: 1024\nScoreboard: WWWW\n"
        );
        assert_eq!(statistics(&facts()), "a.b: up\nc: 2\n");
    }

    #[test]
    fn a_callback_is_a_name_and_nothing_else() {
        let text = String::from_utf8(call("cb", &totals(&facts()))).expect("text");
        assert_eq!(
            text,
            "cb({\"RequestsTotal\":20,\"TrafficTotal\":10,\"Uptime\":10,\"BusyServers\":2,\
             \"IdleServers\":4,\"RequestAverage5s\":2,\"TrafficAverage5s\":1});\n",
            "nothing else"
        );
        assert_eq!(callback(b"jsonp=c_B1"), Some("c_B1"));
        let long = format!("jsonp={}", "a".repeat(CALLBACK_BYTES_MAX + 1));
        for bad in
            ["jsonp=", "jsonp", "json", "jsonp=a.b", "jsonp=a(", "jsonp=%61", "jsonp=a&b", &long]
        {
            assert_eq!(callback(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn each_row_of_the_json_is_a_line() {
        let text = String::from_utf8(json(&facts())).expect("text");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines[0], lines.last()), ("{", Some(&WHOLE_LAST_LINE)));
        for line in [
            r#""RequestsTotal":20,"#,
            r#""version":"1","#,
            r#""workers_expected":2,"#,
            r#""workers":["#,
            r#"{"worker":0,"requests":10,"bytes_in":0,"bytes_out":5120,"open":3,"idle":2,"streams":2,"cpu_us":0,"late_us":0,"file_engine":"","file_engine_reason":"","network_backend":""},"#,
            r#""statistics":{"#,
            r#""a.b":"up","#,
            r#""c":2},"#,
            r#"{"requests":2,"client_errors":0,"server_errors":0,"bytes_out":0,"host":"a"}],"#,
            r#"{"expires_s":7,"name":"/a \"b\".pem"}],"#,
            r#"{"at_s":9,"requests":3,"errors":0,"client_errors":0,"bytes_out":0,"open":0,"p50_us":0,"p99_us":0}],"#,
            r#"{"worker":0,"connection":4,"seconds":3,"bytes":9,"state":"write answer","client":"127.0.0.1","method":"GET","host":"a","url":"/\u003c\"\u0001"},"#,
        ] {
            assert!(lines.contains(&line), "{line}: {text}");
        }
        let routes = r#"{"errors":1,"route":"files","requests":1,"sum_us":1000,"p50_us":"#;
        let stages = r#"{"stage":"handler","requests":1,"sum_us":1000,"p50_us":"#;
        assert!(text.contains(routes) && text.contains(stages), "{text}");
        let backend = r#"{"in_use":2,"idle":0,"requests":0,"failed":0,"first_byte_us":0,"address":"","state":"up","why":""}"#;
        let pool = format!(
            r#"{{"requests":0,"waiting":4,"name":"\"p\"","backends":[{backend},{backend}]}}],"#
        );
        assert!(lines.contains(&&*pool), "{pool}: {text}");
    }

    const WHOLE_LAST_LINE: &str = r#"{"worker":1,"connection":4,"seconds":3,"bytes":9,"state":"write answer","client":"127.0.0.1","method":"GET","host":"a","url":"/stream"}]}"#;

    #[test]
    fn json_is_json() {
        let value: serde_json::Value = serde_json::from_slice(&json(&facts())).expect("JSON");
        assert_eq!((&value["TotalRequests"], &value["RequestsTotal"]), (&20.into(), &20.into()));
        assert_eq!((&value["TotalKBytes"], &value["TrafficTotal"]), (&10.into(), &10.into()));
        assert_eq!(value["TrafficAverage5s"], value["KBytesAverage5s"]);
        assert_eq!(value["workers"][1]["worker"], 1);
        assert_eq!(value["connections"][0]["url"], "/<\"\u{1}");
        let url = |at: usize| &value["connections"][at]["url"];
        assert_eq!((url(1), url(2)), (&"/stream".into(), &"/stream".into()), "one for each stream");
        assert_eq!(value["connections"].as_array().map(Vec::len), Some(6));
        assert_eq!(value["workers"][0]["streams"], 2);
        assert_eq!(value["statistics"]["c"], 2);
        assert_eq!(value["history"][0]["requests"], 3);
        assert_eq!(value["certificates"][0]["name"], "/a \"b\".pem");
        assert_eq!(
            (&value["pools"][0]["name"], &value["pools"][0]["waiting"]),
            (&"\"p\"".into(), &4.into())
        );
        assert_eq!(value["pools"][0]["backends"][1]["in_use"], 2);
        assert_eq!(value["pools"][0]["backends"][0]["state"], "up");
    }
}
