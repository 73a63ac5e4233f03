//! The application's side of FastCGI 1.0.
//!
//! For programs that serve requests themselves, and for scripted peers in tests. One request at a
//! time per connection; reject a second one with [`ProtocolStatus::CantMultiplex`].

use alloc::vec::Vec;
use core::ops::Range;

use super::pairs::{push_pair, split_pair};
use super::record::{CONTENT_LEN_MAX, RecordHeader, RecordPiece, RecordReader, RecordType};
use super::{
    ApplicationRole, Begin, EndRequest, FastcgiFault, MANAGEMENT_ID, ProtocolStatus, VARIABLES,
    Values,
};

/// Maximum bytes of a request's parameters, lengths included.
pub const PARAMS_BYTES_MAX: usize = 1024 * 1024;

/// Maximum bytes of content of `FCGI_GET_VALUES`.
pub const MANAGEMENT_BYTES_MAX: u16 = 1024;

/// Bytes of content of `FCGI_BEGIN_REQUEST`.
const BEGIN_LEN: u16 = 8;

/// Result of [`RequestDecoder::feed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastcgiRequestStep {
    /// Number of bytes consumed; pass the rest in again.
    pub consumed: usize,
    /// The event that they complete. `None`: more bytes are needed.
    pub event: Option<FastcgiRequestEvent>,
}

/// A message from the web server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastcgiRequestEvent {
    /// A request begins.
    Begin(Begin),
    /// The request's parameters are complete: see [`RequestDecoder::params`].
    Params,
    /// These bytes of the input are part of the request's body.
    Stdin(Range<usize>),
    /// The request's body is complete.
    EndOfStdin,
    /// The client has gone. The application must still end the request.
    Abort,
    /// A request to reject: end it under this id with this status.
    Refuse(u16, ProtocolStatus),
    /// A query for variables: see [`RequestDecoder::requested`].
    GetValues,
    /// A management record of this type; respond with [`push_unknown_type`].
    UnknownType(u8),
}

/// Progress of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPhase {
    /// No request.
    Idle,
    /// Receiving parameters.
    Params,
    /// Receiving the body.
    Stdin,
    /// The request is complete.
    Complete,
}

/// Kind of the current record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestRecordKind {
    Begin {
        request_id: u16,
    },
    Abort,
    Params {
        is_empty: bool,
    },
    Stdin {
        is_empty: bool,
    },
    GetValues,
    UnknownManagement(u8),
    /// A record of a request that is over or was refused: ignored, as section 3.3 requires.
    Stale,
}

/// Decodes a web server's messages.
///
/// `clear` it after ending the response on a kept connection. After a fault every further call
/// repeats it.
#[derive(Clone, Debug)]
pub struct RequestDecoder {
    records: RecordReader,
    kind: RequestRecordKind,
    phase: RequestPhase,
    request_id: u16,
    /// Content of short records, which are parsed when complete.
    content: Vec<u8>,
    params: Vec<u8>,
    fault: Option<FastcgiFault>,
}

impl Default for RequestDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestDecoder {
    /// Creates a decoder for the first record; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            records: RecordReader::new(),
            kind: RequestRecordKind::Stale,
            phase: RequestPhase::Idle,
            request_id: 0,
            content: Vec::new(),
            params: Vec::new(),
            fault: None,
        }
    }

    /// Ends the request, so that the next one may begin. Later records of the old request are
    /// ignored.
    pub fn clear(&mut self) {
        self.phase = RequestPhase::Idle;
        self.request_id = 0;
        self.params.clear();
        if !matches!(
            self.kind,
            RequestRecordKind::Begin { .. }
                | RequestRecordKind::GetValues
                | RequestRecordKind::UnknownManagement(_)
        ) {
            self.kind = RequestRecordKind::Stale;
        }
    }

    /// The id of the current request; 0 if there is none.
    #[must_use]
    pub const fn request_id(&self) -> u16 {
        self.request_id
    }

    /// The parameters, in order; complete after [`FastcgiRequestEvent::Params`].
    pub fn params(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut content = self.params.as_slice();
        core::iter::from_fn(move || split_pair(&mut content).ok().flatten())
    }

    /// The variables of the last query.
    pub fn requested(&self) -> impl Iterator<Item = &[u8]> {
        let mut content = self.content.as_slice();
        core::iter::from_fn(move || split_pair(&mut content).ok().flatten().map(|(name, _)| name))
    }

    /// Consumes the front of `input`, at most up to one event.
    ///
    /// # Errors
    /// [`FastcgiFault`], at the record that is wrong.
    pub fn feed(&mut self, input: &[u8]) -> Result<FastcgiRequestStep, FastcgiFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.run(input).inspect_err(|fault| self.fault = Some(*fault))
    }

    fn run(&mut self, input: &[u8]) -> Result<FastcgiRequestStep, FastcgiFault> {
        let mut consumed = 0;
        loop {
            let start = consumed;
            let (len, piece) = self.records.read(&input[start..])?;
            consumed += len;
            let event = match piece {
                None => return Ok(FastcgiRequestStep { consumed, event: None }),
                Some(RecordPiece::Header(header)) => {
                    self.kind = self.begin_record(header)?;
                    None
                }
                Some(RecordPiece::Content(_)) => self.take_content(input, start..consumed)?,
                Some(RecordPiece::End) => self.end_record()?,
            };
            if event.is_some() {
                return Ok(FastcgiRequestStep { consumed, event });
            }
        }
    }

    fn begin_record(&mut self, header: RecordHeader) -> Result<RequestRecordKind, FastcgiFault> {
        debug_assert_eq!(
            self.phase == RequestPhase::Idle,
            self.request_id == 0,
            "{:?}",
            self.phase
        );
        if header.request_id == MANAGEMENT_ID {
            return self.begin_management(header);
        }
        let is_empty = header.content_len == 0;
        let kind = header.record_type().ok_or(FastcgiFault::RecordType)?;
        let is_current = header.request_id == self.request_id;
        match kind {
            RecordType::BeginRequest if header.content_len != BEGIN_LEN => {
                Err(FastcgiFault::RecordLength)
            }
            RecordType::BeginRequest if is_current => Err(FastcgiFault::Order),
            RecordType::BeginRequest => {
                self.content.clear();
                Ok(RequestRecordKind::Begin { request_id: header.request_id })
            }
            RecordType::AbortRequest | RecordType::Params | RecordType::Stdin if !is_current => {
                Ok(RequestRecordKind::Stale)
            }
            RecordType::AbortRequest if is_empty => Ok(RequestRecordKind::Abort),
            RecordType::AbortRequest => Err(FastcgiFault::RecordLength),
            RecordType::Params => self.begin_params(header.content_len),
            RecordType::Stdin => self.begin_stdin(is_empty),
            _ => Err(FastcgiFault::RecordType),
        }
    }

    fn begin_management(
        &mut self,
        header: RecordHeader,
    ) -> Result<RequestRecordKind, FastcgiFault> {
        if header.kind != RecordType::GetValues as u8 {
            return Ok(RequestRecordKind::UnknownManagement(header.kind));
        }
        if header.content_len > MANAGEMENT_BYTES_MAX {
            return Err(FastcgiFault::ManagementTooLarge);
        }
        self.content.clear();
        Ok(RequestRecordKind::GetValues)
    }

    fn begin_params(&self, content_len: u16) -> Result<RequestRecordKind, FastcgiFault> {
        if self.phase != RequestPhase::Params {
            return Err(FastcgiFault::StreamEnded);
        }
        if usize::from(content_len) > PARAMS_BYTES_MAX - self.params.len() {
            return Err(FastcgiFault::ParamsTooLarge);
        }
        Ok(RequestRecordKind::Params { is_empty: content_len == 0 })
    }

    fn begin_stdin(&self, is_empty: bool) -> Result<RequestRecordKind, FastcgiFault> {
        match self.phase {
            RequestPhase::Stdin => Ok(RequestRecordKind::Stdin { is_empty }),
            RequestPhase::Complete => Err(FastcgiFault::StreamEnded),
            RequestPhase::Idle | RequestPhase::Params => Err(FastcgiFault::Order),
        }
    }

    fn take_content(
        &mut self,
        input: &[u8],
        range: Range<usize>,
    ) -> Result<Option<FastcgiRequestEvent>, FastcgiFault> {
        match self.kind {
            RequestRecordKind::Stdin { .. } => return Ok(Some(FastcgiRequestEvent::Stdin(range))),
            RequestRecordKind::Params { .. } => {
                self.params.extend_from_slice(&input[range]);
                debug_assert!(self.params.len() <= PARAMS_BYTES_MAX, "{}", self.params.len());
            }
            RequestRecordKind::Begin { .. } | RequestRecordKind::GetValues => {
                self.content.extend_from_slice(&input[range]);
                debug_assert!(self.content.len() <= usize::from(MANAGEMENT_BYTES_MAX));
            }
            RequestRecordKind::Abort
            | RequestRecordKind::UnknownManagement(_)
            | RequestRecordKind::Stale => {}
        }
        Ok(None)
    }

    fn end_record(&mut self) -> Result<Option<FastcgiRequestEvent>, FastcgiFault> {
        match self.kind {
            RequestRecordKind::Begin { request_id } => self.begin_request(request_id).map(Some),
            RequestRecordKind::Abort => Ok(Some(FastcgiRequestEvent::Abort)),
            RequestRecordKind::Params { is_empty: true } => {
                check_pairs(&self.params)?;
                self.phase = RequestPhase::Stdin;
                Ok(Some(FastcgiRequestEvent::Params))
            }
            RequestRecordKind::Stdin { is_empty: true } => {
                self.phase = RequestPhase::Complete;
                Ok(Some(FastcgiRequestEvent::EndOfStdin))
            }
            RequestRecordKind::GetValues => {
                check_pairs(&self.content)?;
                Ok(Some(FastcgiRequestEvent::GetValues))
            }
            RequestRecordKind::UnknownManagement(number) => {
                Ok(Some(FastcgiRequestEvent::UnknownType(number)))
            }
            RequestRecordKind::Params { .. }
            | RequestRecordKind::Stdin { .. }
            | RequestRecordKind::Stale => Ok(None),
        }
    }

    fn begin_request(&mut self, request_id: u16) -> Result<FastcgiRequestEvent, FastcgiFault> {
        let &[role_high, role_low, flags, ..] = self.content.as_slice() else {
            return Err(FastcgiFault::RecordLength);
        };
        if self.phase != RequestPhase::Idle {
            return Ok(FastcgiRequestEvent::Refuse(request_id, ProtocolStatus::CantMultiplex));
        }
        let Some(role) = ApplicationRole::from_number(u16::from_be_bytes([role_high, role_low]))
        else {
            return Ok(FastcgiRequestEvent::Refuse(request_id, ProtocolStatus::UnknownRole));
        };
        self.request_id = request_id;
        self.phase = RequestPhase::Params;
        Ok(FastcgiRequestEvent::Begin(Begin { role, keep_conn: flags & 1 != 0 }))
    }
}

fn check_pairs(mut content: &[u8]) -> Result<(), FastcgiFault> {
    while split_pair(&mut content)?.is_some() {}
    Ok(())
}

/// Appends output, in as many records as needed.
pub fn push_stdout(request_id: u16, data: &[u8], out: &mut Vec<u8>) {
    push_stream(RecordType::Stdout, request_id, data, out);
}

/// Appends text for the log.
pub fn push_stderr(request_id: u16, data: &[u8], out: &mut Vec<u8>) {
    push_stream(RecordType::Stderr, request_id, data, out);
}

fn push_stream(kind: RecordType, request_id: u16, data: &[u8], out: &mut Vec<u8>) {
    for content in data.chunks(CONTENT_LEN_MAX) {
        push_record(kind, request_id, content, out);
    }
}

/// Appends the end of the output.
pub fn push_end_of_stdout(request_id: u16, out: &mut Vec<u8>) {
    push_record(RecordType::Stdout, request_id, &[], out);
}

/// Appends the end of the request.
pub fn push_end_request(request_id: u16, end: EndRequest, out: &mut Vec<u8>) {
    let [a, b, c, d] = end.app_status.to_be_bytes();
    let content = [a, b, c, d, end.protocol_status as u8, 0, 0, 0];
    push_record(RecordType::EndRequest, request_id, &content, out);
}

/// Appends the queried values that are known. Unknown variables are left out.
pub fn push_values<'a>(
    requested: impl IntoIterator<Item = &'a [u8]>,
    values: &Values,
    out: &mut Vec<u8>,
) {
    let [conns, reqs, mpxs] = VARIABLES;
    let mut content = Vec::new();
    let mut wanted = [false; VARIABLES.len()];
    for name in requested {
        VARIABLES.iter().zip(&mut wanted).for_each(|(known, hit)| *hit |= *known == name);
    }
    let known = [
        (conns, values.max_conns),
        (reqs, values.max_reqs),
        (mpxs, values.multiplexes.map(u32::from)),
    ];
    for ((name, value), wanted) in known.into_iter().zip(wanted) {
        let (true, Some(value)) = (wanted, value) else { continue };
        let mut digits = Vec::new();
        lighty_http::decimal::push(u64::from(value), &mut digits);
        // Cannot fail: names and numbers are short.
        let _ = push_pair(name, &digits, &mut content);
    }
    push_record(RecordType::GetValuesResult, MANAGEMENT_ID, &content, out);
}

/// Appends the response to an unknown management record.
pub fn push_unknown_type(number: u8, out: &mut Vec<u8>) {
    push_record(RecordType::UnknownType, MANAGEMENT_ID, &[number, 0, 0, 0, 0, 0, 0, 0], out);
}

/// Appends a record. `content` is at most [`CONTENT_LEN_MAX`] bytes long.
fn push_record(kind: RecordType, request_id: u16, content: &[u8], out: &mut Vec<u8>) {
    debug_assert!(content.len() <= CONTENT_LEN_MAX, "{}", content.len());
    out.extend_from_slice(&RecordHeader::new(kind, request_id, content.len() as u16).to_bytes());
    out.extend_from_slice(content);
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
