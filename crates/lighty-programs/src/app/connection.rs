//! A connection from a web server.

use std::io;
use std::time::Duration;

use lighty_io::transport::Stream;
use lighty_wire::fastcgi::app::{self, FastcgiRequestEvent, RequestDecoder};
use lighty_wire::fastcgi::{ApplicationRole, EndRequest, ProtocolStatus, Values};

use super::{Application, ApplicationRequest, Response, SharedApplication};

/// Bytes per read.
const READ_BYTES: usize = 16 * 1024;

/// Maximum capacity of the output buffer that is kept between requests, in bytes.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Serves requests until the server closes the connection, it is not kept open, or an error occurs.
pub(super) async fn serve<A: Application>(stream: Stream, shared: &SharedApplication<A>) {
    let mut connection = ApplicationConnection {
        shared,
        decoder: RequestDecoder::new(),
        body: Vec::new(),
        out: Vec::new(),
        state: RequestProgress::Idle,
        is_fresh: true,
        keeps: true,
    };
    // The close tells the peer, if it is still there, that it violated the protocol.
    let _ = connection.run(&stream).await;
}

/// Progress of the request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestProgress {
    /// No request.
    Idle,
    /// The request is being received.
    Arriving,
    /// The request is being received, and its body is longer than allowed.
    TooLarge,
}

struct ApplicationConnection<'a, A> {
    shared: &'a SharedApplication<A>,
    decoder: RequestDecoder,
    body: Vec<u8>,
    out: Vec<u8>,
    state: RequestProgress,
    /// No bytes have arrived yet.
    is_fresh: bool,
    /// The connection stays open after the request.
    keeps: bool,
}

impl<A: Application> ApplicationConnection<'_, A> {
    async fn run(&mut self, stream: &Stream) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        while let Some(count) = self.read(stream, &mut buffer).await? {
            let mut rest = &buffer[..count];
            while !rest.is_empty() {
                let step = self.decoder.feed(rest).map_err(io::Error::other)?;
                let used = rest;
                rest = &rest[step.consumed..];
                let Some(event) = step.event else { continue };
                if !self.take(event, used).await {
                    self.flush(stream).await?;
                    return Ok(());
                }
            }
            self.flush(stream).await?;
        }
        Ok(())
    }

    /// Reads bytes from the server; `None` at the end of the connection. Between requests the
    /// connection also ends when the process stops or its slot is needed, but not before the first
    /// request, which is about to arrive.
    async fn read(&mut self, stream: &Stream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let read = if self.state == RequestProgress::Idle && !self.is_fresh {
            let mut stopping = self.shared.stopping.clone();
            tokio::select! {
                biased;
                read = stream.read(buffer) => read?,
                _ = stopping.wait_for(|stops| *stops) => 0,
                () = self.shared.room.notified() => 0,
            }
        } else {
            self.in_time(stream.read(buffer)).await?
        };
        self.is_fresh = false;
        Ok((read > 0).then_some(read))
    }

    async fn in_time<T>(&self, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let limit = Duration::from_secs(self.shared.limits.io_timeout_s);
        tokio::time::timeout(limit, step).await?
    }

    /// Handles an event; false if the connection must be closed.
    async fn take(&mut self, event: FastcgiRequestEvent, input: &[u8]) -> bool {
        match event {
            FastcgiRequestEvent::Begin(begin) => {
                self.keeps = begin.keep_conn;
                self.state = RequestProgress::Arriving;
                self.body.clear();
                if begin.role != ApplicationRole::Responder {
                    self.end(ProtocolStatus::UnknownRole, 0);
                    return self.keeps;
                }
            }
            FastcgiRequestEvent::Params => {}
            FastcgiRequestEvent::Stdin(range) => self.take_body(&input[range]),
            FastcgiRequestEvent::EndOfStdin => {
                self.answer().await;
                return self.keeps && !*self.shared.stopping.borrow();
            }
            FastcgiRequestEvent::Abort => {
                self.end(ProtocolStatus::RequestComplete, 1);
                return self.keeps;
            }
            FastcgiRequestEvent::Refuse(id, protocol_status) => {
                let end = EndRequest { app_status: 0, protocol_status };
                app::push_end_request(id, end, &mut self.out);
            }
            FastcgiRequestEvent::GetValues => {
                let most = u32::try_from(self.shared.limits.connections_max).unwrap_or(u32::MAX);
                let values = Values {
                    max_conns: Some(most),
                    max_reqs: Some(most),
                    multiplexes: Some(false),
                };
                app::push_values(self.decoder.requested(), &values, &mut self.out);
            }
            FastcgiRequestEvent::UnknownType(number) => {
                app::push_unknown_type(number, &mut self.out)
            }
        }
        true
    }

    fn take_body(&mut self, bytes: &[u8]) {
        if !A::TAKES_BODIES {
            return;
        }
        if bytes.len() > self.shared.limits.body_bytes_max.saturating_sub(self.body.len()) {
            self.state = RequestProgress::TooLarge;
            self.body = Vec::new();
        }
        if self.state == RequestProgress::Arriving {
            self.body.extend_from_slice(bytes);
        }
    }

    async fn answer(&mut self) {
        let request = ApplicationRequest { decoder: &self.decoder, body: &self.body };
        let response = match self.state {
            RequestProgress::TooLarge => {
                let limit = self.shared.limits.body_bytes_max;
                let errors = format!(
                    "{}: the request's body has more than {limit} bytes (limit: --max-body)",
                    self.shared.name
                );
                let errors = errors.into_bytes();
                Response { errors, ..Response::status("413 Content Too Large") }
            }
            _ => self.shared.application.respond(&request).await,
        };
        let id = self.decoder.request_id();
        if !response.errors.is_empty() {
            app::push_stderr(id, &response.errors, &mut self.out);
        }
        app::push_stdout(id, &response.output, &mut self.out);
        app::push_end_of_stdout(id, &mut self.out);
        self.end(ProtocolStatus::RequestComplete, response.app_status);
    }

    fn end(&mut self, protocol_status: ProtocolStatus, app_status: u32) {
        let end = EndRequest { app_status, protocol_status };
        app::push_end_request(self.decoder.request_id(), end, &mut self.out);
        self.decoder.clear();
        self.state = RequestProgress::Idle;
        self.body.clear();
        if self.body.capacity() > KEPT_BYTES_MAX {
            self.body = Vec::new();
        }
    }

    /// Sends the pending output.
    async fn flush(&mut self, stream: &Stream) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.out.len() {
            match stream.try_write(&self.out[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.in_time(stream.writable()).await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES_MAX {
            self.out = Vec::new();
        }
        Ok(())
    }
}
