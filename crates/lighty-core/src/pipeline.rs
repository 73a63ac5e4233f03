//! Takes a request through the phases, from its decoded head to a complete response.
//!
//! Straight-line code, so that the order of events is visible here. Anything that waits is boxed at
//! the point of waiting ([`Step::Wait`], the stat cache's look-up), so the future of [`respond`]
//! stays small and a warm request allocates nothing.

use std::rc::Rc;

use lighty_http::{Known, Method, Status};
use lighty_io::file::FileKind;

use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::file_part::FilePart;
use crate::limits;
use crate::module::{Among, FileFate, HOOKS, Module, Step};
use crate::phase::{ModuleSet, Phase};
use crate::sendfile;
use crate::stage::Stage;
use crate::{named_file, trace};

mod errors;
mod judge;
mod look_up;

pub use errors::keep_owed;
pub use judge::{judge_anew, judge_script};
pub use look_up::{hold_root, is_file, is_file_known, look_up_path};

use errors::{
    call_error_handler, fill_error_page, keep_error_status, restore_method, wants_error_handler,
};
use judge::{judge, judge_served, settle};
use look_up::{is_known, look_up, redirect_to_slash};

/// The result of a pass through the phases.
pub(crate) enum Pass {
    Answered,
    Restart,
    SendFile(FileFate),
    SendParts(Vec<FilePart>),
}

/// How far [`try_respond`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Nothing has happened yet.
    Begin,
    /// A handler has responded; the rest may have to wait.
    Answered,
    /// The response is complete except for its framing.
    Done,
}

/// Responds to the request in `ex`, whose settings are resolved, if nothing has to wait: to most
/// requests for files. [`respond_from`] does the rest.
#[inline]
pub fn try_respond(ex: &mut Exchange) -> Attempt {
    let is_traced = trace::is_on(ex);
    if is_traced {
        trace::request(ex);
    }
    if !answer_known_file(ex) {
        return Attempt::Begin;
    }
    let is_plain = ex.carried.is_empty() && ex.state.error_status.is_none();
    if is_traced || !is_plain || ex.response.status.code() >= 400 || !is_complete(ex) {
        return Attempt::Answered;
    }
    Attempt::Done
}

/// Responds to the request in `ex`, whose settings are resolved. Afterwards `ex.response` is
/// complete except for its framing.
pub async fn respond(ex: &mut Exchange) {
    let attempt = try_respond(ex);
    if attempt != Attempt::Done {
        respond_from(ex, attempt).await;
    }
}

/// What is left of [`respond`] after [`try_respond`].
pub async fn respond_from(ex: &mut Exchange, attempt: Attempt) {
    let mut is_answered = attempt == Attempt::Answered;
    loop {
        let passed = if std::mem::take(&mut is_answered) {
            Pass::Answered
        } else {
            match pass(ex).await {
                Pass::SendFile(fate) => Box::pin(send_file(ex, fate)).await,
                Pass::SendParts(parts) => Box::pin(send_parts(ex, parts)).await,
                other => other,
            }
        };
        trace::pass(ex);
        match passed {
            Pass::Restart => {
                ex.state.restarts += 1;
                if ex.state.restarts > limits::RESTARTS_MAX {
                    ex.fail(Fault::RestartLoop);
                    break;
                }
                begin_again(ex);
                trace::restart(ex);
            }
            _ => match wants_error_handler(ex) {
                Some(wanted) => {
                    keep_owed(&ex.response.fields, &mut ex.owed);
                    if !call_error_handler(ex, &wanted) {
                        break;
                    }
                }
                None => break,
            },
        }
    }
    named_file::join_carried(ex);
    keep_error_status(ex);
    if ex.response.status.code() >= 400 {
        complete(ex).await;
    } else if !is_complete(ex) {
        complete_head(ex).await;
    }
    restore_method(ex);
    trace::response(ex);
}

/// The fast path of most requests, which needs no future: no module acts before the one that sends
/// files, and the file is already known. Returns `false`, with no side effects, if the normal path
/// must be taken.
fn answer_known_file(ex: &mut Exchange) -> bool {
    let generation = Rc::clone(&ex.generation);
    let Some(sender) = generation.modules.fast_path(&ex.settings) else { return false };
    let is_plain = ex.request.method.is_some_and(Method::is_get_or_head) && !ex.body.exists();
    let is_lowered = generation.asks_url && ex.is_lowered();
    if !is_plain || ex.state.undecided.is_some() || generation.asks_physical || is_lowered {
        return false;
    }
    ex.set_physical();
    if !is_known(ex) || !ex.physical.entry.as_ref().is_some_and(|e| e.meta().kind == FileKind::File)
    {
        return false;
    }
    if takes_part(ex, Phase::Conditions) && is_conditional(ex) {
        return false;
    }
    // Nothing has waited since the head.
    let met = [Stage::LookUp, Stage::Open, Stage::Phase(Phase::Handle)];
    ex.stages.enter_with(Stage::Head, met);
    if !matches!(sender.handle(ex), Step::Answered) {
        return false;
    }
    if ex.state.fault.is_none() {
        ex.state.handler = sender.name();
    }
    true
}

/// Completes a response: fills in the page of an error without a body, runs the head hooks and
/// applies filters. Called directly for heads that never became a request (rejected, timed out).
pub async fn complete(ex: &mut Exchange) {
    if ex.response.status.code() >= 400 && ex.response.body_is_default() {
        fill_error_page(ex).await;
    }
    complete_head(ex).await;
}

/// True if the response goes out as it is, as most files do: no hook, no filter, nothing to remove.
#[inline]
fn is_complete(ex: &Exchange) -> bool {
    ex.response.unfiltered
        && ex.state.asked_settings.is_none()
        && ex.response.status != Status::NOT_MODIFIED
        && !ex.generation.modules.change_heads(&ex.settings)
}

/// Runs the head hooks and applies filters.
async fn complete_head(ex: &mut Exchange) {
    let asked = ex.state.asked_settings.as_ref();
    let part = |settings| ex.generation.modules.part(Phase::ResponseHead, settings);
    let also = asked.map_or(ModuleSet::NONE, |asked| part(asked));
    if !part(&ex.settings).with(also).is_empty() {
        run_among(Among { also, ..Among::ALL }, Phase::ResponseHead, ex).await;
    }
    let filters = filters_of(ex);
    if !filters.is_empty() {
        run_among(Among::only(filters), Phase::Filter, ex).await;
        // A filter may have taken long within this turn.
        ex.machine.clock.refresh();
    }
    // A 304 carries no content metadata (RFC 9110 section 15.4.5), but modules needed it until
    // here.
    if ex.response.status == Status::NOT_MODIFIED {
        ex.response.fields.remove(Known::ContentType);
    }
}

/// True if some filter applies to a response with this head.
pub fn is_filtered(ex: &Exchange) -> bool {
    !filters_of(ex).is_empty()
}

/// The modules whose filters apply to this response.
fn filters_of(ex: &Exchange) -> ModuleSet {
    let modules = &ex.generation.modules;
    if ex.response.unfiltered && !modules.change_heads(&ex.settings) {
        return ModuleSet::default();
    }
    modules.picked(modules.part(Phase::Filter, &ex.settings), |module| module.may_filter(ex))
}

/// Runs after the last byte, or when the connection broke.
pub fn finish(ex: &mut Exchange) {
    let mut part = ex.generation.modules.part(Phase::Done, &ex.settings);
    if part.is_empty() {
        return;
    }
    ex.enter(Stage::Phase(Phase::Done));
    let (ex, modules) = (&*ex, &ex.generation.modules);
    while let Some(module) = modules.take_first(&mut part) {
        module.done(ex);
    }
}

fn begin_again(ex: &mut Exchange) {
    if ex.state.keeps_settings && ex.state.asked_settings.is_none() {
        ex.state.asked_settings = Some(Rc::clone(&ex.settings));
    }
    let is_last = ex.response.is_last;
    ex.response.clear();
    ex.response.is_last = is_last;
    ex.physical.clear();
    ex.forget_path();
    ex.state.handler = "";
    ex.resolve_settings();
}

/// Walks the phases until one ends the pass. The core does its own work before the phase that needs
/// it.
async fn pass(ex: &mut Exchange) -> Pass {
    if let Some(end) = refuse_early(ex) {
        return end;
    }
    let mut from = Phase::RawUrl;
    while let Some(phase) = ex.generation.modules.stop(&ex.settings, from, Phase::Handle) {
        from = phase.following();
        let is_due = match phase {
            Phase::Physical => {
                ex.set_physical();
                true
            }
            Phase::Authorize => settle(ex),
            Phase::Directory => {
                if let Some(end) = find(ex).await {
                    return end;
                }
                is_directory(ex)
            }
            Phase::Found => {
                if ex.is_renamed()
                    && let Some(end) = Box::pin(judge_served(ex)).await
                {
                    return end;
                }
                true
            }
            Phase::Conditions => is_conditional(ex),
            Phase::Withhold => false,
            Phase::Handle => {
                if let Some(served) = ex.state.served_settings.take()
                    && let Some(end) = Box::pin(judge::handle(ex, served)).await
                {
                    return end;
                }
                true
            }
            _ => true,
        };
        if is_due && let Some(end) = run(phase, ex).await {
            return end;
        }
    }
    if !ex.response.answered {
        let particulars = match is_directory(ex) {
            true => "a directory that has neither an index file nor a listing here",
            false => "no handler takes this request",
        };
        ex.fail_saying(Fault::Forbidden, particulars);
    }
    Pass::Answered
}

/// Finds out what is at the physical path, and whether it may be accessed.
async fn find(ex: &mut Exchange) -> Option<Pass> {
    ex.enter(Stage::LookUp);
    if !is_known(ex) {
        // The disk is asked: an allocation more does not count, and the future stays small.
        let looked_up = Box::pin(look_up(ex)).await;
        // A thread that has looked may wake the loop within the same turn.
        ex.machine.clock.refresh();
        if let Err(fault) = looked_up {
            ex.fail(fault);
            return Some(Pass::Answered);
        }
    }
    ex.enter(Stage::Open);
    if settle(ex)
        && let Some(end) = judge(ex).await
    {
        return Some(end);
    }
    redirect_to_slash(ex).then_some(Pass::Answered)
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
pub(crate) fn run(phase: Phase, ex: &mut Exchange) -> impl Future<Output = Option<Pass>> {
    run_among(Among::ALL, phase, ex)
}

/// Like [`run`], with some of the modules.
#[expect(clippy::manual_async_fn, reason = "an async fn keeps its arguments twice in its future")]
pub(crate) fn run_among(
    among: Among,
    phase: Phase,
    ex: &mut Exchange,
) -> impl Future<Output = Option<Pass>> {
    async move {
        let generation = Rc::clone(&ex.generation);
        ex.enter(Stage::Phase(phase));
        let mut from = 0;
        while let Some((module, behind)) =
            generation.modules.next((phase, among), &ex.settings, from)
        {
            if ex.state.undecided.is_some() && !phase.has_response() {
                break;
            }
            from = behind;
            let mut step = HOOKS[phase as usize](module, ex);
            while let Step::Wait(future) = step {
                step = future.await;
            }
            if let Some(end) = end_of(step) {
                return Some(ended_by(module, end, ex));
            }
        }
        if phase.has_response() {
            return None;
        }
        let undecided = ex.state.undecided.take()?;
        ex.fail_undecided(&undecided);
        Some(Pass::Answered)
    }
}

/// How a step ends the pass, if it does.
fn end_of(step: Step<'_>) -> Option<Pass> {
    match step {
        Step::Next | Step::Wait(_) => None,
        Step::Restart => Some(Pass::Restart),
        Step::SendFile(fate) => Some(Pass::SendFile(fate)),
        Step::SendParts(parts) => Some(Pass::SendParts(parts)),
        Step::Answered => Some(Pass::Answered),
    }
}

/// Records which module responded.
fn ended_by(module: &dyn Module, end: Pass, ex: &mut Exchange) -> Pass {
    if matches!(end, Pass::Answered) && ex.state.fault.is_none() {
        ex.state.handler = module.name();
    }
    end
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

/// Sends the file parts named by a handler.
async fn send_parts(ex: &mut Exchange, parts: Vec<FilePart>) -> Pass {
    match named_file::join_parts(ex, &parts).await {
        Ok(body) => sendfile::take_parts(ex, body),
        Err(report) => ex.fail_reporting(&report),
    }
    Pass::Answered
}

/// Handles requests that need no module.
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
    // After the rejection no one reads the body, so the error handler may run.
    let is_new = ex.state.error_status.is_none();
    if limit > 0 && is_new && ex.body.announced().is_some_and(|announced| announced > limit) {
        ex.fail(Fault::RequestTooLarge);
        return Some(Pass::Answered);
    }
    if ex.request.method == Some(Method::Options) && ex.request.target == b"*" {
        ex.response.status = Status::OK;
        ex.response.fields.push(b"Allow", b"OPTIONS, GET, HEAD, POST");
        ex.response.answered = true;
        return Some(Pass::Answered);
    }
    if matches!(ex.request.method, Some(Method::Connect | Method::Trace)) {
        ex.fail(Fault::MethodNotAllowed);
        ex.response.fields.push(b"Allow", b"GET, HEAD, OPTIONS");
        return Some(Pass::Answered);
    }
    None
}

/// Tries the directories that `write` names, attempt by attempt, and makes the first that exists
/// the document root. Keeps the current one if none exists.
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
