//! The server's status as an HTML page.

use std::sync::Arc;

use lighty_core::exchange::span::Span;
use lighty_core::machine::histogram::Histogram;
use lighty_core::machine::status_board::{
    BackendPool, BackendReport, ConnState, ConnectionReport, Report,
};
use lighty_http::{date, html};
use lighty_io::file::followed::FollowedState;
use lighty_io::sandbox;

use super::charts;
use super::facts::Facts;
use super::stores::{StoreFigures, stores};
use super::units::{bytes, duration, micros};

pub(super) const HTML: &str = "text/html";
pub(super) const HTML_UTF8: &str = "text/html; charset=utf-8";

/// Targets and hosts come from clients. They are escaped; if that ever failed, they still could not
/// load anything from elsewhere.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page of `status.status-url`. Its script fetches it again and replaces each section by name.
pub(super) fn status(facts: &Facts) -> String {
    let mut page = begin("Status", facts);
    let section =
        |name: &str, content: String| format!("<section id=\"{name}\">\n{content}</section>\n");
    page += &section("figures", cards(facts));
    page += &section("charts", charts::svg(&facts.history));
    page += &section("routes", routes(facts));
    page += &section("hosts", hosts(facts));
    page += &section("stages", stages(facts));
    page += &section("backends", backends(&facts.pools));
    page += &section("cache", cache(facts));
    page += &section("workers", workers(facts));
    page += &section("certificates", certificates(facts));
    page += &section("data", data_files(facts));
    page += &section("states", legend(facts));
    page += &section("clients", connections(facts));
    if facts.input.sort {
        page += &format!("<script>{SCRIPT}</script>\n");
    }
    page + "</main>\n</body>\n</html>\n"
}

/// The page of `status.config-url`.
pub(super) fn config(facts: &Facts) -> String {
    let mut page = begin("Configuration", facts);
    let engines = facts.reports().first().map(|report| {
        let (name, why) = &report.engine;
        (escaped(&format!("{name} ({why})")), escaped(&report.network_backend))
    });
    let (engine, backend) = engines.unwrap_or_default();
    let sandbox = sandbox_lines();
    let modules = facts.input.modules.iter().map(|name| format!("<li><code>{name}</code></li>"));
    page += &format!(
        "<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Server\">\
         <table>\n<tr><th>Version</th><td>lighty {}</td></tr>\n\
         <tr><th>Workers</th><td>{}</td></tr>\n<tr><th>File engine</th><td>{engine}</td></tr>\n\
         <tr><th>Network backend</th><td>{backend}</td></tr>\n\
         <tr><th>Sandbox</th><td>{sandbox}</td></tr>\n</table></div>\n\
         <h2>Modules, in the order in which they are asked</h2>\n<ol>{}</ol>\n",
        facts.version,
        facts.input.workers,
        modules.collect::<String>(),
    );
    page + "</main>\n</body>\n</html>\n"
}

/// The state of each layer of the sandbox, one per line.
fn sandbox_lines() -> String {
    let layers = sandbox::layers();
    let lines: Vec<String> = layers.iter().map(|layer| escaped(&layer.to_string())).collect();
    if lines.is_empty() { "off".to_owned() } else { lines.join("<br>") }
}

fn begin(title: &str, facts: &Facts) -> String {
    let refresh = facts.input.refresh_s.map_or_else(String::new, |seconds| {
        format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">\n")
    });
    let host = escaped(&facts.input.host);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n{refresh}\
         <title>{title} · {host}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n<p class=\"lead\">lighty {} on {host}, since {}</p>\n",
        facts.version,
        String::from_utf8_lossy(&date::format(facts.input.started_s)),
    )
}

fn cards(facts: &Facts) -> String {
    let card = |name: &str, value: String, more: String| {
        format!("<div class=\"card\"><span>{name}</span><b>{value}</b><span>{more}</span></div>\n")
    };
    let answering = match facts.input.workers.saturating_sub(facts.reports().len()) {
        0 => "all answer".to_owned(),
        missing => format!("{missing} do not answer"),
    };
    let streams = match facts.streams() {
        0 => String::new(),
        count => format!(", {count} streams"),
    };
    let out = |report: &Report| report.bytes_out;
    let requests = |report: &Report| report.requests;
    [
        "<div class=\"cards\">\n".to_owned(),
        card("Uptime", duration(facts.uptime_s()), format!("{} s", facts.uptime_s())),
        card("Workers", facts.input.workers.to_string(), answering),
        card(
            "Requests",
            facts.sum(requests).to_string(),
            format!(
                "{}/s, recently {}/s",
                rate(facts.mean(|report| report.requests * 10)),
                rate(facts.recent(|report| report.pace.requests * 10))
            ),
        ),
        card(
            "Sent",
            bytes(facts.sum(out)),
            format!(
                "{}/s, recently {}/s",
                bytes(facts.mean(out)),
                bytes(facts.recent(|report| report.pace.bytes_out))
            ),
        ),
        card("Received", bytes(facts.sum(|report| report.bytes_in)), String::new()),
        card(
            "Connections",
            (facts.busy() + facts.idle()).to_string(),
            format!("{} busy, {} idle{streams}", facts.busy(), facts.idle()),
        ),
        configuration(facts).map_or_else(String::new, |(generation, reloads)| {
            card("Configuration", format!("generation {generation}"), reloads)
        }),
        "</div>\n".to_owned(),
    ]
    .concat()
}

/// Number of the configuration, and the outcome of reloads. `None` if nothing reports it.
fn configuration(facts: &Facts) -> Option<(u64, String)> {
    let figure = |name: &str| facts.figure(&format!("config.{name}"));
    let generation = figure("generation")?;
    let refused = figure("reloads.refused")?;
    let now_s = u64::try_from(facts.input.now_s).unwrap_or(0);
    let ago = |name| {
        let seconds = now_s.saturating_sub(figure(name).unwrap_or(now_s));
        format!("{} ago", duration(seconds))
    };
    let last = match (figure("last-reload-success"), generation) {
        (Some(0), _) => format!("last reload refused {}", ago("last-reload-s")),
        (_, 0) => "never reloaded".to_owned(),
        _ => format!("reloaded {}", ago("last-reload-s")),
    };
    let refused = match refused {
        0 => String::new(),
        count => format!(", {count} refused"),
    };
    let old = match figure("old-generations") {
        None | Some(0) => String::new(),
        Some(count) => format!(", {count} earlier in use"),
    };
    Some((generation, format!("{last}{refused}{old}")))
}

/// Formats tenths. Values of 10 and above have no decimal.
fn rate(tenths: u64) -> String {
    match tenths {
        1..100 => format!("{}.{}", tenths / 10, tenths % 10),
        _ => (tenths / 10).to_string(),
    }
}

fn workers(facts: &Facts) -> String {
    let rows = facts.reports().iter().map(|report| {
        format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}.{} s</td><td>{}</td></tr>\n",
            report.worker,
            report.requests,
            bytes(report.bytes_out),
            report.open(),
            report.idle(),
            escaped(&format!("{} ({})", report.engine.0, report.engine.1)),
            escaped(&report.network_backend),
            report.cpu_us / 1_000_000,
            report.cpu_us / 100_000 % 10,
            micros(report.late_us),
        )
    });
    let rows: String = rows.collect();
    format!(
        "<h2>Workers</h2>\n<div class=\"table\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Workers\"><table class=\"workers\">\n<tr><th>Worker</th><th>Requests</th>\
         <th>Sent</th><th>Connections</th><th>Idle</th><th>File engine</th>\
         <th>Network backend</th><th>Processor</th><th>Longest stall</th></tr>\n{rows}</table></div>\n"
    )
}

/// Handlers and durations of requests; empty before the first one.
fn routes(facts: &Facts) -> String {
    let rows: String = facts
        .durations
        .routes()
        .iter()
        .map(|(route, errors, durations)| {
            let errors = format!("<td data-by=\"{errors}\">{errors}</td>");
            format!("<tr><td>{}</td>{}{errors}</tr>\n", escaped(route), quantiles(durations))
        })
        .collect();
    durations_table("Routes", "Route", "<th>Errors</th>", "Requests", &rows)
}

/// Requests by host; empty if the configuration names no host.
fn hosts(facts: &Facts) -> String {
    let rows: String = facts
        .hosts
        .iter()
        .map(|(name, counts)| {
            format!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                escaped(name),
                counts.requests,
                counts.client_errors,
                counts.server_errors,
                bytes(counts.bytes_out),
            )
        })
        .collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Hosts</h2>\n<div class=\"table\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Hosts\"><table class=\"durations\">\n<thead><tr><th>Host</th>\
         <th>Requests</th><th>4xx</th><th>5xx</th><th>Sent</th></tr></thead>\n\
         <tbody>{rows}</tbody></table></div>\n"
    )
}

/// Time spent by requests in each span.
fn stages(facts: &Facts) -> String {
    let mut spans = facts.durations.spans();
    let is_within = |name| Span::of_name(name).is_none_or(Span::is_within_request);
    spans.retain(|(name, _)| is_within(name));
    spans.sort_by_key(|(_, durations)| std::cmp::Reverse(durations.sum_us()));
    let whole_us = spans.iter().map(|(_, durations)| durations.sum_us()).sum::<u64>().max(1);
    let rows: String = spans
        .iter()
        .map(|(name, durations)| {
            let share = durations.sum_us() as f64 * 100.0 / whole_us as f64;
            let share = format!(
                "<td><meter min=\"0\" max=\"100\" value=\"{share:.1}\"></meter> {share:.1} %</td>"
            );
            format!("<tr><td>{name}</td>{}{share}</tr>\n", quantiles(durations))
        })
        .collect();
    let heading = "Stages, the slowest first";
    durations_table(heading, "Stage", "<th>Of all time</th>", "Requests that waited", &rows)
}

fn durations_table(heading: &str, what: &str, more: &str, count: &str, rows: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h2>{heading}</h2>\n<div class=\"table\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{heading}\"><table class=\"durations\">\n<thead><tr><th>{what}</th>\
         <th>{count}</th><th>50 %</th><th>90 %</th><th>99 %</th><th>99.9 %</th>{more}</tr>\
         </thead>\n<tbody>{rows}</tbody></table></div>\n"
    )
}

/// Renders the quantile cells of a distribution.
fn quantiles(durations: &Histogram) -> String {
    let cells = [0.5, 0.9, 0.99, 0.999].map(|share| {
        let took_us = durations.quantile_us(share);
        format!("<td data-by=\"{took_us}\">{}</td>", micros(took_us))
    });
    format!("<td>{}</td>{}", durations.count(), cells.concat())
}

/// Expiry of certificates, the earliest first.
fn certificates(facts: &Facts) -> String {
    let mut all: Vec<_> = facts.certificates.iter().collect();
    all.sort_by_key(|(_, expires_s)| *expires_s);
    let rows: String = all
        .iter()
        .map(|(name, expires_s)| {
            let left_s = expires_s - facts.input.now_s;
            let left = match u64::try_from(left_s) {
                Ok(left_s) => format!("<td>{}</td>", duration(left_s)),
                Err(_) => "<td class=\"down\">has expired</td>".to_owned(),
            };
            format!("<tr><td>{}</td>{left}</tr>\n", escaped(name))
        })
        .collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Certificates</h2>\n<div class=\"table\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Certificates\"><table>\n<tr><th>File</th>\
         <th>Valid for</th></tr>\n{rows}</table></div>\n"
    )
}

/// Files of data that are read again when they change.
fn data_files(facts: &Facts) -> String {
    let row = |file: &FollowedState| {
        let age_s = u64::try_from(facts.input.now_s - file.read_s).unwrap_or(0);
        let state = match &file.fault {
            None => "<td>current</td>".to_owned(),
            Some(fault) => format!("<td class=\"down\">{}</td>", escaped(fault)),
        };
        format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{state}</tr>\n",
            escaped(&file.path.to_string_lossy()),
            file.kind,
            file.entries,
            duration(age_s),
        )
    };
    let rows: String = facts.data_files.iter().map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Data</h2>\n<div class=\"table\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Data\"><table>\n<tr><th>File</th><th>Kind</th><th>Entries</th>\
         <th>Read</th><th>State</th></tr>\n{rows}</table></div>\n"
    )
}

/// State of every backend, a table for each pool; empty without backends.
fn backends(pools: &[BackendPool]) -> String {
    let tables: String = pools.iter().map(pool).collect();
    if tables.is_empty() { tables } else { format!("<h2>Backends</h2>\n{tables}") }
}

fn pool(pool: &BackendPool) -> String {
    let rows: String = pool.backends.iter().map(backend).collect();
    let name = escaped(&pool.name);
    format!(
        "<h3>{name}</h3>\n<p class=\"lead\">{} requests, {} waiting for a place</p>\n\
         <div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Backends of {name}\"><table class=\"backends\">\n<tr><th>Backend</th><th>State</th>\
         <th>In use</th><th>Idle</th><th>Requests</th><th>Failed</th><th>First byte</th></tr>\n\
         {rows}</table></div>\n",
        pool.requests, pool.waiting,
    )
}

fn backend(backend: &BackendReport) -> String {
    let why = match &*backend.why {
        "" => String::new(),
        why => format!(": {}", escaped(why)),
    };
    let first_byte = match backend.first_byte_us {
        0 => "–".to_owned(),
        us => micros(us.into()),
    };
    format!(
        "<tr><td>{}</td><td class=\"{}\">{}{why}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td>{first_byte}</td></tr>\n",
        escaped(&backend.address),
        backend.state,
        backend.state,
        backend.in_use,
        backend.idle,
        backend.requests,
        backend.failed,
    )
}

/// State of every store of the cache; empty without stores.
fn cache(facts: &Facts) -> String {
    let rows: String = stores(&facts.figures).into_iter().map(store).collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Cache</h2>\n<div class=\"table\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Cache\"><table>\n<tr><th>Store</th><th>Responses</th><th>Memory</th>\
         <th>Requests</th><th>Served from it</th><th>Bytes served</th><th>Fetches now</th>\
         <th>Waiting</th><th>Left</th><th>Purge rules</th></tr>\n{rows}</table></div>\n{}",
        cached_routes(facts)
    )
}

/// Results of the cache for each route; empty before the first request.
fn cached_routes(facts: &Facts) -> String {
    let row = |(route, results): (Arc<str>, Vec<(&str, u64)>)| {
        let all: u64 = results.iter().map(|(_, count)| count).sum();
        let shares = results.iter().map(|(result, count)| {
            format!("{result} {count} ({:.1} %)", *count as f64 / all as f64 * 100.0)
        });
        let shares = shares.collect::<Vec<_>>().join(", ");
        format!("<tr><td>{}</td><td>{all}</td><td>{shares}</td></tr>\n", escaped(&route))
    };
    let rows: String = facts.durations.cached_routes().into_iter().map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Results of the cache\">\
         <table>\n<tr><th>Route</th><th>Requests</th><th>Results</th></tr>\n{rows}</table></div>\n"
    )
}

fn store((name, store): (&str, StoreFigures)) -> String {
    let (requests, served) = (store.requests(), store.served());
    let share = match requests {
        0 => "–".to_owned(),
        _ => format!("{:.1} %", served as f64 / requests as f64 * 100.0),
    };
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{requests}</td><td>{share}</td><td>{}</td>\
         <td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        escaped(name),
        store.of("objects"),
        bytes(store.of("bytes")),
        bytes(store.of("saved-bytes")),
        store.of("flights"),
        store.of("waiting"),
        store.of("evicted"),
        store.of("purge-rules"),
    )
}

fn legend(facts: &Facts) -> String {
    let items = ConnState::ALL.iter().enumerate().map(|(index, doing)| {
        let count = facts.sum(|report| report.doing[index]);
        format!("<li><code>{}</code> {}: {count}</li>", doing.letter(), doing.label())
    });
    format!("<h2>Connections</h2>\n<ul class=\"legend\">{}</ul>\n", items.collect::<String>())
}

fn connections(facts: &Facts) -> String {
    let rows: String = facts.rows().map(|(worker, connection)| row(worker, connection)).collect();
    let rest = match facts.sum(|report| report.unlisted) {
        0 => String::new(),
        more => format!("<p class=\"lead\">and {more} more</p>\n"),
    };
    format!(
        "<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Connections\">\
         <table id=\"connections\">\n<thead><tr><th>Client</th><th>State</th>\
         <th>For</th><th>Bytes</th><th>Host</th><th>Request</th><th>Worker</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n{rest}"
    )
}

fn row(worker: usize, connection: &ConnectionReport) -> String {
    let request = format!("{} {}", connection.method, connection.target);
    format!(
        "<tr><td>{}</td><td>{}</td><td data-by=\"{}\">{} s</td><td data-by=\"{}\">{}</td>\
         <td>{}</td><td class=\"request\">{}</td><td>{worker}</td></tr>\n",
        escaped(&connection.client),
        connection.doing.label(),
        connection.for_s,
        connection.for_s,
        connection.bytes,
        bytes(connection.bytes),
        escaped(&connection.host),
        escaped(request.trim()),
    )
}

fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    html::escape(text.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_listed_with_their_faults() {
        assert_eq!(backends(&[]), "");
        let down = BackendReport {
            address: "10.0.0.1:80".to_owned(),
            state: "down",
            why: "connect: <refused>".to_owned(),
            failed: 3,
            first_byte_us: 12_345,
            ..BackendReport::default()
        };
        let name = "proxy-core.backends".to_owned();
        let page = backends(&[BackendPool {
            name,
            waiting: 7,
            backends: vec![down],
            ..BackendPool::default()
        }]);
        for text in [
            "<h3>proxy-core.backends</h3>",
            "7 waiting",
            "<td class=\"down\">down: connect: &lt;refused&gt;</td>",
            "<td>3</td><td>12.3 ms</td>",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
    }

    #[test]
    fn few_requests_a_second_are_told_in_tenths() {
        assert_eq!(
            [0, 1, 7, 10, 99, 100, 12_345].map(rate),
            ["0", "0.1", "0.7", "1.0", "9.9", "10", "1234"]
        );
    }

    #[test]
    fn client_text_is_escaped_in_the_page() {
        let connection = ConnectionReport {
            number: 0,
            serial: 0,
            stream: 0,
            doing: ConnState::Handler,
            for_s: 0,
            client: "::1".into(),
            method: "GET",
            host: "<b>".into(),
            target: "/<script>".into(),
            scheme: "http",
            protocol: "HTTP/1.1",
            local_port: 80,
            remote_port: 5000,
            bytes: 0,
            streams: Vec::new(),
        };
        let row = row(0, &connection);
        assert!(row.contains("&lt;b&gt;") && row.contains("GET /&lt;script&gt;"), "{row}");
    }
}
