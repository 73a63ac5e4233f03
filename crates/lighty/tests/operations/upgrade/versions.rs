//! A new process that another version of the server has started, as this test.

use std::io::IoSlice;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, Command, Stdio};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::json;

use super::*;

/// A server that this test has started in its own place.
struct Heir {
    process: Child,
    link: UnixStream,
    address: SocketAddr,
    setup: Setup,
    listener: TcpListener,
}

impl Heir {
    /// Starts it, hands a listener over, and waits until it is ready.
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let setup = lighty!().without_listener().file("a", "x").config(&format!(
            "server.bind = \"127.0.0.1\"\nserver.port = {}\nserver.pid-file = \"@DIR@/lighty.pid\"\n\
             status.metrics-url = \"/metrics\"\n\
             $HTTP[\"url\"] == \"/shop\" {{ status.route = \"shop\" }}",
            address.port()
        ));
        let config = setup.write_config();
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let process = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
            .args(["-D", "-f"])
            .arg(config)
            .env("LIGHTY_UPGRADE_OF", std::process::id().to_string())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .expect("started");
        let mut heir = Self { process, link: ours, address, setup, listener };
        let handover = json!({
            "version": 1,
            "listeners": [{ "name": "a" }],
            "of_the_future": true,
        });
        let stderr = std::io::stderr();
        let listener = heir.listener.try_clone().expect("a descriptor");
        heir.send(&handover.to_string(), &[stderr.as_fd(), listener.as_fd()]);
        let ready = heir.receive();
        assert_eq!(ready["ready"]["takes_departure"], true, "{ready}");
        heir
    }

    fn send(&mut self, text: &str, descriptors: &[BorrowedFd<'_>]) {
        let length = |number: usize| u32::try_from(number).expect("a length").to_be_bytes();
        self.link.write_all(&length(text.len())).expect("sent");
        self.link.write_all(&length(descriptors.len())).expect("sent");
        if !descriptors.is_empty() {
            let mut space = [MaybeUninit::uninit(); 128];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
            let byte = [IoSlice::new(b"d")];
            sendmsg(&self.link, &byte, &mut control, SendFlags::empty()).expect("sent");
        }
        self.link.write_all(text.as_bytes()).expect("sent");
    }

    fn receive(&mut self) -> Value {
        let mut head = [0; 8];
        self.link.read_exact(&mut head).expect("a frame");
        let [a, b, c, d, ..] = head;
        let mut text = vec![0; u32::from_be_bytes([a, b, c, d]) as usize];
        self.link.read_exact(&mut text).expect("its text");
        serde_json::from_slice(&text).expect("JSON")
    }

    fn ask(&self, path: &str) -> Value {
        let socket = self.setup.directory().join("lighty.pid.ctl");
        call(&socket, "GET", path, &Value::Null).expect("a response")
    }

    fn get(&self, target: &str) -> (u16, String) {
        let mut client = Client::tcp(self.address);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let response = client.response();
        (response.status, response.text().to_owned())
    }

    /// The value of the counter of requests.
    fn requests(&self) -> f64 {
        let (_, text) = self.get("/metrics");
        let value = text.lines().find_map(|line| line.strip_prefix("lighty_requests_total "));
        value.and_then(|value| value.parse().ok()).expect("a number")
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn process_of_an_earlier_version_is_asked_for_nothing() {
    let mut heir = Heir::start();
    heir.send("\"go\"", &[]);
    assert_eq!(heir.receive(), "serving");
    assert_eq!(heir.get("/a"), (200, "x".to_owned()));
    assert_eq!(heir.requests(), 1.0);
    heir.link.set_read_timeout(Some(Duration::from_millis(1500))).expect("a time limit");
    assert!(heir.link.read(&mut [0]).is_err(), "no question");
}

#[test]
fn malformed_departure_costs_no_other_state() {
    let mut heir = Heir::start();
    let far_s = 9_999_999_999_u64;
    let departure = json!({ "departure": {
        "counts": { "board": { "requests": 5, "figures": [["server.requests", 5]] } },
        "bans": [
            ["192.0.2.9", { "until_s": far_s, "cause": "logins", "extent": "requests" }],
            ["192.0.2.8", { "until_s": 1, "cause": "operator", "extent": "connections" }],
        ],
        "rates": "all",
        "log_level": { "level": "loud", "until_s": far_s },
        "log_levels": [
            { "module": "nothing", "level": "debug", "until_s": far_s },
            { "module": "proxy", "level": "debug", "until_s": 1 },
            { "module": "proxy", "level": "error", "until_s": far_s },
        ],
        "traces": 7,
        "closed_routes": [["shop", null]],
        "of_the_future": [1],
    }});
    heir.send("?", &[]);
    heir.send(&departure.to_string(), &[]);
    heir.send("\"go\"", &[]);
    assert_eq!(heir.receive(), "serving");
    let bans = heir.ask("/bans");
    assert_eq!((bans.as_array().map(Vec::len), &bans[0]["client"]), (Some(1), &"192.0.2.9".into()));
    let status = heir.ask("/status");
    assert_eq!(
        (&status["log_level"], &status["closed_routes"]),
        (&"notice".into(), &json!(["shop"]))
    );
    let levels = &status["log_levels"];
    assert_eq!((levels.as_array().map(Vec::len), &levels[0]["level"]), (Some(1), &"error".into()));
    assert_eq!(heir.get("/shop").0, 503);

    // Counters follow replies, and malformed ones leave the last.
    for (reply, expected) in [
        (r#"{"counted":{"board":{"figures":[["server.requests",100]]}}}"#, 100.0),
        (r#"{"counted":{"board":{"figures":[["server.requests",-1]]}}}"#, 100.0),
        (r#"{"counted":null}"#, 100.0),
        ("?", 100.0),
        (r#""go""#, 100.0),
        (r#"{"counted":{"board":{"figures":[["server.requests",200]]}}}"#, 200.0),
    ] {
        let question = heir.receive();
        assert_eq!(question, "count");
        heir.send(reply, &[]);
        // The reader's own question gets no reply in time, so that the last counters stand.
        let requests = heir.requests();
        assert!((expected..expected + 99.0).contains(&requests), "{reply}: {requests}");
    }
    // A link that is cut leaves them, too.
    heir.link.shutdown(std::net::Shutdown::Both).expect("shut down");
    assert!(heir.requests() >= 200.0 && heir.get("/a").0 == 200);
}
