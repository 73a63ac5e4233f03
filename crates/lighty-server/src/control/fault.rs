//! Reasons for which the control socket refuses a request.

use lighty_http::Status;
use lighty_io::process::control::REQUEST_BYTES_MAX;

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
    #[error("there is no {0}; GET / lists the paths")]
    Path(String),
    #[error("{path} takes {method}")]
    WrongMethod { path: String, method: &'static str },
    #[error("the body: {0}")]
    Body(String),
    #[error("no backend is named {0}")]
    NoBackend(String),
    #[error("status.route names no route {route}; the routes are: {known}")]
    NoRoute { route: String, known: String },
    #[error("several upstreams have a backend {backend}: name one of {upstreams}")]
    Ambiguous { backend: String, upstreams: String },
    #[error("a weight is 0 to {max}")]
    Weight { max: u32 },
    #[error("{0}")]
    Reload(String),
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
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Partial | Self::Malformed(_) | Self::Body(_) | Self::Weight { .. } => {
                Status::BAD_REQUEST
            }
            Self::Chunked => Status::LENGTH_REQUIRED,
            Self::Method | Self::WrongMethod { .. } => Status::METHOD_NOT_ALLOWED,
            Self::MediaType => Status::UNSUPPORTED_MEDIA_TYPE,
            Self::RelativeBinary => Status::BAD_REQUEST,
            Self::Origin | Self::ForeignBinary => Status::FORBIDDEN,
            Self::Path(_) | Self::NoBackend(_) | Self::NoRoute { .. } => Status::NOT_FOUND,
            Self::Ambiguous { .. } | Self::Reload(_) | Self::Upgrade(_) => Status::CONFLICT,
            Self::Stopping | Self::Busy => Status::SERVICE_UNAVAILABLE,
        }
    }
}
