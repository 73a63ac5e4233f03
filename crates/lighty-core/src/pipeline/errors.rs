//! What an error is answered with: its handler, its page, and what belongs to it whatever is shown.

use std::sync::Arc;

use lighty_http::{Fields, Known, Method, Status};

use super::begin_again;
use crate::body::RequestBody;
use crate::error_page;
use crate::exchange::{ErrorHandler, Exchange, Rewriting};
use crate::limits::ERROR_PAGE_BYTES_MAX;
use crate::log::Level;
use crate::protected_files;
use crate::trace;

/// An error handler that is to be called.
pub(super) struct Wanted {
    url: Arc<str>,
    chooses_status: bool,
}

/// The error handler, where one is set for the status. As in lighttpd 1.4, the one for every error
/// goes before the one for 403 and 404.
pub(super) fn wants_error_handler(ex: &Exchange) -> Option<Wanted> {
    let status = ex.response.status;
    if status.code() < 400 || ex.error_status.is_some() || !ex.response.body_is_default() {
        return None;
    }
    let core = &ex.settings.core;
    if let Some(url) = &core.error_handler {
        return Some(Wanted { url: Arc::clone(url), chooses_status: false });
    }
    let url = core.error_handler_404.as_ref().filter(|_| is_missing(status))?;
    Some(Wanted { url: Arc::clone(url), chooses_status: true })
}

/// Whether `server.error-handler-404` is for this.
fn is_missing(status: Status) -> bool {
    matches!(status.code(), 403 | 404)
}

/// The fields that belong to an error itself, whatever page is shown: what a 405 allows (RFC 9110
/// section 15.5.6), the length that a 416 is about (section 15.5.17), how a 401 and a 407 are
/// overcome (sections 15.5.2 and 15.5.8), when a 503 or 429 may be over (section 10.2.3).
pub fn keep_owed(from: &Fields, to: &mut Fields) {
    use Known as K;
    let owed = [K::Allow, K::ContentRange, K::WwwAuthenticate, K::ProxyAuthenticate, K::RetryAfter];
    for name in owed {
        from.get_all(name).for_each(|value| to.push_known(name, value));
    }
}

/// Restarts the request with the error handler's URL; `false` where that is none.
pub(super) fn call_error_handler(ex: &mut Exchange, wanted: &Wanted) -> bool {
    ex.error_status = Some(ex.response.status);
    let chooses_status = wanted.chooses_status;
    ex.error_handler = Some(ErrorHandler { chooses_status, asked: ex.request.method });
    // Known and logged; what the handler does is judged by itself.
    ex.fault = None;
    // What was to go with a good answer does not go with the error.
    ex.carried.clear();
    ex.rewriting = Rewriting::default();
    if ex.set_target(wanted.url.as_bytes()).is_err() {
        return false;
    }
    // A script that stands in for what is missing gets the request as it came, if nobody has read
    // of it; an error page is got.
    if !chooses_status || ex.body.received() > 0 {
        if !ex.request.is_head() {
            ex.request.method = Some(Method::Get);
        }
        ex.body = RequestBody::default();
    }
    begin_again(ex);
    trace::error_handler(ex);
    true
}

/// As in lighttpd, a file as `server.error-handler` has the status of the error, and whoever makes a
/// page chooses it, unless `server.error-intercept` is set; as `server.error-handler-404` a file is
/// 200. A handler that fails itself leaves the error as if there were none; that of a handler that
/// may choose is its choice.
pub(super) fn keep_error_status(ex: &mut Exchange) {
    let Some(original) = ex.error_status else { return };
    let chooses = ex.error_handler.is_some_and(|handler| handler.chooses_status);
    let status = ex.response.status;
    let has_failed =
        ex.error_handler.is_some() && status.code() >= 400 && ex.response.body_is_default();
    let intercepts = || !chooses && status.code() < 300 && ex.settings.core.error_intercept;
    if has_failed && (!chooses || is_missing(status)) {
        ex.fail_status(original);
    } else if !ex.stands_for_error && !intercepts() {
        return;
    }
    ex.response.status = original;
    ex.response.fields.append(&ex.owed);
}

/// What is known of the request from here on is what the client asked.
pub(super) fn restore_method(ex: &mut Exchange) {
    if let Some(handler) = ex.error_handler {
        ex.request.method = handler.asked;
    }
}

/// An error answer without a body gets its page: `server.errorfile-prefix`, else a built-in one.
pub(super) async fn fill_error_page(ex: &mut Exchange) {
    match read_error_page(ex).await {
        Some(page) => ex.response.set_text(ex.response.status, "text/html", page),
        None => {
            let id = ex.id();
            error_page::fill(&mut ex.response, id);
        }
    }
}

/// The operator's page for the status, where there is one.
async fn read_error_page(ex: &Exchange) -> Option<Vec<u8>> {
    let prefix = ex.settings.core.errorfile_prefix.as_ref()?;
    let path = format!("{prefix}{}.html", ex.response.status.code());
    // One byte more tells a page that is too large from one that fits.
    let reading = ex.services.engine.read_front(
        path.clone(),
        ERROR_PAGE_BYTES_MAX + 1,
        protected_files::admit,
    );
    let page = Box::pin(reading).await.ok()?;
    if page.len() > ERROR_PAGE_BYTES_MAX {
        let words = format!("{path} is not sent: it has more than {ERROR_PAGE_BYTES_MAX} bytes");
        ex.log(Level::Warning, &words);
        return None;
    }
    Some(page)
}
