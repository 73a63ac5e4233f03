//! PEM files: certificates, keys, trust anchors and revocation lists.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::certificate::{CertificateFacts, CertificateNames, Der, SEQUENCE};
use super::key_fault;
use super::tls_error::TlsError;

/// Maximum size of a file: a bundle of all public authorities has 250 KB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Files of a certificate and its key: `ssl.pemfile`, and `ssl.privkey` if the key is separate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PairFiles {
    /// The leaf, then the chain; also the key, unless it has a file of its own.
    pub chain: Arc<str>,
    /// The key.
    pub key: Option<Arc<str>>,
}

impl PairFiles {
    pub(super) fn paths(&self) -> impl Iterator<Item = &Arc<str>> {
        [Some(&self.chain), self.key.as_ref()].into_iter().flatten()
    }
}

/// Reason why a certificate and its key cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// The certificate's file is the cause.
    #[error("{0}")]
    Chain(TlsError),
    /// The key's file is the cause, or the key does not belong to the certificate.
    #[error("{0}")]
    Key(TlsError),
}

impl From<PairError> for TlsError {
    fn from(error: PairError) -> Self {
        match error {
            PairError::Chain(why) | PairError::Key(why) => why,
        }
    }
}

/// Contents of a PEM file.
pub(super) struct PemFile {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    keys: Vec<PrivateKeyDer<'static>>,
    pub(super) lists: Vec<CertificateRevocationListDer<'static>>,
    /// Reason why a key in the file is not in `keys`.
    key_fault: Option<&'static str>,
}

/// Reads the facts about a certificate from a file that holds it together with its key.
///
/// # Errors
/// A message: the file cannot be read, or does not hold a certificate with its key.
pub fn examine(file: &Path) -> Result<CertificateFacts, TlsError> {
    let chain: Arc<str> = file.to_str().ok_or("a path that is not UTF-8")?.into();
    let pair = read_pair(&PairFiles { chain, key: None })?;
    let facts = pair.cert.first().and_then(|leaf| CertificateFacts::read(leaf));
    facts.ok_or_else(|| format!("{}: the certificate is broken", file.display()).into())
}

/// Reads the first certificate in a file.
///
/// # Errors
/// A message: the file cannot be read, or holds none.
pub fn read_leaf(file: &Path) -> Result<CertificateDer<'static>, TlsError> {
    let path = file.to_str().ok_or("a path that is not UTF-8")?;
    let first = read_certificates(path)?.into_iter().next();
    first.ok_or_else(|| format!("{path}: no certificate").into())
}

/// Reads the certificates in a file.
pub(super) fn read_certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    Ok(read(path)?.certificates)
}

pub(super) fn read(path: &str) -> Result<PemFile, TlsError> {
    let bytes = read_bytes(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
    parse(&bytes).map_err(|why| format!("{path}: {why}").into())
}

pub(super) fn read_bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut file = open(path).map_err(|error| crate::os_text(&error))?;
    let meta = file.metadata().map_err(|error| crate::os_text(&error))?;
    if !meta.is_file() {
        return Err("it is not a file".into());
    }
    if meta.len() > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes").into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| crate::os_text(&error))?;
    Ok(bytes)
}

/// Opens a file for reading, without blocking on a pipe that has no writer.
pub(super) fn open(path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    File::options().read(true).custom_flags(flags.bits() as i32).open(path)
}

/// Rewrites variants that OpenSSL accepts and the parser does not: a byte order mark, which Windows
/// editors write, and the labels `X509 CERTIFICATE` and `TRUSTED CERTIFICATE`. `None` if there are
/// none.
fn respelled(bytes: &[u8]) -> Option<Vec<u8>> {
    const OTHERS: [(&[u8], &[u8]); 3] = [
        (b"\xEF\xBB\xBF-----BEGIN ", b"-----BEGIN "),
        (b" TRUSTED CERTIFICATE-----", b" CERTIFICATE-----"),
        (b" X509 CERTIFICATE-----", b" CERTIFICATE-----"),
    ];
    let mut respelled: Option<Vec<u8>> = None;
    for (other, usual) in OTHERS {
        let mut rest: &[u8] = respelled.as_deref().unwrap_or(bytes);
        let mut out = Vec::new();
        while let Some(place) = rest.windows(other.len()).position(|text| text == other) {
            out.extend_from_slice(&rest[..place]);
            out.extend_from_slice(usual);
            rest = &rest[place + other.len()..];
        }
        if !out.is_empty() {
            out.extend_from_slice(rest);
            respelled = Some(out);
        }
    }
    respelled
}

/// The first value of a section. A `TRUSTED CERTIFICATE` has its trusted purposes after the
/// certificate; OpenSSL ignores such an appendix in other sections, too.
fn first_value(mut der: Vec<u8>) -> Vec<u8> {
    let mut values = Der(&der);
    if values.next().is_some() {
        let len = der.len() - values.0.len();
        der.truncate(len);
    }
    der
}

/// True if it is a revocation list of version 1, which has no version field.
fn is_list_of_version_1(der: &[u8]) -> bool {
    let signed = Der(der).next().and_then(|(_, list)| Der(list).next());
    signed.and_then(|(_, signed)| Der(signed).next()).is_some_and(|(tag, _)| tag == SEQUENCE)
}

fn parse(bytes: &[u8]) -> Result<PemFile, TlsError> {
    let respelled = respelled(bytes);
    let bytes = respelled.as_deref().unwrap_or(bytes);
    let (mut certificates, mut keys, mut lists) = (Vec::new(), Vec::new(), Vec::new());
    let (mut found, key_fault) = (false, key_fault::of_file(bytes));
    for section in <(SectionKind, Vec<u8>) as PemObject>::pem_slice_iter(bytes) {
        let (kind, der) = match section {
            Ok(section) => section,
            // Its header is not Base64.
            Err(_) if key_fault.is_some() => continue,
            Err(error) => return Err(format!("its PEM is broken: {}", message(&error)).into()),
        };
        found = true;
        match kind {
            SectionKind::Certificate => certificates.push(CertificateDer::from(first_value(der))),
            SectionKind::Crl if is_list_of_version_1(&der) => {
                return Err("a certificate revocation list of version 1, where version 2 is \
                            needed (RFC 5280 section 5.1.2.1): set crl_extensions in the \
                            configuration of `openssl ca -gencrl`, or use its -crlexts"
                    .into());
            }
            SectionKind::Crl => lists.push(CertificateRevocationListDer::from(der)),
            _ => keys.extend(PrivateKeyDer::from_pem(kind, der)),
        }
    }
    if !found && bytes.first() == Some(&0x30) {
        // DER, which does not tell its type of content.
        match PrivateKeyDer::try_from(bytes.to_vec()) {
            Ok(key) => keys.push(key),
            Err(_) => certificates.push(CertificateDer::from(bytes.to_vec())),
        }
    }
    Ok(PemFile { certificates, keys, lists, key_fault })
}

/// The library's message, except for errors that show lines as lists of numbers.
fn message(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let kind = String::from_utf8_lossy(end_marker);
            format!("the END line of a {} is missing", kind.escape_debug())
        }
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line has no end".to_owned(),
        other => other.to_string(),
    }
}

/// Checks that the key's own file has the key of the certificate.
///
/// # Errors
/// As for loading the pair, which would also accept a key beside the certificate.
pub fn check_key(files: &PairFiles) -> Result<(), PairError> {
    read_with(files, false).map(drop)
}

pub(super) fn read_pair(files: &PairFiles) -> Result<CertifiedKey, PairError> {
    read_with(files, true)
}

fn read_with(files: &PairFiles, any_key: bool) -> Result<CertifiedKey, PairError> {
    let chain = read(&files.chain).map_err(PairError::Chain)?;
    if chain.certificates.is_empty() {
        let why = format!("{}: it holds no certificate", files.chain);
        return Err(PairError::Chain(why.into()));
    }
    let own = files.key.as_ref().map(|path| read(path).map_err(PairError::Key)).transpose()?;
    // A key in the chain's file is accepted instead.
    let beside = (any_key || own.is_none()).then_some(&chain);
    let keys: Vec<_> = own.iter().chain(beside).flat_map(|file| &file.keys).collect();
    let place = files.key.as_ref().unwrap_or(&files.chain);
    let of_key = |why: String| PairError::Key(format!("{place}: {why}").into());
    let named = own.as_ref().unwrap_or(&chain);
    let why = match named.key_fault {
        Some(why) if named.keys.is_empty() => why,
        _ if !keys.is_empty() => "the private key belongs to another certificate",
        _ if own.is_some() => "it holds no private key",
        _ => "it holds no private key; ssl.privkey may name one",
    };
    let mut fault = of_key(why.to_owned());
    for key in keys {
        let Ok(signing) = aws_lc_rs::sign::any_supported_type(key) else {
            let why = key_fault::of_key(key);
            fault = of_key(format!("the private key cannot be used: {why}"));
            continue;
        };
        let pair = CertifiedKey::new(chain.certificates.clone(), signing);
        match pair.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                return Ok(pair);
            }
            Err(rustls::Error::InconsistentKeys(_)) => {}
            // Of X.509 version 1, which OpenSSL creates by default and some clients accept.
            Err(rustls::Error::InvalidCertificate(_)) if is_for_key(&pair) => return Ok(pair),
            Err(error) => {
                let why = format!("{}: the certificate is broken: {error}", files.chain);
                fault = PairError::Chain(why.into());
            }
        }
    }
    Err(fault)
}

fn is_for_key(pair: &CertifiedKey) -> bool {
    let names = pair.cert.first().and_then(|leaf| CertificateNames::read(leaf));
    let key = pair.key.public_key();
    names.zip(key).is_some_and(|(names, key)| names.has_public_key(&key))
}
