//! C functions by which scripts access their host: values by name, fields, the body. Rust closures
//! behind mlua's handles cost ten times as much.
//!
//! Lua leaves a function by unwinding or by jumping. Therefore no value with a destructor may be
//! alive at any point where Lua may do so: `ask` has dropped all of them when it returns.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::os::raw::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use mlua::{Function, IntoLua, Lua, Result, Table, Value, ffi};

use crate::lua_hook;

/// Source and destination of scripts' values.
pub trait ScriptHost {
    /// The value of a name in a group.
    fn get(&self, group: usize, name: &[u8], answer: &mut HostReply);

    /// Changes or, with `None`, removes a value.
    fn set(&self, group: usize, name: &[u8], value: Option<&[u8]>, answer: &mut HostReply);

    /// Replaces the response's body; an empty text leaves none.
    fn set_body(&self, bytes: &[u8], answer: &mut HostReply);

    /// Appends to the response's body.
    fn add_body(&self, bytes: &[u8], answer: &mut HostReply);
}

/// A host's reply to a script; nil by default.
#[derive(Default)]
pub struct HostReply {
    kind: HostReplyKind,
    number: i64,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum HostReplyKind {
    #[default]
    Nil,
    Bool,
    Number,
    Bytes,
    /// The bytes are an error message to raise.
    Error,
}

impl HostReply {
    /// Replies with a boolean.
    pub fn bool(&mut self, value: bool) {
        (self.kind, self.number) = (HostReplyKind::Bool, value.into());
    }

    /// Replies with a number.
    pub fn number(&mut self, value: i64) {
        (self.kind, self.number) = (HostReplyKind::Number, value);
    }

    /// Replies with a string.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.kind = HostReplyKind::Bytes;
        self.bytes.extend_from_slice(bytes);
    }

    /// Replies with a string, without a copy.
    pub fn own_bytes(&mut self, bytes: Vec<u8>) {
        self.kind = HostReplyKind::Bytes;
        self.bytes = bytes;
    }

    /// Replies with an error, raised where the script made the call.
    pub fn error(&mut self, text: &str) {
        self.kind = HostReplyKind::Error;
        self.bytes.clear();
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

/// Cost of a call to the host in instructions: fields are searched one by one.
const QUESTION: u64 = 100;

/// Bytes of a reply or a value that cost one instruction: they are copied several times.
const BYTES_INSTRUCTION: usize = 4;

/// Capacity of the reply buffer that is kept for the next reply.
const KEPT_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static HOST: RefCell<Option<Rc<dyn ScriptHost>>> = const { RefCell::new(None) };
    static ANSWER: RefCell<HostReply> =
        const { RefCell::new(HostReply { kind: HostReplyKind::Nil, number: 0, bytes: Vec::new() }) };
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
}

/// Runs `work`; meanwhile this host serves the scripts of this thread. A panic of the host resumes
/// here.
pub fn with_host<T>(host: &Rc<dyn ScriptHost>, work: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            HOST.set(None);
        }
    }
    HOST.set(Some(Rc::clone(host)));
    let leave = Leave;
    let done = work();
    drop(leave);
    if let Some(panic) = PANIC.take() {
        resume_unwind(panic);
    }
    done
}

/// A reply without a destructor. Its bytes belong to the thread, until the next call of the host.
#[derive(Clone, Copy)]
pub(crate) struct RawReply {
    pub(crate) kind: HostReplyKind,
    number: i64,
    bytes: *const c_char,
    length: usize,
}

pub(crate) fn ask(question: impl FnOnce(&dyn ScriptHost, &mut HostReply)) -> RawReply {
    ANSWER.with_borrow_mut(|answer| {
        answer.kind = HostReplyKind::Nil;
        answer.bytes.clear();
        answer.bytes.shrink_to(KEPT_BYTES_MAX);
        HOST.with_borrow(|host| match host {
            Some(host) => {
                let outcome = catch_unwind(AssertUnwindSafe(|| question(&**host, answer)));
                if let Err(panic) = outcome {
                    PANIC.set(Some(panic));
                    answer.error("the server has failed");
                }
            }
            None => answer.error("there is no request here"),
        });
        let bytes = answer.bytes.as_ptr().cast();
        RawReply { kind: answer.kind, number: answer.number, bytes, length: answer.bytes.len() }
    })
}

/// Pushes the reply on the stack, or raises it.
///
/// # Safety
/// As for [`get`]; the host was not called since.
unsafe fn push(state: *mut ffi::lua_State, reply: RawReply) -> c_int {
    // SAFETY: as the caller promises. Two values fit on any stack (LUA_MINSTACK).
    unsafe {
        match reply.kind {
            HostReplyKind::Nil => ffi::lua_pushnil(state),
            HostReplyKind::Bool => ffi::lua_pushboolean(state, c_int::from(reply.number != 0)),
            HostReplyKind::Number => ffi::lua_pushinteger(state, reply.number as ffi::lua_Integer),
            HostReplyKind::Bytes => {
                ffi::lua_pushlstring(state, reply.bytes, reply.length);
            }
            HostReplyKind::Error => {
                ffi::luaL_where(state, 1);
                ffi::lua_pushlstring(state, reply.bytes, reply.length);
                ffi::lua_concat(state, 2);
                ffi::lua_error(state);
            }
        }
        1
    }
}

/// The bytes of a string on the stack. A number is converted to a string.
///
/// # Safety
/// As for [`get`]; the value stays on the stack as long as the bytes are used.
pub(crate) unsafe fn text<'a>(state: *mut ffi::lua_State, index: c_int) -> Option<&'a [u8]> {
    let mut length = 0;
    // SAFETY: as the caller promises; the length is that of the text.
    unsafe {
        let bytes = ffi::lua_tolstring(state, index, &raw mut length);
        (!bytes.is_null()).then(|| std::slice::from_raw_parts(bytes.cast(), length))
    }
}

/// `object[name]`. Its upvalue is the group.
///
/// # Safety
/// Only Lua calls this, with a running state.
unsafe extern "C-unwind" fn get(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above; the name is the call's argument until it returns.
    unsafe {
        let group = ffi::lua_tointeger(state, ffi::lua_upvalueindex(1)) as usize;
        let Some(name) = text(state, 2) else {
            ffi::lua_pushnil(state);
            return 1;
        };
        let reply = ask(|host, answer| host.get(group, name, answer));
        lua_hook::book_on(state, QUESTION + (reply.length / BYTES_INSTRUCTION) as u64);
        push(state, reply)
    }
}

/// `object[name] = value`. Its upvalue is the group.
///
/// # Safety
/// As for [`get`].
unsafe extern "C-unwind" fn set(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above; name and value are the call's arguments until it returns.
    unsafe {
        let group = ffi::lua_tointeger(state, ffi::lua_upvalueindex(1)) as usize;
        ffi::luaL_checklstring(state, 2, std::ptr::null_mut());
        if ffi::lua_type(state, 3) > ffi::LUA_TNIL {
            ffi::luaL_checklstring(state, 3, std::ptr::null_mut());
        }
        let (name, value) = (text(state, 2).unwrap_or_default(), text(state, 3));
        let reply = ask(|host, answer| host.set(group, name, value, answer));
        let bytes = name.len() + value.map_or(0, <[u8]>::len);
        lua_hook::book_on(state, QUESTION + (bytes / BYTES_INSTRUCTION) as u64);
        if reply.kind == HostReplyKind::Error {
            push(state, reply);
        }
        0
    }
}

/// `object[name]` of a group, as a Lua function.
///
/// # Errors
/// Lua is out of memory.
pub fn getter(lua: &Lua, group: usize) -> Result<Function> {
    closure(lua, get, &[group.into_lua(lua)?])
}

/// `object[name] = value` of a group, as a Lua function.
///
/// # Errors
/// Lua is out of memory.
pub fn setter(lua: &Lua, group: usize) -> Result<Function> {
    closure(lua, set, &[group.into_lua(lua)?])
}

/// A C function with upvalues.
fn closure(lua: &Lua, function: ffi::lua_CFunction, upvalues: &[Value]) -> Result<Function> {
    let count = upvalues.len() as c_int;
    let upvalues: mlua::MultiValue = upvalues.iter().cloned().collect();
    // SAFETY: the upvalues are on the stack; the functions here follow Lua's rules for C functions.
    unsafe { lua.exec_raw(upvalues, |state| ffi::lua_pushcclosure(state, function, count)) }
}

/// The table that holds a run's environment ([`ENVIRONMENT`]) and its `lighty` ([`OBJECT`]).
pub type Current = Table;

/// Index of the environment in [`Current`].
pub const ENVIRONMENT: c_int = 1;

/// Index of the object that scripts call `lighty`.
pub const OBJECT: c_int = 2;

/// The script sets fields by `lighty.header`.
pub const HAS_HEADER: u8 = 1;

/// A function that creates a run's environment and returns its script, ready to be called. Its
/// arguments are a function that creates the script, and [`HAS_HEADER`] or 0.
///
/// # Errors
/// Lua is out of memory.
pub fn enterer(lua: &Lua, current: &Current, env_meta: Table, meta: Table) -> Result<Function> {
    let names = ["lighty", "header"];
    let [lighty, header] = names.map(|name| lua.create_string(name).map(Value::String));
    let upvalues = [current.clone(), env_meta, meta].map(Value::Table);
    let [current, env_meta, meta] = upvalues;
    closure(lua, enter, &[current, env_meta, meta, lighty?, header?])
}

/// # Safety
/// As for [`get`].
unsafe extern "C-unwind" fn enter(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above; five values fit on any stack (LUA_MINSTACK), the upvalues are set by
    // [`enterer`].
    unsafe {
        let flags = ffi::lua_tointeger(state, 2) as u8;
        ffi::lua_createtable(state, 0, 2);
        let env = ffi::lua_gettop(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_setmetatable(state, env);
        ffi::lua_createtable(state, 0, 2);
        let object = env + 1;
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
        ffi::lua_setmetatable(state, object);
        if flags & HAS_HEADER != 0 {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(5));
            ffi::lua_createtable(state, 0, 1);
            ffi::lua_rawset(state, object);
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(4));
        ffi::lua_pushvalue(state, object);
        ffi::lua_rawset(state, env);
        ffi::lua_rawseti(state, ffi::lua_upvalueindex(1), OBJECT as _);
        ffi::lua_pushvalue(state, env);
        ffi::lua_rawseti(state, ffi::lua_upvalueindex(1), ENVIRONMENT as _);
        // In LuaJIT a function inherits the environment of its creator; in Lua 5.4 it is an
        // argument.
        #[cfg(feature = "luajit")]
        {
            ffi::lua_setfenv(state, 1);
            ffi::lua_pushvalue(state, 1);
            ffi::lua_call(state, 0, 1);
        }
        #[cfg(not(feature = "luajit"))]
        {
            ffi::lua_pushvalue(state, 1);
            ffi::lua_pushvalue(state, env);
            ffi::lua_call(state, 1, 1);
        }
        1
    }
}

/// A function that instantiates a chunk with an environment. Its arguments are the function that
/// creates the closure, and the environment. It cannot be suspended between the two steps: other
/// runs give the same function other environments.
///
/// # Errors
/// Lua is out of memory.
pub fn instantiator(lua: &Lua) -> Result<Function> {
    closure(lua, instantiate, &[])
}

/// # Safety
/// As for [`get`].
unsafe extern "C-unwind" fn instantiate(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above; the function and the environment are the call's arguments.
    unsafe {
        ffi::lua_settop(state, 2);
        #[cfg(feature = "luajit")]
        {
            ffi::lua_setfenv(state, 1);
            ffi::lua_call(state, 0, 1);
        }
        #[cfg(not(feature = "luajit"))]
        ffi::lua_call(state, 1, 1);
        1
    }
}

/// Maximum number of fields or pieces that [`finisher`]'s function processes: it cannot be
/// interrupted.
pub(crate) const AT_ONCE_MAX: c_int = 256;

/// A function for the end of a run. Its argument is the script's result. It sets the fields of
/// `lighty.header` in this group, and the body from `lighty.content` if the script responds. It
/// returns the script's number. If number, fields or body have types that it does not handle, it
/// changes nothing and returns `true` as a second value.
///
/// # Errors
/// Lua is out of memory.
pub fn finisher(lua: &Lua, current: &Current, group: usize) -> Result<Function> {
    let names = ["header", "content"];
    let [header, content] = names.map(|name| lua.create_string(name).map(Value::String));
    let current = Value::Table(current.clone());
    closure(lua, finish, &[current, header?, content?, group.into_lua(lua)?])
}

/// # Safety
/// As for [`get`].
unsafe extern "C-unwind" fn finish(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above; at most seven values are on the stack at a time (LUA_MINSTACK), the
    // upvalues are set by [`finisher`].
    unsafe {
        ffi::lua_settop(state, 1);
        let kind = ffi::lua_type(state, 1);
        ffi::lua_rawgeti(state, ffi::lua_upvalueindex(1), OBJECT as _);
        let is_plain = kind == ffi::LUA_TNIL || kind == ffi::LUA_TNUMBER;
        let number = ffi::lua_tonumber(state, 1);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_rawget(state, 2);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
        ffi::lua_rawget(state, 2);
        let responds = number >= 200.0;
        let content_is_plain = !responds || is_list_of_texts(state, 4);
        if !is_plain || !content_is_plain || !has_few(state, 3) {
            ffi::lua_settop(state, 1);
            ffi::lua_pushboolean(state, 1);
            return 2;
        }
        set_fields(state, 3);
        if responds && ffi::lua_type(state, 4) == ffi::LUA_TTABLE {
            add_pieces(state, 4);
        }
        ffi::lua_pushnumber(state, if kind == ffi::LUA_TNIL { 0.0 } else { number });
        1
    }
}

/// True if the value is not a table, or a table of at most [`AT_ONCE_MAX`] strings and numbers.
///
/// # Safety
/// As for [`get`]; the index is valid.
unsafe fn is_list_of_texts(state: *mut ffi::lua_State, index: c_int) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        if ffi::lua_type(state, index) != ffi::LUA_TTABLE {
            return true;
        }
        let count = ffi::lua_rawlen(state, index) as ffi::lua_Integer;
        (count <= AT_ONCE_MAX as ffi::lua_Integer)
            && (1..=count).all(|at| {
                ffi::lua_rawgeti(state, index, at as _);
                let kind = ffi::lua_type(state, -1);
                ffi::lua_settop(state, -2);
                kind == ffi::LUA_TSTRING || kind == ffi::LUA_TNUMBER
            })
    }
}

/// True if the value is not a table, or one with fewer than [`AT_ONCE_MAX`] pairs.
///
/// # Safety
/// As for [`is_list_of_texts`].
unsafe fn has_few(state: *mut ffi::lua_State, index: c_int) -> bool {
    // SAFETY: as the caller promises; the pairs are popped again.
    unsafe {
        if ffi::lua_type(state, index) != ffi::LUA_TTABLE {
            return true;
        }
        let top = ffi::lua_gettop(state);
        ffi::lua_pushnil(state);
        let mut left = AT_ONCE_MAX;
        while left > 0 && ffi::lua_next(state, index) != 0 {
            ffi::lua_settop(state, -2);
            left -= 1;
        }
        ffi::lua_settop(state, top);
        left > 0
    }
}

/// Sets each pair of a string and a string or number as a field. Other pairs are skipped.
///
/// # Safety
/// As for [`is_list_of_texts`].
unsafe fn set_fields(state: *mut ffi::lua_State, index: c_int) {
    // SAFETY: as the caller promises; the value is on the stack while its bytes are used.
    unsafe {
        if ffi::lua_type(state, index) != ffi::LUA_TTABLE {
            return;
        }
        let group = ffi::lua_tointeger(state, ffi::lua_upvalueindex(4)) as usize;
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, index) != 0 {
            let kind = ffi::lua_type(state, -1);
            if ffi::lua_type(state, -2) == ffi::LUA_TSTRING
                && (kind == ffi::LUA_TSTRING || kind == ffi::LUA_TNUMBER)
                && let (Some(name), Some(value)) = (text(state, -2), text(state, -1))
            {
                let reply = ask(|host, answer| host.set(group, name, Some(value), answer));
                if reply.kind == HostReplyKind::Error {
                    push(state, reply);
                }
            }
            ffi::lua_settop(state, -2);
        }
    }
}

/// Sets the response's body from a list of strings.
///
/// # Safety
/// As for [`is_list_of_texts`].
unsafe fn add_pieces(state: *mut ffi::lua_State, index: c_int) {
    // SAFETY: as the caller promises; the piece is on the stack while its bytes are used.
    unsafe {
        let mut reply = ask(|host, answer| host.set_body(b"", answer));
        let count = ffi::lua_rawlen(state, index) as ffi::lua_Integer;
        for at in 1..=count {
            ffi::lua_rawgeti(state, index, at as _);
            if reply.kind != HostReplyKind::Error
                && let Some(piece) = text(state, -1)
            {
                reply = ask(|host, answer| host.add_body(piece, answer));
            }
            ffi::lua_settop(state, -2);
        }
        if reply.kind == HostReplyKind::Error {
            push(state, reply);
        }
    }
}
