//! The engine: one Lua state, the scripts compiled in it, and runs that can be suspended.
//!
//! A run is a coroutine. While it runs, the engine has the request; whenever it waits, the request
//! is returned together with the pending call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use lighty_io::clock::Clock;
use lighty_io::lua_call::{self, ScriptHost};
use lighty_io::lua_frame::{Frame, FrameTables};
use lighty_io::lua_hook;
use lighty_io::lua_thread::{Coroutine, First, PinnedValue};
use mlua::{Function, IntoLua, Lua, MultiValue, Table, Value};

use crate::accounts::Account;
use crate::budget::{self, RunLimits, Stopped};
use crate::call::{Call, Reply};
use crate::chunk::{self, Chunk, Compiled, LoadError};
use crate::error_text::message;
use crate::objects::{self, Current, KeptBytes, ScriptOptions};
use crate::reply::{self, CallError};
use crate::request::Requests;

/// A script, compiled.
#[derive(Debug)]
pub struct Script {
    /// Its path, as shown in errors.
    pub path: Rc<str>,
    /// Resource usage of its runs.
    pub account: Arc<Account>,
    frame: Frame,
    /// No run is using the frame.
    is_free: Cell<bool>,
    /// Its text contains `header`.
    has_header: bool,
    /// Bytes of Lua's memory that loading it took.
    pub bytes: usize,
}

/// State of a run after a step.
#[derive(Debug)]
pub enum RunProgress {
    /// The script returned this number; 0 if it returned none.
    Done(i64),
    /// It waits for this call.
    Wait(Call),
    /// Its slice is over: resume it with [`RunInput::Go`] after other tasks have had a turn.
    Preempted,
    /// A filter returned a piece of output and waits for input.
    Piece(Option<Vec<u8>>),
    /// The script failed, or was stopped.
    Failed(ScriptFailure),
}

/// Reason for a script's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFailure {
    /// Message and traceback.
    pub text: String,
    /// The exceeded limit, if any.
    pub limit: Option<&'static str>,
}

/// Input for resuming a run.
#[derive(Debug)]
pub enum RunInput {
    /// Start, or continue after [`RunProgress::Preempted`].
    Go,
    /// The result of the call.
    Reply(Reply),
    /// A filter's input; `None` at the end.
    Piece(Option<Vec<u8>>),
}

/// One run of a script.
pub struct EngineRun {
    /// `None` after it was returned for reuse.
    coroutine: Option<Coroutine>,
    begins: Option<Begins>,
    script: Rc<Script>,
    /// It uses its script's frame.
    has_frame: bool,
    /// The script runs in its frame and has not returned.
    is_unfinished: bool,
    /// Its environment and its `lighty`, while it waits.
    env: Option<Box<(Value, Value)>>,
    /// Start time in microseconds; 0 before its first step.
    began_us: u64,
    /// Instructions used so far.
    pub instructions: u64,
    /// Bytes of Lua's memory charged to it so far.
    pub memory: usize,
    waits: Waits,
    /// Error of an invalid call, raised in the script when it resumes.
    refused: Option<Box<CallError>>,
    kept: KeptBytes,
    used: budget::Used,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// It waits for a call's result, or for its start.
    Call,
    /// It only waits for its turn: no value may be passed in.
    Turn,
}

/// Function of the prelude that starts a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    Run,
    Filter,
}

/// A Lua state with the objects that scripts see.
pub struct Engine<R: Requests> {
    lua: Lua,
    clock: Clock,
    current: Rc<Current<R>>,
    host: Rc<dyn ScriptHost>,
    run: PinnedValue,
    filter: PinnedValue,
    finish: PinnedValue,
    frame_tables: FrameTables,
    /// Holds the environment and the `lighty` of the current run.
    environment: Table,
    /// The number of the frame in `environment`; 0 if it holds none, or another run's.
    entered: Cell<i32>,
    token: Table,
    traceback: Function,
    /// Coroutines of ended runs.
    idle: RefCell<Vec<Coroutine>>,
}

impl Drop for EngineRun {
    fn drop(&mut self) {
        if self.has_frame {
            self.script.is_free.set(true);
        }
    }
}

impl EngineRun {
    /// The script that it runs.
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Microseconds from its start until `now_us`, waits included.
    pub fn elapsed_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.began_us)
    }
}

/// Maximum number of coroutines kept for later runs.
const IDLE_THREADS_MAX: usize = 64;

const PRELUDE: &str = include_str!("prelude.lua");

impl<R: Requests> Engine<R> {
    /// Creates a new state.
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn new(clock: &Clock, options: &ScriptOptions) -> mlua::Result<Self> {
        let lua = lua_hook::new_state()?;
        let current = Rc::new(Current::new(options.clone()));
        let token = lua.create_table()?;
        let traceback = lua.globals().get::<Table>("debug")?.get("traceback")?;
        let primitives = objects::primitives(&lua, &current)?;
        primitives.set("token", &token)?;
        let prelude = lua.load(PRELUDE).set_name("=lighty").into_function()?;
        let made: (Function, Function, Function, Table, Table, Table) = prelude.call(primitives)?;
        let (run, filter, finish, environment, env_meta, meta) = made;
        lua_hook::watch(&lua, budget::judge, budget::book);
        let host: Rc<dyn ScriptHost> = Rc::<Current<R>>::clone(&current);
        Ok(Self {
            run: PinnedValue::new(&lua, &run)?,
            filter: PinnedValue::new(&lua, &filter)?,
            finish: PinnedValue::new(&lua, &finish)?,
            frame_tables: FrameTables::new(&lua, env_meta, meta, &environment)?,
            entered: Cell::new(0),
            lua,
            clock: clock.clone(),
            current,
            host,
            environment,
            token,
            traceback,
            idle: RefCell::default(),
        })
    }

    /// Bytes that Lua has allocated.
    pub fn used_memory(&self) -> usize {
        self.lua.used_memory()
    }

    /// The Lua state, for tests and for programs that add to it.
    pub fn lua(&self) -> &Lua {
        &self.lua
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// A message with path and line, if it is not valid Lua.
    pub fn load(&self, path: &str, source: &[u8]) -> Result<Script, LoadError> {
        let before = self.lua.used_memory();
        let factory = chunk::factory(&self.lua, &format!("@{path}"), source)?;
        self.script(path, factory, chunk::names_header(source), before)
    }

    /// Loads a script that another thread has compiled.
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn load_compiled(&self, path: &str, compiled: &Compiled) -> Result<Script, LoadError> {
        let before = self.lua.used_memory();
        let factory = chunk::loaded(&self.lua, &format!("@{path}"), compiled)?;
        self.script(path, factory, compiled.has_header, before)
    }

    fn script(
        &self,
        path: &str,
        factory: Function,
        has_header: bool,
        before: usize,
    ) -> Result<Script, LoadError> {
        let frame = Frame::new(&self.lua, &factory, has_header)?;
        let bytes = self.lua.used_memory().saturating_sub(before);
        let (path, account) = (path.into(), Arc::default());
        Ok(Script { path, account, frame, is_free: Cell::new(true), has_header, bytes })
    }

    /// Compiles a text for [`Reply::Chunk`]: a module, or the argument of `load`. `name` is the
    /// chunk's name, `@PATH` for a file.
    ///
    /// # Errors
    /// A message with path and line, if it is not valid Lua.
    /// Message with path and line, if it is not Lua.
    pub fn chunk(&self, name: &str, source: &[u8]) -> Result<Chunk, LoadError> {
        chunk::factory(&self.lua, name, source).map(Chunk)
    }

    /// Loads such a text that another thread has compiled.
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn chunk_compiled(&self, name: &str, compiled: &Compiled) -> Result<Chunk, LoadError> {
        Ok(Chunk(chunk::loaded(&self.lua, name, compiled)?))
    }

    /// Creates a run, which starts with the first [`Engine::resume`].
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn start(&self, script: &Rc<Script>) -> mlua::Result<EngineRun> {
        self.begin(script, Begins::Run)
    }

    /// Creates a run of a filter: a script that returns a function for each piece of a body.
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn start_filter(&self, script: &Rc<Script>) -> mlua::Result<EngineRun> {
        self.begin(script, Begins::Filter)
    }

    fn begin(&self, script: &Rc<Script>, begins: Begins) -> mlua::Result<EngineRun> {
        let coroutine = match self.idle.borrow_mut().pop() {
            Some(coroutine) => coroutine,
            None => Coroutine::new(&self.lua)?,
        };
        Ok(EngineRun {
            has_frame: begins == Begins::Run && script.is_free.replace(false),
            is_unfinished: false,
            coroutine: Some(coroutine),
            begins: Some(begins),
            script: Rc::clone(script),
            env: None,
            began_us: 0,
            instructions: 0,
            memory: 0,
            waits: Waits::Call,
            refused: None,
            kept: KeptBytes::default(),
            used: budget::Used::default(),
        })
    }

    /// Resumes a run until it ends, waits or has used up its slice.
    pub fn resume(
        &self,
        run: &mut EngineRun,
        request: &mut R::Of<'_>,
        input: RunInput,
        limits: &RunLimits,
    ) -> RunProgress {
        let now_us = self.clock.precise_us();
        if run.began_us == 0 {
            run.began_us = now_us;
        }
        let deadline_us = run.began_us.saturating_add(limits.time_ms.saturating_mul(1000));
        if run.begins.is_none() && now_us >= deadline_us {
            return RunProgress::Failed(self.late(run));
        }
        let before = self.lua.used_memory();
        let room = budget::Room::new(before, run.memory, limits.memory);
        let _ = self.lua.set_memory_limit(room.hard.max(1));
        self.current.enter(&run.script.path, limits.memory, run.kept);
        run.used.instructions = run.instructions;
        budget::begin(&self.clock, run.used, (now_us, deadline_us), room, limits);
        let step = || lua_call::with_host(&self.host, || self.step(run, input));
        let progress = self.current.request.lend(request, step);
        let (used, is_to_rearm) = budget::end();
        run.kept = self.current.kept();
        let _ = self.lua.set_memory_limit(0);
        run.instructions = used.instructions;
        run.used = used;
        // Garbage collected meanwhile is credited to the run.
        run.memory = (run.memory + self.lua.used_memory()).saturating_sub(before);
        if is_to_rearm {
            lua_hook::rearm(&self.lua);
        }
        self.progress(run, progress)
    }

    /// The failure of a run whose time ran out while it waited.
    #[cold]
    fn late(&self, run: &EngineRun) -> ScriptFailure {
        let thread = run.coroutine.as_ref().map(|coroutine| coroutine.thread().clone());
        let traceback = self.traceback.call::<String>(thread);
        let text = format!("stopped while it waited\n{}", traceback.unwrap_or_default());
        ScriptFailure { text, limit: Some(Stopped::Time.limit()) }
    }

    /// Microseconds since a run started, waits included.
    pub fn elapsed_us(&self, run: &EngineRun) -> u64 {
        self.clock.precise_us().saturating_sub(run.began_us)
    }

    /// Remaining microseconds of a run, by the same clock.
    pub fn time_left_us(&self, run: &EngineRun, limits: &RunLimits) -> u64 {
        let deadline_us = run.began_us.saturating_add(limits.time_ms.saturating_mul(1000));
        deadline_us.saturating_sub(self.clock.precise_us())
    }

    fn step(&self, run: &mut EngineRun, input: RunInput) -> First {
        let Some(coroutine) = &run.coroutine else { return First::Nothing };
        match run.begins.take() {
            Some(Begins::Run) if run.has_frame => {
                return self.begin_in_frame(&run.script.frame, coroutine, &mut run.is_unfinished);
            }
            Some(begins) => {
                self.entered.set(0);
                let main = match begins {
                    Begins::Run => &self.run,
                    Begins::Filter => &self.filter,
                };
                let flags = if run.script.has_header { lua_call::HAS_HEADER } else { 0 };
                return coroutine.begin(&self.lua, main, run.script.frame.factory(), flags);
            }
            None => {}
        }
        let refused = run.refused.take();
        let went_on = self.restore(run).and_then(|()| {
            let thread = coroutine.thread();
            if let Some(error) = refused {
                return thread.resume((&self.token, error.to_string()));
            }
            match input {
                _ if run.waits == Waits::Turn => thread.resume(()),
                RunInput::Go => thread.resume(()),
                RunInput::Reply(reply) => thread.resume(reply::into_lua(&self.lua, reply)?),
                RunInput::Piece(piece) => {
                    let piece = piece.map(|piece| self.lua.create_string(piece)).transpose()?;
                    thread.resume(piece.into_lua(&self.lua)?)
                }
            }
        });
        let mut values: MultiValue = match went_on {
            Ok(values) => values,
            Err(error) => return First::Failed(error),
        };
        if coroutine.thread().is_resumable() {
            return First::Yielded(values);
        }
        if std::mem::take(&mut run.is_unfinished) {
            let value = values.pop_front().unwrap_or(Value::Nil);
            return coroutine.call(&self.lua, &self.finish, value).unwrap_or_else(First::Failed);
        }
        match values.pop_front() {
            Some(Value::Integer(number)) => First::Number(number as f64),
            Some(Value::Number(number)) => First::Number(number),
            Some(Value::String(text)) => First::Text(text.as_bytes().to_vec()),
            _ => First::Nothing,
        }
    }

    /// Runs a script from its start, in its own frame.
    fn begin_in_frame(
        &self,
        frame: &Frame,
        coroutine: &Coroutine,
        is_unfinished: &mut bool,
    ) -> First {
        if !frame.is_clean() {
            self.entered.set(0);
            if let Err(error) = frame.renew(&self.lua, &self.frame_tables) {
                return First::Failed(error);
            }
        }
        let is_entered = self.entered.replace(frame.number()) == frame.number();
        let first = frame.begin(&self.lua, coroutine, &self.frame_tables, is_entered);
        if !matches!(first, First::Returned) {
            *is_unfinished = true;
            return first;
        }
        match frame.finish(coroutine, &self.frame_tables, objects::RESPONSE_HEADER) {
            Some(number) => First::Number(number),
            None => coroutine.call_on_result(&self.lua, &self.finish),
        }
    }

    /// Makes a run's environment the current one again.
    fn restore(&self, run: &EngineRun) -> mlua::Result<()> {
        let Some(env) = &run.env else { return Ok(()) };
        let (env, object) = &**env;
        self.entered.set(0);
        self.environment.raw_set(lua_call::ENVIRONMENT, env)?;
        self.environment.raw_set(lua_call::OBJECT, object)
    }

    fn progress(&self, run: &mut EngineRun, first: First) -> RunProgress {
        run.waits = Waits::Call;
        let progress = match first {
            First::Nothing | First::Returned => RunProgress::Done(0),
            // A fractional number counts as no value.
            First::Number(number) if number.fract() != 0.0 => RunProgress::Done(0),
            First::Number(number) => RunProgress::Done(number as i64),
            First::Text(text) => RunProgress::Piece(Some(text)),
            First::Yielded(values) => return self.suspended(run, values),
            First::Failed(error) => {
                let limit = match error {
                    mlua::Error::MemoryError(_) => Some("magnet.max-memory"),
                    _ => run.used.stopped.map(Stopped::limit),
                };
                return RunProgress::Failed(ScriptFailure { text: message(&error), limit });
            }
        };
        // It may have caught the error that stopped it, or a C module did.
        if let Some(stopped) = run.used.stopped {
            return RunProgress::Failed(stopped_failure(stopped));
        }
        let mut idle = self.idle.borrow_mut();
        if run.used.stopped.is_none() && idle.len() < IDLE_THREADS_MAX {
            idle.extend(run.coroutine.take());
        }
        progress
    }

    /// Processes the yielded values of a suspended run.
    fn suspended(&self, run: &mut EngineRun, mut values: MultiValue) -> RunProgress {
        if run.env.is_none() {
            let value = |place| self.environment.raw_get(place).unwrap_or(Value::Nil);
            let both = (value(lua_call::ENVIRONMENT), value(lua_call::OBJECT));
            run.env = Some(Box::new(both));
        }
        let first = values.pop_front();
        let is_call = matches!(&first, Some(Value::Table(table)) if *table == self.token);
        if !is_call {
            if first.is_none() {
                run.waits = Waits::Turn;
                return RunProgress::Preempted;
            }
            let text = "attempt to yield from outside a coroutine".to_owned();
            return RunProgress::Failed(ScriptFailure { text, limit: None });
        }
        let wanted = reply::call(values);
        if let Some(stopped) = run.used.stopped
            && !matches!(wanted, Ok(reply::Suspension::Turn))
        {
            return RunProgress::Failed(stopped_failure(stopped));
        }
        match wanted {
            Ok(reply::Suspension::Call(call)) => RunProgress::Wait(call),
            Ok(reply::Suspension::Turn) => RunProgress::Preempted,
            Ok(reply::Suspension::Piece(piece)) => RunProgress::Piece(piece),
            Err(error) => {
                run.refused = Some(Box::new(error));
                RunProgress::Preempted
            }
        }
    }

    /// Resets the usage of a run, so that its limits start over.
    pub fn renew(&self, run: &mut EngineRun) {
        run.began_us = self.clock.precise_us();
        run.instructions = 0;
        run.memory = 0;
    }
}

/// The failure of a run that continued after it was stopped.
#[cold]
fn stopped_failure(stopped: Stopped) -> ScriptFailure {
    let text = "the script was stopped: it exceeds a limit".to_owned();
    ScriptFailure { text, limit: Some(stopped.limit()) }
}

#[cfg(test)]
mod tests;
