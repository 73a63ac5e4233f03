//! The bytes between a server and the library: TLS, StartTLS, and limits of the responses.
//!
//! The library gets one end of a socket pair. A task passes its requests on, and of the responses
//! only complete messages within the limits.

use std::io;
use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use lighty_io::connect::DetachedSocket;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::error::ServerFailure;
use super::messages::{
    MessageFault, MessageSize, RESPONSES_BYTES_MAX, RESPONSES_ELEMENTS_MAX, STARTTLS_REQUEST,
    extended_result, message_size,
};
use super::results::{code, lost, shown_result};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// A connection to a server.
pub(super) trait Channel: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Channel for T {}

/// Reason for the end of a channel, if a response is at fault.
#[derive(Clone, Debug, Default)]
pub(super) struct ChannelFault(Arc<OnceLock<MessageFault>>);

impl ChannelFault {
    /// The failure that callers get: this reason if there is one, otherwise `other`.
    pub(super) fn or(&self, other: ServerFailure) -> ServerFailure {
        self.0.get().map_or(other, |reason| ServerFailure::Lost(reason.to_string()))
    }
}

/// TLS for a connection.
pub(super) struct ChannelTls {
    /// Authorities, and the client's certificate.
    pub(super) config: Arc<ClientConfig>,
    /// The name or address in the server's certificate.
    pub(super) host: String,
    /// The server expects a request before the handshake.
    pub(super) starts_clear: bool,
}

/// Secures a connection, if wanted. Nothing but the request for it is sent in the clear.
pub(super) async fn secure(
    socket: DetachedSocket,
    tls: Option<ChannelTls>,
) -> Result<Box<dyn Channel>, ServerFailure> {
    let mut socket = match socket {
        DetachedSocket::Tcp(socket) => TcpStream::from_std(socket).map_err(lost)?,
        DetachedSocket::Unix(socket) => {
            return Ok(Box::new(UnixStream::from_std(socket).map_err(lost)?));
        }
    };
    let Some(tls) = tls else { return Ok(Box::new(socket)) };
    if tls.starts_clear {
        start_tls(&mut socket).await?;
    }
    let name =
        ServerName::try_from(tls.host).map_err(|error| ServerFailure::Lost(error.to_string()))?;
    let secured = TlsConnector::from(tls.config).connect(name, socket).await;
    Ok(Box::new(secured.map_err(lost)?))
}

async fn start_tls(socket: &mut TcpStream) -> Result<(), ServerFailure> {
    let malformed = |fault: MessageFault| ServerFailure::Lost(fault.to_string());
    socket.write_all(STARTTLS_REQUEST).await.map_err(lost)?;
    let mut response = BytesMut::new();
    let length = loop {
        if let Some(size) = message_size(&response).map_err(malformed)? {
            break size.bytes;
        }
        if socket.read_buf(&mut response).await.map_err(lost)? == 0 {
            return Err(lost(io::ErrorKind::UnexpectedEof.into()));
        }
    };
    // Bytes behind the response came before the handshake, so anyone may have sent them.
    if length < response.len() {
        return Err(malformed(MessageFault::Form));
    }
    match extended_result(&response).map_err(malformed)? {
        (code::SUCCESS, _) => Ok(()),
        (code, text) => {
            Err(ServerFailure::Lost(format!("StartTLS: {}", shown_result(code, &text))))
        }
    }
}

/// Passes messages on until either side closes or a response is over a limit.
pub(super) async fn relay(server: Box<dyn Channel>, library: UnixStream, fault: ChannelFault) {
    let (mut from_server, mut to_server) = split(server);
    let (mut from_library, mut to_library) = library.into_split();
    let mut requests = BytesMut::with_capacity(PIECE_BYTES);
    let mut responses = Responses::default();
    loop {
        requests.reserve(PIECE_BYTES);
        responses.unchecked.reserve(PIECE_BYTES);
        let passed = tokio::select! {
            biased;
            count = from_library.read_buf(&mut requests) => match count {
                Ok(1..) => {
                    responses.passed = MessageSize::default();
                    pass(&mut to_server, &mut requests).await
                }
                _ => return,
            },
            count = from_server.read_buf(&mut responses.unchecked) => match count {
                Ok(1..) => match responses.check() {
                    Ok(mut complete) => pass(&mut to_library, &mut complete).await,
                    Err(reason) => {
                        let _ = fault.0.set(reason);
                        return;
                    }
                },
                _ => return,
            },
        };
        if passed.is_err() {
            return;
        }
    }
}

async fn pass(to: &mut (impl AsyncWrite + Unpin), bytes: &mut BytesMut) -> io::Result<()> {
    to.write_all_buf(bytes).await?;
    to.flush().await
}

/// The responses to a request.
#[derive(Default)]
struct Responses {
    /// Bytes that are not passed on.
    unchecked: BytesMut,
    /// Passed on since the last request.
    passed: MessageSize,
}

impl Responses {
    /// Takes the complete messages.
    fn check(&mut self) -> Result<BytesMut, MessageFault> {
        let mut complete = 0;
        while let Some(size) = message_size(&self.unchecked[complete..])? {
            complete += size.bytes;
            self.passed.bytes += size.bytes;
            self.passed.elements += size.elements;
        }
        if self.passed.bytes > RESPONSES_BYTES_MAX {
            return Err(MessageFault::Many);
        }
        if self.passed.elements > RESPONSES_ELEMENTS_MAX {
            return Err(MessageFault::Elements);
        }
        Ok(self.unchecked.split_to(complete))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of 1,024 bytes: a byte string.
    fn kilobyte() -> Vec<u8> {
        [&b"\x30\x82\x03\xfc\x04\x82\x03\xf8"[..], &[b'x'; 1016]].concat()
    }

    #[test]
    fn responses_to_a_request_have_a_limit() {
        let mut responses = Responses::default();
        for _ in 0..RESPONSES_BYTES_MAX / 1024 {
            responses.unchecked.extend_from_slice(&kilobyte());
            assert_eq!(responses.check().map(|passed| passed.len()), Ok(1024));
        }
        responses.unchecked.extend_from_slice(&kilobyte());
        assert_eq!(responses.check(), Err(MessageFault::Many));
    }

    #[test]
    fn elements_of_responses_have_a_limit() {
        let mut responses = Responses::default();
        for _ in 0..RESPONSES_ELEMENTS_MAX {
            responses.unchecked.extend_from_slice(b"\x30\x02\x04\x00");
            assert_eq!(responses.check().map(|passed| passed.len()), Ok(4));
        }
        responses.unchecked.extend_from_slice(b"\x30\x02\x04\x00");
        assert_eq!(responses.check(), Err(MessageFault::Elements));
    }

    #[test]
    fn part_of_a_message_waits_for_the_rest() {
        let mut responses = Responses::default();
        let (first, rest) = (kilobyte(), kilobyte());
        responses.unchecked.extend_from_slice(&first);
        responses.unchecked.extend_from_slice(&rest[..700]);
        assert_eq!(responses.check().as_deref(), Ok(&first[..]));
        assert_eq!(responses.check().as_deref(), Ok(&[][..]));
        responses.unchecked.extend_from_slice(&rest[700..]);
        assert_eq!(responses.check().as_deref(), Ok(&rest[..]));
    }
}
