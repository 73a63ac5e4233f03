//! The record layer after the handshake: seals and opens in place (RFC 8446 section 5, RFC 5246
//! section 6.2, RFC 5288, RFC 7905).
//!
//! rustls performs the handshake and then hands over the keys. From then on every byte of a
//! connection passes through this layer, which allocates nothing per record.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::AeadKey;

/// Length of a record's header.
pub(crate) const HEADER_BYTES: usize = 5;

/// Maximum plaintext of a record.
pub(crate) const PLAINTEXT_MAX: usize = 1 << 14;

/// Maximum length of a protected record after its header (RFC 8446 section 5.2; TLS 1.2 would allow
/// more than any of its suites here adds).
pub(crate) const BODY_BYTES_MAX: usize = PLAINTEXT_MAX + 256;

const TAG_BYTES: usize = 16;

/// Length of the longest key.
const KEY_BYTES_MAX: usize = 32;

/// The part of a TLS 1.2 GCM nonce that each record carries.
const EXPLICIT_NONCE_BYTES: usize = 8;

/// Content type of a record (RFC 8446 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentType {
    ChangeCipherSpec = 20,
    Alert = 21,
    Handshake = 22,
    ApplicationData = 23,
}

impl ContentType {
    fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            20 => Self::ChangeCipherSpec,
            21 => Self::Alert,
            22 => Self::Handshake,
            23 => Self::ApplicationData,
            _ => return None,
        })
    }
}

/// A fault of a record, which ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFault {
    /// It is longer than permitted.
    Overflow,
    /// It was not sealed with this key, or not at this position in the sequence.
    BadMac,
    /// The content type does not exist or is not permitted now.
    Unexpected,
    /// The key has sealed as many records as permitted.
    KeyIsSpent,
}

impl RecordFault {
    /// The alert for the fault (RFC 8446 section 6).
    pub(crate) fn alert(self) -> u8 {
        match self {
            Self::Overflow => 22,
            Self::BadMac => 20,
            Self::Unexpected => 10,
            Self::KeyIsSpent => 80,
        }
    }

    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Overflow => "a TLS record is longer than 16 KiB",
            Self::BadMac => "a TLS record does not authenticate",
            Self::Unexpected => "a TLS record of a type that may not come now",
            Self::KeyIsSpent => "a TLS key has sealed as many records as it may",
        }
    }
}

/// Method of a suite for nonces and additional data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// TLS 1.3, every suite.
    Inner,
    /// TLS 1.2 with GCM: part of the nonce travels with the record.
    Explicit,
    /// TLS 1.2 with ChaCha20-Poly1305.
    Implicit,
}

/// The expanded key, ten times as large as the key itself.
enum Context {
    Ready(LessSafeKey),
    /// Expanded from the key when it is next needed.
    Resting(&'static Algorithm),
}

impl Context {
    fn new(algorithm: &'static Algorithm, key: &AeadKey) -> Result<Self, RecordFault> {
        let key = &key.as_ref()[..algorithm.key_len()];
        let key = UnboundKey::new(algorithm, key).map_err(|_| RecordFault::KeyIsSpent)?;
        Ok(Self::Ready(LessSafeKey::new(key)))
    }
}

/// The key of one direction.
struct DirectionKey {
    context: Context,
    /// Padded to the length of the longest; zeroed on drop.
    key: AeadKey,
    iv: [u8; 12],
    sequence: u64,
    shape: Shape,
}

impl DirectionKey {
    fn new(
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
        is_tls13: bool,
    ) -> Result<Self, RecordFault> {
        let (algorithm, key, iv): (&'static Algorithm, &[u8], &[u8]) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                (&AES_128_GCM, key.as_ref(), iv.as_ref())
            }
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
                (&AES_256_GCM, key.as_ref(), iv.as_ref())
            }
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&CHACHA20_POLY1305, key.as_ref(), iv.as_ref())
            }
            _ => return Err(RecordFault::KeyIsSpent),
        };
        let shape = match secrets {
            _ if is_tls13 => Shape::Inner,
            ConnectionTrafficSecrets::Chacha20Poly1305 { .. } => Shape::Implicit,
            _ => Shape::Explicit,
        };
        let mut padded = [0; KEY_BYTES_MAX];
        padded[..key.len()].copy_from_slice(key);
        let key = AeadKey::from(padded);
        let iv = iv.try_into().map_err(|_| RecordFault::KeyIsSpent)?;
        Ok(Self { context: Context::new(algorithm, &key)?, key, iv, sequence, shape })
    }

    /// The expanded key.
    #[inline]
    fn context(&mut self) -> Result<&LessSafeKey, RecordFault> {
        if let Context::Resting(algorithm) = self.context {
            self.context = Context::new(algorithm, &self.key)?;
        }
        match &self.context {
            Context::Ready(context) => Ok(context),
            Context::Resting(_) => Err(RecordFault::KeyIsSpent),
        }
    }

    fn release_buffers(&mut self) {
        if let Context::Ready(context) = &self.context {
            self.context = Context::Resting(context.algorithm());
        }
    }

    /// The nonce of the next record, and its number.
    fn next(&mut self) -> Result<([u8; 12], u64), RecordFault> {
        let number = self.sequence;
        self.sequence = number.checked_add(1).ok_or(RecordFault::KeyIsSpent)?;
        let mut nonce = self.iv;
        for (byte, part) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= part;
        }
        Ok((nonce, number))
    }
}

/// Additional data of TLS 1.2: number, type, version and the plaintext's length. Type and version
/// are the first bytes of the header.
fn additional(number: u64, header: &[u8], length: usize) -> [u8; 13] {
    let mut bytes = [0; 13];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..11].copy_from_slice(&header[..3]);
    bytes[11..].copy_from_slice(&(length as u16).to_be_bytes());
    bytes
}

/// Seals outgoing records.
pub(crate) struct Sealer {
    key: DirectionKey,
    /// Maximum number of records per key (RFC 8446 section 5.5).
    records_max: u64,
}

impl Sealer {
    pub(crate) fn new(
        (sequence, secrets): (u64, &ConnectionTrafficSecrets),
        is_tls13: bool,
        records_max: u64,
    ) -> Result<Self, RecordFault> {
        Ok(Self { key: DirectionKey::new(sequence, secrets, is_tls13)?, records_max })
    }

    /// Frees everything but the key, until the next record.
    pub(crate) fn release_buffers(&mut self) {
        self.key.release_buffers();
    }

    /// Maximum number of records for a key of this suite.
    pub(crate) fn records_max(&self) -> u64 {
        self.records_max
    }

    /// True if the key should be replaced before more is sealed.
    pub(crate) fn is_spent(&self) -> bool {
        self.key.sequence >= self.records_max
    }

    /// Appends one record to `out`. `fill` appends the plaintext, at most [`PLAINTEXT_MAX`] bytes.
    ///
    /// # Errors
    /// [`RecordFault::KeyIsSpent`]; the connection must then be closed.
    pub(crate) fn seal(
        &mut self,
        kind: ContentType,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), RecordFault> {
        if self.key.sequence >= self.records_max.saturating_add(1 << 20) {
            return Err(RecordFault::KeyIsSpent);
        }
        let (nonce, number) = self.key.next()?;
        let start = out.len();
        let shape = self.key.shape;
        let outer = if shape == Shape::Inner { ContentType::ApplicationData } else { kind };
        out.extend_from_slice(&[outer as u8, 3, 3, 0, 0]);
        if shape == Shape::Explicit {
            out.extend_from_slice(&nonce[4..]);
        }
        let text = out.len();
        fill(out);
        let length = out.len() - text;
        debug_assert!(length <= PLAINTEXT_MAX, "{length}");
        if shape == Shape::Inner {
            out.push(kind as u8);
        }
        let body = out.len() + TAG_BYTES - start - HEADER_BYTES;
        debug_assert!(body <= BODY_BYTES_MAX, "{body}");
        out[start + 3..start + HEADER_BYTES].copy_from_slice(&(body as u16).to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let (header, text) = out.split_at_mut(text);
        let tag = match shape {
            Shape::Inner => {
                let aad = Aad::from(&header[start..start + HEADER_BYTES]);
                self.key.context()?.seal_in_place_separate_tag(nonce, aad, text)
            }
            Shape::Explicit | Shape::Implicit => {
                let aad = Aad::from(additional(number, &header[start..], length));
                self.key.context()?.seal_in_place_separate_tag(nonce, aad, text)
            }
        };
        let tag = tag.map_err(|_| RecordFault::KeyIsSpent)?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

/// Opens incoming records.
pub(crate) struct Opener {
    key: DirectionKey,
}

/// An opened record: its type, and the position of its plaintext.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OpenedRecord {
    pub(crate) kind: ContentType,
    /// Start and end of the plaintext, counted from the record's first byte.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Opener {
    pub(crate) fn new(
        (sequence, secrets): (u64, &ConnectionTrafficSecrets),
        is_tls13: bool,
    ) -> Result<Self, RecordFault> {
        Ok(Self { key: DirectionKey::new(sequence, secrets, is_tls13)? })
    }

    /// Frees everything but the key, until the next record.
    pub(crate) fn release_buffers(&mut self) {
        self.key.release_buffers();
    }

    /// Opens a complete record, header included, in place.
    ///
    /// # Errors
    /// Faults of the record; the connection must then be closed.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Result<OpenedRecord, RecordFault> {
        let (header, body) = record.split_at_mut(HEADER_BYTES);
        let outer = ContentType::parse(header[0]).ok_or(RecordFault::Unexpected)?;
        match self.key.shape {
            Shape::Inner if outer == ContentType::ApplicationData => self.open_inner(header, body),
            Shape::Inner => Err(RecordFault::Unexpected),
            Shape::Explicit | Shape::Implicit => self.open_tls12(outer, header, body),
        }
    }

    fn open_inner(&mut self, header: &[u8], body: &mut [u8]) -> Result<OpenedRecord, RecordFault> {
        let (nonce, _) = self.key.next()?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let text = self.key.context()?.open_in_place(nonce, Aad::from(header), body);
        let text = text.map_err(|_| RecordFault::BadMac)?;
        // The type is the last byte that is not padding.
        let last = text.iter().rposition(|byte| *byte != 0).ok_or(RecordFault::Unexpected)?;
        if last > PLAINTEXT_MAX {
            return Err(RecordFault::Overflow);
        }
        let kind = ContentType::parse(text[last]).ok_or(RecordFault::Unexpected)?;
        Ok(OpenedRecord { kind, start: HEADER_BYTES, end: HEADER_BYTES + last })
    }

    fn open_tls12(
        &mut self,
        kind: ContentType,
        header: &[u8],
        body: &mut [u8],
    ) -> Result<OpenedRecord, RecordFault> {
        let (mut nonce, number) = self.key.next()?;
        let explicit = match self.key.shape {
            Shape::Explicit => EXPLICIT_NONCE_BYTES,
            Shape::Inner | Shape::Implicit => 0,
        };
        let length = body.len().checked_sub(explicit + TAG_BYTES).ok_or(RecordFault::BadMac)?;
        if length > PLAINTEXT_MAX {
            return Err(RecordFault::Overflow);
        }
        let (carried, sealed) = body.split_at_mut(explicit);
        if explicit > 0 {
            nonce[4..].copy_from_slice(carried);
        }
        let aad = Aad::from(additional(number, header, length));
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.context()?.open_in_place(nonce, aad, sealed).map_err(|_| RecordFault::BadMac)?;
        let start = HEADER_BYTES + explicit;
        Ok(OpenedRecord { kind, start, end: start + length })
    }
}

#[cfg(test)]
impl Sealer {
    pub(crate) fn is_resting(&self) -> bool {
        matches!(self.key.context, Context::Resting(_))
    }
}

#[cfg(test)]
impl Opener {
    pub(crate) fn is_resting(&self) -> bool {
        matches!(self.key.context, Context::Resting(_))
    }
}

/// The length of the record at the start of `bytes`, header included; `None` until the header is
/// complete.
///
/// # Errors
/// [`RecordFault::Overflow`] if it is too long.
pub(crate) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, RecordFault> {
    let Some(header) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
    let body = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if body > BODY_BYTES_MAX {
        return Err(RecordFault::Overflow);
    }
    Ok(Some(HEADER_BYTES + body))
}
