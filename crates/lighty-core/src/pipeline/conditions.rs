//! Conditional requests for responses whose handler did not know what is sent in the end: a script
//! or an operator may have set the validators.

use lighty_http::conditional::{self, Outcome, Validators};
use lighty_http::{Fields, Known, Method, Status, date};

use super::{error_page, is_conditional};
use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::exchange::response::Response;

/// The validators that the response is sent with: its own, where it has any, before `others`.
pub fn validators<'a>(fields: &'a Fields, others: Validators<'a>) -> Validators<'a> {
    let set = fields.get(Known::LastModified).map(date::parse);
    Validators {
        etag: fields.get(Known::ETag).or(others.etag),
        last_modified: set.unwrap_or(others.last_modified),
        now: others.now,
    }
}

/// Evaluates the request's conditions against the validators of a 200 to GET or HEAD. A handler
/// that has evaluated them against the same validators gets the same result.
pub fn judge(ex: &mut Exchange) {
    let Some(method) = ex.request.method.filter(|method| Method::is_get_or_head(*method)) else {
        return;
    };
    let fields = &ex.response.fields;
    if ex.response.status != Status::OK
        || !fields.contains_any(&[Known::ETag, Known::LastModified])
        || !is_conditional(ex)
        || ex.state.error_status.is_some()
    {
        return;
    }
    let nothing = Validators { now: ex.machine.clock.unix_s(), ..Validators::default() };
    let validators = validators(fields, nothing);
    match conditional::evaluate(method, &ex.request.fields, true, &validators) {
        Outcome::Proceed { .. } => {}
        Outcome::NotModified => not_modified(&mut ex.response),
        Outcome::PreconditionFailed => {
            ex.fail_status(Status::PRECONDITION_FAILED);
            let id = ex.id();
            error_page::fill(&mut ex.response, id);
        }
    }
}

/// Makes a complete response a 304.
pub fn not_modified(response: &mut Response) {
    response.status = Status::NOT_MODIFIED;
    response.body = Body::Empty;
    response.is_whole_file = false;
    response.ends_with_connection = false;
    (response.length_said, response.head_content_length) = (None, None);
    for name in [Known::ContentLength, Known::ContentEncoding, Known::ContentRange] {
        response.fields.remove(name);
    }
}
