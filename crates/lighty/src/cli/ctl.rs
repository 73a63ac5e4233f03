//! Subcommands of `lighty ctl`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use lighty_admin::ctl::{BackendVerb, Verb};
use serde_json::json;

/// Names a running server.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RunningServer {
    /// The running server's pid file, as server.pid-file names it; else that of -f FILE
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) pid_file: Option<PathBuf>,
    /// The running server's control socket, as server.control-socket names it
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "pid_file")]
    pub(crate) socket: Option<PathBuf>,
}

impl RunningServer {
    /// Returns the control socket, if an option names one.
    pub(crate) fn named_socket(&self) -> Option<PathBuf> {
        let beside = || self.pid_file.as_deref().map(lighty_server::control::socket_beside);
        self.socket.clone().or_else(beside)
    }
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
    /// Show connections and HTTP/2 streams with their requests
    Connections(ConnectionChoice),
    /// End a connection or an HTTP/2 stream
    Kill {
        /// Its id as `connections` shows it
        id: String,
    },
    /// Show certificates and their expiry
    Certificates,
    /// Show metrics in the text format of Prometheus
    Metrics,
    /// Show percentiles of the times of requests, by route and stage
    Timings {
        /// Only this route (status.route)
        route: Option<String>,
    },
    /// Explain a request under the configuration in use: conditions, directives and handler
    Explain(ExplainedUrl),
    /// Show the configuration in use, with defaults and without secrets
    Configuration,
    /// Write everything that a report about a bug needs as JSON, without secrets
    Dump,
    /// Show the limits per client (limit.requests and others), and the state of a client
    Limits {
        /// Its address
        client: Option<IpAddr>,
    },
    /// Forget the rates of a client, so that limits begin anew for it
    ClearLimits {
        /// Its address
        client: IpAddr,
    },
    /// Show the clients whose connections are refused
    Bans,
    /// Refuse connections of a client for a time, and end its present ones
    Ban {
        /// Its address; of IPv6, the /64 network around it is refused
        client: IpAddr,
        /// Seconds until the ban ends
        #[arg(long = "for", value_name = "SECONDS", default_value_t = 600)]
        for_s: u32,
    },
    /// Accept connections of a client again
    Unban {
        /// Its address
        client: IpAddr,
    },
    /// Show the stores of responses, or remove responses from them
    Cache {
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Show the last malformed requests and responses of backends, with the faults marked
    Errors,
    /// Read the configuration again, and wait for the outcome
    Reload {
        /// Only show what would change, and the reasons for a refusal
        #[arg(long)]
        dry_run: bool,
        /// Upgrade instead, if only the sandbox of the running process lacks rights
        #[arg(long, conflicts_with = "dry_run")]
        upgrade: bool,
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
    /// Give the error log, or one of its modules, another level for a time
    #[command(override_usage = "lighty ctl log-level [OPTIONS] [MODULE] LEVEL")]
    LogLevel {
        /// A module as in server.errorlog-levels, then debug, info, notice, warning, error, or
        /// default for the configured one
        #[arg(value_names = ["MODULE", "LEVEL"], num_args = 1..=2, required = true)]
        level: Vec<String>,
        /// Seconds until the configured level is used again
        #[arg(long = "for", value_name = "SECONDS", default_value_t = 600)]
        for_s: u32,
    },
    /// Log the details of requests for a time
    Trace {
        /// Requests for this host
        #[arg(long, required_unless_present_any = ["client", "off"])]
        host: Option<String>,
        /// Requests of this client
        #[arg(long, value_name = "IP")]
        client: Option<IpAddr>,
        /// Seconds until the trace ends
        #[arg(long = "for", value_name = "SECONDS", default_value_t = 600)]
        for_s: u32,
        /// End all traces
        #[arg(long, conflicts_with_all = ["host", "client"])]
        off: bool,
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
    /// Give a backend another maximum number of connections, until the configuration has another
    /// one
    Limit {
        #[command(flatten)]
        named: NamedBackend,
        /// 1 to 65535. Without it: the configured one
        limit: Option<u32>,
    },
    /// Add a backend to an upstream, until the server ends
    Add(AddedBackend),
    /// Remove an added backend; requests under way at it go on
    Remove {
        /// Its address as `backends` shows it
        backend: String,
        /// Its upstream as `backends` shows it, if several have such a backend
        #[arg(long = "from", value_name = "NAME")]
        upstream: Option<String>,
        /// Remove it from server.state-dir too
        #[arg(long)]
        keep: bool,
    },
    /// Keep no orders for a backend, or for any; they hold until the server ends
    Forget {
        /// Its address as `backends` shows it
        backend: Option<String>,
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
    /// Keep the order in server.state-dir, for the next start
    #[arg(long)]
    keep: bool,
}

/// The connections to show.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ConnectionChoice {
    /// Only those of a client
    #[arg(long, value_name = "ADDRESS")]
    client: Option<String>,
    /// Only those in a state, such as idle, or a state that begins so
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only those in their state for at least so many seconds
    #[arg(long, value_name = "SECONDS")]
    older: Option<u32>,
}

impl ConnectionChoice {
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let parameters = [
            self.client.clone().map(|client| ("client", client)),
            self.state.clone().map(|state| ("state", state)),
            self.older.map(|older| ("older", older.to_string())),
        ];
        parameters.into_iter().flatten().collect()
    }
}

/// The request to explain.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ExplainedUrl {
    /// URL, or the part of it from the host or the path on
    url: String,
    /// Method
    #[arg(short = 'X', long, default_value = "GET")]
    method: String,
    /// Field of the request, as 'Name: value'
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// Address of the client
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    from: IpAddr,
}

impl ExplainedUrl {
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters = vec![
            ("url", self.url.clone()),
            ("method", self.method.clone()),
            ("from", self.from.to_string()),
        ];
        parameters.extend(self.headers.iter().map(|field| ("header", field.clone())));
        parameters
    }
}

/// The backend to add.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AddedBackend {
    /// Its address: IP:port, [IPv6]:port or unix:/path
    backend: String,
    /// The upstream as `backends` shows it
    #[arg(long = "to", value_name = "NAME")]
    upstream: String,
    /// Its weight, 0 to 1000
    #[arg(long, default_value_t = 1)]
    weight: u32,
    /// Keep it in server.state-dir, for the next start
    #[arg(long)]
    keep: bool,
}

impl AddedBackend {
    fn verb(&self) -> Verb {
        let (backend, upstream) = (self.backend.clone(), Some(self.upstream.clone()));
        let named = NamedBackend { backend, upstream, keep: self.keep };
        named.verb("/backends/add", Some(self.weight), None)
    }
}

impl NamedBackend {
    fn limited(&self, limit: Option<u32>) -> Verb {
        match self.verb("/backends/limit", None, None) {
            Verb::Backend(verb) => Verb::Backend(BackendVerb { limit, ..verb }),
            other => other,
        }
    }

    fn verb(&self, path: &'static str, weight: Option<u32>, wait_s: Option<u64>) -> Verb {
        Verb::Backend(BackendVerb {
            path,
            backend: self.backend.clone(),
            upstream: self.upstream.clone(),
            weight,
            limit: None,
            keep: self.keep,
            wait: wait_s.map(Duration::from_secs),
        })
    }
}

impl Ctl {
    /// Returns the request for the control socket.
    pub(crate) fn verb(&self) -> Verb {
        let find = |path, parameters| Verb::Find { path, parameters };
        let post = |path, body| Verb::Post { path, body };
        let client_of = |client: &IpAddr| ("client", client.to_string());
        match self {
            Self::Status { ready: true } => Verb::CheckReady,
            Self::Status { ready: false } => Verb::Query("/status"),
            Self::DrainSelf { switch } => Verb::DrainSelf { on: *switch == Switch::On },
            Self::Backends => Verb::Query("/backends"),
            Self::Connections(filter) => find("/connections", filter.parameters()),
            Self::Kill { id } => post("/kill", json!({ "id": id })),
            Self::LogLevel { level, for_s } => post("/log-level", ordered_level(level, *for_s)),
            Self::Trace { host, client, for_s, off } => {
                let body = json!({ "host": host, "client": client, "for_s": for_s, "off": off });
                post("/trace", body)
            }
            Self::Certificates => Verb::Query("/certificates"),
            Self::Reload { dry_run: true, .. } => Verb::Query("/reload/dry-run"),
            Self::Reload { upgrade: true, .. } => Verb::ReloadOrUpgrade,
            Self::Reload { .. } => Verb::Change("/reload"),
            Self::Upgrade { binary } => Verb::Upgrade { binary: binary.clone() },
            Self::Errors => Verb::Query("/errors"),
            Self::Metrics => Verb::Query("/metrics"),
            Self::Timings { route } => {
                find("/timings", route.iter().map(|route| ("route", route.clone())).collect())
            }
            Self::Explain(request) => find("/explain", request.parameters()),
            Self::Configuration => Verb::Query("/configuration"),
            Self::Dump => Verb::Query("/dump"),
            Self::Limits { client } => find("/limits", client.iter().map(client_of).collect()),
            Self::ClearLimits { client } => post("/limits/clear", json!({ "client": client })),
            Self::Bans => Verb::Query("/bans"),
            Self::Ban { client, for_s } => {
                post("/ban", json!({ "client": client, "for_s": for_s }))
            }
            Self::Cache { command: CacheCommand::Status } => Verb::Query("/cache"),
            Self::Cache { command: CacheCommand::Purge { scope, value, soft } } => {
                let body = json!({ "scope": scope.name(), "value": value, "soft": soft });
                post("/cache/purge", body)
            }
            Self::Unban { client } => post("/unban", json!({ "client": client })),
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
            Self::Limit { named, limit } => named.limited(*limit),
            Self::Add(added) => added.verb(),
            Self::Remove { backend, upstream, keep } => {
                let (backend, upstream) = (backend.clone(), upstream.clone());
                NamedBackend { backend, upstream, keep: *keep }.verb("/backends/remove", None, None)
            }
            Self::Forget { backend: None } => post("/backends/forget", json!({})),
            Self::Forget { backend } => post("/backends/forget", json!({ "backend": backend })),
            Self::Weight { named, weight } => named.verb("/backends/weight", *weight, None),
        }
    }
}

/// Commands about stored responses.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show the stores with their figures
    Status,
    /// Remove responses from all stores
    Purge {
        /// The extent
        scope: CacheScope,
        /// The URL or its beginning with the host, the tag, or the host
        #[arg(default_value = "", hide_default_value = true)]
        value: String,
        /// Make them stale instead
        #[arg(long)]
        soft: bool,
    },
}

/// Extent of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CacheScope {
    /// A URL with all its variants
    Url,
    /// All URLs that begin so
    Prefix,
    /// Responses with a tag
    Tag,
    /// Responses of a host
    Host,
    /// All responses
    All,
}

impl CacheScope {
    fn name(self) -> &'static str {
        match self {
            Self::Url => "url",
            Self::Prefix => "prefix",
            Self::Tag => "tag",
            Self::Host => "host",
            Self::All => "all",
        }
    }
}

/// The order of a level, of `[MODULE] LEVEL`.
fn ordered_level(arguments: &[String], for_s: u32) -> serde_json::Value {
    let (level, module) = arguments.split_last().expect("clap requires an argument");
    let mut order = json!({ "module": module.first() });
    if level != "default" {
        order["level"] = json!(level);
        order["for_s"] = json!(for_s);
    }
    order
}
