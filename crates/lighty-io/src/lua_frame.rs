//! A script with its environment, which the next run uses again if this one left it unchanged.
//!
//! Most scripts set fields and a body and define no globals. Creating and collecting three tables
//! takes longer than the rest of such a run. Therefore the end of a run checks them instead: the
//! environment must hold `lighty` and nothing else. The prelude adds to the environment anything
//! else that the script uses and that could change a table past its metatable (`rawset`, libraries,
//! `_G`), and does the same when a script gives `lighty` a name of its own. This leaves `header`
//! and `content`, which are checked here.
//!
//! No function here that Lua may leave by an error runs outside `exec_raw`.

use std::cell::Cell;
use std::os::raw::{c_int, c_void};

use mlua::{Lua, Result, Table, ffi};

use crate::lua_call::{AT_ONCE_MAX, ENVIRONMENT, HostReplyKind, OBJECT, ask, text};
use crate::lua_thread::{Coroutine, First, PinnedValue};

/// A table with more fields than this is not used again.
const FEW: c_int = 8;

/// Stack positions in the coroutine of the values that the end of a run checks.
const OBJECT_AT: c_int = 2;
const HEADER_AT: c_int = 3;
const CONTENT_AT: c_int = 4;
const ENVIRONMENT_AT: c_int = 5;

/// A script with its environment. One run at a time uses it.
#[derive(Debug)]
pub struct Frame {
    factory: PinnedValue,
    script: PinnedValue,
    environment: PinnedValue,
    /// The table that the script calls `lighty`.
    object: PinnedValue,
    /// `lighty.header`, if the script names it.
    header: Option<PinnedValue>,
    /// Addresses of `lighty` and its `header`, by which the end of a run recognizes them.
    object_address: Cell<*const c_void>,
    header_address: Cell<*const c_void>,
    /// Address of the string `lighty`, of which Lua has one copy.
    name_address: Cell<*const c_void>,
    is_clean: Cell<bool>,
}

/// Values shared by all frames of a state.
#[derive(Debug)]
pub struct FrameTables {
    /// The metatable of environments.
    environment_meta: Table,
    /// The metatable of the `lighty` objects.
    object_meta: Table,
    /// Holds the environment and the `lighty` of the current run.
    current: PinnedValue,
    header_name: PinnedValue,
    content_name: PinnedValue,
}

impl FrameTables {
    /// Creates the tables. `current` holds the environment and the `lighty` of the current run.
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn new(
        lua: &Lua,
        environment_meta: Table,
        object_meta: Table,
        current: &Table,
    ) -> Result<Self> {
        let name = |name: &str| PinnedValue::new(lua, name);
        Ok(Self {
            environment_meta,
            object_meta,
            current: PinnedValue::new(lua, current)?,
            header_name: name("header")?,
            content_name: name("content")?,
        })
    }
}

impl Frame {
    /// Creates a frame for the script that `factory` creates, without an environment yet.
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn new(lua: &Lua, factory: &mlua::Function, has_header: bool) -> Result<Self> {
        let none = || PinnedValue::new(lua, false);
        Ok(Self {
            factory: PinnedValue::new(lua, factory)?,
            script: none()?,
            environment: none()?,
            object: none()?,
            header: has_header.then(none).transpose()?,
            object_address: Cell::new(std::ptr::null()),
            header_address: Cell::new(std::ptr::null()),
            name_address: Cell::new(std::ptr::null()),
            is_clean: Cell::new(false),
        })
    }

    /// The function that creates the script.
    pub fn factory(&self) -> &PinnedValue {
        &self.factory
    }

    /// True if the last run left the environment unchanged.
    pub fn is_clean(&self) -> bool {
        self.is_clean.get()
    }

    /// A number that no other frame of the same state has.
    pub fn number(&self) -> i32 {
        self.environment.place
    }

    /// Creates the script with a new environment.
    ///
    /// # Errors
    /// Lua is out of memory.
    pub fn renew(&self, lua: &Lua, tables: &FrameTables) -> Result<()> {
        let keep = |state: *mut ffi::lua_State, pinned: &PinnedValue| {
            // SAFETY: the value is on the stack, and the place in the registry is there.
            unsafe { ffi::lua_rawseti(state, ffi::LUA_REGISTRYINDEX, pinned.place as _) }
        };
        // SAFETY: at most seven values are on the stack at a time (LUA_MINSTACK). Nothing here has
        // a destructor.
        unsafe {
            let arguments = (&tables.environment_meta, &tables.object_meta);
            lua.exec_raw::<()>(arguments, |state| {
                ffi::lua_createtable(state, 0, 2);
                let object = ffi::lua_gettop(state);
                ffi::lua_pushvalue(state, object - 1);
                ffi::lua_setmetatable(state, object);
                if let Some(header) = &self.header {
                    ffi::lua_pushlstring(state, c"header".as_ptr(), 6);
                    ffi::lua_createtable(state, 0, 1);
                    self.header_address.set(ffi::lua_topointer(state, -1));
                    ffi::lua_pushvalue(state, -1);
                    keep(state, header);
                    ffi::lua_rawset(state, object);
                }
                ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, self.factory.place as _);
                ffi::lua_createtable(state, 0, 2);
                let environment = object + 2;
                ffi::lua_pushvalue(state, object - 2);
                ffi::lua_setmetatable(state, environment);
                ffi::lua_pushlstring(state, c"lighty".as_ptr(), 6);
                self.name_address.set(ffi::lua_topointer(state, -1));
                ffi::lua_pushvalue(state, object);
                ffi::lua_rawset(state, environment);
                ffi::lua_pushvalue(state, environment);
                keep(state, &self.environment);
                // In LuaJIT a function inherits the environment of its creator; in Lua 5.4 it is an
                // argument.
                #[cfg(feature = "luajit")]
                {
                    ffi::lua_setfenv(state, environment - 1);
                    ffi::lua_call(state, 0, 1);
                }
                #[cfg(not(feature = "luajit"))]
                ffi::lua_call(state, 1, 1);
                keep(state, &self.script);
                self.object_address.set(ffi::lua_topointer(state, -1));
                keep(state, &self.object);
                ffi::lua_settop(state, 0);
            })
        }
    }

    /// Runs the script in its environment, which must be clean. `is_entered`: this is already the
    /// current environment.
    pub fn begin(
        &self,
        lua: &Lua,
        coroutine: &Coroutine,
        tables: &FrameTables,
        is_entered: bool,
    ) -> First {
        self.is_clean.set(false);
        let (main, state) = (lua.state(), coroutine.state());
        let mut results = 0;
        // SAFETY: both states are alive. The coroutine's stack is empty, so three values fit
        // (LUA_MINSTACK). Both slots of the current one exist, so nothing is allocated.
        let status = unsafe {
            if !is_entered {
                push(state, &tables.current);
                push(state, &self.environment);
                ffi::lua_rawseti(state, 1, ENVIRONMENT as _);
                push(state, &self.object);
                ffi::lua_rawseti(state, 1, OBJECT as _);
                ffi::lua_settop(state, 0);
            }
            push(state, &self.script);
            ffi::lua_resume(state, main, 0, &raw mut results)
        };
        if status != ffi::LUA_OK {
            return coroutine.stopped(lua, status, results);
        }
        // SAFETY: as above; the first result, or nil, becomes the only value.
        unsafe {
            let first = ffi::lua_gettop(state) - results + 1;
            ffi::lua_settop(state, first);
            if first != 1 {
                ffi::lua_replace(state, 1);
                ffi::lua_settop(state, 1);
            }
        }
        First::Returned
    }

    /// Sets the fields of `lighty.header` in this group, sets the body from `lighty.content` if the
    /// script responds, and returns the script's number. `None` if fields, body or result have
    /// other types than string and number: then the caller has to do the rest, as only some fields
    /// may be set.
    pub fn finish(&self, coroutine: &Coroutine, tables: &FrameTables, group: usize) -> Option<f64> {
        let state = coroutine.state();
        // SAFETY: the coroutine has returned, and one value is on its stack. At most nine are
        // (LUA_MINSTACK). Nothing here allocates in Lua or raises an error: only strings are read
        // as such, and only nil is assigned, to existing keys.
        unsafe {
            let number = match ffi::lua_type(state, 1) {
                ffi::LUA_TNIL => 0.0,
                ffi::LUA_TNUMBER => ffi::lua_tonumber(state, 1),
                _ => return None,
            };
            push(state, &self.object);
            let finished = self.finish_fields(state, tables, group).and_then(|is_clean| {
                let has_content = finish_content(state, tables, number >= 200.0)?;
                Some(is_clean && (!has_content || clear_content(state, tables)))
            });
            let is_clean = finished == Some(true) && self.is_environment_clean(state);
            self.is_clean.set(is_clean);
            ffi::lua_settop(state, if finished.is_some() { 0 } else { 1 });
            finished.map(|_| number)
        }
    }

    /// Sets the fields. True if their table can be used again, `None` if not all are set.
    ///
    /// # Safety
    /// As in [`Frame::finish`].
    unsafe fn finish_fields(
        &self,
        state: *mut ffi::lua_State,
        tables: &FrameTables,
        group: usize,
    ) -> Option<bool> {
        // SAFETY: as the caller promises.
        unsafe {
            push(state, &tables.header_name);
            ffi::lua_rawget(state, OBJECT_AT);
            let address = ffi::lua_topointer(state, HEADER_AT);
            if self.header.is_some() && address == self.header_address.get() {
                let is_clean = ffi::lua_getmetatable(state, HEADER_AT) == 0;
                if !is_clean {
                    ffi::lua_settop(state, HEADER_AT);
                }
                return set_fields(state, group, is_clean).map(|count| is_clean && count <= FEW);
            }
            match ffi::lua_type(state, HEADER_AT) {
                ffi::LUA_TTABLE => set_fields(state, group, false).map(|_| false),
                kind => Some(kind == ffi::LUA_TNIL && self.header.is_none()),
            }
        }
    }

    /// True if the environment holds `lighty` and nothing else.
    ///
    /// # Safety
    /// As in [`Frame::finish`]; the topmost value is the one at [`CONTENT_AT`].
    unsafe fn is_environment_clean(&self, state: *mut ffi::lua_State) -> bool {
        // SAFETY: as the caller promises.
        unsafe {
            push(state, &self.environment);
            ffi::lua_pushnil(state);
            let key = ENVIRONMENT_AT + 1;
            if ffi::lua_next(state, ENVIRONMENT_AT) == 0
                || ffi::lua_topointer(state, key + 1) != self.object_address.get()
                || ffi::lua_topointer(state, key) != self.name_address.get()
            {
                return false;
            }
            ffi::lua_settop(state, key);
            ffi::lua_next(state, ENVIRONMENT_AT) == 0
        }
    }
}

/// # Safety
/// The state is alive, and its stack has room.
unsafe fn push(state: *mut ffi::lua_State, pinned: &PinnedValue) {
    // SAFETY: as the caller promises. LuaJIT's compatibility layer requires the type in addition.
    unsafe {
        #[cfg(feature = "luajit")]
        ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, pinned.place);
        #[cfg(not(feature = "luajit"))]
        ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, pinned.place.into());
    }
}

/// Sets each pair of strings as a field, and removes it from the table if `empties` is set. Returns
/// their number; `None` if there are other types or too many pairs, or the host refuses one.
///
/// # Safety
/// As in [`Frame::finish`].
unsafe fn set_fields(state: *mut ffi::lua_State, group: usize, empties: bool) -> Option<c_int> {
    // SAFETY: as the caller promises; name and value are on the stack while their bytes are used.
    // Assigning nil to an existing key is permitted during a traversal.
    unsafe {
        let (name_at, value_at) = (HEADER_AT + 1, HEADER_AT + 2);
        let mut count = 0;
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, HEADER_AT) != 0 {
            count += 1;
            if count > AT_ONCE_MAX
                || ffi::lua_type(state, name_at) != ffi::LUA_TSTRING
                || ffi::lua_type(state, value_at) != ffi::LUA_TSTRING
            {
                return None;
            }
            let (name, value) = (text(state, name_at)?, text(state, value_at)?);
            if ask(|host, answer| host.set(group, name, Some(value), answer)).kind
                == HostReplyKind::Error
            {
                return None;
            }
            ffi::lua_settop(state, name_at);
            if empties {
                ffi::lua_pushvalue(state, name_at);
                ffi::lua_pushnil(state);
                ffi::lua_rawset(state, HEADER_AT);
            }
        }
        Some(count)
    }
}

/// Sets the response's body from a list of strings, if the script responds. Returns true if there
/// is a value for the body, which is then on top of the stack; `None` if it has other types or too
/// many pieces, or the host refuses one.
///
/// # Safety
/// As in [`Frame::finish`].
unsafe fn finish_content(
    state: *mut ffi::lua_State,
    tables: &FrameTables,
    responds: bool,
) -> Option<bool> {
    // SAFETY: as the caller promises; the piece is on the stack while its bytes are used.
    unsafe {
        push(state, &tables.content_name);
        let kind = ffi::lua_rawget(state, OBJECT_AT);
        if !responds || kind != ffi::LUA_TTABLE {
            return Some(kind != ffi::LUA_TNIL);
        }
        let count = ffi::lua_rawlen(state, CONTENT_AT) as ffi::lua_Integer;
        if count > AT_ONCE_MAX as ffi::lua_Integer {
            return None;
        }
        let set = |piece| ask(|host, answer| host.set_body(piece, answer)).kind;
        let add = |piece| ask(|host, answer| host.add_body(piece, answer)).kind;
        if count == 0 && set(b"") == HostReplyKind::Error {
            return None;
        }
        for at in 1..=count {
            if ffi::lua_rawgeti(state, CONTENT_AT, at as _) != ffi::LUA_TSTRING {
                return None;
            }
            let piece = text(state, CONTENT_AT + 1)?;
            let kind = if at == 1 { set(piece) } else { add(piece) };
            if kind == HostReplyKind::Error {
                return None;
            }
            ffi::lua_settop(state, CONTENT_AT);
        }
        Some(true)
    }
}

/// Removes the value for the body from `lighty`. Returns true.
///
/// # Safety
/// As in [`Frame::finish`].
unsafe fn clear_content(state: *mut ffi::lua_State, tables: &FrameTables) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        push(state, &tables.content_name);
        ffi::lua_pushnil(state);
        ffi::lua_rawset(state, OBJECT_AT);
        true
    }
}
