//! The configuration of an upstream, typed and complete.
//!
//! Both spellings (`proxy-core.*` of 1.5 and `*.server` of 1.4) become specs. Equal specs share one
//! upstream at run time, whichever conditions they come from.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;

use lighty_io::process::program::Program;
use lighty_io::tls::ClientOptions;

pub use crate::upstream::balance::{Algorithm, BalancerOptions, BalancerSpec, HashKey};
pub use crate::upstream::protocol::{FastcgiRole, Protocol};

/// A group of interchangeable backends, with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamSpec {
    /// Its name in the log: the directive and its key, for example `fastcgi.server ".php"`.
    pub name: Arc<str>,
    /// Protocol of the backends.
    pub protocol: Protocol,
    /// Choice of a backend for a request.
    pub balancer: BalancerSpec,
    /// The backends, in the order written.
    pub backends: Vec<BackendSpec>,
    /// Limits of the connection pools.
    pub pool: PoolSpec,
    /// Limits of the backlog, for times when every pool is full.
    pub backlog: BacklogSpec,
    /// Time limits of the steps of a request.
    pub timeouts: TimeoutSpec,
    /// Rules for taking failing addresses out, and back.
    pub health: HealthSpec,
    /// True if each address of a name is balanced by itself; otherwise the first one that accepts a
    /// connection is used.
    pub split_hostnames: bool,
    /// Version of the PROXY protocol header that opens each connection, if any. Such a connection
    /// speaks for one client and is never shared.
    pub proxy_protocol: Option<ProxyProtocol>,
}

/// A backend as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendSpec {
    /// Its text as written, for logs and statistics.
    pub text: Arc<str>,
    /// Its optional label, which statistics also show.
    pub label: Option<Arc<str>>,
    /// Its address.
    pub address: BackendAddress,
    /// Share of requests relative to the others', 1 to 1000; 0 drains it: it gets no new requests,
    /// and current ones end.
    pub weight: u32,
    /// Maximum number of concurrent requests; `None`: the pool's size.
    pub max_connections: Option<u32>,
    /// Used only while no other backend is up.
    pub backup: bool,
    /// The program that the server starts and listens for (`bin-path`).
    pub spawn: Option<Arc<SpawnSpec>>,
    /// The host of requests to it, in place of the client's, with `proxy.replace-http-host`.
    pub http_host: Option<Arc<str>>,
    /// TLS options (`https://`); `None` without TLS.
    pub tls: Option<Arc<ClientOptions>>,
}

/// Address of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackendAddress {
    /// An IPv4 or IPv6 address with its port.
    Inet(SocketAddr),
    /// A path, or an abstract name after `@`. For a backend with `spawn`, an empty text means a
    /// socket of the server's own making.
    Unix(Arc<str>),
    /// A name with A or AAAA records.
    Name {
        /// The name; it is looked up again when its records expire.
        host: Arc<str>,
        /// The port at each of its addresses.
        port: u16,
    },
    /// A name with SRV records, which have ports, weights and priorities.
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
    /// Minimum number of processes (`min-procs`).
    pub min_procs: u32,
    /// Maximum number of processes, under load (`max-procs`).
    pub max_procs: u32,
    /// Seconds without a request after which a process above `min_procs` is ended.
    pub idle_timeout_s: u32,
    /// Number of the signal that asks a process to end.
    pub kill_signal: i32,
    /// Backlog of the sockets that the processes accept from.
    pub listen_backlog: i32,
}

impl SpawnSpec {
    /// The program with its arguments and environment, without input and output.
    pub fn program(&self, is_fastcgi: bool) -> Program {
        let mut command = self.command.iter();
        let path = command.next().map_or("", |path| path);
        let mut program = Program::new(path);
        program.args = command.map(|argument| argument.as_ref().into()).collect();
        match &self.copy_environment {
            Some(names) => program.copy_environment(names.iter().map(|name| name.as_ref())),
            None => program.copy_whole_environment(),
        }
        let own = self
            .environment
            .iter()
            .map(|(name, value)| (OsString::from(name.as_ref()), OsString::from(value.as_ref())));
        program.environment.extend(own);
        // The number of processes, not PHP, decides about concurrent requests, as in 1.4.
        let says = |name: &str| program.environment.iter().any(|(known, _)| known == name);
        if is_fastcgi && !says("PHP_FCGI_CHILDREN") {
            program.environment.push(("PHP_FCGI_CHILDREN".into(), "1".into()));
        }
        program
    }
}

/// Connections per address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolSpec {
    /// Maximum number of connections, busy and idle, over all workers (`proxy-core.max-pool-size`).
    pub size_max: u32,
    /// Maximum number of idle connections (`proxy-core.max-idle-connections`); not more than
    /// `size_max`.
    pub idle_max: u32,
    /// Milliseconds that an idle connection is kept (`proxy-core.max-idle-time`); by default
    /// [`idle_ms_of`].
    pub idle_ms: u64,
    /// Milliseconds after which a connection is not used again; 0: no limit
    /// (`proxy-core.max-lifetime`).
    pub lifetime_ms: u64,
    /// Maximum number of requests per connection; 0: a new connection for each request
    /// (`proxy-core.max-keep-alive-requests`).
    pub requests_max: u32,
    /// Milliseconds of silence after which an HTTP/2 backend gets a PING; 0: never
    /// (`proxy-core.ping-interval`).
    pub ping_ms: u64,
    /// Milliseconds in which it must send something after a PING (`proxy-core.ping-timeout`).
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

/// Returns the default idle time of a connection, in milliseconds. With a gateway protocol, the
/// connection may occupy a process, which does not exit before the connection ends: the restart of
/// a service must not wait for that.
pub(crate) fn idle_ms_of(protocol: &Protocol) -> u64 {
    if protocol.is_http() { 30_000 } else { 1_000 }
}

/// Limits of the backlog.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BacklogSpec {
    /// Maximum number of requests (`proxy-core.max-backlog-size`); further ones get 503 at once.
    pub length_max: u32,
    /// Maximum wait of a request, in milliseconds (`proxy-core.backlog-timeout`).
    pub wait_ms: u64,
}

impl Default for BacklogSpec {
    fn default() -> Self {
        Self { length_max: 1024, wait_ms: 10_000 }
    }
}

/// Time limits of a backend, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeoutSpec {
    /// For accepting a connection, and the TLS handshake (`proxy-core.connect-timeout`).
    pub connect_ms: u64,
    /// Between two reads of a response, its first byte included (`proxy-core.read-timeout`).
    pub read_ms: u64,
    /// For accepting written bytes (`proxy-core.write-timeout`).
    pub write_ms: u64,
    /// Without a byte in either direction of a tunnel (`proxy-core.tunnel-timeout`).
    pub tunnel_ms: u64,
}

impl Default for TimeoutSpec {
    fn default() -> Self {
        Self { connect_ms: 5_000, read_ms: 60_000, write_ms: 60_000, tunnel_ms: 3_600_000 }
    }
}

/// Rules for taking an address out of use, and back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HealthSpec {
    /// Milliseconds that a refused address is skipped, doubled with each failure in a row
    /// (`proxy-core.disable-time`, written in seconds).
    pub disable_ms: u64,
    /// Limit of the doubling (`proxy-core.max-disable-time`).
    pub disable_ms_max: u64,
    /// Failures in a row that take an address out (`proxy-core.max-fails`).
    pub fails_max: u32,
    /// Milliseconds for which requests are held back before they get 503, from the moment an
    /// address that was up refused: a backend that restarts costs waiting, not errors
    /// (`proxy-core.hold-time`).
    pub hold_ms: u64,
    /// Milliseconds over which a returned address grows to its full weight
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

/// Checks of an address, independent of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckSpec {
    /// Protocol of the check, and its criterion for success.
    pub kind: CheckKind,
    /// Milliseconds from one check to the next.
    pub interval_ms: u64,
    /// Milliseconds after which a check without a result has failed.
    pub timeout_ms: u64,
    /// Successes in a row that bring an address back.
    pub rise: u32,
    /// Failures in a row that take it out.
    pub fall: u32,
}

impl CheckSpec {
    /// Returns the equivalent check over HTTP/2.
    pub(crate) fn over_http2(self) -> Self {
        let kind = match self.kind {
            CheckKind::Http { target, host, status } => CheckKind::Http2 { target, host, status },
            kind => kind,
        };
        Self { kind, ..self }
    }
}

/// Kind of a check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// Success: a connection is accepted.
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
    /// Like `Http`, over HTTP/2.
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
        /// Name of the service; empty: the whole backend.
        service: Arc<str>,
        /// `:authority`.
        host: Arc<str>,
    },
    /// FCGI_GET_VALUES, or a request for `target` if it is set.
    Fastcgi {
        /// Path of the requested URL; `None`: only FCGI_GET_VALUES is sent.
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
