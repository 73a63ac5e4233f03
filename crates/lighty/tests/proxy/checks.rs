//! Active checks: they begin with the server, not with the first request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lighty_testkit::lighty;
use lighty_testkit::origin::Origin;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;

const PATIENCE: Duration = Duration::from_secs(20);

fn start(protocol: &str, check: &str, backends: &[SocketAddr]) -> Server {
    let list: Vec<String> = backends.iter().map(|address| format!("\"{address}\"")).collect();
    lighty!()
        .config(&format!("proxy-core.protocol = \"{protocol}\""))
        .config(&format!("proxy-core.backends = ( {} )", list.join(", ")))
        .config(&format!(
            "proxy-core.check = ( {check}, \"interval\" => \"100ms\", \"timeout\" => \"1s\" )"
        ))
        .start()
}

fn count(log: &str, message: &str) -> usize {
    log.matches(message).count()
}

#[test]
fn backend_that_fails_its_check_gets_no_request_until_it_recovers() {
    let (ill, well) = (Origin::start("ill"), Origin::start("well"));
    ill.set_status(500);
    let check = "\"type\" => \"http\", \"uri\" => \"/health\", \"rise\" => 2, \"fall\" => 3";
    let server = start("http", check, &[ill.address(), well.address()]);
    server.await_log(&format!("backend {} is down, its check says: status 500", ill.address()));
    assert!(ill.requests() >= 3, "it fell after {}", ill.requests());
    for _ in 0..6 {
        assert_eq!(server.get("/").text(), "well");
    }
    ill.set_status(200);
    server.await_log(&format!("backend {} is up again", ill.address()));
    assert!(wait_until(PATIENCE, || server.get("/").text() == "ill"));
    let log = server.log();
    assert_eq!((count(&log, "is down"), count(&log, "is up again")), (1, 1), "{log}");
    let lines = [
        format!("[error] proxy-core.backends: backend {} is down, its check", ill.address()),
        format!("[notice] proxy-core.backends: backend {} is up again, its", ill.address()),
    ];
    assert!(lines.iter().all(|line| log.contains(line)), "{lines:?} in {log}");
}

#[test]
fn with_every_address_out_requests_are_refused_at_once() {
    let only = Origin::start("only");
    let address = only.address();
    drop(only);
    let server = start("http", "\"type\" => \"tcp\", \"rise\" => 1, \"fall\" => 1", &[address]);
    server.await_log("is down, its check says: connect:");
    assert_eq!(server.get("/").status, 503);
    let _again = Origin::start_at(address, "again");
    server.await_log("is up again");
    assert_eq!(server.get("/").text(), "again");
}

#[test]
fn an_upstream_of_a_condition_is_checked_too() {
    let only = Origin::start("only");
    only.set_status(404);
    let server = lighty!()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!(
            "$HTTP[\"host\"] == \"app\" {{\n  proxy-core.backends = ( \"{}\" )\n  \
             proxy-core.check = ( \"type\" => \"http\", \"interval\" => \"100ms\" )\n}}",
            only.address()
        ))
        .start();
    server.await_log("is down, its check says: status 404");
}

#[test]
fn backends_that_speak_http2_are_asked_over_it() {
    let origin = Origin::start("origin");
    origin.set_status(500);
    let middle = lighty!().in_front_of(&origin.address().to_string()).start();
    let check = "\"type\" => \"http\", \"uri\" => \"/health\", \"rise\" => 1, \"fall\" => 1";
    let server = start("h2", check, &[middle.address()]);
    server.await_log("is down, its check says: status 500");
    assert_eq!(server.get("/").status, 503);
    origin.set_status(200);
    server.await_log("is up again");
    assert_eq!(server.get("/").text(), "origin");
    // An HTTP/1.1 server is not healthy for HTTP/2.
    let wrong = start("h2", check, &[origin.address()]);
    wrong.await_log("is down, its check says:");
}

/// Backend that reads one check on each connection and sends one reply, or none while it is dumb.
struct Scripted {
    address: SocketAddr,
    dumb: Arc<AtomicBool>,
}

impl Scripted {
    fn start(response: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let dumb = Arc::new(AtomicBool::new(true));
        let is_dumb = Arc::clone(&dumb);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let heard = stream.read(&mut [0; 1024]);
                if heard.is_ok_and(|count| count > 0) && !is_dumb.load(Ordering::SeqCst) {
                    let _ = stream.write_all(response);
                }
            }
        });
        Self { address, dumb }
    }
}

#[test]
fn fastcgi_and_ajp_backends_are_asked_in_their_own_words() {
    // FCGI_GET_VALUES_RESULT without a value; CPong.
    let values = b"\x01\x0a\0\0\0\0\0\0";
    let pong = b"AB\0\x01\x09";
    for (protocol, response) in [("fastcgi", &values[..]), ("ajp13", &pong[..])] {
        let backend = Scripted::start(response);
        let check = format!("\"type\" => \"{protocol}\", \"rise\" => 1, \"fall\" => 2");
        let server = start(protocol, &check, &[backend.address]);
        server.await_log("is down, its check says: closed before it answered");
        assert_eq!(server.get("/").status, 503, "{protocol}");
        backend.dumb.store(false, Ordering::SeqCst);
        server.await_log("is up again");
    }
}
