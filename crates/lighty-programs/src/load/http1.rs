//! A connection that sends one request after the other over HTTP/1.1.

use std::rc::Rc;

use bytes::Bytes;
use lighty_io::transport::Stream;
use lighty_wire::http1::chunked::ChunkedDecoder;
use lighty_wire::http1::{Head, ResponseFraming, ResponseHead, ResponseLimits, parse_response};

use super::received::{Received, SUM_START, failure, sum, would_block};
use super::shared::{RequestOutcome, SharedLoad};
use super::tally::LoadFailure;
use super::watch::ConnectionWatch;

/// Bytes of a connection's buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// Sends requests until there are no more.
pub(super) async fn ask_on(shared: Rc<SharedLoad>) {
    let (watch, mut kept) = (shared.watches.add(), None);
    while let Some(due_us) = shared.pace.next().await {
        ask(&shared, due_us, &watch, &mut kept).await;
        if !shared.options.keep_alive {
            kept = None;
        }
    }
}

/// Sends a request that was due at `due_us`.
async fn ask(
    shared: &SharedLoad,
    due_us: u64,
    watch: &ConnectionWatch,
    kept: &mut Option<Http1Connection>,
) {
    let at = shared.choose();
    watch.begin(shared.now_us());
    let outcome = watch.within(exchange(shared, at, kept)).await;
    let outcome = outcome.unwrap_or(Err(LoadFailure::Timeout));
    let keeps = matches!(outcome, Ok((Received { keeps: true, .. }, _)));
    shared.count(at, due_us, outcome);
    if !keeps {
        *kept = None;
        // A server that refuses at once must not monopolise the thread.
        tokio::task::yield_now().await;
    }
}

async fn exchange(
    shared: &SharedLoad,
    at: usize,
    kept: &mut Option<Http1Connection>,
) -> RequestOutcome {
    let (sums, now_us) = (shared.options.expected.checksum, || shared.now_us());
    loop {
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => Http1Connection::new(shared.open().await?),
        };
        let _busy = shared.busy();
        let (was_used, sent_us) = (connection.is_used, now_us());
        match connection.ask(&shared.requests[at], shared.method, sums, &now_us).await {
            // The server may have closed the idle connection meanwhile.
            Err(LoadFailure::Closed | LoadFailure::Reset) if was_used => {}
            Ok(received) => {
                *kept = Some(connection);
                return Ok((received, sent_us));
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// A connection with its read buffer.
struct Http1Connection {
    stream: Stream,
    buffer: Box<[u8]>,
    filled: usize,
    head: ResponseHead,
    decoder: ChunkedDecoder,
    /// The connection has been used for a request before.
    is_used: bool,
}

impl Http1Connection {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            buffer: vec![0; BUFFER_BYTES].into(),
            filled: 0,
            head: ResponseHead::new(),
            decoder: ChunkedDecoder::of_response(),
            is_used: false,
        }
    }

    /// Sends a request and receives its response. `now_us` returns the time.
    async fn ask(
        &mut self,
        request: &Bytes,
        method: Option<lighty_http::Method>,
        sums: bool,
        now_us: &impl Fn() -> u64,
    ) -> Result<Received, LoadFailure> {
        let sent = self.stream.try_write(request).or_else(would_block);
        let sent = sent.map_err(|error| failure(&error))?;
        if sent < request.len() {
            self.send_rest(&request[sent..]).await?;
        }
        self.receive(method, sums, now_us).await
    }

    async fn send_rest(&self, mut rest: &[u8]) -> Result<(), LoadFailure> {
        while !rest.is_empty() {
            self.stream.writable().await.map_err(|error| failure(&error))?;
            let sent = self.stream.try_write(rest).or_else(would_block);
            rest = &rest[sent.map_err(|error| failure(&error))?..];
        }
        Ok(())
    }

    async fn receive(
        &mut self,
        method: Option<lighty_http::Method>,
        sums: bool,
        now_us: &impl Fn() -> u64,
    ) -> Result<Received, LoadFailure> {
        let mut received = Received { checksum: SUM_START, ..Received::default() };
        self.head.clear();
        loop {
            if self.filled > 0 {
                let limits = ResponseLimits::default();
                let bytes = &self.buffer[..self.filled];
                match parse_response(bytes, method, &limits, &mut self.head) {
                    Ok(Head::Complete { consumed }) => {
                        received.bytes += consumed as u64;
                        self.consume(consumed);
                        if !self.head.is_interim() {
                            break;
                        }
                        self.head.clear();
                        continue;
                    }
                    Ok(Head::Partial) if self.filled < self.buffer.len() => {}
                    _ => return Err(LoadFailure::Protocol),
                }
            }
            let is_first = received.first_byte_us == 0;
            match self.fill().await? {
                0 if is_first => return Err(LoadFailure::Closed),
                0 => return Err(LoadFailure::Short),
                _ if is_first => received.first_byte_us = now_us(),
                _ => {}
            }
        }
        received.status = self.head.status.code();
        received.keeps = self.head.keep_alive && !self.head.upgrade;
        self.body(&mut received, sums).await?;
        received.bytes += received.body_bytes;
        self.is_used = true;
        Ok(received)
    }

    async fn body(&mut self, received: &mut Received, sums: bool) -> Result<(), LoadFailure> {
        match self.head.framing {
            ResponseFraming::None => Ok(()),
            ResponseFraming::Length(length) => self.sized(length, received, sums).await,
            ResponseFraming::Chunked => self.chunked(received, sums).await,
            ResponseFraming::Close => {
                received.keeps = false;
                loop {
                    self.take(self.filled, received, sums);
                    if self.fill().await? == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn sized(
        &mut self,
        length: u64,
        received: &mut Received,
        sums: bool,
    ) -> Result<(), LoadFailure> {
        loop {
            let left = length - received.body_bytes;
            let here = usize::try_from(left).unwrap_or(usize::MAX).min(self.filled);
            self.take(here, received, sums);
            if received.body_bytes == length {
                return Ok(());
            }
            if self.fill().await? == 0 {
                return Err(LoadFailure::Short);
            }
        }
    }

    async fn chunked(&mut self, received: &mut Received, sums: bool) -> Result<(), LoadFailure> {
        self.decoder.clear();
        loop {
            while self.filled > 0 && !self.decoder.is_done() {
                let event = self.decoder.feed(&self.buffer[..self.filled]);
                let event = event.map_err(|_| LoadFailure::Protocol)?;
                let (consumed, data) = (event.consumed, event.data.clone());
                received.body_bytes += data.len() as u64;
                if sums {
                    received.checksum = sum(received.checksum, &self.buffer[data]);
                }
                if consumed == 0 {
                    break;
                }
                self.consume(consumed);
            }
            if self.decoder.is_done() {
                return Ok(());
            }
            if self.fill().await? == 0 {
                return Err(LoadFailure::Short);
            }
        }
    }

    /// Consumes bytes of the body.
    fn take(&mut self, count: usize, received: &mut Received, sums: bool) {
        if sums {
            received.checksum = sum(received.checksum, &self.buffer[..count]);
        }
        received.body_bytes += count as u64;
        self.consume(count);
    }

    fn consume(&mut self, count: usize) {
        self.buffer.copy_within(count..self.filled, 0);
        self.filled -= count;
    }

    async fn fill(&mut self) -> Result<usize, LoadFailure> {
        let read = self.stream.read(&mut self.buffer[self.filled..]).await;
        let count = read.map_err(|error| failure(&error))?;
        self.filled += count;
        Ok(count)
    }
}
