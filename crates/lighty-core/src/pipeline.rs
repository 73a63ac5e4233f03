//! Takes a request through the phases, from its decoded head to a complete response.
//!
//! `walk` decides the next step and one loop takes it; [`try_respond`] is the shortcut for files
//! that the stat cache knows. Waiting work is boxed at
//! the point of waiting ([`Step::Wait`], the stat cache's look-up), so the future of [`respond`]
//! stays small and a warm request allocates nothing.

mod authorize;
pub mod branch;
pub mod byteranges;
pub mod conditions;
pub mod error_page;
mod errors;
pub mod filter;
pub mod locate;
mod look_up;
pub(crate) mod named_file;
pub mod phase;
pub mod physical;
pub mod protected_files;
pub mod read_ahead;
pub mod rehearsal;
pub mod sendfile;
pub mod stored_body;
pub mod subrequest;
mod walk;

use std::rc::Rc;

use lighty_http::{Known, Method, Status};
use lighty_io::file::FileKind;
use lighty_io::stat_cache::CacheEntry;

use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::exchange::file_part::FilePart;
use crate::exchange::request_state::{KeptSettings, TakenBy};
use crate::exchange::response::Maker;
use crate::exchange::stage::Stage;
use crate::exchange::verified_identity::add_consequences;
use crate::fault::Fault;
use crate::log::trace;
use crate::module::{Among, FileFate, HOOKS, Module, ModuleList, Step};
use crate::pipeline::phase::{FastPath, ModuleSet, Phase};
use crate::settings::limits;

pub use authorize::{authorize_again, authorize_script};
pub use errors::keep_owed;
pub use look_up::{hold_root, is_taken_unseen, kind, kind_known, look_up_path};

use authorize::settle;
use errors::{call_error_handler, restore_method, wants_error_handler};
use look_up::is_known;
use protected_files::is_protected;
use walk::{Next, Walk};

/// The result of a pass through the phases.
pub(crate) enum Pass {
    Answered,
    Restart,
    SendFile(FileFate),
    // Boxed, to keep the future of each connection small.
    #[expect(clippy::box_collection, reason = "three words become one")]
    SendParts(Box<Vec<FilePart>>),
}

/// Progress that [`try_respond`] has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Nothing has been done yet.
    Begin,
    /// A handler has responded; the remaining work may have to wait.
    Answered,
    /// The response's head is complete; a filter applies to its body.
    Head,
    /// The response is complete except for its framing.
    Done,
}

/// Responds to the request in `ex`, with its settings resolved, as far as that needs no waiting:
/// most requests for files complete here. [`respond_from`] does the rest.
#[inline(always)]
pub fn try_respond(ex: &mut Exchange) -> Attempt {
    let is_traced = trace::is_on(ex);
    if is_traced {
        trace::request(ex);
    }
    if !respond_with_known_file(ex) {
        return Attempt::Begin;
    }
    let is_plain = ex.carried.is_empty() && ex.state.error_status.is_none();
    if is_traced || !is_plain || ex.response.status.code() >= 400 {
        return Attempt::Answered;
    }
    try_complete(ex)
}

/// Completes the response of a known file, as far as that needs no waiting.
#[inline]
fn try_complete(ex: &mut Exchange) -> Attempt {
    if is_complete(ex) {
        return Attempt::Done;
    }
    if ex.state.requested_settings.is_some() || ex.generation.modules.heads_may_wait(&ex.settings) {
        return Attempt::Answered;
    }
    call_head_hooks(ex)
}

/// Calls the modules that may change the head. None of them waits.
fn call_head_hooks(ex: &mut Exchange) -> Attempt {
    let generation = Rc::clone(&ex.generation);
    let modules = &generation.modules;
    let mut part = modules.part(Phase::ResponseHead, &ex.settings);
    if !part.is_empty() {
        ex.stages.enter_with(Stage::Head, [Stage::Phase(Phase::ResponseHead)]);
    }
    while let Some(module) = modules.take_first(&mut part) {
        if !matches!(module.response_head(ex), Step::Next) {
            break;
        }
    }
    if is_filtered(ex) {
        return Attempt::Head;
    }
    conclude_head(ex);
    Attempt::Done
}

/// Adds the consequences of a verified identity, and drops parts that the status does not allow:
/// the content metadata of a 304 (RFC 9110 section 15.4.5), which modules need while they decide
/// about the response, and the content of a 205 (section 15.3.6).
fn conclude_head(ex: &mut Exchange) {
    add_consequences(ex);
    let response = &mut ex.response;
    match response.status {
        Status::NOT_MODIFIED => {
            response.fields.remove(Known::ContentType);
            if response.maker == Maker::Server {
                response.fields.remove(Known::ContentEncoding);
            }
        }
        Status::RESET_CONTENT => {
            response.body = Body::Empty;
            (response.declared_length, response.head_content_length) = (None, None);
            response.fields.remove(Known::ContentLength);
        }
        _ => {}
    }
}

/// Responds to the request in `ex`, with its settings resolved. Afterwards `ex.response` is
/// complete except for its framing.
pub async fn respond(ex: &mut Exchange) {
    let attempt = try_respond(ex);
    if attempt != Attempt::Done {
        respond_from(ex, attempt).await;
    }
}

/// Completes a response from the point that [`try_respond`] reached.
pub fn respond_from(ex: &mut Exchange, attempt: Attempt) -> impl Future<Output = ()> {
    let walk = match attempt {
        Attempt::Begin => Walk::begin(ex),
        Attempt::Head => Walk::behind_head(),
        Attempt::Answered | Attempt::Done => Walk::after(Pass::Answered),
    };
    go(walk, ex)
}

/// Completes a response: fills in the page of an error without a body, runs the head hooks and
/// applies filters. Called directly for heads that never became a request (rejected, timed out).
pub fn complete(ex: &mut Exchange) -> impl Future<Output = ()> {
    let walk = Walk::completing(ex);
    go(walk, ex)
}

/// Takes the steps of a walk. One future serves all steps, so that a hook that does not wait costs
/// only a call.
#[expect(clippy::manual_async_fn, reason = "an async fn keeps its arguments twice in its future")]
fn go(mut walk: Walk, ex: &mut Exchange) -> impl Future<Output = ()> {
    async move {
        let generation = Rc::clone(&ex.generation);
        loop {
            let mut step = match walk.next(&generation.modules, ex) {
                Next::Call(hook, module) => hook(module, ex),
                Next::Core(work) => {
                    walk.resume(Box::pin(work.run(ex)).await);
                    continue;
                }
                Next::Nothing => break,
            };
            while let Step::Wait(future) = step {
                step = future.await;
            }
            match end_of(step) {
                Some(end) => walk.end(end, &generation.modules, ex),
                None => walk.decline(ex),
            }
        }
        if walk.is_whole() {
            restore_method(ex);
            trace::response(ex);
        }
    }
}

/// After a pass, prepares the next one, with the URL set by a module or with an error handler's.
/// Returns `false` if the response stands.
fn begins_anew(ex: &mut Exchange, pass: &Pass) -> bool {
    trace::pass(ex);
    if matches!(pass, Pass::Restart) {
        ex.state.restarts += 1;
        if ex.state.restarts > limits::RESTARTS_MAX {
            let message = format!("more than {} restarts of the request", limits::RESTARTS_MAX);
            ex.fail_saying(Fault::RestartLoop, &message);
            return false;
        }
        begin_again(ex);
        trace::restart(ex);
        return true;
    }
    let Some(wanted) = wants_error_handler(ex) else { return false };
    keep_owed(&ex.response.fields, &mut ex.owed);
    call_error_handler(ex, &wanted)
}

/// The fast path of most requests, which needs no future: no module acts before the one that sends
/// files, no other module handles this file, and the file is in the stat cache. Returns `false` if
/// the normal path must be taken, which sets anew all that was set here.
fn respond_with_known_file(ex: &mut Exchange) -> bool {
    let Some(path) = ex.generation.modules.fast_path(&ex.settings) else { return false };
    let generation = Rc::clone(&ex.generation);
    let modules = &generation.modules;
    let is_plain = ex.request.method.is_some_and(Method::is_get_or_head) && !ex.body.exists();
    let is_lowered = generation.asks_url && ex.is_lowered();
    if !is_plain
        || ex.state.undecided.is_some()
        || is_lowered
        || modules.any_acts(path.remote, Phase::Remote, ex)
        || modules.any_acts(path.seldom, Phase::CleanUrl, ex)
    {
        return false;
    }
    let is_known = match generation.asks_physical {
        true => is_known_under_settings(ex, modules, path),
        false => is_known_file(ex, modules, path),
    };
    if !is_known || path.meets_conditions && is_conditional(ex) {
        return false;
    }
    if path.keeps_settings {
        ex.state.keeps_settings = KeptSettings::Fields;
    }
    // Nothing has waited since the head was complete.
    let met = [Stage::LookUp, Stage::Open, Stage::Phase(Phase::Handle)];
    ex.stages.enter_with(Stage::Head, met);
    let Some(sender) = modules.get(path.sender) else { return false };
    if !sender.handle(ex).answers() {
        return false;
    }
    match ex.state.fault {
        None => ex.state.handler = sender.name(),
        Some(_) => ex.state.taken_by = TakenBy::module(path.sender),
    }
    true
}

/// True if the path is cached as a regular file that may be sent, and no other module may handle
/// it.
#[inline(always)]
fn is_known_file(ex: &mut Exchange, modules: &ModuleList, path: FastPath) -> bool {
    ex.set_physical();
    if modules.any_acts(path.before_sender, Phase::Handle, ex) {
        return false;
    }
    let is_open_file =
        |entry: &Rc<CacheEntry>| entry.meta().kind == FileKind::File && !is_protected(entry.meta());
    is_known(ex) && ex.physical.entry.as_ref().is_some_and(is_open_file)
}

/// [`is_known_file`] for configurations with conditions on the path: the path must not change the
/// settings.
fn is_known_under_settings(ex: &mut Exchange, modules: &ModuleList, path: FastPath) -> bool {
    // Captures could not be restored.
    if ex.generation.keeps_captures() {
        return false;
    }
    let before = Rc::clone(&ex.settings);
    let is_known = is_known_file(ex, modules, path) && !settle(ex) && ex.state.undecided.is_none();
    if !is_known {
        ex.settings = before;
        ex.state.undecided = None;
        ex.physical.entry = None;
        ex.forget_path();
    }
    is_known
}

/// True if the response needs no further work, as for most files: no hook, no filter, nothing to
/// remove.
#[inline]
fn is_complete(ex: &Exchange) -> bool {
    ex.response.unfiltered
        && ex.state.requested_settings.is_none()
        && ex.response.status != Status::NOT_MODIFIED
        && !ex.generation.modules.change_heads(&ex.settings)
}

/// True if a filter applies to a response with this head.
pub fn is_filtered(ex: &Exchange) -> bool {
    !filters_of(ex).is_empty()
}

/// The modules with a filter that applies to this response.
fn filters_of(ex: &Exchange) -> ModuleSet {
    let modules = &ex.generation.modules;
    if ex.response.unfiltered && !modules.change_heads(&ex.settings) {
        return ModuleSet::default();
    }
    modules.willing(Phase::Filter, ex)
}

/// Calls the `done` hooks, after the last byte or when the connection broke.
#[inline(always)]
pub fn finish(ex: &mut Exchange) {
    let part = ex.generation.modules.part(Phase::Done, &ex.settings);
    if !part.is_empty() {
        call_done_hooks(part, ex);
    }
}

fn call_done_hooks(mut part: ModuleSet, ex: &mut Exchange) {
    ex.enter(Stage::Phase(Phase::Done));
    let (ex, modules) = (&*ex, &ex.generation.modules);
    while let Some(module) = modules.take_first(&mut part) {
        module.done(ex);
    }
}

fn begin_again(ex: &mut Exchange) {
    ex.keep_requested_settings();
    let is_last = ex.response.is_last;
    ex.response.clear();
    ex.response.is_last = is_last;
    ex.physical.clear();
    ex.forget_path();
    (ex.state.handler, ex.state.taken_by) = ("", TakenBy::NONE);
    ex.resolve_settings();
}

fn takes_part(ex: &Exchange, phase: Phase) -> bool {
    !ex.generation.modules.part(phase, &ex.settings).is_empty()
}

fn is_directory(ex: &Exchange) -> bool {
    ex.physical.entry.as_ref().is_some_and(|e| e.meta().kind == FileKind::Directory)
}

fn is_conditional(ex: &Exchange) -> bool {
    use Known as K;
    ex.request.fields.contains_any(&[
        K::IfMatch,
        K::IfNoneMatch,
        K::IfModifiedSince,
        K::IfUnmodifiedSince,
        K::IfRange,
    ])
}

/// Calls the modules that take part in a phase, in order, until one ends the pass.
pub(crate) async fn run(phase: Phase, ex: &mut Exchange) -> Option<Pass> {
    run_among(Among::ALL, phase, ex).await
}

/// Like [`run`], for a selection of modules.
pub(crate) async fn run_among(among: Among, phase: Phase, ex: &mut Exchange) -> Option<Pass> {
    let generation = Rc::clone(&ex.generation);
    ex.enter(Stage::Phase(phase));
    let mut from = 0;
    while ex.state.undecided.is_none()
        && let Some((module, behind)) = generation.modules.next((phase, among), &ex.settings, from)
    {
        from = behind;
        let takes_on = takes_on(module, phase);
        if takes_on {
            ex.state.taken_by = TakenBy::module(behind - 1);
        }
        let mut step = HOOKS[phase as usize](module, ex);
        while let Step::Wait(future) = step {
            step = future.await;
        }
        if let Some(end) = end_of(step) {
            note_handler(module, &end, ex);
            return Some(end);
        }
        if takes_on {
            ex.state.taken_by = TakenBy::NONE;
        }
    }
    let undecided = ex.state.undecided.take()?;
    ex.fail_undecided(&undecided);
    Some(Pass::Answered)
}

/// Outcome of the pass if the step ends it.
#[inline]
fn end_of(step: Step<'_>) -> Option<Pass> {
    match step {
        Step::Next | Step::Wait(_) => None,
        Step::Restart => Some(Pass::Restart),
        Step::SendFile(fate) => Some(Pass::SendFile(fate)),
        Step::SendParts(parts) => Some(Pass::SendParts(Box::new(parts))),
        Step::Answered => Some(Pass::Answered),
    }
}

/// True if a module that does not pass the request on in this phase has taken it on. In earlier
/// phases modules only refuse or redirect.
#[inline]
fn takes_on(module: &dyn Module, phase: Phase) -> bool {
    matches!(phase, Phase::Remote | Phase::Withhold | Phase::Handle)
        || phase == Phase::Physical && module.traits().responds_to_paths
}

/// The module that would take on a file at the physical path, if the file existed.
fn would_take_on(ex: &Exchange) -> TakenBy {
    let modules = &ex.generation.modules;
    modules
        .first(modules.willing(Phase::Handle, ex))
        .map_or(TakenBy::NONE, |(at, _)| TakenBy::module(at))
}

/// Records which module responded.
#[inline]
fn note_handler(module: &dyn Module, end: &Pass, ex: &mut Exchange) {
    if matches!(end, Pass::Answered) && ex.state.fault.is_none() {
        ex.state.handler = module.name();
    }
}

/// Sends the file, or the parts of files, that a handler named as its response.
async fn send_named(ex: &mut Exchange, named: Pass) -> Pass {
    match named {
        Pass::SendFile(fate) => send_file(ex, fate).await,
        Pass::SendParts(parts) => send_parts(ex, &parts).await,
        Pass::Answered | Pass::Restart => named,
    }
}

/// Sends the file named by a handler.
async fn send_file(ex: &mut Exchange, fate: FileFate) -> Pass {
    if let Err(report) = named_file::look_up(ex, fate).await {
        ex.fail_reporting(&report);
        return Pass::Answered;
    }
    let sent = run(Phase::SendFile, ex).await;
    if sent.is_none() {
        ex.fail_saying(Fault::Internal, "no module sends files");
    }
    Pass::Answered
}

/// Sends the parts of files named by a handler.
async fn send_parts(ex: &mut Exchange, parts: &[FilePart]) -> Pass {
    match named_file::join_parts(ex, parts).await {
        Ok(body) => sendfile::take_parts(ex, body),
        Err(report) => ex.fail_reporting(&report),
    }
    Pass::Answered
}

/// Responds to requests that need no module.
fn refuse_early(ex: &mut Exchange) -> Option<Pass> {
    if let Some(undecided) = ex.state.undecided.take() {
        ex.fail_undecided(&undecided);
        return Some(Pass::Answered);
    }
    if ex.request.method.is_none() {
        ex.fail(Fault::MethodUnknown);
        return Some(Pass::Answered);
    }
    let limit = ex.settings.core.max_request_bytes;
    // No module reads the body after the rejection, so the error handler may run.
    let is_new = ex.state.error_status.is_none();
    if limit > 0 && is_new && ex.body.announced().is_some_and(|announced| announced > limit) {
        ex.fail(Fault::RequestTooLarge);
        return Some(Pass::Answered);
    }
    if ex.request.method == Some(Method::Options) && ex.request.target == b"*" {
        ex.response.status = Status::OK;
        ex.response.fields.set(Known::Allow, "OPTIONS, GET, HEAD, POST");
        ex.response.answered = true;
        return Some(Pass::Answered);
    }
    if matches!(ex.request.method, Some(Method::Connect | Method::Trace)) {
        ex.fail(Fault::MethodNotAllowed);
        ex.response.fields.set(Known::Allow, "GET, HEAD, OPTIONS");
        return Some(Pass::Answered);
    }
    None
}

/// Tries the directories that `write` produces for attempt 0, 1, ... and makes the first that
/// exists the document root. Keeps the current one if none exists.
pub fn choose_docroot<'a, W>(ex: &'a mut Exchange, write: W) -> Step<'a>
where
    W: Fn(&Exchange, usize, &mut Vec<u8>) -> bool + 'a,
{
    let mut path = std::mem::take(&mut ex.physical.docroot);
    let before = path.clone();
    let mut attempt = 0;
    loop {
        path.clear();
        if !write(ex, attempt, &mut path) {
            ex.physical.docroot = before;
            return Step::Next;
        }
        if ex.machine.root(&path).is_some() {
            ex.physical.docroot = path;
            return Step::Next;
        }
        if !ex.machine.is_missing(&path) {
            break;
        }
        attempt += 1;
    }
    ex.physical.docroot = before;
    Step::Wait(Box::pin(open_first_root(ex, write, attempt)))
}

async fn open_first_root<W>(ex: &mut Exchange, write: W, mut attempt: usize) -> Step<'static>
where
    W: Fn(&Exchange, usize, &mut Vec<u8>) -> bool,
{
    let mut path = Vec::new();
    while write(ex, attempt, &mut path) {
        match ex.machine.open_root(&path).await {
            Ok(_) => {
                ex.physical.docroot = path;
                return Step::Next;
            }
            Err(error) if Fault::of_file_error(&error).is_want() => {
                ex.fail(Fault::of_file_error(&error));
                return Step::Answered;
            }
            Err(_) => ex.machine.remember_missing(&path),
        }
        path.clear();
        attempt += 1;
    }
    Step::Next
}
