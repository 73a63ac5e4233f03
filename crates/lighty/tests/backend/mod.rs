//! An HTTP backend that answers as the test says, and remembers what it was asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Request line and fields.
    pub(crate) head: String,
    /// Body, decoded.
    pub(crate) body: Vec<u8>,
}

impl Asked {
    /// The target of the request line.
    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).expect("a target")
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let of = |line: &'_ str| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| line.len() - value.trim_start().len())
        };
        self.head.lines().skip(1).find_map(|line| of(line).map(|at| &line[at..]))
    }
}

struct Shared {
    asked: Mutex<Vec<Asked>>,
    connections: AtomicUsize,
    stopped: AtomicBool,
}

/// A running backend.
pub(crate) struct Backend {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

impl Backend {
    /// Answers each request with the bytes that `answer` gives; an empty answer closes.
    pub(crate) fn start(answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            asked: Mutex::default(),
            connections: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let answer = Arc::new(answer);
        let listening = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if shared.stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    let (shared, answer) = (Arc::clone(&shared), Arc::clone(&answer));
                    std::thread::spawn(move || serve(stream, &shared, &*answer));
                }
            })
        };
        Self { address, shared, listening: Some(listening) }
    }

    /// `127.0.0.1:port`.
    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("the list").clone()
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

fn serve(mut stream: TcpStream, shared: &Shared, answer: &(dyn Fn(&Asked) -> Vec<u8> + Sync)) {
    let mut input = Vec::new();
    while let Some(asked) = read_request(&mut stream, &mut input) {
        let answer = answer(&asked);
        shared.asked.lock().expect("the list").push(asked);
        if answer.is_empty() || stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn read_request(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<Asked> {
    let end = loop {
        match input.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            Some(at) => break at,
            None => fill(stream, input)?,
        }
    };
    let head = String::from_utf8(input[..end].to_vec()).expect("a head in UTF-8");
    input.drain(..end + 4);
    let mut asked = Asked { head, body: Vec::new() };
    if let Some(length) = asked.field("Content-Length") {
        let length: usize = length.parse().expect("a length");
        while input.len() < length {
            fill(stream, input)?;
        }
        asked.body = input.drain(..length).collect();
    } else if asked.field("Transfer-Encoding").is_some() {
        asked.body = read_chunks(stream, input)?;
    }
    Some(asked)
}

fn read_chunks(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = loop {
            match input.windows(2).position(|bytes| bytes == b"\r\n") {
                Some(at) => break at,
                None => fill(stream, input)?,
            }
        };
        let digits = std::str::from_utf8(&input[..line]).expect("a size");
        let size = usize::from_str_radix(digits, 16).expect("a size");
        while input.len() < line + 2 + size + 2 {
            fill(stream, input)?;
        }
        body.extend_from_slice(&input[line + 2..line + 2 + size]);
        input.drain(..line + 2 + size + 2);
        if size == 0 {
            return Some(body);
        }
    }
}

fn fill(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 64 * 1024];
    let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
    input.extend_from_slice(&piece[..count]);
    Some(())
}

/// An answer with these fields (each line with its CRLF) and a body of known length.
pub(crate) fn answer(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}
