//! What the server is doing, for people.

use lighty_core::machine::status_board::{Backend, BackendPool, ConnState, Connection, Report};
use lighty_http::{date, html};

use super::Facts;

pub(super) const HTML: &str = "text/html";
pub(super) const HTML_UTF8: &str = "text/html; charset=utf-8";

/// Targets and hosts come from clients. They are escaped; should that ever fail, they still load
/// nothing from elsewhere.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page of `status.status-url`.
pub(super) fn status(facts: &Facts) -> String {
    let mut page = begin("Status", facts);
    page += &cards(facts);
    page += &workers(facts);
    page += &backends(&facts.pools);
    page += &legend(facts);
    page += &connections(facts);
    if facts.sort {
        page += &format!("<script>{SCRIPT}</script>\n");
    }
    page + "</body>\n</html>\n"
}

/// The page of `status.config-url`.
pub(super) fn config(facts: &Facts) -> String {
    let mut page = begin("Configuration", facts);
    let engines = facts.reports.first().map(|report| {
        let (name, why) = &report.engine;
        (escaped(&format!("{name} ({why})")), escaped(&report.network_backend))
    });
    let (engine, backend) = engines.unwrap_or_default();
    let modules = facts.modules.iter().map(|name| format!("<li><code>{name}</code></li>"));
    page += &format!(
        "<div class=\"table\"><table>\n<tr><th>Version</th><td>lighty {}</td></tr>\n\
         <tr><th>Workers</th><td>{}</td></tr>\n<tr><th>File engine</th><td>{engine}</td></tr>\n\
         <tr><th>Network backend</th><td>{backend}</td></tr>\n</table></div>\n\
         <h2>Modules, in the order in which they are asked</h2>\n<ol>{}</ol>\n",
        facts.version,
        facts.workers,
        modules.collect::<String>(),
    );
    page + "</body>\n</html>\n"
}

fn begin(title: &str, facts: &Facts) -> String {
    let refresh = facts.refresh_s.map_or_else(String::new, |seconds| {
        format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">\n")
    });
    let host = escaped(&facts.host);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n{refresh}\
         <title>{title} · {host}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n<p class=\"lead\">lighty {} on {host}, since {}</p>\n",
        facts.version,
        String::from_utf8_lossy(&date::format(facts.started_s)),
    )
}

fn cards(facts: &Facts) -> String {
    let card = |name: &str, value: String, more: String| {
        format!("<div class=\"card\"><span>{name}</span><b>{value}</b><span>{more}</span></div>\n")
    };
    let answering = match facts.workers - facts.reports.len().min(facts.workers) {
        0 => "all answer".to_owned(),
        missing => format!("{missing} do not answer"),
    };
    let out = |report: &Report| report.bytes_out;
    let requests = |report: &Report| report.requests;
    [
        "<div class=\"cards\">\n".to_owned(),
        card("Uptime", duration(facts.uptime_s()), format!("{} s", facts.uptime_s())),
        card("Workers", facts.workers.to_string(), answering),
        card(
            "Requests",
            facts.sum(requests).to_string(),
            format!(
                "{}/s, {}/s of late",
                facts.mean(requests),
                facts.recent(|report| report.pace.requests)
            ),
        ),
        card(
            "Sent",
            bytes(facts.sum(out)),
            format!(
                "{}/s, {}/s of late",
                bytes(facts.mean(out)),
                bytes(facts.recent(|report| report.pace.bytes_out))
            ),
        ),
        card("Received", bytes(facts.sum(|report| report.bytes_in)), String::new()),
        card(
            "Connections",
            (facts.busy() + facts.idle()).to_string(),
            format!("{} busy, {} idle", facts.busy(), facts.idle()),
        ),
        "</div>\n".to_owned(),
    ]
    .concat()
}

fn workers(facts: &Facts) -> String {
    let rows = facts.reports.iter().map(|report| {
        format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            report.worker,
            report.requests,
            bytes(report.bytes_out),
            report.open(),
            report.idle(),
            escaped(&format!("{} ({})", report.engine.0, report.engine.1)),
            escaped(&report.network_backend),
        )
    });
    let rows: String = rows.collect();
    format!(
        "<h2>Workers</h2>\n<div class=\"table\"><table>\n<tr><th>Worker</th><th>Requests</th>\
         <th>Sent</th><th>Connections</th><th>Idle</th><th>File engine</th>\
         <th>Network backend</th></tr>\n{rows}</table></div>\n"
    )
}

/// What every backend does, a table for each pool; nothing where there are none.
fn backends(pools: &[BackendPool]) -> String {
    let tables: String = pools.iter().map(pool).collect();
    if tables.is_empty() { tables } else { format!("<h2>Backends</h2>\n{tables}") }
}

fn pool(pool: &BackendPool) -> String {
    let rows: String = pool.backends.iter().map(backend).collect();
    format!(
        "<h3>{}</h3>\n<p class=\"lead\">{} requests, {} waiting for a place</p>\n\
         <div class=\"table\"><table class=\"backends\">\n<tr><th>Backend</th><th>State</th>\
         <th>In use</th><th>Idle</th><th>Requests</th><th>Failed</th><th>First byte</th></tr>\n\
         {rows}</table></div>\n",
        escaped(&pool.name),
        pool.requests,
        pool.waiting,
    )
}

fn backend(backend: &Backend) -> String {
    let why = match &*backend.why {
        "" => String::new(),
        why => format!(": {}", escaped(why)),
    };
    let first_byte = match backend.first_byte_us {
        0 => "–".to_owned(),
        us => format!("{}.{} ms", us / 1000, us % 1000 / 100),
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

fn legend(facts: &Facts) -> String {
    let items = ConnState::ALL.iter().enumerate().map(|(index, doing)| {
        let count = facts.sum(|report| report.doing[index]);
        format!("<li><code>{}</code> {}: {count}</li>", doing.letter(), doing.words())
    });
    format!("<h2>Connections</h2>\n<ul class=\"legend\">{}</ul>\n", items.collect::<String>())
}

fn connections(facts: &Facts) -> String {
    let all =
        || facts.reports.iter().flat_map(|r| r.connections.iter().map(move |c| (r.worker, c)));
    let told = all().count() as u64;
    let rows: String = all().map(|(worker, connection)| row(worker, connection)).collect();
    let more = (facts.busy() + facts.idle()).saturating_sub(told);
    let rest = match more {
        0 => String::new(),
        more => format!("<p class=\"lead\">and {more} more</p>\n"),
    };
    format!(
        "<div class=\"table\"><table id=\"connections\">\n<thead><tr><th>Client</th><th>State</th>\
         <th>For</th><th>Bytes</th><th>Host</th><th>Request</th><th>Worker</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n{rest}"
    )
}

fn row(worker: usize, connection: &Connection) -> String {
    let request = format!("{} {}", connection.method, connection.target);
    format!(
        "<tr><td>{}</td><td>{}</td><td data-by=\"{}\">{} s</td><td data-by=\"{}\">{}</td>\
         <td>{}</td><td class=\"request\">{}</td><td>{worker}</td></tr>\n",
        escaped(&connection.client),
        connection.doing.words(),
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

fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut tenths = u128::from(count) * 10;
    while tenths >= 10_240 && unit < UNITS.len() - 1 {
        tenths /= 1024;
        unit += 1;
    }
    match unit {
        0 => format!("{count} bytes"),
        unit => format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]),
    }
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_readable() {
        let sizes = [0, 1023, 1024, 1536, 1 << 20, u64::MAX].map(bytes);
        assert_eq!(
            sizes,
            ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "1.0 MiB", "16383.9 PiB"]
        );
        let times = [59, 60, 3600, 90_000].map(duration);
        assert_eq!(times, ["59 s", "1 min", "1 h 0 min", "1 d 1 h"]);
    }

    #[test]
    fn backends_are_listed_with_their_faults() {
        assert_eq!(backends(&[]), "");
        let down = Backend {
            address: "10.0.0.1:80".to_owned(),
            state: "down",
            why: "connect: <refused>".to_owned(),
            failed: 3,
            first_byte_us: 12_345,
            ..Backend::default()
        };
        let name = "proxy-core.backends".to_owned();
        let page = backends(&[BackendPool {
            name,
            waiting: 7,
            backends: vec![down],
            ..BackendPool::default()
        }]);
        for words in [
            "<h3>proxy-core.backends</h3>",
            "7 waiting",
            "<td class=\"down\">down: connect: &lt;refused&gt;</td>",
            "<td>3</td><td>12.3 ms</td>",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }

    #[test]
    fn what_clients_say_is_text() {
        let connection = Connection {
            doing: ConnState::Handler,
            for_s: 0,
            client: "::1".into(),
            method: "GET",
            host: "<b>".into(),
            target: "/<script>".into(),
            bytes: 0,
        };
        let row = row(0, &connection);
        assert!(row.contains("&lt;b&gt;") && row.contains("GET /&lt;script&gt;"), "{row}");
    }
}
