//! Error output of programs: it reaches the error log, and does not fill the disk.

use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, Peer};
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::{lighty, wait_until};

const SOON: Duration = Duration::from_secs(20);

const SHARE: &str = "limit: server.errorlog-max-per-program = 1";
const RATE: &str = "limit: server.errorlog-program-rate = 1";

/// Server that runs `says.sh`, which writes `x` as many times as its query says.
fn programs() -> Setup {
    const SAYS: &str =
        "printf 'X: y\\n\\nanswered'; head -c \"$QUERY_STRING\" /dev/zero | tr '\\0' x >&2";
    lighty!().config("cgi.assign = ( \".sh\" => \"/bin/sh\" )").file("says.sh", SAYS)
}

/// Bytes of a line of the log besides the text of the program.
fn frame_of(server: &Server, text: &str) -> usize {
    server.await_log(text);
    let log = server.log();
    let line = log.lines().find(|line| line.ends_with(text)).expect("the line");
    line.len() + 1 - text.len()
}

fn lines_of(server: &Server, message: &str) -> usize {
    server.log().lines().filter(|line| line.contains(message)).count()
}

#[test]
fn a_program_fills_n_bytes_of_the_log() {
    let server = programs().config("server.errorlog-max-per-program = 1").start();
    assert_eq!(server.get("/says.sh?10").text(), "answered");
    let room = 1024 - frame_of(&server, "says.sh: xxxxxxxxxx") - "says.sh: ".len();
    assert_eq!(server.get(&format!("/says.sh?{room}")).text(), "answered");
    server.await_log(&format!("says.sh: {}\n", "x".repeat(room)));
    assert_eq!(lines_of(&server, SHARE), 0);
    let more = room + 1;
    assert_eq!(server.get(&format!("/says.sh?{more}")).text(), "answered");
    server.await_log(&format!("says.sh: error output is left out from here on ({SHARE})"));
    server
        .await_log(&format!("says.sh: {} bytes of error output were left out ({SHARE})", more + 1));
    assert!(!server.log().contains(&"x".repeat(more)));
}

#[test]
fn a_program_that_always_writes_errors_fills_no_disk() {
    let server = programs()
        .file("yes.sh", "printf 'X: y\\n\\nbegun'; yes complaint >&2; true")
        .file("long.sh", "printf 'X: y\\n\\nbegun'; cat /dev/zero >&2; true")
        .config("server.errorlog-max-per-program = 64\nserver.max-worker = 1")
        .start();
    for (name, while_it_runs, at_its_end) in [
        ("yes", "error output is left out from here on", "bytes of error output were left out"),
        ("long", "", "\\x00\\x00\\x00"),
    ] {
        let mut client = server.connect();
        client.send(format!("GET /{name}.sh HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response_head().status, 200);
        let of_it = format!("{name}.sh: ");
        let reported = |message: &str| {
            let says = |line: &str| line.contains(&of_it) && line.contains(message);
            server.log().lines().any(says)
        };
        assert!(while_it_runs.is_empty() || wait_until(SOON, || reported(while_it_runs)), "{name}");
        let begun = Instant::now();
        for _ in 0..20 {
            assert_eq!(server.get("/says.sh?0").text(), "answered");
        }
        assert!(begun.elapsed() < SOON, "others wait: {:?}", begun.elapsed());
        client.reset();
        assert!(wait_until(SOON, || reported(at_its_end)), "{name}: {} bytes", server.log().len());
    }
    assert!(server.log().len() < 3 * 64 * 1024, "{} bytes", server.log().len());
}

#[test]
fn all_programs_together_have_a_rate() {
    let server = programs()
        .file("many.sh", "printf 'X: y\\n\\n'; for i in $(seq 100); do echo \"line $i\" >&2; done")
        .config("server.errorlog-program-rate = 1\nserver.errorlog-max-per-program = 0")
        .start();
    for _ in 0..3 {
        assert_eq!(server.get("/many.sh").status, 200);
    }
    server.await_log(RATE);
    let reported = || lines_of(&server, "bytes of error output were left out") >= 1;
    assert!(wait_until(SOON, reported), "{}", server.log());
    // The limit allows at most some seconds' worth: 300 lines would be more than 20 KB.
    let logged = lines_of(&server, "many.sh: line ");
    assert!((1..200).contains(&logged), "{logged} lines");
}

#[test]
fn a_command_of_a_page_has_a_share() {
    let server = lighty!()
        .config("ssi.extension = ( \".shtml\" )\nssi.exec = \"enable\"")
        .config("server.errorlog-max-per-program = 1")
        .file("a.shtml", "<!--#exec cmd=\"yes complaint | head -n 1000 >&2; printf done\"-->")
        .start();
    assert_eq!(server.get("/a.shtml").text(), "done");
    server.await_log("a.shtml: exec: complaint");
    server.await_log(&format!("bytes of error output were left out ({SHARE})"));
    assert!(lines_of(&server, "exec: complaint") < 1024 / 60);
}

/// A record of FastCGI.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("64 KB").to_be_bytes();
    [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
}

const STDOUT: u8 = 6;
const STDERR: u8 = 7;

fn response_of(peer: &mut Peer) {
    peer.send(record(STDOUT, b"Content-Type: text/plain\r\n\r\nanswered"));
    peer.send(record(3, &[0; 8]));
}

/// Reads a request without a body.
fn read_request(peer: &mut Peer) -> Option<()> {
    loop {
        let head = peer.read_exact(8)?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        peer.read_exact(length + usize::from(head[6]))?;
        if head[1] == 5 && length == 0 {
            return Some(());
        }
    }
}

fn fastcgi(backend: &Backend) -> Setup {
    let name = backend.name();
    lighty!()
        .config(&format!("proxy-core.protocol = \"fastcgi\"\nproxy-core.backends = ( \"{name}\" )"))
}

#[test]
fn a_request_to_fastcgi_has_a_share() {
    let backend = Backend::start(|peer| {
        while read_request(peer).is_some() {
            for number in 0..1000 {
                peer.send(record(STDERR, format!("before {number}\n").as_bytes()));
            }
            peer.send(record(STDOUT, b"Content-Type: text/plain\r\n\r\n"));
            for number in 0..1000 {
                peer.send(record(STDERR, format!("after {number}\n").as_bytes()));
            }
            response_of(peer);
        }
    });
    let server = fastcgi(&backend).config("server.errorlog-max-per-program = 1").start();
    for _ in 0..2 {
        assert!(server.get("/").text().ends_with("answered"));
    }
    let totals = || lines_of(&server, "bytes of error output were left out");
    assert!(wait_until(SOON, || totals() == 2), "{}", server.log());
    // Each request has a share of its own.
    assert_eq!(lines_of(&server, ": before 0"), 2);
    assert_eq!(lines_of(&server, "after "), 0);
}

#[test]
fn errors_with_the_end_of_a_fastcgi_response_are_logged() {
    let backend = Backend::start(|peer| {
        while read_request(peer).is_some() {
            let head = record(STDOUT, b"Content-Type: text/plain\r\n\r\nanswered");
            let rest = [record(STDERR, b"a last word\n"), record(3, &[0; 8])].concat();
            peer.send([head, rest].concat());
        }
    });
    let server = fastcgi(&backend).start();
    assert_eq!(server.get("/").text(), "answered");
    server.await_log(": a last word");
}

#[test]
fn fastcgi_that_only_writes_errors_delays_no_client_and_ends_with_its_own() {
    let backend = Backend::start(|peer| {
        if read_request(peer).is_some() {
            let errors = record(STDERR, "complaint\n".repeat(6_000).as_bytes());
            while peer.send(&errors) {}
        }
    });
    let server = fastcgi(&backend)
        .config("server.errorlog-max-per-program = 16\nserver.max-worker = 1")
        .config("$HTTP[\"url\"] == \"/file\" { proxy-core.backends = () }")
        .file("file", "file")
        .start();
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.await_log("error output is left out from here on");
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(server.get("/file").text(), "file");
    }
    assert!(begun.elapsed() < SOON, "others wait: {:?}", begun.elapsed());
    client.reset();
    assert!(wait_until(SOON, || backend.open() == 0), "it goes on");
    assert!(server.log().len() < 64 * 1024, "{} bytes", server.log().len());
}
