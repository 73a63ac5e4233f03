//! Who is to blame, and what follows from it: the one place that turns a fault into a status, a
//! log level and the fate of the connection.

use lighty_http::Status;

use crate::body::BodyFault;
use crate::log::Level;

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The client sent something wrong or went away.
    Client,
    /// The configuration or the files are not as they should be.
    Operator,
    /// A backend is down, late, or broke the rules of its protocol.
    Backend,
    /// The machine: disk errors, no descriptors, no memory.
    Machine,
    /// The server itself.
    Us,
}

/// What happens to the connection after the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The next request may follow.
    Keep,
    /// Closed after the answer: what follows on it cannot be trusted.
    Close,
    /// Cut without (further) answer: an answer had begun and cannot be completed.
    Cut,
}

/// Everything that can go wrong with a request once its head was parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    NotFound,
    Forbidden,
    SymlinkRefused,
    NotARegularFile,
    NameTooLong,
    MethodNotAllowed,
    MethodUnknown,
    RequestTooLarge,
    BodyMalformed,
    ClientGone,
    ReadTimeout,
    HeadTimeout,
    WriteTimeout,
    HalfClosed,
    ReadRate,
    WriteRate,
    DescriptorsExhausted,
    NoThread,
    DiskError,
    FileShrank,
    NoDocumentRoot,
    RestartLoop,
    BackendsDown,
    BacklogFull,
    BacklogTimeout,
    BackendRefused,
    BackendConnectTimeout,
    BackendReadTimeout,
    BackendWriteTimeout,
    BackendClosed,
    BackendMalformed,
    BackendHeadTooLarge,
    BackendBusy,
    HeadUnfit,
    BackendCut,
    SendfileRefused,
    SpoolFull,
    LengthRequired,
    ProgramFailed,
    ProgramsMax,
    ProgramReadTimeout,
    ProgramWriteTimeout,
    PageLimit,
    RewriteTarget,
    MappedOut,
    RedirectSplit,
    HeadSplit,
    PatternLimit,
    NotAuthenticated,
    BadCredentials,
    AuthMalformed,
    AuthBusy,
    AuthBroken,
    ForwarderIllegible,
    RequestRate,
    ConnectionsPerKey,
    ConnectionsPerIp,
    DavStore,
    DavBusy,
    DavHeld,
    DavNameTooLong,
    DavXml,
    DavXmlTooLarge,
    DavLocksMax,
    DavPropertiesFull,
    DiskFull,
    Internal,
}

/// A row of the table: what a fault means.
pub struct Verdict {
    /// Who is to blame.
    pub blame: Blame,
    /// Status of the answer; `None` where none can be given any more.
    pub status: Option<Status>,
    /// Level in the error log.
    pub level: Level,
    /// Fate of the connection.
    pub fate: Fate,
    /// Words for the log, with the limit's directive where one was hit.
    pub words: &'static str,
}

fn row(blame: Blame, status: u16, level: Level, fate: Fate, words: &'static str) -> Verdict {
    Verdict { blame, status: Status::new(status), level, fate, words }
}

const SYMLINK: &str = "a symbolic link is on the path that server.follow-symlink forbids";
const MAPPED_OUT: &str = "a rule for the backend made a path with dot segments of the URL";
const STEPS: &str = "matching a pattern takes more steps than server.pcre-match-limit";
const NO_SLASH: &str = "a rewrite rule made something that does not begin with a slash";

impl Fault {
    /// Every fault, for tests and the manual.
    pub const ALL: [Fault; 67] = [
        Fault::NotFound,
        Fault::Forbidden,
        Fault::SymlinkRefused,
        Fault::NotARegularFile,
        Fault::NameTooLong,
        Fault::MethodNotAllowed,
        Fault::MethodUnknown,
        Fault::RequestTooLarge,
        Fault::BodyMalformed,
        Fault::ClientGone,
        Fault::ReadTimeout,
        Fault::HeadTimeout,
        Fault::WriteTimeout,
        Fault::HalfClosed,
        Fault::ReadRate,
        Fault::WriteRate,
        Fault::DescriptorsExhausted,
        Fault::NoThread,
        Fault::DiskError,
        Fault::FileShrank,
        Fault::NoDocumentRoot,
        Fault::RestartLoop,
        Fault::BackendsDown,
        Fault::BacklogFull,
        Fault::BacklogTimeout,
        Fault::BackendRefused,
        Fault::BackendConnectTimeout,
        Fault::BackendReadTimeout,
        Fault::BackendWriteTimeout,
        Fault::BackendClosed,
        Fault::BackendMalformed,
        Fault::BackendHeadTooLarge,
        Fault::BackendBusy,
        Fault::HeadUnfit,
        Fault::BackendCut,
        Fault::SendfileRefused,
        Fault::SpoolFull,
        Fault::LengthRequired,
        Fault::ProgramFailed,
        Fault::ProgramsMax,
        Fault::ProgramReadTimeout,
        Fault::ProgramWriteTimeout,
        Fault::PageLimit,
        Fault::RewriteTarget,
        Fault::MappedOut,
        Fault::RedirectSplit,
        Fault::HeadSplit,
        Fault::PatternLimit,
        Fault::NotAuthenticated,
        Fault::BadCredentials,
        Fault::AuthMalformed,
        Fault::AuthBusy,
        Fault::AuthBroken,
        Fault::ForwarderIllegible,
        Fault::RequestRate,
        Fault::ConnectionsPerKey,
        Fault::ConnectionsPerIp,
        Fault::DavStore,
        Fault::DavBusy,
        Fault::DavHeld,
        Fault::DavNameTooLong,
        Fault::DavXml,
        Fault::DavXmlTooLarge,
        Fault::DavLocksMax,
        Fault::DavPropertiesFull,
        Fault::DiskFull,
        Fault::Internal,
    ];

    /// The row of the table.
    pub fn verdict(self) -> Verdict {
        use Blame::{Client, Machine, Operator, Us};
        use Fate::{Close, Cut, Keep};
        match self {
            Fault::NotFound => row(Client, 404, Level::Debug, Keep, "no such file"),
            Fault::Forbidden => row(Operator, 403, Level::Notice, Keep, "permission denied"),
            Fault::SymlinkRefused => row(Operator, 403, Level::Notice, Keep, SYMLINK),
            Fault::NotARegularFile => {
                row(Operator, 403, Level::Notice, Keep, "not a regular file or directory")
            }
            Fault::NameTooLong => row(Client, 404, Level::Debug, Keep, "file name too long"),
            Fault::MethodNotAllowed => row(Client, 405, Level::Debug, Keep, "method not allowed"),
            Fault::MethodUnknown => row(Client, 501, Level::Debug, Close, "unknown method"),
            Fault::RequestTooLarge => row(
                Client,
                413,
                Level::Notice,
                Close,
                "request body larger than server.max-request-size",
            ),
            Fault::BodyMalformed => {
                row(Client, 400, Level::Notice, Close, "malformed request body")
            }
            Fault::ClientGone => row(Client, 0, Level::Debug, Cut, "client closed the connection"),
            Fault::ReadTimeout => {
                row(Client, 408, Level::Info, Close, "server.max-read-idle ran out")
            }
            Fault::HeadTimeout => {
                row(Client, 408, Level::Info, Close, "server.max-head-time ran out")
            }
            Fault::WriteTimeout => {
                row(Client, 0, Level::Info, Cut, "server.max-write-idle ran out")
            }
            Fault::HalfClosed => {
                row(Client, 408, Level::Info, Close, "server.max-half-closed-idle ran out")
            }
            Fault::ReadRate => {
                row(Client, 408, Level::Info, Close, "slower than server.min-read-rate")
            }
            Fault::WriteRate => {
                row(Client, 0, Level::Info, Cut, "slower than server.min-write-rate")
            }
            Fault::DescriptorsExhausted => row(
                Machine,
                503,
                Level::Error,
                Close,
                "no file descriptor is free (server.max-fds)",
            ),
            Fault::DiskError => row(Machine, 500, Level::Error, Close, "reading the file failed"),
            Fault::FileShrank => {
                row(Operator, 0, Level::Warning, Cut, "file shrank while it was being sent")
            }
            Fault::NoDocumentRoot => {
                row(Operator, 500, Level::Error, Keep, "server.document-root cannot be opened")
            }
            Fault::RestartLoop => {
                row(Operator, 500, Level::Error, Keep, "the request was rewritten in a circle")
            }
            Fault::RewriteTarget => row(Operator, 500, Level::Error, Keep, NO_SLASH),
            Fault::PageLimit => {
                row(Operator, 500, Level::Error, Keep, "a page exceeds a limit of mod_ssi")
            }
            Fault::Internal => row(Us, 500, Level::Error, Close, "internal error"),
            other => other
                .gate_verdict()
                .or_else(|| other.dav_verdict())
                .unwrap_or_else(|| other.backend_verdict()),
        }
    }

    /// The rows of those who are not let in, or not now.
    fn gate_verdict(self) -> Option<Verdict> {
        use Blame::{Client, Machine, Operator};
        use Fate::{Close, Keep};
        Some(match self {
            Fault::NotAuthenticated => {
                row(Client, 401, Level::Debug, Keep, "credentials are needed")
            }
            Fault::BadCredentials => row(Client, 401, Level::Notice, Keep, "wrong credentials"),
            Fault::PatternLimit => row(Operator, 500, Level::Error, Keep, STEPS),
            Fault::RedirectSplit => row(
                Client,
                400,
                Level::Info,
                Keep,
                "a redirection that would hold a line end or NUL of the request",
            ),
            Fault::HeadSplit => row(
                Client,
                400,
                Level::Info,
                Close,
                "an answer's field that would hold a line end or NUL",
            ),
            Fault::AuthMalformed => row(Client, 400, Level::Info, Keep, "malformed credentials"),
            Fault::AuthBusy => {
                row(Machine, 503, Level::Error, Keep, "auth.max-pending passwords wait already")
            }
            Fault::NoThread => row(
                Machine,
                503,
                Level::Error,
                Keep,
                "no thread or process can be had (ulimit -u, TasksMax, pids.max)",
            ),
            Fault::AuthBroken => {
                row(Operator, 500, Level::Error, Keep, "users cannot be authenticated")
            }
            Fault::MappedOut => row(Client, 400, Level::Notice, Keep, MAPPED_OUT),
            Fault::ForwarderIllegible => row(
                Client,
                400,
                Level::Notice,
                Close,
                "a trusted proxy passed on an illegible or hidden address of its client",
            ),
            Fault::RequestRate => {
                row(Client, 429, Level::Info, Keep, "more requests than limit.requests")
            }
            Fault::ConnectionsPerKey => {
                row(Client, 429, Level::Info, Close, "more at a time than limit.connections")
            }
            Fault::ConnectionsPerIp => {
                row(Client, 403, Level::Info, Close, "more than evasive.max-conns-per-ip")
            }
            _ => return None,
        })
    }

    /// The rows of files and properties that clients change.
    fn dav_verdict(self) -> Option<Verdict> {
        use Blame::{Client, Machine, Operator};
        use Fate::{Close, Keep};
        Some(match self {
            Fault::DavStore => row(
                Operator,
                500,
                Level::Error,
                Keep,
                "the database webdav.sqlite-db-name cannot be used",
            ),
            Fault::DavBusy => {
                row(Machine, 503, Level::Error, Keep, "too many requests wait for the database")
            }
            Fault::DavHeld => row(
                Operator,
                503,
                Level::Error,
                Keep,
                "another process holds the database webdav.sqlite-db-name",
            ),
            Fault::DavNameTooLong => {
                row(Client, 414, Level::Info, Keep, "a name too long or a tree too deep for WebDAV")
            }
            Fault::DavXml => {
                row(Client, 400, Level::Info, Keep, "a malformed body or field of WebDAV")
            }
            Fault::DavXmlTooLarge => row(
                Client,
                413,
                Level::Notice,
                Close,
                "an XML body larger than webdav.max-xml-size",
            ),
            Fault::DavLocksMax => {
                row(Operator, 507, Level::Error, Keep, "webdav.max-locks is reached")
            }
            Fault::DavPropertiesFull => {
                row(Client, 507, Level::Notice, Keep, "more than webdav.max-property-size")
            }
            Fault::DiskFull => {
                row(Machine, 507, Level::Error, Keep, "no space is left on the disk")
            }
            _ => return None,
        })
    }

    /// The rows of what goes wrong behind a proxy. A client that gets one of these answers may ask
    /// again on the same connection.
    fn backend_verdict(self) -> Verdict {
        use Blame::{Backend, Client, Machine, Operator};
        use Fate::{Close, Cut, Keep};
        let error = |status, words| row(Backend, status, Level::Error, Keep, words);
        match self {
            Fault::BackendsDown => error(503, "no backend is up"),
            Fault::BacklogFull => {
                error(503, "every backend is busy and proxy-core.max-backlog-size is reached")
            }
            Fault::BacklogTimeout => {
                error(503, "every backend was busy until proxy-core.backlog-timeout ran out")
            }
            Fault::BackendRefused => error(502, "the backend refused the connection"),
            Fault::BackendConnectTimeout => {
                error(504, "the backend did not accept within proxy-core.connect-timeout")
            }
            Fault::BackendReadTimeout => {
                error(504, "the backend was silent until proxy-core.read-timeout ran out")
            }
            Fault::BackendWriteTimeout => {
                error(504, "the backend took nothing until proxy-core.write-timeout ran out")
            }
            Fault::BackendClosed => {
                error(502, "the backend closed the connection before its answer")
            }
            Fault::BackendMalformed => error(502, "the backend's answer is malformed"),
            Fault::BackendHeadTooLarge => {
                error(502, "the head of the backend's answer exceeds 64 KB or its number of fields")
            }
            Fault::BackendBusy => error(503, "the backend takes no request now"),
            Fault::HeadUnfit => row(
                Client,
                431,
                Level::Notice,
                Keep,
                "the request's head does not fit into the protocol of its backend",
            ),
            Fault::BackendCut => {
                row(Backend, 0, Level::Error, Cut, "the backend's answer ended early")
            }
            Fault::SendfileRefused => row(
                Operator,
                403,
                Level::Error,
                Keep,
                "the backend named a file to send that it may not (x-sendfile-docroot)",
            ),
            Fault::SpoolFull => row(
                Machine,
                500,
                Level::Error,
                Close,
                "the request body could not be spooled (server.upload-dirs)",
            ),
            Fault::LengthRequired => row(Client, 411, Level::Info, Close, "a length is required"),
            other => other.program_verdict(),
        }
    }

    /// The rows of programs that are started for a request.
    fn program_verdict(self) -> Verdict {
        let error = |status, words| row(Blame::Backend, status, Level::Error, Fate::Keep, words);
        match self {
            Fault::ProgramsMax => error(503, "cgi.max-processes is reached"),
            Fault::ProgramReadTimeout => {
                error(504, "the program was silent until cgi.limits' read-timeout ran out")
            }
            Fault::ProgramWriteTimeout => {
                error(504, "the program read nothing until cgi.limits' write-timeout ran out")
            }
            _ => row(Blame::Operator, 500, Level::Error, Fate::Keep, "a program cannot be started"),
        }
    }

    /// The fault behind a request body that could not be read to its end.
    pub fn of_body(fault: BodyFault) -> Fault {
        match fault {
            BodyFault::Disconnected => Fault::ClientGone,
            BodyFault::Malformed(_) => Fault::BodyMalformed,
            BodyFault::TooLarge => Fault::RequestTooLarge,
            BodyFault::Lost => Fault::SpoolFull,
            BodyFault::TimedOut("server.min-read-rate") => Fault::ReadRate,
            BodyFault::TimedOut(_) => Fault::ReadTimeout,
        }
    }

    /// Whether the machine lacks for the moment what a request needs, which says nothing of the file.
    pub fn is_want(self) -> bool {
        matches!(self, Fault::DescriptorsExhausted | Fault::NoThread)
    }

    /// The fault that an error of a file operation stands for (ancestor's errno map: EACCES 403;
    /// ENOENT, ENOTDIR, ENAMETOOLONG 404; ELOOP 403; others 500).
    pub fn of_file_error(error: &std::io::Error) -> Fault {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => return Fault::NotFound,
            ErrorKind::PermissionDenied => return Fault::Forbidden,
            ErrorKind::UnexpectedEof => return Fault::FileShrank,
            // The pool's thread could not be made, or too many jobs wait for one.
            ErrorKind::WouldBlock => return Fault::NoThread,
            _ => {}
        }
        match error.raw_os_error() {
            Some(ELOOP | EXDEV) => Fault::SymlinkRefused,
            Some(ENAMETOOLONG) => Fault::NameTooLong,
            Some(EMFILE | ENFILE) => Fault::DescriptorsExhausted,
            Some(ENXIO | ENODEV) => Fault::NotARegularFile,
            _ => Fault::DiskError,
        }
    }
}

const ENXIO: i32 = 6;
const EXDEV: i32 = 18;
const ENODEV: i32 = 19;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENAMETOOLONG: i32 = 36;
const ELOOP: i32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_had_begun_is_cut_and_everything_else_has_a_status() {
        for fault in Fault::ALL {
            let verdict = fault.verdict();
            assert_eq!(verdict.status.is_none(), verdict.fate == Fate::Cut, "{fault:?}");
            assert!(!verdict.words.is_empty());
        }
    }

    #[test]
    fn errors_of_the_machine_are_logged_as_errors() {
        for fault in Fault::ALL {
            let verdict = fault.verdict();
            if matches!(verdict.blame, Blame::Machine | Blame::Us) {
                assert_eq!(verdict.level, Level::Error, "{fault:?}");
            }
        }
    }

    #[test]
    fn file_errors_map_as_documented() {
        let of = |errno| Fault::of_file_error(&std::io::Error::from_raw_os_error(errno));
        assert_eq!(of(2), Fault::NotFound);
        assert_eq!(of(20), Fault::NotFound);
        assert_eq!(of(13), Fault::Forbidden);
        assert_eq!(of(40), Fault::SymlinkRefused);
        assert_eq!(of(36), Fault::NameTooLong);
        assert_eq!(of(24), Fault::DescriptorsExhausted);
        assert_eq!(of(5), Fault::DiskError);
    }
}
