//! The field `Proxy-Status`: RFC 9209.

use lighty_core::exchange::cache_trace::CacheTrace;
use lighty_core::exchange::response::Maker;
use lighty_core::exchange::upstream_trace::UpstreamTrace;
use lighty_core::{Blame, Exchange, Fault};

/// Name of the field.
const PROXY_STATUS: &[u8] = b"Proxy-Status";

/// Adds the error type of a fault, or the status of a backend's server error, to the response to a
/// proxied request. Backends in front of others may have added members of their own.
pub(crate) fn add(ex: &mut Exchange) {
    let shares_fault = ex.ext::<CacheTrace>().is_some_and(|trace| trace.shares_fault);
    let is_own = shares_fault || ex.ext::<UpstreamTrace>().is_some();
    let status = ex.response.status.code();
    let member = match ex.state.fault {
        _ if !is_own => return,
        Some(fault) => format!("lighty; error={}", error_type(fault)),
        None if ex.response.maker == Maker::Backend && status >= 500 => {
            format!("lighty; received-status={status}")
        }
        None => return,
    };
    ex.response.fields.push(PROXY_STATUS, member.as_bytes());
}

/// The type of an error: RFC 9209 section 2.3.
fn error_type(fault: Fault) -> &'static str {
    match fault {
        Fault::BackendsDown | Fault::BackendBusy | Fault::BackendCalm | Fault::ProgramsMax => {
            "destination_unavailable"
        }
        Fault::BacklogFull | Fault::BacklogTimeout => "connection_limit_reached",
        Fault::BackendRefused => "connection_refused",
        Fault::BackendTls => "tls_protocol_error",
        Fault::BackendConnectTimeout => "connection_timeout",
        Fault::BackendReadTimeout | Fault::ProgramReadTimeout => "connection_read_timeout",
        Fault::BackendWriteTimeout | Fault::ProgramWriteTimeout => "connection_write_timeout",
        Fault::BackendClosed | Fault::BackendCancelled | Fault::BackendReset => {
            "connection_terminated"
        }
        Fault::BackendCut | Fault::BackendStopped | Fault::BackendCalmCut => {
            "http_response_incomplete"
        }
        Fault::BackendHeadTooLarge => "http_response_header_section_size",
        Fault::BackendMalformed => "http_protocol_error",
        Fault::SendfileRefused => "proxy_configuration_error",
        other => match other.verdict().blame {
            Blame::Client => "http_request_error",
            Blame::Operator => "proxy_configuration_error",
            Blame::Backend => "destination_unavailable",
            Blame::Machine | Blame::Us => "proxy_internal_error",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 2.3, without the types that this server never has.
    const TYPES: [&str; 14] = [
        "destination_unavailable",
        "connection_limit_reached",
        "connection_refused",
        "connection_terminated",
        "connection_timeout",
        "connection_read_timeout",
        "connection_write_timeout",
        "tls_protocol_error",
        "http_request_error",
        "http_response_incomplete",
        "http_response_header_section_size",
        "http_protocol_error",
        "proxy_internal_error",
        "proxy_configuration_error",
    ];

    #[test]
    fn every_fault_has_a_registered_type() {
        for fault in Fault::ALL {
            assert!(TYPES.contains(&error_type(*fault)), "{fault:?}");
        }
        for name in TYPES {
            assert!(Fault::ALL.iter().any(|fault| error_type(*fault) == name), "{name}");
        }
    }

    #[test]
    fn faults_of_clients_and_backends_are_told_apart() {
        for fault in Fault::ALL {
            let is_theirs = fault.verdict().blame == Blame::Client;
            assert_eq!(error_type(*fault) == "http_request_error", is_theirs, "{fault:?}");
        }
    }
}
