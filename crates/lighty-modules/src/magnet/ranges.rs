//! Ranges of a response that a script made of one file (RFC 9110 section 14).
//!
//! Texts of scripts are always sent whole: a text that is made anew need not fit the part before.

use std::rc::Rc;

use lighty_buf::{Chunk, ChunkQueue, FileRange};
use lighty_core::pipeline::conditions;
use lighty_core::{Body, Exchange};
use lighty_http::range::{self, Selection};
use lighty_http::{Known, Status};
use lighty_io::file::OpenFile;

/// Offers ranges if the body is one file. `are_allowed` is false if a condition of the request
/// demands the whole.
pub(super) fn offer(ex: &mut Exchange, are_allowed: bool) {
    let Some(file) = only_file(&ex.response.body) else { return };
    let fields = &ex.response.fields;
    if fields.contains(Known::ContentRange) || conditions::refuses_ranges(ex) {
        return;
    }
    if are_allowed && conditions::range_applies(ex) && respond_with_range(ex, &file) {
        return;
    }
    if ex.settings.core.range_requests && !ex.response.fields.contains(Known::AcceptRanges) {
        ex.response.fields.push_known(Known::AcceptRanges, "bytes");
    }
}

/// The file that is the whole body, or the part of it that the script chose.
fn only_file(body: &Body) -> Option<FileRange<Rc<OpenFile>>> {
    let Body::Chunks(queue) = body else { return None };
    let mut chunks = queue.iter();
    match (chunks.next(), chunks.next()) {
        (Some(Chunk::File(file)), None) => Some(file.clone()),
        _ => None,
    }
}

/// Returns `false` if the whole is the right response: for no valid range, and for several.
fn respond_with_range(ex: &mut Exchange, file: &FileRange<Rc<OpenFile>>) -> bool {
    let Some(requested) = ex.request.fields.get(Known::Range) else { return false };
    let (mut parts, mut text) = (Vec::new(), Vec::new());
    match range::select(requested, file.length, &mut parts) {
        Selection::Whole | Selection::Multiple => return false,
        Selection::Unsatisfiable => {
            ex.fail_status(Status::RANGE_NOT_SATISFIABLE);
            range::push_unsatisfied_range(file.length, &mut text);
        }
        Selection::Single(part) => {
            let mut queue = ChunkQueue::new();
            queue.push_file(FileRange {
                file: Rc::clone(&file.file),
                offset: file.offset + part.start,
                length: part.len(),
            });
            range::push_content_range(part, file.length, &mut text);
            let response = &mut ex.response;
            response.status = Status::PARTIAL_CONTENT;
            response.fields.remove(Known::ContentLength);
            (response.declared_length, response.head_content_length) = (None, None);
            response.body = Body::Chunks(queue);
        }
    }
    ex.response.fields.push_known(Known::ContentRange, text);
    true
}
