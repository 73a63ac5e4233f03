//! Tables of a server's activity.

use super::sample::{Durations, Route, Sample};

/// Kind of table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Routes of requests.
    #[default]
    Routes,
    /// Stages of requests.
    Stages,
    /// Backends of all upstreams.
    Backends,
    /// Workers.
    Workers,
    /// Connections.
    Connections,
    /// Hosts of requests.
    Hosts,
}

impl View {
    /// All views, in order.
    pub const ALL: [Self; 6] =
        [Self::Routes, Self::Stages, Self::Backends, Self::Workers, Self::Connections, Self::Hosts];

    /// The view's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::Stages => "stages",
            Self::Backends => "backends",
            Self::Workers => "workers",
            Self::Connections => "connections",
            Self::Hosts => "hosts",
        }
    }

    /// Headings of the columns, and the default sort column.
    pub(super) fn columns(self) -> (&'static [&'static str], usize) {
        match self {
            Self::Routes => {
                (&["route", "req/s", "requests", "errors", "p50", "p90", "p99", "p99.9"], 1)
            }
            Self::Stages => (&["stage", "share", "waited", "p50", "p90", "p99", "p99.9"], 1),
            Self::Backends => (
                &[
                    "backend", "upstream", "state", "req/s", "in use", "idle", "requests",
                    "failed", "1st byte", "reason",
                ],
                3,
            ),
            Self::Workers => {
                (&["worker", "cpu", "req/s", "sent/s", "open", "idle", "stall", "engine"], 1)
            }
            Self::Connections => (&["client", "state", "for", "bytes", "host", "request"], 2),
            Self::Hosts => (&["host", "req/s", "sent/s", "requests", "4xx", "5xx", "sent"], 1),
        }
    }
}

impl View {
    /// The number of the column with this heading.
    pub(super) fn column(self, heading: &str) -> Option<usize> {
        let (columns, _) = self.columns();
        columns.iter().position(|column| column.eq_ignore_ascii_case(heading))
    }
}

/// A cell: its text, and its sort key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) order: Order,
}

/// Sort key of a cell.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub(super) enum Order {
    Text(String),
    Number(f64),
}

/// Cells in the order of the columns.
pub(super) type Row = Vec<Cell>;

fn word(text: &str) -> Cell {
    Cell { text: text.to_owned(), order: Order::Text(text.to_owned()) }
}

fn count(value: u64) -> Cell {
    Cell { text: value.to_string(), order: Order::Number(value as f64) }
}

fn rate(value: f64) -> Cell {
    let text = if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    Cell { text, order: Order::Number(value) }
}

fn time(us: u64) -> Cell {
    Cell { text: micros(us), order: Order::Number(us as f64) }
}

fn size(count: f64) -> Cell {
    Cell { text: bytes(count), order: Order::Number(count) }
}

fn percent(share: f64) -> Cell {
    Cell { text: format!("{:.1} %", share * 100.0), order: Order::Number(share) }
}

/// Formats microseconds in short form.
pub(super) fn micros(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        1..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{:.1}ms", us as f64 / 1e3),
        _ => format!("{:.2}s", us as f64 / 1e6),
    }
}

/// Formats bytes in short form.
pub(super) fn bytes(count: f64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let (mut value, mut unit) = (count, 0);
    while value >= 1024.0 && unit < units.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0}B") } else { format!("{value:.1}{}", units[unit]) }
}

/// The rows of a view; `before` is an earlier sample, for rates.
pub(super) fn rows(view: View, now: &Sample, before: Option<&Sample>) -> Vec<Row> {
    let passed_s = before.map_or(0.0, |before| (now.taken_us - before.taken_us) as f64 / 1e6);
    let per_s = |now: u64, before: Option<u64>| match before {
        Some(before) if passed_s > 0.0 => now.saturating_sub(before) as f64 / passed_s,
        _ => 0.0,
    };
    match view {
        View::Routes => routes(now, before, per_s),
        View::Stages => stages(now, before),
        View::Backends => backends(now, before, per_s),
        View::Workers => workers(now, before, per_s),
        View::Connections => connections(now),
        View::Hosts => hosts(now, before, per_s),
    }
}

fn quantiles(durations: &Durations) -> [Cell; 4] {
    let Durations { p50_us, p90_us, p99_us, p99_9_us, .. } = *durations;
    [p50_us, p90_us, p99_us, p99_9_us].map(time)
}

fn of_name<'a>(all: &'a [Route], name: &str) -> Option<&'a Durations> {
    all.iter().find(|one| one.name == name).map(|one| &one.durations)
}

fn routes(
    now: &Sample,
    before: Option<&Sample>,
    per_s: impl Fn(u64, Option<u64>) -> f64,
) -> Vec<Row> {
    let row = |route: &Route| {
        let earlier = before.map(|before| of_name(&before.routes, &route.name));
        let earlier = earlier.map(|found| found.map_or(0, |found| found.requests));
        let requests = route.durations.requests;
        let mut row = vec![
            word(&route.name),
            rate(per_s(requests, earlier)),
            count(requests),
            count(route.errors),
        ];
        row.extend(quantiles(&route.durations));
        row
    };
    now.routes.iter().map(row).collect()
}

/// Stages that are not part of a request's time.
const OUTSIDE: [&str; 4] = ["accept", "tls", "tunnel", "delay"];

/// Rows of the stages. Shares refer to the time between the samples, or to all time if there were
/// no requests in between.
fn stages(now: &Sample, before: Option<&Sample>) -> Vec<Row> {
    let within = || now.stages.iter().filter(|stage| !OUTSIDE.contains(&&*stage.name));
    let spent = |stage: &Route| {
        let earlier = before.and_then(|before| of_name(&before.stages, &stage.name));
        stage.durations.sum_us.saturating_sub(earlier.map_or(0, |earlier| earlier.sum_us))
    };
    let recent_us: u64 = within().map(spent).sum();
    let all_us: u64 = within().map(|stage| stage.durations.sum_us).sum();
    let row = |stage: &Route| {
        let share = match recent_us {
            0 => stage.durations.sum_us as f64 / all_us.max(1) as f64,
            _ => spent(stage) as f64 / recent_us as f64,
        };
        let mut row = vec![word(&stage.name), percent(share), count(stage.durations.requests)];
        row.extend(quantiles(&stage.durations));
        row
    };
    within().map(row).collect()
}

fn backends(
    now: &Sample,
    before: Option<&Sample>,
    per_s: impl Fn(u64, Option<u64>) -> f64,
) -> Vec<Row> {
    let row = |backend: &super::sample::Backend| {
        let is_same = |other: &&super::sample::Backend| {
            (&other.pool, &other.address) == (&backend.pool, &backend.address)
        };
        let earlier = before.map(|before| before.backends.iter().find(is_same));
        let earlier = earlier.map(|found| found.map_or(0, |found| found.requests));
        vec![
            word(&backend.address),
            word(&backend.pool),
            word(&backend.state),
            rate(per_s(backend.requests, earlier)),
            count(backend.in_use),
            count(backend.idle),
            count(backend.requests),
            count(backend.failed),
            time(backend.first_byte_us),
            word(&backend.why),
        ]
    };
    now.backends.iter().map(row).collect()
}

fn workers(
    now: &Sample,
    before: Option<&Sample>,
    per_s: impl Fn(u64, Option<u64>) -> f64,
) -> Vec<Row> {
    let row = |worker: &super::sample::Worker| {
        let earlier = before
            .and_then(|before| before.workers.iter().find(|other| other.number == worker.number));
        let sent = per_s(worker.bytes_out, earlier.map(|earlier| earlier.bytes_out));
        vec![
            count(worker.number),
            percent(per_s(worker.cpu_us, earlier.map(|earlier| earlier.cpu_us)) / 1e6),
            rate(per_s(worker.requests, earlier.map(|earlier| earlier.requests))),
            size(sent),
            count(worker.open),
            count(worker.idle),
            time(worker.late_us),
            word(&worker.engine),
        ]
    };
    now.workers.iter().map(row).collect()
}

fn connections(now: &Sample) -> Vec<Row> {
    let row = |one: &super::sample::Connection| {
        let seconds =
            Cell { text: format!("{}s", one.seconds), order: Order::Number(one.seconds as f64) };
        vec![
            word(&one.client),
            word(&one.state),
            seconds,
            size(one.bytes as f64),
            word(&one.host),
            word(&one.request),
        ]
    };
    now.connections.iter().map(row).collect()
}

fn hosts(
    now: &Sample,
    before: Option<&Sample>,
    per_s: impl Fn(u64, Option<u64>) -> f64,
) -> Vec<Row> {
    let row = |host: &super::sample::Host| {
        let is_same = |other: &&super::sample::Host| other.name == host.name;
        let earlier = before.map(|before| before.hosts.iter().find(is_same));
        let earlier =
            |count: fn(&super::sample::Host) -> u64| earlier.map(|found| found.map_or(0, count));
        let sent = per_s(host.bytes_out, earlier(|host| host.bytes_out));
        vec![
            word(&host.name),
            rate(per_s(host.requests, earlier(|host| host.requests))),
            size(sent),
            count(host.requests),
            count(host.client_errors),
            count(host.server_errors),
            size(host.bytes_out as f64),
        ]
    };
    now.hosts.iter().map(row).collect()
}

/// Urgency of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Warning,
    Bad,
}

/// The tone of a row of a view.
pub(super) fn tone(view: View, row: &Row) -> Tone {
    if view != View::Backends {
        return Tone::Plain;
    }
    let state = view.column("state").and_then(|at| row.get(at));
    match state.map(|cell| cell.text.as_str()) {
        Some("down") => Tone::Bad,
        Some("probing" | "drained" | "maintenance") => Tone::Warning,
        _ => Tone::Plain,
    }
}

/// Keeps rows that contain the text, and sorts by a column: numbers in descending order, texts
/// alphabetically.
pub(super) fn arrange(rows: &mut Vec<Row>, filter: &str, column: usize, reversed: bool) {
    if !filter.is_empty() {
        let wanted = filter.to_lowercase();
        rows.retain(|row| row.iter().any(|cell| cell.text.to_lowercase().contains(&wanted)));
    }
    rows.sort_by(|a, b| {
        let (Some(a), Some(b)) = (a.get(column), b.get(column)) else {
            return std::cmp::Ordering::Equal;
        };
        let order = a.order.partial_cmp(&b.order).unwrap_or(std::cmp::Ordering::Equal);
        if matches!(a.order, Order::Number(_)) != reversed { order.reverse() } else { order }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(requests: u64) -> Sample {
        let json = format!(
            r#"{{"routes":[{{"route":"a","requests":{requests},"p50_us":1500}},
            {{"route":"b","requests":3,"errors":1}}],"stages":[{{"stage":"queue","sum_us":30}},
            {{"stage":"head","sum_us":10}}],"workers":[{{"worker":0,"cpu_us":{requests}00000}}],
            "hosts":[{{"host":"a.test","requests":{requests},"client_errors":2,"server_errors":1,
            "bytes_out":{requests}}}]}}"#
        );
        Sample::read(json.as_bytes()).expect("a sample")
    }

    fn texts(rows: &[Row]) -> Vec<String> {
        let line = |row: &Row| row.iter().map(|cell| &*cell.text).collect::<Vec<_>>().join("|");
        rows.iter().map(line).collect()
    }

    #[test]
    fn rates_are_those_between_two_samples() {
        let (before, mut now) = (sample(10), sample(30));
        now.taken_us = before.taken_us + 2_000_000;
        let routes = rows(View::Routes, &now, Some(&before));
        assert_eq!(texts(&routes), ["a|10|30|0|1.5ms|-|-|-", "b|0.0|3|1|-|-|-|-"]);
        let workers = rows(View::Workers, &now, Some(&before));
        assert_eq!(texts(&workers), ["0|100.0 %|0.0|0B|0|0|-|"]);
        let hosts = rows(View::Hosts, &now, Some(&before));
        assert_eq!(texts(&hosts), ["a.test|10|10B|30|2|1|30B"]);
        let stages = rows(View::Stages, &now, Some(&before));
        assert_eq!(texts(&stages)[0], "queue|75.0 %|0|-|-|-|-");
        for view in View::ALL {
            let (columns, sort) = view.columns();
            assert!(sort < columns.len());
            assert!(rows(view, &now, None).iter().all(|row| row.len() == columns.len()));
        }
    }

    #[test]
    fn rows_are_kept_by_text_and_sorted_by_column() {
        let now = sample(30);
        let mut all = rows(View::Routes, &now, None);
        arrange(&mut all, "", 2, true);
        assert_eq!(all[0][0].text, "b");
        arrange(&mut all, "", 2, false);
        assert_eq!(all[0][0].text, "a");
        arrange(&mut all, "1.5MS", 0, false);
        assert_eq!((all.len(), &*all[0][0].text), (1, "a"));
    }
}
