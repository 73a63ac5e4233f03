//! Certificates for tests, and TLS clients.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

use crate::client::{Client, DEADLINE};

/// An authority that writes signed certificates to a directory.
pub struct Authority {
    directory: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority. Clients with `ca.pem` of the directory trust it.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self::named(directory, "ca.pem")
    }

    /// Like [`new`](Self::new), with another file name.
    #[must_use]
    pub fn named(directory: &Path, file: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(Self::authority(file), key);
        Self::written(directory, file, issuer.expect("an authority"))
    }

    /// Creates an authority signed by this one, with another file name.
    #[must_use]
    pub fn below(&self, file: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::signed_by(Self::authority(file), key, &self.issuer);
        Self::written(&self.directory, file, issuer.expect("an authority"))
    }

    fn written(directory: &Path, file: &str, issuer: CertifiedIssuer<'static, KeyPair>) -> Self {
        std::fs::write(directory.join(file), issuer.pem()).expect("written");
        Self { directory: directory.to_owned(), issuer }
    }

    fn authority(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    /// Writes a certificate for these names, the first of which is its subject, and its key.
    pub fn issue(&self, file: &str, names: &[&str]) {
        let key = KeyPair::generate().expect("a key");
        let (leaf, key) = self.sign(names, &key);
        std::fs::write(self.directory.join(file), leaf + &key).expect("written");
    }

    /// Like [`issue`](Self::issue), with the key in another file.
    pub fn issue_apart(&self, file: &str, key_file: &str, names: &[&str]) {
        let key = KeyPair::generate().expect("a key");
        let (leaf, key) = self.sign(names, &key);
        std::fs::write(self.directory.join(file), leaf).expect("written");
        std::fs::write(self.directory.join(key_file), key).expect("written");
    }

    /// Like [`issue`](Self::issue), for an expired certificate.
    pub fn issue_expired(&self, file: &str, names: &[&str]) {
        let key = KeyPair::generate().expect("a key");
        let mut params = Self::params(names);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        let leaf = params.signed_by(&key, &self.issuer).expect("signed");
        let text = leaf.pem() + &key.serialize_pem();
        std::fs::write(self.directory.join(file), text).expect("written");
    }

    fn sign(&self, names: &[&str], key: &KeyPair) -> (String, String) {
        let leaf = Self::params(names).signed_by(key, &self.issuer).expect("signed");
        (leaf.pem(), key.serialize_pem())
    }

    fn params(names: &[&str]) -> CertificateParams {
        let owned: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(owned).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, "DE");
        params.distinguished_name.push(DnType::OrganizationName, "Prüfstelle");
        params.distinguished_name.push(DnType::CommonName, names[0]);
        params.serial_number = Some(rcgen::SerialNumber::from(vec![0x0a, 0xbc, 0x01]));
        params
    }

    /// Creates a client that trusts only this authority.
    #[must_use]
    pub fn client(&self) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        TlsClient { roots, own: None, alpn: Vec::new(), versions: rustls::ALL_VERSIONS.to_vec() }
    }

    /// Shared configuration of a server with the certificate in this file; sessions can be resumed.
    #[must_use]
    pub fn server(&self, file: &str) -> Arc<ServerConfig> {
        let leaf = CertificateDer::from_pem_file(self.path(file)).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(self.path(file)).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![leaf], key)
            .expect("a server");
        Arc::new(config)
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }
}

/// A TLS client.
#[derive(Clone)]
pub struct TlsClient {
    roots: RootCertStore,
    own: Option<PathBuf>,
    alpn: Vec<Vec<u8>>,
    versions: Vec<&'static rustls::SupportedProtocolVersion>,
}

impl TlsClient {
    /// Creates a client that trusts only the authorities in this file.
    #[must_use]
    pub fn trusting(file: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(file).expect("a certificate");
        roots.add(authority).expect("a root");
        Self { roots, own: None, alpn: Vec::new(), versions: rustls::ALL_VERSIONS.to_vec() }
    }

    /// Presents the certificate in this file, with its key.
    #[must_use]
    pub fn with_certificate(mut self, file: PathBuf) -> Self {
        self.own = Some(file);
        self
    }

    /// Offers these protocols.
    #[must_use]
    pub fn with_alpn(mut self, names: &[&str]) -> Self {
        self.alpn = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// Uses TLS 1.2.
    #[must_use]
    pub fn with_tls12(mut self) -> Self {
        self.versions = vec![&rustls::version::TLS12];
        self
    }

    /// Shared configuration of connections, including the cache of sessions.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&self.versions)
            .expect("versions")
            .with_root_certificates(self.roots.clone());
        let mut config = match &self.own {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let leaf = CertificateDer::from_pem_file(file).expect("a certificate");
                let key = PrivateKeyDer::from_pem_file(file).expect("a key");
                builder.with_client_auth_cert(vec![leaf], key).expect("a client")
            }
        };
        config.alpn_protocols.clone_from(&self.alpn);
        Arc::new(config)
    }

    /// Connects and completes the handshake with the server of this name.
    #[must_use]
    pub fn connect(&self, address: SocketAddr, name: &str) -> Client {
        self.try_connect(address, name).unwrap_or_else(|error| panic!("no handshake: {error}"))
    }

    /// Like [`connect`](Self::connect), but returns errors.
    ///
    /// # Errors
    /// The error of the handshake, from the server or this client.
    pub fn try_connect(&self, address: SocketAddr, name: &str) -> io::Result<Client> {
        connect(&self.config(), address, name).map(Client::over_tls)
    }
}

/// Connects and completes the handshake. With TLS 1.3 the server may still reject the client.
///
/// # Errors
/// The error of the handshake, from the server or the client.
pub fn connect(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
    name: &str,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    shake_hands(say_hello(config, address, name)?)
}

/// Connects and sends the client's hello, without reading the response.
///
/// # Errors
/// The system's error.
pub fn say_hello(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
    name: &str,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let socket = TcpStream::connect_timeout(&address, DEADLINE)?;
    say_hello_on(config, socket, name)
}

/// Like [`say_hello`], on an existing connection.
///
/// # Errors
/// The system's error.
pub fn say_hello_on(
    config: &Arc<ClientConfig>,
    socket: TcpStream,
    name: &str,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut stream = begin(config, socket, name)?;
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Like [`say_hello`], in pieces of this many bytes.
///
/// # Errors
/// The system's error.
pub fn say_hello_in_pieces(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
    name: &str,
    bytes: usize,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let socket = TcpStream::connect_timeout(&address, DEADLINE)?;
    let mut stream = begin(config, socket, name)?;
    let mut hello = Vec::new();
    stream.conn.write_tls(&mut hello)?;
    for piece in hello.chunks(bytes) {
        stream.sock.write_all(piece)?;
    }
    Ok(stream)
}

fn begin(
    config: &Arc<ClientConfig>,
    socket: TcpStream,
    name: &str,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(DEADLINE))?;
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, socket))
}

/// Completes the handshake.
///
/// # Errors
/// The error of the handshake, from the server or the client.
pub fn shake_hands(
    mut stream: StreamOwned<ClientConnection, TcpStream>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}
