//! A sandbox forbids system calls that have a fallback: the server still sends everything, and logs
//! one warning per forbidden call.
//!
//! A single test, because its effect on the process cannot be undone.

use std::cell::Cell;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::rc::Rc;

use bytes::Bytes;
use lighty_buf::{ChunkQueue, FileRange};
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine, Follow};
use lighty_io::process::syscall_fallback;
use lighty_io::send::{NetworkBackend, SendOptions, SendWaits, Sender};
use lighty_io::threads::pool::ThreadPool;
use lighty_io::transport::Stream;

const BYTES: usize = 3 << 20;

/// Makes this call fail with EPERM from now on, in this thread and in threads that it starts.
/// Returns `false` if the system does not permit such filters.
fn forbid(call: libc::c_long) -> bool {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let (load, equals, done) = (0x20, 0x15, 0x06);
    // struct seccomp_data begins with the number of the call.
    let mut program = [
        step(load, 0, 0, 0),
        step(equals, 0, 1, u32::try_from(call).expect("a number")),
        step(done, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
        step(done, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is whole and outlives the call, which copies it.
    unsafe {
        let mode = libc::SECCOMP_MODE_FILTER;
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) == 0
    }
}

/// Sends a file that is not in the page cache, twice, and returns the received bytes.
async fn delivered(backend: NetworkBackend, content: &[u8]) -> Vec<u8> {
    let options = SendOptions { backend, ..SendOptions::default() };
    let engine = FileEngine::start(EngineChoice::Threads, EngineLimits::default()).expect("engine");
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    std::fs::write(place.path().join("file"), content).expect("written");
    let root = engine.open_root(place.path()).await.expect("a root");
    let file = engine.open(&root, b"file", Follow::Beneath, false).await.expect("open");
    rustix::fs::fsync(file.as_fd()).expect("fsync");
    rustix::fs::fadvise(file.as_fd(), 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
    let sender = Sender::start(engine.clone(), ThreadPool::global().clone(), options);
    let sender = sender.expect("a sender");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let mut client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let reading = std::thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).expect("read");
        got
    });
    let (server, _) = listener.accept().expect("accept");
    server.set_nonblocking(true).expect("nonblocking");
    let stream = Stream::from_tcp(tokio::net::TcpStream::from_std(server).expect("register"));
    let mut queue = ChunkQueue::new();
    for _ in 0..2 {
        queue.push_bytes(Bytes::from_static(b"head"));
        queue.push_file(FileRange { file: Rc::clone(&file), offset: 0, length: BYTES as u64 });
    }
    let (progress, mut waits) = (Cell::new(0), SendWaits::default());
    let sent = sender.send_timed(&stream, &mut queue, u64::MAX, &progress, &mut waits).await;
    assert_eq!(sent.map_err(|error| format!("{backend}: {error}")), Ok(2 * (4 + BYTES as u64)));
    drop(stream);
    let joined = tokio::task::spawn_blocking(|| reading.join().expect("a client"));
    joined.await.expect("joined")
}

fn all_backends_deliver() {
    let content: Vec<u8> = (0..BYTES).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    let expected = [b"head", &content[..], b"head", &content[..]].concat();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for backend in NetworkBackend::ALL {
        if let Err(error) = backend.available() {
            eprintln!("{backend} is not tested here: {error}");
            continue;
        }
        let got = delivered(backend, &content);
        let got = tokio::task::LocalSet::new().block_on(&runtime, got);
        assert!(got == expected, "{backend}: {} bytes, or others", got.len());
    }
}

#[test]
fn forbidden_system_calls_have_a_fallback() {
    let news = || syscall_fallback::take_warnings().collect::<Vec<_>>();
    for (call, name) in [
        (libc::SYS_memfd_create, "memfd_create"),
        (libc::SYS_io_submit, "io_submit"),
        (libc::SYS_sendfile, "sendfile"),
        (libc::SYS_preadv2, "preadv2"),
    ] {
        assert!(news().is_empty());
        if !forbid(call) {
            return eprintln!("not tested here: {}", std::io::Error::last_os_error());
        }
        all_backends_deliver();
        let news = news();
        // If the file system has no direct reads, kernel AIO was never tried.
        assert!(news.len() <= 1 && news.iter().all(|text| text.contains(name)), "{name}: {news:?}");
        assert!(name != "sendfile" || news.len() == 1);
    }
    assert!(news().is_empty(), "told once");
}
