use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use lighty_wire::fastcgi::app;
use lighty_wire::fastcgi::{EndRequest, ProtocolStatus, VARIABLES, Values};

use super::*;
use crate::connect::listen_queue::{ListenQueue, MayIdle, watch};
use crate::upstream::spec::HealthSpec;

/// Longer than any step here.
const TIMEOUT_MS: u64 = 20_000;

fn spec(kind: CheckKind, timeout_ms: u64) -> CheckSpec {
    CheckSpec { kind, interval_ms: 20, timeout_ms, rise: 1, fall: 1 }
}

fn http(status: (u16, u16)) -> CheckKind {
    CheckKind::Http { target: "/health?x=1".into(), host: "app.test".into(), status }
}

fn fastcgi(target: Option<&str>) -> CheckKind {
    CheckKind::Fastcgi { target: target.map(Into::into) }
}

/// A peer that sends `response` in pieces of `piece` bytes after reading `request_bytes`.
fn peer(request_bytes: usize, response: Vec<u8>, piece: usize) -> (Target, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let target = Target::Tcp(listener.local_addr().expect("address"));
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        stream.set_nodelay(true).expect("no delay");
        let mut requested = vec![0; request_bytes];
        stream.read_exact(&mut requested).expect("the question");
        for part in response.chunks(piece) {
            // The checker closes once it has a result.
            if stream.write_all(part).is_err() {
                break;
            }
        }
        requested
    });
    (target, served)
}

fn question(kind: &CheckKind) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_question(kind, &mut bytes).expect("a question");
    bytes
}

/// Returns the check's result if the peer sends this response.
async fn found(kind: CheckKind, response: &[u8]) -> Result<(), CheckFault> {
    let requested = question(&kind);
    let mut outcome = Ok(());
    for piece in [1, 7, usize::MAX] {
        let (target, served) = peer(requested.len(), response.to_vec(), piece);
        outcome = ask(&target, None, &spec(kind.clone(), TIMEOUT_MS), None, &|| {}).await;
        assert_eq!(served.join().expect("the peer"), requested);
    }
    outcome
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    listener.local_addr().expect("address")
}

#[tokio::test]
async fn tcp_asks_whether_a_connection_is_accepted() {
    let (target, served) = peer(0, Vec::new(), 1);
    ask(&target, None, &spec(CheckKind::Tcp, TIMEOUT_MS), None, &|| {}).await.expect("accepted");
    served.join().expect("the peer");
    let nobody = Target::Tcp(free_address());
    let fault = ask(&nobody, None, &spec(CheckKind::Tcp, TIMEOUT_MS), None, &|| {}).await;
    assert!(matches!(fault, Err(CheckFault::Connect(_))), "{fault:?}");
}

#[tokio::test]
async fn http_goes_by_the_status() {
    let requested = question(&http((200, 299)));
    let text = String::from_utf8(requested).expect("text");
    assert!(text.starts_with("GET /health?x=1 HTTP/1.1\r\nHost: app.test\r\n"), "{text}");
    let good = b"HTTP/1.1 204 No Content\r\n\r\n";
    assert!(found(http((200, 299)), good).await.is_ok());
    let interim = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    assert!(found(http((200, 299)), interim).await.is_ok());
    let bad = found(http((200, 299)), b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").await;
    assert!(matches!(bad, Err(CheckFault::Status(503))), "{bad:?}");
    for (status, is_good) in [(199, false), (200, true), (299, true), (300, false)] {
        assert_eq!(check_status(status, (200, 299)).is_ok(), is_good, "{status}");
    }
}

#[tokio::test]
async fn response_that_is_not_http_is_reported() {
    let garbage = found(http((200, 299)), b"SSH-2.0-OpenSSH\r\n\r\n").await;
    assert!(matches!(garbage, Err(CheckFault::Protocol(_))), "{garbage:?}");
    let cut = found(http((200, 299)), b"HTTP/1.1 200 OK\r\nServ").await;
    assert!(matches!(cut, Err(CheckFault::Closed)), "{cut:?}");
    let unfit = CheckKind::Http { target: "/a b".into(), host: "h".into(), status: (200, 299) };
    let (target, _served) = peer(0, Vec::new(), 1);
    let unfit = ask(&target, None, &spec(unfit, TIMEOUT_MS), None, &|| {}).await;
    assert!(matches!(unfit, Err(CheckFault::Unfit(_))), "{unfit:?}");
    // Ends the peer that got no request.
    ask(&target, None, &spec(CheckKind::Tcp, TIMEOUT_MS), None, &|| {}).await.expect("accepted");
}

#[tokio::test]
async fn an_endless_head_is_left() {
    let mut endless = b"HTTP/1.1 200 OK\r\n".to_vec();
    endless.extend(b"X-Filler: 0123456789abcdef\r\n".repeat(100));
    endless.resize(RESPONSE_BYTES_MAX + 1, b'x');
    let (target, served) = peer(question(&http((200, 299))).len(), endless, 4_096);
    let fault = ask(&target, None, &spec(http((200, 299)), TIMEOUT_MS), None, &|| {}).await;
    let is_refused = matches!(fault, Err(CheckFault::TooLong | CheckFault::Protocol(_)));
    assert!(is_refused, "{fault:?}");
    served.join().expect("the peer");
}

#[tokio::test]
async fn silence_ends_at_the_time_out() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let target = Target::Tcp(listener.local_addr().expect("address"));
    let fault = ask(&target, None, &spec(CheckKind::Ajp13, 30), None, &|| {}).await;
    assert!(matches!(fault, Err(CheckFault::Timeout { timeout_ms: 30 })), "{fault:?}");
}

#[tokio::test]
async fn ajp_is_pinged() {
    assert_eq!(question(&CheckKind::Ajp13), ajp13::CPING);
    assert!(found(CheckKind::Ajp13, &ajp13::container::CPONG).await.is_ok());
    let fault = found(CheckKind::Ajp13, b"HTTP/1.1 400 Bad Request\r\n").await;
    assert!(matches!(fault, Err(CheckFault::Protocol(_))), "{fault:?}");
}

#[tokio::test]
async fn fastcgi_is_asked_for_its_variables() {
    let mut values = Vec::new();
    let able = Values { max_conns: Some(8), ..Values::default() };
    app::push_values(VARIABLES, &able, &mut values);
    assert!(found(fastcgi(None), &values).await.is_ok());
    let mut unknown = Vec::new();
    app::push_unknown_type(9, &mut unknown);
    assert!(found(fastcgi(None), &unknown).await.is_ok());
    let fault = found(fastcgi(None), b"HTTP/1.1 400 Bad Request\r\n").await;
    assert!(matches!(fault, Err(CheckFault::Protocol(_))), "{fault:?}");
}

#[tokio::test]
async fn fastcgi_is_asked_for_a_page() {
    let response = |output: &[u8]| {
        let mut bytes = Vec::new();
        app::push_stderr(1, b"a word for the log", &mut bytes);
        app::push_stdout(1, output, &mut bytes);
        app::push_end_of_stdout(1, &mut bytes);
        let end = EndRequest { app_status: 0, protocol_status: ProtocolStatus::RequestComplete };
        app::push_end_request(1, end, &mut bytes);
        bytes
    };
    let ping = || fastcgi(Some("/ping?full"));
    let pong = response(b"Content-Type: text/plain\r\n\r\npong");
    assert!(found(ping(), &pong).await.is_ok());
    let down = found(ping(), &response(b"Status: 500\r\n\r\n")).await;
    assert!(matches!(down, Err(CheckFault::Status(500))), "{down:?}");
    let empty = found(ping(), &response(b"")).await;
    assert!(matches!(empty, Err(CheckFault::Closed)), "{empty:?}");
}

#[tokio::test]
async fn a_proxy_header_says_that_the_connection_is_our_own() {
    for (version, front) in
        [(ProxyProtocol::V1, &b"PROXY UNKNOWN\r\n"[..]), (ProxyProtocol::V2, b"")]
    {
        let mut header = Vec::new();
        push_own_header(version, &mut header).expect("a header");
        assert!(header.starts_with(front));
        let (target, served) =
            peer(header.len() + ajp13::CPING.len(), ajp13::container::CPONG.to_vec(), 5);
        let check = spec(CheckKind::Ajp13, TIMEOUT_MS);
        ask(&target, None, &check, Some(version), &|| {}).await.expect("a pong");
        assert!(served.join().expect("the peer").starts_with(&header));
    }
}

/// An address that records the reported changes and faults.
struct Noted {
    target: Target,
    health: Health,
    changes: Mutex<Vec<HealthChange>>,
    checked: tokio::sync::Notify,
}

impl Checked for Arc<Noted> {
    fn target(&self) -> &Target {
        &self.target
    }

    fn health(&self) -> &Health {
        &self.health
    }

    fn was_checked(&self, change: HealthChange, fault: Option<&CheckFault>) {
        match change {
            HealthChange::WentDown { .. } => assert!(fault.is_some()),
            HealthChange::CameBack => assert!(fault.is_none()),
            HealthChange::Nothing => {}
        }
        if change != HealthChange::Nothing {
            self.changes.lock().expect("no panic").push(change);
            self.checked.notify_one();
        }
    }
}

#[tokio::test]
async fn an_address_is_asked_until_it_is_gone() {
    let check = CheckSpec { fall: 1, rise: 1, ..spec(CheckKind::Tcp, TIMEOUT_MS) };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).expect("bind");
    let address = Arc::new(Noted {
        target: Target::unix(&path),
        health: Health::new(&HealthSpec { check: Some(check.clone()), ..HealthSpec::default() }),
        changes: Mutex::default(),
        checked: tokio::sync::Notify::new(),
    });
    let weak = Arc::downgrade(&address);
    let asking = keep_asking(|| weak.upgrade(), &check, None, Clock::start());
    let watching = async {
        drop(listener);
        address.checked.notified().await;
        std::fs::remove_file(&path).expect("the old socket");
        let again = UnixListener::bind(&path).expect("bind again");
        address.checked.notified().await;
        drop(again);
        let changes = address.changes.lock().expect("no panic").clone();
        assert!(
            matches!(changes[..], [HealthChange::WentDown { .. }, HealthChange::CameBack]),
            "{changes:?}"
        );
        drop(address);
    };
    tokio::time::timeout(Duration::from_millis(TIMEOUT_MS), async {
        tokio::join!(asking, watching)
    })
    .await
    .expect("it ends when the address is gone");
}

/// An address with a single process, which another connection occupies.
struct Occupied {
    target: Target,
    health: Health,
    queue: Arc<ListenQueue>,
    entered: tokio::sync::Notify,
}

impl Checked for &Occupied {
    fn target(&self) -> &Target {
        &self.target
    }

    fn health(&self) -> &Health {
        &self.health
    }

    fn stand_in_line(&self) -> Option<Standing> {
        self.entered.notify_one();
        Some(self.queue.enter(0, 0).0)
    }

    fn was_checked(&self, _: HealthChange, fault: Option<&CheckFault>) {
        panic!("nobody answers, and the time is not up: {fault:?}");
    }
}

#[tokio::test]
async fn a_check_that_began_first_is_waited_for_by_no_idle_connection() {
    let check = spec(CheckKind::Ajp13, TIMEOUT_MS);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let _listener = UnixListener::bind(&path).expect("bind");
    let target = Target::unix(&path);
    let health = Health::new(&HealthSpec { check: Some(check.clone()), ..HealthSpec::default() });
    let queue = ListenQueue::at(&target);
    let occupied = Occupied { target, health, queue, entered: tokio::sync::Notify::new() };
    let asking = keep_asking(|| Some(&occupied), &check, None, Clock::start());
    let serving = async {
        occupied.entered.notified().await;
        let mut request = occupied.queue.enter(0, 0).0;
        request.complete(0);
        request.answered();
        assert_eq!(occupied.queue.become_idle(0), MayIdle::InDoubt);
        let is_to_be_closed = async {
            while !occupied.queue.has_surplus() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = watch(Arc::clone(&occupied.queue), Clock::start()) => panic!("nothing waits"),
            () = is_to_be_closed => {}
        }
    };
    tokio::select! {
        () = asking => panic!("the address is there"),
        () = serving => {}
        () = tokio::time::sleep(Duration::from_millis(TIMEOUT_MS / 2)) => panic!("the check waits"),
    }
}
