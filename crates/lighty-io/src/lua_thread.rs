//! Lua coroutines that run one function after the other.
//!
//! The first step of a run, which is the whole of most runs, bypasses mlua's handles. Yielded
//! values and later steps use mlua.

use std::os::raw::c_int;

use mlua::{Error, Function, IntoLua, Lua, MultiValue, Result, Thread, Value, WeakLua, ffi};

/// A value in the registry, where a coroutine finds it.
pub struct PinnedValue {
    lua: WeakLua,
    pub(crate) place: c_int,
}

impl PinnedValue {
    /// Keeps a value other than nil.
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn new(lua: &Lua, value: impl IntoLua) -> Result<Self> {
        let mut place = ffi::LUA_NOREF;
        // SAFETY: the value is on the stack and is popped.
        unsafe {
            lua.exec_raw::<()>(value.into_lua(lua)?, |state| {
                place = ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX);
            })?;
        }
        Ok(Self { lua: lua.weak(), place })
    }
}

impl std::fmt::Debug for PinnedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pinned").field(&self.place).finish()
    }
}

impl Drop for PinnedValue {
    fn drop(&mut self) {
        if let Some(lua) = self.lua.try_upgrade() {
            // SAFETY: the state is alive, and the place is this one's.
            unsafe { ffi::luaL_unref(lua.state(), ffi::LUA_REGISTRYINDEX, self.place) }
        }
    }
}

/// A coroutine.
#[derive(Debug)]
pub struct Coroutine(Thread);

/// Result of a run's first step.
#[derive(Debug)]
pub enum First {
    /// The function returned no value that matters. The coroutine can run another.
    Nothing,
    /// The script of a [`Frame`](crate::lua_frame::Frame) returned. Only its first result is on the
    /// coroutine's stack.
    Returned,
    /// The function's first result is this number.
    Number(f64),
    /// The function's first result is this string.
    Text(Vec<u8>),
    /// It yielded these values.
    Yielded(MultiValue),
    /// It failed with an error.
    Failed(Error),
}

impl Coroutine {
    /// A coroutine that runs nothing yet.
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn new(lua: &Lua) -> Result<Self> {
        let nothing = lua.globals().get::<Function>("type")?;
        let thread = lua.create_thread(nothing)?;
        // SAFETY: the coroutine has not started: its stack holds only the function.
        unsafe { ffi::lua_settop(thread.state(), 0) }
        Ok(Self(thread))
    }

    /// The coroutine as mlua's type.
    pub fn thread(&self) -> &Thread {
        &self.0
    }

    pub(crate) fn state(&self) -> *mut ffi::lua_State {
        self.0.state()
    }

    /// Calls `main(argument, flags)`. The coroutine is new, or the last run has returned.
    pub fn begin(&self, lua: &Lua, main: &PinnedValue, argument: &PinnedValue, flags: u8) -> First {
        let (state, coroutine) = (lua.state(), self.0.state());
        let mut results = 0;
        // SAFETY: both states are alive, the coroutine as long as `self.0` is. Its stack is empty,
        // so three values fit (LUA_MINSTACK); the results are popped below.
        let status = unsafe {
            ffi::lua_rawgeti(coroutine, ffi::LUA_REGISTRYINDEX, main.place as _);
            ffi::lua_rawgeti(coroutine, ffi::LUA_REGISTRYINDEX, argument.place as _);
            ffi::lua_pushinteger(coroutine, flags.into());
            ffi::lua_resume(coroutine, state, 2, &raw mut results)
        };
        match status {
            ffi::LUA_OK => self.returned(results),
            status => self.stopped(lua, status, results),
        }
    }

    /// Calls `main` with the only value on the coroutine's stack.
    pub fn call_on_result(&self, lua: &Lua, main: &PinnedValue) -> First {
        let (state, coroutine) = (lua.state(), self.0.state());
        let mut results = 0;
        // SAFETY: both states are alive; two values fit on any stack (LUA_MINSTACK).
        let status = unsafe {
            ffi::lua_settop(coroutine, 1);
            ffi::lua_rawgeti(coroutine, ffi::LUA_REGISTRYINDEX, main.place as _);
            ffi::lua_insert(coroutine, 1);
            ffi::lua_resume(coroutine, state, 1, &raw mut results)
        };
        match status {
            ffi::LUA_OK => self.returned(results),
            status => self.stopped(lua, status, results),
        }
    }

    /// Calls `main(value)`. The last run has returned, and its results were taken.
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn call(&self, lua: &Lua, main: &PinnedValue, value: Value) -> Result<First> {
        let coroutine = self.0.state();
        // SAFETY: the coroutine is alive, and its stack is empty.
        unsafe {
            lua.exec_raw::<()>(value, |state| {
                ffi::lua_settop(state, 1);
                ffi::lua_settop(coroutine, 0);
                ffi::lua_xmove(state, coroutine, 1);
            })?;
        }
        Ok(self.call_on_result(lua, main))
    }

    /// Result of a step that did not return normally.
    pub(crate) fn stopped(&self, lua: &Lua, status: c_int, results: c_int) -> First {
        match status {
            ffi::LUA_YIELD => match self.taken(lua, results) {
                Ok(values) => First::Yielded(values),
                Err(error) => First::Failed(error),
            },
            status => First::Failed(self.error(lua, status)),
        }
    }

    fn returned(&self, results: c_int) -> First {
        let coroutine = self.0.state();
        // SAFETY: the coroutine is alive and has ended; its results are on top of its stack.
        unsafe {
            let first = match results {
                0 => First::Nothing,
                _ => match ffi::lua_type(coroutine, -results) {
                    ffi::LUA_TNUMBER => First::Number(ffi::lua_tonumber(coroutine, -results)),
                    ffi::LUA_TSTRING => {
                        let mut length = 0;
                        let bytes = ffi::lua_tolstring(coroutine, -results, &raw mut length);
                        First::Text(std::slice::from_raw_parts(bytes.cast(), length).to_vec())
                    }
                    _ => First::Nothing,
                },
            };
            ffi::lua_settop(coroutine, 0);
            first
        }
    }

    /// Takes the yielded values.
    fn taken(&self, lua: &Lua, results: c_int) -> Result<MultiValue> {
        let coroutine = self.0.state();
        // SAFETY: this many values are on the coroutine's stack, and there is space for them.
        unsafe {
            lua.exec_raw((), |state| {
                if ffi::lua_checkstack(state, results) != 0 {
                    ffi::lua_xmove(coroutine, state, results);
                }
            })
        }
    }

    /// The error on the coroutine's stack, with a traceback.
    #[cold]
    fn error(&self, lua: &Lua, status: c_int) -> Error {
        let coroutine = self.0.state();
        // SAFETY: the error is on top of the coroutine's stack; Lua catches errors raised here.
        let error = unsafe {
            lua.exec_raw::<Value>((), |state| {
                ffi::lua_xmove(coroutine, state, 1);
                let is_rusts = ffi::lua_type(state, -1) == ffi::LUA_TUSERDATA;
                if status != ffi::LUA_ERRMEM && !is_rusts {
                    let text = ffi::luaL_tolstring(state, -1, std::ptr::null_mut());
                    ffi::luaL_traceback(state, coroutine, text, 0);
                    ffi::lua_replace(state, 1);
                    ffi::lua_settop(state, 1);
                }
            })
        };
        let text = match error {
            Ok(Value::Error(error)) => return *error,
            Ok(Value::String(text)) => text.to_string_lossy(),
            Ok(other) => other.type_name().to_owned(),
            Err(error) => return error,
        };
        match status {
            ffi::LUA_ERRMEM => Error::MemoryError(text),
            _ => Error::RuntimeError(text),
        }
    }
}
