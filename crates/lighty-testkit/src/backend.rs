//! Scripted backends: a listener whose connections each run a script on a thread of their own.
//!
//! Requests are kept as received, so that a test can compare the proxy's output with the expected
//! bytes. A script that panics fails the test when the backend is dropped.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socket_with, sockopt};

use crate::client::ConnectionEnd;
use crate::response::Chunks;

/// Maximum bytes of each connection that are kept as received.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Formats a response with these fields (each line with its CRLF) and a body of known length.
#[must_use]
pub fn answer(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// A request as received by a backend.
#[derive(Clone, Debug, Default)]
pub struct RequestSeen {
    /// Request line and fields, without the final empty line.
    pub head: String,
    /// Body, decoded from its framing.
    pub body: Vec<u8>,
    /// Lines after the last chunk.
    pub trailers: Vec<String>,
    /// Number of the request's connection, from 0.
    pub connection: usize,
    /// Time at which its head was complete.
    pub at: Option<Instant>,
}

impl RequestSeen {
    /// The method.
    #[must_use]
    pub fn method(&self) -> &str {
        self.line().split(' ').next().unwrap_or("")
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &str {
        self.line().split(' ').nth(1).unwrap_or("")
    }

    /// The request line.
    #[must_use]
    pub fn line(&self) -> &str {
        self.head.split("\r\n").next().unwrap_or("")
    }

    /// The values of every field of this name.
    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The value of the only field of this name; panics if there are several.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.all(name);
        let first = found.next();
        assert!(found.next().is_none(), "{name} occurs more than once:\n{}", self.head);
        first
    }
}

type BackendScript = dyn Fn(&mut Peer) + Send + Sync;

struct SharedBackend {
    script: Box<BackendScript>,
    /// TLS configuration, if the backend uses TLS.
    tls: Option<Arc<ServerConfig>>,
    stopping: AtomicBool,
    opened: AtomicUsize,
    open: AtomicUsize,
    most_open: AtomicUsize,
    state: Mutex<BackendState>,
}

#[derive(Default)]
struct BackendState {
    sockets: Vec<Weak<TcpStream>>,
    threads: Vec<JoinHandle<()>>,
    requests: Vec<RequestSeen>,
    heard: Vec<Vec<u8>>,
}

impl SharedBackend {
    fn state(&self) -> MutexGuard<'_, BackendState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener on 127.0.0.1 with its accepted connections.
pub struct Backend {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    shared: Arc<SharedBackend>,
    acceptor: Option<JoinHandle<()>>,
}

impl Backend {
    /// Runs `script` for each connection. The connection is closed when the script returns.
    #[must_use]
    pub fn start(script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::over(TcpListener::bind("127.0.0.1:0").expect("a port"), None, Box::new(script))
    }

    /// Like [`Backend::start`], over TLS: the script runs after the handshake.
    #[must_use]
    pub fn start_tls(
        config: &Arc<ServerConfig>,
        script: impl Fn(&mut Peer) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Self::over(listener, Some(Arc::clone(config)), Box::new(script))
    }

    /// Like [`Backend::start`], on a reserved port.
    #[must_use]
    pub fn start_at(port: &Port, script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::over(TcpListener::bind(port.address()).expect("the port"), None, Box::new(script))
    }

    /// Responds to every request with this body and keeps the connection.
    #[must_use]
    pub fn answering(body: &'static str) -> Self {
        Self::start(move |peer| peer.respond_to_all(body))
    }

    /// Reads each request with its body, and responds with the bytes that `answer` returns. An
    /// empty response closes the connection.
    #[must_use]
    pub fn replying(answer: impl Fn(&RequestSeen) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |peer| {
            while let Some(requests) = peer.request() {
                let answer = answer(&requests);
                if answer.is_empty() || !peer.send(answer) {
                    return;
                }
            }
        })
    }

    /// Reads a request on each connection and then runs `act`. The connection is closed afterwards.
    #[must_use]
    pub fn after_request(act: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::start(move |peer| {
            if peer.request().is_some() {
                act(peer);
            }
        })
    }

    fn over(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        script: Box<BackendScript>,
    ) -> Self {
        let address = listener.local_addr().expect("an address");
        let listener = Arc::new(listener);
        let shared = Arc::new(SharedBackend {
            script,
            tls,
            stopping: AtomicBool::new(false),
            opened: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
            state: Mutex::default(),
        });
        let acceptor = {
            let (listener, shared) = (Arc::clone(&listener), Arc::clone(&shared));
            std::thread::spawn(move || accept(&listener, &shared))
        };
        Self { address, listener, shared, acceptor: Some(acceptor) }
    }

    /// Address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of the listener, as text for a configuration.
    #[must_use]
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.shared.opened.load(Ordering::SeqCst)
    }

    /// Connections with a running script.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Maximum number of concurrent connections so far. One that the server has closed no longer
    /// counts, even if its script has not noticed.
    #[must_use]
    pub fn most_open(&self) -> usize {
        self.shared.most_open.load(Ordering::SeqCst)
    }

    /// All requests so far, in the order in which their heads were complete.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestSeen> {
        self.shared.state().requests.clone()
    }

    /// Requests for this target.
    #[must_use]
    pub fn requests_for(&self, target: &str) -> Vec<RequestSeen> {
        self.requests().into_iter().filter(|requests| requests.target() == target).collect()
    }

    /// The bytes of each connection as received, up to a megabyte each.
    #[must_use]
    pub fn heard(&self) -> Vec<Vec<u8>> {
        self.shared.state().heard.clone()
    }

    /// Stops like a killed process: the listener and every connection are closed.
    pub fn kill(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor. Some systems cannot shut down a listener, so a connection is made
        // too.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
        acceptor.join().expect("the acceptor ends");
        let sockets = std::mem::take(&mut self.shared.state().sockets);
        for socket in sockets.iter().filter_map(Weak::upgrade) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut self.shared.state().threads);
        for thread in threads {
            if let Err(panic) = thread.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.kill();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<SharedBackend>) {
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok((socket, _)) = accepted else { return };
        let number = shared.opened.fetch_add(1, Ordering::SeqCst);
        shared.open.fetch_add(1, Ordering::SeqCst);
        let socket = Arc::new(socket);
        let mut state = shared.state();
        state.sockets.retain(|known| known.strong_count() > 0);
        state.sockets.push(Arc::downgrade(&socket));
        let open = state.sockets.iter().filter_map(Weak::upgrade).filter(|it| !is_closed(it));
        shared.most_open.fetch_max(open.count(), Ordering::SeqCst);
        state.heard.push(Vec::new());
        let counted = Arc::clone(shared);
        state.threads.push(std::thread::spawn(move || run(socket, number, &counted)));
    }
}

/// True if the other end has closed the connection, whatever is left to read.
fn is_closed(socket: &TcpStream) -> bool {
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut polled = [PollFd::new(socket, ends)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&none)).is_ok_and(|ready| ready > 0)
}

fn run(socket: Arc<TcpStream>, number: usize, shared: &Arc<SharedBackend>) {
    /// Decrements the counter even if the script panics.
    struct Count<'a>(&'a SharedBackend);
    impl Drop for Count<'_> {
        fn drop(&mut self) {
            self.0.open.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let _count = Count(shared);
    socket.set_nodelay(true).expect("TCP_NODELAY");
    let Ok(tls) = shared.tls.as_ref().map(|config| shake_hands(config, &socket)).transpose() else {
        return;
    };
    let mut peer = Peer { socket, tls, pending: Vec::new(), number, shared: Arc::clone(shared) };
    (shared.script)(&mut peer);
    peer.say_end();
}

fn shake_hands(config: &Arc<ServerConfig>, socket: &TcpStream) -> io::Result<ServerConnection> {
    let mut tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut &*socket)?;
    }
    Ok(tls)
}

/// The backend's end of a connection.
pub struct Peer {
    socket: Arc<TcpStream>,
    tls: Option<ServerConnection>,
    pending: Vec<u8>,
    number: usize,
    shared: Arc<SharedBackend>,
}

impl Peer {
    /// Number of the connection, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Reads the head of a request and leaves its body unread; `None` if the connection ends
    /// instead.
    pub fn head(&mut self) -> Option<RequestSeen> {
        let end = loop {
            if let Some(at) = self.pending.windows(4).position(|w| w == b"\r\n\r\n") {
                break at;
            }
            if self.fill() == 0 {
                return None;
            }
        };
        let head: Vec<u8> = self.pending.drain(..end + 4).take(end).collect();
        let requests = RequestSeen {
            head: String::from_utf8_lossy(&head).into_owned(),
            connection: self.number,
            at: Some(Instant::now()),
            ..RequestSeen::default()
        };
        self.shared.state().requests.push(requests.clone());
        Some(requests)
    }

    /// Reads a request with its body; `None` if the connection ends before.
    pub fn request(&mut self) -> Option<RequestSeen> {
        let at = self.shared.state().requests.len();
        let mut requests = self.head()?;
        if requests.field("Transfer-Encoding").is_some() {
            (requests.body, requests.trailers) = self.chunked()?;
        } else if let Some(length) = requests.field("Content-Length") {
            requests.body = self.read_exact(length.parse().expect("a length"))?;
        }
        let mut state = self.shared.state();
        let mine =
            state.requests[at..].iter_mut().find(|known| known.connection == requests.connection);
        if let Some(mine) = mine {
            mine.clone_from(&requests);
        }
        drop(state);
        Some(requests)
    }

    fn chunked(&mut self) -> Option<(Vec<u8>, Vec<String>)> {
        let mut chunks = Chunks::default();
        while !chunks.take(&mut self.pending).expect("a chunked body") {
            if self.fill() == 0 {
                return None;
            }
        }
        Some((chunks.body, chunks.trailers))
    }

    /// Reads one line, byte by byte, so that later bytes stay in the socket.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\n") && (&*self.socket).read(&mut byte).unwrap_or(0) > 0 {
            line.extend_from_slice(&byte);
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Relays bytes both ways between the client and another address until either ends.
    pub fn relay(&mut self, to: SocketAddr) {
        let other = TcpStream::connect(to).expect("connected");
        let pass = |mut from: &TcpStream, mut to: &TcpStream| {
            // An end or error in one direction also ends the other.
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| pass(&self.socket, &other));
            pass(&other, &self.socket);
        });
    }

    /// Reads exactly `count` bytes; `None` if the connection ends before.
    pub fn read_exact(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.pending.len() < count {
            if self.fill() == 0 {
                return None;
            }
        }
        Some(self.pending.drain(..count).collect())
    }

    /// Reads and drops at most `count` bytes; returns the number of bytes.
    pub fn skip(&mut self, count: u64) -> u64 {
        let mut got = 0;
        while got < count {
            if self.pending.is_empty() && self.fill() == 0 {
                break;
            }
            let most = usize::try_from(count - got).unwrap_or(usize::MAX);
            let taken = self.pending.len().min(most);
            self.pending.drain(..taken);
            got += taken as u64;
        }
        got
    }

    /// Sends bytes; `false` if the peer does not accept them.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        match &mut self.tls {
            None => (&*self.socket).write_all(bytes.as_ref()).is_ok(),
            Some(tls) => {
                let mut socket = &*self.socket;
                let mut stream = rustls::Stream::new(tls, &mut socket);
                stream.write_all(bytes.as_ref()).and_then(|()| stream.flush()).is_ok()
            }
        }
    }

    /// The server name that the client requested over TLS.
    #[must_use]
    pub fn server_name(&self) -> Option<String> {
        self.tls.as_ref()?.server_name().map(str::to_owned)
    }

    /// True if TLS resumed an earlier session.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        let kind = self.tls.as_ref().and_then(|tls| tls.handshake_kind());
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// Sends close_notify over TLS.
    pub fn say_end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.complete_io(&mut &*self.socket);
        }
    }

    /// Sends bytes in pieces of the given size with a pause after each.
    pub fn drip(&mut self, bytes: impl AsRef<[u8]>, piece: usize, pause: Duration) -> bool {
        bytes.as_ref().chunks(piece).all(|part| {
            let sent = self.send(part);
            std::thread::sleep(pause);
            sent
        })
    }

    /// Responds 200 with a body of known length, and keeps the connection.
    pub fn answer(&mut self, body: &str) -> bool {
        self.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }

    /// Responds to every request of the connection.
    pub fn respond_to_all(&mut self, body: &str) {
        while let Some(requests) = self.request() {
            if requests.method() == "HEAD" {
                self.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
            } else {
                self.answer(body);
            }
        }
    }

    /// Closes the sending direction only.
    pub fn half_close(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Closes both directions, like a close. Returns true if there were unread bytes by then. The
    /// kernel rejects later ones.
    pub fn end(&mut self) -> bool {
        let _ = self.socket.shutdown(Shutdown::Both);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&*self.socket, &mut [0; 1], flags).is_ok_and(|(_, count)| count > 0)
    }

    /// Makes the close at the end of the script a reset.
    pub fn reset(&mut self) {
        sockopt::set_socket_linger(&*self.socket, Some(Duration::ZERO)).expect("SO_LINGER");
    }

    /// Sends nothing until the peer ends the connection; returns the kind of end.
    pub fn hang(&mut self) -> ConnectionEnd {
        let mut piece = [0; 64 * 1024];
        loop {
            match (&*self.socket).read(&mut piece) {
                Ok(0) => return ConnectionEnd::Closed,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return ConnectionEnd::Reset,
            }
        }
    }

    /// True if the backend is being stopped.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::SeqCst)
    }

    /// Reads available bytes; returns 0 at the end of the connection or after an error.
    fn fill(&mut self) -> usize {
        let mut piece = [0; 64 * 1024];
        let read = match &mut self.tls {
            None => (&*self.socket).read(&mut piece),
            Some(tls) => rustls::Stream::new(tls, &mut &*self.socket).read(&mut piece),
        };
        let count = read.unwrap_or(0);
        self.pending.extend_from_slice(&piece[..count]);
        let mut state = self.shared.state();
        let heard = &mut state.heard[self.number];
        let room = KEPT_BYTES_MAX.saturating_sub(heard.len());
        heard.extend_from_slice(&piece[..count.min(room)]);
        count
    }
}

/// A reserved port of 127.0.0.1 without a listener.
pub struct Port {
    address: SocketAddr,
    /// Bound but never listening. A program that sets SO_REUSEADDR may listen on the port as well.
    holder: OwnedFd,
}

impl Port {
    /// Reserves a port.
    #[must_use]
    pub fn reserve() -> Self {
        // Not inherited by servers that tests start: they would seem to listen on it.
        let flags = SocketFlags::CLOEXEC;
        let holder = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let holder = holder.expect("a socket");
        sockopt::set_socket_reuseaddr(&holder, true).expect("SO_REUSEADDR");
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        rustix::net::bind(&holder, &any).expect("a port");
        let address = rustix::net::getsockname(&holder).expect("its name");
        let address = SocketAddr::try_from(address).expect("an address of the internet family");
        Self { address, holder }
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A listener that does not accept and has a full queue: connecting to it hangs.
pub struct FullListener {
    address: SocketAddr,
    _listener: OwnedFd,
    _waiting: Vec<TcpStream>,
}

impl FullListener {
    /// Listens and fills the queue.
    #[must_use]
    pub fn start() -> Self {
        let port = Port::reserve();
        rustix::net::listen(&port.holder, 0).expect("listen");
        let mut waiting = Vec::new();
        let address = port.address;
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            waiting.push(stream);
            assert!(waiting.len() < 16, "the queue does not fill");
        }
        Self { address, _listener: port.holder, _waiting: waiting }
    }

    /// Address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
