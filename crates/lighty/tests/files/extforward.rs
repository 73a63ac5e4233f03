//! The client behind trusted proxies: fields, and the PROXY protocol.

use std::time::Duration;

use lighty_testkit::backend::Backend;
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::Server;

/// Server that responds with the client's address.
fn server(lines: &str) -> Server {
    lighty!()
        .file("a", "page")
        .config(&format!(
            r#"
            accesslog.filename = "@DIR@/access.log"
            accesslog.format = "%a %u"
            {lines}
            $HTTP["remoteip"] == "192.0.2.0/24" {{ setenv.add-response-header = ( "X-Client" => "net" ) }}
            else $HTTP["remoteip"] == "127.0.0.0/8" {{ setenv.add-response-header = ( "X-Client" => "proxy" ) }}
            else $HTTP["remoteip"] == "2001:db8::/32" {{ setenv.add-response-header = ( "X-Client" => "six" ) }}
            $HTTP["scheme"] == "https" {{ setenv.set-response-header = ( "X-Scheme" => "https" ) }}
            $HTTP["host"] == "front.example" {{ server.tag = "front" }}
            "#
        ))
        .start()
}

fn client(answer: &Response) -> &str {
    answer.field("X-Client").unwrap_or("none")
}

const LOCAL: &str =
    "extforward.forwarder = ( \"127.0.0.1\" => \"trust\", \"10.0.0.0/8\" => \"trust\" )";

#[test]
fn addresses_are_believed_from_right_to_left() {
    let server = server(LOCAL);
    let ask = |value: &str| server.get_with("/a", &format!("X-Forwarded-For: {value}\r\n"));
    assert_eq!(client(&server.get("/a")), "proxy");
    assert_eq!(client(&ask("192.0.2.7")), "net");
    assert_eq!(client(&ask("127.0.0.1, 192.0.2.7, 10.1.2.3")), "net");
    assert_eq!(client(&ask("192.0.2.7, 198.51.100.1")), "none", "what a stranger says");
    assert_eq!(client(&ask("2001:db8::7")), "six");
    assert_eq!(client(&ask("10.9.9.9")), "none", "the first whom all vouch for");
    assert_eq!(client(&ask("unknown")), "none", "nobody lends the proxy's rights");
    assert_eq!(ask("spoof").status, 400);
    server.await_log("illegible");
    let logged = || {
        let text = std::fs::read_to_string(server.directory().join("access.log"));
        text.is_ok_and(|text| text.contains("192.0.2.7") && text.contains("unknown"))
    };
    assert!(lighty_testkit::wait_until(Duration::from_secs(30), logged));
}

#[test]
fn strangers_are_not_believed() {
    let server = server("extforward.forwarder = ( \"10.0.0.0/8\" => \"trust\" )");
    assert_eq!(client(&server.get_with("/a", "X-Forwarded-For: 192.0.2.7\r\n")), "proxy");
    assert_eq!(server.get_with("/a", "X-Forwarded-For: spoof\r\n").status, 200);
}

#[test]
fn forwarded_tells_more() {
    let server = server(&format!(
        "{LOCAL}\nextforward.headers = ( \"Forwarded\" )
         extforward.params = ( \"host\" => \"enable\", \"proto\" => \"enable\", \"remote_user\" => \"enable\" )"
    ));
    let ask = |value: &str| server.get_with("/a", &format!("Forwarded: {value}\r\n"));
    let answer = ask("for=192.0.2.7;proto=https;host=front.example;remote_user=kim, for=10.0.0.1");
    assert_eq!((client(&answer), answer.field("X-Scheme")), ("net", Some("https")));
    assert_eq!(answer.field("Server"), Some("front"));
    let answer = ask("for=192.0.2.7;host=forged.example, for=198.51.100.1;host=front.example");
    assert_eq!((client(&answer), answer.field("Server")), ("none", Some("front")));
    assert_eq!(client(&ask("for=_hidden")), "none");
    assert_eq!(client(&ask("proto=https")), "none");
    assert_eq!(ask("for=\"[::1").status, 400);
    let logged = || {
        let text = std::fs::read_to_string(server.directory().join("access.log"));
        text.is_ok_and(|text| text.contains("192.0.2.7 kim"))
    };
    assert!(lighty_testkit::wait_until(Duration::from_secs(30), logged));
}

const REQUEST: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_proxy_header_comes_before_requests() {
    let server = server(&format!("{LOCAL}\nextforward.hap-PROXY = \"enable\""));
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    v2.extend([192, 0, 2, 9, 10, 0, 0, 1, 0x12, 0x34, 0, 80]);
    for header in [&b"PROXY TCP4 192.0.2.9 10.0.0.1 4660 80\r\n"[..], &v2] {
        let whole = [header, REQUEST.as_bytes(), REQUEST.as_bytes()].concat();
        for piece in [1, 7, whole.len()] {
            let mut connection = server.connect();
            connection.send_in_pieces(&whole, piece);
            for _ in 0..2 {
                assert_eq!(client(&connection.response()), "net");
            }
            connection.send(REQUEST);
            assert_eq!(client(&connection.response()), "net", "for the whole connection");
        }
    }
    let mut local = server.connect();
    local.send(format!("PROXY UNKNOWN\r\n{REQUEST}"));
    assert_eq!(client(&local.response()), "proxy");
    let mut bare = server.connect();
    bare.send(REQUEST);
    bare.expect_end();
    server.await_log("does not begin with a PROXY header");
}

#[test]
fn a_proxy_header_has_a_size_a_time_and_a_sender() {
    let server =
        server(&format!("{LOCAL}\nextforward.hap-PROXY = \"enable\"\nserver.max-head-time = 1"));
    let mut long = server.connect();
    long.send(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x10\x01");
    long.expect_end();
    server.await_log("exceeds its limit");
    let mut slow = server.connect();
    slow.send("PROXY TCP4 ");
    slow.expect_end();
    server.await_log("server.max-head-time ran out");
    let strict = lighty!().file("a", "page").config("extforward.hap-PROXY = \"enable\"").start();
    let mut stranger = strict.connect();
    let _ = stranger.try_send(format!("PROXY TCP4 192.0.2.9 10.0.0.1 1 2\r\n{REQUEST}"));
    stranger.expect_end();
    strict.await_log("not among extforward.forwarder");
}

/// RFC 7239 section 5.2: the address that connected, not the client that is in the chain already.
#[test]
fn backend_is_told_of_the_proxy_and_not_of_the_client_twice() {
    let backend = Backend::answering("ok");
    let server = lighty!()
        .config(&format!(
            "extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )\n\
             extforward.headers = ( \"X-Forwarded-For\", \"Forwarded\" )\n\
             proxy.forwarded = ( \"for\" => 1 )\n\
             proxy.server = ( \"/\" => (( \"host\" => \"127.0.0.1\", \"port\" => {} )) )",
            backend.address().port()
        ))
        .start();
    for (target, field, reported) in [
        ("/a", "X-Forwarded-For: 10.0.0.1, 192.168.0.9\r\n", "10.0.0.1, 192.168.0.9, 127.0.0.1"),
        ("/b", "X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1, 127.0.0.1"),
        ("/c", "", "127.0.0.1"),
    ] {
        assert_eq!(server.get_with(target, field).status, 200);
        let seen = backend.requests_for(target);
        assert_eq!(seen[0].field("X-Forwarded-For"), Some(reported), "{target}");
        assert_eq!(seen[0].field("Forwarded"), Some("for=127.0.0.1"), "{target}");
    }
}
