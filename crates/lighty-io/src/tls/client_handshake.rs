//! The handshake as a client, for connections that this server opened.

use std::io;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, Error};

use super::client_policy::ClientPolicy;
use super::driver::{Broken, Driver};
use super::offer;
use super::traffic::{ClientKernel, Kernel, Traffic};
use crate::transport::Stream;

/// First byte of a record: from change cipher spec to heartbeat.
const CONTENT_TYPES: std::ops::RangeInclusive<u8> = 20..=24;

/// Result of a handshake with a server.
#[derive(Debug)]
pub struct ServerInfo {
    /// True if it resumed an earlier session.
    pub is_resumed: bool,
    /// The protocol that the server chose by ALPN.
    pub alpn: Option<Box<[u8]>>,
}

/// Reason for a failed handshake with a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerFault {
    /// The connection broke.
    #[error("{0}")]
    Io(io::Error),
    /// The server closed the connection.
    #[error("it closed the connection in the handshake")]
    Closed,
    /// The server does not speak TLS.
    #[error("it speaks clear text")]
    ClearText,
    /// Its certificate is not trusted; the message continues "its certificate".
    #[error("its certificate {0}")]
    Untrusted(String),
    /// It aborted with this alert.
    #[error("it refused the handshake: {0}")]
    Refused(String),
    /// It violated the protocol, or has no parameters in common with us.
    #[error("{0}")]
    Unfit(String),
}

impl Stream {
    /// Performs the TLS handshake on the connection, as the client.
    ///
    /// The caller limits how long this may take.
    ///
    /// # Errors
    /// The reason for the failure. An alert was sent to the server, if possible.
    pub async fn connect_tls(&mut self, policy: &ClientPolicy) -> Result<ServerInfo, ServerFault> {
        let unfit = |error: Error| ServerFault::Unfit(error.to_string());
        let config = Arc::clone(&policy.config);
        let begun = UnbufferedClientConnection::new(config, policy.name.clone()).map_err(unfit)?;
        let mut driver = Driver::new(self, Vec::new());
        let done = driver.run(begun, &async || {}).await;
        let connection = done.map_err(|broken| blame(broken, &driver.input, &policy.name))?;
        let info = ServerInfo {
            is_resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
            alpn: connection.alpn_protocol().map(Into::into),
        };
        let Driver { input, opened, has_closed, .. } = driver;
        let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(unfit)?;
        let kernel = Kernel::Client(Box::new(ClientKernel::new(kernel)));
        let traffic = Traffic::new(&secrets, kernel, &input, &opened);
        let mut traffic =
            traffic.map_err(|fault| ServerFault::Unfit(fault.message().to_owned()))?;
        if has_closed {
            traffic.end();
        }
        self.secure(traffic);
        Ok(info)
    }
}

fn blame(broken: Broken, input: &[u8], name: &ServerName<'_>) -> ServerFault {
    let is_clear = input.first().is_some_and(|first| !CONTENT_TYPES.contains(first));
    match broken {
        Broken::Ended => ServerFault::Closed,
        Broken::Io(error) => ServerFault::Io(error),
        Broken::TooLong => ServerFault::Unfit("its handshake is too long".to_owned()),
        Broken::Refused(Error::InvalidMessage(_)) if is_clear => ServerFault::ClearText,
        Broken::Refused(Error::AlertReceived(alert)) => ServerFault::Refused(format!("{alert:?}")),
        Broken::Refused(Error::InvalidCertificate(why)) => {
            ServerFault::Untrusted(message(&why, name))
        }
        Broken::Refused(Error::PeerIncompatible(why)) => {
            let common = offer::message(&why).map(str::to_owned);
            ServerFault::Unfit(common.unwrap_or_else(|| format!("it is incompatible: {why:?}")))
        }
        Broken::Refused(error) => ServerFault::Unfit(error.to_string()),
    }
}

/// Message about a certificate that continues "its certificate".
fn message(why: &CertificateError, name: &ServerName<'_>) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet".to_owned()
        }
        CertificateError::UnknownIssuer => "is signed by no authority that is trusted".to_owned(),
        CertificateError::NotValidForName => format!("is not for {}", name.to_str()),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let presented: Vec<&str> = presented.iter().map(|one| bare(one)).collect();
            format!("is not for {} but for {}", name.to_str(), presented.join(", "))
        }
        CertificateError::BadSignature => "has a signature that is wrong".to_owned(),
        CertificateError::Revoked => "is revoked".to_owned(),
        // `openssl req -x509` creates the certificate of an authority.
        CertificateError::Other(other) if other.to_string().starts_with("CaUsedAsEndEntity") => {
            "has signed itself, and is not among those that are trusted".to_owned()
        }
        CertificateError::Other(other) if other.to_string() == "UnsupportedCertVersion" => {
            "is of an old version of X.509, which has no names of hosts: version 3 is needed"
                .to_owned()
        }
        other => format!("is not accepted: {other}"),
    }
}

/// Strips the library's notation from a name: `DnsName("a.test")`.
fn bare(presented: &str) -> &str {
    let within = presented.split_once('(').map(|(_, within)| within.trim_end_matches(')'));
    within.unwrap_or(presented).trim_matches('"')
}
