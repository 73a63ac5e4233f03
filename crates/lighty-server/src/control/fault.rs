//! Reasons for which the control socket refuses a request.

use std::net::IpAddr;

use lighty_http::Status;
use lighty_io::process::control::REQUEST_BYTES_MAX;

use crate::reload::Refusal;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ControlFault {
    #[error("the request is not whole, or longer than {REQUEST_BYTES_MAX} bytes")]
    Partial,
    #[error("{0}")]
    Malformed(&'static str),
    #[error("a request to the control socket has a Content-Length, not chunks")]
    Chunked,
    #[error("the method is GET or POST")]
    Method,
    #[error("a POST has the Content-Type application/json")]
    MediaType,
    #[error("the control socket takes no requests of web pages, and only for the host localhost")]
    Origin,
    #[error("your groups may only query this server (server.control-readers)")]
    ReadOnly,
    #[error("there is no {0}; GET / lists the paths")]
    Path(String),
    #[error("{path} takes {method}")]
    WrongMethod { path: String, method: &'static str },
    #[error("the body: {0}")]
    Body(String),
    #[error("{0} is no parameter of this path, or has a wrong value")]
    Parameter(String),
    #[error("no open connection or stream has the id {0}")]
    NoConnection(String),
    #[error("{0} is no level: debug, info, notice, warning or error")]
    Level(String),
    #[error("{0} is no module of the error log (server.errorlog-levels)")]
    LogModule(String),
    #[error("a time is 1 to {max} seconds")]
    Seconds { max: u32 },
    #[error("there are {max} traces: end them with --off first")]
    Traces { max: usize },
    #[error("{0}")]
    Explain(String),
    #[error("no thread can be had for it")]
    NoThread,
    #[error("{max} clients are banned, and no more can be: use unban")]
    Bans { max: usize },
    #[error("{0} is not banned")]
    NoBan(IpAddr),
    #[error("no backend is named {0}")]
    NoBackend(String),
    #[error("status.route names no route {route}; the routes are: {known}")]
    NoRoute { route: String, known: String },
    #[error("several upstreams have a backend {backend}: name one of {upstreams}")]
    Ambiguous { backend: String, upstreams: String },
    #[error("a weight is 0 to {max}")]
    Weight { max: u32 },
    #[error("a limit is 1 to {max} connections")]
    Limit { max: u32 },
    #[error("no upstream is named {0}")]
    NoUpstream(String),
    #[error("{0} is no address of a backend: IP:port, [IPv6]:port or unix:/path")]
    NoAddress(String),
    #[error("the upstream has the backend {0} already")]
    Known(String),
    #[error("the configuration has the backend {0}, so it cannot be removed: use drain")]
    Configured(String),
    #[error("{max} backends have been added to the upstream, and no more can be")]
    Members { max: usize },
    #[error(
        "the sandbox of the running process permits no connections to port {0}: add the port to \
         server.sandbox-ports, then restart the server or run \"lighty ctl upgrade\""
    )]
    SandboxPort(u16),
    #[error("nothing can be kept without server.state-dir")]
    NoStateDir,
    #[error("orders for {max} backends are kept, and no more can be: use forget")]
    KeptMax { max: usize },
    #[error("done, but not kept: {0}")]
    NotKept(String),
    #[error("{0}")]
    Reload(Refusal),
    #[error("{0}")]
    Upgrade(String),
    #[error("--binary takes the absolute path of a program")]
    RelativeBinary,
    #[error("only root and the user of the server may name another program")]
    ForeignBinary,
    #[error("the server is stopping")]
    Stopping,
    #[error("a reload or an upgrade is under way: try again")]
    Busy,
}

impl ControlFault {
    /// The kind that the response names beside the text.
    pub(super) fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Reload(refusal) => Some(refusal.kind.name()),
            _ => None,
        }
    }

    pub(super) fn status(&self) -> Status {
        match self {
            Self::Partial
            | Self::Malformed(_)
            | Self::Body(_)
            | Self::Parameter(_)
            | Self::Level(_)
            | Self::LogModule(_)
            | Self::Seconds { .. }
            | Self::Weight { .. }
            | Self::Limit { .. }
            | Self::Explain(_)
            | Self::RelativeBinary
            | Self::NoAddress(_) => Status::BAD_REQUEST,
            Self::Chunked => Status::LENGTH_REQUIRED,
            Self::Method | Self::WrongMethod { .. } => Status::METHOD_NOT_ALLOWED,
            Self::MediaType => Status::UNSUPPORTED_MEDIA_TYPE,
            Self::Origin | Self::ReadOnly | Self::ForeignBinary => Status::FORBIDDEN,
            Self::Path(_)
            | Self::NoBackend(_)
            | Self::NoRoute { .. }
            | Self::NoUpstream(_)
            | Self::NoBan(_)
            | Self::NoConnection(_) => Status::NOT_FOUND,
            Self::Ambiguous { .. }
            | Self::Reload(_)
            | Self::Upgrade(_)
            | Self::Known(_)
            | Self::Configured(_)
            | Self::Members { .. }
            | Self::SandboxPort(_)
            | Self::NoStateDir
            | Self::KeptMax { .. }
            | Self::Bans { .. }
            | Self::Traces { .. } => Status::CONFLICT,
            Self::NotKept(_) => Status::INTERNAL_SERVER_ERROR,
            Self::Stopping | Self::Busy | Self::NoThread => Status::SERVICE_UNAVAILABLE,
        }
    }
}
