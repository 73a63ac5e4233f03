//! Responses from the store: whole, in part, or 304.

use bytes::Bytes;
use lighty_buf::ChunkQueue;
use lighty_cache::object::{Content, StoredHead};
use lighty_cache::rules::{ClientOutcome, client_condition, not_modified_fields};
use lighty_core::exchange::body::Body;
use lighty_core::exchange::response::Maker;
use lighty_core::{Exchange, pipeline};
use lighty_http::range::{self, ByteRange, Selection};
use lighty_http::{Known, Method, Status};

/// The body that belongs to a head.
pub(super) enum StoredBody<'a> {
    Whole(&'a Content),
    /// It is still arriving; its length, if known.
    Arriving(Body, Option<u64>),
}

/// Answers with a stored response.
pub(super) fn answer(ex: &mut Exchange, head: &StoredHead, body: StoredBody<'_>) {
    let now_s = ex.machine.clock.unix_s();
    let method = ex.request.method.unwrap_or(Method::Get);
    ex.response.answered = true;
    // Conditions and ranges are judged here, against the stored validators.
    ex.response.maker = Maker::Backend;
    let received_s = head.freshness.received_s;
    let fields = &ex.request.fields;
    let outcome = client_condition(fields, method, head.status, &head.fields, received_s, now_s);
    ex.response.status = head.status;
    match outcome {
        ClientOutcome::NotModified => {
            ex.response.status = Status::NOT_MODIFIED;
            ex.response.fields.append(&not_modified_fields(&head.fields));
            describe_unsent(ex, head, &body);
        }
        ClientOutcome::Respond { ranges } => {
            ex.response.yield_to(&head.fields);
            ex.response.fields.append(&head.fields);
            give_body(ex, body, ranges, method);
        }
    }
    ex.response.fields.set(Known::Age, head.freshness.age_s(now_s).to_string());
}

/// Tells filters about the body that a 304 stands for, so that its tag and its Vary are those of
/// the 200. The fields are removed behind them.
fn describe_unsent(ex: &mut Exchange, head: &StoredHead, body: &StoredBody<'_>) {
    // Filters take it for a 304 of this server, which it is.
    ex.response.maker = Maker::Server;
    ex.response.length_unsent = match body {
        StoredBody::Whole(content) => Some(content.len()),
        StoredBody::Arriving(_, length) => *length,
    };
    for name in [Known::ContentType, Known::ContentEncoding] {
        for value in head.fields.get_all(name) {
            ex.response.fields.push_known(name, value);
        }
    }
}

fn give_body(ex: &mut Exchange, body: StoredBody<'_>, ranges: bool, method: Method) {
    let content = match body {
        StoredBody::Whole(content) => content,
        StoredBody::Arriving(body, length) => {
            ex.response.declared_length = length;
            ex.response.body = body;
            if let Some(length) = length {
                ex.response.fields.set(Known::ContentLength, length.to_string());
            }
            return;
        }
    };
    if method == Method::Head {
        ex.response.head_content_length = Some(content.len());
        return;
    }
    if ranges && pipeline::conditions::range_applies(ex) && give_range(ex, content) {
        return;
    }
    ex.response.body = body_of(content.pieces().iter().cloned());
}

/// Answers with a part; `false` if the whole is the right answer.
fn give_range(ex: &mut Exchange, content: &Content) -> bool {
    let Some(wanted) = ex.request.fields.get(Known::Range) else { return false };
    let (mut parts, mut text) = (Vec::new(), Vec::new());
    match range::select(wanted, content.len(), &mut parts) {
        // Several parts are seldom asked for, and the whole is a valid response to that.
        Selection::Whole | Selection::Multiple => return false,
        Selection::Unsatisfiable => {
            ex.fail_status(Status::RANGE_NOT_SATISFIABLE);
            range::push_unsatisfied_range(content.len(), &mut text);
        }
        Selection::Single(ByteRange { start, end }) => {
            ex.response.status = Status::PARTIAL_CONTENT;
            range::push_content_range(ByteRange { start, end }, content.len(), &mut text);
            ex.response.body = body_of(content.slice(start, end).into_iter());
        }
    }
    ex.response.fields.set(Known::ContentRange, text);
    true
}

fn body_of(mut pieces: impl ExactSizeIterator<Item = Bytes>) -> Body {
    if pieces.len() < 2 {
        return pieces.next().map_or(Body::Empty, Body::Memory);
    }
    let mut queue = ChunkQueue::new();
    pieces.for_each(|piece| queue.push_bytes(piece));
    Body::Chunks(queue)
}
