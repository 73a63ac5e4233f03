//! The handshake of a connection, driven by rustls over the connection's own buffers.

use std::io;
use std::sync::Arc;

use rustls::server::{Acceptor, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};

use super::client_auth::ClientVerdict;
use super::names;
use super::offer::{self, Offer};
use super::policy::Policy;
use super::traffic::Traffic;
use crate::transport::Stream;

/// Bytes of a client's handshake that wait to be processed: a message of rustls' longest, and what
/// may follow it.
const INPUT_BYTES_MAX: usize = 80 << 10;

/// Bytes read at a time. A hello with a post-quantum key share has some 1,800.
const PIECE_BYTES: usize = 4 << 10;

/// The first byte of a handshake record.
const HANDSHAKE: u8 = 22;

/// What a client says before it is answered.
#[derive(Debug)]
pub struct Hello<'a> {
    /// The name that it wants, if it says one (SNI, RFC 6066 section 3). Lower case.
    pub server_name: Option<&'a str>,
}

/// Why a client that says hello is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The name that it wants is not served here.
    UnknownName,
    /// The server cannot do it now.
    Internal,
}

impl Denial {
    /// The alert's description (RFC 8446 section 6).
    fn alert(self) -> u8 {
        match self {
            Self::UnknownName => 112,
            Self::Internal => 80,
        }
    }
}

/// What a handshake has settled.
#[derive(Debug)]
pub struct TlsInfo {
    /// OpenSSL's name of the version: `TLSv1.3`.
    pub version: &'static str,
    /// OpenSSL's name of the suite.
    pub cipher: &'static str,
    /// Bits of the suite's key.
    pub cipher_bits: u16,
    /// The protocol above, as ALPN chose it.
    pub alpn: Option<Box<[u8]>>,
    /// The name that the client wants, in lower case.
    pub server_name: Option<Box<str>>,
    /// True if it went on with an earlier session.
    pub is_resumed: bool,
    /// The client's certificate in DER, if it sent one.
    pub client_certificate: Option<Box<[u8]>>,
    /// What became of it; `None` if it was not asked for.
    pub client_verdict: Option<ClientVerdict>,
    /// What the connection was accepted under.
    pub policy: Arc<Policy>,
}

/// Why there is no TLS connection.
#[derive(Debug)]
pub enum HandshakeFault {
    /// The client has begun with something else: these bytes.
    ClearText(Vec<u8>),
    /// The client has gone, or broke the connection.
    Gone,
    /// There was no policy for what it wants.
    Unserved,
    /// It broke the protocol or shares nothing with the server: the cause, and what was offered and
    /// wanted, if that is what it is about.
    Refused {
        /// What went wrong, in words for the log.
        cause: String,
        /// What was offered and wanted; empty where that is not the matter.
        offer: String,
    },
}

impl HandshakeFault {
    fn refused(cause: impl Into<String>) -> Self {
        Self::Refused { cause: cause.into(), offer: String::new() }
    }
}

impl From<io::Error> for HandshakeFault {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// A handshake under way.
struct Handshake<'a> {
    stream: &'a Stream,
    /// What has arrived and is not processed.
    input: Vec<u8>,
    /// What is to be sent.
    output: Vec<u8>,
    /// Application data that came with the client's last message.
    opened: Vec<u8>,
    offer: Option<Offer>,
}

impl Stream {
    /// Turns the connection into one that speaks TLS, as the server. `early` has arrived already.
    /// `choose` finds the policy for what the client says. `rest` is awaited before each step that
    /// costs much time, so that a caller can spread them.
    ///
    /// The caller limits how long this may take.
    ///
    /// # Errors
    /// Why there is no TLS connection; the client has been told, if it can be.
    pub async fn accept_tls(
        &mut self,
        early: Vec<u8>,
        choose: impl FnOnce(&Hello<'_>) -> Result<Arc<Policy>, Denial>,
        rest: impl AsyncFn(),
    ) -> Result<TlsInfo, HandshakeFault> {
        let (input, output, opened) = (early, Vec::new(), Vec::new());
        let mut handshake = Handshake { stream: self, input, output, opened, offer: None };
        let (policy, server_name) = handshake.hello(choose).await?;
        rest().await;
        let connection = UnbufferedServerConnection::new(Arc::clone(&policy.config));
        let connection = connection.map_err(|error| HandshakeFault::refused(error.to_string()))?;
        let connection = handshake.run(connection, &rest).await?;
        let info = describe(&connection, policy, server_name)?;
        let (input, opened) = (handshake.input, handshake.opened);
        let refused = |error: rustls::Error| HandshakeFault::refused(error.to_string());
        let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(refused)?;
        let traffic = Traffic::new(&secrets, kernel, &input, &opened);
        let traffic = traffic.map_err(|fault| HandshakeFault::refused(fault.words()))?;
        self.secure(traffic);
        Ok(info)
    }
}

impl Handshake<'_> {
    /// Reads the client's first message and finds a policy for it.
    async fn hello(
        &mut self,
        choose: impl FnOnce(&Hello<'_>) -> Result<Arc<Policy>, Denial>,
    ) -> Result<(Arc<Policy>, Option<Box<str>>), HandshakeFault> {
        let mut acceptor = Acceptor::default();
        let mut seen = 0;
        let accepted = loop {
            if self.input.len() == seen {
                self.receive().await?;
            }
            if self.input[0] != HANDSHAKE {
                return Err(HandshakeFault::ClearText(std::mem::take(&mut self.input)));
            }
            let mut new = &self.input[seen..];
            // It takes a few KB at a time.
            seen += acceptor.read_tls(&mut new)?;
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err((error, mut alert)) => {
                    // Writing to memory cannot fail.
                    let _ = alert.write_all(&mut self.output);
                    return self.refuse(error).await;
                }
            }
        };
        let hello = accepted.client_hello();
        let server_name =
            hello.server_name().map(|name| name.to_ascii_lowercase().into_boxed_str());
        match choose(&Hello { server_name: server_name.as_deref() }) {
            Ok(policy) => {
                self.offer = Some(Offer::new(&hello, &policy));
                Ok((policy, server_name))
            }
            Err(denial) => {
                self.output.extend_from_slice(&[21, 3, 3, 0, 2, 2, denial.alert()]);
                self.send().await?;
                Err(HandshakeFault::Unserved)
            }
        }
    }

    /// Goes on until application data may be exchanged.
    async fn run(
        &mut self,
        mut connection: UnbufferedServerConnection,
        rest: &impl AsyncFn(),
    ) -> Result<UnbufferedServerConnection, HandshakeFault> {
        loop {
            let UnbufferedStatus { discard, state } =
                connection.process_tls_records(&mut self.input);
            let mut wants = false;
            match state {
                Err(error) => {
                    self.input.drain(..discard);
                    self.take_alerts(&mut connection);
                    return self.refuse(error).await;
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
                Ok(ConnectionState::BlockedHandshake) => wants = true,
                Ok(_) => return Err(HandshakeFault::Gone),
            }
            self.input.drain(..discard);
            if wants {
                self.receive().await?;
                rest().await;
            }
        }
    }

    /// Takes what the client is told of an error. The input stays as it is but for what is to be
    /// discarded: the library remembers places in it.
    fn take_alerts(&mut self, connection: &mut UnbufferedServerConnection) {
        loop {
            let UnbufferedStatus { discard, state } =
                connection.process_tls_records(&mut self.input);
            match state {
                Ok(ConnectionState::EncodeTlsData(mut alert)) => {
                    encode(&mut alert, &mut self.output);
                }
                _ => return,
            }
            self.input.drain(..discard);
        }
    }

    /// Reads more of what the client sends.
    async fn receive(&mut self) -> Result<(), HandshakeFault> {
        let start = self.input.len();
        if start >= INPUT_BYTES_MAX {
            return Err(HandshakeFault::refused("the handshake is too long"));
        }
        self.input.resize(start + PIECE_BYTES, 0);
        let count = self.stream.read(&mut self.input[start..]).await;
        self.input.truncate(start + *count.as_ref().unwrap_or(&0));
        match count? {
            0 => Err(HandshakeFault::Gone),
            _ => Ok(()),
        }
    }

    async fn send(&mut self) -> io::Result<()> {
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

    /// Sends the alert that is prepared. The words say what was wrong.
    async fn refuse<T>(&mut self, error: rustls::Error) -> Result<T, HandshakeFault> {
        // A client that does not read its alert learns less.
        let _ = self.send().await;
        let offer = self.offer.as_ref().map(|offer| offer.words(&error)).unwrap_or_default();
        Err(HandshakeFault::Refused { cause: words(&error), offer })
    }
}

fn words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::AlertReceived(alert) => format!("the client gave up: {alert:?}"),
        rustls::Error::PeerIncompatible(why) => {
            offer::words(why).unwrap_or(&error.to_string()).to_owned()
        }
        rustls::Error::NoApplicationProtocol => "no protocol above TLS in common".to_owned(),
        rustls::Error::General(_) => "the client takes no signature of the certificate".to_owned(),
        error => error.to_string(),
    }
}

fn encode<D>(data: &mut EncodeTlsData<'_, D>, output: &mut Vec<u8>) {
    let start = output.len();
    let mut size = 0;
    // The first attempt asks for the size.
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

fn describe(
    connection: &UnbufferedServerConnection,
    policy: Arc<Policy>,
    server_name: Option<Box<str>>,
) -> Result<TlsInfo, HandshakeFault> {
    let incomplete = || HandshakeFault::refused("the handshake is not complete");
    let version = connection.protocol_version().ok_or_else(incomplete)?;
    let suite = connection.negotiated_cipher_suite().ok_or_else(incomplete)?;
    let (cipher, cipher_bits) = names::suite_name(suite.suite());
    let chain = connection.peer_certificates();
    let client_verdict = policy.client_auth.as_ref().map(|auth| auth.judge(chain));
    let is_enforced = policy.client_auth.as_ref().is_some_and(|auth| auth.is_enforced());
    // A resumed session remembers a certificate that may have expired or been revoked since.
    if is_enforced && client_verdict != Some(ClientVerdict::Verified) {
        return Err(HandshakeFault::refused("the client's certificate is not valid"));
    }
    Ok(TlsInfo {
        version: names::version_name(version),
        cipher,
        cipher_bits,
        alpn: connection.alpn_protocol().map(Into::into),
        server_name,
        is_resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
        client_certificate: chain.and_then(|chain| chain.first()).map(|leaf| leaf.as_ref().into()),
        client_verdict,
        policy,
    })
}
