//! Bookkeeping of one request.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Undecided;
use lighty_http::{Method, Status};

use crate::exchange::extensions::Extension;
use crate::exchange::request_id::RequestId;
use crate::exchange::served_file::ServedFile;
use crate::exchange::throttle::Bucket;
use crate::extension_slot;
use crate::fault::Fault;
use crate::pipeline::rehearsal::Rehearsal;
use crate::settings::Settings;

/// State of rewriting for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewriting {
    /// Number of times the target was replaced.
    pub rounds: u8,
    /// A rule was marked as the last one.
    pub finished: bool,
    /// `url.try-files` has chosen a URL, or the URL of one of its candidate files is being
    /// resolved.
    pub tried: bool,
}

/// Reason why the settings of the requested URL decide about the response's head although the
/// request restarts under others. A later reason includes the earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptSettings {
    /// They do not decide.
    #[default]
    No,
    /// A module's fields of the response depend on them.
    Head,
    /// Fields of the request were changed under them.
    Fields,
}

/// An error handler that responds in place of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorHandler {
    /// True for `server.error-handler-404`: its files are sent with status 200.
    pub chooses_status: bool,
    /// The client's method; the handler may run with a different one.
    pub method: Option<Method>,
    /// The module that had taken the request on when the error occurred.
    pub taken_by: TakenBy,
}

/// The settings of the URL that failed, while `server.error-handler` makes its page. They decide
/// about fields that grant access to the response (CORS), whatever page it has. An extension,
/// because few requests have it and many requests wait.
#[derive(Default)]
pub(crate) struct FailedSettings(pub(crate) Option<Rc<Settings>>);

impl Extension for FailedSettings {
    extension_slot!();
}

/// The status that an error handler's program has chosen for the file that it names. An extension,
/// because few requests have it and many requests wait.
#[derive(Default)]
pub struct FileStatus(pub Option<Status>);

impl Extension for FileStatus {
    extension_slot!();
}

/// True if an operator traces the request: its details are logged, whatever the log's level. An
/// extension, because few requests have it and many requests wait.
#[derive(Default)]
pub struct TracedRequest(pub bool);

impl Extension for TracedRequest {
    extension_slot!();

    fn inherited(&self) -> Option<Self> {
        Some(Self(self.0))
    }
}

/// A module's index among those of the request's generation, or none. One byte, because many
/// requests may wait at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenBy(u8);

impl TakenBy {
    /// No module.
    pub const NONE: Self = Self(0);

    /// The module at an index below 64, the maximum of [`ModuleSet`](crate::pipeline::phase).
    #[inline]
    pub(crate) const fn module(index: usize) -> Self {
        Self(index as u8 + 1)
    }

    /// The module's index.
    pub(crate) fn index(self) -> Option<usize> {
        self.0.checked_sub(1).map(usize::from)
    }
}

/// Bookkeeping of one request. The next request begins with the default.
#[derive(Default)]
pub struct RequestState {
    /// Status for which an error handler is running.
    pub error_status: Option<Status>,
    /// The running error handler, if any.
    pub error_handler: Option<ErrorHandler>,
    /// The response is a file that takes the error's status.
    pub stands_for_error: bool,
    /// Number of restarts.
    pub restarts: u8,
    /// The fault behind an error response, for the log.
    pub fault: Option<Fault>,
    /// The handler that responded, for logs and for the error handler's status rule.
    pub handler: &'static str,
    /// The module that took the request on, whatever the outcome.
    pub taken_by: TakenBy,
    /// Response bytes sent so far, head included.
    pub bytes_sent: u64,
    /// Length of the response head in bytes.
    pub head_sent: u32,
    /// True if the connection can serve another request after the response.
    pub keeps_connection: bool,
    /// True if the whole response was sent.
    pub completed: bool,
    /// State of rewriting.
    pub rewriting: Rewriting,
    /// Use of the settings from before a restart for the response's head.
    pub keeps_settings: KeptSettings,
    /// The settings from before a restart. Their modules take part in the response's head as well.
    pub requested_settings: Option<Rc<Settings>>,
    /// Conditions are evaluated when the response's head is complete, because a script may change
    /// its validators.
    pub defers_conditions: bool,
    /// The client's own bandwidth limit, if it has one.
    pub key_bucket: Option<Arc<Bucket>>,
    /// Dry run: records actions, without starting or changing anything.
    pub rehearsal: Option<Box<Rehearsal>>,
    /// Suppresses error-log lines for refusals, because the request only probes for permitted
    /// content.
    pub quiet: bool,
    /// The condition behind `settings` that could not be decided, if any.
    pub(crate) undecided: Option<Undecided>,
    /// The physical path is known, so conditions on it can be decided.
    pub(crate) path_known: bool,
    pub(crate) id: Cell<Option<RequestId>>,
    /// Settings for the URL of the served file, if they differ from the requested URL's.
    pub served_file: ServedFile,
}

impl RequestState {
    /// True if a page that the server makes itself is sent with the status of the error.
    pub fn keeps_error_status(&self) -> bool {
        let chooses = self.error_handler.is_some_and(|handler| handler.chooses_status);
        self.error_status.is_some() && !chooses
    }
}
