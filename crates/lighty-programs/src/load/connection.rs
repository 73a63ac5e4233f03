//! A connection that asks one request after the other.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lighty_io::connect::{ConnectOptions, Target, connect};
use lighty_io::tls::{ClientPolicy, ServerFault};
use lighty_io::transport::Stream;
use lighty_wire::http1::chunked::ChunkedDecoder;
use lighty_wire::http1::{Head, ResponseFraming, ResponseHead, ResponseLimits, parse_response};

use super::options::Expected;
use super::tally::Failure;

/// Bytes of a connection's buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// Start of the sums of bodies, and what they are multiplied by (FNV-1a).
const SUM_START: u64 = 0xCBF2_9CE4_8422_2325;
const SUM_FACTOR: u64 = 0x0100_0000_01B3;

/// Why the first handshake failed that did.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    fn note(&self, fault: &ServerFault) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| fault.to_string());
    }

    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How a response was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) status: u16,
    /// Bytes of the body, and with the head.
    pub(super) body_bytes: u64,
    pub(super) bytes: u64,
    /// The sum of the body's bytes, if it is wanted.
    pub(super) checksum: u64,
    /// When the first byte came, in microseconds of the clock.
    pub(super) first_byte_us: u64,
    /// The connection can be used again.
    pub(super) keeps: bool,
}

/// A connection and what was read of it.
pub(super) struct Connection {
    stream: Stream,
    buffer: Box<[u8]>,
    filled: usize,
    head: ResponseHead,
    decoder: ChunkedDecoder,
    /// Something was asked by it before.
    pub(super) is_used: bool,
}

impl Connection {
    /// Connects, and shakes hands if the server speaks TLS. Why a handshake failed is kept in
    /// `trouble`.
    pub(super) async fn open(
        target: &Target,
        tls: Option<&ClientPolicy>,
        patience: Duration,
        trouble: &Trouble,
    ) -> Result<Self, Failure> {
        let options = ConnectOptions::default();
        let connecting = connect(target, &options);
        let mut stream = match tokio::time::timeout(patience, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(Failure::Refused);
            }
            Ok(Err(_)) => return Err(Failure::Connect),
            Err(_) => return Err(Failure::Timeout),
        };
        if let Some(policy) = tls {
            match tokio::time::timeout(patience, stream.connect_tls(policy)).await {
                Ok(Ok(_)) => {}
                Ok(Err(fault)) => {
                    trouble.note(&fault);
                    return Err(Failure::Handshake);
                }
                Err(_) => return Err(Failure::Timeout),
            }
        }
        Ok(Self {
            stream,
            buffer: vec![0; BUFFER_BYTES].into(),
            filled: 0,
            head: ResponseHead::new(),
            decoder: ChunkedDecoder::new(),
            is_used: false,
        })
    }

    /// Sends a request and receives its response. `now_us` tells the time.
    pub(super) async fn ask(
        &mut self,
        request: &Bytes,
        method: Option<lighty_http::Method>,
        sums: bool,
        now_us: &impl Fn() -> u64,
    ) -> Result<Received, Failure> {
        let sent = self.stream.try_write(request).or_else(would_block);
        let sent = sent.map_err(|error| failure(&error))?;
        if sent < request.len() {
            self.send_rest(&request[sent..]).await?;
        }
        self.receive(method, sums, now_us).await
    }

    async fn send_rest(&self, mut rest: &[u8]) -> Result<(), Failure> {
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
    ) -> Result<Received, Failure> {
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
                    _ => return Err(Failure::Protocol),
                }
            }
            let is_first = received.first_byte_us == 0;
            match self.fill().await? {
                0 if is_first => return Err(Failure::Closed),
                0 => return Err(Failure::Short),
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

    async fn body(&mut self, received: &mut Received, sums: bool) -> Result<(), Failure> {
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
    ) -> Result<(), Failure> {
        loop {
            let left = length - received.body_bytes;
            let here = usize::try_from(left).unwrap_or(usize::MAX).min(self.filled);
            self.take(here, received, sums);
            if received.body_bytes == length {
                return Ok(());
            }
            if self.fill().await? == 0 {
                return Err(Failure::Short);
            }
        }
    }

    async fn chunked(&mut self, received: &mut Received, sums: bool) -> Result<(), Failure> {
        self.decoder.clear();
        loop {
            while self.filled > 0 && !self.decoder.is_done() {
                let event = self.decoder.feed(&self.buffer[..self.filled]);
                let event = event.map_err(|_| Failure::Protocol)?;
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
                return Err(Failure::Short);
            }
        }
    }

    /// Takes bytes of the body.
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

    async fn fill(&mut self) -> Result<usize, Failure> {
        let read = self.stream.read(&mut self.buffer[self.filled..]).await;
        let count = read.map_err(|error| failure(&error))?;
        self.filled += count;
        Ok(count)
    }
}

fn sum(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(SUM_FACTOR))
}

fn would_block(error: io::Error) -> io::Result<usize> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) }
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Failure::Reset,
        io::ErrorKind::UnexpectedEof => Failure::Short,
        _ => Failure::Closed,
    }
}

/// What is wrong with a response, if anything. `first` is that of the first response for the URL.
pub(super) fn judge(
    received: &Received,
    expected: &Expected,
    first: &mut Option<(u64, u64)>,
) -> Option<Failure> {
    let status = received.status;
    let is_expected = expected.status.map_or((200..400).contains(&status), |one| one == status);
    if !is_expected {
        return Some(Failure::Status);
    }
    let (length, checksum) = (received.body_bytes, received.checksum);
    if expected.length.is_some_and(|wanted| wanted != length) {
        return Some(Failure::Length);
    }
    let (first_length, first_checksum) = *first.get_or_insert((length, checksum));
    if (expected.same || expected.checksum) && first_length != length {
        return Some(Failure::Length);
    }
    (expected.checksum && first_checksum != checksum).then_some(Failure::Checksum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_judged_by_what_is_expected() {
        let received = Received { status: 200, body_bytes: 5, checksum: 7, ..Received::default() };
        let any = Expected::default();
        assert_eq!(judge(&received, &any, &mut None), None);
        assert_eq!(
            judge(&Received { status: 404, ..received }, &any, &mut None),
            Some(Failure::Status)
        );
        let wants = Expected { status: Some(404), ..any.clone() };
        assert_eq!(judge(&received, &wants, &mut None), Some(Failure::Status));
        let long = Expected { length: Some(6), ..any.clone() };
        assert_eq!(judge(&received, &long, &mut None), Some(Failure::Length));
        let same = Expected { same: true, ..any.clone() };
        assert_eq!(judge(&received, &same, &mut Some((4, 7))), Some(Failure::Length));
        let content = Expected { checksum: true, ..any };
        assert_eq!(judge(&received, &content, &mut Some((5, 8))), Some(Failure::Checksum));
        assert_eq!(sum(SUM_START, b"a"), 0xAF63_DC4C_8601_EC8C);
    }
}
