//! The paths of the control socket.

use lighty_http::Method;
use serde::de::DeserializeOwned;

use super::fault::ControlFault;
use super::message::ControlRequest;

/// A path of the control socket.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The path.
    pub path: &'static str,
    /// Its effect, for users.
    pub about: &'static str,
    verb: Verb,
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// GET: changes nothing.
    Query(Query),
    /// POST: the error log names its author.
    Change(Change),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query {
    Index,
    Status,
    Backends,
    Connections,
    Certificates,
    DryRun,
    Errors,
    Limits,
    Bans,
    Cache,
    Metrics,
    Timings,
    Top,
    Configuration,
    Dump,
    Explain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Reload,
    Upgrade,
    ReopenLogs,
    Stop,
    DrainSelf,
    Maintenance,
    Kill,
    LogLevel,
    Trace,
    ClearLimits,
    Ban,
    Unban,
    PurgeCache,
    Forget,
    Backend(BackendChange),
}

/// Change of a backend's use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackendChange {
    Ready,
    Drain,
    Maintenance,
    Weight,
    Limit,
    Add,
    Remove,
}

/// All paths, in the order of the manual.
pub const ROUTES: &[Route] = &[
    query("/", "the paths", Query::Index),
    query("/status", "version, uptime, configuration, workers and those that hang", Query::Status),
    query("/backends", "every backend with its state and figures", Query::Backends),
    query(
        "/connections",
        "connections and HTTP/2 streams; ?client=ADDRESS, ?state=STATE, ?older=SECONDS select some",
        Query::Connections,
    ),
    query("/certificates", "certificates and their expiry", Query::Certificates),
    query(
        "/reload/dry-run",
        "differences that a reload would make, and reasons against it",
        Query::DryRun,
    ),
    query("/errors", "the last 100 malformed requests and responses of backends", Query::Errors),
    query("/metrics", "metrics in the text format of Prometheus", Query::Metrics),
    query("/timings", "times of requests by route and stage; ?route=ROUTE", Query::Timings),
    query("/top", "the JSON of the status page", Query::Top),
    query("/limits", "limits per client, and the state of ?client=IP", Query::Limits),
    query("/bans", "clients whose connections are refused", Query::Bans),
    query("/cache", "stores of responses with their figures", Query::Cache),
    query("/configuration", "the configuration in use, without secrets", Query::Configuration),
    query(
        "/explain",
        "conditions, directives and handler of a request; ?url=URL&method=METHOD&from=IP",
        Query::Explain,
    ),
    query("/dump", "everything for a report about a bug, without secrets", Query::Dump),
    change("/reload", "read the configuration again; wait for the outcome", Change::Reload),
    change(
        "/upgrade",
        "let a new process take this one's place; with {\"binary\": PATH}: of another program",
        Change::Upgrade,
    ),
    change("/reopen-logs", "open the log files again", Change::ReopenLogs),
    change("/stop", "stop gracefully; with {\"now\": true}: at once", Change::Stop),
    change(
        "/drain-self",
        "with {\"on\": true} health.ready-url says 503; nothing else changes",
        Change::DrainSelf,
    ),
    change(
        "/routes/maintenance",
        "with {\"route\": NAME, \"on\": true, \"page\": HTML} requests of a route get 503",
        Change::Maintenance,
    ),
    change("/kill", "end the connection or stream of {\"id\": ID}", Change::Kill),
    change("/log-level", "give the error log another level for a time", Change::LogLevel),
    change("/trace", "log the details of requests of a host or client for a time", Change::Trace),
    change("/limits/clear", "forget the rates of {\"client\": IP}", Change::ClearLimits),
    change("/ban", "refuse connections of {\"client\": IP} for a time", Change::Ban),
    change("/unban", "accept connections of {\"client\": IP} again", Change::Unban),
    change(
        "/cache/purge",
        "remove stored responses: {\"scope\": \"url\", \"value\": URL, \"soft\": true}",
        Change::PurgeCache,
    ),
    backend("/backends/ready", "use a backend as configured", BackendChange::Ready),
    backend("/backends/drain", "send a backend no new requests", BackendChange::Drain),
    backend(
        "/backends/maintenance",
        "send a backend no new requests and no health checks",
        BackendChange::Maintenance,
    ),
    backend(
        "/backends/weight",
        "give a backend another weight; null: the configured one",
        BackendChange::Weight,
    ),
    backend(
        "/backends/limit",
        "give a backend another maximum number of connections; null: the configured one",
        BackendChange::Limit,
    ),
    backend("/backends/add", "add a backend to an upstream", BackendChange::Add),
    backend("/backends/remove", "remove an added backend", BackendChange::Remove),
    change("/backends/forget", "keep no orders for a backend, or for any", Change::Forget),
];

const fn query(path: &'static str, about: &'static str, query: Query) -> Route {
    Route { path, about, verb: Verb::Query(query) }
}

const fn change(path: &'static str, about: &'static str, change: Change) -> Route {
    Route { path, about, verb: Verb::Change(change) }
}

const fn backend(path: &'static str, about: &'static str, of: BackendChange) -> Route {
    change(path, about, Change::Backend(of))
}

impl Route {
    /// Its method: GET, or POST for changes.
    pub const fn method(&self) -> &'static str {
        match self.verb {
            Verb::Query(_) => "GET",
            Verb::Change(_) => "POST",
        }
    }
}

/// Finds the work that a request names.
///
/// # Errors
/// There is no such path, or its method is another one.
pub(super) fn find(request: &ControlRequest) -> Result<Verb, ControlFault> {
    let found = ROUTES.iter().find(|route| route.path == request.path);
    let route = found.ok_or_else(|| ControlFault::Path(request.path.clone()))?;
    let is_right = match route.verb {
        Verb::Query(_) => request.method == Method::Get,
        Verb::Change(_) => request.method == Method::Post,
    };
    if is_right {
        return Ok(route.verb);
    }
    Err(ControlFault::WrongMethod { path: request.path.clone(), method: route.method() })
}

/// Reads the JSON object of a body; an empty one has no members.
///
/// # Errors
/// It is not JSON, or has other members.
pub(super) fn read_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, ControlFault> {
    let text = if body.trim_ascii().is_empty() { &b"{}"[..] } else { body };
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(ControlFault::Body("a JSON object is needed".to_owned()));
    }
    serde_json::from_slice(text).map_err(|error| ControlFault::Body(error.to_string()))
}
