//! The stamps of a request's stages, as a module sees them at the end of the request.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use lighty_core::exchange::stage::Stage;
use lighty_core::module::{Hooks, Module, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Exchange, Settings};
use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;

use crate::harness;

/// Pause of clients, backends and programs between two steps.
const PAUSE: Duration = Duration::from_millis(300);

/// Minimum time that must have passed: the server's clock is set once in a turn of its loop.
const PASSED_US: u32 = 100_000;

type Stamps = Vec<(Stage, u32)>;

/// Sends the stamps of each request to the test.
struct Recorder(mpsc::Sender<Stamps>);

impl Module for Recorder {
    fn name(&self) -> &'static str {
        "mod_recorder"
    }

    fn traits(&self) -> Traits {
        Hooks { done: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<lighty_config::Directive<Settings>> {
        Vec::new()
    }

    fn done(&self, ex: &Exchange) {
        // Fails if the test has ended.
        let _ = self.0.send(ex.stages.met().collect());
    }
}

struct Server {
    address: SocketAddr,
    recorded: mpsc::Receiver<Stamps>,
}

impl Server {
    /// Starts a worker that ends with the process.
    fn start(root: &Path, settings: &str) -> Self {
        let (record, recorded) = mpsc::channel();
        let text = format!("server.document-root = \"{}\"\n{settings}\n", root.display());
        let address = harness::start(Vec::new(), &text, move |config| {
            harness::built_in(config).followed_by(&[Rc::new(Recorder(record))])
        });
        Self { address, recorded }
    }

    fn client(&self) -> Client {
        Client::tcp(self.address)
    }

    /// Returns the stamps of the next request, in ascending order.
    fn stamps(&self) -> Stamps {
        let stamps = self.recorded.recv().expect("a request is over");
        assert!(stamps.is_sorted_by_key(|(_, at_us)| *at_us), "{stamps:?}");
        stamps
    }
}

fn stages(stamps: &Stamps) -> Vec<Stage> {
    stamps.iter().map(|(stage, _)| *stage).collect()
}

/// Returns the time between two stages.
fn between(stamps: &Stamps, from: Stage, to: Stage) -> u32 {
    let at = |wanted| {
        let found = stamps.iter().find(|(stage, _)| *stage == wanted);
        found.unwrap_or_else(|| panic!("{wanted:?} in {stamps:?}")).1
    };
    at(to) - at(from)
}

fn get(client: &mut Client, path: &str) -> Vec<u8> {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
    let response = client.response();
    assert_eq!(response.status, 200, "{path}");
    response.body
}

#[test]
fn a_file_is_looked_up_on_disk_and_then_known() {
    use Phase as P;
    use Stage as S;
    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("a.txt"), "a").expect("written");
    let server = Server::start(root.path(), "");
    let mut client = server.client();
    // Send the head in two pieces.
    client.send("GET /a.txt HTTP/1.1\r\n");
    std::thread::sleep(PAUSE);
    client.send("Host: h\r\n\r\n");
    assert_eq!(client.response().body, b"a");
    let first = server.stamps();
    let connection = [S::Accepted, S::FirstByte, S::Head, S::Settings];
    let looked_up = [S::LookUp, S::Open];
    let sent = [S::Phase(P::Handle), S::FirstByteOut, S::LastByteOut, S::Phase(P::Done)];
    assert_eq!(stages(&first), [&connection[..], &looked_up, &sent].concat());
    assert!(between(&first, S::FirstByte, S::Head) >= PASSED_US, "{first:?}");
    assert!(between(&first, S::LookUp, S::Open) > 0, "the disk was asked: {first:?}");

    assert_eq!(get(&mut client, "/a.txt"), b"a");
    let second = server.stamps();
    let known = [S::FirstByte, S::Head, S::Settings, S::LookUp, S::Open];
    assert_eq!(stages(&second), [&known[..], &sent].concat());
    assert_eq!(between(&second, S::Head, S::LastByteOut), 0, "all in one turn of the loop");
}

#[test]
fn a_proxied_request_waits_for_its_backend() {
    use Phase as P;
    use Stage as S;
    let body = "b".repeat(100_000);
    let response = answer("200 OK", "", &body);
    let backend = Backend::start(move |peer| {
        while peer.request().is_some() {
            std::thread::sleep(PAUSE);
            let (front, back) = response.split_at(50_000);
            if !peer.send(front) {
                return;
            }
            std::thread::sleep(PAUSE);
            peer.send(back);
        }
    });
    let address = backend.address();
    let root = tempfile::tempdir().expect("a directory");
    let settings = format!(
        "server.modules = ( \"mod_proxy\" )\n\
         proxy.server = ( \"/\" => (( \"host\" => \"{}\", \"port\" => {} )) )",
        address.ip(),
        address.port()
    );
    let server = Server::start(root.path(), &settings);
    let mut client = server.client();
    let stamped = [
        S::FirstByte,
        S::Head,
        S::Settings,
        S::Phase(P::Remote),
        S::BackendQueue,
        S::Connect,
        S::Connected,
        S::RequestSent,
        S::HeadBack,
        S::FirstByteOut,
        S::BodyBack,
        S::LastByteOut,
        S::Phase(P::Done),
    ];
    for is_first in [true, false] {
        assert_eq!(get(&mut client, "/x"), body.as_bytes());
        let stamps = server.stamps();
        let accepted: &[Stage] = if is_first { &[S::Accepted] } else { &[] };
        assert_eq!(stages(&stamps), [accepted, &stamped].concat());
        assert!(between(&stamps, S::RequestSent, S::HeadBack) >= PASSED_US, "{stamps:?}");
        assert!(between(&stamps, S::HeadBack, S::BodyBack) >= PASSED_US, "{stamps:?}");
    }
}

#[test]
fn a_program_is_started_and_its_output_read() {
    use Phase as P;
    use Stage as S;
    let root = tempfile::tempdir().expect("a directory");
    let program = "sleep 0.3; printf 'Content-Type: text/plain\\r\\n\\r\\n'; sleep 0.3; echo end";
    std::fs::write(root.path().join("a.sh"), program).expect("written");
    let settings = "server.modules = ( \"mod_cgi\" )\ncgi.assign = ( \".sh\" => \"/bin/sh\" )";
    let server = Server::start(root.path(), settings);
    assert_eq!(get(&mut server.client(), "/a.sh"), b"end\n");
    let stamps = server.stamps();
    let stamped = [
        S::Accepted,
        S::FirstByte,
        S::Head,
        S::Settings,
        S::LookUp,
        S::Open,
        S::Phase(P::Handle),
        S::Connect,
        S::Connected,
        S::RequestSent,
        S::HeadBack,
        S::FirstByteOut,
        S::BodyBack,
        S::LastByteOut,
        S::Phase(P::Done),
    ];
    assert_eq!(stages(&stamps), stamped);
    assert!(between(&stamps, S::Connect, S::HeadBack) >= PASSED_US, "{stamps:?}");
    assert!(between(&stamps, S::HeadBack, S::BodyBack) >= PASSED_US, "{stamps:?}");
}

#[test]
fn filters_have_a_stage_of_their_own() {
    use Phase as P;
    use Stage as S;
    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("a.txt"), "a".repeat(4000)).expect("written");
    let settings = "server.modules = ( \"mod_deflate\", \"mod_setenv\" )\n\
                    mimetype.assign = ( \".txt\" => \"text/plain\" )\n\
                    setenv.set-response-header = ( \"X-A\" => \"a\" )\n\
                    deflate.mimetypes = ( \"text/\" )\n\
                    deflate.allowed-encodings = ( \"gzip\" )";
    let server = Server::start(root.path(), settings);
    let mut client = server.client();
    client.send("GET /a.txt HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(client.response().field("content-encoding"), Some("gzip"));
    let stamps = stages(&server.stamps());
    let from = stamps.iter().position(|stage| *stage == S::Phase(P::Handle)).expect("handled");
    let head = [S::Phase(P::ResponseHead), S::Phase(P::Filter), S::FirstByteOut];
    assert_eq!(stamps[from + 1..from + 4], head, "{stamps:?}");
}
