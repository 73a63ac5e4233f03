//! The server's own metric families.

mod backends;
mod counters;
mod stores;

use std::collections::BTreeMap;
use std::rc::Rc;

use lighty_core::machine::histogram::{REQUEST_BOUNDS_US, STAGE_BOUNDS_US};
use lighty_core::machine::status_board::{ConnState, FormerWorker, ListenerReport, Report};
use lighty_io::file::followed::FollowedState;
use lighty_io::process::usage::usage;

use super::family::{Family, MetricKind};
use crate::status::facts::Facts;

/// All families with at least one sample.
pub(super) fn all(facts: &Facts) -> Vec<Family> {
    let mut all = vec![requests(facts), stages(facts), cached(facts)];
    all.extend(hosts(facts));
    all.extend(backends::families(facts));
    all.extend(counters::families(&facts.figures));
    all.extend(stores::families(facts));
    all.extend(workers(facts));
    all.extend(listeners(facts));
    all.extend(server(facts));
    all.extend(data_files(facts));
    all.extend(process(facts));
    all.retain(|family| !family.samples.is_empty());
    all
}

fn requests(facts: &Facts) -> Family {
    let mut family = Family::new(
        "http_server_request_duration_seconds",
        MetricKind::Histogram(&REQUEST_BOUNDS_US),
        "Time from the first byte of a request to the last one of its response.",
    );
    for (labels, durations) in &facts.durations.requests {
        let exemplars = facts.durations.exemplars.get(labels).cloned();
        let status = labels.status.map_or_else(|| "other".to_owned(), |code| code.to_string());
        let labels = vec![
            ("http_request_method", labels.method.into()),
            ("url_scheme", labels.scheme.into()),
            ("http_response_status_code", status.into()),
            ("network_protocol_version", labels.version.into()),
            ("http_route", Rc::from(&*labels.route)),
        ];
        family.add_exemplified(labels, durations.clone(), exemplars);
    }
    family
}

fn stages(facts: &Facts) -> Family {
    let mut family = Family::new(
        "lighty_stage_seconds",
        MetricKind::Histogram(&STAGE_BOUNDS_US),
        "Time that requests spent in a stage, of those that it took time of.",
    );
    for ((_, stage, route), durations) in &facts.durations.stages {
        let labels = vec![("stage", Rc::from(*stage)), ("route", Rc::from(&**route))];
        family.add_durations(labels, durations.clone());
    }
    family
}

fn cached(facts: &Facts) -> Family {
    let mut family = Family::new(
        "lighty_cached_request_seconds",
        MetricKind::Histogram(&REQUEST_BOUNDS_US),
        "Time of requests that a cache of responses had a part in.",
    );
    for ((route, result), durations) in &facts.durations.cached {
        let labels = vec![("route", Rc::from(&**route)), ("result", Rc::from(*result))];
        family.add_durations(labels, durations.clone());
    }
    family
}

fn hosts(facts: &Facts) -> [Family; 3] {
    let mut requests = Family::new(
        "lighty_host_requests",
        MetricKind::Counter,
        "Requests by the host that the configuration names.",
    );
    let mut errors = Family::new(
        "lighty_host_errors",
        MetricKind::Counter,
        "Requests with a status of 400 or above, by host.",
    );
    let mut bytes = Family::new(
        "lighty_host_sent_bytes",
        MetricKind::Counter,
        "Bytes of responses, heads included, by host.",
    );
    for (name, counts) in &facts.hosts {
        let host = || ("host", Rc::from(&**name));
        requests.add(vec![host()], counts.requests as f64);
        let by_class = [("4xx", counts.client_errors), ("5xx", counts.server_errors)];
        for (class, count) in by_class {
            errors.add(vec![host(), ("class", class.into())], count as f64);
        }
        bytes.add(vec![host()], counts.bytes_out as f64);
    }
    [requests, errors, bytes]
}

fn workers(facts: &Facts) -> Vec<Family> {
    let per_worker = |name, kind, help, value: &dyn Fn(&Report) -> f64| {
        let mut family = Family::new(name, kind, help);
        for report in facts.reports() {
            family.add(vec![("worker", report.worker.to_string().into())], value(report));
        }
        family
    };
    vec![
        by_state(
            facts,
            "lighty_connections",
            "Open connections by what they do, those of HTTP/2 by what their oldest stream does.",
            |report| &report.doing,
        ),
        by_state(
            facts,
            "lighty_http2_streams",
            "Streams of HTTP/2 whose request is under way by what they do.",
            |report| &report.streams,
        ),
        per_worker(
            "lighty_worker_cpu_seconds",
            MetricKind::Counter,
            "Processor time of a worker's thread.",
            &|report| report.cpu_us.saturating_add(former(facts, report).cpu_us) as f64 / 1e6,
        ),
        per_worker(
            "lighty_worker_requests",
            MetricKind::Counter,
            "Requests served by a worker.",
            &|report| report.requests.saturating_add(former(facts, report).requests) as f64,
        ),
        per_worker(
            "lighty_worker_stall_seconds",
            MetricKind::Gauge,
            "Longest delay of a worker's event loop in the last minute.",
            &|report| report.late_us as f64 / 1e6,
        ),
    ]
}

/// Counters of the workers that had this one's index before.
fn former(facts: &Facts, of: &Report) -> FormerWorker {
    let mut all = facts.all_reports().iter().flat_map(|report| &report.former);
    all.find(|one| one.worker == of.worker).copied().unwrap_or_default()
}

/// Counts in the order of [`ConnState::ALL`].
type ByState = fn(&Report) -> &[u64; ConnState::ALL.len()];

fn by_state(facts: &Facts, name: &'static str, help: &'static str, counts: ByState) -> Family {
    let mut family = Family::new(name, MetricKind::Gauge, help);
    for (at, state) in ConnState::ALL.into_iter().enumerate() {
        let value = facts.sum(|report| counts(report)[at]) as f64;
        family.add(vec![("state", state.label().replace(' ', "_").into())], value);
    }
    family
}

/// A gauge or counter over the listeners of a report.
type OfListener = fn(&ListenerReport) -> u64;

fn listeners(facts: &Facts) -> [Family; 2] {
    let per_listener = |name, kind, help, value: OfListener| {
        let mut sums = BTreeMap::<&str, u64>::new();
        for one in facts.all_reports().iter().flat_map(|report| &report.listeners) {
            *sums.entry(&one.name).or_default() += value(one);
        }
        let mut family = Family::new(name, kind, help);
        for (listener, sum) in sums {
            family.add(vec![("listener", listener.into())], sum as f64);
        }
        family
    };
    [
        per_listener(
            "lighty_listener_open_connections",
            MetricKind::Gauge,
            "Open connections by the listener that they came by.",
            |one| one.open,
        ),
        per_listener(
            "lighty_listener_connections",
            MetricKind::Counter,
            "Connections accepted by a listener.",
            |one| one.accepted,
        ),
    ]
}

fn server(facts: &Facts) -> Vec<Family> {
    let mut build = Family::new("lighty_build_info", MetricKind::Gauge, "The version that runs.");
    build.add(vec![("version", facts.version.into())], 1.0);
    let mut certificates = Family::new(
        "lighty_tls_certificate_expiry_timestamp_seconds",
        MetricKind::Gauge,
        "When a certificate expires, in seconds since 1970.",
    );
    for (name, expires_s) in &facts.certificates {
        certificates.add(vec![("name", Rc::from(&**name))], *expires_s as f64);
    }
    vec![
        build,
        certificates,
        Family::single(
            "lighty_workers_missing",
            MetricKind::Gauge,
            "Workers that did not report within a second; their figures are not in these.",
            (facts.input.workers.saturating_sub(facts.reports().len())) as f64,
        ),
        Family::single(
            "lighty_series_overflows",
            MetricKind::Counter,
            "Times that a new series was recorded as other because there were too many.",
            facts.durations.others as f64 + facts.sum(|report| report.overflows) as f64,
        ),
    ]
}

/// Files of data that are read again when they change.
fn data_files(facts: &Facts) -> [Family; 3] {
    let per_file = |name, help, value: &dyn Fn(&FollowedState) -> f64| {
        let mut family = Family::new(name, MetricKind::Gauge, help);
        for file in &facts.data_files {
            let labels = vec![
                ("file", Rc::from(&*file.path.to_string_lossy())),
                ("kind", Rc::from(file.kind)),
            ];
            family.add(labels, value(file));
        }
        family
    };
    [
        per_file(
            "lighty_data_file_entries",
            "Entries of a file of data, such as a list of addresses.",
            &|file| file.entries as f64,
        ),
        per_file(
            "lighty_data_file_read_timestamp_seconds",
            "When the contents in use were read, in seconds since 1970.",
            &|file| file.read_s as f64,
        ),
        per_file(
            "lighty_data_file_faulty",
            "1 if the file has changed and cannot be used; the contents before stay in use.",
            &|file| f64::from(u8::from(file.fault.is_some())),
        ),
    ]
}

/// The process metrics that every Prometheus exporter provides.
fn process(facts: &Facts) -> Vec<Family> {
    let usage = usage();
    let single = Family::single;
    vec![
        single(
            "process_cpu_seconds",
            MetricKind::Counter,
            "Processor time of the process, and of those whose place it took by upgrades.",
            (usage.cpu_us as f64 + facts.sum(|report| report.process_cpu_us) as f64) / 1e6,
        ),
        single(
            "process_resident_memory_bytes",
            MetricKind::Gauge,
            "Resident memory in bytes.",
            usage.resident_bytes as f64,
        ),
        single(
            "process_virtual_memory_bytes",
            MetricKind::Gauge,
            "Address space in bytes.",
            usage.virtual_bytes as f64,
        ),
        single("process_threads", MetricKind::Gauge, "Threads.", usage.threads as f64),
        single("process_open_fds", MetricKind::Gauge, "Open descriptors.", usage.fds_open as f64),
        single("process_max_fds", MetricKind::Gauge, "Limit of descriptors.", usage.fds_max as f64),
        single(
            "process_start_time_seconds",
            MetricKind::Gauge,
            "When the server was started, in seconds since 1970.",
            facts.input.started_s as f64,
        ),
    ]
}
