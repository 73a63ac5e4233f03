//! The configuration of an upstream, typed and complete.
//!
//! Both spellings (`proxy-core.*` of 1.5 and `*.server` of 1.4) end up here. Equal specs share one
//! upstream at run time, whichever conditions they were written in.

use std::net::SocketAddr;
use std::sync::Arc;

use lighty_io::tls::ClientOptions;

pub use crate::upstream::balance::{Algorithm, BalancerOptions, BalancerSpec, HashKey};
pub use crate::upstream::protocol::{FastcgiRole, Protocol};

/// A group of interchangeable backends, and how they are used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamSpec {
    /// Its name in the log: the directive and its key, for example `fastcgi.server ".php"`.
    pub name: Arc<str>,
    /// What the backends speak.
    pub protocol: Protocol,
    /// How one of them is chosen for a request.
    pub balancer: BalancerSpec,
    /// The backends, in the order written.
    pub backends: Vec<BackendSpec>,
    /// How connections are kept and shared.
    pub pool: PoolSpec,
    /// How requests wait while every pool is full.
    pub backlog: BacklogSpec,
    /// How long each step of a request may take.
    pub timeouts: TimeoutSpec,
    /// How failing addresses are taken out, and come back.
    pub health: HealthSpec,
    /// Whether each address that a name resolves to is balanced by itself; else the first that
    /// accepts a connection stands for the name.
    pub split_hostnames: bool,
    /// The PROXY protocol header that opens each connection, if any. Such a connection speaks for
    /// one client and is never shared.
    pub proxy_protocol: Option<ProxyProtocol>,
}

/// One backend as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendSpec {
    /// As written; what logs and statistics call it.
    pub text: Arc<str>,
    /// The name that stands before it, if any: what statistics call it besides.
    pub label: Option<Arc<str>>,
    /// Where it is reached.
    pub address: BackendAddress,
    /// Share of requests beside the others', 1 to 1000; 0 drains it: no new request, those under
    /// way end.
    pub weight: u32,
    /// Maximum concurrent requests; `None`: the pool's size.
    pub max_connections: Option<u32>,
    /// Used only while no other is up.
    pub backup: bool,
    /// The program that the server starts and listens for (`bin-path`).
    pub spawn: Option<Arc<SpawnSpec>>,
    /// The host that a request to it names in place of the client's, with
    /// `proxy.replace-http-host`.
    pub http_host: Option<Arc<str>>,
    /// How TLS is spoken with it, if it is (`https://`).
    pub tls: Option<Arc<ClientOptions>>,
}

/// Where a backend is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackendAddress {
    /// An address of IPv4 or IPv6, with its port.
    Inet(SocketAddr),
    /// A path, or an abstract name after `@`. Empty, for a backend with `spawn`: a socket of the
    /// server's own making, which needs no name.
    Unix(Arc<str>),
    /// A name with A or AAAA records.
    Name {
        /// The name, which is looked up again when its records expire.
        host: Arc<str>,
        /// The port at each of its addresses.
        port: u16,
    },
    /// A name with SRV records, which bring ports, weights and priorities.
    Srv(Arc<str>),
}

/// A backend process spawned by the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpawnSpec {
    /// Program and arguments.
    pub command: Vec<Arc<str>>,
    /// Variables to set.
    pub environment: Vec<(Arc<str>, Arc<str>)>,
    /// Names of the server's own variables to pass on; `None`: all of them.
    pub copy_environment: Option<Vec<Arc<str>>>,
    /// Processes that are kept running (`min-procs`).
    pub min_procs: u32,
    /// Processes at most, under load (`max-procs`).
    pub max_procs: u32,
    /// Seconds without a request after which a process above `min_procs` is ended.
    pub idle_timeout_s: u32,
    /// Number of the signal that asks a process to end.
    pub kill_signal: i32,
    /// Backlog of the sockets that the processes accept from.
    pub listen_backlog: i32,
}

/// Connections per address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolSpec {
    /// Connections at most, busy and idle, over all workers (`proxy-core.max-pool-size`).
    pub size_max: u32,
    /// Idle ones kept at most (`proxy-core.max-idle-connections`); not more than `size_max`.
    pub idle_max: u32,
    /// Milliseconds that one is kept without a request (`proxy-core.max-idle-time`); by default
    /// [`idle_ms_of`].
    pub idle_ms: u64,
    /// Milliseconds after which one is not used again; 0: no limit (`proxy-core.max-lifetime`).
    pub lifetime_ms: u64,
    /// Requests per connection; 0: a new one for each (`proxy-core.max-keep-alive-requests`).
    pub requests_max: u32,
    /// Milliseconds of silence after which a backend that speaks HTTP/2 is asked whether it is
    /// there; 0: never (`proxy-core.ping-interval`).
    pub ping_ms: u64,
    /// Milliseconds in which it has to say something then (`proxy-core.ping-timeout`).
    pub ping_timeout_ms: u64,
}

impl Default for PoolSpec {
    fn default() -> Self {
        Self {
            size_max: 256,
            idle_max: 256,
            idle_ms: idle_ms_of(&Protocol::Http { force_http10: false }),
            lifetime_ms: 0,
            requests_max: 1000,
            ping_ms: 10_000,
            ping_timeout_ms: 10_000,
        }
    }
}

/// Milliseconds that an idle connection is kept by default. Of a gateway protocol it may hold a
/// process, which does not end before the connection does: a service that restarts must not wait
/// for that.
pub(crate) fn idle_ms_of(protocol: &Protocol) -> u64 {
    if protocol.is_http() { 30_000 } else { 1_000 }
}

/// The backlog.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BacklogSpec {
    /// Requests at most (`proxy-core.max-backlog-size`); one more is answered 503 at once.
    pub length_max: u32,
    /// Milliseconds a request waits at most (`proxy-core.backlog-timeout`).
    pub wait_ms: u64,
}

impl Default for BacklogSpec {
    fn default() -> Self {
        Self { length_max: 1024, wait_ms: 10_000 }
    }
}

/// How long a backend may take, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeoutSpec {
    /// To accept a connection, and to shake hands for TLS (`proxy-core.connect-timeout`).
    pub connect_ms: u64,
    /// Between two reads of a response, its first byte included (`proxy-core.read-timeout`).
    pub read_ms: u64,
    /// To take what is written to it (`proxy-core.write-timeout`).
    pub write_ms: u64,
    /// Without a byte in either direction of a tunnel (`proxy-core.tunnel-timeout`).
    pub tunnel_ms: u64,
}

impl Default for TimeoutSpec {
    fn default() -> Self {
        Self { connect_ms: 5_000, read_ms: 60_000, write_ms: 60_000, tunnel_ms: 3_600_000 }
    }
}

/// When an address is used no more, and when again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HealthSpec {
    /// Milliseconds that a refused address is skipped, doubled with each failure in a row
    /// (`proxy-core.disable-time`, written in seconds).
    pub disable_ms: u64,
    /// What the doubling ends at (`proxy-core.max-disable-time`).
    pub disable_ms_max: u64,
    /// Failures in a row that take an address out (`proxy-core.max-fails`).
    pub fails_max: u32,
    /// Milliseconds for which requests are held back, from the moment an address that was up
    /// refused, before they are answered 503: a backend that restarts costs waiting, not errors
    /// (`proxy-core.hold-time`).
    pub hold_ms: u64,
    /// Milliseconds over which an address that came back grows to its full weight
    /// (`proxy-core.slow-start`).
    pub slow_start_ms: u64,
    /// The active check, if any (`proxy-core.check`).
    pub check: Option<CheckSpec>,
}

impl Default for HealthSpec {
    fn default() -> Self {
        Self {
            disable_ms: 1_000,
            disable_ms_max: 60_000,
            fails_max: 1,
            hold_ms: 3_000,
            slow_start_ms: 0,
            check: None,
        }
    }
}

/// Asking an address by itself, request or no request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckSpec {
    /// What is asked, and which answer is good.
    pub kind: CheckKind,
    /// Milliseconds from one check to the next.
    pub interval_ms: u64,
    /// Milliseconds after which a check without an answer has failed.
    pub timeout_ms: u64,
    /// Successes in a row that bring an address back.
    pub rise: u32,
    /// Failures in a row that take it out.
    pub fall: u32,
}

impl CheckSpec {
    /// The check of a backend that speaks HTTP/2.
    pub(crate) fn over_http2(self) -> Self {
        let kind = match self.kind {
            CheckKind::Http { target, host, status } => CheckKind::Http2 { target, host, status },
            kind => kind,
        };
        Self { kind, ..self }
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// Whether a connection is accepted.
    Tcp,
    /// `GET target` with `Host: host`; a status from `status.0` to `status.1` is good.
    Http {
        /// Path and query.
        target: Arc<str>,
        /// The value of Host.
        host: Arc<str>,
        /// The first and the last good status code.
        status: (u16, u16),
    },
    /// The same over HTTP/2.
    Http2 {
        /// Path and query.
        target: Arc<str>,
        /// `:authority`.
        host: Arc<str>,
        /// The first and the last good status code.
        status: (u16, u16),
    },
    /// `Check` of gRPC's health service; `SERVING` is good.
    Grpc {
        /// The service that is asked about; empty: the whole backend.
        service: Arc<str>,
        /// `:authority`.
        host: Arc<str>,
    },
    /// FCGI_GET_VALUES, or a request for `target` where it is set.
    Fastcgi {
        /// The path of the URL that is requested; `None`: only FCGI_GET_VALUES is sent.
        target: Option<Arc<str>>,
    },
    /// CPING.
    Ajp13,
}

/// Version of the PROXY protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyProtocol {
    /// The header of version 1, a line of text.
    V1,
    /// The header of version 2, which is binary.
    V2,
}
