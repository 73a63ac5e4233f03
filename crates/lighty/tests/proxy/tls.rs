//! Backends with `https://`: trusted authorities, the server's own certificate, and the cost of a
//! handshake.

use std::path::Path;
use std::time::Duration;

use lighty_testkit::backend::{Backend, Peer, answer};
use lighty_testkit::content::pattern;
use lighty_testkit::lighty;
use lighty_testkit::real::nginx::Nginx;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup, write_file};
use lighty_testkit::tls::Authority;
use lighty_testkit::wait_until;
use lighty_testkit::websocket::{ACCEPT, Opcode, WebSocket, frame};
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(30);

/// Server in front of backends with certificates of this authority.
fn site() -> (Authority, Setup) {
    let setup = lighty!();
    let authority = Authority::new(setup.directory());
    authority.issue("backend.pem", &["localhost", "127.0.0.1"]);
    let setup = setup.config("proxy-core.protocol = \"http\"\nproxy-core.hold-time = 0");
    (authority, setup.config("proxy-core.tls-ca-file = \"@DIR@/ca.pem\""))
}

fn behind(setup: Setup, backend: &Backend, config: &str) -> Server {
    let to = format!("proxy-core.backends = ( \"https://{}\" )", backend.name());
    setup.config(&to).config(config).start()
}

fn answers(peer: &mut Peer) {
    peer.respond_to_all("over TLS\n");
}

/// A figure of the first backend, as USR2 writes it.
fn figure(server: &Server, name: &str) -> u64 {
    let (before, wanted) = (server.log().len(), format!(".{name}: "));
    server.signal(Signal::USR2);
    let value = || {
        let log = server.log();
        let (_, behind) = log[before..].split_once(&wanted)?;
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        // The line is whole.
        (digits.len() < behind.len()).then(|| digits.parse().ok())?
    };
    assert!(wait_until(PATIENCE, || value().is_some()), "no {name} in {}", server.log());
    value().expect("a number")
}

/// nginx with TLS that reports the parameters of the connection.
fn nginx(authority: &Authority, more: &str) -> Option<(Nginx, Setup)> {
    let (_, setup) = site();
    let root = setup.directory().to_owned();
    write_file(&root.join("small.txt"), "small\n");
    write_file(&root.join("large.bin"), pattern(0, 5 << 20));
    let pem = authority.path("backend.pem");
    let pem = pem.display();
    let server = format!(
        "ssl_certificate {pem};\nssl_certificate_key {pem};\nssl_session_cache shared:a:1m;\n\
         add_header X-Tls \"$ssl_protocol $ssl_server_name $ssl_session_reused\" always;\n{more}"
    );
    let ca = authority.path("ca.pem");
    let setup = setup.config(&format!("proxy-core.tls-ca-file := \"{}\"", ca.display()));
    Some((Nginx::start_tls(&root, &server)?, setup))
}

fn get(server: &Server, target: &str) -> Response {
    let response = server.get(target);
    assert_eq!(response.status, 200, "{response:?}\n{}", server.log());
    response
}

#[test]
fn nginx_is_spoken_with_in_either_version() {
    let (authority, _kept) = site();
    for version in ["TLSv1.3", "TLSv1.2"] {
        let Some((nginx, setup)) = nginx(&authority, &format!("ssl_protocols {version};")) else {
            return;
        };
        let port = nginx.listen().address().port();
        let to = format!("proxy-core.backends = ( \"https://localhost:{port}\" )");
        let server = setup.config(&to).config("proxy-core.max-keep-alive-requests = 2").start();
        let seen: Vec<String> = (0..4)
            .map(|_| get(&server, "/small.txt").field("X-Tls").expect("a field").to_owned())
            .collect();
        // A connection carries two requests; the second connection resumes the session of the
        // first.
        let first = format!("{version} localhost .");
        let second = format!("{version} localhost r");
        assert_eq!(seen, [&first, &first, &second, &second].map(String::as_str), "{version}");
        assert!(get(&server, "/large.bin").body == pattern(0, 5 << 20), "{version}");
        let part = server.get_with("/large.bin", "Range: bytes=1000000-3000000\r\n");
        assert!(part.status == 206 && part.body == pattern(1_000_000, 2_000_001), "{version}");
        assert_eq!((figure(&server, "tls_handshakes"), figure(&server, "tls_resumed")), (3, 2));
    }
}

#[test]
fn a_connection_is_kept_and_its_end_is_said() {
    let (authority, setup) = site();
    let backend = Backend::start_tls(&authority.server("backend.pem"), answers);
    let server = behind(setup, &backend, "proxy-core.max-idle-time = 1");
    for _ in 0..5 {
        assert_eq!(get(&server, "/").text(), "over TLS\n");
    }
    assert_eq!((backend.opened(), figure(&server, "tls_handshakes")), (1, 1));
    assert!(wait_until(PATIENCE, || backend.open() == 0), "it rests no longer than a second");
    assert_eq!(get(&server, "/").text(), "over TLS\n");
    assert_eq!(backend.opened(), 2);
    assert_eq!(figure(&server, "tls_resumed"), 1);
}

#[test]
fn large_bodies_go_both_ways() {
    let (authority, setup) = site();
    let backend = Backend::start_tls(&authority.server("backend.pem"), |peer| {
        while let Some(received) = peer.request() {
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", received.body.len());
            peer.send(head);
            peer.send(received.body);
        }
    });
    for config in ["", "server.stream-request-body = 0"] {
        let server = behind(site_of(&authority), &backend, config);
        let body = pattern(7, 20 << 20);
        let length = format!("Content-Length: {}", body.len());
        let response = server.post("/", &length, &body);
        assert!(response == body, "{config}: {} bytes", response.len());
    }
    drop(setup);
}

/// Another server that trusts an authority.
fn site_of(authority: &Authority) -> Setup {
    let ca = authority.path("ca.pem");
    site().1.config(&format!("proxy-core.tls-ca-file := \"{}\"", ca.display()))
}

/// Log entry about a backend that fails the handshake.
fn refusal(server: &Server) -> String {
    let response = server.get("/");
    assert_eq!(response.status, 502, "{response:?}\n{}", server.log());
    server.await_log("TLS with the backend cannot be spoken");
    server.log()
}

#[test]
fn a_certificate_is_verified_and_what_is_wrong_is_said() {
    let (authority, _kept) = site();
    let stranger = Authority::named(&authority.path(""), "stranger.pem");
    stranger.issue("unknown.pem", &["127.0.0.1"]);
    authority.issue("other.pem", &["other.test"]);
    authority.issue_expired("old.pem", &["127.0.0.1"]);
    for (file, why) in [
        ("unknown.pem", "its certificate is signed by no authority that is trusted"),
        ("other.pem", "its certificate is not for 127.0.0.1 but for"),
        ("old.pem", "its certificate has expired"),
    ] {
        let backend = Backend::start_tls(&authority.server(file), answers);
        let server = behind(site_of(&authority), &backend, "");
        let log = refusal(&server);
        assert!(log.contains(why), "{log}");
        assert!(log.contains("is down (its certificate"), "it is as one that refuses:\n{log}");
        assert_eq!(server.get("/").status, 503);
        assert!(backend.requests().is_empty());
        let off = "proxy-core.tls-verify = \"disable\"";
        let server = behind(site_of(&authority), &backend, off);
        server.await_log("may be anyone: its certificate is not verified");
        assert_eq!(get(&server, "/").text(), "over TLS\n");
    }
    let backend = Backend::start_tls(&authority.server("other.pem"), |peer| {
        let name = peer.server_name().unwrap_or_default();
        peer.respond_to_all(&name);
    });
    let named = "proxy-core.tls-server-name = \"other.test\"";
    assert_eq!(get(&behind(site_of(&authority), &backend, named), "/").text(), "other.test");
}

#[test]
fn the_authorities_of_the_system_are_trusted_by_default() {
    let (authority, setup) = site();
    let backend = Backend::start_tls(&authority.server("backend.pem"), answers);
    let ca = authority.path("ca.pem");
    let server = behind(
        setup.env("SSL_CERT_FILE", ca.to_str().expect("UTF-8")),
        &backend,
        "proxy-core.tls-ca-file := \"\"",
    );
    assert_eq!(get(&server, "/").text(), "over TLS\n");
}

#[test]
fn a_certificate_of_its_own_is_shown_to_nginx() {
    let (authority, _kept) = site();
    authority.issue_apart("client.pem", "client.key", &["client.test"]);
    let ca = authority.path("ca.pem");
    let asks = format!(
        "ssl_client_certificate {};\nssl_verify_client on;\nadd_header X-Client $ssl_client_s_dn;",
        ca.display()
    );
    let Some((nginx, setup)) = nginx(&authority, &asks) else { return };
    let to = format!("proxy-core.backends = ( \"https://{}\" )", nginx.listen().address());
    let pair = |cert: &str, key: &str| {
        let (cert, key) = (authority.path(cert), authority.path(key));
        format!(
            "proxy-core.tls-cert = \"{}\"\nproxy-core.tls-key = \"{}\"",
            cert.display(),
            key.display()
        )
    };
    let server = setup.config(&to).config(&pair("client.pem", "client.key")).start();
    let response = get(&server, "/small.txt");
    assert!(response.field("X-Client").expect("a name").contains("CN=client.test"));
    let without = site_of(&authority).config(&to).start();
    assert_eq!(without.get("/small.txt").status, 400, "nginx says that one was needed");
    authority.issue_apart("other.pem", "other.key", &["other.test"]);
    let wrong = site_of(&authority).config(&to).config(&pair("client.pem", "other.key"));
    let (code, _, err) = wrong.run(&["-tt", "-f", "@CONF@"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("proxy-core.tls-cert: ") && err.contains("belongs to another"), "{err}");
}

#[test]
fn files_that_are_missing_keep_the_server_from_starting() {
    for (line, message) in [
        ("proxy-core.tls-ca-file := \"/nowhere.pem\"", "proxy-core.tls-ca-file: /nowhere.pem: "),
        ("proxy-core.tls-cert = \"@DIR@/ca.pem\"", "proxy-core.tls-key may name one"),
    ] {
        let (_authority, setup) = site();
        let setup = setup.config("proxy-core.backends = ( \"https://127.0.0.1:1\" )").config(line);
        let (code, _, err) = setup.run(&["-tt", "-f", "@CONF@"]);
        assert_eq!(code, 1, "{err}");
        assert!(err.contains(message), "{err}");
    }
}

#[test]
fn a_backend_in_the_clear_and_one_that_breaks_off_are_named() {
    let clear = Backend::start(|peer| {
        peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        peer.hang();
    });
    let (_authority, setup) = site();
    let log = refusal(&behind(setup, &clear, ""));
    assert!(log.contains("it speaks clear text"), "{log}");
    let cut = Backend::start(|peer| drop(peer.read_exact(5)));
    let (_authority, setup) = site();
    let log = refusal(&behind(setup, &cut, ""));
    assert!(log.contains("in the handshake") || log.contains("reset"), "{log}");
}

#[test]
fn a_body_until_close_is_whole_only_if_its_end_is_said() {
    let (authority, setup) = site();
    let backend = Backend::start_tls(&authority.server("backend.pem"), |peer| {
        let Some(received) = peer.request() else { return };
        peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
        if received.target() == "/cut" {
            peer.half_close();
        }
    });
    let server = behind(setup, &backend, "");
    assert_eq!(get(&server, "/said").text(), "hello");
    let mut client = server.connect();
    client.send("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
    let got = client.try_response(false);
    assert!(got.is_err(), "{got:?}");
    server.await_log("the end of TLS without close_notify");
}

#[test]
fn a_handshake_has_the_time_of_a_connect() {
    let silent = Backend::start(|peer| {
        peer.hang();
    });
    let (_authority, setup) = site();
    let server = behind(setup, &silent, "proxy-core.connect-timeout = \"300ms\"");
    assert_eq!(server.get("/").status, 504);
    server.await_log("300 ms, in the handshake of TLS");
}

#[test]
fn a_backend_that_cannot_be_trusted_is_passed_over() {
    let (authority, _kept) = site();
    authority.issue("other.pem", &["other.test"]);
    let wrong = Backend::start_tls(&authority.server("other.pem"), answers);
    let right = Backend::start_tls(&authority.server("backend.pem"), answers);
    let clear = Backend::answering("in the clear\n");
    let backends = format!(
        "proxy-core.backends = ( \"https://{}\", \"https://{}\", \"{}\" )",
        wrong.name(),
        right.name(),
        clear.name()
    );
    let server = site_of(&authority)
        .config(&backends)
        .config("proxy-core.check = ( \"type\" => \"http\", \"uri\" => \"/health\", \"interval\" => 1 )")
        .start();
    for _ in 0..8 {
        let text = get(&server, "/").text().to_owned();
        assert!(text == "over TLS\n" || text == "in the clear\n", "{text}");
    }
    assert!(wrong.requests().is_empty());
    let is_checked = || !right.requests_for("/health").is_empty();
    assert!(wait_until(PATIENCE, is_checked), "checks go over TLS too");
    // A check or a request may have been the first to find out.
    server.await_log("is down");
    server.await_log("its certificate is not for 127.0.0.1 but for other.test");
}

#[test]
fn a_request_is_sent_again_over_a_connection_that_rested_too_long() {
    let (authority, setup) = site();
    let backend = Backend::start_tls(&authority.server("backend.pem"), |peer| {
        let Some(_) = peer.request() else { return };
        peer.answer("once\n");
        if peer.number() > 0 {
            answers(peer);
        }
    });
    let server = behind(setup, &backend, "");
    for _ in 0..2 {
        assert_eq!(get(&server, "/").text(), "once\n");
        assert!(wait_until(PATIENCE, || backend.open() <= 1));
    }
    let response = server.post("/", "Content-Length: 2", b"hi");
    assert_eq!(response, b"over TLS\n", "{}", String::from_utf8_lossy(&response));
}

#[test]
fn a_websocket_goes_through() {
    let (authority, setup) = site();
    let backend = Backend::start_tls(&authority.server("backend.pem"), |peer| {
        let Some(_) = peer.request() else { return };
        peer.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
             Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
        ));
        // Header, mask and payload of the client's frames.
        while peer.read_exact(2 + 4 + 5).is_some() {
            peer.send(frame_of_server(b"hello"));
        }
    });
    let server = behind(setup, &backend, "proxy-core.upgrade = \"enable\"");
    let mut socket = WebSocket::open(server.connect(), "/", "");
    for _ in 0..3 {
        socket.send(Opcode::Text, b"greet");
        assert_eq!(socket.read().payload, b"hello");
    }
}

fn frame_of_server(payload: &[u8]) -> Vec<u8> {
    let masked = frame(Opcode::Text, true, b"");
    [&[masked[0], payload.len() as u8], payload].concat()
}

#[test]
fn the_header_of_the_proxy_protocol_comes_before_tls() {
    let (authority, setup) = site();
    let config = authority.server("backend.pem");
    // The line is read in the clear, then a TLS backend at another port takes over.
    let inner = Backend::start_tls(&config, answers);
    let address = inner.address();
    let outer = Backend::start(move |peer| {
        let line = peer.line();
        assert!(line.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{line:?}");
        peer.relay(address);
    });
    let server = behind(setup, &outer, "proxy-core.proxy-protocol = \"v1\"");
    assert_eq!(get(&server, "/").text(), "over TLS\n");
    assert_eq!(inner.requests().len(), 1);
}

#[test]
fn a_changed_authority_counts_for_the_next_connection() {
    let (authority, _kept) = site();
    let next = Authority::named(&authority.path(""), "next.pem");
    next.issue("next-backend.pem", &["127.0.0.1"]);
    let backend = Backend::start_tls(&authority.server("next-backend.pem"), |peer| {
        if peer.request().is_some() {
            peer.send(answer("200 OK", "Connection: close\r\n", "next\n"));
        }
    });
    let trusted = authority.path("trusted.pem");
    std::fs::copy(authority.path("ca.pem"), &trusted).expect("copied");
    let config = format!(
        "proxy-core.tls-ca-file := \"{}\"\nproxy-core.disable-time = \"1ms\"",
        trusted.display()
    );
    let server = behind(site().1, &backend, &config);
    assert_ne!(server.get("/").status, 200);
    replace(&authority.path("next.pem"), &trusted);
    assert!(wait_until(PATIENCE, || server.get("/").status == 200), "{}", server.log());
}

fn replace(from: &Path, to: &Path) {
    let aside = to.with_extension("new");
    std::fs::copy(from, &aside).expect("copied");
    std::fs::rename(&aside, to).expect("moved");
}

#[test]
fn a_host_of_proxy_server_may_speak_tls() {
    let (authority, setup) = site();
    let backend = Backend::start_tls(&authority.server("backend.pem"), answers);
    let port = backend.address().port();
    let host = format!("( \"host\" => \"https://localhost\", \"port\" => {port} )");
    let server = setup
        .config(&format!("proxy.server = ( \"/\" => ( {host} ) )"))
        .config("proxy.replace-http-host = \"enable\"")
        .start();
    assert_eq!(get(&server, "/a").text(), "over TLS\n");
    let received = backend.requests().remove(0);
    assert_eq!(received.field("Host"), Some(&*format!("localhost:{port}")));
}
