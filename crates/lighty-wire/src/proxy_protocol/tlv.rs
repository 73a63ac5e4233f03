//! Extensions of version 2: type, length, value. Sections 2.2.1 to 2.2.8.

use alloc::vec::Vec;

use super::crc32c::crc32c;
use super::{EncodeFault, ProxyFault};

const ALPN: u8 = 0x01;
const AUTHORITY: u8 = 0x02;
const CRC32C: u8 = 0x03;
const UNIQUE_ID: u8 = 0x05;
const TLS: u8 = 0x20;
const TLS_VERSION: u8 = 0x21;
const TLS_COMMON_NAME: u8 = 0x22;
const TLS_CIPHER: u8 = 0x23;
const TLS_SIGNATURE_ALGORITHM: u8 = 0x24;
const TLS_KEY_ALGORITHM: u8 = 0x25;

/// Bits of the field `client`.
const CLIENT_TLS: u8 = 0x01;
const CLIENT_CERT_CONNECTION: u8 = 0x02;
const CLIENT_CERT_SESSION: u8 = 0x04;

/// Bytes of type and length.
const HEAD_BYTES: usize = 3;

/// Bytes of a unique id: section 2.2.5.
pub const UNIQUE_ID_BYTES_MAX: usize = 128;

/// Data of a header besides addresses. Types that are not listed here are skipped. Of repeated
/// types the first counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    /// The application protocol negotiated by TLS, such as `h2`.
    pub alpn: Option<&'a [u8]>,
    /// The host name that the client requested. May contain any bytes: check it like a `Host`.
    pub authority: Option<&'a [u8]>,
    /// Identifies the connection in the logs of all proxies.
    pub unique_id: Option<&'a [u8]>,
    /// The client's TLS parameters.
    pub tls: Option<Tls<'a>>,
    /// When parsed: there was a valid checksum. When encoded: add one.
    pub checksum: bool,
}

/// `PP2_TYPE_SSL`, with the sub-types of the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tls<'a> {
    /// The client connected over TLS.
    pub is_encrypted: bool,
    /// The client presented a certificate on this connection.
    pub certificate_on_connection: bool,
    /// The client presented a certificate at least once in the TLS session.
    pub certificate_in_session: bool,
    /// 0 if the client presented a certificate and it was verified.
    pub verify: u32,
    /// `TLSv1.3`.
    pub version: Option<&'a [u8]>,
    /// The common name of the client's certificate.
    pub common_name: Option<&'a [u8]>,
    /// The cipher's name.
    pub cipher: Option<&'a [u8]>,
    /// The algorithm that signed the proxy's certificate.
    pub signature_algorithm: Option<&'a [u8]>,
    /// The algorithm of the key of the proxy's certificate.
    pub key_algorithm: Option<&'a [u8]>,
}

impl Tls<'_> {
    /// True if the client presented a valid certificate. A zero in `verify` alone is not
    /// sufficient: senders also write it for clients without a certificate.
    #[must_use]
    pub const fn is_verified(&self) -> bool {
        (self.certificate_on_connection || self.certificate_in_session) && self.verify == 0
    }
}

/// Parses the extensions from `start` to the end of a complete header.
pub(super) fn parse(header: &[u8], start: usize) -> Result<Extensions<'_>, ProxyFault> {
    let mut extensions = Extensions::default();
    let mut rest = &header[start..];
    while !rest.is_empty() {
        let (kind, value, behind) = split(rest)?;
        match kind {
            ALPN => keep(&mut extensions.alpn, value),
            AUTHORITY => keep(&mut extensions.authority, value),
            UNIQUE_ID if value.len() > UNIQUE_ID_BYTES_MAX => return Err(ProxyFault::TlvLength),
            UNIQUE_ID => keep(&mut extensions.unique_id, value),
            TLS if extensions.tls.is_none() => extensions.tls = Some(parse_tls(value)?),
            CRC32C if extensions.checksum => return Err(ProxyFault::ChecksumRepeated),
            CRC32C => {
                check_sum(header, header.len() - behind.len(), value)?;
                extensions.checksum = true;
            }
            _ => {}
        }
        rest = behind;
    }
    Ok(extensions)
}

/// Splits into type, value and remainder.
fn split(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), ProxyFault> {
    let (&[kind, high, low], rest) = bytes.split_first_chunk().ok_or(ProxyFault::Tlv)?;
    let len = usize::from(u16::from_be_bytes([high, low]));
    let (value, behind) = rest.split_at_checked(len).ok_or(ProxyFault::Tlv)?;
    Ok((kind, value, behind))
}

fn keep<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8]) {
    if slot.is_none() {
        *slot = Some(value);
    }
}

/// Verifies the checksum of the whole header, with zeros in place of the checksum.
fn check_sum(header: &[u8], end: usize, value: &[u8]) -> Result<(), ProxyFault> {
    let reported: [u8; 4] = value.try_into().map_err(|_| ProxyFault::TlvLength)?;
    let sum = crc32c(&[&header[..end - reported.len()], &[0; 4], &header[end..]]);
    if sum == u32::from_be_bytes(reported) { Ok(()) } else { Err(ProxyFault::Checksum) }
}

fn parse_tls(value: &[u8]) -> Result<Tls<'_>, ProxyFault> {
    let (&[client, a, b, c, d], mut rest) =
        value.split_first_chunk().ok_or(ProxyFault::TlvLength)?;
    let mut tls = Tls {
        is_encrypted: client & CLIENT_TLS != 0,
        certificate_on_connection: client & CLIENT_CERT_CONNECTION != 0,
        certificate_in_session: client & CLIENT_CERT_SESSION != 0,
        verify: u32::from_be_bytes([a, b, c, d]),
        ..Tls::default()
    };
    while !rest.is_empty() {
        let (kind, value, behind) = split(rest)?;
        match kind {
            TLS_VERSION => keep(&mut tls.version, value),
            TLS_COMMON_NAME => keep(&mut tls.common_name, value),
            TLS_CIPHER => keep(&mut tls.cipher, value),
            TLS_SIGNATURE_ALGORITHM => keep(&mut tls.signature_algorithm, value),
            TLS_KEY_ALGORITHM => keep(&mut tls.key_algorithm, value),
            _ => {}
        }
        rest = behind;
    }
    Ok(tls)
}

/// Appends all extensions. The checksum's placeholder comes last.
pub(super) fn push(extensions: &Extensions<'_>, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    if extensions.unique_id.is_some_and(|id| id.len() > UNIQUE_ID_BYTES_MAX) {
        return Err(EncodeFault::UniqueIdTooLong);
    }
    push_some(ALPN, extensions.alpn, out)?;
    push_some(AUTHORITY, extensions.authority, out)?;
    push_some(UNIQUE_ID, extensions.unique_id, out)?;
    if let Some(tls) = &extensions.tls {
        push_tls(tls, out)?;
    }
    push_some(CRC32C, extensions.checksum.then_some(&[0; 4]), out)
}

fn push_some(kind: u8, value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    let Some(value) = value else { return Ok(()) };
    let len = u16::try_from(value.len()).map_err(|_| EncodeFault::TooLong)?;
    out.push(kind);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
    Ok(())
}

fn push_tls(tls: &Tls<'_>, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    let start = out.len();
    let bit = |flag: bool, bit: u8| if flag { bit } else { 0 };
    out.extend_from_slice(&[TLS, 0, 0]);
    out.push(
        bit(tls.is_encrypted, CLIENT_TLS)
            | bit(tls.certificate_on_connection, CLIENT_CERT_CONNECTION)
            | bit(tls.certificate_in_session, CLIENT_CERT_SESSION),
    );
    out.extend_from_slice(&tls.verify.to_be_bytes());
    push_some(TLS_VERSION, tls.version, out)?;
    push_some(TLS_COMMON_NAME, tls.common_name, out)?;
    push_some(TLS_CIPHER, tls.cipher, out)?;
    push_some(TLS_SIGNATURE_ALGORITHM, tls.signature_algorithm, out)?;
    push_some(TLS_KEY_ALGORITHM, tls.key_algorithm, out)?;
    let len = out.len() - start - HEAD_BYTES;
    let len = u16::try_from(len).map_err(|_| EncodeFault::TooLong)?;
    out[start + 1..start + HEAD_BYTES].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// Fills in the checksum at the end of an otherwise complete header.
pub(super) fn push_checksum(start: usize, out: &mut [u8]) {
    let sum = crc32c(&[&out[start..]]);
    let at = out.len() - 4;
    out[at..].copy_from_slice(&sum.to_be_bytes());
}
