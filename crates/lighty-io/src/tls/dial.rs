//! TLS as a client, on a thread that may block: for the authorities that certificates come from.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::client_policy::system_authorities;
use super::materials;
use super::tls_error::TlsError;
use crate::clock::deadline::Deadline;

/// Time for one address of a host, so that the next is tried while there is time.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Whom to trust.
#[derive(Clone)]
pub struct Dialer(Arc<ClientConfig>);

/// A connection; reads and writes fail with [`io::ErrorKind::TimedOut`] once its time is up.
pub struct Dialed(StreamOwned<ClientConnection, Timed>);

impl Dialer {
    /// Trusts the authorities in a file, or those of the system.
    ///
    /// # Errors
    /// In words: the file cannot be read or holds none, or the system has no bundle.
    pub fn trusting(file: Option<&Path>) -> Result<Self, TlsError> {
        let file = match file {
            Some(file) => Some(file.to_str().ok_or("a path that is not UTF-8")?),
            None => system_authorities().map(|file| &**file),
        };
        let text = file.ok_or(
            "no file of authorities is found (package ca-certificates); acme.ca-file may name one",
        )?;
        Self::of(materials::read_certificates(text)?)
            .ok_or_else(|| format!("{text}: it holds no authority that can be used").into())
    }

    fn of(authorities: Vec<CertificateDer<'static>>) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        // A bundle may have some that are older than the rules.
        let (count, _) = roots.add_parsable_certificates(authorities);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().ok()?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        (count > 0).then(|| Self(Arc::new(config)))
    }

    /// Connects to a host. The handshake is part of the first read or write.
    ///
    /// # Errors
    /// The name cannot be resolved, or nobody answers in time.
    pub fn dial(&self, host: &str, port: u16, deadline: Deadline) -> io::Result<Dialed> {
        let host = host.trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            let patience = deadline.left().min(CONNECT_PATIENCE);
            if patience.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(&address, patience) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    let connection = ClientConnection::new(Arc::clone(&self.0), name);
                    let connection = connection.map_err(io::Error::other)?;
                    return Ok(Dialed(StreamOwned::new(connection, Timed { socket, deadline })));
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
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

/// A socket whose calls together may take so long.
struct Timed {
    socket: TcpStream,
    deadline: Deadline,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.left();
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

/// A socket's time-out has the word of one that would block.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Timed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(buf).map_err(timed_out)
    }
}

impl Write for Timed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(buf).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

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
                .is_err_and(|why| why.to_string().contains("no authority"))
        );
        let none = directory.path().join("none.pem");
        assert!(
            Dialer::trusting(Some(&none)).is_err_and(|why| why.to_string().contains("none.pem"))
        );
    }
}
