//! The server's status for programs.

use lighty_core::machine::histogram::Histogram;
use lighty_core::machine::metrics::history::Second;
use lighty_core::machine::metrics::hosts::HostCounts;
use lighty_core::machine::status_board::{BackendPool, ConnectionReport, Report, score};
use lighty_http::json::push_string;

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
    let mut out = b"{".to_vec();
    push_totals(facts, &mut out);
    out.extend_from_slice(b"],\n\"statistics\":{");
    push_list(&facts.figures, &mut out, push_figure);
    out.extend_from_slice(b"},\n\"routes\":[");
    push_list(&facts.durations.routes(), &mut out, |(route, errors, durations), out| {
        out.extend_from_slice(format!("{{\"errors\":{errors}").as_bytes());
        push_member("route", route, out);
        push_durations(durations, out);
    });
    out.extend_from_slice(b"],\n\"hosts\":[");
    push_list(&facts.hosts, &mut out, |(name, counts), out| {
        let HostCounts { requests, client_errors, server_errors, bytes_out } = counts;
        let numbers = format!(
            "{{\"requests\":{requests},\"client_errors\":{client_errors},\
             \"server_errors\":{server_errors},\"bytes_out\":{bytes_out}"
        );
        out.extend_from_slice(numbers.as_bytes());
        push_member("host", name, out);
        out.push(b'}');
    });
    out.extend_from_slice(b"],\n\"stages\":[");
    push_list(&facts.durations.spans(), &mut out, |(name, durations), out| {
        out.extend_from_slice(format!("{{\"stage\":\"{name}\"").as_bytes());
        push_durations(durations, out);
    });
    out.extend_from_slice(b"],\n\"certificates\":[");
    push_list(&facts.certificates, &mut out, |(name, expires_s), out| {
        out.extend_from_slice(format!("{{\"expires_s\":{expires_s}").as_bytes());
        push_member("name", name, out);
        out.push(b'}');
    });
    out.extend_from_slice(b"],\n\"history\":[");
    push_list(&facts.history, &mut out, push_second);
    out.extend_from_slice(b"],\n\"pools\":[");
    push_list(&facts.pools, &mut out, push_pool);
    out.extend_from_slice(b"],\n\"connections\":[");
    let all: Vec<_> = facts.rows().collect();
    push_list(&all, &mut out, |(worker, connection), out| {
        push_connection(*worker, connection, out);
    });
    out.extend_from_slice(b"]}\n");
    out
}

/// A JSON object of lighttpd's members alone. A site that loads it as a script learns nothing of
/// clients, their requests or backends.
pub(super) fn totals(facts: &Facts) -> String {
    format!("{{{}}}", members_of_lighttpd(facts))
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

/// Appends the workers and the sums, by lighttpd's names and by names with units.
fn push_totals(facts: &Facts, out: &mut Vec<u8>) {
    let totals = format!(
        "{},\n\"TotalRequests\":{},\"TotalKBytes\":{},\"KBytesAverage5s\":{},\n\
         \"version\":\"{}\",\"workers_expected\":{},\n\"workers\":[",
        members_of_lighttpd(facts),
        facts.sum(|report| report.requests),
        facts.sum(|report| report.bytes_out) / 1024,
        facts.recent(|report| report.pace.bytes_out) / 1024,
        facts.version,
        facts.asked.workers,
    );
    out.extend_from_slice(totals.as_bytes());
    push_list(facts.reports(), out, push_worker);
}

/// The members of lighttpd 1.4's object, in its units; traffic is in KB.
fn members_of_lighttpd(facts: &Facts) -> String {
    format!(
        "\"RequestsTotal\":{},\"TrafficTotal\":{},\"Uptime\":{},\"BusyServers\":{},\
         \"IdleServers\":{},\"RequestAverage5s\":{},\"TrafficAverage5s\":{}",
        facts.sum(|report| report.requests),
        facts.sum(|report| report.bytes_out) / 1024,
        facts.uptime_s(),
        facts.busy(),
        facts.idle(),
        facts.recent(|report| report.pace.requests),
        facts.recent(|report| report.pace.bytes_out) / 1024,
    )
}

/// Appends items, each on a line of its own.
fn push_list<T>(items: &[T], out: &mut Vec<u8>, push: impl Fn(&T, &mut Vec<u8>)) {
    for (index, item) in items.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"\n" } else { b",\n" });
        push(item, out);
    }
}

fn push_figure((name, value): &(String, String), out: &mut Vec<u8>) {
    push_string(name.as_bytes(), out);
    out.push(b':');
    match value.parse::<u64>() {
        Ok(_) => out.extend_from_slice(value.as_bytes()),
        Err(_) => push_string(value.as_bytes(), out),
    }
}

/// Appends the members for durations, and ends the object.
fn push_durations(durations: &Histogram, out: &mut Vec<u8>) {
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|share| durations.quantile_us(share));
    let members = format!(
        ",\"requests\":{},\"sum_us\":{},\"p50_us\":{p50},\"p90_us\":{p90},\"p99_us\":{p99},\
         \"p99_9_us\":{p999}}}",
        durations.count(),
        durations.sum_us(),
    );
    out.extend_from_slice(members.as_bytes());
}

fn push_second(second: &Second, out: &mut Vec<u8>) {
    let members = format!(
        "{{\"at_s\":{},\"requests\":{},\"errors\":{},\"client_errors\":{},\
         \"bytes_out\":{},\"open\":{},\
         \"p50_us\":{},\"p99_us\":{}}}",
        second.at_s,
        second.requests,
        second.errors,
        second.client_errors,
        second.bytes_out,
        second.open,
        second.p50_us,
        second.p99_us,
    );
    out.extend_from_slice(members.as_bytes());
}

fn push_worker(report: &Report, out: &mut Vec<u8>) {
    let numbers = format!(
        "{{\"worker\":{},\"requests\":{},\"bytes_in\":{},\"bytes_out\":{},\"open\":{},\"idle\":{},\
         \"streams\":{},\"cpu_us\":{},\"late_us\":{}",
        report.worker,
        report.requests,
        report.bytes_in,
        report.bytes_out,
        report.open(),
        report.idle(),
        report.streams.iter().sum::<u64>(),
        report.cpu_us,
        report.late_us,
    );
    out.extend_from_slice(numbers.as_bytes());
    for (name, text) in [
        ("file_engine", &report.engine.0),
        ("file_engine_reason", &report.engine.1),
        ("network_backend", &report.network_backend),
    ] {
        push_member(name, text, out);
    }
    out.push(b'}');
}

fn push_pool(pool: &BackendPool, out: &mut Vec<u8>) {
    let numbers = format!("{{\"requests\":{},\"waiting\":{}", pool.requests, pool.waiting);
    out.extend_from_slice(numbers.as_bytes());
    push_member("name", &pool.name, out);
    out.extend_from_slice(b",\"backends\":[");
    for (index, backend) in pool.backends.iter().enumerate() {
        let numbers = format!(
            "{}{{\"in_use\":{},\"idle\":{},\"requests\":{},\"failed\":{},\"first_byte_us\":{}",
            if index == 0 { "" } else { "," },
            backend.in_use,
            backend.idle,
            backend.requests,
            backend.failed,
            backend.first_byte_us,
        );
        out.extend_from_slice(numbers.as_bytes());
        push_member("address", &backend.address, out);
        push_member("state", backend.state, out);
        push_member("why", &backend.why, out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
}

fn push_connection(worker: usize, connection: &ConnectionReport, out: &mut Vec<u8>) {
    let numbers = format!(
        "{{\"worker\":{worker},\"connection\":{},\"seconds\":{},\"bytes\":{}",
        connection.number, connection.for_s, connection.bytes
    );
    out.extend_from_slice(numbers.as_bytes());
    for (name, text) in [
        ("state", connection.doing.words()),
        ("client", &connection.client),
        ("method", connection.method),
        ("host", &connection.host),
        ("url", &connection.target),
    ] {
        push_member(name, text, out);
    }
    out.push(b'}');
}

fn push_member(name: &str, text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!(",\"{name}\":").as_bytes());
    push_string(text.as_bytes(), out);
}

#[cfg(test)]
mod tests {
    use lighty_core::machine::status_board::{BackendReport, ConnState, Pace};

    use super::*;
    use crate::status::durations::Durations;
    use crate::status::facts::Asked;

    fn facts() -> Facts {
        let connection = ConnectionReport {
            number: 4,
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
        let asked = Asked {
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
            asked,
            figures: vec![("a.b".to_owned(), "up".to_owned()), ("c".to_owned(), "2".to_owned())],
            pools: vec![pool],
            certificates: vec![("/a \"b\".pem".to_owned(), 7)],
            durations: Durations::default(),
            hosts: Vec::new(),
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
        let text = String::from_utf8(call("cb", totals(&facts()).as_bytes())).expect("text");
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
