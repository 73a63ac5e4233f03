//! `auth.failures`: bans of clients that fail to log in.

use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};
use serde_json::Value;

use crate::ctl::ctl;

/// "a:right" and "a:wrong".
const RIGHT: &str = "YTpyaWdodA==";
const WRONG: &str = "YTp3cm9uZw==";

fn site(limit: &str) -> Setup {
    lighty!().file("private/a", "secret").file("a", "page").file("../users", "a:right\n").config(
        &format!(
            "server.pid-file = \"@DIR@/lighty.pid\"\n\
             auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
             auth.delay-invalid-creds = \"disable\"\n\
             auth.require = ( \"/private\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )\nauth.failures = ( {limit} )"
        ),
    )
}

fn ask(client: &mut Client, credentials: &str, more: &str) -> Response {
    client.send(format!(
        "GET /private/a HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {credentials}\r\n{more}\r\n"
    ));
    client.response()
}

fn fail(client: &mut Client, times: u32, more: &str) {
    for _ in 0..times {
        assert_eq!(ask(client, WRONG, more).status, 401);
    }
}

fn connect(server: &Server) -> Client {
    Client::tcp(server.address())
}

#[test]
fn client_that_guesses_is_banned_until_an_operator_ends_the_ban() {
    let server = site("\"max\" => 3, \"within\" => 60, \"ban\" => 1000").start();
    let mut client = connect(&server);
    fail(&mut client, 2, "");
    assert_eq!(ask(&mut client, RIGHT, "").status, 200);
    fail(&mut client, 1, "");
    let refused = ask(&mut client, RIGHT, "");
    assert_eq!(refused.status, 429);
    let left_s: u32 = refused.field("Retry-After").and_then(|s| s.parse().ok()).expect("seconds");
    assert!((900..=1000).contains(&left_s), "{left_s}");
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 200, "only protected paths are refused");
    server.await_log("127.0.0.1 is banned for 1000 s after 3 wrong logins");
    assert!(ctl(&server, &["bans"]).1.contains("127.0.0.1"));
    assert_eq!(ctl(&server, &["unban", "127.0.0.1"]).0, 0);
    assert_eq!(ask(&mut client, RIGHT, "").status, 200);
    fail(&mut connect(&server), 2, "");
    assert_eq!(ask(&mut connect(&server), RIGHT, "").status, 200, "counted anew");
}

#[test]
fn ban_ends_by_itself() {
    let server = site("\"max\" => 1, \"ban\" => 1").start();
    let mut client = connect(&server);
    fail(&mut client, 1, "");
    let is_back = || ask(&mut client, RIGHT, "").status == 200;
    assert!(lighty_testkit::wait_until(Duration::from_secs(30), is_back), "{}", server.log());
}

#[test]
fn proxy_is_not_banned_for_its_clients() {
    let trust = "extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )\n\
                 extforward.headers = ( \"X-Forwarded-For\" )";
    let server = site("\"max\" => 3").config(trust).start();
    let (one, other) = ("X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-For: 192.0.2.2\r\n");
    let mut client = connect(&server);
    fail(&mut client, 3, one);
    assert_eq!(ask(&mut client, RIGHT, one).status, 429);
    assert_eq!(ask(&mut client, RIGHT, other).status, 200);
    assert_eq!(ask(&mut connect(&server), RIGHT, other).status, 200);
    // The proxy itself, which names no client or hides it.
    for hidden in ["", "X-Forwarded-For: ,\r\n", "X-Forwarded-For: unknown\r\n"] {
        fail(&mut client, 9, hidden);
    }
    assert_eq!(ask(&mut connect(&server), RIGHT, "").status, 200);
    let listed = bans(&server);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(
        (&listed[0]["client"], &listed[0]["extent"]),
        (&"192.0.2.1".into(), &"requests".into())
    );
    assert_eq!(ctl(&server, &["unban", "192.0.2.1"]).0, 0);
    assert_eq!(ask(&mut connect(&server), RIGHT, one).status, 200);
}

fn bans(server: &Server) -> Value {
    serde_json::from_str(&ctl(server, &["bans"]).1).expect("JSON")
}

#[test]
fn bans_are_counted() {
    let server = site("\"max\" => 2").config("status.metrics-url = \"/metrics\"").start();
    let mut open = connect(&server);
    let mut client = connect(&server);
    fail(&mut client, 2, "");
    assert_eq!(ask(&mut client, RIGHT, "").status, 429);
    connect(&server).expect_end();
    assert_eq!(bans(&server)[0]["cause"], "logins");
    open.send("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    let metrics = open.response().text().to_owned();
    for line in [
        "lighty_login_failures_total 2\n",
        "lighty_login_bans_total 1\n",
        "lighty_login_refused_requests_total 1\n",
        "lighty_banned_connections_total 1\n",
        "lighty_bans{cause=\"operator\"} 0\n",
        "lighty_bans{cause=\"logins\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
}

#[test]
fn guesses_that_wait_are_refused_after_the_ban() {
    let server = site("\"max\" => 2").config("auth.delay-invalid-creds := \"enable\"").start();
    let mut clients: Vec<_> = (0..8).map(|_| connect(&server)).collect();
    // All are accepted before the ban.
    for client in &mut clients {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 200);
    }
    // All are sent before the first response, which comes after a second.
    for client in &mut clients {
        let head = format!("GET /private/a HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {WRONG}");
        client.send(format!("{head}\r\n\r\n"));
    }
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.response().status).collect();
    let wrong = statuses.iter().filter(|status| **status == 401).count();
    assert!(wrong == 2 && statuses.iter().all(|s| [401, 429].contains(s)), "{statuses:?}");
}

#[test]
fn wrong_logins_ban_no_client_without_a_limit() {
    let server = site("").start();
    let mut client = connect(&server);
    fail(&mut client, 30, "");
    assert_eq!(ask(&mut client, RIGHT, "").status, 200);
}
