//! Tunnels whose route a reload removes or changes (`server.tunnel-reload`).

use std::net::SocketAddr;
use std::time::Duration;

use lighty_testkit::client::{Client, ConnectionEnd};
use lighty_testkit::http2::Http2;
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::websocket::{Opcode, WebSocket};

use super::site::{Echo, ReloadSite};

const CLOSE: &str = "server.tunnel-reload = \"close-if-route-gone\"\n";

/// A route of upgrades from `/p` to these backends.
fn route(backends: &[SocketAddr], more: &str) -> String {
    let listed: Vec<_> = backends.iter().map(|address| format!("\"{address}\"")).collect();
    format!(
        "$HTTP[\"url\"] =^ \"/p\" {{ proxy-core.protocol = \"http\"\n\
         proxy-core.upgrade = \"enable\"\n{more}\nproxy-core.backends = ( {} ) }}\n",
        listed.join(", ")
    )
}

fn upgraded(site: &ReloadSite) -> Client {
    let mut client = site.server.connect();
    client.send("GET /p HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.response_head().status, 101);
    client
}

fn assert_alive(tunnel: &mut Client) {
    tunnel.send("still here");
    assert_eq!(tunnel.read_exact(10).expect("the tunnel is open"), b"still here");
}

#[test]
fn tunnel_outlives_its_route_by_default() {
    let (one, other) = (Echo::start(), Echo::start());
    let site = ReloadSite::start(1, &route(&[one.address], ""), &[]);
    let mut tunnel = upgraded(&site);
    site.change(&route(&[other.address], ""));
    assert_alive(&mut tunnel);
    site.change("");
    assert_alive(&mut tunnel);
}

#[test]
fn tunnel_ends_in_order_with_its_route() {
    let (one, other) = (Echo::start(), Echo::start());
    let both = [one.address, other.address];
    let site = ReloadSite::start(2, &(CLOSE.to_owned() + &route(&both[..1], "")), &[]);
    let mut tunnel = upgraded(&site);
    for kept in [
        route(&both, "proxy-core.balancer = \"round-robin\""),
        route(&both[..1], "proxy-core.tunnel-timeout = 100\nproxy-core.max-pool-size = 5"),
        format!("server.tag = \"x\"\n{}", route(&both[..1], "")),
    ] {
        site.change(&(CLOSE.to_owned() + &kept));
        assert_alive(&mut tunnel);
    }
    site.change(&(CLOSE.to_owned() + &route(&both[1..], "")));
    assert_eq!(tunnel.expect_end(), ConnectionEnd::Closed);
    site.server.await_log("a reload has removed its route");
    let mut next = upgraded(&site);
    assert_alive(&mut next);
    // The backend stays, and the request's URL does not lead to it any more.
    let moved = route(&both[1..], "").replace("\"/p\"", "\"/other\"");
    site.change(&(CLOSE.to_owned() + &moved));
    assert_eq!(next.expect_end(), ConnectionEnd::Closed);
}

#[test]
fn stream_of_http2_ends_in_order_with_its_route() {
    let backend = Echo::start();
    let lines = CLOSE.to_owned() + &route(&[backend.address], "");
    let site = ReloadSite::start(1, &lines, &[("a", b"a")]);
    let mut client = Http2::connect(site.server.address());
    let mut fields = client.request_fields("CONNECT", "/p");
    fields.insert(1, (":protocol".to_owned(), "echo".to_owned()));
    let stream = client.open(&fields, false);
    assert_eq!(client.head(stream).status, 200, "{}", site.server.log());
    site.change(&format!("{lines}server.tag = \"x\"\n"));
    client.send_data(stream, b"echo", false);
    assert_eq!(client.read_until(stream, |got| got.body.len() >= 4).body, b"echo");
    site.change(CLOSE);
    let end = client.answer(stream);
    assert_eq!((end.has_ended, end.reset), (true, None));
    assert_eq!(client.get("/a").text(), "a", "other streams go on");
}

#[test]
fn websocket_client_gets_a_close_frame_when_its_route_ends() {
    let backend = Echo::start();
    let lines = format!(
        "wstunnel.server = ( \"/ws\" => (( \"host\" => \"{}\", \"port\" => {} )) )\n",
        backend.address.ip(),
        backend.address.port()
    );
    let site = ReloadSite::start(1, &(CLOSE.to_owned() + &lines), &[]);
    let mut socket = WebSocket::open(site.server.connect(), "/ws", "");
    site.change(&format!("{CLOSE}server.tag = \"x\"\n{lines}"));
    socket.send(Opcode::Text, b"GET /\r\n\r\n");
    assert!(socket.read().payload.starts_with(b"HTTP/1.1 200"), "the backend's response");
    site.change(CLOSE);
    let close = socket.read();
    assert_eq!(close.close_code(), Some(1001), "{:#x}", close.first);
    socket.send(Opcode::Close, &1001_u16.to_be_bytes());
    assert_eq!(socket.expect_end(), ConnectionEnd::Closed);
}

#[test]
fn time_ends_tunnels_of_changed_routes_alone() {
    let (one, other) = (Echo::start(), Echo::start());
    let both = [one.address, other.address];
    let limit = "server.tunnel-reload = 3\n".to_owned();
    let site = ReloadSite::start(1, &(limit.clone() + &route(&both[..1], "")), &[]);
    let mut tunnel = upgraded(&site);
    site.change(&format!("{limit}server.tag = \"x\"\n{}", route(&both[..1], "")));
    let watch = Stopwatch::start(&site.server);
    site.change(&(limit + &route(&both, "")));
    assert_alive(&mut tunnel);
    assert_eq!(tunnel.expect_end(), ConnectionEnd::Closed);
    assert!(watch.elapsed() >= Duration::from_secs(2), "{:?}", watch.elapsed());
    site.server.await_log("a reload has changed its upstream");
}

#[test]
fn raw_connection_ends_with_the_backend_of_its_listener() {
    let (one, other) = (Echo::start(), Echo::start());
    let lines = |backend: SocketAddr, more: &str| {
        let (host, port) = (backend.ip(), backend.port());
        format!(
            "{CLOSE}{more}$SERVER[\"socket\"] == \"127.0.0.2:0\" {{ sockproxy.server = ( \"\" => \
             (( \"host\" => \"{host}\", \"port\" => {port} )) ) }}\n"
        )
    };
    let site = ReloadSite::start(1, &lines(one.address, ""), &[]);
    let all = site.server.listening();
    let raw = all.into_iter().find(|address| address.ip().to_string() == "127.0.0.2");
    let mut tunnel = Client::tcp(raw.expect("it listens"));
    let echo = |tunnel: &mut Client| {
        tunnel.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(tunnel.response().text(), "proxied");
    };
    echo(&mut tunnel);
    site.change(&lines(one.address, "server.tag = \"x\"\n"));
    echo(&mut tunnel);
    site.change(&lines(other.address, ""));
    assert_eq!(tunnel.expect_end(), ConnectionEnd::Closed);
}
