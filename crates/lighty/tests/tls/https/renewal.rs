//! State beyond a handshake: sessions, and certificates that are renewed.

use std::sync::Arc;
use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::tls::{self, Authority, TlsClient};
use lighty_testkit::wait_until;
use rustix::process::Signal;
use rustls::{ClientConfig, HandshakeKind};

use super::{get, site, start};

const PATIENCE: Duration = Duration::from_secs(30);

/// Returns true if the next connection resumes a session; leaves a session for later connections.
fn resumes(config: &Arc<ClientConfig>, server: &Server, name: &str) -> bool {
    let stream = tls::connect(config, server.address(), name).expect("a handshake");
    let is_resumed = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
    // The tickets of TLS 1.3 come with the first response.
    assert_eq!(get(&mut Client::over_tls(stream)), "hello\n");
    is_resumed
}

#[test]
fn sessions_go_on_at_any_worker() {
    let (authority, server) = start("server.max-worker = 3");
    for client in [authority.client(), authority.client().with_tls12()] {
        let config = client.config();
        assert!(!resumes(&config, &server, "a.test"));
        assert!((0..20).all(|_| resumes(&config, &server, "a.test")));
        assert!(!resumes(&config, &server, "localhost"), "another name");
    }
}

#[test]
fn sessions_go_on_at_another_process_with_the_same_keys() {
    let (authority, setup) = site("ssl.stek-file = \"@DIR@/stek\"");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("after 1970").as_secs() as u32;
    let numbers = [0, now - 10, now + 3600].map(u32::to_ne_bytes).concat();
    let key = [numbers, vec![3; 16], vec![7; 64]].concat();
    write_file(&setup.directory().join("stek"), &key);
    let one = setup.start();
    let directory = authority.path("");
    let directory = directory.to_str().expect("UTF-8").trim_end_matches('/');
    let setup = lighty_testkit::lighty!().file("a.txt", "hello\n").config(&format!(
        "ssl.engine = \"enable\"\nssl.pemfile = \"{directory}/a.pem\"\n\
         ssl.stek-file = \"{directory}/stek\""
    ));
    let other = setup.start();
    let config = authority.client().config();
    assert!(!resumes(&config, &one, "a.test"));
    assert!(resumes(&config, &other, "a.test"));
}

#[test]
fn tickets_can_be_switched_off() {
    let (authority, server) =
        start("ssl.openssl.ssl-conf-cmd = ( \"Options\" => \"-SessionTicket\" )");
    let config = authority.client().config();
    assert!((0..3).all(|_| !resumes(&config, &server, "a.test")));
}

/// The certificate that new connections are shown.
fn shown(client: &TlsClient, server: &Server) -> Vec<u8> {
    let stream = tls::connect(&client.config(), server.address(), "a.test").expect("a handshake");
    stream.conn.peer_certificates().expect("a certificate")[0].to_vec()
}

#[test]
fn a_renewed_certificate_is_shown_without_a_reload() {
    let (authority, server) = start("");
    let client = authority.client();
    let first = shown(&client, &server);
    let mut kept = client.connect(server.address(), "a.test");
    authority.issue("a.pem", &["a.test", "localhost"]);
    assert!(wait_until(PATIENCE, || shown(&client, &server) != first));
    let second = shown(&client, &server);
    server.await_log("a.pem: the certificate was loaded again");
    // A tool has not finished, or has made a mistake: nothing changes.
    write_file(&authority.path("a.pem"), "-----BEGIN CERTIFICATE-----\n");
    server.await_log("the certificate loaded before stays");
    assert_eq!(shown(&client, &server), second);
    assert_eq!(get(&mut kept), "hello\n");
}

#[test]
fn a_reload_takes_what_fits_and_refuses_the_rest() {
    let (authority, server) = start("");
    let client = authority.client();
    let first = shown(&client, &server);
    let mut kept = client.connect(server.address(), "a.test");
    authority.issue("b.pem", &["a.test"]);
    let path = server.directory().join("lighty.conf");
    let config = std::fs::read_to_string(&path).expect("a configuration");
    write_file(&path, config.replace("/a.pem", "/b.pem"));
    server.signal(Signal::USR1);
    server.await_log("reloaded: generation 1");
    let second = shown(&client, &server);
    assert_ne!(second, first);
    write_file(&path, config.replace("/a.pem", "/none.pem"));
    server.signal(Signal::USR1);
    server.await_log("none.pem");
    server.await_log("reload refused");
    assert_eq!(shown(&client, &server), second);
    let no_keys = authority.path("b.pem");
    write_file(&path, format!("{config}ssl.stek-file = \"{}\"\n", no_keys.display()));
    server.signal(Signal::USR1);
    server.await_log("a key file has");
    // Without TLS, new connections are in clear text; existing ones go on.
    write_file(&path, config.replace("ssl.engine = \"enable\"", ""));
    server.signal(Signal::USR1);
    server.await_log("reloaded: generation 2");
    assert_eq!(server.get("/a.txt").status, 200);
    assert_eq!(get(&mut kept), "hello\n");
}

#[test]
fn keys_of_tickets_may_come_later() {
    let (authority, setup) = site("ssl.stek-file = \"@DIR@/stek\"");
    let (code, out, output) = setup.run(&["-tt", "-f", "@CONF@"]);
    assert!(code == 0 && (out + &output).contains("ssl.stek-file"), "a warning");
    let server = setup.start();
    server.await_log("it is looked for again");
    get(&mut authority.client().connect(server.address(), "a.test"));
}

#[test]
fn reloads_lose_no_request() {
    let (authority, server) = start("server.max-worker = 2");
    let (address, client) = (server.address(), authority.client());
    let asking = std::thread::spawn(move || {
        let mut kept = client.connect(address, "a.test");
        for _ in 0..150 {
            assert_eq!(get(&mut kept), "hello\n");
            assert_eq!(get(&mut client.connect(address, "a.test")), "hello\n");
        }
    });
    for generation in 1..=5 {
        server.signal(Signal::USR1);
        server.await_log(&format!("reloaded: generation {generation}"));
    }
    asking.join().expect("every request");
}

#[test]
fn a_chain_is_completed_from_the_authorities() {
    let (root, setup) = site("ssl.ca-file = \"@DIR@/chain.pem\"");
    let between = root.below("between.pem");
    between.issue("a.pem", &["a.test"]);
    let text = |file: &str| std::fs::read_to_string(root.path(file)).expect("a certificate");
    write_file(&root.path("chain.pem"), text("ca.pem") + &text("between.pem"));
    let server = setup.start();
    let stream = tls::connect(&root.client().config(), server.address(), "a.test");
    let stream = stream.expect("a handshake");
    // Its own and the intermediate one: clients that trust the root have the root.
    assert_eq!(stream.conn.peer_certificates().expect("a chain").len(), 2);
    let other = Authority::named(&root.path(""), "other.pem");
    assert!(other.client().try_connect(server.address(), "a.test").is_err());
}

#[test]
fn a_certificate_that_has_expired_is_named() {
    let (authority, setup) = site("");
    authority.issue_expired("a.pem", &["a.test"]);
    let server = setup.start();
    server.await_log("a.pem: the certificate has expired");
    authority.issue("a.pem", &["a.test"]);
    server.await_log("a.pem: the certificate was loaded again");
    get(&mut authority.client().connect(server.address(), "a.test"));
}
