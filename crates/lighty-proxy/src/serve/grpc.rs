//! Translates faults for gRPC clients: into a status in the fields of a response without content
//! ("Trailers-Only" of gRPC over HTTP/2).

use lighty_core::exchange::stage::Stage;
use lighty_core::{Exchange, Fault, FaultReport};
use lighty_http::{Known, Status, Version, decimal};

const CANCELLED: &[u8] = b"1";
const UNKNOWN: &[u8] = b"2";
const DEADLINE_EXCEEDED: &[u8] = b"4";
const RESOURCE_EXHAUSTED: &[u8] = b"8";
const INTERNAL: &[u8] = b"13";
const UNAVAILABLE: &[u8] = b"14";

/// Turns the response to a fault into a gRPC response, if the request is a gRPC call.
pub(super) fn translate(ex: &mut Exchange, report: &FaultReport) {
    let content_type = ex.request.fields.get(Known::ContentType).unwrap_or_default();
    let is_grpc = ex.request.version == Version::Http2 && is_grpc(content_type);
    let Some(status) = report.fault.verdict().status.filter(|_| is_grpc) else { return };
    let code = match report.fault {
        Fault::BackendCancelled if is_too_late(ex) => DEADLINE_EXCEEDED,
        Fault::BackendCancelled => CANCELLED,
        // The mapping of RST_STREAM codes by clients: only UNAVAILABLE leads to a resend.
        Fault::BackendCalm => RESOURCE_EXHAUSTED,
        Fault::BackendReset => INTERNAL,
        _ => code(status),
    };
    let response = &mut ex.response;
    response.status = Status::OK;
    response.fields.push_known(Known::ContentType, "application/grpc");
    response.fields.push(b"grpc-status", code);
    response.fields.push(b"grpc-message", report.fault.verdict().message.as_bytes());
}

fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Returns true if the client's deadline for the call is over. Clients then translate CANCEL in the
/// same way.
fn is_too_late(ex: &Exchange) -> bool {
    let limit_us = ex.request.fields.get_named(b"grpc-timeout").and_then(timeout_us);
    let began_us = ex.stages.when_us(Stage::FirstByte);
    let (Some(limit_us), Some(began_us)) = (limit_us, began_us) else { return false };
    ex.machine.clock.mono_us().saturating_sub(began_us) >= limit_us
}

/// `grpc-timeout`, in microseconds: at most eight digits and a unit.
fn timeout_us(value: &[u8]) -> Option<u64> {
    let (unit, digits) = value.split_last()?;
    let count = decimal::parse(digits).filter(|_| digits.len() <= 8)?;
    match unit {
        b'H' => Some(count * 3_600_000_000),
        b'M' => Some(count * 60_000_000),
        b'S' => Some(count * 1_000_000),
        b'm' => Some(count * 1000),
        b'u' => Some(count),
        b'n' => Some(count.div_ceil(1000)),
        _ => None,
    }
}

/// Returns the gRPC status to which clients map an HTTP status.
fn code(status: Status) -> &'static [u8] {
    match status.code() {
        400 => INTERNAL,
        401 => b"16",
        403 => b"7",
        404 => b"12",
        429 | 502..=504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_of_grpc_are_known() {
        for yes in ["application/grpc", "application/grpc+proto", "application/grpc; x"] {
            assert!(is_grpc(yes.as_bytes()), "{yes}");
        }
        for no in ["", "application/grpc-web", "application/json"] {
            assert!(!is_grpc(no.as_bytes()), "{no}");
        }
        assert_eq!(code(Status::new(503).expect("a status")), UNAVAILABLE);
    }

    #[test]
    fn time_outs_are_read_with_their_units() {
        for (text, wanted) in [
            ("2H", Some(7_200_000_000)),
            ("1M", Some(60_000_000)),
            ("5S", Some(5_000_000)),
            ("99999999m", Some(99_999_999_000)),
            ("100000000m", None),
            ("7u", Some(7)),
            ("1n", Some(1)),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("-5S", None),
        ] {
            assert_eq!(timeout_us(text.as_bytes()), wanted, "{text}");
        }
    }
}
