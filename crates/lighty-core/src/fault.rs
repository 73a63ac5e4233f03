//! Faults and their consequences: the one table that maps a fault to the party to blame, a status,
//! a log level and the fate of the connection.

use std::borrow::Cow;
use std::error::Error;
use std::{fmt, io};

use lighty_config::Undecided;
use lighty_http::Status;

use crate::log::Level;

/// The party to blame for a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The client sent something wrong or went away.
    Client,
    /// The configuration or the files are wrong.
    Operator,
    /// A backend is down, late, or violated its protocol.
    Backend,
    /// The machine: disk errors, no descriptors, no memory.
    Machine,
    /// The server itself.
    Us,
}

/// Fate of the client's connection after the response. A backend's connection ends with any fault
/// of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The next request may follow.
    Keep,
    /// Closed after the response: later bytes cannot be trusted.
    Close,
    /// Cut: a response had begun and cannot be completed.
    Cut,
}

/// Effect of a fault on the call to a backend that met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The request fails. It is not sent again.
    Fails,
    /// The backend ended the call without a response: a request that may be repeated is sent again.
    Ended,
    /// The backend takes no request now: a request that may be repeated goes to another address.
    Rejected,
    /// The request fails before a byte of it is sent, and its connection stays usable.
    Unsent,
}

/// Effect of a fault on the health of the backend's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthEffect {
    /// None: a malformed or rejecting response is still a response.
    Unchanged,
    /// Counts against the address, unless it has served another request meanwhile.
    Worse,
}

/// The consequences of a fault: its row of the table.
pub struct FaultConsequences {
    /// The party to blame.
    pub blame: Blame,
    /// Status of the response; `None` if none can be sent any more.
    pub status: Option<Status>,
    /// Level in the error log.
    pub level: Level,
    /// Fate of the client's connection.
    pub fate: Fate,
    /// Effect on a call to a backend.
    pub call: CallEnd,
    /// Effect on the health of the backend's address.
    pub health: HealthEffect,
    /// Description for the log. Names the directive of the limit that was hit.
    pub message: &'static str,
}

/// Reason why a request body could not be read completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFault {
    /// The client closed or reset the connection before the end of the body.
    Disconnected,
    /// The framing is wrong (RFC 9112 section 7.1); the connection is closed.
    Malformed(&'static str),
    /// `server.max-request-size` was exceeded.
    TooLarge,
    /// The stored body cannot be read back.
    Lost,
    /// `server.max-read-idle` expired.
    ReadTimeout,
    /// Slower than `server.min-read-rate`.
    ReadRate,
}

/// A fault with details for the log.
#[derive(Debug)]
pub struct FaultReport {
    /// The fault, which decides blame and status.
    pub fault: Fault,
    /// The limit, file or backend concerned. May be empty.
    pub detail: Cow<'static, str>,
    /// The system error behind the fault, if any.
    pub source: Option<io::Error>,
}

impl FaultReport {
    /// A fault with its detail.
    pub fn new(fault: Fault, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { fault, detail: detail.into(), source: None }
    }

    /// Adds the number of earlier occurrences that were not logged.
    pub fn add_repeats(&mut self, count: u64) {
        if count > 0 {
            self.detail = format!("{} ({count} more like this before)", self.detail).into();
        }
    }

    /// Prefixes the detail with its subject.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        let colon = if self.detail.is_empty() { "" } else { ": " };
        self.detail = format!("{subject}{colon}{}", self.detail).into();
        self
    }
}

impl From<Fault> for FaultReport {
    fn from(fault: Fault) -> Self {
        Self::new(fault, "")
    }
}

impl From<Undecided> for FaultReport {
    fn from(undecided: Undecided) -> Self {
        Self::new(Fault::PatternLimit, undecided.message)
    }
}

/// Classifies an error that ended a body while it was produced.
impl From<io::Error> for FaultReport {
    fn from(error: io::Error) -> Self {
        let fault = match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::FileShrank,
            _ => Fault::DiskError,
        };
        Self { fault, detail: error.to_string().into(), source: Some(error) }
    }
}

impl From<io::ErrorKind> for FaultReport {
    fn from(kind: io::ErrorKind) -> Self {
        io::Error::from(kind).into()
    }
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Error for FaultReport {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}

/// The second of two values, if there is one.
macro_rules! given_or {
    ($default:path) => {
        $default
    };
    ($default:path, $given:path) => {
        $given
    };
}

/// Generates [`Fault`] from its table: blame, response status (0: none can be sent any more),
/// error-log level, fate of the connection, effects on the call to a backend and on the health of
/// its address (unless they are `Fails` and `Unchanged`), log message.
macro_rules! faults {
    ($(
        $fault:ident = $blame:ident, $status:literal, $level:ident, $fate:ident
            $(, $call:ident, $health:ident)?, $message:literal;
    )*) => {
        /// Every fault of a request after its head was parsed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $message] $fault,)*
        }

        impl Fault {
            /// Every fault, for tests and the manual.
            pub const ALL: &[Fault] = &[$(Fault::$fault,)*];

            /// The fault's place in [`Fault::ALL`].
            pub fn number(self) -> u16 {
                self as u16
            }

            /// The fault with a number.
            pub fn of_number(number: u16) -> Option<Fault> {
                Fault::ALL.get(usize::from(number)).copied()
            }

            /// The fault's row in the table.
            pub fn verdict(self) -> FaultConsequences {
                match self {
                    $(Fault::$fault => FaultConsequences {
                        blame: Blame::$blame,
                        status: Status::new($status),
                        level: Level::$level,
                        fate: Fate::$fate,
                        call: given_or!(CallEnd::Fails $(, CallEnd::$call)?),
                        health: given_or!(HealthEffect::Unchanged $(, HealthEffect::$health)?),
                        message: $message,
                    },)*
                }
            }
        }
    };
}

faults! {
    NotFound = Client, 404, Debug, Keep, "no such file";
    Forbidden = Operator, 403, Notice, Keep, "permission denied";
    SymlinkRefused = Operator, 403, Notice, Keep,
        "a symbolic link is on the path that server.follow-symlink forbids";
    NotARegularFile = Operator, 403, Notice, Keep, "not a regular file or directory";
    Misdirected = Client, 421, Info, Keep,
        "the host wants another client certificate than the connection's (ssl.verifyclient)";
    ClearText = Client, 400, Info, Close, "HTTP in the clear where TLS is spoken";
    NameTooLong = Client, 404, Debug, Keep, "file name too long";
    MethodNotAllowed = Client, 405, Debug, Keep, "method not allowed";
    MethodUnknown = Client, 501, Debug, Close, "unknown method";
    RequestTooLarge = Client, 413, Notice, Close,
        "request body larger than server.max-request-size";
    BodyMalformed = Client, 400, Notice, Close, "malformed request body";
    ClientGone = Client, 0, Debug, Cut, "client closed the connection";
    ReadTimeout = Client, 408, Info, Close, "server.max-read-idle ran out";
    HeadTimeout = Client, 408, Info, Close, "server.max-head-time ran out";
    WriteTimeout = Client, 0, Info, Cut, "server.max-write-idle ran out";
    Killed = Operator, 0, Notice, Cut, "an operator ended it (lighty ctl kill)";
    HalfClosed = Client, 408, Info, Close, "server.max-half-closed-idle ran out";
    ReadRate = Client, 408, Info, Close, "slower than server.min-read-rate";
    WriteRate = Client, 0, Info, Cut, "slower than server.min-write-rate";
    DescriptorsExhausted = Machine, 503, Error, Close,
        "no file descriptor is free (server.max-fds)";
    NoConnection = Machine, 503, Error, Keep, "no connection to a backend can be opened";
    NoThread = Machine, 503, Error, Keep,
        "no thread or process can be had (ulimit -u, TasksMax, pids.max)";
    DiskError = Machine, 500, Error, Close, "reading the file failed";
    FileShrank = Operator, 0, Warning, Cut, "file shrank while it was being sent";
    NoDocumentRoot = Operator, 500, Error, Keep, "server.document-root cannot be opened";
    RestartLoop = Operator, 500, Error, Keep, "rewrite loop";
    BackendsDown = Backend, 503, Error, Keep, Rejected, Unchanged, "no backend is up";
    BacklogFull = Backend, 503, Error, Keep,
        "every backend is busy and proxy-core.max-backlog-size is reached";
    BacklogTimeout = Backend, 503, Error, Keep,
        "every backend was busy until proxy-core.backlog-timeout ran out";
    BackendRefused = Backend, 502, Error, Keep, "the backend refused the connection";
    BackendTls = Backend, 502, Error, Keep, "TLS with the backend cannot be spoken";
    BackendConnectTimeout = Backend, 504, Error, Keep,
        "the backend did not accept within proxy-core.connect-timeout";
    BackendReadTimeout = Backend, 504, Error, Keep, Fails, Worse,
        "the backend was silent until proxy-core.read-timeout ran out";
    BackendWriteTimeout = Backend, 504, Error, Keep, Fails, Worse,
        "the backend took nothing until proxy-core.write-timeout ran out";
    BackendClosed = Backend, 502, Error, Keep, Ended, Worse,
        "the backend closed the connection before its response";
    BackendCancelled = Backend, 502, Info, Keep, Ended, Unchanged,
        "the backend cancelled the request before its response";
    BackendReset = Backend, 502, Error, Keep, Ended, Worse,
        "the backend reset the request's stream before its response";
    BackendCalm = Backend, 503, Error, Keep, Rejected, Unchanged,
        "the backend finds that it is asked too much (ENHANCE_YOUR_CALM)";
    BackendMalformed = Backend, 502, Error, Keep, "the backend's response is malformed";
    BackendHeadTooLarge = Backend, 502, Error, Keep,
        "the head of the backend's response exceeds 65536 bytes or 256 lines";
    BackendBusy = Backend, 503, Error, Keep, Rejected, Unchanged,
        "the backend takes no request now";
    HeadUnfit = Client, 431, Notice, Keep, Unsent, Unchanged,
        "the request's head does not fit into the protocol of its backend";
    BackendCut = Backend, 0, Error, Cut, "the backend's response ended early";
    BackendStopped = Backend, 0, Info, Cut, "the backend cancelled its response";
    BackendCalmCut = Backend, 0, Error, Cut,
        "the backend ended its response, since it is asked too much (ENHANCE_YOUR_CALM)";
    SendfileRefused = Operator, 403, Error, Keep,
        "the backend named a file to send that it may not (x-sendfile-docroot)";
    SpoolFull = Machine, 500, Error, Close,
        "the request body could not be spooled (server.upload-dirs)";
    LengthRequired = Client, 411, Info, Close, "a length is required";
    ProgramFailed = Operator, 500, Error, Keep, "a program cannot be started";
    ProgramsMax = Backend, 503, Error, Keep, "cgi.max-processes is reached";
    ProgramReadTimeout = Backend, 504, Error, Keep,
        "the program was silent until cgi.limits' read-timeout ran out";
    ProgramWriteTimeout = Backend, 504, Error, Keep,
        "the program read nothing until cgi.limits' write-timeout ran out";
    PageLimit = Operator, 500, Error, Keep, "a page exceeds a limit of mod_ssi";
    RewriteTarget = Operator, 500, Error, Keep,
        "a rewrite rule made something that does not begin with a slash";
    RewriteRefused = Client, 400, Notice, Keep, "a rewrite made a URL that is refused";
    MappedOut = Client, 400, Notice, Keep,
        "a rule for the backend made a path with dot segments of the URL";
    RedirectSplit = Client, 400, Info, Keep,
        "a redirection that would hold a line end or NUL of the request";
    HeadSplit = Client, 400, Info, Close, "a response's field that would hold a line end or NUL";
    PatternLimit = Operator, 500, Error, Keep, Unsent, Unchanged,
        "matching a pattern takes more steps than server.pcre-match-limit";
    NotAuthenticated = Client, 401, Debug, Keep, "credentials are needed";
    BadCredentials = Client, 401, Notice, Keep, "wrong credentials";
    AuthMalformed = Client, 400, Info, Keep, "malformed credentials";
    AuthBanned = Client, 429, Info, Keep, "more wrong logins than auth.failures";
    AuthBusy = Machine, 503, Error, Keep, "auth.max-pending passwords wait already";
    AuthService = Backend, 503, Error, Keep, "a service of auth.forward gives no verdict";
    TokenScope = Client, 403, Notice, Keep, "a token without a required claim";
    TokenKeys = Backend, 503, Error, Keep, "there are no keys to verify tokens with";
    SignInState = Client, 400, Info, Keep, "a sign-in that this browser has not begun";
    SignInDenied = Client, 403, Notice, Keep, "a user is signed in but not admitted";
    SignInProvider = Backend, 503, Error, Keep, "a provider does not complete a sign-in";
    VhostUnknown = Operator, 500, Error, Keep, "the document root of the host is not known";
    AuthUnreachable = Backend, 503, Error, Keep, "the directory of users gives no answer";
    AuthBroken = Operator, 500, Error, Keep, "users cannot be authenticated";
    ForwarderIllegible = Client, 400, Notice, Close,
        "a trusted proxy passed on an illegible or hidden address of its client";
    RequestRate = Client, 429, Info, Keep, "more requests than limit.requests";
    ConnectionsPerKey = Client, 429, Info, Close, "more at a time than limit.connections";
    ConnectionsPerIp = Client, 403, Info, Close, "more than evasive.max-conns-per-ip";
    DavStore = Operator, 500, Error, Keep, "the database webdav.sqlite-db-name cannot be used";
    DavBusy = Machine, 503, Error, Keep, "too many requests wait for the database";
    DavHeld = Operator, 503, Error, Keep,
        "another process holds the database webdav.sqlite-db-name";
    DavNameTooLong = Client, 414, Info, Keep, "a name too long or a tree too deep for WebDAV";
    DavXml = Client, 400, Info, Keep, "a malformed body or field of WebDAV";
    DavXmlTooLarge = Client, 413, Notice, Close, "an XML body larger than webdav.max-xml-size";
    DavLocksMax = Operator, 507, Error, Keep, "webdav.max-locks is reached";
    DavPropertiesFull = Client, 507, Notice, Keep, "more than webdav.max-property-size";
    DiskFull = Machine, 507, Error, Keep, "no space is left on the disk";
    ScriptFailed = Operator, 500, Error, Keep, "a script failed";
    ScriptLimit = Operator, 503, Error, Keep, "a script exceeded a limit";
    Internal = Us, 500, Error, Close, "internal error";
}

impl Fault {
    /// The fault for an incompletely read request body.
    pub fn of_body(fault: BodyFault) -> Fault {
        match fault {
            BodyFault::Disconnected => Fault::ClientGone,
            BodyFault::Malformed(_) => Fault::BodyMalformed,
            BodyFault::TooLarge => Fault::RequestTooLarge,
            BodyFault::Lost => Fault::SpoolFull,
            BodyFault::ReadTimeout => Fault::ReadTimeout,
            BodyFault::ReadRate => Fault::ReadRate,
        }
    }

    /// True if the machine is temporarily out of a resource. Such a fault says nothing about the
    /// file.
    pub fn is_want(self) -> bool {
        matches!(self, Fault::DescriptorsExhausted | Fault::NoThread)
    }

    /// The fault for a file operation's error (lighttpd's errno map: EACCES 403; ENOENT, ENOTDIR,
    /// ENAMETOOLONG 404; ELOOP 403; others 500).
    pub fn of_file_error(error: &std::io::Error) -> Fault {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => return Fault::NotFound,
            ErrorKind::PermissionDenied => return Fault::Forbidden,
            ErrorKind::UnexpectedEof => return Fault::FileShrank,
            // A pool thread could not be created, or too many jobs are queued.
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
    fn a_response_that_had_begun_is_cut_and_everything_else_has_a_status() {
        for fault in Fault::ALL.iter().copied() {
            let verdict = fault.verdict();
            assert_eq!(verdict.status.is_none(), verdict.fate == Fate::Cut, "{fault:?}");
            assert!(!verdict.message.is_empty());
        }
    }

    #[test]
    fn only_faults_of_a_call_are_repeated_or_change_the_health_of_an_address() {
        let lines: Vec<String> = Fault::ALL
            .iter()
            .map(|fault| (fault, fault.verdict()))
            .filter(|(_, row)| (row.call, row.health) != (CallEnd::Fails, HealthEffect::Unchanged))
            .map(|(fault, row)| format!("{fault:?}: {:?}, {:?}", row.call, row.health))
            .collect();
        let expected = [
            "BackendsDown: Rejected, Unchanged",
            "BackendReadTimeout: Fails, Worse",
            "BackendWriteTimeout: Fails, Worse",
            "BackendClosed: Ended, Worse",
            "BackendCancelled: Ended, Unchanged",
            "BackendReset: Ended, Worse",
            "BackendCalm: Rejected, Unchanged",
            "BackendBusy: Rejected, Unchanged",
            "HeadUnfit: Unsent, Unchanged",
            "PatternLimit: Unsent, Unchanged",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn errors_of_the_machine_are_logged_as_errors() {
        for fault in Fault::ALL.iter().copied() {
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
