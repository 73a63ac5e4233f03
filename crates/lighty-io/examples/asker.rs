//! A lean HTTP client, so that the client does not limit the rates that `bench/hot.py` measures.
//!
//! It requests one URL over keep-alive connections, one request at a time on each, and reads only
//! the status and the length of a response. wrk parses every field and times every response: on a
//! core of its own it uses more processor time than some servers. These then wait for it, wake for
//! a few requests at a time, and pay for that.
//!
//! usage: `asker ADDRESS:PORT PATH CONNECTIONS SECONDS`; the output has wrk's format.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

const TURNS_PER_LOOK_AT_THE_CLOCK: u64 = 16;
const EVENTS_MAX: usize = 1024;
const OK: &[u8] = b"HTTP/1.1 200 ";

struct Conn {
    stream: TcpStream,
    /// Bytes received of the response in progress.
    got: usize,
}

/// Totals of one run.
#[derive(Default)]
struct Tally {
    requests: u64,
    bytes: u64,
    /// Responses with a status other than 200.
    refused: u64,
    /// Connections that ended or failed.
    broken: u64,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, conns, secs] = &arguments[..] else {
        return Err(usage("four words are wanted"));
    };
    let conns: usize = conns.parse().map_err(|_| usage("CONNECTIONS is a number"))?;
    let secs: u64 = secs.parse().map_err(|_| usage("SECONDS is a number"))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").into_bytes();
    let whole = response_bytes(address, &request)?;
    let begun = Instant::now();
    let tally = ask(address, &request, whole, conns, Duration::from_secs(secs))?;
    print(&tally, begun.elapsed().as_secs_f64())
}

fn usage(what: &str) -> io::Error {
    let message = format!("{what}; usage: asker ADDRESS:PORT PATH CONNECTIONS SECONDS");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Length of a whole response, head included. All responses have it, as only their dates differ.
fn response_bytes(address: &str, request: &[u8]) -> io::Result<usize> {
    const HEAD_END: &[u8] = b"\r\n\r\n";
    const LENGTH: &str = "content-length:";
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(request)?;
    let mut response = Vec::new();
    loop {
        if let Some(end) = response.windows(HEAD_END.len()).position(|bytes| bytes == HEAD_END) {
            let head = String::from_utf8_lossy(&response[..end]).to_ascii_lowercase();
            let value = head.lines().find_map(|line| line.strip_prefix(LENGTH));
            let length = value.and_then(|value| value.trim().parse::<usize>().ok());
            let length =
                length.ok_or_else(|| io::Error::other(format!("no Content-Length: {head}")))?;
            return Ok(end + HEAD_END.len() + length);
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => response.extend_from_slice(&piece[..count]),
        }
    }
}

fn ask(
    address: &str,
    request: &[u8],
    whole: usize,
    conns: usize,
    span: Duration,
) -> io::Result<Tally> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut all = Vec::with_capacity(conns);
    for index in 0..conns {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let data = EventData::new_u64(index as u64);
        epoll::add(&poll, &stream, data, EventFlags::IN | EventFlags::ET)?;
        all.push(Conn { stream, got: 0 });
    }
    for conn in &mut all {
        conn.stream.write_all(request)?;
    }
    let mut tally = Tally::default();
    let mut buffer = vec![0; 256 * 1024];
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let end = Instant::now() + span;
    for turn in 0u64.. {
        if turn.is_multiple_of(TURNS_PER_LOOK_AT_THE_CLOCK) && Instant::now() >= end {
            break;
        }
        events.clear();
        let timeout = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout))?;
        for event in &events {
            let conn = &mut all[event.data.u64() as usize];
            if take(conn, request, whole, &mut buffer, &mut tally).is_err() {
                tally.broken += 1;
            }
        }
    }
    Ok(tally)
}

/// Reads the available bytes, and sends the next request once the response is complete.
fn take(
    conn: &mut Conn,
    request: &[u8],
    whole: usize,
    buffer: &mut [u8],
    tally: &mut Tally,
) -> io::Result<()> {
    loop {
        let got = match conn.stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        tally.bytes += got as u64;
        if conn.got == 0 && !buffer[..got].starts_with(OK) {
            tally.refused += 1;
        }
        conn.got += got;
        if conn.got >= whole {
            conn.got -= whole;
            tally.requests += 1;
            return conn.stream.write_all(request);
        }
        if got < buffer.len() {
            return Ok(());
        }
    }
}

fn print(tally: &Tally, secs: f64) -> io::Result<()> {
    let mut out = io::stdout();
    let mb = tally.bytes as f64 / f64::from(1 << 20);
    writeln!(out, "  {} requests in {secs:.2}s, {mb:.2}MB read", tally.requests)?;
    if tally.broken > 0 {
        writeln!(out, "  Socket errors: connect 0, read {}, write 0, timeout 0", tally.broken)?;
    }
    if tally.refused > 0 {
        writeln!(out, "  Non-2xx or 3xx responses: {}", tally.refused)?;
    }
    writeln!(out, "Requests/sec: {:.2}", tally.requests as f64 / secs)
}
