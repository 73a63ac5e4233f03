//! The web server's output: FastCGI 1.0 sections 4 and 5.

use alloc::vec::Vec;

use super::pairs::{Length, SHORT_LEN_MAX};
use super::record::{CONTENT_LEN_MAX, HEADER_LEN, RecordHeader, RecordType};
use super::{FastcgiFault, MANAGEMENT_ID, REQUEST_ID, VARIABLES};

/// The role of an application: FastCGI 1.0 section 6. The filter role is not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplicationRole {
    /// It responds to the request.
    #[default]
    Responder,
    /// It decides whether the request is allowed.
    Authorizer,
}

impl ApplicationRole {
    /// The role of a number; `None` for the filter and for unknown numbers.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Responder),
            2 => Some(Self::Authorizer),
            _ => None,
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Responder => 1,
            Self::Authorizer => 2,
        }
    }
}

/// The content of `FCGI_BEGIN_REQUEST`: section 5.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// The application's role.
    pub role: ApplicationRole,
    /// True if the application leaves the connection open afterwards.
    pub keep_conn: bool,
}

/// Ends the parameters.
pub const END_OF_PARAMS: [u8; HEADER_LEN] =
    RecordHeader::new(RecordType::Params, REQUEST_ID, 0).to_bytes();

/// Ends the request's body; needed after an empty one too.
pub const END_OF_STDIN: [u8; HEADER_LEN] =
    RecordHeader::new(RecordType::Stdin, REQUEST_ID, 0).to_bytes();

/// Asks the application to abort the request: section 5.4. It still sends an end.
pub const ABORT_REQUEST: [u8; HEADER_LEN] =
    RecordHeader::new(RecordType::AbortRequest, REQUEST_ID, 0).to_bytes();

/// Appends the record that begins a request.
pub fn begin_request(begin: Begin, out: &mut Vec<u8>) {
    const CONTENT_LEN: u16 = 8;
    let header = RecordHeader::new(RecordType::BeginRequest, REQUEST_ID, CONTENT_LEN);
    out.extend_from_slice(&header.to_bytes());
    let role = begin.role.number();
    out.extend_from_slice(&[0, role, u8::from(begin.keep_conn), 0, 0, 0, 0, 0]);
}

/// Appends all parameters and their end.
///
/// # Errors
/// As [`ParamsWriter::finish`].
pub fn params<'a>(
    pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    out: &mut Vec<u8>,
) -> Result<(), FastcgiFault> {
    let mut writer = ParamsWriter::new(out);
    for (name, value) in pairs {
        writer.pair(name, value);
    }
    writer.finish()
}

/// Maximum bytes of a pair with one-byte lengths.
const SHORT_PAIR_MAX: usize = 2 + 2 * SHORT_LEN_MAX;

/// Writes parameters into as many records as they need.
///
/// Section 3.4 allows a pair to span records, but PHP parses each record by itself. Therefore a
/// pair that does not fit starts a new record; only a pair longer than any record is split.
#[derive(Debug)]
pub struct ParamsWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Start of the parameters in `out`.
    start: usize,
    /// Position of the open record's header.
    record: usize,
    fault: Option<FastcgiFault>,
}

impl<'a> ParamsWriter<'a> {
    /// Creates a writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&END_OF_PARAMS);
        Self { out, start, record: start, fault: None }
    }

    /// Appends a pair. A fault is kept for [`ParamsWriter::finish`].
    pub fn pair(&mut self, name: &[u8], value: &[u8]) {
        let is_short = name.len() <= SHORT_LEN_MAX && value.len() <= SHORT_LEN_MAX;
        // Fast path for nearly all pairs.
        if is_short && self.room() >= SHORT_PAIR_MAX {
            self.out.reserve(SHORT_PAIR_MAX);
            self.out.extend_from_slice(&[name.len() as u8, value.len() as u8]);
            self.out.extend_from_slice(name);
            self.out.extend_from_slice(value);
        } else {
            self.any_pair(name, value);
        }
    }

    fn any_pair(&mut self, name: &[u8], value: &[u8]) {
        match (Length::new(name.len()), Length::new(value.len())) {
            (Ok(name_len), Ok(value_len)) => {
                let parts = [name_len.as_bytes(), value_len.as_bytes(), name, value];
                let len = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
                let room = self.room();
                if len > room && room < CONTENT_LEN_MAX {
                    self.next_record();
                }
                parts.into_iter().for_each(|part| self.push(part));
            }
            (Err(fault), _) | (_, Err(fault)) => self.fault = Some(fault),
        }
    }

    /// Ends the parameters.
    ///
    /// # Errors
    /// [`FastcgiFault::PairLength`] if a pair was too long; nothing is appended then.
    pub fn finish(mut self) -> Result<(), FastcgiFault> {
        if let Some(fault) = self.fault {
            self.out.truncate(self.start);
            return Err(fault);
        }
        // An empty record already ends the parameters.
        if self.close_record() > 0 {
            self.out.extend_from_slice(&END_OF_PARAMS);
        }
        Ok(())
    }

    fn push(&mut self, mut part: &[u8]) {
        while !part.is_empty() {
            let (now, later) = part.split_at(part.len().min(self.room()));
            self.out.extend_from_slice(now);
            part = later;
            if !part.is_empty() {
                self.next_record();
            }
        }
    }

    fn next_record(&mut self) {
        debug_assert!(self.room() < CONTENT_LEN_MAX, "an empty record would end the parameters");
        self.close_record();
        self.record = self.out.len();
        self.out.extend_from_slice(&END_OF_PARAMS);
    }

    /// Bytes that the open record can still take.
    fn room(&self) -> usize {
        CONTENT_LEN_MAX - (self.out.len() - self.record - HEADER_LEN)
    }

    /// Writes the length of the open record into its header and returns it.
    fn close_record(&mut self) -> usize {
        let len = self.out.len() - self.record - HEADER_LEN;
        debug_assert!(len <= CONTENT_LEN_MAX, "{len}");
        // `push` keeps the length within two bytes.
        let header = RecordHeader::new(RecordType::Params, REQUEST_ID, len as u16);
        self.out[self.record..][..HEADER_LEN].copy_from_slice(&header.to_bytes());
        len
    }
}

/// The header for `content_len` bytes of the request's body, which thus need not be copied. For 0
/// it is [`END_OF_STDIN`].
#[must_use]
pub const fn stdin_header(content_len: u16) -> [u8; HEADER_LEN] {
    RecordHeader::new(RecordType::Stdin, REQUEST_ID, content_len).to_bytes()
}

/// Like [`stdin_header`], plus the padding after the content that makes the record a multiple of
/// eight bytes long, as section 3.3 recommends.
#[must_use]
pub fn stdin_header_padded(content_len: u16) -> ([u8; HEADER_LEN], &'static [u8]) {
    const ZEROS: [u8; 8] = [0; 8];
    let padding = &ZEROS[..usize::from(content_len.wrapping_neg() % 8)];
    let header = RecordHeader::new(RecordType::Stdin, REQUEST_ID, content_len);
    (RecordHeader { padding_len: padding.len() as u8, ..header }.to_bytes(), padding)
}

/// Appends the query for all [`VARIABLES`]: section 4.1. Also serves as a health check.
pub fn get_values(out: &mut Vec<u8>) {
    let content_len: usize = VARIABLES.iter().map(|name| name.len() + 2).sum();
    let header = RecordHeader::new(RecordType::GetValues, MANAGEMENT_ID, content_len as u16);
    out.extend_from_slice(&header.to_bytes());
    for name in VARIABLES {
        out.extend_from_slice(&[name.len() as u8, 0]);
        out.extend_from_slice(name);
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
