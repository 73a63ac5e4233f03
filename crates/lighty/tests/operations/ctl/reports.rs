//! Whole documents, and the members of all responses.

use lighty_testkit::backend::Backend;
use lighty_testkit::wait_until;
use serde_json::Value;

use super::{PATIENCE, ctl, done, json, keeping, members, rows, site};

#[test]
fn metrics_are_text_and_timings_are_percentiles() {
    let server = site().config("status.route = \"shop\"").start();
    assert_eq!(server.get("/a").status, 200);
    let metrics = done(&server, &["metrics"]);
    assert!(metrics.lines().any(|line| line.starts_with("# TYPE ")), "{metrics}");
    let timings = json(&server, "timings");
    let routes = timings["routes"].as_array().expect("routes");
    assert!(routes[0]["route"] == "shop" && routes[0]["p99_us"].is_u64(), "{timings}");
    assert!(!timings["stages"].as_array().expect("stages").is_empty());
    let text = done(&server, &["timings", "none", "--format", "json"]);
    let none: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(none["routes"], Value::Array(vec![]));
}

#[test]
fn dump_has_everything_and_no_secrets() {
    let server = site()
        .config("secdownload.secret = \"hush\"\nsecdownload.document-root = \"@DIR@\"")
        .config("setenv.add-request-header = ( \"Authorization\" => \"hush\" )")
        .config("debug.log-request-header = \"enable\"")
        .start();
    let mut client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nCookie: hush\r\n\r\n");
    assert_eq!(client.response().status, 200);
    server.await_log("[Cookie: hush]");
    let text = done(&server, &["dump"]);
    let dump: Value = serde_json::from_str(&text).expect("JSON");
    let members: Vec<_> = dump.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(
        members,
        [
            "backends",
            "certificates",
            "configuration",
            "connections",
            "errors",
            "log",
            "status",
            "timings"
        ]
    );
    assert!(!text.contains("hush"), "{text}");
    let configuration = dump["configuration"]["text"].as_str().expect("a text");
    assert!(configuration.contains("secdownload.secret = \"***\""), "{configuration}");
    assert!(configuration.contains("\"Authorization\" => \"***\""), "{configuration}");
    assert!(text.contains("[Cookie: ***]"), "{text}");
    let shown = done(&server, &["configuration", "--format", "text"]);
    assert_eq!(shown, configuration);
}

#[test]
fn members_of_responses_stay_as_they_are() {
    let backend = Backend::answering("one");
    let server = keeping(&backend).config("status.route = \"r\"").start();
    assert_eq!(server.get("/").status, 200);
    let mut client = server.connect();
    client.send("nonsense\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let _open = server.connect();
    assert!(wait_until(PATIENCE, || !rows(&server, &["connections"]).is_empty()));
    for (verb, names) in [
        (
            "backends",
            "added backend failed first_byte_us idle in_use kept limit requests state upstream \
             waiting weight why",
        ),
        ("connections", "bytes client for_s host id method protocol state target worker"),
        (
            "errors",
            "backend client kind length mark offset position reason request text time worker",
        ),
    ] {
        let rows = rows(&server, &[verb]);
        assert_eq!(members(&rows[0]).join(" "), names, "{verb}");
    }
    let status = json(&server, "status");
    for name in [
        "generation",
        "generation_age_s",
        "hanging_workers",
        "last_reload_age_s",
        "last_reload_succeeded",
        "log_level",
        "pid",
        "refused_reloads",
        "reloads",
        "uptime_s",
        "version",
        "workers",
    ] {
        assert!(status.get(name).is_some(), "{name}: {status}");
    }
    let worker = &status["workers"][0];
    assert_eq!(
        members(worker).join(" "),
        "bytes_in bytes_out connections idle_connections late_us requests worker"
    );
    let timings = json(&server, "timings");
    assert_eq!(
        members(&timings["routes"][0]).join(" "),
        "errors p50_us p90_us p99_9_us p99_us requests route sum_us"
    );
    assert_eq!(
        members(&timings["stages"][0]).join(" "),
        "p50_us p90_us p99_9_us p99_us requests stage sum_us"
    );
    assert_eq!(members(&json(&server, "configuration")).join(" "), "generation text");
}

#[test]
fn request_is_explained_under_the_configuration_in_use() {
    let server =
        site().config("$HTTP[\"host\"] == \"a.example\" { server.tag = \"mine\" }").start();
    let conf = server.directory().join("lighty.conf");
    lighty_testkit::server::write_file(&conf, "# not loaded\n");
    let text = done(&server, &["explain", "http://a.example/a", "--format", "text"]);
    assert!(text.contains("server.tag") && text.contains("mod_staticfile"), "{text}");
    assert!(text.contains("lighty.conf:"), "the place of the condition: {text}");
    let other = done(&server, &["explain", "http://b.example/a", "--format", "text"]);
    assert!(!other.contains("\"mine\""), "{other}");
    let answer: Value = serde_json::from_str(&done(&server, &["explain", "/a"])).expect("JSON");
    assert_eq!(members(&answer).join(" "), "explanation generation text");
    let (status, _, err) = ctl(&server, &["explain", "ftp://a/"]);
    assert!(status == 1 && err.contains("ftp: not a scheme lighty serves"), "{err}");
}
