//! `mod_dirlisting`: lists a directory that has no index file.
//!
//! The listing is an HTML page that works without a script, or JSON for clients that prefer it.
//! Names and times come from the file engine in batches; a long listing is sorted in the thread
//! pool and rendered piece by piece while it is sent. Nothing here blocks the loop.
//! `entries::ENTRIES_MAX` limits the memory of a listing, `room` the memory of all listings. If the
//! memory is exhausted, a listing is sent unsorted as it is read.
//!
//! `?zip` returns an archive of the directory, if enabled (`zip`).
//!
//! Read `settings`, this file, then `entries`, `room`, `page`, `json`, `stream`, `csp`.

mod csp;
mod entries;
mod json;
mod page;
mod room;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod zip;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::log::Level;
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::pipeline::{conditions, locate, protected_files};
use lighty_core::{Body, Exchange, Fault, Settings, UnknownLength};
use lighty_http::conditional::{PreconditionOutcome, Validators};
use lighty_http::{Known, Method, Status, accept, html};
use lighty_io::file::{DirEntry, FileKind, Follow, Meta, OwnedBuf, ReadDir};
use lighty_io::process::memory;
use lighty_io::stat_cache::CacheEntry;

use entries::{Entries, Gathered, Item, Reach};
use page::Page;
pub use room::Listings;
use room::PART_OF_LIMIT;
use settings::{Insert, ListingSettings};

/// Listings up to this length are rendered at once, so that the response has a Content-Length.
const WHOLE_ENTRIES_MAX: usize = 512;

/// Maximum length of a listing sorted on the event loop. Longer ones go to the thread pool; for
/// shorter ones the hand-over would cost more than sorting.
const SORT_HERE_ENTRIES_MAX: usize = 2048;

/// Maximum entries of a listing cached by `dir-listing.cache`.
const CACHED_ENTRIES_MAX: usize = 10_000;

/// Maximum bytes shown of a header or readme file.
const INSERT_BYTES_MAX: usize = 256 * 1024;

/// The module.
pub struct DirListing {
    listings: Listings,
}

impl DirListing {
    /// A worker's instance.
    pub fn new(listings: Listings) -> Self {
        Self { listings }
    }
}

impl Module for DirListing {
    fn name(&self) -> &'static str {
        "mod_dirlisting"
    }

    fn traits(&self) -> Traits {
        Hooks { withhold: true, handle: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::rows()
    }

    fn withhold<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let is_directory = |entry: &Rc<CacheEntry>| entry.meta().kind == FileKind::Directory;
        let is_open = ex.settings.module::<ListingSettings>().activate;
        if is_open || !ex.physical.entry.as_ref().is_some_and(is_directory) {
            return Step::Next;
        }
        ex.fail_saying(Fault::Forbidden, "dir-listing.activate");
        Step::Answered
    }

    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let Some(entry) = listed_directory(ex) else { return Step::Next };
        match ex.request.method {
            Some(Method::Get | Method::Head) => {}
            Some(Method::Options) => {
                ex.response.status = Status::OK;
                ex.response.fields.push_known(Known::Allow, METHODS);
                ex.response.answered = true;
                return Step::Answered;
            }
            _ => {
                ex.fail(Fault::MethodNotAllowed);
                ex.response.fields.push_known(Known::Allow, METHODS);
                return Step::Answered;
            }
        }
        if ex.request.query() == b"zip" && ex.settings.module::<ListingSettings>().zip {
            return Step::Wait(Box::pin(respond_zip(ex)));
        }
        let form = wanted_form(ex);
        Step::Wait(Box::pin(respond(ex, &self.listings, entry, form)))
    }
}

/// Methods allowed on a listing.
const METHODS: &str = "OPTIONS, GET, HEAD";

/// Returns the requested directory, if it should be listed.
fn listed_directory(ex: &Exchange) -> Option<Rc<CacheEntry>> {
    let entry = ex.physical.entry.as_ref()?;
    let is_listed = entry.meta().kind == FileKind::Directory
        && ex.request.path.ends_with(b"/")
        && ex.settings.module::<ListingSettings>().activate;
    is_listed.then(|| Rc::clone(entry))
}

/// The format of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Json,
}

fn wanted_form(ex: &Exchange) -> Form {
    let accepted = ex.request.fields.get(Known::Accept);
    match accept::prefers(accepted, "application/json", "text/html") {
        true => Form::Json,
        false => Form::Html,
    }
}

/// Makes an archive of the directory.
async fn respond_zip(ex: &mut Exchange) -> Step<'static> {
    let members = match zip_members(ex).await {
        Ok(Some(members)) => members,
        Ok(None) => {
            ex.fail_saying(Fault::Forbidden, "dir-listing.zip-max-files");
            return Step::Answered;
        }
        Err(error) => {
            ex.fail_saying(Fault::of_file_error(&error), &error.to_string());
            return Step::Answered;
        }
    };
    let Some(root) = ex.physical.root.clone() else { return Step::Next };
    let name = last_segment(&ex.request.path).unwrap_or(b"files").to_vec();
    ex.response.answered = true;
    ex.response.status = Status::OK;
    let fields = &mut ex.response.fields;
    fields.push_known(Known::ContentType, "application/zip");
    fields.push_known(Known::XContentTypeOptions, "nosniff");
    let mut disposition = b"attachment; filename*=UTF-8''".to_vec();
    lighty_http::uri::encode_component(&name, &mut disposition);
    disposition.extend_from_slice(b".zip");
    fields.push_known(Known::ContentDisposition, disposition);
    if ex.request.is_head() {
        ex.response.ends_with_connection = true;
        ex.response.body = Body::Stream(Box::new(UnknownLength));
        return Step::Answered;
    }
    let (machine, settings) = (Rc::clone(&ex.machine), Rc::clone(&ex.settings));
    let archive = zip::Archive::new(machine, settings, root, members);
    ex.response.body = Body::Stream(Box::new(archive));
    Step::Answered
}

/// Returns the directory name in a path that ends with a slash; `None` for the root.
fn last_segment(path: &[u8]) -> Option<&[u8]> {
    let inner = path.strip_suffix(b"/")?;
    inner.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty())
}

/// Returns all files below the directory that this client could request individually; `None` if
/// there are too many.
async fn zip_members(ex: &mut Exchange) -> std::io::Result<Option<VecDeque<zip::Member>>> {
    let root = ex.physical.root.clone().ok_or(std::io::ErrorKind::NotFound)?;
    let top = last_segment(&ex.request.path).map_or_else(Vec::new, |name| [name, b"/"].concat());
    let base = match directory(ex) {
        b"" => Vec::new(),
        rel => [rel, b"/"].concat(),
    };
    let members_max = ex.settings.module::<ListingSettings>().zip_members_max;
    let (mut members, mut left) = (Vec::new(), vec![Vec::new()]);
    while let Some(beneath) = left.pop() {
        let rel = [&base[..], &beneath].concat();
        let Some(settings) = reached(ex, &beneath, &rel).await else { continue };
        let listing = settings.module::<ListingSettings>();
        let follow = settings.core.follow_symlink;
        if !listing.activate {
            continue;
        }
        let opened = ex.machine.engine.read_dir(&root, without_slash(&rel), follow).await;
        // The directory was removed in the meantime or is unreadable.
        let Ok(mut dir) = opened else { continue };
        while let Some(batch) = dir.next_batch().await? {
            for entry in batch.iter().filter(|entry| is_shown(listing, entry)) {
                let slash: &[u8] = match entry.meta.kind {
                    FileKind::Directory => b"/",
                    FileKind::File => b"",
                    _ => continue,
                };
                let inner = [&beneath[..], &entry.name, slash].concat();
                let rel = [&base[..], &inner].concat();
                let is_named = Reach::of(&entry.name, &settings.server.parse) == Reach::Url;
                if !is_named || reached(ex, &inner, &rel).await.is_none() {
                    continue;
                }
                if members.len() >= members_max {
                    return Ok(None);
                }
                let name = [&top[..], &inner].concat();
                // The size of a directory is the size of its list of names.
                let size = if slash.is_empty() { entry.meta.size } else { 0 };
                let mtime_s = entry.meta.mtime_s;
                members.push(zip::Member { name, rel, size, mtime_s });
                if !slash.is_empty() {
                    left.push(inner);
                }
            }
        }
    }
    members.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Some(members.into()))
}

fn without_slash(rel: &[u8]) -> &[u8] {
    rel.strip_suffix(b"/").unwrap_or(rel)
}

/// Returns the settings of a request for the path `beneath` the directory. `None` if such a request
/// would not lead to the file at `rel`, but to an error, a redirect or another file.
async fn reached(ex: &mut Exchange, beneath: &[u8], rel: &[u8]) -> Option<Rc<Settings>> {
    if beneath.is_empty() || !locate::distinguishes_urls(ex) {
        return Some(Rc::clone(&ex.settings));
    }
    let path = [&ex.request.path[..], beneath].concat();
    let docroot = ex.physical.docroot.clone();
    let located = locate::locate_rewritten(ex, &path, false).await.ok()?;
    let is_there = located.physical.docroot == docroot && located.physical.rel == rel;
    is_there.then_some(located.settings)
}

/// Makes the listing, unless the client disconnects first.
async fn respond(
    ex: &mut Exchange,
    listings: &Listings,
    entry: Rc<CacheEntry>,
    form: Form,
) -> Step<'static> {
    let made = tokio::select! {
        biased;
        made = list(ex, listings, &entry, form) => Ok(made),
        fault = ex.client_gone() => Err(fault),
    };
    match made {
        Ok(Ok(body)) => respond_with(ex, body, form),
        Ok(Err(error)) => ex.fail_saying(Fault::of_file_error(&error), &error.to_string()),
        Err(fault) => ex.fail(fault),
    }
    Step::Answered
}

fn respond_with(ex: &mut Exchange, body: Body, form: Form) {
    let tag = tag_of(ex, &body);
    let outcome = validate(ex, tag.as_deref());
    ex.response.answered = true;
    ex.response.status = Status::OK;
    let fields = &mut ex.response.fields;
    fields.push_known(Known::Vary, "Accept");
    if let Some(tag) = tag.as_ref().filter(|_| !fields.contains(Known::ETag)) {
        fields.push_known(Known::ETag, tag);
    }
    if let Some(seconds) = ex.settings.module::<ListingSettings>().max_age_s {
        fields.push_known(Known::CacheControl, format!("max-age={seconds}"));
    }
    match outcome {
        PreconditionOutcome::Proceed { .. } => {
            set_fields(ex, form);
            // It is unknown whether GET would render the page at once and so know its length.
            ex.response.ends_with_connection =
                ex.request.is_head() && matches!(body, Body::Stream(_));
            ex.response.body = body;
        }
        PreconditionOutcome::NotModified => {
            ex.response.status = Status::NOT_MODIFIED;
            ex.response.length_unsent = body.known_length();
            set_media_type(ex, form);
        }
        PreconditionOutcome::PreconditionFailed => ex.fail_status(Status::PRECONDITION_FAILED),
    }
}

fn validate(ex: &Exchange, tag: Option<&str>) -> PreconditionOutcome {
    if ex.state.error_status.is_some() {
        return PreconditionOutcome::Proceed { ranges: false };
    }
    let own = Validators {
        etag: tag.map(str::as_bytes),
        last_modified: None,
        now: ex.machine.clock.unix_s(),
    };
    conditions::evaluate(ex, own)
}

/// Returns an entity tag of the page's content, because the directory's mtime does not show changes
/// of a file or the readme. A streamed page has no tag.
fn tag_of(ex: &Exchange, body: &Body) -> Option<String> {
    use std::hash::BuildHasher;
    let core = &ex.settings.core;
    let wanted = core.etag_inode || core.etag_size || core.etag_mtime;
    match body {
        Body::Memory(page) if wanted => {
            let sum = foldhash::quality::FixedState::default().hash_one(&page[..]);
            Some(format!("W/\"{sum:016x}\""))
        }
        _ => None,
    }
}

/// Reads the directory as far as needed before the first byte is sent.
async fn list(
    ex: &Exchange,
    listings: &Listings,
    entry: &CacheEntry,
    form: Form,
) -> std::io::Result<Body> {
    let settings = Rc::clone(&ex.settings);
    let listing = settings.module::<ListingSettings>();
    let is_head = ex.request.is_head();
    let is_whole = |entries: &Entries| entries.len() <= WHOLE_ENTRIES_MAX;
    // HEAD needs the page for its tag and its length; a streamed one has neither.
    let unknown = || Body::Stream(Box::new(UnknownLength));
    if let Some(entries) = recall(ex, entry).filter(|_| listing.sort) {
        return match is_head && !is_whole(&entries) {
            true => Ok(unknown()),
            false => Ok(render(rendering(ex, form, Some(&entries)).await, entries)),
        };
    }
    let dir = open(ex).await?;
    if !listing.sort {
        return match is_head {
            true => Ok(unknown()),
            false => Ok(as_it_is_read(ex, form, dir).await),
        };
    }
    let Some(entries) = collect(ex, listings, listing, dir).await? else {
        if is_head {
            return Ok(unknown());
        }
        let text = "dir-listing.max-memory: a long listing is sent without being sorted";
        ex.log(Level::Warning, text);
        let dir = open(ex).await?;
        return Ok(as_it_is_read(ex, form, dir).await);
    };
    let entries = Rc::new(entries);
    if entries.totals.truncated {
        let text = format!("more than {} entries: the listing is cut", entries::ENTRIES_MAX);
        ex.log(Level::Warning, &text);
    }
    remember(ex, entry, &entries);
    Ok(render(rendering(ex, form, Some(&entries)).await, entries))
}

async fn as_it_is_read(ex: &Exchange, form: Form, dir: ReadDir) -> Body {
    let rendering = rendering(ex, form, None).await;
    Body::Stream(Box::new(stream::Listing::live(rendering, dir)))
}

async fn open(ex: &Exchange) -> std::io::Result<ReadDir> {
    let root = ex.physical.root.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
    let follow = ex.settings.core.follow_symlink;
    ex.machine.engine.read_dir(root, directory(ex), follow).await
}

/// Path of the directory beneath the root, without a trailing slash.
fn directory(ex: &Exchange) -> &[u8] {
    let rel = ex.physical.rel.as_slice();
    rel.strip_suffix(b"/").unwrap_or(rel)
}

/// Returns all entries, sorted. `None` if they exceed the memory for listings, or, for HEAD, the
/// length of a page with a Content-Length. A listing of more than one batch waits for its turn.
async fn collect(
    ex: &Exchange,
    listings: &Listings,
    listing: &ListingSettings,
    mut dir: ReadDir,
) -> std::io::Result<Option<Entries>> {
    let memory_max = memory::within(listing.memory_bytes_max, PART_OF_LIMIT);
    let mut gathered = Gathered::default();
    let mut held = listings.begin();
    let (mut batches, mut turn) = (0_u64, None);
    'reading: while let Some(batch) = dir.next_batch().await? {
        for entry in batch.iter().filter(|entry| is_shown(listing, entry)) {
            if !gathered.push(entry) {
                break 'reading;
            }
        }
        if ex.request.is_head() && gathered.len() > WHOLE_ENTRIES_MAX {
            return Ok(None);
        }
        batches += 1;
        if batches > 1 && turn.is_none() {
            turn = Some(listings.turn(listing.made_max).await);
        }
        if gathered.len() > WHOLE_ENTRIES_MAX && !held.grow_to(gathered.bytes(), memory_max) {
            return Ok(None);
        }
    }
    if gathered.len() <= SORT_HERE_ENTRIES_MAX {
        return Ok(Some(gathered.sorted(Some(held))));
    }
    let asker = Arc::new(());
    let waits = Arc::downgrade(&asker);
    let sort = move || {
        let _turn = turn;
        // The result is unused if the request is gone.
        let gathered = if waits.strong_count() > 0 { gathered } else { Gathered::default() };
        gathered.sorted(Some(held))
    };
    let sorted = ex.machine.engine.compute(sort).await;
    drop(asker);
    sorted.map(Some)
}

/// A listing cached by `dir-listing.cache` in the directory's stat-cache entry: when the directory
/// changes, both are dropped.
struct Kept {
    variant: u64,
    since_ms: u64,
    entries: Rc<Entries>,
}

type KeptSlot = RefCell<Option<Kept>>;

fn recall(ex: &Exchange, entry: &CacheEntry) -> Option<Rc<Entries>> {
    let max_age_s = ex.settings.module::<ListingSettings>().max_age_s?;
    let slot = entry.attachment().get()?.downcast_ref::<KeptSlot>()?.borrow();
    let kept = slot.as_ref().filter(|kept| kept.variant == ex.settings.variant.number())?;
    let age_ms = ex.machine.clock.mono_ms().saturating_sub(kept.since_ms);
    (age_ms < u64::from(max_age_s) * 1000).then(|| Rc::clone(&kept.entries))
}

fn remember(ex: &Exchange, entry: &CacheEntry, entries: &Rc<Entries>) {
    let wanted = ex.settings.module::<ListingSettings>().max_age_s.is_some();
    if !wanted || entries.len() > CACHED_ENTRIES_MAX {
        return;
    }
    let kept = Kept {
        variant: ex.settings.variant.number(),
        since_ms: ex.machine.clock.mono_ms(),
        entries: Rc::clone(entries),
    };
    let slot = entry.attachment().get_or_init(|| Rc::new(KeptSlot::default()));
    if let Some(slot) = slot.downcast_ref::<KeptSlot>() {
        *slot.borrow_mut() = Some(kept);
    }
}

/// Converts entries to bytes of a format.
struct Rendering {
    form: Form,
    page: Page,
    filter: Rc<Settings>,
}

async fn rendering(ex: &Exchange, form: Form, entries: Option<&Entries>) -> Rendering {
    let filter = Rc::clone(&ex.settings);
    let mut page = Page::default();
    if form == Form::Html {
        page = page_of(ex).await;
    }
    page.totals = entries.map(|entries| entries.totals);
    Rendering { form, page, filter }
}

impl Rendering {
    fn head(&self, out: &mut Vec<u8>) {
        match self.form {
            Form::Html => self.page.head(out),
            Form::Json => json::head(out),
        }
    }

    fn row(&self, item: &Item<'_>, is_first: bool, out: &mut Vec<u8>) {
        let reach = Reach::of(item.name, &self.filter.server.parse);
        match self.form {
            Form::Html => self.page.row(item, reach, out),
            Form::Json => json::row(item, reach, is_first, out),
        }
    }

    fn tail(&self, out: &mut Vec<u8>) {
        match self.form {
            Form::Html => self.page.tail(self.page.totals.is_some_and(|t| t.truncated), out),
            Form::Json => json::tail(out),
        }
    }

    fn shows(&self, entry: &DirEntry) -> bool {
        is_shown(self.filter.module(), entry)
    }
}

fn is_shown(listing: &ListingSettings, entry: &DirEntry) -> bool {
    listing.shows(&entry.name) && is_shown_meta(&entry.meta)
}

/// True if clients may see the file.
fn is_shown_meta(meta: &Meta) -> bool {
    !protected_files::is_protected(meta)
}

fn render(rendering: Rendering, entries: Rc<Entries>) -> Body {
    if entries.len() > WHOLE_ENTRIES_MAX {
        return Body::Stream(Box::new(stream::Listing::known(rendering, entries)));
    }
    let mut out = Vec::with_capacity(8192 + 256 * entries.len());
    rendering.head(&mut out);
    for index in 0..entries.len() {
        if let Some(item) = entries.get(index) {
            rendering.row(&item, index == 0, &mut out);
        }
    }
    rendering.tail(&mut out);
    Body::Memory(out.into())
}

async fn page_of(ex: &Exchange) -> Page {
    let settings = Rc::clone(&ex.settings);
    let listing = settings.module::<ListingSettings>();
    let footer = match &listing.footer {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let mut name = Vec::new();
            html::escape(settings.core.tag.as_bytes(), &mut name);
            name
        }
    };
    Page {
        path: ex.request.path.clone(),
        encoding: Arc::clone(&listing.encoding),
        external_css: listing.external_css.clone(),
        external_js: listing.external_js.clone(),
        header: insert(ex, &listing.header).await,
        readme: insert(ex, &listing.readme).await,
        footer,
        auto_layout: listing.auto_layout,
        upload: listing.upload,
        zip: listing.zip,
        mime: Arc::clone(&settings.core.mime),
        totals: None,
    }
}

/// HTML of a header or readme; empty if there is no such file.
async fn insert(ex: &Exchange, insert: &Insert) -> Vec<u8> {
    let Some(name) = &insert.file else { return Vec::new() };
    let read = match name.starts_with('/') {
        true => {
            let engine = &ex.machine.engine;
            engine.read_front(name.to_string(), INSERT_BYTES_MAX, protected_files::admit).await
        }
        false => read_beneath(ex, name).await,
    };
    match read {
        Ok(text) if insert.encode => page::preformatted(&text),
        Ok(html) => html,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                ex.log(Level::Warning, &format!("{name} of a directory listing: {error}"));
            }
            Vec::new()
        }
    }
}

async fn read_beneath(ex: &Exchange, name: &str) -> std::io::Result<Vec<u8>> {
    let root = ex.physical.root.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
    let engine = &ex.machine.engine;
    let mut path = directory(ex).to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
    let follow: Follow = ex.settings.core.follow_symlink;
    let file = engine.open(root, &path, follow, ex.settings.server.use_noatime).await?;
    protected_files::admit(file.meta())?;
    let size = usize::try_from(file.meta().size).unwrap_or(usize::MAX).min(INSERT_BYTES_MAX);
    let mut text = Vec::with_capacity(size);
    while text.len() < size {
        let buf = OwnedBuf::zeroed(size - text.len());
        let (buf, count) = engine.read(&file, text.len() as u64, buf).await;
        match count? {
            0 => break,
            count => text.extend_from_slice(&buf[..count]),
        }
    }
    Ok(text)
}

fn set_media_type(ex: &mut Exchange, form: Form) {
    let settings = Rc::clone(&ex.settings);
    let fields = &mut ex.response.fields;
    match form {
        Form::Json => fields.push_known(Known::ContentType, "application/json"),
        Form::Html => {
            let encoding = &settings.module::<ListingSettings>().encoding;
            fields.push_known(Known::ContentType, page::media_type(encoding));
        }
    }
}

fn set_fields(ex: &mut Exchange, form: Form) {
    let settings = Rc::clone(&ex.settings);
    let listing = settings.module::<ListingSettings>();
    set_media_type(ex, form);
    let fields = &mut ex.response.fields;
    fields.push_known(Known::XContentTypeOptions, "nosniff");
    if form == Form::Html && listing.auto_layout {
        let style = csp::Origin::of(listing.external_css.as_deref());
        let script = csp::Origin::of(listing.external_js.as_deref());
        let policy = csp::policy(style, script, listing.has_raw_html(), listing.upload);
        fields.push_known(Known::ContentSecurityPolicy, policy);
    }
}
