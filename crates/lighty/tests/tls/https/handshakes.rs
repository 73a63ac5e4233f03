//! Handshakes that fail, are late or too many.

use std::io::{Read as _, Write as _};

use lighty_testkit::client::{Client, ConnectionEnd};
use lighty_testkit::server::Server;
use lighty_testkit::tls;
use rustix::process::Signal;

use super::{curl, get, start};

#[test]
fn a_failure_says_what_was_offered_and_wanted_once() {
    let (authority, server) =
        start("ssl.openssl.ssl-conf-cmd = ( \"MinProtocol\" => \"TLSv1.3\" )");
    for _ in 0..3 {
        let client = authority.client().with_alpn(&["foo"]);
        assert!(client.try_connect(server.address(), "a.test").is_err());
        assert!(authority.client().with_tls12().try_connect(server.address(), "a.test").is_err());
    }
    server
        .await_log("the client offers \"foo\"; the server has \"h2\", \"http/1.1\", \"http/1.0\"");
    server.await_log(
        "no version of TLS in common; the client offers TLS 1.2; the server speaks TLS 1.3",
    );
    assert_eq!(server.log().matches("TLS handshake failed").count(), 2, "{}", server.log());
    get(&mut authority.client().connect(server.address(), "a.test"));
}

#[test]
fn a_client_without_anything_in_common_gets_the_alert_for_it() {
    let (authority, server) = start("");
    for offer in [
        &["--tls-max", "1.2", "--ciphers", "ECDHE-RSA-AES128-GCM-SHA256"][..],
        &["--tls-max", "1.2", "--ciphers", "AES128-SHA"],
        &["--curves", "X448"],
    ] {
        let output = curl(&authority, &server, &[offer, &["https://a.test:@PORT@/a.txt"]].concat());
        assert!(output.contains("alert handshake failure"), "{offer:?}: {output}");
    }
    server.await_log("no cipher suite in common; the client offers");
}

#[test]
fn a_handshake_has_its_time() {
    let (_, server) = start("server.max-handshake-time = 1\ndebug.log-ssl-noise = \"enable\"");
    let mut client = server.connect();
    client.send(b"\x16\x03\x01\x02\x00\x01");
    client.expect_end();
    server.await_log("(server.max-handshake-time)");
}

#[test]
fn noise_is_logged_where_it_is_wanted() {
    for (config, is_logged) in [("", false), ("debug.log-ssl-noise = \"enable\"", true)] {
        let (authority, server) = start(config);
        let mut client = server.connect();
        client.send(b"\x00\x01\x02\x03");
        client.half_close_quietly();
        assert_ne!(client.expect_end(), ConnectionEnd::Torn);
        get(&mut authority.client().connect(server.address(), "a.test"));
        if is_logged {
            server.await_log("the client does not speak TLS");
        }
        assert_eq!(server.log().contains("does not speak TLS"), is_logged);
    }
}

#[test]
fn a_flood_is_turned_away_and_the_limit_is_named() {
    let (authority, server) = start("server.max-handshake-backlog = 4");
    let config = authority.client().config();
    // All ClientHellos have arrived before the server handles any.
    server.signal(Signal::STOP);
    let hello = |_| tls::say_hello(&config, server.address(), "a.test").expect("a connection");
    let waiting: Vec<_> = (0..64).map(hello).collect();
    server.signal(Signal::CONT);
    let shaken = waiting.into_iter().map(tls::shake_hands);
    let (served, refused): (Vec<_>, Vec<_>) = shaken.partition(Result::is_ok);
    assert!(served.len() >= 4 && !refused.is_empty(), "{} {}", served.len(), refused.len());
    for stream in served.into_iter().flatten() {
        assert_eq!(get(&mut Client::over_tls(stream)), "hello\n");
    }
    server.await_log("server.max-handshake-backlog");
    get(&mut authority.client().connect(server.address(), "a.test"));
}

#[test]
fn other_requests_are_served_between_handshakes() {
    let (authority, server) = start("");
    let mut client = authority.client().connect(server.address(), "a.test");
    let config = authority.client().config();
    let hello = |_| tls::say_hello(&config, server.address(), "a.test").expect("a connection");
    let waiting: Vec<_> = (0..100).map(hello).collect();
    for _ in 0..20 {
        assert_eq!(get(&mut client), "hello\n");
    }
    for stream in waiting {
        let stream = tls::shake_hands(stream).expect("a handshake");
        assert_eq!(get(&mut Client::over_tls(stream)), "hello\n");
    }
}

#[test]
fn a_hello_comes_in_pieces() {
    let (authority, server) = start("");
    let config = authority.client().config();
    let stream = tls::say_hello_in_pieces(&config, server.address(), "a.test", 7);
    let stream = tls::shake_hands(stream.expect("a connection")).expect("a handshake");
    assert_eq!(get(&mut Client::over_tls(stream)), "hello\n");
}

/// A hello of this version with these extensions, in one record.
fn hello(version: u16, extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let counted = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
    let extensions = extensions.iter();
    let extensions: Vec<u8> = extensions
        .flat_map(|(kind, body)| [kind.to_be_bytes().to_vec(), counted(body)].concat())
        .collect();
    let mut body = version.to_be_bytes().to_vec();
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    if !extensions.is_empty() {
        body.extend(counted(&extensions));
    }
    let message = [&[1, 0], &*counted(&body)].concat();
    [&[22, 3, 1], &*counted(&message)].concat()
}

fn server_name(name: &[u8]) -> Vec<u8> {
    let size = name.len() as u8;
    [&[0, size + 3, 0, 0, size], name].concat()
}

/// Alert in response to a ClientHello.
fn alert(server: &Server, hello: &[u8]) -> [u8; 7] {
    let mut client = server.connect();
    client.send(hello);
    let alert = client.read_exact(7).expect("an alert");
    alert.try_into().expect("seven bytes")
}

#[test]
fn records_that_begin_no_handshake_are_answered_with_alerts() {
    let (_, server) = start("");
    const UNEXPECTED_MESSAGE: u8 = 10;
    const RECORD_OVERFLOW: u8 = 22;
    const DECODE_ERROR: u8 = 50;
    let whole = hello(0x0303, &[]);
    let split = |middle: &[u8]| {
        let body = &whole[5..];
        let (one, two) = body.split_at(20);
        let record = |part: &[u8]| [&[22, 3, 1, 0, part.len() as u8], part].concat();
        [record(one), middle.to_vec(), record(two)].concat()
    };
    for (what, bytes, due) in [
        ("application data", vec![23, 3, 3, 0, 1, 0], UNEXPECTED_MESSAGE),
        ("an alert", vec![21, 3, 3, 0, 2, 1, 90], UNEXPECTED_MESSAGE),
        ("a change of keys", vec![20, 3, 3, 0, 1, 1], UNEXPECTED_MESSAGE),
        ("a heartbeat", vec![24, 3, 3, 0, 1, 0], UNEXPECTED_MESSAGE),
        ("data within a hello", split(&[23, 3, 3, 0, 1, 0]), UNEXPECTED_MESSAGE),
        ("Finished", [&[22, 3, 1, 0, 16, 20, 0, 0, 12][..], &[1; 12]].concat(), UNEXPECTED_MESSAGE),
        ("a message of 16 MB", vec![22, 3, 1, 0, 4, 1, 255, 255, 255], DECODE_ERROR),
        ("an empty record", vec![22, 3, 1, 0, 0], UNEXPECTED_MESSAGE),
        ("a long record", [&[22, 3, 1, 0x48, 1][..], &[1; 18_433]].concat(), RECORD_OVERFLOW),
    ] {
        assert_eq!(alert(&server, &bytes)[5..], [2, due], "{what}");
    }
}

#[test]
fn client_of_tls12_without_a_certificate_gets_an_alert_that_it_knows() {
    let (authority, server) = start(
        "ssl.verifyclient.activate = \"enable\"\nssl.verifyclient.ca-file = \"@DIR@/ca.pem\"",
    );
    for (client, due) in [
        (authority.client().with_tls12(), "HandshakeFailure"),
        (authority.client(), "CertificateRequired"),
    ] {
        let connected = client.try_connect(server.address(), "a.test");
        let output = connected.and_then(|mut client| {
            client.try_send("GET / HTTP/1.0\r\n\r\n")?;
            client.try_response(false).map_err(std::io::Error::other)
        });
        let output = output.expect_err("no connection").to_string();
        assert!(output.contains(due), "{output}");
    }
}

#[test]
fn client_that_closes_within_a_handshake_is_not_waited_for() {
    let (authority, server) = start("");
    let config = authority.client().with_tls12().config();
    let mut stream = tls::say_hello(&config, server.address(), "a.test").expect("a connection");
    let mut record = [0; 5];
    stream.sock.read_exact(&mut record).expect("a reply");
    let begun = std::time::Instant::now();
    stream.sock.write_all(&[21, 3, 3, 0, 2, 1, 0]).expect("sent");
    // The server's flight, and the end.
    let _ = stream.sock.read_to_end(&mut Vec::new());
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn clients_of_old_versions_are_told_so() {
    let (_, server) = start("");
    for minor in [1, 2] {
        let output = alert(&server, &hello(0x0300 | minor, &[]));
        assert_eq!(output, [21, 3, minor as u8, 0, 2, 2, 70]);
    }
    server.await_log(
        "no version of TLS in common; the client offers TLS 1.0; the server speaks none before \
         TLS 1.2",
    );
    // TLS 1.2 without signature_algorithms means SHA-1.
    assert_eq!(alert(&server, &hello(0x0303, &[]))[6], 40);
    server.await_log("the client takes no signature");
}

#[test]
fn a_name_that_is_none_ends_the_handshake_and_is_said() {
    let (_, server) = start("");
    for name in ["a.test:443", "*.test", "b\u{fc}cher.test", "-", "a..test"] {
        let output = alert(&server, &hello(0x0303, &[(0, &server_name(name.as_bytes()))]));
        assert_eq!(output[6], 47, "{name}");
    }
    server.await_log("by what is no host name (SNI); it asks for \"a.test:443\"");
    assert_eq!(server.log().matches("TLS handshake failed").count(), 1, "{}", server.log());
    for address in ["127.0.0.1", "::1"] {
        let output = alert(&server, &hello(0x0303, &[(0, &server_name(address.as_bytes()))]));
        assert_eq!(output[6], 40, "{address} is no name: the handshake goes on to the next fault");
    }
}

#[test]
fn one_client_does_not_hide_the_causes_of_others() {
    let (authority, server) = start("server.max-worker = 1");
    for kind in 0x1000..0x1050 {
        alert(&server, &hello(0x0303, &[(kind, &[]), (kind, &[])]));
    }
    let client = authority.client().with_alpn(&["foo"]);
    assert!(client.try_connect(server.address(), "a.test").is_err());
    server.await_log("the client offers \"foo\"");
    assert_eq!(server.log().matches("TLS handshake failed").count(), 2, "{}", server.log());
}

#[test]
fn http2_is_spoken_only_where_it_was_chosen() {
    let (authority, server) = start("");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for chosen in [&[][..], &["http/1.1"]] {
        let client = authority.client().with_alpn(chosen);
        let mut client = client.connect(server.address(), "a.test");
        client.send(preface);
        assert_eq!(client.response().status, 505, "{chosen:?}");
    }
    let client = authority.client().with_alpn(&["h2"]).connect(server.address(), "a.test");
    let mut client = lighty_testkit::http2::Http2::over(client, "a.test", &[]);
    assert_eq!(client.get("/a.txt").status, 200);
}
