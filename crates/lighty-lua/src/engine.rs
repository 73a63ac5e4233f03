//! The engine: one Lua state, the scripts compiled in it, and runs that can be suspended.
//!
//! A run is a coroutine. While it runs, the request is the engine's; whenever it waits, the request
//! is given back with what it waits for.

use std::cell::RefCell;
use std::rc::Rc;

use lighty_io::clock::Clock;
use lighty_io::lua_hook;
use mlua::{Function, IntoLua, Lua, MultiValue, Table, Thread, Value};

use crate::budget::{self, Limits, Stopped};
use crate::call::{Call, Reply};
use crate::error_text::message;
use crate::objects::{self, Current, Options};
use crate::reply;
use crate::request::ScriptRequest;

/// A script, compiled.
#[derive(Debug)]
pub struct Script {
    /// Its path, as errors name it.
    pub path: Rc<str>,
    factory: Function,
    /// Bytes of Lua's memory that loading it took.
    pub bytes: usize,
}

/// What a run has come to.
#[derive(Debug)]
pub enum Progress {
    /// The script returned this; 0 without a value.
    Done(i64),
    /// It waits for this.
    Wait(Call),
    /// Its slice is over: resume it with [`Input::Go`] when others have had their turn.
    Preempted,
    /// A filter yields a piece of output and wants input.
    Piece(Option<Vec<u8>>),
    Failed(Failure),
}

/// Why a script failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Message and traceback.
    pub text: String,
    /// The limit that it exceeded, if it did.
    pub limit: Option<&'static str>,
}

/// With what a run goes on.
#[derive(Debug)]
pub enum Input {
    /// It begins, or goes on after [`Progress::Preempted`].
    Go,
    /// What the call returned.
    Reply(Reply),
    /// A filter's input; `None` at the end.
    Piece(Option<Vec<u8>>),
}

/// One run of a script.
pub struct Run {
    thread: Thread,
    begins: Option<Function>,
    script: Rc<Script>,
    env: Rc<RefCell<Option<Table>>>,
    began_us: u64,
    /// Instructions used so far.
    pub instructions: u64,
    /// Bytes of Lua's memory charged to it so far.
    pub memory: usize,
    waits: Waits,
    stopped: Option<Stopped>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// For a call's result, or to begin.
    Call,
    /// Only for its turn: nothing may be passed in.
    Turn,
}

/// A Lua state with what scripts see.
pub struct Engine<R: ScriptRequest> {
    lua: Lua,
    clock: Clock,
    current: Rc<Current<R>>,
    run: Function,
    filter: Function,
    environment: Table,
    token: Table,
    traceback: Function,
    /// Coroutines of ended runs.
    idle: RefCell<Vec<Thread>>,
}

/// Coroutines kept for later runs.
const IDLE_THREADS_MAX: usize = 64;

const PRELUDE: &str = include_str!("prelude.lua");

impl<R: ScriptRequest> Engine<R> {
    /// A new state.
    ///
    /// # Errors
    /// Lua has no memory.
    pub fn new(clock: &Clock, options: &Options) -> mlua::Result<Self> {
        let lua = lua_hook::new_state()?;
        let current = Rc::new(Current::new(options.clone()));
        let token = lua.create_table()?;
        let traceback = lua.globals().get::<Table>("debug")?.get("traceback")?;
        let primitives = objects::primitives(&lua, &current)?;
        primitives.set("token", &token)?;
        let prelude = lua.load(PRELUDE).set_name("=lighty").into_function()?;
        let (run, filter, environment): (Function, Function, Table) = prelude.call(primitives)?;
        lua_hook::watch(&lua, budget::judge);
        Ok(Self {
            lua,
            clock: clock.clone(),
            current,
            run,
            filter,
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
    /// Message with path and line, if it is not Lua.
    pub fn load(&self, path: &str, source: &[u8]) -> Result<Script, String> {
        if source.starts_with(b"\x1b") {
            return Err(format!("{path}: byte code is not loaded"));
        }
        let before = self.lua.used_memory();
        let text = without_shebang(source);
        let name = format!("@{path}");
        let chunk = |text: &[u8]| {
            let mode = mlua::chunk::ChunkMode::Text;
            self.lua.load(text).set_name(&name).set_mode(mode).into_function()
        };
        // Alone first: what stands around it must not complete it.
        chunk(&text).map_err(|error| message(&error))?;
        // Each run calls the outer function for a closure of its own, with its own environment.
        let head: &[u8] = match cfg!(feature = "luajit") {
            true => b"return function(...) ",
            false => b"local _ENV = ... return function(...) ",
        };
        let wrapped = [head, &text, b"\nend"].concat();
        let factory = chunk(&wrapped).map_err(|error| message(&error))?;
        let bytes = self.lua.used_memory().saturating_sub(before);
        Ok(Script { path: path.into(), factory, bytes })
    }

    /// Begins a run; nothing happens before [`Engine::resume`].
    ///
    /// # Errors
    /// Lua has no memory.
    pub fn start(&self, script: &Rc<Script>) -> mlua::Result<Run> {
        self.begin(script, &self.run)
    }

    /// Begins a run of a filter: a script that returns a function for each piece of a body.
    ///
    /// # Errors
    /// Lua has no memory.
    pub fn start_filter(&self, script: &Rc<Script>) -> mlua::Result<Run> {
        self.begin(script, &self.filter)
    }

    fn begin(&self, script: &Rc<Script>, main: &Function) -> mlua::Result<Run> {
        let thread = match self.idle.borrow_mut().pop() {
            Some(thread) => {
                thread.reset(main.clone())?;
                thread
            }
            None => self.lua.create_thread(main.clone())?,
        };
        Ok(Run {
            thread,
            begins: Some(script.factory.clone()),
            script: Rc::clone(script),
            env: Rc::default(),
            began_us: self.clock.precise_us(),
            instructions: 0,
            memory: 0,
            waits: Waits::Call,
            stopped: None,
        })
    }

    /// Lets a run go on until it ends, waits or has used its slice. The request is given back.
    pub fn resume(
        &self,
        run: &mut Run,
        request: R,
        input: Input,
        limits: &Limits,
    ) -> (R, Progress) {
        let deadline_us = run.began_us.saturating_add(limits.time_ms.saturating_mul(1000));
        if run.begins.is_none() && self.clock.precise_us() >= deadline_us {
            return (request, Progress::Failed(self.late(run)));
        }
        let before = self.lua.used_memory();
        let room = limits.memory.saturating_sub(run.memory).max(1);
        let _ = self.lua.set_memory_limit(before.saturating_add(room));
        self.current.enter(request, &run.script.path, Rc::clone(&run.env), limits.memory);
        let _ = self.environment.raw_set("env", run.env.borrow().clone());
        budget::begin(&self.clock, (run.instructions, run.stopped), deadline_us, limits);
        let result = self.step(run, input);
        let (instructions, stopped) = budget::end();
        let request = self.current.leave();
        let _ = self.lua.set_memory_limit(0);
        run.instructions = instructions;
        run.stopped = stopped;
        // Garbage that was collected meanwhile is credited.
        run.memory = (run.memory + self.lua.used_memory()).saturating_sub(before);
        if stopped.is_some() {
            lua_hook::rearm(&self.lua);
        }
        let progress = self.progress(run, result, stopped);
        (request, progress)
    }

    /// The failure of a run whose time passed while it waited.
    #[cold]
    fn late(&self, run: &Run) -> Failure {
        let traceback = self.traceback.call::<String>(run.thread.clone());
        let text = format!("stopped while it waited\n{}", traceback.unwrap_or_default());
        Failure { text, limit: Some(Stopped::Time.limit()) }
    }

    /// Microseconds since a run began, waits included.
    pub fn elapsed_us(&self, run: &Run) -> u64 {
        self.clock.precise_us().saturating_sub(run.began_us)
    }

    /// Microseconds that a run has left, by the same clock.
    pub fn time_left_us(&self, run: &Run, limits: &Limits) -> u64 {
        let deadline_us = run.began_us.saturating_add(limits.time_ms.saturating_mul(1000));
        deadline_us.saturating_sub(self.clock.precise_us())
    }

    fn step(&self, run: &mut Run, input: Input) -> mlua::Result<MultiValue> {
        if let Some(factory) = run.begins.take() {
            return run.thread.resume(factory);
        }
        if run.waits == Waits::Turn {
            return run.thread.resume(());
        }
        match input {
            Input::Go => run.thread.resume(()),
            Input::Reply(reply) => run.thread.resume(reply::into_lua(&self.lua, reply)?),
            Input::Piece(piece) => {
                let piece = piece.map(|piece| self.lua.create_string(piece)).transpose()?;
                run.thread.resume(piece.into_lua(&self.lua)?)
            }
        }
    }

    fn progress(
        &self,
        run: &mut Run,
        result: mlua::Result<MultiValue>,
        stopped: Option<Stopped>,
    ) -> Progress {
        run.waits = Waits::Call;
        let mut values = match result {
            Ok(values) => values,
            Err(error) => {
                let limit = match error {
                    mlua::Error::MemoryError(_) => Some("magnet.max-memory"),
                    _ => stopped.map(Stopped::limit),
                };
                return Progress::Failed(Failure { text: message(&error), limit });
            }
        };
        if run.thread.is_resumable() {
            return self.suspended(run, values);
        }
        if stopped.is_none() && run.thread.is_finished() {
            let mut idle = self.idle.borrow_mut();
            if idle.len() < IDLE_THREADS_MAX {
                idle.push(run.thread.clone());
            }
        }
        match values.pop_front() {
            Some(Value::Integer(number)) => Progress::Done(number),
            Some(Value::Number(number)) => Progress::Done(number as i64),
            Some(Value::String(text)) => Progress::Piece(Some(text.as_bytes().to_vec())),
            _ => Progress::Done(0),
        }
    }

    /// What a suspended run wants.
    fn suspended(&self, run: &mut Run, mut values: MultiValue) -> Progress {
        let first = values.pop_front();
        let is_call = matches!(&first, Some(Value::Table(table)) if *table == self.token);
        if !is_call {
            if first.is_none() {
                run.waits = Waits::Turn;
                return Progress::Preempted;
            }
            let text = "attempt to yield from outside a coroutine".to_owned();
            return Progress::Failed(Failure { text, limit: None });
        }
        match reply::call(values) {
            Ok(reply::Wanted::Call(call)) => Progress::Wait(call),
            Ok(reply::Wanted::Turn) => Progress::Preempted,
            Ok(reply::Wanted::Piece(piece)) => Progress::Piece(piece),
            Err(text) => Progress::Failed(Failure { text, limit: None }),
        }
    }

    /// Lets a run have its limits anew.
    pub fn renew(&self, run: &mut Run) {
        run.began_us = self.clock.precise_us();
        run.instructions = 0;
        run.memory = 0;
    }
}

/// The source with a first line `#!...` emptied, so that lines keep their numbers.
fn without_shebang(source: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    let source = source.strip_prefix(b"\xef\xbb\xbf").unwrap_or(source);
    match source.first() {
        Some(b'#') => {
            let line = source.iter().position(|byte| *byte == b'\n').unwrap_or(source.len());
            source[line..].into()
        }
        _ => source.into(),
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
