//! Frames an answer and sends it.
//!
//! The head and a small body leave in one `send`; a file goes to the network backend untouched.
//! Only what did not fit into the socket takes the slow path, which is boxed.

use std::rc::Rc;

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_core::{Body, Exchange};
use lighty_http::Known;
use lighty_http::Version;
use lighty_io::send::{Sender, State};
use lighty_io::transport::Stream;
use lighty_wire::http1::response as encode;

use super::Busy;
use crate::slots::{Slot, Waits};
use crate::worker::Worker;

/// Bodies up to this size are copied behind the head and leave with it in one call.
const INLINE_BODY_BYTES_MAX: usize = 32 * 1024;

/// Least bytes of a throttled answer's budget that go out by themselves.
const UNLIMITED: u64 = u64::MAX;

/// How the end of the body is marked (RFC 9112 section 6).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    None,
    Length,
    Chunked,
    Close,
}

/// Sends the answer in `busy.exchange`. An error means that the connection is to be cut.
pub async fn send(
    busy: &mut Busy,
    stream: &Rc<Stream>,
    slot: &Rc<Slot>,
    worker: &Rc<Worker>,
) -> std::io::Result<()> {
    let framing = encode_head(busy, worker);
    let body = std::mem::take(&mut busy.exchange.response.body);
    let body = if framing == Framing::None { Body::Empty } else { body };
    slot.wait_for(Waits::Write, worker.now_s());
    let throttled = is_throttled(&busy.exchange);
    match body {
        Body::Empty => {}
        Body::Memory(bytes) if bytes.len() <= INLINE_BODY_BYTES_MAX => {
            busy.out.extend_from_slice(&bytes);
        }
        Body::Memory(bytes) => busy.queue.push_bytes(bytes),
        Body::File { file, offset, length } => busy.queue.push_file(file, offset, length),
        Body::Chunks(mut chunks) => busy.queue.append(&mut chunks),
        Body::Stream(source) => {
            return Box::pin(send_stream(busy, stream, slot, worker, source, framing)).await;
        }
    }
    if throttled {
        return Box::pin(send_throttled(busy, stream, slot, worker)).await;
    }
    if send_out(busy, stream)? && send_now(busy, stream, &worker.sender)? {
        return Ok(());
    }
    Box::pin(send_rest(busy, stream, slot, worker)).await
}

/// Writes the head; `false` when the socket took only a part, which then stands first in the
/// queue.
fn send_out(busy: &mut Busy, stream: &Stream) -> std::io::Result<bool> {
    let sent = match stream.try_write(&busy.out) {
        Ok(count) => count,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    busy.exchange.bytes_sent += sent as u64;
    if sent == busy.out.len() {
        return Ok(true);
    }
    let rest = Bytes::copy_from_slice(&busy.out[sent..]);
    busy.queue.push_front_bytes(rest);
    Ok(false)
}

/// Sends what goes out without waiting; `true` when nothing is left.
fn send_now(busy: &mut Busy, stream: &Stream, sender: &Sender) -> std::io::Result<bool> {
    if busy.queue.is_empty() {
        return Ok(true);
    }
    let sent = sender.try_send(stream, &mut busy.queue, UNLIMITED)?;
    busy.exchange.bytes_sent += sent.bytes;
    Ok(sent.state == State::Done)
}

async fn send_rest(
    busy: &mut Busy,
    stream: &Stream,
    slot: &Slot,
    worker: &Worker,
) -> std::io::Result<()> {
    let result = worker.sender.send(stream, &mut busy.queue, UNLIMITED, &slot.progress).await;
    busy.exchange.bytes_sent += slot.progress.get();
    result.map(|_| ())
}

fn is_throttled(ex: &Exchange) -> bool {
    let core = &ex.settings.core;
    core.kbytes_per_second > 0 || core.connection_kbytes_per_second > 0
}

/// Sends under `server.kbytes-per-second` and `connection.kbytes-per-second`.
async fn send_throttled(
    busy: &mut Busy,
    stream: &Stream,
    slot: &Slot,
    worker: &Worker,
) -> std::io::Result<()> {
    use lighty_core::throttle::Bucket;
    let core = busy.exchange.settings.core.clone();
    let now = || worker.services.clock.mono_ms();
    let shared = (core.kbytes_per_second > 0).then(|| {
        let make = || Rc::new(Bucket::per_second(core.kbytes_per_second, now()));
        Rc::clone(busy.exchange.settings.local.bucket.get_or_init(make))
    });
    let own = (core.connection_kbytes_per_second > 0)
        .then(|| Rc::new(Bucket::per_second(core.connection_kbytes_per_second, now())));
    let buckets: Vec<Rc<Bucket>> = shared.into_iter().chain(own).collect();
    if !send_out(busy, stream)? {
        stream.writable().await?;
    }
    while !busy.queue.is_empty() {
        let allowed = buckets.iter().map(|b| b.available(now())).reduce(|a, b| match (a, b) {
            (Ok(a), Ok(b)) => Ok(a.min(b)),
            (Err(a), Err(b)) => Err(a.max(b)),
            (Err(wait), _) | (_, Err(wait)) => Err(wait),
        });
        match allowed.unwrap_or(Ok(UNLIMITED)) {
            Err(wait_ms) => {
                tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
                worker.services.clock.refresh();
                // Waiting for the limit is not the client's slowness.
                slot.wait_for(Waits::Write, worker.now_s());
            }
            Ok(budget) => {
                slot.wait_for(Waits::Write, worker.now_s());
                let sender = &worker.sender;
                let sent = sender.send(stream, &mut busy.queue, budget, &slot.progress).await?;
                busy.exchange.bytes_sent += sent;
                buckets.iter().for_each(|bucket| bucket.take(sent));
            }
        }
    }
    Ok(())
}

/// Sends a body that is produced while it is sent, one piece at a time.
async fn send_stream(
    busy: &mut Busy,
    stream: &Rc<Stream>,
    slot: &Rc<Slot>,
    worker: &Rc<Worker>,
    mut source: Box<dyn lighty_core::BodyStream>,
    framing: Framing,
) -> std::io::Result<()> {
    let throttled = is_throttled(&busy.exchange);
    if !send_out(busy, stream)? {
        send_rest(busy, stream, slot, worker).await?;
    }
    let mut produced = 0u64;
    let announced = source.known_length();
    loop {
        slot.wait_for(Waits::Handler, worker.now_s());
        let next = std::future::poll_fn(|cx| source.poll_next(cx)).await;
        slot.wait_for(Waits::Write, worker.now_s());
        let Some(chunk) = next else { break };
        produced += push_framed(busy, chunk?, framing);
        busy.out.clear();
        if throttled {
            Box::pin(send_throttled(busy, stream, slot, worker)).await?;
        } else if !send_now(busy, stream, &worker.sender)? {
            send_rest(busy, stream, slot, worker).await?;
        }
    }
    if announced.is_some_and(|length| length != produced) {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    if framing == Framing::Chunked {
        busy.queue.push_bytes(Bytes::from_static(b"0\r\n\r\n"));
        if !send_now(busy, stream, &worker.sender)? {
            send_rest(busy, stream, slot, worker).await?;
        }
    }
    Ok(())
}

/// Queues a piece with its chunk framing; returns the piece's length.
fn push_framed(
    busy: &mut Busy,
    chunk: Chunk<Rc<lighty_io::file::OpenFile>>,
    framing: Framing,
) -> u64 {
    let length = match &chunk {
        Chunk::Memory(bytes) => bytes.len() as u64,
        Chunk::File(range) => range.length,
    };
    if length == 0 {
        return 0;
    }
    if framing == Framing::Chunked {
        busy.queue.push_bytes(Bytes::from(format!("{length:x}\r\n")));
    }
    match chunk {
        Chunk::Memory(bytes) => busy.queue.push_bytes(bytes),
        Chunk::File(range) => busy.queue.push_file(range.file, range.offset, range.length),
    }
    if framing == Framing::Chunked {
        busy.queue.push_bytes(Bytes::from_static(b"\r\n"));
    }
    length
}

/// Decides the framing and writes the head into `busy.out`.
fn encode_head(busy: &mut Busy, worker: &Worker) -> Framing {
    let ex = &mut busy.exchange;
    let status = ex.response.status;
    let length = ex.response.body.known_length();
    let bodiless = !status.allows_content() || ex.request.is_head();
    let framing = match length {
        _ if bodiless => Framing::None,
        Some(_) => Framing::Length,
        None if ex.request.version == Version::Http11 => Framing::Chunked,
        None => Framing::Close,
    };
    if framing == Framing::Close || ex.response.close {
        ex.keep_alive = false;
    }
    let out = &mut busy.out;
    out.clear();
    encode::status_line(status, out);
    if !ex.settings.core.tag.is_empty() && !ex.response.fields.contains(Known::Server) {
        encode::field(b"Server", ex.settings.core.tag.as_bytes(), out);
    }
    encode::field(b"Date", &worker.date(), out);
    encode::fields(&ex.response.fields, out);
    match framing {
        Framing::Length => encode::content_length(length.unwrap_or(0), out),
        Framing::Chunked => encode::field(b"Transfer-Encoding", b"chunked", out),
        Framing::None if status.allows_content() => {
            // HEAD: what GET would have said.
            match ex.response.described_length.or(length) {
                Some(length) => encode::content_length(length, out),
                None => encode::field(b"Transfer-Encoding", b"chunked", out),
            }
        }
        Framing::None | Framing::Close => {}
    }
    match (ex.keep_alive, ex.request.version) {
        (false, _) => encode::field(b"Connection", b"close", out),
        (true, Version::Http10) => encode::field(b"Connection", b"keep-alive", out),
        (true, Version::Http11) => {}
    }
    out.extend_from_slice(b"\r\n");
    ex.head_sent = out.len() as u64;
    framing
}
