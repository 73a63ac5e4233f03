//! The `debug.log-*` switches, each observed from outside, and the counters that USR2 logs.

use std::time::Duration;

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};
use rustix::process::Signal;

fn with(switch: &str) -> Setup {
    lighty!().file("a.txt", "hello\n").config(&format!("debug.{switch} = \"enable\""))
}

/// Log of one successful request and one for a missing file.
fn log_of(server: &Server) -> String {
    assert_eq!(server.get_with("/a.txt", "X-Mark: one\r\n").status, 200);
    assert_eq!(server.get_with("/none", "X-Mark: two\r\n").status, 404);
    server.log()
}

#[test]
fn nothing_is_traced_without_a_switch() {
    let server = lighty!().file("a.txt", "hello\n").start();
    let _ = log_of(&server);
    server.signal(Signal::HUP);
    server.await_log("logs were opened again");
    let log = server.log();
    for word in ["request header", "response header", "handled by", "condition "] {
        assert!(!log.contains(word), "{word}: {log}");
    }
}

#[test]
fn request_headers() {
    let server = with("log-request-header").start();
    let _ = log_of(&server);
    server.await_log("[GET /none HTTP/1.1] [Host: ");
    server.await_log("[X-Mark: two]");
    server.await_log("[X-Mark: one]");
}

#[test]
fn request_headers_of_errors_alone() {
    let server = with("log-request-header-on-error").start();
    let _ = log_of(&server);
    server.await_log("[X-Mark: two]");
    assert!(!server.log().contains("[X-Mark: one]"), "{}", server.log());
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Bad : \x1b[2J\r\n\r\n");
    assert_eq!(client.response().status, 400);
    server.await_log("[X-Bad : \\x1b[2J]");
    assert_eq!(server.log().matches("request header").count(), 2, "{}", server.log());
}

#[test]
fn response_headers() {
    let server = with("log-response-header").start();
    let _ = log_of(&server);
    server.await_log("response header: [HTTP/1.1 404 Not Found]");
    server.await_log("[Content-Length: 6]");
}

#[test]
fn log_names_the_handler_that_responded() {
    let server = with("log-request-handling").start();
    let _ = log_of(&server);
    server.await_log("handled by the core: 404, no such file");
    server.await_log("handled by mod_staticfile: 200");
    let path = server.root("a.txt");
    assert!(server.log().contains(&format!("path: \"{}\"", path.display())), "{}", server.log());
}

#[test]
fn log_says_which_conditions_hold() {
    let server = with("log-condition-handling")
        .config("$HTTP[\"url\"] =^ \"/a\" { server.tag = \"A\" }\nelse { server.tag = \"B\" }")
        .start();
    let _ = log_of(&server);
    server.await_log("condition $HTTP[\"url\"] =^ \"/a\" is true: $HTTP[\"url\"] is \"/a.txt\"");
    server.await_log("condition else is skipped: an earlier branch applies");
    server.await_log("condition $HTTP[\"url\"] =^ \"/a\" is false");
}

#[test]
fn a_condition_chooses_what_is_traced() {
    let server = lighty!()
        .file("a.txt", "hello\n")
        .config("$HTTP[\"url\"] == \"/none\" { debug.log-request-handling = \"enable\" }")
        .start();
    let _ = log_of(&server);
    server.await_log("handled by the core");
    assert_eq!(server.log().matches("handled by").count(), 1, "{}", server.log());
}

#[test]
fn ends_of_idle_connections() {
    let server = with("log-timeouts")
        .config("server.max-keep-alive-idle = 1\nserver.max-connection-idle = 2")
        .start();
    let mut fresh = server.connect();
    let mut used = server.connect();
    used.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(used.response().status, 200);
    used.set_deadline(Duration::from_secs(10));
    used.expect_end();
    server.await_log("no request within 1 s after 1 (limit: server.max-keep-alive-idle)");
    fresh.set_deadline(Duration::from_secs(10));
    fresh.expect_end();
    server.await_log("no request within 2 s after 0 (limit: server.max-connection-idle)");
}

#[test]
fn time_outs_of_requests_name_their_limit() {
    let server = with("log-timeouts").config("server.max-head-time = 1").start();
    let mut client = server.connect();
    client.set_deadline(Duration::from_secs(10));
    client.send("GET / HT");
    assert_eq!(client.response().status, 408);
    server.await_log("[notice] 127.0.0.1: server.max-head-time ran out");
}

#[test]
fn usr2_writes_the_counters() {
    let server = lighty!()
        .file("a.txt", "hello\n")
        .config("server.max-worker = 1\nserver.network-backend = \"gthread-aio\"")
        .start();
    let _ = log_of(&server);
    server.signal(Signal::USR2);
    server.await_log("worker 0: 2 requests on ");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("worker 0: ")).expect("a line of counters");
    for part in ["network backend gthread-aio: ", "async reads", "open wait", "stat cache: "] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn a_stop_writes_the_counters_at_level_info() {
    let mut server =
        lighty!().file("a.txt", "hello\n").config("server.errorlog-level = \"info\"").start();
    let _ = log_of(&server);
    server.stop();
    let log = server.log();
    let counters = log.find("worker 0: ").expect("a line of counters");
    assert!(counters < log.find("] stopped").expect("the last line"), "{log}");
}
