//! Frames a response and sends it.
//!
//! The head and a small body leave in one `send`; a file goes straight to the network backend. Only
//! what the socket did not accept takes the slow path, which is boxed.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use lighty_buf::{Chunk, FileRange};
use lighty_core::status_board::ConnState;
use lighty_core::throttle::Bucket;
use lighty_core::{Body, Exchange, Fault, Response, Tunnel, trace};
use lighty_http::{Fields, Known, Version, decimal};
use lighty_io::send::{SendState, Sender};
use lighty_io::transport::Stream;
use lighty_wire::http1::response as encode;

use super::H1Exchange;
use super::meanwhile::meanwhile;
use crate::conn_table::ConnEntry;
use crate::worker::Worker;

/// Bodies up to this size are copied after the head and sent with it in one call.
const INLINE_BODY_BYTES_MAX: usize = 32 * 1024;

/// No bandwidth limit.
const UNLIMITED: u64 = u64::MAX;

/// How the end of the body is marked (RFC 9112 section 6).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    None,
    Length,
    Chunked,
    Close,
}

/// Sends the response in `h1.exchange`. On error the caller must cut the connection.
pub(crate) async fn send(
    h1: &mut H1Exchange,
    stream: &Rc<Stream>,
    entry: &Rc<ConnEntry>,
    worker: &Rc<Worker>,
) -> std::io::Result<()> {
    let rest = send_at_once(h1, stream, entry, worker)?;
    send_rest(rest, h1, stream, entry, worker).await
}

/// Sends what [`send_at_once`] left over.
pub(crate) async fn send_rest(
    rest: Rest,
    h1: &mut H1Exchange,
    stream: &Rc<Stream>,
    entry: &Rc<ConnEntry>,
    worker: &Rc<Worker>,
) -> std::io::Result<()> {
    match rest {
        Rest::Nothing => Ok(()),
        Rest::Queue => {
            meanwhile(None, Rc::clone(&h1.input), send_queue(h1, stream, entry, worker)).await
        }
        Rest::Throttled => {
            let input = Rc::clone(&h1.input);
            meanwhile(None, input, send_throttled(h1, stream, entry, worker)).await
        }
        Rest::Tunnel(tunnel) => hand_over(h1, stream, entry, worker, tunnel).await,
        Rest::Stream(source, framing) => {
            let sent = send_stream(h1, stream, entry, worker, source, framing).await;
            if sent.is_err() && framing == Framing::Close {
                // An orderly close would look like a complete body.
                stream.reset_on_close();
            }
            sent
        }
    }
}

/// What is left to send after the first attempt.
pub(crate) enum Rest {
    Nothing,
    /// The socket is full; the rest is queued.
    Queue,
    /// The whole response, head included, is rate-limited.
    Throttled,
    /// The head is encoded; a tunnel takes over the connection after it.
    Tunnel(Box<dyn Tunnel>),
    /// The head is encoded; the body is streamed.
    Stream(Box<dyn lighty_core::BodyStream>, Framing),
}

/// Frames the response and sends as much as possible without blocking.
pub(crate) fn send_at_once(
    h1: &mut H1Exchange,
    stream: &Stream,
    entry: &ConnEntry,
    worker: &Worker,
) -> std::io::Result<Rest> {
    let framing = encode_head(h1, worker);
    if let Some(tunnel) = h1.exchange.response.tunnel.take() {
        return Ok(Rest::Tunnel(tunnel));
    }
    if framing == Framing::None {
        h1.exchange.response.body = Body::Empty;
    }
    let throttled = is_throttled(&h1.exchange);
    let inline_max = if throttled { 0 } else { INLINE_BODY_BYTES_MAX };
    if !append_small(h1, inline_max)
        && let Some(source) = enqueue(h1)
    {
        entry.wait_for(ConnState::Write, worker.now_s());
        return Ok(Rest::Stream(source, framing));
    }
    if !throttled && send_out(h1, stream)? && send_now(h1, stream, &worker.sender)? {
        return Ok(Rest::Nothing);
    }
    entry.wait_for(ConnState::Write, worker.now_s());
    Ok(if throttled { Rest::Throttled } else { Rest::Queue })
}

/// Appends an in-memory body of up to `bytes_max` bytes to the head. Returns `false` if the body
/// must be queued or streamed instead.
fn append_small(h1: &mut H1Exchange, bytes_max: usize) -> bool {
    let bytes = match &h1.exchange.response.body {
        Body::Empty => return true,
        Body::Memory(bytes) => Some(bytes),
        Body::Cached(entry) => entry.small(),
        _ => None,
    };
    match bytes.filter(|bytes| bytes.len() <= bytes_max) {
        Some(bytes) => {
            h1.out.extend_from_slice(bytes);
            true
        }
        None => false,
    }
}

/// Moves a body into the queue. A streamed body is returned instead.
fn enqueue(h1: &mut H1Exchange) -> Option<Box<dyn lighty_core::BodyStream>> {
    match std::mem::take(&mut h1.exchange.response.body) {
        Body::Empty => {}
        Body::Memory(bytes) => h1.queue.push_bytes(bytes),
        Body::Cached(entry) => h1.queue.push_bytes(entry.small().cloned().unwrap_or_default()),
        Body::File { file, offset, length } => {
            h1.queue.push_file(FileRange { file, offset, length });
        }
        Body::Chunks(mut chunks) => h1.queue.append(&mut chunks),
        Body::Stream(source) => return Some(source),
    }
    None
}

/// Sends a 101 and hands the connection to the tunnel, after which it closes.
async fn hand_over(
    h1: &mut H1Exchange,
    stream: &Rc<Stream>,
    entry: &ConnEntry,
    worker: &Worker,
    tunnel: Box<dyn Tunnel>,
) -> std::io::Result<()> {
    h1.exchange.keep_alive = false;
    if !send_out(h1, stream)? {
        send_queue(h1, stream, entry, worker).await?;
    }
    entry.wait_for(ConnState::Handler, worker.now_s());
    let early = h1.input.borrow_mut().take_pending();
    tokio::select! {
        sent = tunnel.run(Rc::clone(stream), early) => h1.exchange.bytes_sent += sent?,
        () = worker.ends_tunnels() => {}
    }
    Ok(())
}

/// Writes the head. Returns `false` on a partial write and puts the remainder at the front of the
/// queue.
fn send_out(h1: &mut H1Exchange, stream: &Stream) -> std::io::Result<bool> {
    let sent = match stream.try_write(&h1.out) {
        Ok(count) => count,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    h1.exchange.bytes_sent += sent as u64;
    if sent == h1.out.len() {
        return Ok(true);
    }
    let rest = Bytes::copy_from_slice(&h1.out[sent..]);
    h1.queue.push_front(Chunk::Memory(rest));
    Ok(false)
}

/// Sends as much as possible without blocking. Returns `true` when nothing is left.
fn send_now(h1: &mut H1Exchange, stream: &Stream, sender: &Sender) -> std::io::Result<bool> {
    if h1.queue.is_empty() {
        return Ok(true);
    }
    let sent = sender.try_send(stream, &mut h1.queue, UNLIMITED)?;
    h1.exchange.bytes_sent += sent.bytes;
    Ok(sent.state == SendState::Done)
}

async fn send_queue(
    h1: &mut H1Exchange,
    stream: &Stream,
    entry: &ConnEntry,
    worker: &Worker,
) -> std::io::Result<()> {
    let received = h1.input.borrow().received;
    let result = worker.sender.send(stream, &mut h1.queue, UNLIMITED, &entry.progress).await;
    h1.exchange.bytes_sent += result.as_ref().map_or_else(
        // `progress` also counts bytes received in the meantime.
        |_| entry.progress.get().saturating_sub(h1.input.borrow().received - received),
        |sent| *sent,
    );
    result.map(|_| ())
}

fn is_throttled(ex: &Exchange) -> bool {
    let core = &ex.settings.core;
    core.shared_bucket.is_some() || core.connection_kbytes_per_second > 0 || ex.key_bucket.is_some()
}

/// Sends under `server.kbytes-per-second`, `connection.kbytes-per-second` and `limit.bandwidth`.
async fn send_throttled(
    h1: &mut H1Exchange,
    stream: &Stream,
    entry: &ConnEntry,
    worker: &Worker,
) -> std::io::Result<()> {
    let core = h1.exchange.settings.core.clone();
    let clock = &worker.machine.clock;
    let own = (core.connection_kbytes_per_second > 0)
        .then(|| entry.bucket(core.connection_kbytes_per_second, clock.mono_ms()));
    let keyed = h1.exchange.key_bucket.clone();
    let buckets: Vec<Arc<Bucket>> =
        core.shared_bucket.into_iter().chain(own).chain(keyed).collect();
    if !send_out(h1, stream)? {
        stream.writable().await?;
    }
    while !h1.queue.is_empty() {
        // Time spent throttled does not count against the client.
        entry.wait_for(ConnState::Write, worker.now_s());
        match take_tokens(&buckets, h1.queue.len_bytes(), clock.mono_ms()) {
            Err(wait_ms) => {
                tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
                clock.refresh();
            }
            Ok(budget) => {
                let sender = &worker.sender;
                let sent = sender.send(stream, &mut h1.queue, budget, &entry.progress).await?;
                h1.exchange.bytes_sent += sent;
                buckets.iter().for_each(|bucket| bucket.give_back(budget - sent.min(budget)));
            }
        }
    }
    Ok(())
}

/// Takes the same amount from each bucket, or returns the milliseconds to wait.
fn take_tokens(buckets: &[Arc<Bucket>], wanted: u64, now_ms: u64) -> Result<u64, u64> {
    let mut granted = wanted;
    for (index, bucket) in buckets.iter().enumerate() {
        match bucket.take(granted, now_ms) {
            Ok(less) => {
                buckets[..index].iter().for_each(|b| b.give_back(granted - less));
                granted = less;
            }
            Err(wait_ms) => {
                buckets[..index].iter().for_each(|b| b.give_back(granted));
                return Err(wait_ms);
            }
        }
    }
    Ok(granted)
}

/// Streams a body one piece at a time.
async fn send_stream(
    h1: &mut H1Exchange,
    stream: &Rc<Stream>,
    entry: &Rc<ConnEntry>,
    worker: &Rc<Worker>,
    mut source: Box<dyn lighty_core::BodyStream>,
    framing: Framing,
) -> std::io::Result<()> {
    let throttled = is_throttled(&h1.exchange);
    if !send_out(h1, stream)? {
        meanwhile(Some(&mut *source), Rc::clone(&h1.input), send_queue(h1, stream, entry, worker))
            .await?;
    }
    let mut produced = 0u64;
    let announced = source.known_length();
    loop {
        entry.wait_for(ConnState::Handler, worker.now_s());
        let next = std::future::poll_fn(|cx| source.poll_next(cx)).await;
        entry.wait_for(ConnState::Write, worker.now_s());
        let chunk = match next {
            None => break,
            Some(Ok(chunk)) => chunk,
            Some(Err(report)) => return Err(std::io::Error::other(report)),
        };
        produced += push_framed(h1, chunk, framing);
        h1.out.clear();
        if throttled {
            let input = Rc::clone(&h1.input);
            let sending = Box::pin(send_throttled(h1, stream, entry, worker));
            meanwhile(Some(&mut *source), input, sending).await?;
        } else if !send_now(h1, stream, &worker.sender)? {
            meanwhile(
                Some(&mut *source),
                Rc::clone(&h1.input),
                send_queue(h1, stream, entry, worker),
            )
            .await?;
        }
    }
    if announced.is_some_and(|length| length != produced) {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    if framing == Framing::Chunked {
        h1.queue.push_bytes(last_chunk(&h1.exchange, &*source));
        if !send_now(h1, stream, &worker.sender)? {
            send_queue(h1, stream, entry, worker).await?;
        }
    }
    Ok(())
}

/// The last chunk, with trailers if the client accepts them (RFC 9110 section 6.5.1).
fn last_chunk(ex: &Exchange, source: &dyn lighty_core::BodyStream) -> Bytes {
    const PLAIN: Bytes = Bytes::from_static(b"0\r\n\r\n");
    let asked = ex.request.fields.list_contains(Known::Te, "trailers");
    let Some(trailers) = source.trailers().filter(|_| asked) else { return PLAIN };
    let mut last = b"0\r\n".to_vec();
    match encode::push_fields(trailers, &mut last) {
        Ok(()) => {
            last.extend_from_slice(b"\r\n");
            last.into()
        }
        // The backend sent an invalid field, but the body is complete.
        Err(_) => PLAIN,
    }
}

/// Queues a piece with its chunk framing; returns the piece's length.
fn push_framed(
    h1: &mut H1Exchange,
    chunk: Chunk<Rc<lighty_io::file::OpenFile>>,
    framing: Framing,
) -> u64 {
    let length = chunk.len();
    if length == 0 {
        return 0;
    }
    if framing == Framing::Chunked {
        h1.queue.push_bytes(Bytes::from(format!("{length:x}\r\n")));
    }
    h1.queue.push(chunk);
    if framing == Framing::Chunked {
        h1.queue.push_bytes(Bytes::from_static(b"\r\n"));
    }
    length
}

/// Chooses the framing and encodes the head into `h1.out`.
fn encode_head(h1: &mut H1Exchange, worker: &Worker) -> Framing {
    // First the response, then the error page if the response cannot be encoded.
    for _ in 0..2 {
        let framing = frame(&mut h1.exchange, &mut h1.out);
        h1.out.clear();
        let ex = &mut h1.exchange;
        let (status, fields) = (ex.response.status, &ex.response.fields);
        let date = worker.date();
        let version = ex.request.version;
        match encode::encode_head(version, status, fields, Some(&date), &mut h1.out) {
            Ok(()) => {
                ex.head_sent = h1.out.len() as u64;
                trace::response_head(ex, &h1.out);
                return framing;
            }
            // Configured values were validated at load, so the bad text comes from the request.
            Err(fault) => {
                let blame = match fault {
                    encode::EncodeFault::Value => Fault::HeadSplit,
                    _ => Fault::Internal,
                };
                ex.fail_saying(blame, &fault.to_string());
                let id = ex.id();
                lighty_core::error_page::fill(&mut ex.response, id);
            }
        }
    }
    encode_bare_head(h1)
}

/// Last resort when a field common to all responses cannot be encoded.
fn encode_bare_head(h1: &mut H1Exchange) -> Framing {
    h1.out.clear();
    h1.out.extend_from_slice(
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    h1.exchange.keep_alive = false;
    h1.exchange.head_sent = h1.out.len() as u64;
    Framing::None
}

/// Sets the fields that frame the message: RFC 9112 section 6, RFC 9110 section 8.6.
fn frame(ex: &mut Exchange, scratch: &mut Vec<u8>) -> Framing {
    let response = &mut ex.response;
    let length = response.body.known_length();
    let bodiless = !response.status.allows_content() || ex.request.is_head();
    let in_chunks = ex.request.version == Version::Http11 && !response.unchunked;
    let framing = match length {
        _ if bodiless => Framing::None,
        Some(_) => Framing::Length,
        None if in_chunks => Framing::Chunked,
        None => Framing::Close,
    };
    if framing == Framing::Close || response.close {
        ex.keep_alive = false;
    }
    if !ex.settings.core.tag.is_empty() && !response.fields.contains(Known::Server) {
        response.fields.push_known(Known::Server, ex.settings.core.tag.as_bytes());
    }
    push_framing(response, framing, length, in_chunks, scratch);
    let fields = &mut response.fields;
    match (ex.keep_alive, ex.request.version) {
        // `Connection: upgrade` stands there already.
        _ if response.tunnel.is_some() => {}
        (false, _) => fields.push_known(Known::Connection, "close"),
        (true, Version::Http10) => fields.push_known(Known::Connection, "keep-alive"),
        (true, _) => {}
    }
    framing
}

/// Content-Length or Transfer-Encoding. `length` is the body's; `in_chunks`, how one without it
/// is sent.
fn push_framing(
    response: &mut Response,
    framing: Framing,
    length: Option<u64>,
    in_chunks: bool,
    scratch: &mut Vec<u8>,
) {
    if !response.status.allows_content() {
        return;
    }
    let told = match framing {
        Framing::Length => length,
        // HEAD: what GET would have said.
        Framing::None => response.head_content_length.or(length),
        Framing::Chunked | Framing::Close => None,
    };
    let fields = &mut response.fields;
    if fields.contains(Known::ContentLength) {
        if told.is_some() && told == response.length_said {
            return;
        }
        fields.remove(Known::ContentLength);
    }
    match told {
        Some(length) => push_length(length, fields, scratch),
        None if in_chunks => fields.push_known(Known::TransferEncoding, "chunked"),
        None => {}
    }
}

fn push_length(length: u64, fields: &mut Fields, digits: &mut Vec<u8>) {
    digits.clear();
    decimal::push(length, digits);
    fields.push_known(Known::ContentLength, &*digits);
}
