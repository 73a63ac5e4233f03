//! Interrupts scripts: a hook that Lua calls after so many instructions, and states that may load C
//! modules. The script engine above decides what happens; what Lua's interface demands of the
//! caller stays here.

use std::cell::Cell;
use std::os::raw::{c_char, c_int};

use mlua::{Lua, LuaOptions, StdLib, ffi};

/// Instructions before the first call of the hook in a run. The judge lengthens the interval while
/// instructions are cheap.
pub const FIRST: i32 = 100;

/// What becomes of the script that the hook interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it run on.
    Continue,
    /// Suspend its coroutine, as if it had called `coroutine.yield()`.
    Yield,
    /// Collect some garbage and ask again.
    Collect,
    /// Raise an error. The hook should be called again at the next instruction, so that a script
    /// which catches the error ends all the same.
    Stop,
}

/// Facts about the interrupted script, for the judge that decides whether it goes on.
#[derive(Clone, Copy, Debug)]
pub struct Interruption {
    /// The script can be suspended where it is.
    pub can_yield: bool,
    /// Instructions since the last call of the hook.
    pub instructions: i32,
    /// Bytes that Lua has allocated, garbage included.
    pub used: usize,
    /// The garbage collector has ended a cycle since it was last asked.
    pub cycle_ended: bool,
}

/// Decides about a script, and after how many instructions the hook is called again.
pub type Judge = fn(Interruption) -> (Verdict, i32);

/// Books work that is not done in Lua's instructions, in instructions that would take as long; true
/// if the hook should be called at the next instruction.
pub type Book = fn(work: u64) -> bool;

thread_local! {
    static JUDGE: Cell<Option<Judge>> = const { Cell::new(None) };
    static BOOK: Cell<Option<Book>> = const { Cell::new(None) };
}

/// Steps of the garbage collector between two questions to the judge, in KB of its debt: some
/// 50 microseconds. Lua 5.4 takes no step where it owes none, but a basic one for 0.
const COLLECT_KB: c_int = if cfg!(feature = "luajit") { 64 } else { 0 };

/// A new state with Lua's own libraries, `ffi` and, outside LuaJIT, nothing else left out. C
/// modules can be loaded; the engine decides which script may.
///
/// # Errors
/// Lua has no memory.
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
    // SAFETY: the function keeps to what Lua demands of one in C.
    #[cfg(not(feature = "luajit"))]
    lua.globals().set("newproxy", unsafe { lua.create_c_function(new_proxy)? })?;
    Ok(lua)
}

/// `newproxy` of Lua 5.1: a value that is no table, with a metatable of its own.
///
/// # Safety
/// Lua alone calls this, with a state that is running.
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

/// Has `judge` called after [`FIRST`] instructions of this thread's scripts, and `book` for what
/// [`booker`]'s function books.
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

/// A function of Lua's that books as many instructions as its argument says.
///
/// # Errors
/// Lua has no memory.
pub fn booker(lua: &Lua) -> mlua::Result<mlua::Function> {
    // SAFETY: the function keeps to what Lua demands of one in C.
    unsafe { lua.create_c_function(book) }
}

/// # Safety
/// Lua alone calls this, with a state that is running. No value here has a destructor.
unsafe extern "C-unwind" fn book(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { book_on(state, ffi::lua_tonumber(state, 1) as u64) }
    0
}

/// Books work of a function in C's manner.
///
/// # Safety
/// The state is running.
pub(crate) unsafe fn book_on(state: *mut ffi::lua_State, work: u64) {
    if BOOK.get().is_some_and(|book| book(work)) {
        // SAFETY: as the caller promises.
        unsafe { arm(state, 1) }
    }
}

/// Calls the hook at the next instruction of the script that runs.
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

/// Instructions that are charged for an error that a script catches.
const CAUGHT: i32 = 200;

/// A function for whoever catches a script's errors: it asks the judge as the hook does, raises the
/// error that stops a script, and returns true if the script should be suspended. Lua calls no hook
/// where the stack has no room for one, but raises an error that a script may catch; and this
/// function, which needs the same room, cannot be passed there either.
///
/// # Errors
/// Lua has no memory.
pub fn checkpoint(lua: &Lua) -> mlua::Result<mlua::Function> {
    // SAFETY: the function keeps to what Lua demands of one in C.
    unsafe { lua.create_c_function(check) }
}

/// # Safety
/// Lua alone calls this, with a state that is running. No value here has a destructor.
unsafe extern "C-unwind" fn check(state: *mut ffi::lua_State) -> c_int {
    let Some(judge) = JUDGE.get() else { return 0 };
    // SAFETY: as for [`interrupt`], in a function of C's instead of a hook.
    unsafe {
        match verdict(state, judge, CAUGHT) {
            Verdict::Continue | Verdict::Collect => 0,
            Verdict::Yield => {
                ffi::lua_pushboolean(state, 1);
                1
            }
            Verdict::Stop => stop(state),
        }
    }
}

/// Asks the judge until it does not want garbage collected, and arms the hook as it says.
///
/// # Safety
/// As for [`check`].
unsafe fn verdict(state: *mut ffi::lua_State, judge: Judge, instructions: i32) -> Verdict {
    // SAFETY: as the caller promises; finalizers of scripts are off, and those of the engine's
    // values call no script.
    unsafe {
        let before = ffi::lua_gethookcount(state);
        let used = || {
            let kb = ffi::lua_gc(state, ffi::LUA_GCCOUNT, 0) as usize;
            kb * 1024 + ffi::lua_gc(state, ffi::LUA_GCCOUNTB, 0) as usize
        };
        let can_yield = lua_isyieldable(state) != 0;
        let mut asked = Interruption { can_yield, instructions, used: used(), cycle_ended: false };
        loop {
            let (verdict, next) = judge(asked);
            if verdict != Verdict::Collect {
                if next != before {
                    arm(state, next);
                }
                return verdict;
            }
            let cycle_ended = ffi::lua_gc(state, ffi::LUA_GCSTEP, COLLECT_KB) != 0;
            asked = Interruption { can_yield, instructions: 0, used: used(), cycle_ended };
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
/// Lua alone calls this, with a state that is running. No value here has a destructor, because Lua
/// leaves by unwinding or by jumping.
unsafe extern "C-unwind" fn interrupt(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    let Some(judge) = JUDGE.get() else { return };
    // SAFETY: as above: the state is valid and the hook may call what Lua allows in a count hook:
    // to yield without values, and to raise an error. Two values fit on any stack (LUA_MINSTACK).
    unsafe {
        let every = ffi::lua_gethookcount(state);
        match verdict(state, judge, every) {
            Verdict::Continue | Verdict::Collect => {}
            Verdict::Yield => {
                ffi::lua_yield(state, 0);
            }
            Verdict::Stop => stop(state),
        }
    }
}
