use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn bind(spec: &str, options: &BindOptions) -> BoundSocket {
    BoundSocket::bind(&spec.parse().expect("spec"), options).expect("bind")
}

fn inet(bound: &BoundSocket) -> SocketAddr {
    match bound.address() {
        BindSpec::Inet(address) => *address,
        BindSpec::Unix(path) => panic!("{}", path.display()),
    }
}

#[tokio::test]
async fn tcp_connections_come_in_without_delay_switched_on() {
    for spec in ["127.0.0.1:0", "[::1]:0"] {
        let options = BindOptions { defer_accept_s: Some(1), ..BindOptions::default() };
        let bound = bind(spec, &options);
        let address = inet(&bound);
        assert_ne!(address.port(), 0);
        let mut listener = bound.into_listener().expect("listener");
        let mut client = std::net::TcpStream::connect(address).expect("connect");
        client.write_all(b"x").expect("write");
        let (stream, peer) = listener.accept().await.expect("accept");
        assert_eq!(peer, Peer::Inet(client.local_addr().expect("address")));
        let nodelay = socket2::SockRef::from(&stream.plain_fd().expect("a socket")).tcp_nodelay();
        assert!(nodelay.expect("option"), "inherited from the listener");
    }
}

#[tokio::test]
async fn workers_share_a_port() {
    let options = BindOptions { reuse_port: true, ..BindOptions::default() };
    let first = bind("127.0.0.1:0", &options);
    let second = bind(&first.address().to_string(), &options);
    assert_eq!(first.address(), second.address());
    let shared = first.try_clone().expect("clone");
    assert_eq!(shared.address(), first.address());
    let error = BoundSocket::bind(first.address(), &BindOptions::default()).expect_err("taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&first.address().to_string()), "{error}");
}

#[tokio::test]
async fn a_unix_socket_has_its_mode_and_leaves_no_file() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("s");
    let options = BindOptions { unix_mode: Some(0o640), ..BindOptions::default() };
    let bound = bind(path.to_str().expect("utf-8"), &options);
    let guard = bound.socket_file().expect("guard");
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let mut listener = bound.into_listener().expect("listener");
    let mut client = StdUnixStream::connect(&path).expect("connect");
    let (stream, peer) = listener.accept().await.expect("accept");
    assert_eq!(peer, Peer::Unix);
    stream.writable().await.expect("writable");
    stream.try_write(b"hi").expect("write");
    drop(stream);
    let mut heard = String::new();
    client.read_to_string(&mut heard).expect("read");
    assert_eq!(heard, "hi");
    drop(guard);
    assert!(!path.exists());
}

#[test]
fn only_a_dead_socket_is_removed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("s");
    let spec = BindSpec::Unix(path.clone());
    let refused = |what: &str| {
        let error = BoundSocket::bind(&spec, &BindOptions::default()).expect_err(what);
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{what}: {error}");
    };
    let alive = StdUnixListener::bind(&path).expect("bind");
    refused("somebody listens");
    drop(alive);
    let first = BoundSocket::bind(&spec, &BindOptions::default()).expect("stale: replaced");
    let guard = first.socket_file().expect("guard");
    std::fs::remove_file(&path).expect("remove");
    std::fs::write(&path, "a file of somebody else").expect("write");
    drop(guard);
    assert!(path.exists(), "not ours, so not removed");
    refused("not a socket");
}

#[test]
fn errors_of_accept_are_sorted() {
    let verdict = |errno: Errno| AcceptVerdict::of(&io::Error::from(errno));
    assert!(matches!(verdict(Errno::MFILE), AcceptVerdict::Pause));
    assert!(matches!(verdict(Errno::NFILE), AcceptVerdict::Pause));
    assert!(matches!(verdict(Errno::CONNABORTED), AcceptVerdict::NextConnection));
    assert!(matches!(verdict(Errno::BADF), AcceptVerdict::Broken));
}

/// Runs in a process of its own, because it uses up all descriptors.
#[test]
fn running_out_of_descriptors_pauses_and_recovers() {
    const MARK: &str = "LIGHTY_TEST_OUT_OF_DESCRIPTORS";
    if std::env::var_os(MARK).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("runtime").block_on(out_of_descriptors());
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().expect("test binary"))
        .args(["--exact", "listen::tests::running_out_of_descriptors_pauses_and_recovers"])
        .arg("--nocapture")
        .env(MARK, "1")
        .output()
        .expect("run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn out_of_descriptors() {
    let bound = bind("127.0.0.1:0", &BindOptions::default());
    let address = inet(&bound);
    let mut listener = bound.into_listener().expect("listener");
    let mut client = std::net::TcpStream::connect(address).expect("connect");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let low = rustix::process::Rlimit { current: Some(256), maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, low).expect("rlimit");
    let mut hoard = Vec::new();
    while let Ok(copy) = client.try_clone() {
        hoard.push(copy);
    }

    for _ in 0..2 {
        let error = listener.accept().await.expect_err("no descriptor is left");
        assert!(matches!(error, AcceptError::OutOfResources(_)), "{error}");
        // The listener's reserve is available to open connections.
        let files: Vec<_> = (0..RESERVE_DESCRIPTORS).map(|_| client.try_clone()).collect();
        assert!(files.iter().all(Result::is_ok));
        assert!(client.try_clone().is_err(), "and no more than that");
    }

    drop(hoard);
    let (stream, _) = listener.accept().await.expect("the connection waited in the backlog");
    stream.writable().await.expect("writable");
    stream.try_write(b"served").expect("write");
    drop(stream);
    let mut heard = String::new();
    client.read_to_string(&mut heard).expect("read");
    assert_eq!(heard, "served");
}

/// Number of look-ups of an address.
const LOOKS: usize = 2_000;

#[test]
fn no_client_connects_while_an_address_is_probed() {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let held = bound_inet(any, &BindOptions::default()).expect("a port");
    let address = local_inet(&held).expect("its address");
    let options = BindOptions { reuse_port: true, ..BindOptions::default() };
    let over = Arc::new(AtomicBool::new(false));
    let asking = {
        let over = Arc::clone(&over);
        std::thread::spawn(move || {
            let (mut tries, mut connected) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                tries += 1;
                connected += usize::from(std::net::TcpStream::connect(address).is_ok());
            }
            (tries, connected)
        })
    };
    for _ in 0..LOOKS {
        BoundSocket::refuse_taken(address, &options).expect("free");
        std::thread::yield_now();
    }
    over.store(true, Ordering::Relaxed);
    let (tries, connected) = asking.join().expect("a count");
    assert_eq!(connected, 0, "of {tries} tries");
    let listener = BoundSocket::bind(&BindSpec::Inet(address), &options).expect("bound");
    let error = BoundSocket::refuse_taken(address, &options).expect_err("taken");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    drop(listener);
}
