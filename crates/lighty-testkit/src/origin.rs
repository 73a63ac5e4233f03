//! An HTTP/1.1 backend that responds to every request with its name.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A running backend. Dropping it closes its listener and its connections.
pub struct Origin {
    address: SocketAddr,
    state: Arc<OriginState>,
    thread: Option<JoinHandle<()>>,
}

struct OriginState {
    name: String,
    requests: AtomicUsize,
    status: AtomicU16,
    stopped: AtomicBool,
    /// Copies of the connections' sockets.
    connections: Mutex<Vec<TcpStream>>,
}

impl OriginState {
    fn connections(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Origin {
    /// Starts a backend on a port that the kernel chooses.
    #[must_use]
    pub fn start(name: &str) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), name)
    }

    /// Starts a backend at an address.
    ///
    /// # Panics
    /// If the address is taken.
    #[must_use]
    pub fn start_at(address: SocketAddr, name: &str) -> Self {
        let listener = TcpListener::bind(address).expect("an address for a backend");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(OriginState {
            name: name.to_owned(),
            requests: AtomicUsize::new(0),
            status: AtomicU16::new(200),
            stopped: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let state = Arc::clone(&shared);
                if let Ok(stream) = stream {
                    shared.connections().push(stream.try_clone().expect("a descriptor"));
                    std::thread::spawn(move || respond(stream, &state));
                }
            }
        });
        Self { address, state, thread: Some(thread) }
    }

    /// Address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of requests it has responded to.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Sets the status of later responses.
    pub fn set_status(&self, status: u16) {
        self.state.status.store(status, Ordering::SeqCst);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread, which then closes the listener.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for connection in self.state.connections().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Responds to the requests of a connection. They must not have a body.
fn respond(mut stream: TcpStream, state: &OriginState) {
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => heard.extend_from_slice(&buffer[..count]),
        }
        while let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n") {
            heard.drain(..end + 4);
            state.requests.fetch_add(1, Ordering::SeqCst);
            let (status, name) = (state.status.load(Ordering::SeqCst), &state.name);
            let length = name.len();
            let text = format!("HTTP/1.1 {status} So\r\nContent-Length: {length}\r\n\r\n{name}");
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }
}
