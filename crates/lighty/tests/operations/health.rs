//! URLs of liveness and readiness, `lighty ctl drain-self`, and the delay of a graceful stop.

use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::server::{STOP_DEADLINE, Server, Setup};
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(30);

fn site() -> Setup {
    lighty!()
        .file("a", "x")
        .config("health.live-url = \"/livez\"\nhealth.ready-url = \"/readyz\"")
        .config("server.pid-file = \"@DIR@/lighty.pid\"")
}

/// `lighty ctl ARGUMENTS`: exit status, and both outputs.
fn ctl(server: &Server, arguments: &[&str]) -> (i32, String) {
    let (status, out, err) = crate::ctl::ctl(server, arguments);
    (status, out + &err)
}

#[test]
fn both_urls_say_200_to_probes() {
    let server = site().config("url.redirect = ( \"\" => \"https://a/\" )").start();
    for path in ["/livez", "/readyz"] {
        let response = server.get(path);
        assert_eq!((response.status, response.text()), (200, "ok\n"), "{path}");
        assert_eq!(response.field("Cache-Control"), Some("no-store"), "{path}");
    }
    assert_eq!(server.get("/readyz?json").text(), "{\"ready\":true}\n");
    let json = server.get_with("/livez", "Accept: application/json\r\n");
    assert_eq!(json.text(), "{\"live\":true}\n");
    let mut client = server.connect();
    client.send("HEAD /readyz HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to_head().status, 200);
    assert_eq!(server.get("/readyz/").status, 301, "other paths are not answered");
    assert_eq!(server.get("/a").status, 301);
}

#[test]
fn drained_server_serves_on_and_is_not_ready() {
    let server = site().start();
    assert_eq!(ctl(&server, &["status", "--ready"]).0, 0);
    assert_eq!(ctl(&server, &["drain-self", "on"]), (0, "the readiness URL says 503\n".into()));
    let response = server.get("/readyz");
    assert_eq!((response.status, response.text()), (503, "not ready: drained\n"));
    let json = server.get("/readyz?json");
    assert_eq!(json.text(), "{\"ready\":false,\"reasons\":[\"drained\"]}\n");
    assert_eq!((server.get("/livez").status, server.get("/a").status), (200, 200));
    let (status, text) = ctl(&server, &["status", "--ready"]);
    assert!(status == 1 && text.contains("not ready: drained"), "{text}");
    // A reload forgets no order.
    assert_eq!(ctl(&server, &["reload"]).0, 0);
    assert_eq!(server.get("/readyz").status, 503);
    assert_eq!(ctl(&server, &["drain-self", "off"]).0, 0);
    assert_eq!(server.get("/readyz").status, 200);
    server.await_log("control: /drain-self {\"on\":true} by user");
}

#[test]
fn graceful_stop_ends_readiness_and_listens_until_its_delay_is_over() {
    let mut server = site().config("server.drain-delay = 2").start();
    let mut kept = server.connect();
    server.signal(Signal::INT);
    server.await_log("the listeners close in 2 seconds");
    let response = server.get("/readyz");
    assert_eq!((response.status, response.text()), (503, "not ready: stopping\n"));
    assert_eq!(server.get("/a").status, 200, "new connections are served as before");
    kept.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(kept.response().field("Connection"), None, "connections stay open");
    let (status, text) = ctl(&server, &["status", "--format", "text"]);
    assert!(status == 0 && text.contains("not_ready: stopping"), "{text}");
    let (status, text) = ctl(&server, &["reload"]);
    assert!(status == 1 && text.contains("the server is stopping"), "{text}");
    server.await_log("graceful stop: waiting for responses under way");
    let (status, _) = server.await_exit(STOP_DEADLINE);
    assert!(status.success(), "{status}");
}

#[test]
fn second_signal_ends_the_delay() {
    let mut server = site().config("server.drain-delay = 3600").start();
    server.signal(Signal::INT);
    server.await_log("the listeners close in 3600 seconds");
    server.signal(Signal::INT);
    let (status, _) = server.await_exit(STOP_DEADLINE);
    assert!(status.success(), "{status}");
}

#[test]
fn stop_without_a_delay_closes_its_listeners() {
    let mut server = site().start();
    let mut kept = server.connect();
    kept.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(kept.response().status, 200);
    server.signal(Signal::INT);
    let refused =
        lighty_testkit::wait_until(PATIENCE, || Client::try_tcp(server.address()).is_err());
    assert!(refused, "{}", server.log());
    assert!(server.await_exit(STOP_DEADLINE).0.success());
}

#[test]
fn delays_and_paths_are_checked() {
    for (line, expected) in [
        ("server.drain-delay = 3601", "from 0 to 3600"),
        ("health.live-url = \"livez\"", "must be a path that begins with a slash"),
    ] {
        let (status, _, error) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
        assert!(status == 1 && error.contains(expected), "{line}: {error}");
    }
    let (status, _, error) =
        lighty!().config("server.drain-delay = 3600").run(&["-t", "-f", "@CONF@"]);
    assert_eq!(status, 0, "{error}");
}
