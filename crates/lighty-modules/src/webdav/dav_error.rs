//! Errors of WebDAV requests and their responses.

use std::borrow::Cow;
use std::io;

use lighty_core::{Body, BodyFault, Exchange, Fault, FaultReport};
use lighty_http::if_header::IfFault;
use lighty_http::{Known, Status};

use super::multistatus::{self, MEDIA_TYPE};

/// A response other than success.
#[derive(Debug)]
pub(super) enum DavError {
    /// A status without a body.
    Status(Status),
    /// A server fault with its report.
    Fault(FaultReport),
    /// A status with an XML body.
    Xml(Status, Vec<u8>),
    /// 401 with values of `WWW-Authenticate`, for another URL of the request.
    Unauthorized(Vec<Vec<u8>>),
}

impl DavError {
    /// Creates a fault with its detail.
    pub(super) fn fault(fault: Fault, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Fault(FaultReport::new(fault, detail))
    }

    /// Creates a status with the condition that failed (RFC 4918 section 16).
    pub(super) fn condition(status: Status, condition: &str, paths: &[Vec<u8>]) -> Self {
        let mut paths = paths.to_vec();
        // One lock may block both a resource and its collection.
        paths.sort();
        paths.dedup();
        Self::Xml(status, multistatus::error(condition, &paths))
    }

    /// Sets the error response.
    pub(super) fn respond(self, ex: &mut Exchange) {
        match self {
            Self::Status(status) => ex.fail_status(status),
            Self::Fault(report) => {
                ex.fail_reporting(&report);
                if matches!(report.fault, Fault::DavBusy | Fault::DavHeld) {
                    ex.response.fields.set(Known::RetryAfter, "1");
                }
            }
            Self::Xml(status, xml) => {
                ex.fail_status(status);
                ex.response.fields.set(Known::ContentType, MEDIA_TYPE);
                ex.response.body = Body::Memory(xml.into());
            }
            Self::Unauthorized(challenges) => {
                ex.fail_status(Status::UNAUTHORIZED);
                for challenge in challenges {
                    ex.response.fields.push_known(Known::WwwAuthenticate, challenge);
                }
            }
        }
    }

    /// Turns 404 into 409 if the missing resource is the parent collection.
    pub(super) fn missing_is_conflict(self) -> Self {
        match self {
            Self::Fault(report) if report.fault == Fault::NotFound => {
                Self::Status(Status::CONFLICT)
            }
            other => other,
        }
    }
}

impl From<Status> for DavError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Fault> for DavError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault.into())
    }
}

impl From<BodyFault> for DavError {
    fn from(fault: BodyFault) -> Self {
        Fault::of_body(fault).into()
    }
}

impl From<IfFault> for DavError {
    fn from(fault: IfFault) -> Self {
        Self::fault(Fault::DavXml, fault.message())
    }
}

impl From<io::Error> for DavError {
    fn from(error: io::Error) -> Self {
        Self::fault(fault_of(&error), error.to_string())
    }
}

/// Maps a disk error to a fault.
pub(super) fn fault_of(error: &io::Error) -> Fault {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Fault::DiskFull,
        Kind::ReadOnlyFilesystem | Kind::ResourceBusy => Fault::Forbidden,
        Kind::Interrupted => Fault::ClientGone,
        Kind::WouldBlock => Fault::DavBusy,
        Kind::TimedOut => Fault::DavHeld,
        _ => match Fault::of_file_error(error) {
            Fault::NameTooLong => Fault::DavNameTooLong,
            fault => fault,
        },
    }
}

/// Returns the status for an error of one file among many.
pub(super) fn status_of(error: &io::Error) -> Status {
    fault_of(error).verdict().status.unwrap_or(Status::INTERNAL_SERVER_ERROR)
}

/// Maps a database error to a response.
pub(super) fn of_store(error: io::Error) -> DavError {
    let fault = match error.kind() {
        io::ErrorKind::WouldBlock => Fault::DavBusy,
        io::ErrorKind::TimedOut => Fault::DavHeld,
        io::ErrorKind::StorageFull => Fault::DiskFull,
        _ => Fault::DavStore,
    };
    DavError::fault(fault, error.to_string())
}
