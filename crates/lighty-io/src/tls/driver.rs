//! Drives a rustls handshake over the connection's own buffers, as server or client.

use std::io;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};

use crate::transport::Stream;

/// Maximum unprocessed bytes of the peer's handshake: rustls' longest message, and data that may
/// follow it.
const INPUT_BYTES_MAX: usize = 80 << 10;

/// Bytes read at a time. A hello with a post-quantum key share has about 1,800.
const PIECE_BYTES: usize = 4 << 10;

/// A side of a handshake, server or client.
pub(super) trait HandshakeSide {
    /// rustls' data for this side.
    type Data;

    /// Processes the bytes received so far.
    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl HandshakeSide for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }
}

impl HandshakeSide for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }
}

/// Reason for a failed handshake.
#[derive(Debug)]
pub(super) enum Broken {
    /// The peer closed the connection.
    Ended,
    /// The connection broke.
    Io(io::Error),
    /// The peer sent more than a handshake can need.
    TooLong,
    /// rustls reported an error. An alert was sent to the peer, if possible.
    Refused(rustls::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A handshake in progress.
pub(super) struct Driver<'a> {
    stream: &'a Stream,
    /// Bytes received and not yet processed.
    pub(super) input: Vec<u8>,
    /// Bytes to send.
    pub(super) output: Vec<u8>,
    /// Application data that came with the peer's last message.
    pub(super) opened: Vec<u8>,
    /// The peer has closed its direction: no data follows `opened`.
    pub(super) has_closed: bool,
}

impl<'a> Driver<'a> {
    /// Starts a handshake; `early` are bytes received before.
    pub(super) fn new(stream: &'a Stream, early: Vec<u8>) -> Self {
        Self { stream, input: early, output: Vec::new(), opened: Vec::new(), has_closed: false }
    }

    /// Continues until application data may be exchanged. `rest` is awaited before each expensive
    /// step.
    pub(super) async fn run<S: HandshakeSide>(
        &mut self,
        mut connection: S,
        rest: &impl AsyncFn(),
    ) -> Result<S, Broken> {
        loop {
            // An unencrypted close_notify, which rustls ignores because it is not authenticated. An
            // attacker who could send it could end the connection in other ways, too.
            if let [21, 3, _, 0, 2, 1, 0, ..] = self.input[..] {
                return Err(Broken::Ended);
            }
            let UnbufferedStatus { discard, state } = connection.process(&mut self.input);
            let mut wants = false;
            match state {
                Err(error) => {
                    self.input.drain(..discard);
                    self.take_alerts(&mut connection);
                    // An error does not matter: the peer then only lacks the alert.
                    let _ = self.send().await;
                    return Err(Broken::Refused(error));
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut self.output),
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    self.input.drain(..discard);
                    self.send().await?;
                    continue;
                }
                Ok(ConnectionState::ReadTraffic(mut data)) => {
                    while let Some(Ok(record)) = data.next_record() {
                        self.opened.extend_from_slice(record.payload);
                    }
                }
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.input.drain(..discard);
                    return Ok(connection);
                }
                // RFC 8446 section 6.1: this closes one direction, and may come with the last
                // message of the handshake and a whole request.
                Ok(ConnectionState::PeerClosed) => self.has_closed = true,
                Ok(ConnectionState::BlockedHandshake) if self.has_closed => {
                    return Err(Broken::Ended);
                }
                Ok(ConnectionState::BlockedHandshake) => wants = true,
                Ok(_) => return Err(Broken::Ended),
            }
            self.input.drain(..discard);
            if wants {
                self.receive().await?;
                rest().await;
            }
        }
    }

    /// Collects the output for an error, up to the alert: after it rustls returns the same error
    /// again. Only discarded bytes are removed from the input, because rustls remembers positions
    /// in it.
    fn take_alerts<S: HandshakeSide>(&mut self, connection: &mut S) {
        loop {
            let UnbufferedStatus { discard, state } = connection.process(&mut self.input);
            let start = self.output.len();
            match state {
                Ok(ConnectionState::EncodeTlsData(mut alert)) => {
                    encode(&mut alert, &mut self.output);
                }
                _ => return,
            }
            self.input.drain(..discard);
            if is_alert(&self.output[start..]) {
                use_old_alert(&mut self.output[start..]);
                return;
            }
        }
    }

    /// Reads more bytes from the peer.
    pub(super) async fn receive(&mut self) -> Result<(), Broken> {
        let start = self.input.len();
        if start >= INPUT_BYTES_MAX {
            return Err(Broken::TooLong);
        }
        self.input.resize(start + PIECE_BYTES, 0);
        let count = self.stream.read(&mut self.input[start..]).await;
        self.input.truncate(start + *count.as_ref().unwrap_or(&0));
        match count? {
            0 => Err(Broken::Ended),
            _ => Ok(()),
        }
    }

    /// Sends the pending output.
    pub(super) async fn send(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.output.len() {
            match self.stream.try_write(&self.output[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        Ok(())
    }
}

/// Replaces the alert certificate_required, which TLS 1.2 lacks: a client without a certificate
/// gets handshake_failure (RFC 5246 section 7.4.6). In TLS 1.2, alerts are unencrypted at this
/// point.
fn use_old_alert(record: &mut [u8]) {
    if let [21, .., 0, 2, 2, description @ 116] = record {
        *description = 40;
    }
}

/// True if the record is an alert, unencrypted or sealed by TLS 1.3 (RFC 8446 section 5.2).
fn is_alert(record: &[u8]) -> bool {
    const SEALED_BYTES: usize = 5 + 2 + 1 + 16;
    match record.first() {
        Some(21) => true,
        Some(23) => record.len() == SEALED_BYTES,
        _ => false,
    }
}

fn encode<D>(data: &mut EncodeTlsData<'_, D>, output: &mut Vec<u8>) {
    let start = output.len();
    let mut size = 0;
    // The first attempt determines the size.
    for _ in 0..2 {
        output.resize(start + size, 0);
        match data.encode(&mut output[start..]) {
            Ok(written) => return output.truncate(start + written),
            Err(EncodeError::InsufficientSize(wanted)) => size = wanted.required_size,
            Err(EncodeError::AlreadyEncoded) => break,
        }
    }
    output.truncate(start);
}
