//! A minimal server around [`Connection`]: blocking sockets, a thread for each connection. It shows
//! how to drive the state machine, and other programs can talk to it.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lighty_http::{Fields, Known, Status};
use lighty_wire::http2::frame::{FRAME_BYTES_MAX, FRAME_HEAD_BYTES};
use lighty_wire::http2::{Connection, Event, Limits, SendFault, StreamKey};

/// Listens on a port of the kernel's choice (or on `port`) and serves until the process ends.
pub fn start(port: u16) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
    let addr = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || Served::new(stream).run());
        }
    });
    addr
}

/// State of a stream: its request's method and content, and the progress of its response.
#[derive(Default)]
struct Exchange {
    body: Vec<u8>,
    is_head: bool,
    echoes: bool,
    len: usize,
    sent: usize,
    trailers: bool,
}

struct Served {
    stream: TcpStream,
    conn: Connection,
    input: Vec<u8>,
    output: Vec<u8>,
    exchanges: HashMap<u32, Exchange>,
    since: Instant,
}

impl Served {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("an option");
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("an option");
        Self {
            stream,
            conn: Connection::server(Limits::default(), 0),
            input: Vec::new(),
            output: Vec::new(),
            exchanges: HashMap::new(),
            since: Instant::now(),
        }
    }

    fn now_ms(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }

    /// Reads, handles and writes in turn, until the peer or the state machine has finished.
    fn run(mut self) {
        let mut piece = [0; FRAME_BYTES_MAX + FRAME_HEAD_BYTES];
        loop {
            self.send();
            if self.stream.write_all(&self.output).is_err() {
                return;
            }
            self.output.clear();
            if self.conn.is_finished() {
                let _ = self.stream.shutdown(std::net::Shutdown::Write);
                // Waits until the peer has read the last output.
                while matches!(self.stream.read(&mut piece), Ok(1..)) {}
                return;
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return,
                Ok(len) => {
                    self.input.extend_from_slice(&piece[..len]);
                    self.handle();
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    let _ = self.conn.handle_timeout(self.now_ms());
                }
                Err(_) => return,
            }
        }
    }

    fn handle(&mut self) {
        let (mut at, now_ms) = (0, self.now_ms());
        let input = std::mem::take(&mut self.input);
        while let Ok(handled) = self.conn.handle_input(&input[at..], now_ms) {
            let piece = &input[at..];
            at += handled.consumed;
            match handled.event {
                None => break,
                Some(event) => self.take(event, piece),
            }
        }
        self.input = input[at.min(input.len())..].to_vec();
    }

    fn take(&mut self, event: Event, piece: &[u8]) {
        match event {
            Event::Request { stream, ends } => self.begin(stream, ends),
            Event::Oversized { stream, .. } => {
                let status = Status::REQUEST_HEADER_FIELDS_TOO_LARGE;
                self.conn.send_head(stream, status, &Fields::new(), true).expect("a head");
                self.conn.release(stream);
            }
            Event::Data { stream, start, len, ends } => {
                self.conn.credit(stream, len);
                if let Some(exchange) = self.exchanges.get_mut(&stream.id()) {
                    if exchange.echoes {
                        exchange.body.extend_from_slice(&piece[start..start + len]);
                    }
                    if ends {
                        self.respond(stream);
                    }
                }
            }
            Event::Trailers { stream } => self.respond(stream),
            Event::Reset { stream, .. } => {
                self.exchanges.remove(&stream.id());
                self.conn.release(stream);
            }
            Event::GoAway { .. } | Event::Pong { .. } => {}
            Event::Response { .. } | Event::Interim { .. } => unreachable!("a server"),
        }
    }

    /// Begins a response: `/bytes/N` has N bytes of content, `/trailers/N` also trailers; other
    /// paths echo the content.
    fn begin(&mut self, stream: StreamKey, ends: bool) {
        let head = self.conn.head();
        let path = String::from_utf8_lossy(head.path()).into_owned();
        let number = path.rsplit('/').next().and_then(|digits| digits.parse().ok());
        let trailers = path.starts_with("/trailers/");
        let exchange = Exchange {
            is_head: head.method() == b"HEAD",
            echoes: !trailers && !path.starts_with("/bytes/"),
            len: number.unwrap_or(0),
            trailers,
            ..Exchange::default()
        };
        self.exchanges.insert(stream.id(), exchange);
        if ends {
            self.respond(stream);
        }
    }

    fn respond(&mut self, stream: StreamKey) {
        let exchange = self.exchanges.get_mut(&stream.id()).expect("an exchange");
        if exchange.echoes {
            exchange.len = exchange.body.len().max(44);
            exchange.body.resize(exchange.len, b'.');
        }
        let mut fields = Fields::new();
        fields.push_known(Known::Server, "lighty");
        fields.push_known(Known::ContentType, "text/plain");
        if !exchange.trailers {
            fields.push_known(Known::ContentLength, exchange.len.to_string());
        }
        let ends = exchange.is_head || exchange.len == 0 && !exchange.trailers;
        self.conn.send_head(stream, Status::OK, &fields, ends).expect("a head");
        if ends {
            return self.finish(stream);
        }
        let last = !exchange.trailers;
        self.conn.queue_data(stream, exchange.len as u64, last).expect("content");
        if exchange.trailers && exchange.len == 0 {
            self.send_trailers(stream);
        }
    }

    /// Sends all pending output in one write.
    fn send(&mut self) {
        let now_ms = self.now_ms();
        while self.output.len() < 128 * 1024 {
            let Some(frame) = self.conn.poll_data(FRAME_BYTES_MAX, now_ms, &mut self.output) else {
                return;
            };
            let exchange = self.exchanges.get_mut(&frame.stream.id()).expect("an exchange");
            let part = exchange.sent..exchange.sent + frame.len;
            if exchange.echoes {
                self.output.extend_from_slice(&exchange.body[part.clone()]);
            } else {
                self.output.extend(part.clone().map(|nth| nth as u8));
            }
            exchange.sent = part.end;
            let is_over = exchange.sent == exchange.len;
            if frame.ends {
                self.finish(frame.stream);
            } else if is_over {
                self.send_trailers(frame.stream);
            }
        }
    }

    fn send_trailers(&mut self, stream: StreamKey) {
        let mut fields = Fields::new();
        fields.push(b"x-sum", b"42");
        match self.conn.send_trailers(stream, &fields) {
            Ok(()) => self.finish(stream),
            Err(fault) => assert_eq!(fault, SendFault::Gone),
        }
    }

    fn finish(&mut self, stream: StreamKey) {
        self.exchanges.remove(&stream.id());
        self.conn.release(stream);
    }
}
