//! Orders of operators, and limits of clients, over upgrades.

use super::counters::{assert_no_fall, counters};
use super::*;

/// Members of `lighty ctl` that are times.
const TIMES: &[&str] = &["for_s", "log_level_for_s", "wait_us"];

/// Seconds that the two upgrades of a test may take.
const UPGRADES_S: i64 = 120;

/// A kind of state: its name, the orders that make it, and a reader.
struct StateKind {
    name: &'static str,
    orders: &'static [&'static [&'static str]],
    state: fn(&Line) -> Value,
}

const KINDS: &[StateKind] = &[
    StateKind {
        name: "bans",
        orders: &[
            &["ban", "192.0.2.9", "--for", "9000"],
            &["ban", "2001:db8::9", "--for", "8000"],
            &["ban", "192.0.2.10", "--for", "1"],
            &["ban", "192.0.2.11"],
            &["unban", "192.0.2.11"],
        ],
        state: |line| line.json("bans"),
    },
    StateKind {
        name: "level of the error log",
        orders: &[&["log-level", "info", "--for", "9000"]],
        state: |line| members(&line.json("status"), &["log_level", "log_level_for_s"]),
    },
    StateKind {
        name: "levels of modules",
        orders: &[
            &["log-level", "staticfile", "debug", "--for", "9000"],
            &["log-level", "proxy", "error", "--for", "8000"],
        ],
        state: |line| members(&line.json("status"), &["log_levels"]),
    },
    StateKind {
        name: "closed routes",
        orders: &[
            &["maintenance", "shop", "on"],
            &["maintenance", "page", "on", "--page", "@DIR@/closed.html"],
        ],
        state: |line| {
            let page = |target: &str| {
                let response = line.first.get(target);
                Value::from(vec![response.status.to_string(), response.text().to_owned()])
            };
            Value::from(vec![
                members(&line.json("status"), &["closed_routes"]),
                page("/shop"),
                page("/page"),
            ])
        },
    },
    StateKind {
        name: "readiness",
        orders: &[&["drain-self", "on"]],
        state: |line| members(&line.json("status"), &["ready", "not_ready"]),
    },
    StateKind {
        name: "counters of scripts",
        orders: &[],
        state: |line| {
            let counters = line.first.get("/counters");
            let is_one = |line: &&str| line.starts_with("hits: ") || line.contains(".runs: ");
            counters.text().lines().filter(is_one).collect()
        },
    },
    StateKind {
        name: "rates of clients",
        orders: &[],
        state: |line| {
            let status = |target: &str| Value::from(line.first.get(target).status);
            let limits = line.done(&["limits", "127.0.0.1", "--format", "json"]);
            Value::from(vec![
                status("/rated"),
                status("/by-field"),
                serde_json::from_str(&limits).expect("JSON"),
            ])
        },
    },
];

fn members(value: &Value, names: &[&str]) -> Value {
    let all = names.iter().map(|name| ((*name).to_owned(), value[*name].clone()));
    Value::Object(all.collect())
}

/// Takes the times out of a response. Returns them in seconds.
fn take_times(value: &mut Value, times: &mut Vec<i64>) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| take_times(one, times)),
        Value::Object(all) => {
            for (name, one) in all {
                match one.as_i64().filter(|_| TIMES.contains(&name.as_str())) {
                    Some(time) => {
                        times.push(if name.ends_with("_us") { time / 1_000_000 } else { time });
                        *one = Value::Null;
                    }
                    None => take_times(one, times),
                }
            }
        }
        _ => {}
    }
}

fn split(mut value: Value) -> (Value, Vec<i64>) {
    let mut times = Vec::new();
    take_times(&mut value, &mut times);
    (value, times)
}

#[test]
fn every_kind_of_state_survives_with_the_rest_of_its_time() {
    let line = Line::start(
        site()
            .file("closed.html", "closed")
            .config("server.max-worker = 2")
            .config("status.statistics-url = \"/counters\"")
            .config(
                "$HTTP[\"url\"] == \"/script\" {\n\
                 magnet.attract-raw-url-to = ( \"@DIR@/script.lua\" )\n}",
            )
            .config("$HTTP[\"url\"] == \"/shop\" { status.route = \"shop\" }")
            .config("$HTTP[\"url\"] == \"/page\" { status.route = \"page\" }")
            .config("$HTTP[\"url\"] == \"/rated\" {\nlimit.requests = ( \"rate\" => 1, \"per\" => 9000 )\n}")
            .config(
                "$HTTP[\"url\"] == \"/by-field\" {\nlimit.requests = \
                 ( \"rate\" => 1, \"per\" => 9000, \"burst\" => 2, \"key\" => \"header:Host\" )\n}",
            ),
    );
    let page = line.first.directory().join("closed.html");
    write_file(&page, "<p>closed</p>");
    let script = "lighty.status[\"hits\"] = lighty.status[\"hits\"] + 1\nreturn 204\n";
    write_file(&line.first.directory().join("script.lua"), script);
    for _ in 0..3 {
        assert_eq!(line.first.get("/script").status, 204);
    }
    for order in KINDS.iter().flat_map(|kind| kind.orders) {
        let page = page.to_str().expect("UTF-8");
        let order: Vec<_> =
            order.iter().map(|word| if word.ends_with(".html") { page } else { *word }).collect();
        line.done(&order);
    }
    for target in ["/rated", "/rated", "/by-field", "/by-field", "/by-field"] {
        let _ = line.first.get(target);
    }
    let is_over = || line.json("bans").as_array().is_some_and(|all| all.len() == 2);
    assert!(wait_until(PATIENCE, is_over), "the ban of a second ends");
    let before: Vec<_> = KINDS.iter().map(|kind| split((kind.state)(&line))).collect();
    for (kind, (value, _)) in KINDS.iter().zip(&before) {
        let is_there = value.as_array().is_none_or(|all| !all.is_empty());
        assert!(is_there && !value.is_null(), "{}: {value}", kind.name);
    }
    for number in 1..=2 {
        line.upgrade();
        for (kind, (value, times)) in KINDS.iter().zip(&before) {
            let (now, left) = split((kind.state)(&line));
            let log = line.first.log();
            assert_eq!(&now, value, "{}, upgrade {number}\n{log}", kind.name);
            assert_eq!(times.len(), left.len());
            for (before, left) in times.iter().zip(left) {
                let is_rest = left <= *before && left > before - UPGRADES_S;
                assert!(is_rest, "{}: {left} s of {before} s", kind.name);
            }
        }
    }
    // The limits hold for others as well, and orders can be taken back.
    line.done(&["clear-limits", "127.0.0.1"]);
    assert_eq!(line.first.get("/rated").status, 404);
    line.done(&["unban", "192.0.2.9"]);
    line.done(&["maintenance", "shop", "off"]);
    line.done(&["log-level", "default"]);
    line.done(&["drain-self", "off"]);
    assert_eq!(line.json("status")["log_level"], "notice");
    assert_eq!(line.first.get("/shop").status, 404);
}

#[test]
fn traces_survive_until_they_are_ended() {
    let line = Line::start(site().config("server.max-worker = 2"));
    line.done(&["trace", "--host", "traced.example", "--for", "9000"]);
    line.upgrade();
    let get = |target: &str| {
        let mut client = Client::tcp(line.first.address());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: traced.example\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    };
    // Both workers.
    (0..8).for_each(|_| get("/a?before"));
    line.first.await_log("[Host: traced.example]");
    line.done(&["trace", "--off"]);
    line.upgrade();
    get("/a?after");
    let log = line.first.log();
    assert!(log.contains("/a?before") && !log.contains("/a?after"), "{log}");
}

#[test]
fn failing_successor_leaves_orders_as_they_were() {
    let line = Line::start(unrestricted().config("status.metrics-url = \"/metrics\""));
    line.done(&["ban", "192.0.2.9", "--for", "9000"]);
    line.done(&["log-level", "info", "--for", "9000"]);
    let state = || {
        let status = members(&line.json("status"), &["log_level", "pid"]);
        split(Value::from(vec![line.json("bans"), status])).0
    };
    let before = state();
    let crashing = line.crashing();
    let counted = counters(&line);
    let (status, _, err) = line.ctl(&["upgrade", "--binary", &crashing]);
    assert!(status == 1 && err.contains("serves again"), "{err}");
    assert_eq!(state(), before);
    assert_no_fall(&counted, &counters(&line), &line.first.log());
    line.upgrade();
    assert_eq!(state()[0], before[0]);
}
