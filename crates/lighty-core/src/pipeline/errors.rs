//! Error responses: their handler, their page and the fields they always carry.

use std::rc::Rc;
use std::sync::Arc;

use lighty_http::{Fields, Known, Method, Status};

use super::begin_again;
use crate::exchange::Exchange;
use crate::exchange::body::RequestBody;
use crate::exchange::request_state::{
    ErrorHandler, FailedSettings, FileStatus, KeptSettings, TakenBy,
};
use crate::exchange::response::Maker;
use crate::fault::Fault;
use crate::log::Level;
use crate::log::trace;
use crate::pipeline::error_page;
use crate::pipeline::protected_files;
use crate::settings::limits::ERROR_PAGE_BYTES_MAX;

/// An error handler to call.
pub(super) struct Wanted {
    url: Arc<str>,
    chooses_status: bool,
}

/// The error handler for the response's status, if one is set. As in lighttpd 1.4, the handler for
/// all errors takes precedence over the one for 403 and 404.
pub(super) fn wants_error_handler(ex: &Exchange) -> Option<Wanted> {
    let status = ex.response.status;
    if status.code() < 400 || ex.state.error_status.is_some() || !ex.response.body_is_default() {
        return None;
    }
    let core = &ex.settings.core;
    if let Some(url) = &core.error_handler {
        return Some(Wanted { url: Arc::clone(url), chooses_status: false });
    }
    let url = core.error_handler_404.as_ref().filter(|_| is_missing(status))?;
    Some(Wanted { url: Arc::clone(url), chooses_status: true })
}

/// True if `server.error-handler-404` applies.
fn is_missing(status: Status) -> bool {
    matches!(status.code(), 403 | 404)
}

/// Fields of an error that every page of it carries: the allowed methods of a 405 (RFC 9110 section
/// 15.5.6), the length for a 416 (section 15.5.17), the challenges of a 401 and 407 (sections
/// 15.5.2 and 15.5.8), the protocols of a 426 (section 15.5.22), Retry-After of a 503 or 429
/// (section 10.2.3).
const OWED: [Known; 6] = [
    Known::Allow,
    Known::Upgrade,
    Known::ContentRange,
    Known::WwwAuthenticate,
    Known::ProxyAuthenticate,
    Known::RetryAfter,
];

/// Copies the fields of an error that every page of it carries (`OWED`).
pub fn keep_owed(from: &Fields, to: &mut Fields) {
    for name in OWED {
        from.get_all(name).for_each(|value| to.push_known(name, value));
    }
}

/// Restarts the request with the error handler's URL. Returns `false` if the URL is invalid.
pub(super) fn call_error_handler(ex: &mut Exchange, wanted: &Wanted) -> bool {
    ex.state.error_status = Some(ex.response.status);
    let chooses_status = wanted.chooses_status;
    let (method, taken_by) = (ex.request.method, ex.state.taken_by);
    ex.state.error_handler = Some(ErrorHandler { chooses_status, method, taken_by });
    // The original fault is already logged; the handler's result is judged separately.
    ex.state.fault = None;
    // Fields for a successful response do not belong to an error.
    ex.carried.clear();
    // As in lighttpd: if a last rule matched, the handler's URL is not rewritten either.
    ex.state.rewriting.rounds = 0;
    if ex.set_target(wanted.url.as_bytes()).is_err() {
        return false;
    }
    // A script that replaces a missing page gets the original request if its body is unread; an
    // error page is requested with GET or HEAD.
    if !chooses_status || ex.body.received() > 0 {
        if !ex.request.is_head() {
            ex.request.method = Some(Method::Get);
        }
        ex.body = RequestBody::default();
    }
    let failed = ex.client_settings().unwrap_or(&ex.settings);
    let failed = (!chooses_status).then(|| Rc::clone(failed));
    begin_again(ex);
    if failed.is_some() {
        ex.ext_mut::<FailedSettings>().0 = failed;
    }
    // As in lighttpd, an error page has the fields and variables of its own URL: it must not be
    // cached for as long as a successful response of the failed URL. The substitute for a missing
    // page keeps the missing URL's.
    if !chooses_status {
        ex.state.requested_settings = None;
        ex.state.keeps_settings = KeptSettings::No;
        ex.environment.clear_own();
    }
    trace::error_handler(ex);
    true
}

/// Applies the error's status to the handler's response, as lighttpd does: with
/// `server.error-handler`, a file is sent with the error's status, while a script chooses its own
/// unless `server.error-intercept` is set; with `server.error-handler-404`, a file is sent with
/// 200. If the handler fails, the original error stands, except for a handler that may choose its
/// status. The error also stands if the handler for all errors gives a 2xx or 3xx without content:
/// the redirect to a directory's slash, or the response of a script.
pub(super) fn keep_error_status(ex: &mut Exchange) {
    let Some(original) = ex.state.error_status else { return };
    if take_file_status(ex, original) {
        return;
    }
    let chooses = ex.state.error_handler.is_some_and(|handler| handler.chooses_status);
    let status = ex.response.status;
    let is_bare = ex.state.error_handler.is_some() && ex.response.body_is_default();
    let has_failed = is_bare && status.code() >= 400;
    let is_own = ex.response.maker == Maker::Server && !ex.state.stands_for_error;
    let leads_elsewhere = is_bare && !chooses && is_own && (200..400).contains(&status.code());
    // A listing for GET alone, for example: the requested page is missing all the same.
    let takes_no_method = ex.state.fault == Some(Fault::MethodNotAllowed);
    let intercepts = || !chooses && status.code() < 300 && ex.settings.core.error_intercept;
    if leads_elsewhere || has_failed && (!chooses || is_missing(status) || takes_no_method) {
        ex.fail_status(original);
    } else if !ex.state.stands_for_error && !intercepts() {
        append_owed(ex, status == original);
        return;
    }
    ex.response.status = original;
    ex.response.fields.append(&ex.owed);
    // The error stands, so metrics count the request for the module that failed.
    ex.state.taken_by = ex.state.error_handler.map_or(TakenBy::NONE, |handler| handler.taken_by);
}

/// Sends the file that the handler's program has named with the status that it has chosen. `false`
/// if there is none, or if it cannot be sent.
fn take_file_status(ex: &mut Exchange, original: Status) -> bool {
    let Some(chosen) = ex.ext::<FileStatus>().and_then(|status| status.0) else { return false };
    if ex.response.status.code() >= 400 && ex.response.body_is_default() {
        return false;
    }
    if ex.state.stands_for_error {
        ex.response.status = chosen;
    }
    append_owed(ex, ex.response.status == original);
    true
}

/// Appends the error's own fields that the program left out: a 401 without its challenge would not
/// prompt for a password. As in lighttpd, a program that chooses another status keeps the
/// challenge.
fn append_owed(ex: &mut Exchange, keeps_status: bool) {
    let (owed, fields) = (&ex.owed, &mut ex.response.fields);
    for name in OWED {
        if (keeps_status || name == Known::WwwAuthenticate) && !fields.contains(name) {
            owed.get_all(name).for_each(|value| fields.push_known(name, value));
        }
    }
}

/// Restores the client's method.
pub(super) fn restore_method(ex: &mut Exchange) {
    if let Some(handler) = ex.state.error_handler {
        ex.request.method = handler.method;
    }
}

/// Fills in the page of an error response without a body if no file has to be read for it. Returns
/// `false` if [`fill_error_page`] must.
pub(super) fn fill_known_page(ex: &mut Exchange) -> bool {
    if ex.response.status.code() < 400 || !ex.response.body_is_default() {
        return true;
    }
    if ex.settings.core.errorfile_prefix.is_some() {
        return false;
    }
    let id = ex.id();
    error_page::fill(&mut ex.response, id);
    true
}

/// Fills in the page of an error response without a body: from `server.errorfile-prefix`, or a
/// built-in one.
pub(super) async fn fill_error_page(ex: &mut Exchange) {
    match read_error_page(ex).await {
        Some(page) => ex.response.set_text(ex.response.status, "text/html", page),
        None => {
            let id = ex.id();
            error_page::fill(&mut ex.response, id);
        }
    }
}

/// The operator's page for the status, if there is one.
async fn read_error_page(ex: &Exchange) -> Option<Vec<u8>> {
    let prefix = ex.settings.core.errorfile_prefix.as_ref()?;
    let path = format!("{prefix}{}.html", ex.response.status.code());
    // One extra byte distinguishes a page that is too large from one that just fits.
    let reading = ex.machine.engine.read_front(
        path.clone(),
        ERROR_PAGE_BYTES_MAX + 1,
        protected_files::admit,
    );
    let page = Box::pin(reading).await.ok()?;
    if page.len() > ERROR_PAGE_BYTES_MAX {
        let message = format!("{path} is not sent: it has more than {ERROR_PAGE_BYTES_MAX} bytes");
        ex.log(Level::Warning, &message);
        return None;
    }
    Some(page)
}
