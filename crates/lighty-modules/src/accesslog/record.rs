//! The facts about a request that a log line can show, borrowed from their owners.

use std::net::IpAddr;

use lighty_core::Environment;
use lighty_core::exchange::cache_trace::CacheTrace;
use lighty_core::exchange::request_id::RequestId;
use lighty_core::exchange::stage::Stages;
use lighty_core::exchange::trace_context::TraceContext;
use lighty_core::exchange::upstream_trace::UpstreamTrace;
use lighty_http::Fields;
use lighty_io::clock::local_time::LocalTime;

/// A finished request.
pub(super) struct AccessRecord<'a> {
    /// The client's address as text.
    pub(super) client: &'a str,
    /// The client's address; `None` on a unix socket.
    pub(super) client_ip: Option<IpAddr>,
    pub(super) client_port: u16,
    /// The listener as in `$SERVER["socket"]`.
    pub(super) local_socket: &'a str,
    pub(super) local_port: u16,
    pub(super) user: &'a [u8],
    /// The method as received; empty if the head could not be parsed.
    pub(super) method: &'a [u8],
    /// The target as received; empty if the head could not be parsed.
    pub(super) target: &'a [u8],
    /// The request line as received, possibly incomplete; empty if it was not recorded.
    pub(super) line: &'a [u8],
    /// HTTP version of the response.
    pub(super) version: &'a str,
    pub(super) request_fields: &'a Fields,
    pub(super) response_fields: &'a Fields,
    pub(super) status: u16,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Bytes of the response head, included in `bytes_out`.
    pub(super) head_out: u64,
    /// Variables that modules have set.
    pub(super) environment: &'a Environment,
    /// Document root, and the path beneath it.
    pub(super) physical: (&'a [u8], &'a [u8]),
    /// Host of the request.
    pub(super) host: &'a [u8],
    /// `server.name`.
    pub(super) server_name: Option<&'a str>,
    pub(super) connection: ConnectionOutcome,
    pub(super) elapsed_us: u64,
    /// Durations of the request's stages.
    pub(super) stages: &'a Stages,
    /// Facts about the upstream exchange, if the request was proxied.
    pub(super) upstream: Option<&'a UpstreamTrace>,
    /// The part of the cache, if it concerns the request.
    pub(super) cache: Option<&'a CacheTrace>,
    /// Trace context shared with other servers.
    pub(super) trace: Option<&'a TraceContext>,
    pub(super) id: RequestId,
    pub(super) begin: Moment,
    pub(super) end: Moment,
}

/// State of the connection after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionOutcome {
    /// It broke before the response was complete.
    Aborted,
    /// The next request may follow.
    KeepAlive,
    /// It is closed.
    Close,
}

/// A local time with microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) local: LocalTime,
    pub(super) micros: u32,
}

impl AccessRecord<'_> {
    /// Bytes of the response's body that were sent.
    pub(super) fn body_out(&self) -> u64 {
        self.bytes_out.saturating_sub(self.head_out)
    }

    /// The protocol as received; empty if the line has none.
    pub(super) fn protocol(&self) -> &[u8] {
        if self.line.is_empty() {
            return self.version.as_bytes();
        }
        let last = self.line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        if last.starts_with(b"HTTP/") { last } else { b"" }
    }

    /// Path and query of the target; the query is without its `?`.
    pub(super) fn path_and_query(&self) -> (&[u8], &[u8]) {
        match self.target.iter().position(|byte| *byte == b'?') {
            Some(at) => (&self.target[..at], &self.target[at + 1..]),
            None => (self.target, b""),
        }
    }

    /// Address of the listener without its port.
    pub(super) fn local_address(&self) -> &str {
        match self.local_socket.rsplit_once(':') {
            Some((address, _)) if !self.local_socket.starts_with('/') => {
                address.trim_start_matches('[').trim_end_matches(']')
            }
            _ => self.local_socket,
        }
    }
}
