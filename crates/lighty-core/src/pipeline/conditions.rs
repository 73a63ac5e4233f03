//! Conditional requests, evaluated against the response's final validators: a script or an operator
//! may have replaced the handler's.

use std::rc::Rc;

use lighty_http::conditional::{self, PreconditionOutcome, Validators};
use lighty_http::{Fields, Known, Method, Status, Version, date};

use super::phase::Phase;
use super::{error_page, is_conditional};
use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::exchange::response::{BodyOrigin, Maker, Response};

/// The validators of the response: its own fields, otherwise `others`. A Last-Modified that is no
/// date counts as none.
pub fn validators<'a>(fields: &'a Fields, others: Validators<'a>) -> Validators<'a> {
    let set = fields.get(Known::LastModified).map(date::parse);
    Validators {
        etag: fields.get(Known::ETag).or(others.etag),
        last_modified: set.unwrap_or(others.last_modified),
        now: others.now,
    }
}

/// Evaluates the request's conditions for a handler. `others` are the validators of its
/// representation; the response's own take precedence. Leaves the evaluation to [`judge`] if a
/// script sees the response before the client and may change its validators.
pub fn evaluate(ex: &Exchange, others: Validators<'_>) -> PreconditionOutcome {
    let (fields, method) = (&ex.request.fields, ex.request.method.unwrap_or(Method::Get));
    let validators = validators(&ex.response.fields, others);
    let is_deferred = ex.state.defers_conditions
        && ex.response.maker == Maker::Server
        && ex.state.error_status.is_none();
    match conditional::evaluate(method, fields, true, &validators) {
        proceed @ PreconditionOutcome::Proceed { .. } => proceed,
        // The whole representation: a range that it does not have would be a 416, which is not
        // judged.
        _ if is_deferred => PreconditionOutcome::Proceed { ranges: false },
        outcome => outcome,
    }
}

/// True if the request has a range, and a file as response may be cut.
pub fn range_applies(ex: &Exchange) -> bool {
    ex.settings.core.range_requests
        && !refuses_ranges(ex)
        && ex.response.fields.get(Known::AcceptRanges) != Some(b"none")
        && ex.request.fields.contains(Known::Range)
        && ex.request.method == Some(Method::Get)
}

/// True for responses that are always sent whole.
#[inline(always)]
pub fn refuses_ranges(ex: &Exchange) -> bool {
    // A part of a compressed file would be mistaken for a part of the uncompressed one.
    ex.response.fields.contains(Known::ContentEncoding)
        || ex.request.version == Version::Http10 && !ex.settings.server.http10_range
}

/// Lets modules set the final validators for a handler that responds before [`Phase::Conditions`]:
/// calls that phase's hooks.
pub fn meet(ex: &mut Exchange) {
    if !is_conditional(ex) {
        return;
    }
    let generation = Rc::clone(&ex.generation);
    let mut part = generation.modules.part(Phase::Conditions, &ex.settings);
    while let Some(module) = generation.modules.take_first(&mut part) {
        // Hooks of this phase neither wait nor respond.
        let _ = module.conditions(ex);
    }
}

/// Evaluates the request's conditions against the validators of a 200 or 206 to GET or HEAD.
/// Harmless after a handler's own evaluation: the same validators give the same result.
pub fn judge(ex: &mut Exchange) {
    let Some(method) = ex.request.method.filter(|method| Method::is_get_or_head(*method)) else {
        return;
    };
    let fields = &ex.response.fields;
    if !matches!(ex.response.status, Status::OK | Status::PARTIAL_CONTENT)
        || !fields.contains_any(&[Known::ETag, Known::LastModified])
        || !is_conditional(ex)
        || ex.state.error_status.is_some()
    {
        return;
    }
    let nothing = Validators { now: ex.machine.clock.unix_s(), ..Validators::default() };
    let validators = validators(fields, nothing);
    match conditional::evaluate(method, &ex.request.fields, true, &validators) {
        PreconditionOutcome::Proceed { .. } => {}
        PreconditionOutcome::NotModified => not_modified(&mut ex.response),
        PreconditionOutcome::PreconditionFailed => {
            ex.fail_status(Status::PRECONDITION_FAILED);
            let id = ex.id();
            error_page::fill(&mut ex.response, id);
        }
    }
}

/// Turns a complete response into a 304. `Content-Encoding` is removed later, because filters look
/// at it.
pub fn not_modified(response: &mut Response) {
    response.maker = Maker::Server;
    response.length_unsent = response.head_content_length.or(response.body.known_length());
    response.status = Status::NOT_MODIFIED;
    response.body = Body::Empty;
    response.origin = BodyOrigin::Other;
    response.ends_with_connection = false;
    (response.declared_length, response.head_content_length) = (None, None);
    for name in [Known::ContentLength, Known::ContentRange] {
        response.fields.remove(name);
    }
}
