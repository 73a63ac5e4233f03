//! The handshake of an accepted connection: the server's side.

use std::io;
use std::sync::Arc;

use rustls::server::{Acceptor, UnbufferedServerConnection};

use super::client_auth::{ClientVerdict, certificate_words, list_words};
use super::driver::{Broken, Driver};
use super::names;
use super::offer::{self, Offer};
use super::policy::{PROOF, Policy};
use super::said_hello::SaidHello;
use super::traffic::{Kernel, Traffic};
use crate::transport::Stream;

/// The first byte of a handshake record.
const HANDSHAKE: u8 = 22;

/// What a client says before it is answered.
#[derive(Debug)]
pub struct Hello<'a> {
    /// The name that it wants, if it says one (SNI, RFC 6066 section 3). Lower case.
    pub server_name: Option<&'a str>,
    /// An authority looks for a proof (RFC 8737): no other protocol is to be spoken.
    pub wants_proof: bool,
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

impl From<Broken> for HandshakeFault {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Ended | Broken::Io(_) => Self::Gone,
            Broken::TooLong => Self::refused("the handshake is too long"),
            Broken::Refused(error) => Self::refused(words(&error)),
        }
    }
}

impl From<io::Error> for HandshakeFault {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// A handshake under way.
struct Handshake<'a> {
    driver: Driver<'a>,
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
        let mut traffic = traffic.map_err(|fault| HandshakeFault::refused(fault.words()))?;
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
                // Another record of TLS than the one that begins a connection.
                driver.output.extend(fatal(UNEXPECTED_MESSAGE));
                let _ = driver.send().await;
                return Err(HandshakeFault::refused("the first record is none of a handshake"));
            }
            if driver.input[0] != HANDSHAKE {
                return Err(HandshakeFault::ClearText(std::mem::take(&mut driver.input)));
            }
            let mut new = &driver.input[seen..];
            // It takes a few KB at a time.
            seen += acceptor.read_tls(&mut new)?;
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err((error, mut alert)) => {
                    let said = SaidHello::read(&driver.input);
                    let due = said.as_ref().and_then(SaidHello::alert);
                    match due.or_else(|| alert_of(&error).map(fatal)) {
                        Some(due) => driver.output.extend(due),
                        // Writing to memory cannot fail.
                        None => drop(alert.write_all(&mut driver.output)),
                    }
                    if driver.output.is_empty() {
                        driver.output.extend(fatal(DECODE_ERROR));
                    }
                    // A client that does not read its alert learns less.
                    let _ = driver.send().await;
                    return Err(early_refusal(&error, said.as_ref()));
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

    /// Goes on until application data may be exchanged.
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

    /// Says what was wrong.
    fn refusal(&self, error: &rustls::Error) -> HandshakeFault {
        let offer = self.offer.as_ref().map(|offer| offer.words(error)).unwrap_or_default();
        HandshakeFault::Refused { cause: words(error), offer }
    }
}

const UNEXPECTED_MESSAGE: u8 = 10;
const RECORD_OVERFLOW: u8 = 22;
const DECODE_ERROR: u8 = 50;

/// The record of a fatal alert before there are keys.
const fn fatal(description: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description]
}

/// The alert that RFC 8446 sections 5 and 6 want for an error for which the library sends another
/// one, or none.
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

/// Says what was wrong before there was a policy.
fn early_refusal(error: &rustls::Error, said: Option<&SaidHello>) -> HandshakeFault {
    match said.and_then(|said| said.words(error)) {
        Some((cause, offer)) => HandshakeFault::Refused { cause: cause.to_owned(), offer },
        None => HandshakeFault::refused(words(error)),
    }
}

fn words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::AlertReceived(alert) => format!("the client gave up: {alert:?}"),
        rustls::Error::PeerIncompatible(why) => {
            offer::words(why).unwrap_or(&error.to_string()).to_owned()
        }
        rustls::Error::InvalidCertificate(why) => {
            format!("the client's certificate is refused: {}", certificate_words(why))
        }
        rustls::Error::InvalidCertRevocationList(why) => {
            format!("the client's certificate is refused: {}", list_words(why))
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
