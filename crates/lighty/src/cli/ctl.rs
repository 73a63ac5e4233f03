//! Subcommands of `lighty ctl`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use lighty_admin::ctl::{BackendVerb, Verb};

/// Names a running server.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RunningServer {
    /// The running server's pid file, as server.pid-file names it; else that of -f FILE
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) pid_file: Option<PathBuf>,
}

/// A query or a change of a running server.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Ctl {
    /// Show version, uptime, configuration, workers, and hanging workers
    Status {
        /// Exit with 1 while the server is not ready: stopping, starting, or drained
        #[arg(long)]
        ready: bool,
    },
    /// Show every backend with its state and figures
    Backends,
    /// Show connections and HTTP/2 streams; with their requests, if mod_status has a page
    Connections,
    /// Show certificates and their expiry
    Certificates,
    /// Read the configuration again, and wait for the outcome
    Reload {
        /// Only show what would change, and the reasons for a refusal
        #[arg(long)]
        dry_run: bool,
    },
    /// Let a new process take the server's place, without losing a connection; wait for the outcome
    Upgrade {
        /// Absolute path of another program; without it, the one that the server was started by
        #[arg(long, value_name = "PATH")]
        binary: Option<PathBuf>,
    },
    /// Open the log files again
    ReopenLogs,
    /// Stop gracefully
    Stop {
        /// Stop at once, without waiting for the responses under way
        #[arg(long)]
        now: bool,
    },
    /// Have health.ready-url say 503, so that load balancers send new clients elsewhere
    DrainSelf {
        /// On, or off again
        switch: Switch,
    },
    /// Use a backend as configured
    Ready(NamedBackend),
    /// Send a backend no new requests
    Drain {
        #[command(flatten)]
        named: NamedBackend,
        /// Wait until no request is under way at it, at most so many seconds
        #[arg(long, value_name = "SECONDS")]
        wait: Option<u64>,
    },
    /// Send a backend no new requests and no health checks; or close a route, with on and off
    Maintenance {
        #[command(flatten)]
        named: NamedBackend,
        /// The name is that of a route (status.route): its requests get 503, or no longer
        switch: Option<Switch>,
        /// Page of the route's requests, in HTML
        #[arg(long, value_name = "FILE", requires = "switch")]
        page: Option<PathBuf>,
        /// Wait until no request is under way at it, at most so many seconds
        #[arg(long, value_name = "SECONDS")]
        wait: Option<u64>,
    },
    /// Give a backend another weight, until the configuration has another one
    Weight {
        #[command(flatten)]
        named: NamedBackend,
        /// 0 to 1000; 0: no new requests. Without it: the configured one
        weight: Option<u32>,
    },
}

/// A state that is switched on and off.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// Begins.
    On,
    /// Ends.
    Off,
}

/// A backend of the running server.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct NamedBackend {
    /// Its address as `backends` shows it, or its name in the configuration
    backend: String,
    /// Its upstream as `backends` shows it, if several have such a backend
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
}

impl NamedBackend {
    fn verb(&self, path: &'static str, weight: Option<u32>, wait_s: Option<u64>) -> Verb {
        Verb::Backend(BackendVerb {
            path,
            backend: self.backend.clone(),
            upstream: self.upstream.clone(),
            weight,
            wait: wait_s.map(Duration::from_secs),
        })
    }
}

impl Ctl {
    /// Returns the request for the control socket.
    pub(crate) fn verb(&self) -> Verb {
        match self {
            Self::Status { ready: true } => Verb::CheckReady,
            Self::Status { ready: false } => Verb::Query("/status"),
            Self::DrainSelf { switch } => Verb::DrainSelf { on: *switch == Switch::On },
            Self::Backends => Verb::Query("/backends"),
            Self::Connections => Verb::Query("/connections"),
            Self::Certificates => Verb::Query("/certificates"),
            Self::Reload { dry_run: false } => Verb::Change("/reload"),
            Self::Reload { dry_run: true } => Verb::Query("/reload/dry-run"),
            Self::Upgrade { binary } => Verb::Upgrade { binary: binary.clone() },
            Self::ReopenLogs => Verb::Change("/reopen-logs"),
            Self::Stop { now } => Verb::Stop { now: *now },
            Self::Ready(named) => named.verb("/backends/ready", None, None),
            Self::Drain { named, wait } => named.verb("/backends/drain", None, *wait),
            Self::Maintenance { named, switch: None, wait, .. } => {
                named.verb("/backends/maintenance", None, *wait)
            }
            Self::Maintenance { named, switch: Some(switch), page, .. } => Verb::Maintenance {
                route: named.backend.clone(),
                on: *switch == Switch::On,
                page: page.clone(),
            },
            Self::Weight { named, weight } => named.verb("/backends/weight", *weight, None),
        }
    }
}
