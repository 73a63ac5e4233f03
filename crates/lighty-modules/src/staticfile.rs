//! `mod_staticfile`: files, with validators, conditional requests and ranges.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use lighty_buf::FileRange;
use lighty_config::{Directive, Strings};
use lighty_core::exchange::request_state::FileStatus;
use lighty_core::exchange::response::{BodyOrigin, Maker};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::pipeline::byteranges::{Divided, give_parts, is_a_length};
use lighty_core::{Body, Exchange, Fault, Settings, module_settings, pipeline};
use lighty_http::conditional::{PreconditionOutcome, Validators};
use lighty_http::etag::ETag;
use lighty_http::range::{self, ByteRange, Selection};
use lighty_http::{Fields, Known, Method, Status, mime};
use lighty_io::file::{FileKind, Meta};
use lighty_io::stat_cache::CacheEntry;

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct StaticSettings {
    exclude_extensions: Strings,
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

    fn traits(&self) -> Traits {
        Hooks { withhold: true, handle: true, send_file: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::strings("static-file.exclude-extensions", |s: &mut Settings, list| {
                s.module_mut::<StaticSettings>().exclude_extensions = list;
            })
            .module("mod_staticfile")
            .default("()")
            .since("1.4")
            .doc(
                "File name endings that are never served as static files (403): scripts whose \
                 source must stay private if their interpreter is not configured.",
            )
            .example("static-file.exclude-extensions = ( \".php\", \".fcgi\", \"~\" )"),
            Directive::bool("static-file.etags", |s: &mut Settings, on| {
                s.module_mut::<StaticSettings>().etags = on;
            })
            .module("mod_staticfile")
            .default("enable")
            .since("1.4")
            .doc("Sends files with an entity tag (`ETag`); see also `etag.use-mtime`.")
            .example("static-file.etags = \"disable\""),
            Directive::bool("static-file.disable-pathinfo", |s: &mut Settings, on| {
                s.module_mut::<StaticSettings>().disable_pathinfo = on;
            })
            .module("mod_staticfile")
            .default("disable")
            .since("1.4")
            .doc(
                "Answers 403 to `/file.html/more`, where a file's name is followed by a path, \
                 instead of sending the file.",
            )
            .example("static-file.disable-pathinfo = \"enable\""),
        ]
    }

    fn withhold<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let is_file = |entry: &Rc<CacheEntry>| entry.meta().kind == FileKind::File;
        match ex.physical.entry.as_ref().is_some_and(is_file) && is_withheld(ex) {
            true => Step::Answered,
            false => Step::Next,
        }
    }

    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let Some(entry) = ex.physical.entry.clone() else { return Step::Next };
        match entry.meta().kind {
            FileKind::Directory if ex.request.method == Some(Method::Options) => {
                respond_to_options(ex);
                return Step::Answered;
            }
            FileKind::Directory => return Step::Next,
            FileKind::File => {}
            _ => {
                ex.fail(Fault::NotARegularFile);
                return Step::Answered;
            }
        }
        match refuse(ex) {
            Some(step) => step,
            // A handler's file is not the requested resource.
            None if ex.state.error_handler.is_some() => send(ex, entry, NamedBy::Handler),
            None => send(ex, entry, NamedBy::Target),
        }
    }

    fn send_file<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        match ex.physical.entry.clone() {
            Some(entry) => send(ex, entry, NamedBy::Handler),
            None => Step::Next,
        }
    }
}

/// Origin of a file's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    /// The request's target.
    Target,
    /// An error handler, or a program that has processed the request.
    Handler,
}

#[inline(always)]
fn send(ex: &mut Exchange, entry: Rc<CacheEntry>, named_by: NamedBy) -> Step<'_> {
    match ex.settings.core.mime_xattr.clone() {
        Some(name) if facts_of(&entry, ex).is_none() => {
            Step::Wait(Box::pin(send_with_xattr(ex, entry, name, named_by)))
        }
        _ => {
            respond(ex, &entry, named_by);
            Step::Answered
        }
    }
}

async fn send_with_xattr(
    ex: &mut Exchange,
    entry: Rc<CacheEntry>,
    name: Arc<str>,
    named_by: NamedBy,
) -> Step<'static> {
    let stored = ex.machine.engine.get_xattr(entry.file(), &name).await.ok().flatten();
    let media_type = stored.filter(|value| {
        !value.is_empty() && value.iter().all(|b| (0x20..0x7f).contains(b) || *b == b'\t')
    });
    remember_facts(&entry, ex, media_type);
    respond(ex, &entry, named_by);
    Step::Answered
}

/// Rejects a file that the settings withhold, for internal redirects too.
fn is_withheld(ex: &mut Exchange) -> bool {
    let settings = ex.settings.module::<StaticSettings>();
    if settings.disable_pathinfo && !ex.physical.path_info.is_empty() {
        ex.fail_saying(Fault::Forbidden, "static-file.disable-pathinfo");
        return true;
    }
    let path = &ex.physical;
    if settings.exclude_extensions.iter().any(|ext| path.ends_with(ext.as_bytes())) {
        ex.fail_saying(Fault::Forbidden, "static-file.exclude-extensions");
        return true;
    }
    false
}

/// Rejects a request for a withheld file or with an unsupported method; responds to OPTIONS.
fn refuse(ex: &mut Exchange) -> Option<Step<'static>> {
    if ex.settings.module_if_set::<StaticSettings>().is_some() && is_withheld(ex) {
        return Some(Step::Answered);
    }
    match ex.request.method {
        // As in lighttpd, a POST to a static page gets the page.
        Some(Method::Get | Method::Head | Method::Post) => None,
        // This file is the error page; the request's method does not matter.
        _ if ex.state.error_status.is_some() => None,
        Some(Method::Options) => {
            respond_to_options(ex);
            Some(Step::Answered)
        }
        _ => {
            ex.fail(Fault::MethodNotAllowed);
            ex.response.fields.set(Known::Allow, METHODS);
            Some(Step::Answered)
        }
    }
}

/// Methods allowed on files and directories.
const METHODS: &[u8] = b"OPTIONS, GET, HEAD, POST";

fn respond_to_options(ex: &mut Exchange) {
    ex.response.status = Status::OK;
    ex.response.fields.set(Known::Allow, METHODS);
    ex.response.answered = true;
}

/// Response fields of a file, cached with its stat-cache entry: built once per change of the file
/// and per settings variant.
struct FileFacts {
    variant: u64,
    etag: Option<ETag>,
    media_type: Box<[u8]>,
    /// Content-Type, ETag, Last-Modified, Accept-Ranges, as far as they apply.
    fields: Fields,
    /// The same plus Content-Length, for the whole file; plus Server if no module changes the head.
    whole: Fields,
    /// True if no filter applies to a response with `whole`; set by the first one.
    unfiltered: OnceCell<bool>,
}

type FactsSlot = RefCell<Option<Rc<FileFacts>>>;

fn slot(entry: &CacheEntry) -> Option<&FactsSlot> {
    let attached = entry.attachment().get_or_init(|| Rc::new(FactsSlot::default()));
    attached.downcast_ref()
}

fn facts_of(entry: &CacheEntry, ex: &Exchange) -> Option<Rc<FileFacts>> {
    let facts = slot(entry)?.borrow();
    facts.as_ref().filter(|f| f.variant == ex.settings.variant.number()).cloned()
}

fn remember_facts(
    entry: &CacheEntry,
    ex: &Exchange,
    stored_type: Option<Vec<u8>>,
) -> Rc<FileFacts> {
    let core = &ex.settings.core;
    let meta = entry.meta();
    let name = &ex.physical.rel;
    let media_type = match stored_type {
        Some(stored) => stored.into_boxed_slice(),
        None if core.mime.is_empty() => {
            mime::builtin(name).unwrap_or(mime::DEFAULT_TYPE).as_bytes().into()
        }
        None => core.mime.lookup(name).unwrap_or(mime::DEFAULT_TYPE).as_bytes().into(),
    };
    let etag = etag_of(meta, ex);
    let mut fields = Fields::new();
    fields.push_known(Known::ContentType, &media_type);
    if let Some(etag) = &etag {
        fields.push_known(Known::ETag, etag);
    }
    let now = ex.machine.clock.unix_s();
    // RFC 9110 section 8.8.2.1: not later than the response itself.
    fields.push_known(Known::LastModified, lighty_http::date::format(meta.mtime_s.min(now)));
    if core.range_requests {
        fields.push_known(Known::AcceptRanges, "bytes");
    }
    let variant = ex.settings.variant.number();
    let mut whole = fields.clone();
    whole.push_known(Known::ContentLength, meta.size.to_string());
    if !core.tag.is_empty() && !ex.generation.modules.change_heads(&ex.settings) {
        whole.push_known(Known::Server, core.tag.as_bytes());
    }
    let facts = Rc::new(FileFacts {
        variant,
        etag,
        media_type,
        fields,
        whole,
        unfiltered: OnceCell::new(),
    });
    // A file dated in the future gets the current time as Last-Modified, so its fields are not
    // cached.
    if meta.mtime_s <= now
        && let Some(slot) = slot(entry)
    {
        *slot.borrow_mut() = Some(Rc::clone(&facts));
    }
    facts
}

/// A file's strong validator, built from the parts that `etag.use-*` allows.
fn etag_of(meta: &Meta, ex: &Exchange) -> Option<ETag> {
    match ex.settings.module::<StaticSettings>().etags {
        true => ex.settings.core.etag_of(meta),
        false => None,
    }
}

/// Adds a file's fields. Fields set by a script take precedence.
#[inline(always)]
fn add_fields(fields: &mut Fields, own: &Fields) {
    match fields.contains_any(&CHOSEN) {
        true => add_unset(fields, own),
        false => fields.append(own),
    }
}

/// Fields of a file that a script, or the program that names the file, may have set.
const CHOSEN: [Known; 4] =
    [Known::ContentType, Known::ETag, Known::LastModified, Known::AcceptRanges];

#[cold]
fn add_unset(fields: &mut Fields, own: &Fields) {
    for (known, name, value) in own.iter_known() {
        let is_set = known.is_some_and(|name| CHOSEN.contains(&name) && fields.contains(name));
        if !is_set {
            fields.push_looked_up(known, name, value);
        }
    }
}

/// True if the file is sent with the status of the error whose page it is.
#[cold]
fn takes_error_status(ex: &Exchange) -> bool {
    match ex.ext::<FileStatus>().and_then(|status| status.0) {
        Some(status) => status != Status::OK,
        None => ex.state.keeps_error_status(),
    }
}

/// Builds the response: 200, 206, 304, 412 or 416.
#[inline(always)]
fn respond(ex: &mut Exchange, entry: &Rc<CacheEntry>, named_by: NamedBy) {
    let facts = facts_of(entry, ex).unwrap_or_else(|| remember_facts(entry, ex, None));
    let size = entry.meta().size;
    ex.response.answered = true;
    ex.response.status = Status::OK;
    ex.state.stands_for_error = ex.state.error_status.is_some() && takes_error_status(ex);
    if ex.state.stands_for_error {
        if !ex.response.fields.contains(Known::ContentType) {
            ex.response.fields.push_known(Known::ContentType, &facts.media_type);
        }
        ex.response.body = whole(entry, size);
        return;
    }
    // For other methods the conditions restrict changes of the requested resource (RFC 9110 section
    // 13.2.2). A handler has made them already, and its file is another resource.
    let is_read = ex.request.method.is_some_and(Method::is_get_or_head);
    let outcome = match is_read || named_by == NamedBy::Target {
        false => PreconditionOutcome::Proceed { ranges: false },
        true => evaluate_conditions(ex, entry, &facts),
    };
    match outcome {
        PreconditionOutcome::NotModified => {
            ex.response.status = Status::NOT_MODIFIED;
            ex.response.maker = Maker::Server;
            ex.response.length_unsent = Some(size);
            add_fields(&mut ex.response.fields, &facts.fields);
            withdraw_ranges(ex);
        }
        PreconditionOutcome::PreconditionFailed => ex.fail_status(Status::PRECONDITION_FAILED),
        PreconditionOutcome::Proceed { ranges: true }
            if pipeline::conditions::range_applies(ex)
                && respond_with_range(ex, entry, &facts, size) => {}
        PreconditionOutcome::Proceed { .. } => {
            let is_bare = ex.response.fields.is_empty();
            add_fields(&mut ex.response.fields, &facts.whole);
            if is_bare {
                let unfiltered = facts.unfiltered.get_or_init(|| !pipeline::is_filtered(ex));
                ex.response.unfiltered = *unfiltered;
            }
            withdraw_ranges(ex);
            ex.response.declared_length = Some(size);
            ex.response.origin = BodyOrigin::WholeFile;
            ex.response.body = whole(entry, size);
        }
    }
}

#[inline(always)]
fn evaluate_conditions(
    ex: &Exchange,
    entry: &CacheEntry,
    facts: &FileFacts,
) -> PreconditionOutcome {
    let now = ex.machine.clock.unix_s();
    let own = Validators {
        etag: facts.etag.as_ref().map(ETag::as_bytes),
        last_modified: Some(entry.meta().mtime_s.min(now)),
        now,
    };
    pipeline::conditions::evaluate(ex, own)
}

fn whole(entry: &Rc<CacheEntry>, size: u64) -> Body {
    match entry.small() {
        _ if size == 0 => Body::Empty,
        Some(_) => Body::Cached(Rc::clone(entry)),
        None => Body::File { file: Rc::clone(entry.file()), offset: 0, length: size },
    }
}

/// Removes an `Accept-Ranges: bytes` that is wrong for this response.
#[inline(always)]
fn withdraw_ranges(ex: &mut Exchange) {
    if pipeline::conditions::refuses_ranges(ex)
        && ex.response.fields.get(Known::AcceptRanges) == Some(b"bytes")
    {
        ex.response.fields.remove(Known::AcceptRanges);
    }
}

/// Builds a partial response; `false` if the whole file is the right response (RFC 9110 section
/// 14.2: a malformed or abusive range is ignored).
fn respond_with_range(ex: &mut Exchange, entry: &CacheEntry, facts: &FileFacts, size: u64) -> bool {
    let Some(wanted) = ex.request.fields.get(Known::Range) else { return false };
    let mut parts = Vec::new();
    let mut text = Vec::new();
    match range::select(wanted, size, &mut parts) {
        Selection::Whole => return false,
        Selection::Unsatisfiable => {
            ex.fail_status(Status::RANGE_NOT_SATISFIABLE);
            range::push_unsatisfied_range(size, &mut text);
            ex.response.fields.push_known(Known::ContentRange, text);
        }
        Selection::Single(part) => {
            ex.response.status = Status::PARTIAL_CONTENT;
            add_fields(&mut ex.response.fields, &facts.fields);
            range::push_content_range(part, size, &mut text);
            ex.response.fields.push_known(Known::ContentRange, text);
            ex.response.body = slice(entry, part.start, part.len());
        }
        Selection::Multiple if !is_a_length(&parts) => return false,
        Selection::Multiple => {
            ex.response.status = Status::PARTIAL_CONTENT;
            add_fields(&mut ex.response.fields, &facts.fields);
            multipart(ex, entry, facts, size, &parts);
        }
    }
    true
}

fn slice(entry: &CacheEntry, offset: u64, length: u64) -> Body {
    match entry.small() {
        Some(bytes) => match (usize::try_from(offset), usize::try_from(offset + length)) {
            (Ok(from), Ok(to)) if to <= bytes.len() => Body::Memory(bytes.slice(from..to)),
            _ => Body::Empty,
        },
        None => Body::File { file: Rc::clone(entry.file()), offset, length },
    }
}

fn multipart(
    ex: &mut Exchange,
    entry: &CacheEntry,
    facts: &FileFacts,
    size: u64,
    parts: &[ByteRange],
) {
    let media_type = String::from_utf8_lossy(&facts.media_type);
    let of = Divided { media_type: &media_type, length: size, identity: entry.meta().ino };
    give_parts(ex, &of, parts, |part, queue| match slice(entry, part.start, part.len()) {
        Body::Memory(bytes) => queue.push_bytes(bytes),
        Body::File { file, offset, length } => queue.push_file(FileRange { file, offset, length }),
        _ => {}
    });
}
