//! The web server's input: FastCGI 1.0 sections 4.1, 4.2, 5.3 and 5.5.
//!
//! Output is not copied: events are ranges of the input, and the content of one record may arrive
//! as several events.

use alloc::vec::Vec;
use core::ops::Range;

use super::pairs::split_pair;
use super::record::{RecordHeader, RecordPiece, RecordReader, RecordType};
use super::{FastcgiFault, MANAGEMENT_ID, REQUEST_ID};

/// Maximum bytes of content of `FCGI_GET_VALUES_RESULT`; three variables need less than 100.
pub const VALUES_BYTES_MAX: u16 = 1024;

/// Bytes of content of `FCGI_END_REQUEST` and `FCGI_UNKNOWN_TYPE`.
const FIXED_LEN: u16 = 8;

/// Result of [`FastcgiDecoder::feed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastcgiStep {
    /// Number of bytes consumed; pass the rest in again.
    pub consumed: usize,
    /// The event that they complete. `None`: more bytes are needed, or the request is over.
    pub event: Option<FastcgiEvent>,
}

/// A message from the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastcgiEvent {
    /// These bytes of the input are output: the response head, then its body.
    Stdout(Range<usize>),
    /// These bytes of the input are for the log.
    Stderr(Range<usize>),
    /// End of the output; not every application sends it.
    EndOfStdout,
    /// The request is over.
    End(EndRequest),
    /// The response to a query for variables.
    Values(Values),
    /// The application does not know management records of this type.
    UnknownType(u8),
}

/// Result of a request: section 5.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndRequest {
    /// The exit status: the value that the program would have returned from `main`.
    pub app_status: u32,
    /// The reason why the request was not processed, if it was not.
    pub protocol_status: ProtocolStatus,
}

/// Tells whether a request was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProtocolStatus {
    /// The request was processed.
    RequestComplete = 0,
    /// Rejected: the application takes only one request at a time.
    CantMultiplex = 1,
    /// Rejected: the application is overloaded.
    Overloaded = 2,
    /// Rejected: the application does not support the role.
    UnknownRole = 3,
}

impl ProtocolStatus {
    const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::RequestComplete),
            1 => Some(Self::CantMultiplex),
            2 => Some(Self::Overloaded),
            3 => Some(Self::UnknownRole),
            _ => None,
        }
    }
}

/// The application's capabilities; `None` if absent or not a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Maximum concurrent connections.
    pub max_conns: Option<u32>,
    /// Maximum concurrent requests.
    pub max_reqs: Option<u32>,
    /// True if it takes several requests over one connection.
    pub multiplexes: Option<bool>,
}

/// Decodes an application's messages.
///
/// `feed` it until [`FastcgiEvent::End`]; then `clear` it for the next request on the connection.
/// Bytes after the end are not consumed: they are unsolicited. After a fault every further call
/// repeats it.
#[derive(Clone, Debug)]
pub struct FastcgiDecoder {
    records: RecordReader,
    kind: ResponseRecordKind,
    /// Content that can be parsed only when complete.
    content: Vec<u8>,
    phase: DecoderPhase,
}

// The application's messages (`DecoderPhase`):
//
//              EndOfStdout                 EndRequest
//     Output -------------> OutputEnded -------------> Done
//        |                       |
//        | Fault                 | Fault, Stdout
//        +-----------------------+-------------------> Failed
//
// `EndRequest` also leads from `Output` to `Done`. `Done` and `Failed` are final.

/// Progress of a request's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderPhase {
    Output,
    /// The output has ended. Error output may follow.
    OutputEnded,
    /// The request is over.
    Done,
    Failed(FastcgiFault),
}

/// An event of [`DecoderPhase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderEvent {
    /// A record of output that has content begins.
    Stdout,
    /// An empty record of output is complete.
    EndOfStdout,
    /// A record `FCGI_END_REQUEST` is complete.
    EndRequest,
    /// A record is wrong.
    Fault(FastcgiFault),
}

impl DecoderPhase {
    const fn after(self, event: DecoderEvent) -> Self {
        match (self, event) {
            (Self::Done | Self::Failed(_), _) => self,
            (Self::Output, DecoderEvent::Stdout) => self,
            (Self::OutputEnded, DecoderEvent::Stdout) => Self::Failed(FastcgiFault::StreamEnded),
            (_, DecoderEvent::EndOfStdout) => Self::OutputEnded,
            (_, DecoderEvent::EndRequest) => Self::Done,
            (_, DecoderEvent::Fault(fault)) => Self::Failed(fault),
        }
    }
}

/// Kind of the current record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseRecordKind {
    Stdout { is_empty: bool },
    Stderr,
    End,
    Values,
    UnknownType,
}

impl Default for FastcgiDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl FastcgiDecoder {
    /// Creates a decoder for the first record; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            records: RecordReader::new(),
            kind: ResponseRecordKind::Stderr,
            content: Vec::new(),
            phase: DecoderPhase::Output,
        }
    }

    /// Resets the decoder for another request; keeps its memory.
    pub fn clear(&mut self) {
        let content = core::mem::take(&mut self.content);
        *self = Self { content, ..Self::new() };
        self.content.clear();
    }

    /// True if the request is over.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.phase, DecoderPhase::Done)
    }

    /// True between records: the connection may close here.
    #[must_use]
    pub fn is_between_records(&self) -> bool {
        self.records.is_between_records()
    }

    /// Consumes the front of `input`, at most up to one event.
    ///
    /// # Errors
    /// [`FastcgiFault`], at the record that is wrong.
    pub fn feed(&mut self, input: &[u8]) -> Result<FastcgiStep, FastcgiFault> {
        if let DecoderPhase::Failed(fault) = self.phase {
            return Err(fault);
        }
        self.run(input).inspect_err(|fault| {
            self.phase = self.phase.after(DecoderEvent::Fault(*fault));
        })
    }

    fn run(&mut self, input: &[u8]) -> Result<FastcgiStep, FastcgiFault> {
        let mut consumed = 0;
        while !self.is_done() {
            let start = consumed;
            let (len, piece) = self.records.read(&input[start..])?;
            consumed += len;
            let event = match piece {
                None => break,
                Some(RecordPiece::Header(header)) => {
                    self.begin_record(header)?;
                    None
                }
                Some(RecordPiece::Content(_)) => self.take_content(input, start..consumed),
                Some(RecordPiece::End) => self.end_record()?,
            };
            if event.is_some() {
                return Ok(FastcgiStep { consumed, event });
            }
        }
        Ok(FastcgiStep { consumed, event: None })
    }

    fn begin_record(&mut self, header: RecordHeader) -> Result<(), FastcgiFault> {
        let kind = header.record_type().ok_or(FastcgiFault::RecordType)?;
        let (kind, request_id) = match kind {
            RecordType::Stdout => {
                (ResponseRecordKind::Stdout { is_empty: header.content_len == 0 }, REQUEST_ID)
            }
            RecordType::Stderr => (ResponseRecordKind::Stderr, REQUEST_ID),
            RecordType::EndRequest => (ResponseRecordKind::End, REQUEST_ID),
            RecordType::GetValuesResult => (ResponseRecordKind::Values, MANAGEMENT_ID),
            RecordType::UnknownType => (ResponseRecordKind::UnknownType, MANAGEMENT_ID),
            _ => return Err(FastcgiFault::RecordType),
        };
        if header.request_id != request_id {
            return Err(FastcgiFault::RequestId);
        }
        let len = header.content_len;
        match kind {
            ResponseRecordKind::Stdout { is_empty: false } => {
                self.phase = self.phase.after(DecoderEvent::Stdout);
                if let DecoderPhase::Failed(fault) = self.phase {
                    return Err(fault);
                }
            }
            ResponseRecordKind::End | ResponseRecordKind::UnknownType if len != FIXED_LEN => {
                return Err(FastcgiFault::RecordLength);
            }
            ResponseRecordKind::Values if len > VALUES_BYTES_MAX => {
                return Err(FastcgiFault::ManagementTooLarge);
            }
            _ => {}
        }
        self.kind = kind;
        self.content.clear();
        Ok(())
    }

    fn take_content(&mut self, input: &[u8], range: Range<usize>) -> Option<FastcgiEvent> {
        match self.kind {
            ResponseRecordKind::Stdout { .. } => Some(FastcgiEvent::Stdout(range)),
            ResponseRecordKind::Stderr => Some(FastcgiEvent::Stderr(range)),
            // At most `VALUES_BYTES_MAX`, as `begin_record` has checked.
            ResponseRecordKind::End
            | ResponseRecordKind::Values
            | ResponseRecordKind::UnknownType => {
                self.content.extend_from_slice(&input[range]);
                debug_assert!(self.content.len() <= usize::from(VALUES_BYTES_MAX));
                None
            }
        }
    }

    fn end_record(&mut self) -> Result<Option<FastcgiEvent>, FastcgiFault> {
        match self.kind {
            ResponseRecordKind::Stdout { is_empty: true } => {
                let is_first = self.phase == DecoderPhase::Output;
                self.phase = self.phase.after(DecoderEvent::EndOfStdout);
                Ok(is_first.then_some(FastcgiEvent::EndOfStdout))
            }
            ResponseRecordKind::Stdout { is_empty: false } | ResponseRecordKind::Stderr => Ok(None),
            ResponseRecordKind::End => {
                let end = read_end(&self.content)?;
                self.phase = self.phase.after(DecoderEvent::EndRequest);
                Ok(Some(FastcgiEvent::End(end)))
            }
            ResponseRecordKind::Values => {
                read_values(&self.content).map(|values| Some(FastcgiEvent::Values(values)))
            }
            ResponseRecordKind::UnknownType => {
                Ok(self.content.first().map(|&number| FastcgiEvent::UnknownType(number)))
            }
        }
    }
}

fn read_end(content: &[u8]) -> Result<EndRequest, FastcgiFault> {
    let &[a, b, c, d, status, ..] = content else { return Err(FastcgiFault::RecordLength) };
    Ok(EndRequest {
        app_status: u32::from_be_bytes([a, b, c, d]),
        protocol_status: ProtocolStatus::from_number(status).ok_or(FastcgiFault::ProtocolStatus)?,
    })
}

fn read_values(mut content: &[u8]) -> Result<Values, FastcgiFault> {
    let mut values = Values::default();
    while let Some((name, value)) = split_pair(&mut content)? {
        match name {
            b"FCGI_MAX_CONNS" => values.max_conns = number(value),
            b"FCGI_MAX_REQS" => values.max_reqs = number(value),
            b"FCGI_MPXS_CONNS" => values.multiplexes = number(value).map(|number| number != 0),
            _ => {}
        }
    }
    Ok(values)
}

fn number(digits: &[u8]) -> Option<u32> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
