//! A worker with a directory of files, and a client that reads to the end.

use std::cell::Cell;
use std::future::Future;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use bytes::Bytes;
use lighty_buf::{ChunkQueue, FileRange};
use socket2::{Domain, Socket, Type};

use crate::file::{EngineChoice, EngineLimits, FileEngine, Follow, Root};
use crate::send::{File, NetworkBackend, SendOptions, Sender};
use crate::threads::pool::ThreadPool;
use crate::transport::Stream;

/// Runs a test on a worker: one thread, one loop.
pub(super) fn on_worker<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let local = tokio::task::LocalSet::new();
    runtime.expect("runtime").block_on(local.run_until(test))
}

/// Runs a test for every backend that this machine has, over both file engines.
pub(super) fn for_all(test: impl AsyncFn(SendTestBed)) {
    for backend in NetworkBackend::ALL {
        for_backend(backend, &test);
    }
}

/// Runs a test for one backend over both file engines.
pub(super) fn for_backend(backend: NetworkBackend, test: impl AsyncFn(SendTestBed)) {
    if let Err(error) = backend.available() {
        eprintln!("{backend} is not tested here: {error}");
        return;
    }
    for choice in [EngineChoice::Threads, EngineChoice::Uring] {
        let options = SendOptions { backend, ..SendOptions::default() };
        on_worker(async {
            match SendTestBed::new(choice, options).await {
                Ok(bed) => test(bed).await,
                // No ring on this machine; the thread engine has passed the same tests.
                Err(error) => eprintln!("{choice:?} is not tested here: {error}"),
            }
        });
    }
}

pub(super) struct SendTestBed {
    dir: tempfile::TempDir,
    root: Rc<Root>,
    pub(super) engine: FileEngine,
    pub(super) sender: Sender,
}

impl SendTestBed {
    pub(super) async fn new(choice: EngineChoice, options: SendOptions) -> io::Result<SendTestBed> {
        let limits =
            EngineLimits { read_chunk_bytes: options.read_chunk_bytes, ..EngineLimits::default() };
        let engine = FileEngine::start(choice, limits)?;
        let dir = tempfile::tempdir()?;
        let root = engine.open_root(dir.path()).await?;
        let sender = Sender::start(engine.clone(), ThreadPool::global().clone(), options)?;
        Ok(SendTestBed { dir, root, engine, sender })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file with the first `bytes` of the pattern, evicted from the page cache if the file system
    /// can.
    pub(super) async fn cold_file(&self, name: &str, bytes: usize) -> File {
        let file = self.file(name, bytes).await;
        self.chill(&file);
        file
    }

    pub(super) async fn file(&self, name: &str, bytes: usize) -> File {
        std::fs::write(self.path(name), pattern(0, bytes)).expect("write");
        self.open(name).await
    }

    pub(super) async fn open(&self, name: &str) -> File {
        let opened = self.engine.open(&self.root, name.as_bytes(), Follow::Beneath, false).await;
        opened.expect("open")
    }

    /// Makes the kernel evict the file's pages, and the engine forget its records of them.
    pub(super) fn chill(&self, file: &File) {
        rustix::fs::fsync(file.as_fd()).expect("fsync");
        let all = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(file.as_fd(), 0, None, all).expect("fadvise");
        self.engine.forget_resident(file);
    }

    /// Sends a queue to a client that reads fast, and returns the bytes that it received.
    pub(super) async fn deliver(&self, queue: &mut ChunkQueue<File>) -> io::Result<Vec<u8>> {
        let (stream, client) = connect(None);
        let client = read_to_end(client);
        let announced = queue.len_bytes();
        let progress = Cell::new(0);
        let sent = self.sender.send(&stream, queue, u64::MAX, &progress).await;
        drop(stream);
        let got = joined(client).await;
        if let Ok(sent) = &sent {
            assert_eq!((*sent, progress.get(), queue.is_empty()), (announced, announced, true));
        }
        sent.map(|_| got)
    }
}

/// The largest file of the tests that is not sparse.
const PATTERN_BYTES: usize = 12 << 20;

/// Bytes that identify their offset in a file. Generated once, because they are compared often.
pub(super) fn pattern(offset: u64, bytes: usize) -> &'static [u8] {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    let byte = |at: usize| (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(167)) as u8;
    let all = ALL.get_or_init(|| (0..PATTERN_BYTES).map(byte).collect());
    &all[offset as usize..][..bytes]
}

/// A queue of `head`, ranges of one file, and `tail`.
pub(super) fn queue_of(head: &'static str, file: &File, ranges: &[(u64, u64)]) -> ChunkQueue<File> {
    let mut queue = ChunkQueue::new();
    queue.push_bytes(Bytes::from_static(head.as_bytes()));
    for (offset, length) in ranges {
        queue.push_file(FileRange { file: Rc::clone(file), offset: *offset, length: *length });
    }
    queue
}

/// A connected pair; the client's receive buffer, and our send buffer with it, can be made small.
pub(super) fn connect(receive_bytes: Option<usize>) -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
    if let Some(bytes) = receive_bytes {
        client.set_recv_buffer_size(bytes).expect("SO_RCVBUF");
    }
    client.connect(&address.into()).expect("connect");
    let (server, _) = listener.accept().expect("accept");
    server.set_nonblocking(true).expect("nonblocking");
    server.set_nodelay(true).expect("nodelay");
    if let Some(bytes) = receive_bytes {
        let socket = socket2::SockRef::from(&server);
        socket.set_send_buffer_size(bytes).expect("SO_SNDBUF");
    }
    let server = tokio::net::TcpStream::from_std(server).expect("register");
    (Stream::from_tcp(server), client.into())
}

pub(super) fn read_to_end(mut client: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).expect("read");
        got
    })
}

/// Waits for a client without stopping the loop.
pub(super) async fn joined<T: Send + 'static>(client: JoinHandle<T>) -> T {
    tokio::task::spawn_blocking(move || client.join().expect("client")).await.expect("join")
}
