//! Responses from the store: whole, in part, or 304.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use lighty_buf::{ChunkQueue, FileRange};
use lighty_cache::disk::BodyFile;
use lighty_cache::object::{Content, Object, StoredHead};
use lighty_cache::rules::{ClientOutcome, client_condition, not_modified_fields, remove_digests};
use lighty_cache::store::ResponseStore;
use lighty_core::exchange::body::Body;
use lighty_core::exchange::response::Maker;
use lighty_core::pipeline::byteranges::{Divided, give_parts, is_a_length};
use lighty_core::{Exchange, pipeline};
use lighty_http::decimal::Decimal;
use lighty_http::range::{self, ByteRange, Selection};
use lighty_http::{Known, Method, Status};
use lighty_io::file::FileEngine;

use super::body::CheckedBody;

/// A whole body, which stays readable.
pub(super) struct OpenContent<'a> {
    content: &'a Content,
    file: Option<Arc<BodyFile>>,
    /// The response that the body belongs to, and its store.
    owner: (&'a Arc<ResponseStore>, &'a Arc<Object>),
}

impl<'a> OpenContent<'a> {
    /// The body of a response. `None` if it has left the disk.
    pub(super) fn of(store: &'a Arc<ResponseStore>, object: &'a Arc<Object>) -> Option<Self> {
        let content = &object.content;
        let file = match content.stored() {
            Some(stored) => Some(stored.file()?),
            None => None,
        };
        Some(Self { content, file, owner: (store, object) })
    }
}

/// A body that can be served in part.
pub(super) trait WholeContent {
    /// Its length in bytes.
    fn length(&self) -> u64;

    /// The bytes from `start` to `end`.
    fn part(&mut self, engine: &FileEngine, start: u64, end: u64) -> Body;

    /// True if it gives several parts, and each without waiting.
    fn is_divisible(&self) -> bool {
        false
    }
}

impl WholeContent for OpenContent<'_> {
    fn length(&self) -> u64 {
        self.content.len()
    }

    fn is_divisible(&self) -> bool {
        // Blocks that are compared with their checksums are read in their order.
        self.content.stored().is_none_or(|stored| stored.check().is_none())
    }

    fn part(&mut self, engine: &FileEngine, start: u64, end: u64) -> Body {
        let (Some(stored), Some(file)) = (self.content.stored(), &self.file) else {
            return match (start, end == self.content.len()) {
                (0, true) => body_of(self.content.pieces().iter().cloned()),
                _ => body_of(self.content.slice(start, end).into_iter()),
            };
        };
        let file = Rc::new(file.file.to_send());
        let Some(check) = stored.check() else {
            let (offset, length) = (stored.offset + start, end - start);
            let mut queue = ChunkQueue::new();
            queue.push_file(FileRange { file, offset, length });
            return Body::Chunks(queue);
        };
        let (store, object) = (Arc::clone(self.owner.0), Arc::clone(self.owner.1));
        Body::Stream(Box::new(CheckedBody::new(
            engine.clone(),
            file,
            Arc::clone(check),
            (stored.offset, self.content.len()),
            (start, end),
            Box::new(move || store.remove_damaged(&object)),
        )))
    }
}

/// The body that belongs to a head.
pub(super) enum StoredBody<'a> {
    Whole(OpenContent<'a>),
    /// It is put together from slices.
    Sliced(&'a mut dyn WholeContent),
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
    let age_s = u64::from(head.freshness.age_s(now_s));
    ex.response.fields.set(Known::Age, Decimal::new(age_s));
}

/// Tells filters about the body that a 304 stands for, so that its tag and its Vary are those of
/// the 200. The fields are removed behind them.
fn describe_unsent(ex: &mut Exchange, head: &StoredHead, body: &StoredBody<'_>) {
    // Filters take it for a 304 of this server, which it is.
    ex.response.maker = Maker::Server;
    ex.response.length_unsent = match body {
        StoredBody::Whole(content) => Some(content.length()),
        StoredBody::Sliced(content) => Some(content.length()),
        StoredBody::Arriving(_, length) => *length,
    };
    for name in [Known::ContentType, Known::ContentEncoding] {
        for value in head.fields.get_all(name) {
            ex.response.fields.push_known(name, value);
        }
    }
}

fn give_body(ex: &mut Exchange, mut body: StoredBody<'_>, ranges: bool, method: Method) {
    let content: &mut dyn WholeContent = match &mut body {
        StoredBody::Whole(content) => content,
        StoredBody::Sliced(content) => *content,
        StoredBody::Arriving(body, length) => {
            ex.response.declared_length = *length;
            ex.response.body = std::mem::take(body);
            if let Some(length) = length {
                ex.response.fields.set(Known::ContentLength, length.to_string());
            }
            return;
        }
    };
    let length = content.length();
    if method == Method::Head {
        ex.response.head_content_length = Some(length);
        return;
    }
    if ranges && pipeline::conditions::range_applies(ex) && give_range(ex, content) {
        return;
    }
    ex.response.body = content.part(&ex.machine.engine, 0, length);
}

/// Answers with a part; `false` if the whole is the right answer.
fn give_range(ex: &mut Exchange, content: &mut dyn WholeContent) -> bool {
    let Some(wanted) = ex.request.fields.get(Known::Range) else { return false };
    let (mut parts, mut text) = (Vec::new(), Vec::new());
    let length = content.length();
    match range::select(wanted, length, &mut parts) {
        Selection::Whole => return false,
        Selection::Multiple => return give_ranges(ex, content, &parts),
        Selection::Unsatisfiable => {
            ex.fail_status(Status::RANGE_NOT_SATISFIABLE);
            range::push_unsatisfied_range(length, &mut text);
        }
        Selection::Single(ByteRange { start, end }) => {
            ex.response.status = Status::PARTIAL_CONTENT;
            range::push_content_range(ByteRange { start, end }, length, &mut text);
            ex.response.body = content.part(&ex.machine.engine, start, end);
            remove_digests(&mut ex.response.fields);
        }
    }
    ex.response.fields.set(Known::ContentRange, text);
    true
}

/// Answers with several parts; `false` if the whole is the right answer.
fn give_ranges(ex: &mut Exchange, content: &mut dyn WholeContent, parts: &[ByteRange]) -> bool {
    if !content.is_divisible() || !is_a_length(parts) {
        return false;
    }
    let media_type = ex.response.fields.get(Known::ContentType);
    let media_type = media_type.unwrap_or(b"application/octet-stream");
    let media_type = String::from_utf8_lossy(media_type).into_owned();
    let length = content.length();
    let engine = ex.machine.engine.clone();
    let of = Divided { media_type: &media_type, length, identity: length };
    ex.response.status = Status::PARTIAL_CONTENT;
    give_parts(ex, &of, parts, |part, queue| match content.part(&engine, part.start, part.end) {
        Body::Memory(bytes) => queue.push_bytes(bytes),
        Body::Chunks(mut pieces) => queue.append(&mut pieces),
        _ => {}
    });
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
