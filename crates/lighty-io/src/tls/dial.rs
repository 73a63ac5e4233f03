//! TLS as a client, on a thread that may block: for authorities, collectors and status pages.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::client_policy::{Unverified, Verified, system_authorities};
use super::pem_file::{self, PairFiles};
use super::tls_error::TlsError;
use crate::clock::deadline::Deadline;
use crate::connect::blocking::BlockingSocket;

/// TLS client configuration with its trust settings.
#[derive(Clone)]
pub struct Dialer(Arc<ClientConfig>);

/// A connection; reads and writes fail with [`io::ErrorKind::TimedOut`] after its deadline.
pub struct Dialed(StreamOwned<ClientConnection, BlockingSocket>);

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Trusts the authorities in a file, or the system's.
fn verifier(file: Option<&str>) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let file = file.or_else(|| system_authorities().map(|file| &**file));
    let file = file.ok_or("no file of authorities is found (package ca-certificates)")?;
    Ok(Arc::new(Verified::new(file, pem_file::read_certificates(file)?, &provider())?))
}

/// Configuration for a library that speaks TLS by itself: the authorities in a file, or the
/// system's, and the client's certificate. Reads the files; blocks.
///
/// # Errors
/// A message: a file cannot be read or used, or the system has no bundle of authorities.
pub fn library_config(
    ca_file: Option<&str>,
    pair: Option<&PairFiles>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.dangerous();
    let builder = builder.with_custom_certificate_verifier(verifier(ca_file)?);
    Ok(Arc::new(match pair {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let pair = SingleCertAndKey::from(pem_file::read_pair(files)?);
            builder.with_client_cert_resolver(Arc::new(pair))
        }
    }))
}

impl Dialer {
    /// Trusts the authorities in a file, or the system's, and servers whose own certificate is in
    /// that file.
    ///
    /// # Errors
    /// A message: the file cannot be read or holds none, or the system has no bundle.
    pub fn trusting(file: Option<&Path>) -> Result<Self, TlsError> {
        let file = file.map(|file| file.to_str().ok_or("a path that is not UTF-8")).transpose()?;
        let (provider, verifier) = (provider(), verifier(file)?);
        Self::of(provider, verifier)
    }

    /// Accepts any certificate.
    ///
    /// # Errors
    /// TLS is not available.
    pub fn unverified() -> Result<Self, TlsError> {
        let provider = provider();
        Self::of(Arc::clone(&provider), Arc::new(Unverified(provider)))
    }

    fn of(
        provider: Arc<CryptoProvider>,
        verifier: Arc<dyn ServerCertVerifier>,
    ) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?.dangerous();
        let builder = builder.with_custom_certificate_verifier(verifier);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Connects to a host. The handshake is part of the first read or write.
    ///
    /// # Errors
    /// The name cannot be resolved, or no address accepts in time.
    pub fn dial(&self, host: &str, port: u16, deadline: Deadline) -> io::Result<Dialed> {
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(io::Error::other)?;
        let socket = BlockingSocket::connect(host, port, deadline)?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name);
        Ok(Dialed(StreamOwned::new(connection.map_err(io::Error::other)?, socket)))
    }
}

impl Read for Dialed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Dialed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use lighty_testkit::tls::Authority;

    use super::*;

    #[test]
    fn a_host_that_says_nothing_is_given_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::new(directory.path());
        let dialer = Dialer::trusting(Some(&authority.path("ca.pem"))).expect("an authority");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let deadline = Deadline::after(Duration::from_millis(50));
        let mut stream = dialer.dial("127.0.0.1", port, deadline).expect("a connection");
        let error = stream.write(b"GET").expect_err("no handshake");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let late = dialer.dial("127.0.0.1", port, Deadline::after(Duration::ZERO));
        assert_eq!(late.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    }

    #[test]
    fn a_file_without_authorities_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("empty.pem");
        std::fs::write(&file, "").expect("written");
        assert!(
            Dialer::trusting(Some(&file))
                .is_err_and(|why| why.to_string().contains("no certificate"))
        );
        let none = directory.path().join("none.pem");
        assert!(
            Dialer::trusting(Some(&none)).is_err_and(|why| why.to_string().contains("none.pem"))
        );
    }
}
