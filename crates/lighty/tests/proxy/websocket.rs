//! WebSockets through the server to a real one that echoes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lighty_testkit::backend::Backend;
use lighty_testkit::content::pattern;
use lighty_testkit::lighty;
use lighty_testkit::real::websocket::WebSocketServer;
use lighty_testkit::server::{STOP_DEADLINE, Server, Setup};
use lighty_testkit::websocket::{Opcode, WebSocket, frame, handshake};

fn spelled_1_5(backend: &WebSocketServer) -> Setup {
    lighty!()
        .config("proxy-core.protocol = \"http\"\nproxy-core.upgrade = \"enable\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.listen().backend()))
}

fn spelled_1_4(backend: &WebSocketServer) -> Setup {
    let keys = backend.listen().host_keys();
    lighty!()
        .config(&format!("proxy.server = ( \"/\" => ( ( {keys} ) ) )"))
        .config("proxy.header = ( \"upgrade\" => \"enable\" )")
}

fn open(server: &Server) -> WebSocket {
    WebSocket::open(server.connect(), "/", "")
}

fn expect_echo(socket: &mut WebSocket, opcode: Opcode, payload: &[u8]) {
    let echo = socket.read();
    assert!(echo.is(opcode), "{:#x}", echo.first);
    assert!(echo.payload == payload, "{} of {} bytes", echo.payload.len(), payload.len());
}

#[test]
fn messages_of_every_size_come_back_through_both_spellings() {
    let Some(backend) = WebSocketServer::start() else { return };
    for setup in [spelled_1_5(&backend), spelled_1_4(&backend)] {
        let server = setup.start();
        let mut socket = open(&server);
        socket.send(Opcode::Text, "grüße".as_bytes());
        expect_echo(&mut socket, Opcode::Text, "grüße".as_bytes());
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, 8 << 20] {
            let payload = pattern(3, length);
            socket.send(Opcode::Binary, &payload);
            expect_echo(&mut socket, Opcode::Binary, &payload);
        }
    }
}

#[test]
fn frames_keep_their_order_and_their_cuts_do_not_matter() {
    let Some(backend) = WebSocketServer::start() else { return };
    let server = spelled_1_5(&backend).start();
    let mut socket = open(&server);
    // A message in three parts with a ping between them, byte by byte.
    let mut bytes = frame(Opcode::Text, false, b"one ");
    bytes.extend(frame(Opcode::Ping, true, b"between"));
    bytes.extend(frame(Opcode::Continuation, false, b"two "));
    bytes.extend(frame(Opcode::Continuation, true, b"three"));
    socket.client.send_in_pieces(&bytes, 1);
    expect_echo(&mut socket, Opcode::Pong, b"between");
    expect_echo(&mut socket, Opcode::Text, b"one two three");
    let many: Vec<u8> =
        (0..500).flat_map(|n: u32| frame(Opcode::Binary, true, &n.to_be_bytes())).collect();
    socket.client.send(many);
    for number in 0..500_u32 {
        expect_echo(&mut socket, Opcode::Binary, &number.to_be_bytes());
    }
}

#[test]
fn a_frame_right_behind_the_handshake_is_not_lost() {
    let Some(backend) = WebSocketServer::start() else { return };
    let server = spelled_1_5(&backend).start();
    let mut client = server.connect();
    let mut bytes = handshake("/", "Sec-WebSocket-Protocol: other, echo\r\n").into_bytes();
    bytes.extend(frame(Opcode::Text, true, b"early"));
    client.send(bytes);
    let mut socket = WebSocket::await_open(client);
    assert_eq!(socket.response.field("Sec-WebSocket-Protocol"), Some("echo"));
    expect_echo(&mut socket, Opcode::Text, b"early");
}

#[test]
fn pings_and_closes_go_both_ways() {
    let Some(backend) = WebSocketServer::start() else { return };
    let server = spelled_1_5(&backend).start();
    let mut socket = open(&server);
    socket.send(Opcode::Text, b"ping me");
    expect_echo(&mut socket, Opcode::Ping, b"are you there");
    socket.send(Opcode::Pong, b"are you there");
    expect_echo(&mut socket, Opcode::Text, b"ponged");
    socket.send(Opcode::Text, b"close 4001");
    let close = socket.read();
    assert_eq!(close.close_code(), Some(4001), "{close:?}");
    assert_eq!(&close.payload[2..], b"as asked");
    socket.send(Opcode::Close, &4001_u16.to_be_bytes());
    socket.expect_end();

    let mut socket = open(&server);
    socket.send(Opcode::Close, &1000_u16.to_be_bytes());
    assert_eq!(socket.read().close_code(), Some(1000));
    socket.expect_end();

    // A frame that breaks the rules is the backend's to judge.
    let mut socket = open(&server);
    socket.client.send([0xf1, 0x80, 0, 0, 0, 0]);
    assert_eq!(socket.read().close_code(), Some(1002));
}

#[test]
fn a_client_that_ends_its_side_still_receives_from_the_other() {
    let Some(backend) = WebSocketServer::start() else { return };
    let server = spelled_1_5(&backend).start();
    let mut socket = open(&server);
    socket.send(Opcode::Binary, &pattern(1, 1 << 20));
    expect_echo(&mut socket, Opcode::Binary, &pattern(1, 1 << 20));
    socket.send(Opcode::Ping, b"last");
    socket.send(Opcode::Close, &1000_u16.to_be_bytes());
    socket.client.half_close();
    expect_echo(&mut socket, Opcode::Pong, b"last");
    assert_eq!(socket.read().close_code(), Some(1000));
    socket.expect_end();
}

#[test]
fn many_are_open_at_once_and_each_hears_its_own() {
    let Some(backend) = WebSocketServer::start() else { return };
    let server = spelled_1_5(&backend).config("proxy-core.max-pool-size = 100").start();
    let mut sockets: Vec<WebSocket> = (0..60).map(|_| open(&server)).collect();
    for round in 0..3_u8 {
        for (number, socket) in sockets.iter_mut().enumerate() {
            socket.send(Opcode::Binary, &[number as u8, round]);
        }
        for (number, socket) in sockets.iter_mut().enumerate() {
            expect_echo(socket, Opcode::Binary, &[number as u8, round]);
        }
    }
    let before = server.descriptors();
    drop(sockets);
    let freed =
        lighty_testkit::wait_until(Duration::from_secs(30), || server.descriptors() + 100 < before);
    assert!(freed, "{} of {before} descriptors", server.descriptors());
}

#[test]
fn an_idle_tunnel_is_closed_and_a_lively_one_is_not() {
    let Some(backend) = WebSocketServer::start() else { return };
    let server = spelled_1_5(&backend).config("proxy-core.tunnel-timeout = \"2s\"").start();
    let mut idle = open(&server);
    let mut lively = open(&server);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(3500) {
        lively.send(Opcode::Ping, b"");
        expect_echo(&mut lively, Opcode::Pong, b"");
        std::thread::sleep(Duration::from_millis(100));
    }
    idle.expect_end();
    lively.send(Opcode::Text, b"still here");
    expect_echo(&mut lively, Opcode::Text, b"still here");
}

#[test]
fn without_the_directive_the_wish_is_not_passed_on() {
    let Some(backend) = WebSocketServer::start() else { return };
    let server = spelled_1_5(&backend).config("proxy-core.upgrade := \"disable\"").start();
    let mut client = server.connect();
    client.send(handshake("/", ""));
    let response = client.response();
    assert_eq!(response.status, 426, "what the library says to a plain GET: {response:?}");
}

/// Directory of Autobahn's test suite, installed by `scripts/needs.sh`. It needs Python 2, and is
/// missing on systems without it.
fn autobahn() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let found = Some(target.join("autobahn/wstest")).filter(|file| file.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: Autobahn's test suite is not installed (it needs Python 2)");
    }
    found
}

/// Large messages and compression take minutes and show little about a tunnel; `LIGHTY_AUTOBAHN`
/// set to `all` includes them.
fn left_out() -> &'static str {
    match std::env::var("LIGHTY_AUTOBAHN").as_deref() {
        Ok("all") => "",
        _ => "\"9.*\", \"12.*\", \"13.*\"",
    }
}

#[test]
fn autobahns_fuzzing_client_finds_nothing() {
    let Some(wstest) = autobahn() else { return };
    let Some(backend) = WebSocketServer::start() else { return };
    let server = spelled_1_5(&backend).start();
    let spec = server.directory().join("spec.json");
    let text = format!(
        "{{\"outdir\": \"reports\", \"servers\": [{{\"agent\": \"lighty\", \"url\": \
         \"ws://{}\"}}], \"cases\": [\"*\"], \"exclude-cases\": [{}], \
         \"exclude-agent-cases\": {{}}}}",
        server.address(),
        left_out()
    );
    std::fs::write(&spec, text).expect("a file");
    let output = Command::new(wstest)
        .args(["-m", "fuzzingclient", "-s", "spec.json"])
        .current_dir(server.directory())
        .output()
        .expect("the suite runs");
    let index = std::fs::read_to_string(server.directory().join("reports/index.json"));
    let index = index.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let behaviours: Vec<&str> = index.lines().filter(|line| line.contains("\"behavior")).collect();
    let is_good = |line: &&&str| {
        ["\"OK\"", "\"NON-STRICT\"", "\"INFORMATIONAL\""].iter().any(|word| line.contains(word))
    };
    let good = behaviours.iter().filter(is_good).count();
    // Two lines for each case: its messages and its end.
    eprintln!("{good} of {} judgements are good", behaviours.len());
    assert!(good == behaviours.len() && good >= 2 * 247, "{good} are good; {index}");
}

#[test]
fn a_graceful_stop_waits_for_tunnels_no_longer_than_their_limit() {
    let Some(backend) = WebSocketServer::start() else { return };
    let mut server = spelled_1_5(&backend).config("server.tunnel-stop-timeout = 1").start();
    let mut socket = open(&server);
    server.signal(rustix::process::Signal::INT);
    socket.send(Opcode::Text, b"still here");
    expect_echo(&mut socket, Opcode::Text, b"still here");
    socket.expect_end();
    // The limit is 10 seconds by default.
    let (status, took) = server.await_exit(STOP_DEADLINE);
    assert!(status.success() && took < Duration::from_secs(8), "{status}, {took:?}");
}

#[test]
fn a_websocket_where_upgrade_is_off_is_named_now_and_then() {
    let backend = Backend::answering("plain");
    let server = lighty!().in_front_of(&backend.name()).config("server.max-worker = 1").start();
    let text = "the client asks for a WebSocket, and proxy-core.upgrade is off here";
    assert_eq!(server.get("/").status, 200);
    assert!(!server.log().contains(text));
    for _ in 0..20 {
        let mut client = server.connect();
        client.send(handshake("/", ""));
        assert_eq!(client.response().status, 200);
    }
    server.await_log(text);
    assert!(server.log().matches(text).count() < 20, "{}", server.log());
}
