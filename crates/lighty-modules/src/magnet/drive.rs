//! Runs scripts: synchronously until a script has to wait, then in a future.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lighty_core::exchange::response::BodyOrigin;
use lighty_core::exchange::span::Span;
use lighty_core::{Body, Exchange, Fault, Level, Response, Step, pipeline};
use lighty_http::conditional::{PreconditionOutcome, Validators};
use lighty_http::{Fields, Known, Method, Status};
use lighty_lua::budget::SLICE_US;
use lighty_lua::{
    Engine, EngineRun, LuaError, RunInput, RunLimits, RunProgress, Script, ScriptFailure,
    ScriptOptions,
};

use super::request::{MagnetRequest, MagnetRequests};
use super::script_changes::ScriptChanges;
use super::settings::MagnetSettings;
use super::{Magnet, Stage, body, calls, error_throttle, ranges};

/// The highest status that a script may return.
const STATUS_MAX: u16 = 999;

/// A running script and its progress.
struct RunningScript {
    run: EngineRun,
    limits: RunLimits,
    progress: RunProgress,
}

/// The result of starting a run.
type Begun = Result<RunningScript, ScriptFailure>;

/// The step after a script.
enum AfterScript {
    /// The next script, or the next module.
    GoOn,
    Answered,
    Restart,
}

impl Magnet {
    /// Returns the worker's Lua engine, created at first use. `None` if there is no memory for it.
    pub(super) fn engine(&self, ex: &Exchange) -> Option<&Engine<MagnetRequests>> {
        let made = self.engine.get_or_init(|| {
            let own = ex.generation.global.module::<MagnetSettings>();
            let shared = own
                .shared
                .iter()
                .map(|(name, kbytes)| (Box::from(&**name), self.dictionaries.get(name, *kbytes)));
            let options =
                ScriptOptions { unsafe_calls: own.unsafe_calls, shared: shared.collect() };
            match Engine::new(&ex.machine.clock, &options) {
                Ok(engine) => Some(engine),
                Err(error) => {
                    ex.log(Level::Error, &format!("mod_magnet: no Lua state: {error}"));
                    None
                }
            }
        });
        made.as_ref()
    }

    /// Runs the scripts of a stage.
    pub(super) fn attract<'a>(&'a self, ex: &'a mut Exchange, stage: Stage) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<MagnetSettings>();
        let list = match stage {
            Stage::RawUrl => &own.raw_url,
            Stage::PhysicalPath => &own.physical_path,
            Stage::ResponseStart => &own.response_start,
        };
        if list.is_empty() {
            return Step::Next;
        }
        if stage != Stage::ResponseStart && ex.rehearse(|_| format!("runs the script {}", list[0]))
        {
            return Step::Answered;
        }
        let Some(engine) = self.engine(ex) else {
            ex.fail_saying(Fault::ScriptFailed, "no Lua state");
            return Step::Answered;
        };
        let outer = ex.begin_span(Span::Script);
        for (at, path) in list.iter().enumerate() {
            let Some(script) = self.scripts.known(&ex.machine, path) else {
                return self.wait(ex, stage, list, (at, None), outer);
            };
            let mut run = match engine.start(&script) {
                Ok(run) => run,
                Err(error) => {
                    let begun = Some(Err(cannot_start(&error)));
                    return self.wait(ex, stage, list, (at, begun), outer);
                }
            };
            let limits = own.limits();
            let progress = self.resume(engine, ex, stage, &mut run, RunInput::Go, &limits);
            // The script may have run for a long time.
            ex.machine.clock.refresh();
            let next = match progress {
                RunProgress::Done(status)
                    if body::take_bytes(ex) && !ends_after_wait(ex, stage, status) =>
                {
                    account(ex, &run, false);
                    self.finish(ex, stage, status)
                }
                progress => {
                    let begun = Some(Ok(RunningScript { run, limits, progress }));
                    return self.wait(ex, stage, list, (at, begun), outer);
                }
            };
            match next {
                AfterScript::GoOn => {}
                next => {
                    ex.begin_span(outer);
                    return step(next);
                }
            }
        }
        ex.begin_span(outer);
        Step::Next
    }

    /// Continues in a future with the script of this index, which may be running already.
    #[cold]
    fn wait<'a>(
        &'a self,
        ex: &'a mut Exchange,
        stage: Stage,
        list: &Arc<[Arc<str>]>,
        (at, begun): (usize, Option<Begun>),
        outer: Span,
    ) -> Step<'a> {
        let list = Arc::clone(list);
        Step::Wait(Box::pin(async move {
            let step = self.go_on(ex, stage, list, at, begun).await;
            ex.machine.clock.refresh();
            ex.begin_span(outer);
            step
        }))
    }

    /// Runs the scripts from `at` on. The first one may be running already.
    async fn go_on(
        &self,
        ex: &mut Exchange,
        stage: Stage,
        list: Arc<[Arc<str>]>,
        at: usize,
        mut begun: Option<Begun>,
    ) -> Step<'static> {
        let Some(engine) = self.engine(ex) else { return Step::Answered };
        for path in &list[at..] {
            let running = match begun.take() {
                Some(running) => running,
                None => self.begin_loaded(engine, ex, stage, path).await,
            };
            let ended = match running {
                Ok(running) => self.drive(engine, ex, stage, running).await,
                Err(failure) => Err(failure),
            };
            let next = match ended {
                Ok(status) => self.finish_waiting(ex, stage, status).await,
                Err(failure) => self.fail(ex, stage, path, &failure),
            };
            match next {
                AfterScript::GoOn => {}
                next => return step(next),
            }
        }
        Step::Next
    }

    async fn begin_loaded(
        &self,
        engine: &Engine<MagnetRequests>,
        ex: &mut Exchange,
        stage: Stage,
        path: &str,
    ) -> Result<RunningScript, ScriptFailure> {
        let machine = Rc::clone(&ex.machine);
        let script = self.scripts.get(&machine, engine, path).await;
        let script =
            script.map_err(|error| ScriptFailure { text: error.to_string(), limit: None })?;
        let limits = ex.settings.module::<MagnetSettings>().limits();
        self.begin(engine, &script, ex, stage, limits)
    }

    /// Runs a script to its end and returns its value.
    async fn drive(
        &self,
        engine: &Engine<MagnetRequests>,
        ex: &mut Exchange,
        stage: Stage,
        running: RunningScript,
    ) -> Result<i64, ScriptFailure> {
        let RunningScript { mut run, limits, mut progress } = running;
        let clock = ex.machine.clock.clone();
        let mut turn_ends_us = clock.precise_us() + SLICE_US;
        loop {
            let input = match progress {
                RunProgress::Done(status) => {
                    clock.refresh();
                    account(ex, &run, false);
                    return Ok(status);
                }
                RunProgress::Failed(failure) => {
                    clock.refresh();
                    account(ex, &run, true);
                    return Err(failure);
                }
                RunProgress::Piece(_) => {
                    let text = "only a body filter yields pieces".to_owned();
                    return Err(ScriptFailure { text, limit: None });
                }
                RunProgress::Wait(call) => {
                    let left = Duration::from_micros(engine.time_left_us(&run, &limits));
                    let (reply, has_waited) = calls::perform_within(left, self, ex, call).await;
                    if has_waited {
                        turn_ends_us = clock.precise_us() + SLICE_US;
                    }
                    RunInput::Reply(reply)
                }
                RunProgress::Preempted => {
                    turn_ends_us = 0;
                    RunInput::Go
                }
            };
            // Calls that do not wait count toward the same time slice.
            if clock.precise_us() < turn_ends_us {
                progress = self.resume(engine, ex, stage, &mut run, input, &limits);
                continue;
            }
            // A closed semaphore would only lose the order of scripts.
            let _turn = self.turns.acquire().await.ok();
            tokio::task::yield_now().await;
            turn_ends_us = clock.precise_us() + SLICE_US;
            progress = self.resume(engine, ex, stage, &mut run, input, &limits);
        }
    }

    async fn finish_waiting(&self, ex: &mut Exchange, stage: Stage, status: i64) -> AfterScript {
        if !body::take_bytes(ex)
            && let Err(error) = body::take(ex).await
        {
            ex.log(Level::Error, &format!("mod_magnet: {error}"));
        }
        let is_changed = std::mem::take(&mut ex.ext_mut::<ScriptChanges>().changed);
        if is_changed && stage == Stage::RawUrl && goes_on(status) {
            let before = Rc::clone(&ex.settings);
            ex.resolve_settings();
            if !Rc::ptr_eq(&before, &ex.settings) && !pipeline::authorize_again(ex).await {
                return AfterScript::Answered;
            }
        }
        self.finish(ex, stage, status)
    }

    /// Acts on the value that the script returned.
    fn finish(&self, ex: &mut Exchange, stage: Stage, status: i64) -> AfterScript {
        if status > i64::from(STATUS_MAX) {
            let text = format!("a script returned {status}, which is no status");
            if stage == Stage::ResponseStart {
                ex.log(Level::Error, &format!("mod_magnet: {text}"));
                return AfterScript::GoOn;
            }
            ex.fail_saying(Fault::ScriptFailed, &text);
            return AfterScript::Answered;
        }
        let status = u16::try_from(status).ok().map(|code| (code, Status::new(code)));
        if stage == Stage::ResponseStart {
            if let Some((200.., Some(status))) = status {
                replace_status(ex, status);
            }
            return AfterScript::GoOn;
        }
        match status {
            Some((99, _)) => {
                let most = ex.settings.module::<MagnetSettings>().max_restarts;
                let changes = ex.ext_mut::<ScriptChanges>();
                changes.restarts = changes.restarts.saturating_add(1);
                if changes.restarts > most {
                    ex.fail_saying(Fault::RestartLoop, "magnet.max-restarts");
                    return AfterScript::Answered;
                }
                changes.path_parts = None;
                AfterScript::Restart
            }
            // After a 101 the connection switches protocols (RFC 9110 section 15.2.2), which
            // scripts cannot do.
            Some((101, _)) => {
                ex.fail_saying(Fault::ScriptFailed, "a script returned 101");
                AfterScript::Answered
            }
            Some((100..200, Some(status))) => {
                if let Some(client) = &ex.client {
                    client.borrow_mut().interim(status, &ex.response.fields);
                }
                ex.response.fields = Fields::default();
                AfterScript::GoOn
            }
            Some((200.., Some(status))) => {
                ex.response.status = status;
                ex.response.answered = true;
                if status == Status::OK {
                    meet_conditions(ex);
                }
                if has_no_body(ex.response.status) {
                    drop_body(&mut ex.response);
                }
                AfterScript::Answered
            }
            _ => AfterScript::GoOn,
        }
    }

    /// Logs an error, at most once a minute for each place.
    #[cold]
    pub(super) fn log_failure(&self, ex: &Exchange, path: &str, text: &str) {
        let (place, now_s) = (error_throttle::place(path, text), ex.machine.clock.mono_ms() / 1000);
        let Some(left_out) = self.errors.due(&place, text, now_s) else { return };
        let note = match left_out {
            0 => String::new(),
            count => format!(" ({count} errors of this line were left out before)"),
        };
        ex.log(Level::Error, &format!("mod_magnet: {path}: {text}{note}"));
    }

    #[cold]
    fn fail(
        &self,
        ex: &mut Exchange,
        stage: Stage,
        path: &str,
        failure: &ScriptFailure,
    ) -> AfterScript {
        let limit = failure.limit.map_or(String::new(), |limit| format!("{limit}: "));
        self.log_failure(ex, path, &format!("{limit}{}", failure.text));
        let fault = fault_of(failure);
        if stage == Stage::ResponseStart {
            fail_response(ex, fault);
            return AfterScript::GoOn;
        }
        fail_with(ex, fault);
        AfterScript::Answered
    }
}

/// Returns the fault for a script failure.
pub(super) fn fault_of(failure: &ScriptFailure) -> Fault {
    match failure.limit {
        Some(_) => Fault::ScriptLimit,
        None => Fault::ScriptFailed,
    }
}

/// For failures that are logged already.
fn fail_with(ex: &mut Exchange, fault: Fault) {
    ex.fail_unlogged(fault);
    // Removes the unfinished body of the script.
    let changes = ex.ext_mut::<ScriptChanges>();
    changes.pieces.clear();
    changes.has_body = false;
}

/// Replaces a complete response by an error page.
#[cold]
pub(super) fn fail_response(ex: &mut Exchange, fault: Fault) {
    fail_with(ex, fault);
    let id = ex.id();
    pipeline::error_page::fill(&mut ex.response, id);
}

/// Records the resource usage of a finished run.
fn account(ex: &Exchange, run: &EngineRun, failed: bool) {
    let time_us = run.elapsed_us(ex.machine.clock.mono_us());
    run.script().account.add(failed, run.instructions, time_us, run.memory);
}

#[cold]
fn cannot_start(error: &LuaError) -> ScriptFailure {
    ScriptFailure { text: error.to_string(), limit: None }
}

/// True if the end of the script requires a wait before its value is used.
fn ends_after_wait(ex: &Exchange, stage: Stage, status: i64) -> bool {
    let is_changed = ex.ext::<ScriptChanges>().is_some_and(|changes| changes.changed);
    is_changed && stage == Stage::RawUrl && goes_on(status)
}

/// True if the request goes on after a script that returned this number, perhaps after an interim
/// response.
fn goes_on(status: i64) -> bool {
    status < 99 || (100..200).contains(&status)
}

/// Sets the status that a script returned for an existing response.
fn replace_status(ex: &mut Exchange, status: Status) {
    let has_less = matches!(ex.response.status, Status::PARTIAL_CONTENT | Status::NOT_MODIFIED);
    // A script that returns 200 also accepts a partial or an unmodified response.
    if has_less && status == Status::OK {
        return;
    }
    let response = &mut ex.response;
    response.fields.remove(Known::ContentRange);
    if has_no_body(status) {
        drop_body(response);
    }
    response.status = status;
}

/// Evaluates a request's conditions against the validators that a script has set (RFC 9110 section
/// 13), and its range against the file that a script responds with.
fn meet_conditions(ex: &mut Exchange) {
    if !ex.request.method.is_some_and(Method::is_get_or_head) {
        return;
    }
    // The operator's validators count.
    pipeline::conditions::meet(ex);
    if !ex.response.fields.contains_any(&[Known::ETag, Known::LastModified]) {
        let is_conditional = ex.request.fields.contains(Known::IfRange);
        return ranges::offer(ex, !is_conditional);
    }
    let nothing = Validators { now: ex.machine.clock.unix_s(), ..Validators::default() };
    match pipeline::conditions::evaluate(ex, nothing) {
        PreconditionOutcome::Proceed { ranges } => ranges::offer(ex, ranges),
        PreconditionOutcome::NotModified => {
            ex.response.status = Status::NOT_MODIFIED;
            ex.response.length_unsent = ex.response.body.known_length();
        }
        PreconditionOutcome::PreconditionFailed => ex.fail_status(Status::PRECONDITION_FAILED),
    }
}

/// RFC 9110 section 15.3.6: "a server MUST NOT generate content in a 205 response."
fn has_no_body(status: Status) -> bool {
    !status.allows_content() || status == Status::RESET_CONTENT
}

fn drop_body(response: &mut Response) {
    response.body = Body::Empty;
    response.origin = BodyOrigin::Other;
    response.declared_length = None;
    response.fields.remove(Known::ContentLength);
}

fn step(next: AfterScript) -> Step<'static> {
    match next {
        AfterScript::GoOn => Step::Next,
        AfterScript::Answered => Step::Answered,
        AfterScript::Restart => Step::Restart,
    }
}

impl Magnet {
    fn begin(
        &self,
        engine: &Engine<MagnetRequests>,
        script: &Rc<Script>,
        ex: &mut Exchange,
        stage: Stage,
        limits: RunLimits,
    ) -> Result<RunningScript, ScriptFailure> {
        let mut run = engine.start(script).map_err(|error| cannot_start(&error))?;
        let progress = self.resume(engine, ex, stage, &mut run, RunInput::Go, &limits);
        Ok(RunningScript { run, limits, progress })
    }

    /// Lends the exchange to the engine for one step of the script.
    fn resume(
        &self,
        engine: &Engine<MagnetRequests>,
        ex: &mut Exchange,
        stage: Stage,
        run: &mut EngineRun,
        input: RunInput,
        limits: &RunLimits,
    ) -> RunProgress {
        engine.resume(run, &mut MagnetRequest { ex, stage, server: &self.server }, input, limits)
    }
}
