//! `mod_deflate`: compresses responses for clients that accept it.
//!
//! A filter compresses the response on its way out, whichever handler made it. Reading order:
//! `coding` (which coding), `settings`, `params`, then this file (whether to compress), `tags`
//! (conditions), `kept` and `forms` (files and stored responses already compressed), `encoder`,
//! `compress_filter`, `memory` (an encoder's memory).

mod coding;
mod compress_filter;
mod encoder;
mod forms;
mod kept;
mod memory;
mod params;
mod settings;
mod tags;

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use lighty_config::Directive;
use lighty_core::exchange::response::{BodyOrigin, Maker};
use lighty_core::machine::permits::{Permit, Permits};
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Body, Exchange, Level, Response, Settings, UnknownLength, pipeline};
use lighty_http::{Fields, Known, Method, Status, incremental};
use lighty_io::file::cache_file::CacheFile;
use lighty_io::libraries::Library;
use lighty_io::stat_cache::CacheEntry;

use coding::{AcceptedCodings, Coding};
use compress_filter::{CompressFilter, CompressPlan};
use encoder::{Encoder, Op};
use settings::DeflateSettings;

/// The C libraries for compression.
pub fn libraries() -> Vec<Library> {
    [encoder::brotli::library(), encoder::zstd::library()].into_iter().flatten().collect()
}

/// Optional content codings, with a flag that is true if this build has them. The feature of
/// the same name enables each.
pub fn optional_codings() -> impl Iterator<Item = (&'static str, bool)> {
    [("brotli", Coding::Brotli), ("bzip2", Coding::Bzip2), ("zstd", Coding::Zstd)]
        .into_iter()
        .map(|(feature, coding)| (feature, coding.is_built()))
}

/// The module.
pub struct Deflate {
    /// Bytes lent to the encoders of a worker, up to `deflate.max-memory`.
    encoder_bytes: Permits,
    /// Caps `deflate.max-memory` if the process has a memory limit.
    memory_bytes_max: u64,
    /// The cached load average and the second in which it was read.
    load: Cell<(i64, f64)>,
}

impl Deflate {
    /// Creates a worker's instance. `memory_share` is the worker's share of the process's memory
    /// limit, if there is one; encoders may use a quarter of it.
    pub fn new(memory_share: Option<u64>) -> Self {
        let memory_bytes_max = memory_share.map_or(u64::MAX, |share| share / 4);
        Self { encoder_bytes: Permits::default(), memory_bytes_max, load: Cell::default() }
    }
}

impl Module for Deflate {
    fn name(&self) -> &'static str {
        "mod_deflate"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { clean_url: true, conditions: true, filter: true, ..Hooks::default() },
            acts_seldom: true,
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(settings.module::<DeflateSettings>().compresses())
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::rows()
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // Before modules that respond without a look-up: backends, WebDAV.
        add_bare_tags(ex);
        Step::Next
    }

    fn conditions<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // Again, because the settings may have changed with the path.
        add_bare_tags(ex);
        Step::Next
    }

    fn acts(&self, phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(match phase {
            Phase::Filter => may_be_encoded(ex, ex.settings.module::<DeflateSettings>()),
            _ => compares_tags(&ex.request.fields),
        })
    }

    fn filter<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<DeflateSettings>();
        if ex.response.status == Status::NOT_MODIFIED {
            let Some(wanted) = self.negotiate_unmodified(ex, own) else { return Step::Next };
            if own.precompressed && ex.physical.entry.is_some() {
                return Step::Wait(Box::pin(async move {
                    let beside = kept::find_beside(ex, &wanted.codings).await;
                    let beside = beside.map(|(coding, _)| coding);
                    set_tag(ex, beside.or_else(|| first_coding(ex, &wanted)));
                    Step::Next
                }));
            }
            let coding = first_coding(ex, &wanted);
            set_tag(ex, coding);
            return Step::Next;
        }
        let Some(wanted) = self.negotiate(ex, own) else { return Step::Next };
        if is_held(ex, &wanted) {
            return Step::Next;
        }
        if let BodyOrigin::Stored(forms) = &ex.response.origin {
            let forms = Rc::clone(forms);
            return self.respond_with_form(ex, &settings, wanted, forms);
        }
        if kept::is_whole_file(ex) && (own.precompressed || own.cache_dir.is_some()) {
            let known =
                if own.precompressed { kept::known_beside(ex, &wanted.codings) } else { None };
            if let Some((coding, entry)) = known {
                self.replace(ex, own, coding, &entry, BEFOREHAND);
                return Step::Next;
            }
            return Step::Wait(Box::pin(async move {
                self.respond_with_file(ex, settings.module::<DeflateSettings>(), &wanted).await;
                Step::Next
            }));
        }
        self.encode(ex, own, &wanted, None);
        Step::Next
    }
}

/// Origin of a precompressed file, for the log.
const BEFOREHAND: &str = "compressed beforehand";

/// True if a request compares entity tags.
fn compares_tags(fields: &Fields) -> bool {
    fields.contains_any(&[Known::IfNoneMatch, Known::IfMatch])
}

fn add_bare_tags(ex: &mut Exchange) {
    let own = ex.settings.module::<DeflateSettings>();
    let fields = &mut ex.request.fields;
    if compares_tags(fields) {
        let wanted = AcceptedCodings::of(accept_encoding(fields).as_deref(), &own.allowed);
        tags::add_bare(fields, |coding| wanted.codings.contains(&coding));
    }
}

/// The field by which responses differ, whether or not they are encoded.
const ACCEPT_ENCODING: &str = "Accept-Encoding";

/// `Accept-Encoding`, its lines joined.
fn accept_encoding(fields: &Fields) -> Option<Cow<'_, [u8]>> {
    let mut lines = fields.get_all(Known::AcceptEncoding);
    let mut whole = Cow::Borrowed(lines.next()?);
    for line in lines {
        whole.to_mut().extend_from_slice(b", ");
        whole.to_mut().extend_from_slice(line);
    }
    Some(whole)
}

/// True if such a response is compressed for clients that accept it.
fn may_be_encoded(ex: &Exchange, own: &DeflateSettings) -> bool {
    // The type usually decides, and is the cheapest check.
    (own.takes_every_type() || has_type(ex, own)) && !is_bound(&ex.response.fields)
}

/// True if a response with these fields must not be changed.
fn is_bound(fields: &Fields) -> bool {
    fields.contains(Known::ContentEncoding)
        || fields.list_contains(Known::CacheControl, "no-transform")
        || fields.unknown_names().any(is_digest)
}

/// True for a field with a checksum of the content.
fn is_digest(name: &[u8]) -> bool {
    [&b"Content-MD5"[..], b"Content-Digest", b"Repr-Digest"]
        .iter()
        .any(|digest| name.eq_ignore_ascii_case(digest))
}

/// True if the media type is configured.
fn has_type(ex: &Exchange, own: &DeflateSettings) -> bool {
    let Some(media_type) = ex.response.fields.get(Known::ContentType) else {
        // A backend's 304 may omit the type; the client's tag shows that the response was encoded.
        return held_tag(ex).is_some();
    };
    own.types.iter().any(|prefix| {
        let prefix = prefix.as_bytes();
        let prefix = prefix.strip_suffix(b"*").unwrap_or(prefix);
        media_type.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
    })
}

/// The tag that a 304 must carry for a client that has the encoded form.
fn held_tag(ex: &Exchange) -> Option<Vec<u8>> {
    let response = &ex.response;
    let tag =
        response.fields.get(Known::ETag).filter(|_| response.status == Status::NOT_MODIFIED)?;
    tags::held(&ex.request.fields, tag)
}

/// Changes the response to 304 if the client has it in an acceptable coding. This is needed for
/// backends that do not compare tags or do not know the tags of encoded responses.
fn is_held(ex: &mut Exchange, wanted: &AcceptedCodings) -> bool {
    let response = &ex.response;
    let is_read = ex.request.method.is_some_and(Method::is_get_or_head);
    if response.status != Status::OK || !is_read {
        return false;
    }
    let held = response.fields.get(Known::ETag).and_then(|tag| {
        tags::held_in(&ex.request.fields, tag, |coding| wanted.codings.contains(&coding))
    });
    let Some(held) = held else { return false };
    pipeline::conditions::not_modified(&mut ex.response);
    ex.response.fields.set(Known::ETag, held);
    true
}

impl Deflate {
    /// Sets the fields of every response that could have been encoded, and returns the codings for
    /// this one.
    fn negotiate(&self, ex: &mut Exchange, own: &DeflateSettings) -> Option<AcceptedCodings> {
        let wanted =
            AcceptedCodings::of(accept_encoding(&ex.request.fields).as_deref(), &own.allowed);
        if !has_fit_body(&ex.response, own, wanted.refuses_identity) {
            return None;
        }
        ex.response.fields.add_to_vary(ACCEPT_ENCODING);
        (!is_part(&ex.response) && !asks_not(ex) && !wanted.codings.is_empty()).then_some(wanted)
    }

    /// Sets the fields of a 304. Unless the client sent the tag itself, returns the codings of the
    /// 200: a 304 must have the same tag as the 200 (RFC 9110 section 15.4.5).
    fn negotiate_unmodified(
        &self,
        ex: &mut Exchange,
        own: &DeflateSettings,
    ) -> Option<AcceptedCodings> {
        let wanted =
            AcceptedCodings::of(accept_encoding(&ex.request.fields).as_deref(), &own.allowed);
        let length = ex.response.length_unsent;
        if let Some(tag) = held_tag(ex) {
            ex.response.fields.set(Known::ETag, tag);
            ex.response.fields.add_to_vary(ACCEPT_ENCODING);
            return None;
        }
        if !has_fit_length(length, own, wanted.refuses_identity) {
            return None;
        }
        ex.response.fields.add_to_vary(ACCEPT_ENCODING);
        let tag = ex.response.fields.get(Known::ETag)?;
        // A backend compares its own tags, and may send a 304 for another reason.
        let is_own = ex.response.maker == Maker::Server;
        let is_named = tags::is_named(&ex.request.fields, tag);
        (is_own && !is_named && !asks_not(ex) && !self.is_loaded(ex, own)).then_some(wanted)
    }

    /// Sends a file that is already compressed in place of the original, or else encodes it.
    async fn respond_with_file(
        &self,
        ex: &mut Exchange,
        own: &DeflateSettings,
        wanted: &AcceptedCodings,
    ) {
        if own.precompressed
            && let Some((coding, entry)) = kept::find_beside(ex, &wanted.codings).await
        {
            return self.replace(ex, own, coding, &entry, BEFOREHAND);
        }
        let first = wanted.codings.iter().find(|coding| coding.is_built());
        let name = first.and_then(|coding| kept::cached_name(ex, *coding));
        let (Some(coding), Some(directory), Some(name)) = (first, &own.cache_dir, name) else {
            return self.encode(ex, own, wanted, None);
        };
        if let Some(failure) = lighty_io::file::cache_file::take_failure() {
            ex.log(Level::Warning, &format!("deflate.cache-dir cannot be written: {failure}"));
        }
        match kept::find_cached(ex, directory, &name).await {
            Some(entry) => self.replace(ex, own, *coding, &entry, "cached"),
            None => self.encode(ex, own, wanted, Some((directory, name))),
        }
    }

    fn replace(
        &self,
        ex: &mut Exchange,
        own: &DeflateSettings,
        coding: Coding,
        entry: &Rc<CacheEntry>,
        how: &str,
    ) {
        ex.response.body = kept::body_of(entry);
        set_fields(ex, coding);
        note(ex, own, coding, how);
    }

    /// Encodes the response, unless load or memory forbids it.
    fn encode(
        &self,
        ex: &mut Exchange,
        own: &DeflateSettings,
        wanted: &AcceptedCodings,
        cached: Option<(&str, Vec<u8>)>,
    ) {
        let is_event_stream = is_event_stream(ex);
        let Some(coding) = first_coding(ex, wanted) else { return };
        if self.is_loaded(ex, own) {
            return note(ex, own, coding, "not: deflate.max-loadavg");
        }
        let inline_bytes_max = own.params.inline_bytes_max(coding);
        let short = in_memory(&ex.response).filter(|bytes| bytes.len() <= inline_bytes_max);
        let done = match short.filter(|_| cached.is_none()) {
            Some(bytes) => encode_whole(coding, &own.params, &bytes).map(|encoded| {
                ex.response.body = Body::Memory(encoded);
                "at once"
            }),
            None => {
                let copy = cached.map(|(directory, name)| kept::new_cached(directory, &name));
                let is_requested = incremental::is_requested(&ex.response.fields);
                let sync_flush = own.sync_flush || is_event_stream || is_requested;
                self.put_encoder(ex, own, coding, sync_flush, copy).map(|()| "on its way")
            }
        };
        match done {
            Ok(how) => {
                set_fields(ex, coding);
                note(ex, own, coding, how);
            }
            // Without an encoder the response is sent as it is.
            Err(why) => note(ex, own, coding, &format!("not: {why}")),
        }
    }

    /// Wraps the body in an encoder; on error the body is unchanged.
    fn put_encoder(
        &self,
        ex: &mut Exchange,
        own: &DeflateSettings,
        coding: Coding,
        sync_flush: bool,
        copy: Option<CacheFile>,
    ) -> io::Result<()> {
        let permit = self.lend(ex, own, coding)?;
        let response = &mut ex.response;
        if ex.request.is_head() {
            // A HEAD response gets no length unless the body is in memory: the body of the GET may
            // be too long to be encoded at once.
            response.ends_with_connection = response.head_content_length.is_some()
                || matches!(response.body, Body::Empty | Body::Stream(_));
            response.body = Body::Stream(Box::new(UnknownLength));
            return Ok(());
        }
        let plan = CompressPlan { sync_flush, copy, ..plan(ex, own, coding, permit)? };
        let engine = &ex.machine.engine;
        let body = std::mem::take(&mut ex.response.body);
        ex.response.body = body.filtered(Box::new(CompressFilter::new(plan, engine)), engine);
        Ok(())
    }

    /// Lends memory to an encoder for the body.
    fn lend(&self, ex: &Exchange, own: &DeflateSettings, coding: Coding) -> io::Result<Permit> {
        let between = (own.block_bytes as u64).saturating_add(out_bytes(own) as u64);
        let memory = own.params.memory_bytes(coding, body_length(&ex.response));
        let memory = memory.saturating_add(between);
        let memory_max = own.memory_bytes_max.min(self.memory_bytes_max);
        let permit = self.encoder_bytes.try_acquire(memory, memory_max);
        permit.ok_or_else(|| io::Error::other("deflate.max-memory"))
    }

    /// True if the machine has too much to do for encoders.
    fn is_loaded(&self, ex: &Exchange, own: &DeflateSettings) -> bool {
        own.load_max.is_some_and(|most| self.load_average(ex) >= most)
    }

    fn load_average(&self, ex: &Exchange) -> f64 {
        let now_s = ex.machine.clock.unix_s();
        if self.load.get().0 != now_s {
            self.load.set((now_s, lighty_io::process::load::load_average()));
        }
        self.load.get().1
    }
}

/// Output of one turn in bytes.
fn out_bytes(own: &DeflateSettings) -> usize {
    if own.out_bytes == 0 { compress_filter::OUT_BYTES } else { own.out_bytes }
}

/// Parameters for compressing the body, without flushes and without a copy.
fn plan(
    ex: &Exchange,
    own: &DeflateSettings,
    coding: Coding,
    permit: Permit,
) -> io::Result<CompressPlan> {
    Ok(CompressPlan {
        encoder: Encoder::new(coding, &own.params, body_length(&ex.response))?,
        block_bytes: own.block_bytes,
        out_bytes: out_bytes(own),
        inline_bytes_max: own.params.inline_bytes_max(coding),
        sync_flush: false,
        copy: None,
        permit,
    })
}

/// True if the body's length is worth compressing.
fn has_fit_body(response: &Response, own: &DeflateSettings, whatever_it_is: bool) -> bool {
    let status = response.status;
    if !status.allows_content() || status.code() == 205 || response.tunnel.is_some() {
        return false;
    }
    match body_length(response) {
        Some(0) => false,
        _ if is_part(response) => true,
        length => has_fit_length(length, own, whatever_it_is),
    }
}

fn has_fit_length(length: Option<u64>, own: &DeflateSettings, whatever_it_is: bool) -> bool {
    let Some(length) = length else { return true };
    let is_large = own.max_bytes > 0 && length > own.max_bytes;
    length > 0 && (length >= own.min_bytes || whatever_it_is) && !is_large
}

/// True if the client refuses transformations.
fn asks_not(ex: &Exchange) -> bool {
    ex.request.fields.list_contains(Known::CacheControl, "no-transform")
}

fn is_event_stream(ex: &Exchange) -> bool {
    media_type_is(&ex.response.fields, b"text/event-stream")
}

/// Returns the coding for a response. bzip2 cannot be flushed between events.
fn first_coding(ex: &Exchange, wanted: &AcceptedCodings) -> Option<Coding> {
    let is_event_stream = is_event_stream(ex);
    let fits =
        |coding: &&Coding| coding.is_built() && !(is_event_stream && **coding == Coding::Bzip2);
    wanted.codings.iter().find(fits).copied()
}

/// Sets the tag of the encoded form on a 304.
fn set_tag(ex: &mut Exchange, coding: Option<Coding>) {
    let fields = &mut ex.response.fields;
    let tag = fields.get(Known::ETag).zip(coding);
    if let Some(tag) = tag.and_then(|(tag, coding)| tags::with_coding(tag, coding)) {
        fields.set(Known::ETag, tag);
    }
}

/// True for a partial response. Its range counts unencoded bytes, so it cannot be encoded.
fn is_part(response: &Response) -> bool {
    response.status == Status::PARTIAL_CONTENT || response.fields.contains(Known::ContentRange)
}

/// Length of the body, or the one that a HEAD response announces.
fn body_length(response: &Response) -> Option<u64> {
    response.head_content_length.or(response.body.known_length())
}

/// The body, if it is in memory.
fn in_memory(response: &Response) -> Option<Bytes> {
    if response.head_content_length.is_some() {
        return None;
    }
    match &response.body {
        Body::Memory(bytes) => Some(bytes.clone()),
        Body::Cached(entry) => entry.small().cloned(),
        _ => None,
    }
}

/// Encodes a short body.
fn encode_whole(coding: Coding, params: &params::EncoderParams, bytes: &[u8]) -> io::Result<Bytes> {
    let mut encoder = Encoder::new(coding, params, Some(bytes.len() as u64))?;
    let mut out = Vec::with_capacity(bytes.len() / 2 + 64);
    encoder.run(bytes, Op::Finish, &mut out, usize::MAX)?;
    Ok(out.into())
}

fn media_type_is(fields: &Fields, wanted: &[u8]) -> bool {
    let media_type = fields.get(Known::ContentType).unwrap_or_default();
    let bare = media_type.split(|byte| *byte == b';').next().unwrap_or_default();
    bare.trim_ascii().eq_ignore_ascii_case(wanted)
}

/// Sets the fields of an encoded response. Ranges are dropped: the encoded form may differ the next
/// time.
fn set_fields(ex: &mut Exchange, coding: Coding) {
    let response = &mut ex.response;
    let fields = &mut response.fields;
    fields.remove(Known::ContentLength);
    fields.set(Known::ContentEncoding, coding.name());
    if fields.contains(Known::AcceptRanges) {
        fields.set(Known::AcceptRanges, "none");
    }
    if let Some(tag) = fields.get(Known::ETag).and_then(|tag| tags::with_coding(tag, coding)) {
        fields.set(Known::ETag, tag);
    }
    response.declared_length = None;
    response.head_content_length = None;
}

fn note(ex: &Exchange, own: &DeflateSettings, coding: Coding, how: &str) {
    if own.debug {
        ex.log(Level::Notice, &format!("mod_deflate: {}: {how}", coding.name()));
    }
}
