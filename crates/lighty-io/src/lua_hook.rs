//! Interrupts scripts: a hook that Lua calls after a number of instructions, and states that may
//! load C modules. The script engine above decides about a script; the rules of Lua's C interface
//! are observed here.

use std::cell::Cell;
use std::os::raw::{c_char, c_int};

use mlua::{Lua, LuaOptions, StdLib, ffi};

/// Instructions before the first call of the hook in a run. The judge lengthens the interval while
/// instructions are cheap.
pub const FIRST: i32 = 100;

/// Decision about an interrupted script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookVerdict {
    /// Let it run on.
    Continue,
    /// Suspend its coroutine, as if it had called `coroutine.yield()`.
    Yield,
    /// Collect some garbage and ask again.
    Collect,
    /// Raise an error. The hook should be called again at the next instruction, so that a script
    /// which catches the error still ends.
    Stop,
}

/// Facts about the interrupted script, for the judge's decision.
#[derive(Clone, Copy, Debug)]
pub struct Interruption {
    /// The script can be suspended where it is.
    pub can_yield: bool,
    /// Instructions since the last call of the hook.
    pub instructions: i32,
    /// Bytes that Lua has allocated, garbage included.
    pub used: usize,
    /// The garbage collector has ended a cycle since the last call of the judge.
    pub cycle_ended: bool,
}

/// Decides about a script. The number is the instructions until the next call of the hook.
pub type Judge = fn(Interruption) -> (HookVerdict, i32);

/// Records work outside Lua's instructions, as the number of instructions that would take as long;
/// true if the hook should be called at the next instruction.
pub type Book = fn(work: u64) -> bool;

thread_local! {
    static JUDGE: Cell<Option<Judge>> = const { Cell::new(None) };
    static BOOK: Cell<Option<Book>> = const { Cell::new(None) };
}

/// Size of the garbage collector's steps between two calls of the judge, in KB of its debt: about
/// 50 microseconds. Lua 5.4 takes no step without debt, but a basic one for 0.
const COLLECT_KB: c_int = if cfg!(feature = "luajit") { 64 } else { 0 };

/// A new state with all of Lua's own libraries except `ffi`. C modules can be loaded; the engine
/// decides which script may.
///
/// # Errors
/// Lua is out of memory.
pub fn new_state() -> mlua::Result<Lua> {
    #[cfg(not(feature = "luajit"))]
    let coroutine = StdLib::COROUTINE;
    // LuaJIT has coroutines in its base.
    #[cfg(feature = "luajit")]
    let coroutine = StdLib::NONE;
    let libraries = coroutine
        | StdLib::TABLE
        | StdLib::IO
        | StdLib::OS
        | StdLib::STRING
        | StdLib::MATH
        | StdLib::PACKAGE
        | StdLib::DEBUG;
    #[cfg(feature = "luajit")]
    let libraries = libraries | StdLib::BIT | StdLib::JIT;
    #[cfg(not(feature = "luajit"))]
    let libraries = libraries | StdLib::UTF8;
    // With `catch_rust_panics`, `pcall` is Lua's own: scripts may be suspended inside it.
    // SAFETY: the libraries that can corrupt memory are `debug`, `package` (C modules) and `jit`.
    // The engine keeps a reference to each before any script runs and hands scripts none of them.
    let lua = unsafe { Lua::unsafe_new_with(libraries, LuaOptions::new().catch_rust_panics(true)) };
    // SAFETY: the function follows Lua's rules for C functions.
    #[cfg(not(feature = "luajit"))]
    lua.globals().set("newproxy", unsafe { lua.create_c_function(new_proxy)? })?;
    Ok(lua)
}

/// `newproxy` of Lua 5.1: a value other than a table, with a metatable of its own.
///
/// # Safety
/// Only Lua calls this, with a running state.
#[cfg(not(feature = "luajit"))]
unsafe extern "C-unwind" fn new_proxy(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above; two values fit on any stack (LUA_MINSTACK), and the userdata holds nothing.
    unsafe {
        ffi::lua_newuserdata(state, 0);
        ffi::lua_newtable(state);
        ffi::lua_setmetatable(state, -2);
    }
    1
}

/// Installs `judge`, called after [`FIRST`] instructions of this thread's scripts, and `book`,
/// called for work that [`booker`]'s function records.
pub fn watch(lua: &Lua, judge: Judge, book: Book) {
    JUDGE.set(Some(judge));
    BOOK.set(Some(book));
    rearm(lua);
}

/// Calls the hook after [`FIRST`] instructions again, for another script.
pub fn rearm(lua: &Lua) {
    // SAFETY: the state is alive as long as `lua` is, and nothing else runs on this thread.
    unsafe { arm(lua.state(), FIRST) }
}

/// A Lua function that records its argument as a number of instructions.
///
/// # Errors
/// Lua is out of memory.
pub fn booker(lua: &Lua) -> mlua::Result<mlua::Function> {
    // SAFETY: the function follows Lua's rules for C functions.
    unsafe { lua.create_c_function(book) }
}

/// # Safety
/// Only Lua calls this, with a running state. No value here has a destructor.
unsafe extern "C-unwind" fn book(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { book_on(state, ffi::lua_tonumber(state, 1) as u64) }
    0
}

/// Records work of a C function.
///
/// # Safety
/// The state is running.
pub(crate) unsafe fn book_on(state: *mut ffi::lua_State, work: u64) {
    if BOOK.get().is_some_and(|book| book(work)) {
        // SAFETY: as the caller promises.
        unsafe { arm(state, 1) }
    }
}

/// Calls the hook at the next instruction of the running script.
pub fn call_next(lua: &Lua) {
    // SAFETY: as above.
    unsafe { arm(lua.state(), 1) }
}

/// # Safety
/// The state must be alive.
unsafe fn arm(state: *mut ffi::lua_State, instructions: i32) {
    // SAFETY: as the caller promises.
    unsafe {
        ffi::lua_sethook(state, Some(interrupt), ffi::LUA_MASKCOUNT, instructions);
    }
}

#[cfg(feature = "luajit")]
unsafe extern "C-unwind" {
    fn lua_isyieldable(state: *mut ffi::lua_State) -> c_int;
}
#[cfg(not(feature = "luajit"))]
use ffi::lua_isyieldable;

/// Instructions charged for an error that a script catches.
const CAUGHT: i32 = 200;

/// A function for code that catches a script's errors. It calls the judge as the hook does, raises
/// the error that stops a script, and returns true if the script should be suspended. Lua calls no
/// hook if the stack has no space for one, but raises an error that a script may catch; this
/// function needs the same space, so a script cannot get past it either.
///
/// # Errors
/// Lua is out of memory.
pub fn checkpoint(lua: &Lua) -> mlua::Result<mlua::Function> {
    // SAFETY: the function follows Lua's rules for C functions.
    unsafe { lua.create_c_function(check) }
}

/// # Safety
/// Only Lua calls this, with a running state. No value here has a destructor.
unsafe extern "C-unwind" fn check(state: *mut ffi::lua_State) -> c_int {
    let Some(judge) = JUDGE.get() else { return 0 };
    // SAFETY: as for [`interrupt`], in a C function instead of a hook.
    unsafe {
        match verdict(state, judge, CAUGHT) {
            HookVerdict::Continue | HookVerdict::Collect => 0,
            HookVerdict::Yield => {
                ffi::lua_pushboolean(state, 1);
                1
            }
            HookVerdict::Stop => stop(state),
        }
    }
}

/// Calls the judge until it requests no more garbage collection, and arms the hook accordingly.
///
/// # Safety
/// As for [`check`].
unsafe fn verdict(state: *mut ffi::lua_State, judge: Judge, instructions: i32) -> HookVerdict {
    // SAFETY: as the caller promises; finalizers of scripts are disabled, and the ones of the
    // engine's values call no script.
    unsafe {
        let before = ffi::lua_gethookcount(state);
        let used = || {
            let kb = ffi::lua_gc(state, ffi::LUA_GCCOUNT, 0) as usize;
            kb * 1024 + ffi::lua_gc(state, ffi::LUA_GCCOUNTB, 0) as usize
        };
        let can_yield = lua_isyieldable(state) != 0;
        let mut interruption =
            Interruption { can_yield, instructions, used: used(), cycle_ended: false };
        loop {
            let (verdict, next) = judge(interruption);
            if verdict != HookVerdict::Collect {
                if next != before {
                    arm(state, next);
                }
                return verdict;
            }
            let cycle_ended = ffi::lua_gc(state, ffi::LUA_GCSTEP, COLLECT_KB) != 0;
            interruption = Interruption { can_yield, instructions: 0, used: used(), cycle_ended };
        }
    }
}

/// # Safety
/// As for [`check`]; two values fit on any stack (LUA_MINSTACK).
unsafe fn stop(state: *mut ffi::lua_State) -> ! {
    // SAFETY: as the caller promises.
    unsafe {
        ffi::luaL_where(state, 0);
        let text = STOPPED.to_bytes();
        ffi::lua_pushlstring(state, text.as_ptr().cast::<c_char>(), text.len());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

const STOPPED: &std::ffi::CStr = c"the script was stopped: it exceeds a limit";

/// # Safety
/// Only Lua calls this, with a running state. No value here has a destructor, because Lua leaves by
/// unwinding or by jumping.
unsafe extern "C-unwind" fn interrupt(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    let Some(judge) = JUDGE.get() else { return };
    // SAFETY: as above: the state is valid, and the hook only does what Lua allows in a count hook:
    // it yields without values or raises an error. Two values fit on any stack (LUA_MINSTACK).
    unsafe {
        let every = ffi::lua_gethookcount(state);
        match verdict(state, judge, every) {
            HookVerdict::Continue | HookVerdict::Collect => {}
            HookVerdict::Yield => {
                ffi::lua_yield(state, 0);
            }
            HookVerdict::Stop => stop(state),
        }
    }
}
