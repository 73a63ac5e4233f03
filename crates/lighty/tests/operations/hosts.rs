//! Metrics by host: names come from the configuration, never from clients.

use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::http2::Http2;
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::{lighty, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);

const URLS: &str = "status.status-url = \"/server-status\"\nstatus.metrics-url = \"/metrics\"\n";

fn ask(server: &Server, host: &str, target: &str) -> u16 {
    let mut client = Client::tcp(server.address());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response().status
}

/// Name, requests, 4xx, 5xx and bytes of each host.
fn hosts(server: &Server) -> Vec<(String, u64, u64, u64, u64)> {
    let page = server.get("/server-status?json");
    let page: Value = serde_json::from_slice(&page.body).expect("JSON");
    let number = |row: &Value, name: &str| row[name].as_u64().expect("a number");
    let rows = page["hosts"].as_array().expect("a list").iter().map(|row| {
        (
            row["host"].as_str().expect("a name").to_owned(),
            number(row, "requests"),
            number(row, "client_errors"),
            number(row, "server_errors"),
            number(row, "bytes_out"),
        )
    });
    rows.collect()
}

/// Waits until this host has `requests` requests: the server counts a request after sending the
/// response, so its client may see the response first.
#[track_caller]
fn await_requests(server: &Server, host: &str, requests: u64) -> (u64, u64, u64) {
    let row = || hosts(server).into_iter().find(|row| row.0 == host);
    let is_there = wait_until(SOON, || row().map_or(0, |row| row.1) == requests);
    assert!(is_there, "{host}: {:?}", hosts(server));
    row().map(|row| (row.2, row.3, row.4)).unwrap_or_default()
}

/// Names without `other`, which counts the requests for the metrics themselves.
fn names(server: &Server) -> Vec<String> {
    let mut names: Vec<String> = hosts(server).into_iter().map(|row| row.0).collect();
    names.retain(|name| name != "other");
    names.sort();
    names
}

#[test]
fn requests_errors_and_bytes_are_counted_by_named_host() {
    let content = "x".repeat(1000);
    let server = lighty!()
        .file("a", &content)
        .config(URLS)
        .config(
            "server.max-worker = 2\n$HTTP[\"host\"] == \"one.example\" { }\n\
             $HTTP[\"host\"] == \"TWO.example\" { url.access-deny = ( \"~\" ) }\n\
             $HTTP[\"host\"] =$ \".wild.example\" { }\n\
             $HTTP[\"host\"] =~ \"^(x|y)\\.example$\" {\n\
             $HTTP[\"host\"] == \"x.example\" { $HTTP[\"url\"] == \"/a\" { server.tag = \"t\" } }\n\
             }\n$HTTP[\"host\"] != \"no.example\" { server.tag = \"u\" }",
        )
        .start();
    for (host, target, status) in [
        ("one.example", "/a", 200),
        ("ONE.example:8080", "/a", 200),
        ("one.example", "/none", 404),
        ("two.example", "/a~", 403),
        ("a.wild.example", "/a", 200),
        ("b.wild.example", "/a", 200),
        ("x.example", "/a", 200),
        ("y.example", "/a", 200),
        ("no.example", "/a", 200),
    ] {
        assert_eq!(ask(&server, host, target), status, "{host} {target}");
    }
    let mut client = Http2::over(server.connect(), "one.example", &[]);
    assert_eq!(client.get("/a").status, 200);
    let (client_errors, server_errors, bytes) = await_requests(&server, "one.example", 4);
    assert_eq!((client_errors, server_errors), (1, 0));
    assert!((3_000..6_000).contains(&bytes), "{bytes}");
    assert_eq!(await_requests(&server, "two.example", 1).0, 1);
    await_requests(&server, "*.wild.example", 2);
    await_requests(&server, "x.example", 1);
    await_requests(&server, "^(x|y)\\.example$", 1);
    assert_eq!(names(&server).len(), 5, "{:?}", hosts(&server));

    let page = server.get("/server-status");
    for message in ["<h2>Hosts</h2>", "<td>one.example</td><td>4</td><td>1</td><td>0</td>"] {
        assert!(page.text().contains(message), "{message}: {}", page.text());
    }
    let metrics = server.get("/metrics");
    for line in [
        "lighty_host_requests_total{host=\"one.example\"} 4\n",
        "lighty_host_errors_total{host=\"one.example\",class=\"4xx\"} 1\n",
        "lighty_host_errors_total{host=\"one.example\",class=\"5xx\"} 0\n",
        "lighty_host_sent_bytes_total{host=\"two.example\"} ",
    ] {
        assert!(metrics.text().contains(line), "{line}: {}", metrics.text());
    }
}

#[test]
fn clients_cannot_add_hosts() {
    let server =
        lighty!().file("a", "A").config(URLS).config("$HTTP[\"host\"] == \"own\" { }").start();
    for number in 0..300 {
        assert_eq!(ask(&server, &format!("forged{number}.example"), "/a"), 200);
    }
    assert_eq!(ask(&server, "own", "/a"), 200);
    let mut client = Http2::over(server.connect(), "forged.example", &[]);
    assert_eq!(client.get("/a").status, 200);
    await_requests(&server, "own", 1);
    assert_eq!(names(&server), ["own"]);
    let others = || hosts(&server).iter().find(|row| row.0 == "other").map_or(0, |row| row.1);
    assert!(wait_until(SOON, || others() >= 301), "{:?}", hosts(&server));
    assert!(!server.get("/metrics").text().contains("forged"));
}

#[test]
fn names_beyond_the_limit_are_counted_as_other() {
    let all: Vec<String> = (0..102).map(|number| format!("h{number}.example")).collect();
    let blocks: Vec<String> =
        all.iter().map(|name| format!("$HTTP[\"host\"] == \"{name}\" {{ }}\n")).collect();
    for (directive, limit) in [("", 100), ("status.hosts = 3\n", 3), ("status.hosts = 0\n", 0)] {
        let server = lighty!()
            .file("a", "A")
            .config(URLS)
            .config(directive)
            .config(&blocks.concat())
            .start();
        for name in &all {
            assert_eq!(ask(&server, name, "/a"), 200);
        }
        if limit > 0 {
            await_requests(&server, &all[limit - 1], 1);
        }
        let mut wanted = all[..limit].to_vec();
        wanted.sort();
        assert_eq!(names(&server), wanted);
        let is_shown = server.get("/server-status").text().contains("<h2>Hosts</h2>");
        let has_metrics = server.get("/metrics").text().contains("lighty_host_");
        assert_eq!((is_shown, has_metrics), (limit > 0, limit > 0), "{directive}");
    }
    let (code, _, err) = lighty!().config("status.hosts = 1001").run(&["-t", "-f", "@CONF@"]);
    assert!(code == 1 && err.contains("status.hosts"), "{err}");
}

#[test]
fn without_named_hosts_none_are_counted() {
    let server = lighty!().file("a", "A").config(URLS).start();
    assert_eq!(ask(&server, "a.example", "/a"), 200);
    assert!(hosts(&server).is_empty());
    assert!(!server.get("/server-status").text().contains("<h2>Hosts</h2>"));
}

#[test]
fn reload_keeps_counts() {
    let lines = |names: &[&str]| -> String {
        names.iter().map(|name| format!("$HTTP[\"host\"] == \"{name}\" {{ }}\n")).collect()
    };
    let setup = lighty!().file("a", "A").config(URLS).config("include \"hosts.conf\"");
    let included = setup.directory().join("hosts.conf");
    write_file(&included, lines(&["one", "two"]));
    let server = setup.start();
    for host in ["one", "one", "two"] {
        assert_eq!(ask(&server, host, "/a"), 200);
    }
    await_requests(&server, "one", 2);
    write_file(&included, lines(&["three", "one"]));
    server.signal(Signal::USR1);
    server.await_log("reloaded: generation 1");
    for host in ["one", "two", "three"] {
        assert_eq!(ask(&server, host, "/a"), 200);
    }
    await_requests(&server, "one", 3);
    await_requests(&server, "three", 1);
    await_requests(&server, "two", 1);
    assert_eq!(names(&server), ["one", "three", "two"]);
}
