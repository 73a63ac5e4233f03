//! The handshake as a server, for accepted connections.

use std::io;
use std::sync::Arc;

use rustls::server::{Acceptor, UnbufferedServerConnection};

use super::client_auth::{ClientVerdict, certificate_message, crl_message};
use super::driver::{Broken, Driver};
use super::names;
use super::offer::{self, Offer};
use super::policy::{PROOF, Policy};
use super::received_hello::ReceivedHello;
use super::traffic::{Kernel, Traffic};
use crate::transport::Stream;

/// The first byte of a handshake record.
const HANDSHAKE: u8 = 22;

/// The client's hello, as needed for choosing a policy.
#[derive(Debug)]
pub struct Hello<'a> {
    /// The requested server name, if any (SNI, RFC 6066 section 3). Lower case.
    pub server_name: Option<&'a str>,
    /// The client is an authority that validates a challenge (RFC 8737): it uses no other protocol.
    pub wants_proof: bool,
}

/// Reason for refusing a client after its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The requested name is not served here.
    UnknownName,
    /// The server has a temporary problem.
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

/// Result of a handshake.
#[derive(Debug)]
pub struct TlsInfo {
    /// OpenSSL's name of the version: `TLSv1.3`.
    pub version: &'static str,
    /// OpenSSL's name of the suite.
    pub cipher: &'static str,
    /// Bits of the suite's key.
    pub cipher_bits: u16,
    /// The protocol chosen by ALPN.
    pub alpn: Option<Box<[u8]>>,
    /// The requested server name, in lower case.
    pub server_name: Option<Box<str>>,
    /// True if it resumed an earlier session.
    pub is_resumed: bool,
    /// The client's certificate in DER, if it sent one.
    pub client_certificate: Option<Box<[u8]>>,
    /// Result of verifying it; `None` if none was requested.
    pub client_verdict: Option<ClientVerdict>,
    /// The policy in force at the handshake.
    pub policy: Arc<Policy>,
}

/// Reason for a failed handshake.
#[derive(Debug)]
pub enum HandshakeFault {
    /// The client does not speak TLS; it sent these bytes.
    ClearText(Vec<u8>),
    /// The client closed the connection, or it failed.
    Gone,
    /// There is no policy for the requested name.
    Unserved,
    /// The client violated the protocol or has no parameters in common with the server.
    Refused {
        /// The cause, for the log.
        cause: String,
        /// The parameters offered and required, if the cause is about them; otherwise empty.
        offer: String,
    },
}

impl HandshakeFault {
    fn refused(cause: impl Into<String>) -> Self {
        Self::Refused { cause: cause.into(), offer: String::new() }
    }
}

impl From<Broken> for HandshakeFault {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Ended | Broken::Io(_) => Self::Gone,
            Broken::TooLong => Self::refused("the handshake is too long"),
            Broken::Refused(error) => Self::refused(message(&error)),
        }
    }
}

impl From<io::Error> for HandshakeFault {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// A handshake in progress.
struct Handshake<'a> {
    driver: Driver<'a>,
    offer: Option<Offer>,
}

impl Stream {
    /// Performs the TLS handshake on the connection, as the server. `early` are bytes received
    /// before. `choose` finds the policy for the client's hello. `rest` is awaited before each
    /// expensive step, so that a caller can spread them.
    ///
    /// The caller limits how long this may take.
    ///
    /// # Errors
    /// The reason for the failure. An alert was sent to the client, if possible.
    pub async fn accept_tls(
        &mut self,
        early: Vec<u8>,
        choose: impl AsyncFnOnce(&Hello<'_>) -> Result<Arc<Policy>, Denial>,
        rest: impl AsyncFn(),
    ) -> Result<TlsInfo, HandshakeFault> {
        let mut handshake = Handshake { driver: Driver::new(self, early), offer: None };
        let (policy, server_name) = handshake.hello(choose).await?;
        rest().await;
        let connection = UnbufferedServerConnection::new(Arc::clone(&policy.config));
        let connection = connection.map_err(|error| HandshakeFault::refused(error.to_string()))?;
        let connection = handshake.run(connection, &rest).await?;
        let info = describe(&connection, policy, server_name)?;
        let Driver { input, opened, has_closed, .. } = handshake.driver;
        let refused = |error: rustls::Error| HandshakeFault::refused(error.to_string());
        let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(refused)?;
        let traffic = Traffic::new(&secrets, Kernel::Server(kernel), &input, &opened);
        let mut traffic = traffic.map_err(|fault| HandshakeFault::refused(fault.message()))?;
        if has_closed {
            traffic.end();
        }
        self.secure(traffic);
        Ok(info)
    }
}

impl Handshake<'_> {
    /// Reads the client's first message and finds a policy for it.
    async fn hello(
        &mut self,
        choose: impl AsyncFnOnce(&Hello<'_>) -> Result<Arc<Policy>, Denial>,
    ) -> Result<(Arc<Policy>, Option<Box<str>>), HandshakeFault> {
        let mut acceptor = Acceptor::default();
        let mut seen = 0;
        let driver = &mut self.driver;
        let accepted = loop {
            if driver.input.len() == seen {
                driver.receive().await?;
            }
            if let [20 | 21 | 23 | 24, 3, ..] = driver.input[..] {
                // A TLS record, but not of the type that begins a connection.
                driver.output.extend(fatal(UNEXPECTED_MESSAGE));
                let _ = driver.send().await;
                return Err(HandshakeFault::refused("the first record is none of a handshake"));
            }
            if driver.input[0] != HANDSHAKE {
                return Err(HandshakeFault::ClearText(std::mem::take(&mut driver.input)));
            }
            let mut new = &driver.input[seen..];
            // It reads a few KB at a time.
            seen += acceptor.read_tls(&mut new)?;
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err((error, mut alert)) => {
                    let received = ReceivedHello::read(&driver.input);
                    let due = received.as_ref().and_then(ReceivedHello::alert);
                    match due.or_else(|| alert_of(&error).map(fatal)) {
                        Some(due) => driver.output.extend(due),
                        // Writing to memory cannot fail.
                        None => drop(alert.write_all(&mut driver.output)),
                    }
                    if driver.output.is_empty() {
                        driver.output.extend(fatal(DECODE_ERROR));
                    }
                    // An error does not matter: the client then only lacks the alert.
                    let _ = driver.send().await;
                    return Err(early_refusal(&error, received.as_ref()));
                }
            }
        };
        let hello = accepted.client_hello();
        let server_name =
            hello.server_name().map(|name| name.to_ascii_lowercase().into_boxed_str());
        let mut protocols = hello.alpn().into_iter().flatten();
        let wants_proof = protocols.next() == Some(PROOF.as_bytes());
        let server_name_text = server_name.as_deref();
        match choose(&Hello { server_name: server_name_text, wants_proof }).await {
            Ok(policy) => {
                self.offer = Some(Offer::new(&hello, &driver.input, &policy));
                Ok((policy, server_name))
            }
            Err(denial) => {
                driver.output.extend(fatal(denial.alert()));
                driver.send().await?;
                Err(HandshakeFault::Unserved)
            }
        }
    }

    /// Continues until application data may be exchanged.
    async fn run(
        &mut self,
        connection: UnbufferedServerConnection,
        rest: &impl AsyncFn(),
    ) -> Result<UnbufferedServerConnection, HandshakeFault> {
        match self.driver.run(connection, rest).await {
            Err(Broken::Refused(error)) => Err(self.refusal(&error)),
            done => Ok(done?),
        }
    }

    /// Describes an error for the log.
    fn refusal(&self, error: &rustls::Error) -> HandshakeFault {
        let offer = self.offer.as_ref().map(|offer| offer.message(error)).unwrap_or_default();
        HandshakeFault::Refused { cause: message(error), offer }
    }
}

const UNEXPECTED_MESSAGE: u8 = 10;
const RECORD_OVERFLOW: u8 = 22;
const DECODE_ERROR: u8 = 50;

/// An unencrypted record with a fatal alert.
const fn fatal(description: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description]
}

/// The alert that RFC 8446 sections 5 and 6 require for an error, if rustls sends a different one,
/// or none.
fn alert_of(error: &rustls::Error) -> Option<u8> {
    use rustls::{Error as E, InvalidMessage as I, PeerMisbehaved as P};
    match error {
        E::InvalidMessage(I::MessageTooLarge) => Some(RECORD_OVERFLOW),
        E::InvalidMessage(I::InvalidEmptyPayload | I::InvalidContentType)
        | E::PeerMisbehaved(P::MessageInterleavedWithHandshakeMessage)
        | E::InappropriateMessage { .. }
        | E::InappropriateHandshakeMessage { .. } => Some(UNEXPECTED_MESSAGE),
        _ => None,
    }
}

/// Describes an error that occurred before a policy was chosen.
fn early_refusal(error: &rustls::Error, received: Option<&ReceivedHello>) -> HandshakeFault {
    match received.and_then(|received| received.message(error)) {
        Some((cause, offer)) => HandshakeFault::Refused { cause: cause.to_owned(), offer },
        None => HandshakeFault::refused(message(error)),
    }
}

fn message(error: &rustls::Error) -> String {
    match error {
        rustls::Error::AlertReceived(alert) => format!("the client gave up: {alert:?}"),
        rustls::Error::PeerIncompatible(why) => {
            offer::message(why).unwrap_or(&error.to_string()).to_owned()
        }
        rustls::Error::InvalidCertificate(why) => {
            format!("the client's certificate is refused: {}", certificate_message(why))
        }
        rustls::Error::InvalidCertRevocationList(why) => {
            format!("the client's certificate is refused: {}", crl_message(why))
        }
        rustls::Error::NoApplicationProtocol => "no protocol above TLS in common".to_owned(),
        error => error.to_string(),
    }
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
    // The session may store a certificate that has expired or been revoked since.
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
