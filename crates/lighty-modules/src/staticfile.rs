//! `mod_staticfile`: files, with validators, conditional requests and ranges.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use lighty_buf::ChunkQueue;
use lighty_config::directive::Directive;
use lighty_core::module::{Hooks, Module, Step};
use lighty_core::{Body, Exchange, Fault, Settings, module_settings};
use lighty_http::conditional::{self, Outcome, Validators};
use lighty_http::etag::Etag;
use lighty_http::fields::Known;
use lighty_http::method::Method;
use lighty_http::range::{self, RangeOutcome};
use lighty_http::status::Status;
use lighty_io::file::{FileKind, Meta};
use lighty_io::stat_cache::Entry;

/// Settings of the module.
#[derive(Clone)]
pub struct StaticSettings {
    exclude_extensions: Arc<[String]>,
    etags: bool,
    disable_pathinfo: bool,
}

impl Default for StaticSettings {
    fn default() -> Self {
        Self { exclude_extensions: Arc::from([]), etags: true, disable_pathinfo: false }
    }
}
module_settings!(StaticSettings);

/// The module.
pub struct StaticFile;

impl Module for StaticFile {
    fn name(&self) -> &'static str {
        "mod_staticfile"
    }

    fn hooks(&self) -> Hooks {
        Hooks { handle: true, ..Hooks::default() }
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::strings(
                "static-file.exclude-extensions",
                |s: &mut Settings, list: &Arc<[String]>| {
                    s.module_mut::<StaticSettings>().exclude_extensions = Arc::clone(list);
                },
            )
            .module("mod_staticfile")
            .default("()")
            .since("1.4")
            .doc(
                "Endings of files that are never sent as they are (403): scripts whose source \
                 nobody should read when their interpreter is not configured.",
            )
            .example("static-file.exclude-extensions = ( \".php\", \".fcgi\", \"~\" )"),
            Directive::bool("static-file.etags", |s: &mut Settings, on| {
                s.module_mut::<StaticSettings>().etags = on;
            })
            .module("mod_staticfile")
            .default("enable")
            .since("1.4")
            .doc("Whether files are sent with an entity tag (`ETag`); see also `etag.use-mtime`.")
            .example("static-file.etags = \"disable\""),
            Directive::bool("static-file.disable-pathinfo", |s: &mut Settings, on| {
                s.module_mut::<StaticSettings>().disable_pathinfo = on;
            })
            .module("mod_staticfile")
            .default("disable")
            .since("1.4")
            .doc(
                "Answers 404 to `/file.html/more`, where a file's name is followed by a path, \
                 instead of sending the file.",
            )
            .example("static-file.disable-pathinfo = \"enable\""),
        ]
    }

    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let Some(entry) = ex.physical.entry.clone() else { return Step::Next };
        match entry.meta().kind {
            FileKind::Directory => return Step::Next,
            FileKind::File => {}
            _ => {
                ex.fail(Fault::NotARegularFile);
                return Step::Answered;
            }
        }
        if let Some(step) = refuse(ex) {
            return step;
        }
        let core = &ex.settings.core;
        match &core.mime_xattr {
            Some(name) if facts_of(&entry, ex).is_none() => {
                let name = Arc::clone(name);
                Step::Wait(Box::pin(handle_with_xattr(ex, entry, name)))
            }
            _ => {
                answer(ex, &entry);
                Step::Answered
            }
        }
    }
}

async fn handle_with_xattr(ex: &mut Exchange, entry: Rc<Entry>, name: Arc<str>) -> Step<'static> {
    let stored = ex.services.engine.get_xattr(entry.file(), &name).await.ok().flatten();
    let media_type = stored.filter(|value| {
        !value.is_empty() && value.iter().all(|b| (0x20..0x7f).contains(b) || *b == b'\t')
    });
    remember_facts(&entry, ex, media_type);
    answer(ex, &entry);
    Step::Answered
}

/// Requests that name a file but may not have it.
fn refuse(ex: &mut Exchange) -> Option<Step<'static>> {
    let settings = ex.settings.module::<StaticSettings>();
    if settings.disable_pathinfo && !ex.physical.path_info.is_empty() {
        ex.fail(Fault::NotFound);
        return Some(Step::Answered);
    }
    let rel = &ex.physical.rel;
    if settings.exclude_extensions.iter().any(|ext| rel.ends_with(ext.as_bytes())) {
        ex.fail_saying(Fault::Forbidden, "static-file.exclude-extensions");
        return Some(Step::Answered);
    }
    match ex.request.method {
        Some(Method::Get | Method::Head) => None,
        Some(Method::Options) => {
            ex.response.status = Status::NO_CONTENT;
            ex.response.fields.push(b"Allow", b"GET, HEAD, OPTIONS");
            ex.response.answered = true;
            Some(Step::Answered)
        }
        _ => {
            ex.fail(Fault::MethodNotAllowed);
            ex.response.fields.push(b"Allow", b"GET, HEAD, OPTIONS");
            Some(Step::Answered)
        }
    }
}

/// What an answer says about a file, kept with its stat-cache entry: made once per change of the
/// file and per variant of the settings.
struct FileFacts {
    variant: u64,
    etag: Option<Etag>,
    last_modified: [u8; 29],
    media_type: Box<[u8]>,
}

type FactsSlot = RefCell<Option<Rc<FileFacts>>>;

fn slot(entry: &Entry) -> Rc<FactsSlot> {
    entry.attachment(FactsSlot::default)
}

fn facts_of(entry: &Entry, ex: &Exchange) -> Option<Rc<FileFacts>> {
    let slot = slot(entry);
    let facts = slot.borrow();
    facts.as_ref().filter(|f| f.variant == ex.settings.local.id).cloned()
}

fn remember_facts(entry: &Entry, ex: &Exchange, stored_type: Option<Vec<u8>>) -> Rc<FileFacts> {
    let core = &ex.settings.core;
    let meta = entry.meta();
    let media_type = match stored_type {
        Some(stored) => stored.into_boxed_slice(),
        None => core.mime.lookup(&ex.physical.rel).as_bytes().into(),
    };
    let facts = Rc::new(FileFacts {
        variant: ex.settings.local.id,
        etag: etag_of(meta, ex),
        last_modified: lighty_http::date::format(meta.mtime_s),
        media_type,
    });
    *slot(entry).borrow_mut() = Some(Rc::clone(&facts));
    facts
}

/// The strong validator of a file, from the parts that `etag.use-*` allows. A file that changed
/// within the clock's grain of being looked at could change again unseen: the nanoseconds of its
/// time take part, as far as the file system keeps them.
fn etag_of(meta: &Meta, ex: &Exchange) -> Option<Etag> {
    let core = &ex.settings.core;
    if !ex.settings.module::<StaticSettings>().etags {
        return None;
    }
    let part = |wanted: bool, value: u64| wanted.then_some(value);
    let mtime = (meta.mtime_s as u64).wrapping_mul(1_000_000_000) + u64::from(meta.mtime_ns);
    Etag::from_parts(
        part(core.etag_inode, meta.ino),
        part(core.etag_size, meta.size),
        part(core.etag_mtime, mtime),
    )
}

/// Answers with the file: 200, 206, 304, 412 or 416.
fn answer(ex: &mut Exchange, entry: &Entry) {
    let facts = facts_of(entry, ex).unwrap_or_else(|| remember_facts(entry, ex, None));
    let size = entry.meta().size;
    let as_error_page = ex.error_status.is_some();
    ex.response.answered = true;
    ex.response.status = Status::OK;
    let verdict = if as_error_page {
        conditional::Verdict { outcome: Outcome::Proceed, range_allowed: false }
    } else {
        let validators = Validators {
            etag: facts.etag.as_ref(),
            modified_s: Some(entry.meta().mtime_s),
            now_s: ex.services.clock.wall_seconds(),
        };
        conditional::evaluate(&ex.request.fields, &validators)
    };
    set_fields(ex, &facts, as_error_page);
    match verdict.outcome {
        Outcome::NotModified => {
            ex.response.status = Status::NOT_MODIFIED;
            ex.response.fields.remove(Known::ContentType);
            return;
        }
        Outcome::PreconditionFailed => {
            ex.fail_status(Status::PRECONDITION_FAILED);
            return;
        }
        Outcome::Proceed => {}
    }
    if verdict.range_allowed && range_applies(ex) && answer_range(ex, entry, &facts, size) {
        return;
    }
    ex.response.body = whole(entry, size);
}

fn set_fields(ex: &mut Exchange, facts: &FileFacts, as_error_page: bool) {
    let ranges = ex.settings.core.range_requests;
    let fields = &mut ex.response.fields;
    fields.push_known(Known::ContentType, &facts.media_type);
    if as_error_page {
        return;
    }
    if let Some(etag) = &facts.etag {
        fields.push_known(Known::Etag, etag.as_bytes());
    }
    fields.push_known(Known::LastModified, facts.last_modified);
    if ranges {
        fields.push_known(Known::AcceptRanges, "bytes");
    }
}

fn whole(entry: &Entry, size: u64) -> Body {
    match entry.small() {
        _ if size == 0 => Body::Empty,
        Some(bytes) => Body::Memory(bytes.clone()),
        None => Body::File { file: Rc::clone(entry.file()), offset: 0, length: size },
    }
}

fn range_applies(ex: &Exchange) -> bool {
    let old = ex.request.version == lighty_http::version::Version::Http10;
    ex.settings.core.range_requests
        && ex.request.fields.contains(Known::Range)
        && ex.request.method == Some(Method::Get)
        && (!old || ex.settings.server.http10_range)
}

/// Answers with a part or parts; `false` where the whole file is the right answer (RFC 9110
/// section 14.2: a range that is malformed or abusive is ignored).
fn answer_range(ex: &mut Exchange, entry: &Entry, facts: &FileFacts, size: u64) -> bool {
    let Some(wanted) = ex.request.fields.get(Known::Range) else { return false };
    match range::resolve(wanted, size) {
        RangeOutcome::Whole => false,
        RangeOutcome::Unsatisfiable => {
            ex.fail_status(Status::RANGE_NOT_SATISFIABLE);
            let text = range::content_range_unsatisfied(size);
            ex.response.fields.push_known(Known::ContentRange, text);
            true
        }
        RangeOutcome::Single(part) => {
            ex.response.status = Status::PARTIAL_CONTENT;
            let text = range::content_range(&part, size);
            ex.response.fields.push_known(Known::ContentRange, text);
            ex.response.body = slice(entry, part.start, part.length());
            true
        }
        RangeOutcome::Multiple(parts) => {
            ex.response.status = Status::PARTIAL_CONTENT;
            multipart(ex, entry, facts, size, &parts);
            true
        }
    }
}

fn slice(entry: &Entry, offset: u64, length: u64) -> Body {
    match entry.small() {
        Some(bytes) => match (usize::try_from(offset), usize::try_from(offset + length)) {
            (Ok(from), Ok(to)) if to <= bytes.len() => Body::Memory(bytes.slice(from..to)),
            _ => Body::Empty,
        },
        None => Body::File { file: Rc::clone(entry.file()), offset, length },
    }
}

/// A `multipart/byteranges` body: part heads in memory, the parts as file ranges.
fn multipart(
    ex: &mut Exchange,
    entry: &Entry,
    facts: &FileFacts,
    size: u64,
    parts: &[range::ByteRange],
) {
    let boundary = range::boundary(ex.services.clock.unique());
    let mut queue = ChunkQueue::default();
    for part in parts {
        let mut head = Vec::with_capacity(160);
        range::part_head(&boundary, &facts.media_type, part, size, &mut head);
        queue.push_bytes(Bytes::from(head));
        match slice(entry, part.start, part.length()) {
            Body::Memory(bytes) => queue.push_bytes(bytes),
            Body::File { file, offset, length } => queue.push_file(file, offset, length),
            _ => {}
        }
    }
    let mut end = Vec::new();
    range::multipart_end(&boundary, &mut end);
    queue.push_bytes(Bytes::from(end));
    let media_type = format!("multipart/byteranges; boundary={boundary}");
    ex.response.fields.set(Known::ContentType, media_type);
    ex.response.body = Body::Chunks(queue);
}
