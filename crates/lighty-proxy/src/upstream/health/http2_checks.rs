//! Checks over HTTP/2: a GET, or a call of gRPC's health service (`grpc.health.v1`).

use lighty_http::{Fields, Known, Status, decimal};
use lighty_io::transport::Stream;
use lighty_wire::http2::frame::{FRAME_BYTES_MAX, FRAME_HEAD_BYTES};
use lighty_wire::http2::{Connection, ErrorCode, Event, Limits, RequestParts};

use super::check_fault::{CheckFault, RESPONSE_BYTES_MAX, check_status};
use crate::connect::dial::send;

/// Bytes read at a time: room for the longest frame.
const INPUT_BYTES: usize = FRAME_BYTES_MAX + FRAME_HEAD_BYTES;

/// Status of a successful call.
const GRPC_OK: u64 = 0;

/// `SERVING` of the enumeration `ServingStatus`.
const SERVING: u64 = 1;

/// Requests a target; a status from `good.0` to `good.1` is good.
pub(super) async fn get(
    stream: &Stream,
    target: &str,
    host: &str,
    good: (u16, u16),
) -> Result<(), CheckFault> {
    let mut fields = Fields::new();
    fields.push_known(Known::UserAgent, "lighty-check");
    let question = CheckRequest { method: "GET", target, host, fields, content: Vec::new() };
    let heard = question.ask(stream, Until::Head).await?;
    check_status(heard.status.map_or(0, Status::code), good)
}

/// Queries the health of a service; the empty name stands for the whole backend.
pub(super) async fn call_health(
    stream: &Stream,
    service: &str,
    host: &str,
) -> Result<(), CheckFault> {
    let mut fields = Fields::new();
    fields.push_known(Known::ContentType, "application/grpc");
    fields.push_known(Known::Te, "trailers");
    fields.push_known(Known::UserAgent, "lighty-check");
    let target = "/grpc.health.v1.Health/Check";
    let content = health_request(service);
    let heard = CheckRequest { method: "POST", target, host, fields, content }
        .ask(stream, Until::End)
        .await?;
    match heard.status {
        Some(Status::OK) => {}
        status => return Err(CheckFault::Status(status.map_or(0, Status::code))),
    }
    let grpc_status = heard.fields.get_named(b"grpc-status").and_then(decimal::parse);
    match (grpc_status, serving_status(&heard.content)) {
        (Some(GRPC_OK), Some(SERVING)) => Ok(()),
        (Some(GRPC_OK), Some(status)) => Err(CheckFault::NotServing(status)),
        (Some(GRPC_OK), None) => Err(CheckFault::Protocol("is no HealthCheckResponse".into())),
        (Some(code), _) => Err(CheckFault::Grpc(code)),
        (None, _) => Err(CheckFault::Protocol("has no grpc-status".into())),
    }
}

/// Returns `HealthCheckRequest { string service = 1; }`, framed as a gRPC message. A name is
/// shorter than 128 bytes.
fn health_request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.extend([0x0A, service.len() as u8]);
        message.extend(service.as_bytes());
    }
    let mut content = vec![0];
    content.extend((message.len() as u32).to_be_bytes());
    content.extend(message);
    content
}

/// Returns `status` of a framed `HealthCheckResponse { ServingStatus status = 1; }`; 0 if it is
/// missing.
fn serving_status(content: &[u8]) -> Option<u64> {
    let &[0, a, b, c, d] = content.first_chunk::<5>()? else { return None };
    let message = &content[5..];
    match message {
        _ if message.len() != u32::from_be_bytes([a, b, c, d]) as usize => None,
        [] => Some(0),
        [0x08, status @ 0..0x80] => Some(u64::from(*status)),
        _ => None,
    }
}

/// End of the wait for a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Head,
    End,
}

/// A request.
struct CheckRequest<'a> {
    method: &'a str,
    target: &'a str,
    host: &'a str,
    fields: Fields,
    content: Vec<u8>,
}

/// A response: the fields of head and trailers, and the content.
#[derive(Default)]
struct Heard {
    status: Option<Status>,
    fields: Fields,
    content: Vec<u8>,
    is_over: bool,
}

impl CheckRequest<'_> {
    async fn ask(&self, stream: &Stream, until: Until) -> Result<Heard, CheckFault> {
        let mut machine = Connection::client(Limits::default(), 0);
        self.open(stream.is_tls(), &mut machine)?;
        let (mut heard, mut received) = (Heard::default(), Vec::new());
        let heard = loop {
            self.write(stream, &mut machine).await?;
            read(stream, &mut received).await?;
            match hear(&mut machine, &mut received, until, &mut heard) {
                Ok(()) if heard.is_over => break Ok(heard),
                Ok(()) => {}
                Err(fault) => break Err(fault),
            }
        };
        machine.abort(ErrorCode::NO_ERROR);
        let mut farewell = Vec::new();
        machine.poll_output(&mut farewell);
        // The result is known, so a peer that has closed already does not matter.
        let _ = stream.try_write(&farewell);
        heard
    }

    fn open(&self, is_tls: bool, machine: &mut Connection) -> Result<(), CheckFault> {
        let parts = RequestParts {
            method: self.method.as_bytes(),
            scheme: if is_tls { b"https" } else { b"http" },
            authority: self.host.as_bytes(),
            path: self.target.as_bytes(),
            protocol: None,
        };
        let length = self.content.len() as u64;
        machine
            .open(&parts, &self.fields, length == 0)
            .and_then(
                |key| if length == 0 { Ok(()) } else { machine.queue_data(key, length, true) },
            )
            .map_err(|fault| CheckFault::Unfit(fault.to_string()))
    }

    /// Writes frames. All of the content fits into one.
    async fn write(&self, stream: &Stream, machine: &mut Connection) -> Result<(), CheckFault> {
        let mut out = Vec::new();
        if machine.poll_data(INPUT_BYTES, 0, &mut out).is_some() {
            out.extend_from_slice(&self.content);
        }
        machine.poll_output(&mut out);
        send(stream, &out).await.map_err(CheckFault::Talk)
    }
}

/// Waits for more bytes.
async fn read(stream: &Stream, received: &mut Vec<u8>) -> Result<(), CheckFault> {
    let before = received.len();
    received.resize(before + INPUT_BYTES, 0);
    let read = stream.read(&mut received[before..]).await;
    received.truncate(before + read.as_ref().map_or(0, |count| *count));
    match read {
        Ok(0) => Err(CheckFault::Closed),
        Ok(_) => Ok(()),
        Err(error) => Err(CheckFault::Talk(error)),
    }
}

/// Handles the received frames.
fn hear(
    machine: &mut Connection,
    received: &mut Vec<u8>,
    until: Until,
    heard: &mut Heard,
) -> Result<(), CheckFault> {
    let mut taken = 0;
    while !heard.is_over {
        let input = &received[taken..];
        let handled = machine.handle_input(input, 0);
        let handled = handled.map_err(|fault| CheckFault::Protocol(fault.message().into()))?;
        let Some(event) = handled.event else {
            taken += handled.consumed;
            break;
        };
        match event {
            Event::Response { ends, .. } => {
                heard.status = machine.head().status;
                heard.fields.append(&machine.head().fields);
                heard.is_over = ends || until == Until::Head;
            }
            Event::Data { stream, start, len, ends } => {
                heard.content.extend_from_slice(&input[start..start + len]);
                machine.credit(stream, len);
                heard.is_over = ends;
            }
            Event::Trailers { .. } => {
                heard.fields.append(&machine.head().fields);
                heard.is_over = true;
            }
            Event::Reset { .. } | Event::GoAway { last_stream: 0, .. } => {
                return Err(CheckFault::Closed);
            }
            _ => {}
        }
        if heard.content.len() > RESPONSE_BYTES_MAX {
            return Err(CheckFault::TooLong);
        }
        taken += handled.consumed;
    }
    received.drain(..taken);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result for a response with so many bytes of content.
    fn heard_of(bytes: usize) -> Result<Heard, CheckFault> {
        let [mut client, mut server] =
            [Connection::client(Limits::default(), 0), Connection::server(Limits::default(), 0)];
        let (fields, content) = (Fields::new(), Vec::new());
        let question = CheckRequest { method: "GET", target: "/", host: "a", fields, content };
        question.open(false, &mut client)?;
        let (mut requested, mut taken) = (Vec::new(), 0);
        client.poll_output(&mut requested);
        let key = loop {
            let handled = server.handle_input(&requested[taken..], 0).expect("frames");
            taken += handled.consumed;
            if let Some(Event::Request { stream, .. }) = handled.event {
                break stream;
            }
        };
        server.send_head(key, Status::OK, &Fields::new(), false).expect("a head");
        server.queue_data(key, bytes as u64, true).expect("content");
        let (mut received, mut heard) = (Vec::new(), Heard::default());
        while let Some(frame) = server.poll_data(INPUT_BYTES, 0, &mut received) {
            received.resize(received.len() + frame.len, 0);
        }
        hear(&mut client, &mut received, Until::End, &mut heard).map(|()| heard)
    }

    #[test]
    fn content_has_a_limit() {
        let heard = heard_of(RESPONSE_BYTES_MAX).expect("as much as is allowed");
        assert!(heard.is_over && heard.content.len() == RESPONSE_BYTES_MAX);
        let fault = heard_of(RESPONSE_BYTES_MAX + 1).map(|_| ());
        assert!(matches!(fault, Err(CheckFault::TooLong)), "{fault:?}");
    }

    #[test]
    fn messages_of_the_health_service_are_framed() {
        assert_eq!(health_request(""), [0, 0, 0, 0, 0]);
        assert_eq!(health_request("a.B"), *b"\x00\x00\x00\x00\x05\x0A\x03a.B");
        for (content, status) in [
            (&b"\x00\x00\x00\x00\x02\x08\x01"[..], Some(1)),
            (b"\x00\x00\x00\x00\x02\x08\x02", Some(2)),
            (b"\x00\x00\x00\x00\x00", Some(0)),
            (b"\x01\x00\x00\x00\x00", None),
            (b"\x00\x00\x00\x00\x02\x08", None),
            (b"\x00\x00\x00\x00\x02\x08\x80", None),
            (b"\x00\x00\x00\x00\x02\x10\x01", None),
            (b"\x00\x00", None),
        ] {
            assert_eq!(serving_status(content), status, "{content:?}");
        }
    }
}
