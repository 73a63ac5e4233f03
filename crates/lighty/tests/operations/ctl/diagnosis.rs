//! Malformed messages, log levels and traces.

use lighty_testkit::backend::Backend;
use lighty_testkit::wait_until;
use serde_json::Value;

use super::{PATIENCE, ctl, done, json, site};

#[test]
fn malformed_requests_are_listed_with_their_faults_marked() {
    let server = site().start();
    assert_eq!(json(&server, "errors"), Value::Array(vec![]));
    let mut client = server.connect();
    client.send("GET /a?q HTTP/1.1\r\nHost: a\r\nCookie: hush\r\nA: b\x01c\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let errors = json(&server, "errors");
    let error = &errors[0];
    assert_eq!(
        (&error["kind"], &error["client"], &error["reason"], &error["request"]),
        (
            &"request".into(),
            &"127.0.0.1".into(),
            &"a control character in a field value".into(),
            &"GET /a?q HTTP/1.1".into()
        )
    );
    let text = "GET /a?q HTTP/1.1\\r\\nHost: a\\r\\nCookie:***\\r\\nA: b\\x01c\\r\\n\\r\\n";
    assert_eq!(error["text"], text);
    assert_eq!(error["mark"], text.find("\\x01").expect("there"));
    let shown = done(&server, &["errors", "--format", "text"]);
    assert!(shown.contains("\n                         ") && shown.ends_with("^\n"), "{shown}");
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn malformed_responses_of_backends_are_listed() {
    let backend = Backend::start(|peer| {
        let _ = peer.head();
        peer.send(b"HTTP/1.1 200 OK\r\nSet-Cookie: hush\r\nno colon\r\n\r\n");
    });
    let server = site()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.name()))
        .start();
    assert_eq!(server.get("/x?y").status, 502);
    let errors = json(&server, "errors");
    let error = &errors[0];
    assert_eq!(
        (&error["kind"], &error["backend"], &error["request"]),
        (&"response".into(), &backend.name().into(), &"GET /x?y".into())
    );
    let text = "HTTP/1.1 200 OK\\r\\nSet-Cookie:***\\r\\nno colon\\r\\n\\r\\n";
    assert_eq!((&error["text"], &error["mark"]), (&text.into(), &text.rfind("\\r\\n\\r").into()));
}

#[test]
fn list_of_errors_keeps_the_last_hundred() {
    let server = site().config("server.max-worker = 1").start();
    for number in 0..101 {
        let mut client = server.connect();
        client.send(format!("GET /{number} HTTP/1.1\r\n\r\n"));
        assert_eq!(client.response().status, 400);
    }
    let errors = json(&server, "errors");
    let errors = errors.as_array().expect("a list");
    assert_eq!((errors.len(), &errors[0]["request"]), (100, &"GET /1 HTTP/1.1".into()));
}

#[test]
fn ordered_log_level_ends_by_itself() {
    let server = site().config("server.errorlog-level = \"error\"").start();
    let out = done(&server, &["log-level", "debug", "--for", "600"]);
    assert_eq!(out, "the error log has the level debug for 600 s\n");
    assert_eq!(json(&server, "status")["log_level"], "debug");
    assert_eq!(server.get("/none").status, 404);
    server.await_log("no such file");
    done(&server, &["reload"]);
    assert_eq!(json(&server, "status")["log_level"], "debug", "a reload keeps it");
    done(&server, &["log-level", "info", "--for", "1"]);
    let level = || json(&server, "status")["log_level"].clone();
    assert!(wait_until(PATIENCE, || level() == "error"));
    done(&server, &["log-level", "warning"]);
    let out = done(&server, &["log-level", "default"]);
    assert_eq!(out, "the error log has its configured level: error\n");
    assert_eq!(
        (level(), json(&server, "status")["log_level_for_s"].clone()),
        ("error".into(), Value::Null)
    );
    for (level, seconds, reason) in [
        ("loud", "1", "loud is no level"),
        ("info", "0", "1 to 86400"),
        ("info", "86401", "1 to 86400"),
    ] {
        let (status, _, err) = ctl(&server, &["log-level", level, "--for", seconds]);
        assert!(status == 1 && err.contains(reason), "{err}");
    }
    done(&server, &["log-level", "info", "--for", "86400"]);
}

#[test]
fn ordered_level_of_a_module_ends_by_itself() {
    let server = site().config("server.errorlog-levels = ( \"core\" => \"error\" )").start();
    let out = done(&server, &["log-level", "mod_staticfile", "debug", "--for", "600"]);
    assert_eq!(out, "module staticfile of the error log has the level debug for 600 s\n");
    server.await_log("control: /log-level");
    assert!(server.log().contains("\"module\":\"mod_staticfile\""), "{}", server.log());
    done(&server, &["log-level", "core", "info", "--for", "600"]);
    done(&server, &["reload"]);
    let status = json(&server, "status");
    let ordered: Vec<_> = status["log_levels"].as_array().expect("levels").iter().collect();
    assert_eq!(ordered.len(), 2, "a reload keeps them: {status}");
    assert_eq!(
        (&ordered[0]["module"], &ordered[0]["level"]),
        (&"core".into(), &"info".into()),
        "{status}"
    );
    assert_eq!(status["log_level"], "notice", "other modules keep theirs");
    let text = done(&server, &["status", "--format", "text"]);
    assert!(text.contains("log_levels:\n  module"), "{text}");
    assert_eq!(server.get("/none").status, 404);
    let out = done(&server, &["log-level", "core", "default"]);
    assert_eq!(out, "module core of the error log has its configured level: error\n");
    done(&server, &["log-level", "staticfile", "warning", "--for", "1"]);
    let ordered = || json(&server, "status")["log_levels"].as_array().map_or(0, Vec::len);
    assert!(wait_until(PATIENCE, || ordered() == 0));
    for (arguments, reason) in [
        (["nothing", "debug"], "nothing is no module of the error log"),
        (["core", "loud"], "loud is no level"),
    ] {
        let (status, _, err) = ctl(&server, &[&["log-level"], &arguments[..]].concat());
        assert!(status == 1 && err.contains(reason), "{err}");
    }
}

#[test]
fn trace_logs_matching_requests_alone() {
    let server = site().start();
    done(&server, &["trace", "--host", "a.example", "--for", "600"]);
    let get = |host: &str| {
        let mut client = server.connect();
        client
            .send(format!("GET /a HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic hush\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    };
    get("b.example");
    get("a.example:8080");
    server.await_log("handled by mod_staticfile: 200");
    server.await_log("response header: [HTTP/1.1 200 OK]");
    let log = server.log();
    assert!(log.contains("[Host: a.example:8080] [Authorization: ***]"), "{log}");
    assert!(!log.contains("b.example") && !log.contains("hush"), "{log}");
    done(&server, &["trace", "--off"]);
    get("a.example");
    done(&server, &["trace", "--client", "127.0.0.1"]);
    get("c.example");
    server.await_log("[Host: c.example]");
    assert!(!server.log().contains("[Host: a.example]"), "{}", server.log());
    for number in 1..16 {
        done(&server, &["trace", "--host", &number.to_string()]);
    }
    let (status, _, err) = ctl(&server, &["trace", "--host", "one-more"]);
    assert!(status == 1 && err.contains("there are 16 traces"), "{err}");
}
