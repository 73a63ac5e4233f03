//! Connections and clients: lists, ends, bans and limits.

use lighty_testkit::backend::Backend;
use lighty_testkit::http2::Http2;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;
use serde_json::Value;

use super::{PATIENCE, ctl, done, json, members, raw, rows, site};

/// A server whose backend never responds.
fn hanging() -> (Server, Backend) {
    let backend = Backend::start(|peer| {
        let _ = peer.head();
        peer.hang();
    });
    let server = site()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.name()))
        .start();
    (server, backend)
}

#[test]
fn connections_show_their_requests_if_the_status_page_does() {
    let backend = Backend::start(|peer| {
        let _ = peer.head();
        peer.hang();
    });
    let server = site()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.name()))
        .config("status.status-url = \"/status\"")
        .start();
    let mut client = server.connect();
    client.send("GET /slow?x=1 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let row = || {
        let rows = json(&server, "connections");
        rows.as_array().expect("rows").iter().find(|row| row["target"] == "/slow?x=1").cloned()
    };
    assert!(wait_until(PATIENCE, || row().is_some()), "{}", server.log());
    let row = row().expect("a row");
    assert_eq!((&row["method"], &row["host"]), (&"GET".into(), &"a.example".into()));
}

#[test]
fn connections_are_selected_and_show_their_requests_without_a_status_page() {
    let (server, _backend) = hanging();
    assert!(rows(&server, &["connections"]).is_empty());
    let (mut client, _idle) = (server.connect(), server.connect());
    client.send("GET /slow HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let busy = || rows(&server, &["connections", "--state", "handle"]);
    assert!(wait_until(PATIENCE, || busy().len() == 1), "{}", server.log());
    assert_eq!(busy()[0]["target"], "/slow");
    assert_eq!(rows(&server, &["connections", "--state", "idle"]).len(), 1);
    assert_eq!(rows(&server, &["connections", "--client", "127.0.0.1"]).len(), 2);
    assert!(rows(&server, &["connections", "--client", "127.0.0.2"]).is_empty());
    assert!(rows(&server, &["connections", "--older", "1000"]).is_empty());
    let (status, body) = raw(&server, "GET /connections?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(status == 400 && body.contains("x is no parameter"), "{body}");
}

#[test]
fn killed_connection_ends_whatever_it_does() {
    let (server, _backend) = hanging();
    let mut idle = server.connect();
    let mut busy = server.connect();
    busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wait_until(PATIENCE, || json(&server, "backends")[0]["in_use"] == 1));
    for (state, client) in [("idle", &mut idle), ("handle", &mut busy)] {
        let found = rows(&server, &["connections", "--state", state]);
        let id = found[0]["id"].as_str().expect("an id").to_owned();
        assert_eq!(done(&server, &["kill", &id]), format!("{id} is ended\n"));
        client.expect_end();
        let gone = || ctl(&server, &["kill", &id]).0 == 1;
        assert!(wait_until(PATIENCE, gone), "{state}");
    }
    assert!(wait_until(PATIENCE, || json(&server, "backends")[0]["in_use"] == 0));
    let (status, _, err) = ctl(&server, &["kill", "x"]);
    assert!(status == 1 && err.contains("no open connection or stream has the id x"), "{err}");
    server.await_log("control: /kill");
}

#[test]
fn banned_client_is_refused_until_the_ban_ends() {
    let server = site().start();
    let mut open = server.connect();
    open.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(open.response().status, 200);
    let out = done(&server, &["ban", "127.0.0.1"]);
    assert_eq!(out, "connections of 127.0.0.1 are refused for 600 s\n");
    open.expect_end();
    let ban = json(&server, "bans")[0].clone();
    assert!(ban["client"] == "127.0.0.1" && ban["for_s"].as_i64() > Some(500), "{ban}");
    server.connect().expect_end();
    let out = done(&server, &["unban", "127.0.0.1"]);
    assert_eq!(out, "127.0.0.1 is accepted again\n");
    assert_eq!(server.get("/a").status, 200);
    done(&server, &["ban", "127.0.0.1", "--for", "1"]);
    assert!(wait_until(PATIENCE, || rows(&server, &["bans"]).is_empty()));
    assert_eq!(server.get("/a").status, 200);
    let (status, _, err) = ctl(&server, &["unban", "192.0.2.1"]);
    assert!(status == 1 && err.contains("192.0.2.1 is not banned"), "{err}");
}

#[test]
fn limits_show_a_client_and_forget_it() {
    let server = site()
        .config("limit.requests = ( \"rate\" => 1, \"per\" => 3600 )")
        .config("$HTTP[\"url\"] =^ \"/b\" { limit.connections = ( \"max\" => 2 ) }")
        .start();
    assert_eq!((server.get("/a").status, server.get("/a").status), (200, 429));
    let limits = rows(&server, &["limits", "127.0.0.1"]);
    assert_eq!(members(&limits[0]).join(" "), "condition directive keys requests value wait_us");
    let of = |directive: &str| {
        limits.iter().find(|row| row["directive"] == directive).expect("a limit").clone()
    };
    assert!(of("limit.requests")["wait_us"].as_u64() > Some(1_000_000), "{limits:?}");
    assert_eq!(of("limit.connections")["requests"], 0);
    assert!(of("limit.connections")["condition"].as_str().is_some_and(|text| text.contains("/b")));
    assert_eq!(rows(&server, &["limits"])[0]["wait_us"], Value::Null);
    let out = done(&server, &["clear-limits", "127.0.0.1"]);
    assert_eq!(out, "1 limits have forgotten 127.0.0.1\n");
    assert_eq!(server.get("/a").status, 200);
}

#[test]
fn killed_stream_ends_and_its_sibling_goes_on() {
    let (server, _backend) = hanging();
    let mut client = Http2::connect(server.address());
    let streams = [client.request("GET", "/1", &[], true), client.request("GET", "/2", &[], true)];
    let busy = || rows(&server, &["connections", "--state", "handle"]);
    assert!(wait_until(PATIENCE, || busy().len() == 2), "{}", server.log());
    let id_of = |stream: u32| {
        let found = busy();
        let ids = found.iter().filter_map(|row| row["id"].as_str());
        ids.map(str::to_owned).find(|id| id.ends_with(&format!(".{stream}")))
    };
    let id = id_of(streams[0]).expect("the first stream");
    done(&server, &["kill", &id]);
    let answer = client.answer(streams[0]);
    assert!(answer.reset.is_some() || answer.status >= 400, "{answer:?}");
    assert!(wait_until(PATIENCE, || json(&server, "backends")[0]["in_use"] == 1));
    assert!(id_of(streams[0]).is_none() && id_of(streams[1]).is_some());
    let connection = id.rsplit_once('.').expect("an id of a stream").0;
    done(&server, &["kill", connection]);
    client.read_to_end();
    assert!(wait_until(PATIENCE, || json(&server, "backends")[0]["in_use"] == 0));
}
