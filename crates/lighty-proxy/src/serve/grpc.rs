//! Faults as a gRPC client expects them: a status among the fields of a response without content
//! ("Trailers-Only" of gRPC over HTTP/2).

use lighty_core::{Exchange, FaultReport};
use lighty_http::{Known, Status, Version};

const UNKNOWN: &[u8] = b"2";
const UNAVAILABLE: &[u8] = b"14";

/// Turns the response to a fault into one of gRPC, if the request is one.
pub(super) fn translate(ex: &mut Exchange, report: &FaultReport) {
    let content_type = ex.request.fields.get(Known::ContentType).unwrap_or_default();
    let is_grpc = ex.request.version == Version::Http2 && is_grpc(content_type);
    let Some(status) = report.fault.verdict().status.filter(|_| is_grpc) else { return };
    let response = &mut ex.response;
    response.status = Status::OK;
    response.fields.push_known(Known::ContentType, "application/grpc");
    response.fields.push(b"grpc-status", code(status));
    response.fields.push(b"grpc-message", report.fault.verdict().words.as_bytes());
}

fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// The status of gRPC that clients would make of one of HTTP themselves.
fn code(status: Status) -> &'static [u8] {
    match status.code() {
        400 => b"13",
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
}
