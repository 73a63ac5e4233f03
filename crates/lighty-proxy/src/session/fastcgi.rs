//! FastCGI 1.0: everything in records.
//!
//! The session unwraps the application's records, collects the output up to the end of its head,
//! and passes the rest on in place. `FCGI_STDERR` may come at any time.

use bytes::Bytes;
use lighty_core::{Fault, FaultReport};
use lighty_http::Fields;
use lighty_wire::cgi::Purpose;
use lighty_wire::fastcgi::encode::{END_OF_STDIN, begin_request, stdin_header};
use lighty_wire::fastcgi::{
    self, ApplicationRole, Begin, FastcgiDecoder, ParamsWriter, ProtocolStatus,
};
use lighty_wire::http1::BodyFraming;

use super::{BackendResponse, Event, Session, Step, malformed};
use crate::request::cgi_variables::{RequestListener, unfit, write_variables};
use crate::request::upstream_request::UpstreamRequest;
use crate::response::cgi_response::CgiResponse;
use crate::upstream::spec::FastcgiRole;

/// Bytes of error output above which it is logged before more is read.
const STDERR_BYTES: usize = 8 * 1024;

/// A request and its response over FastCGI.
pub(super) struct FastcgiSession {
    role: FastcgiRole,
    decoder: FastcgiDecoder,
    response: CgiResponse,
    /// Output up to the end of the head.
    output: Vec<u8>,
    early: Bytes,
    /// Bytes of output at the front of the input, without their record header.
    unwrapped: usize,
    stderr: Vec<u8>,
    stdin: Stdin,
    expects: FastcgiPart,
    /// The application was asked to keep the connection.
    keep_conn: bool,
    listener: Option<RequestListener>,
}

/// Unsent part of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stdin {
    Open,
    Ended,
}

// The output of the application (`FastcgiPart`):
//
//              interim response, and more output
//       +------------------------------------------+
//       |                                          v
//     Head <------------------------------------ HeldHead
//       |         incomplete head                  |
//       | final head                               | final head
//       v                                          |
//     Body <---------------------------------------+
//       |
//       | FCGI_END_REQUEST
//       v
//     Done

/// Expected next output of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FastcgiPart {
    Head,
    /// A head: its first bytes arrived with an interim response and were not parsed yet.
    HeldHead,
    Body,
    /// Nothing: the request has ended.
    Done,
}

/// Creates a session over FastCGI.
pub(super) fn session(role: &FastcgiRole) -> FastcgiSession {
    FastcgiSession {
        role: *role,
        decoder: FastcgiDecoder::new(),
        response: CgiResponse::new(),
        output: Vec::new(),
        early: Bytes::new(),
        unwrapped: 0,
        stderr: Vec::new(),
        stdin: Stdin::Open,
        expects: FastcgiPart::Head,
        keep_conn: false,
        listener: None,
    }
}

impl FastcgiSession {
    /// Takes the part of the body that arrived with the end of the head.
    fn take_early(&mut self, output: Vec<u8>) -> Result<(), FaultReport> {
        debug_assert!(self.early.is_empty(), "one head");
        let mut rest = Bytes::from(output);
        let mut early = Vec::new();
        while !rest.is_empty() {
            let (consumed, body) = self.response.take_body(&rest)?;
            if consumed == rest.len() && early.is_empty() {
                self.early = rest.slice(body);
                return Ok(());
            }
            early.extend_from_slice(&rest[body]);
            rest = rest.slice(consumed..);
        }
        self.early = early.into();
        Ok(())
    }

    /// Collects error output. Returns true if it is enough to be logged.
    fn keep_stderr(&mut self, piece: &[u8]) -> bool {
        self.stderr.extend_from_slice(piece);
        self.stderr.len() >= STDERR_BYTES
    }

    /// Parses the head at the front of the output, once it is complete.
    fn read_output(
        &mut self,
        response: &mut BackendResponse,
    ) -> Result<Option<Event>, FaultReport> {
        let Some(consumed) = self.response.parse_head(&self.output)? else { return Ok(None) };
        let rest = self.output.split_off(consumed);
        let event = self.response.take_head(response)?;
        if event == Event::Interim {
            if !rest.is_empty() {
                self.expects = FastcgiPart::HeldHead;
            }
            self.output = rest;
        } else {
            self.expects = FastcgiPart::Body;
            self.take_early(rest)?;
        }
        Ok(Some(event))
    }
}

impl Session for FastcgiSession {
    fn clear(&mut self) {
        self.decoder.clear();
        self.response.clear();
        self.output.clear();
        self.early = Bytes::new();
        self.unwrapped = 0;
        self.stderr.clear();
        (self.stdin, self.expects) = (Stdin::Open, FastcgiPart::Head);
    }

    fn open(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport> {
        self.response.begin(upstream_request.ex.request.method);
        self.keep_conn = upstream_request.keep_alive;
        let (role, purpose) = match self.role {
            FastcgiRole::Responder => (ApplicationRole::Responder, None),
            FastcgiRole::Authorizer => (ApplicationRole::Authorizer, Some(Purpose::Authorize)),
        };
        begin_request(Begin { role, keep_conn: self.keep_conn }, out);
        let mut writer = ParamsWriter::new(out);
        write_variables(upstream_request, &mut self.listener, |params| {
            if let Some(purpose) = purpose {
                params.purpose = purpose;
            }
            params.for_each(|name, value| writer.pair(name, value))
        });
        writer.finish().map_err(|fault| unfit(fault.message()))?;
        if upstream_request.framing == BodyFraming::None {
            self.end_body(None, out);
        }
        Ok(())
    }

    fn takes(&self) -> usize {
        usize::from(u16::MAX)
    }

    fn push_body(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        debug_assert_eq!(self.stdin, Stdin::Open, "content after the end of the request");
        debug_assert!(piece.len() <= self.takes(), "{} bytes", piece.len());
        // No longer piece was requested.
        let Ok(length @ 1..) = u16::try_from(piece.len()) else { return };
        out.extend_from_slice(&stdin_header(length));
        out.extend_from_slice(piece);
    }

    fn end_body(&mut self, _trailers: Option<&Fields>, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.stdin, Stdin::Ended) == Stdin::Open {
            out.extend_from_slice(&END_OF_STDIN);
        }
    }

    fn read_head(
        &mut self,
        input: &[u8],
        response: &mut BackendResponse,
    ) -> Result<Step, FaultReport> {
        let mut at = 0;
        debug_assert!(!matches!(self.expects, FastcgiPart::Body | FastcgiPart::Done), "one head");
        if std::mem::replace(&mut self.expects, FastcgiPart::Head) == FastcgiPart::HeldHead
            && let Some(event) = self.read_output(response)?
        {
            return Ok(Step { consumed: at, event });
        }
        loop {
            let step = self.decoder.feed(&input[at..]).map_err(|f| malformed(f.message()))?;
            let bytes = &input[at..];
            at += step.consumed;
            match step.event {
                None => return Ok(Step { consumed: at, event: Event::More }),
                Some(fastcgi::FastcgiEvent::Stdout(range)) => {
                    self.output.extend_from_slice(&bytes[range]);
                    if let Some(event) = self.read_output(response)? {
                        return Ok(Step { consumed: at, event });
                    }
                }
                Some(fastcgi::FastcgiEvent::Stderr(range)) => {
                    if self.keep_stderr(&bytes[range]) {
                        return Ok(Step { consumed: at, event: Event::Stderr });
                    }
                }
                Some(fastcgi::FastcgiEvent::End(end)) => return Err(without_head(end)),
                Some(_) => {}
            }
        }
    }

    fn holds_output(&self) -> bool {
        self.expects == FastcgiPart::HeldHead
    }

    fn take_early_body(&mut self) -> Bytes {
        std::mem::take(&mut self.early)
    }

    fn read_body(&mut self, input: &[u8]) -> Result<Step, FaultReport> {
        debug_assert_eq!(self.expects, FastcgiPart::Body, "content follows the head");
        let mut at = 0;
        loop {
            if self.unwrapped > 0 && at < input.len() {
                let end = input.len().min(at + self.unwrapped);
                let (consumed, body) = self.response.take_body(&input[at..end])?;
                let start = at;
                at += consumed;
                self.unwrapped -= consumed;
                if !body.is_empty() {
                    let event = Event::Data(start + body.start..start + body.end);
                    return Ok(Step { consumed: at, event });
                }
                continue;
            }
            let step = self.decoder.feed(&input[at..]).map_err(|f| malformed(f.message()))?;
            let start = at;
            at += step.consumed;
            match step.event {
                None => return Ok(Step { consumed: at, event: Event::More }),
                Some(fastcgi::FastcgiEvent::Stdout(range)) => {
                    debug_assert_eq!(self.unwrapped, 0, "the last piece is not passed on");
                    at = start + range.start;
                    self.unwrapped = range.len();
                }
                Some(fastcgi::FastcgiEvent::Stderr(range)) => {
                    if self.keep_stderr(&input[start + range.start..start + range.end]) {
                        return Ok(Step { consumed: at, event: Event::Stderr });
                    }
                }
                Some(fastcgi::FastcgiEvent::End(_)) => {
                    if !self.response.may_end() {
                        return Err(self.response.short());
                    }
                    self.expects = FastcgiPart::Done;
                    return Ok(Step { consumed: at, event: Event::Done });
                }
                Some(_) => {}
            }
        }
    }

    fn take_stderr(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.stderr)
    }

    fn is_reusable(&self) -> bool {
        let is_over = self.stdin == Stdin::Ended && self.expects == FastcgiPart::Done;
        self.keep_conn && is_over
    }
}

/// Returns the fault of an application that ended the request before a head was complete. FastCGI
/// 1.0 section 5.5: with `FCGI_CANT_MPX_CONN` and `FCGI_OVERLOADED` it rejects the request.
fn without_head(end: fastcgi::EndRequest) -> FaultReport {
    let message = match end.protocol_status {
        ProtocolStatus::RequestComplete => {
            return malformed(format!("no head; the program ended with {}", end.app_status));
        }
        ProtocolStatus::CantMultiplex => "it takes one request per connection",
        ProtocolStatus::Overloaded => "it is overloaded",
        ProtocolStatus::UnknownRole => return malformed("it does not know its role"),
    };
    FaultReport::new(Fault::BackendBusy, message)
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, table};

    use super::*;

    const MATRIX: &str = "
                    Head                     HeldHead                 Body
no input            More > Head              More > Head              More > Body
part of a head      More > Head              More > Head              Data(8..16) > Body
a head              Head > Body              Head > Body              Data(8..18) > Body
a head and a piece  Head > Body              Head > Body              Data(8..21) > Body
an interim head     Interim > Head           Interim > Head           Data(8..23) > Body
end of output       More > Head              More > Head              More > Body
errors              More > Head              More > Head              More > Body
many errors         Stderr > Head            Stderr > Head            Stderr > Body
end                 BackendMalformed > Head  BackendMalformed > Head  Done, reusable > Done
end, overloaded     BackendBusy > Head       BackendBusy > Head       Done, reusable > Done

                    Body of 3 bytes          Body, complete
no input            More > Body              More > Body
part of a head      Data(8..11) > Body       More > Body
a head              Data(8..11) > Body       More > Body
a head and a piece  Data(8..11) > Body       More > Body
an interim head     Data(8..11) > Body       More > Body
end of output       More > Body              More > Body
errors              More > Body              More > Body
many errors         Stderr > Body            Stderr > Body
end                 BackendMalformed > Body  Done, reusable > Done
end, overloaded     BackendMalformed > Body  Done, reusable > Done
";

    const STDERR: u8 = 7;
    const STDOUT: u8 = 6;
    const END: u8 = 3;

    fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
        [&[1, kind, 0, 1, length[0], length[1], 0, 0], payload].concat()
    }

    /// Feeds a record. Returns the next event, or the fault.
    fn feed(session: &mut FastcgiSession, input: &[u8]) -> String {
        let is_body = session.expects == FastcgiPart::Body;
        let step = match is_body {
            true => session.read_body(input),
            false => session.read_head(input, &mut BackendResponse::default()),
        };
        let event = match step {
            Ok(step) => format!("{:?}", step.event),
            Err(report) => format!("{:?}", report.fault),
        };
        let reusable = if session.is_reusable() { ", reusable" } else { "" };
        format!("{event}{reusable} > {:?}", session.expects)
    }

    /// A session that has sent its request, and has received this output.
    fn session_after(output: &[u8]) -> FastcgiSession {
        let mut session = session(&FastcgiRole::Responder);
        session.keep_conn = true;
        session.end_body(None, &mut Vec::new());
        if !output.is_empty() {
            feed(&mut session, &record(STDOUT, output));
        }
        session
    }

    #[test]
    fn every_record_has_a_defined_effect_in_every_state() {
        let states: [(&str, &[u8]); 5] = [
            ("Head", b""),
            ("HeldHead", b"Status: 103\r\n\r\nX-A: 1\r\n"),
            ("Body", b"Status: 200\r\n\r\n"),
            ("Body of 3 bytes", b"Content-Length: 3\r\n\r\n"),
            ("Body, complete", b"Content-Length: 3\r\n\r\nabc"),
        ];
        let events: [(&str, Vec<u8>); 10] = [
            ("no input", Vec::new()),
            ("part of a head", record(STDOUT, b"X-B: 2\r\n")),
            ("a head", record(STDOUT, b"X-C: 3\r\n\r\n")),
            ("a head and a piece", record(STDOUT, b"X-C: 3\r\n\r\nabc")),
            ("an interim head", record(STDOUT, b"Status: 103\r\n\r\n")),
            ("end of output", record(STDOUT, b"")),
            ("errors", record(STDERR, b"warning")),
            ("many errors", record(STDERR, &[b'x'; STDERR_BYTES])),
            ("end", record(END, &[0; 8])),
            ("end, overloaded", record(END, &[0, 0, 0, 0, 2, 0, 0, 0])),
        ];
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(states.iter().map(|(name, _)| (*name).to_owned()));
        for (name, input) in &events {
            let mut row = vec![(*name).to_owned()];
            row.extend(states.iter().map(|(_, output)| feed(&mut session_after(output), input)));
            rows.push(row);
        }
        assert_matrix(&table(&rows), MATRIX);
    }
}
