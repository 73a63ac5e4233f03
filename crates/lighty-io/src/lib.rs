//! The machine room: every system call of the server and all of its `unsafe`.
//!
//! This crate listens, accepts, reads and writes sockets, opens, stats and reads files without
//! blocking the event loop, sends queues of chunks to clients, drops privileges, hears signals
//! and writes logs. It knows nothing of HTTP: paths come in as bytes beneath an open root,
//! answers go out as chunks.
//!
//! What it refuses to do: parse anything a client sent, decide who is to blame for an error,
//! or hold a configuration. It returns `io::Error` and plain counters; meaning is given above.
//!
//! Everything but the thread pool, the blocking actors, the starter of processes and the log
//! writers belongs to one worker and one thread: a tokio `LocalRuntime`.
//!
//! Reading order: `clock` (time), `listen`, `transport` and `tls` (sockets), `file` (the engines
//! that open and read), `stat_cache` (what was opened before), `send` (the network backends, the
//! only code that writes to a client), `connect` (the way to a backend, names included), `spool`
//! (bodies that wait on disk), `threads` (where what may block waits: the pool, databases, what
//! becomes of a panic), `process` (children, signals, privileges, memory), then `log_writer`,
//! `pcre` (patterns that no linear engine can match), `lua_thread`, `lua_frame`, `lua_call` and
//! `lua_hook` (what the script engine has to do without mlua), `loan` (a value lent to functions
//! that C calls), `entropy`, `allocator`, and `simulated`, a thread without any of it.
#![warn(missing_docs)]

#[cfg(feature = "mimalloc")]
pub mod allocator;
pub mod clock;
pub mod connect;
pub mod entropy;
pub mod file;
pub mod libraries;
pub mod listen;
pub mod loan;
pub mod log_writer;
#[cfg(any(feature = "luajit", feature = "lua54"))]
pub mod lua_call;
#[cfg(any(feature = "luajit", feature = "lua54"))]
pub mod lua_frame;
#[cfg(any(feature = "luajit", feature = "lua54"))]
pub mod lua_hook;
#[cfg(any(feature = "luajit", feature = "lua54"))]
pub mod lua_thread;
pub mod pcre;
pub mod process;
pub mod send;
pub mod simulated;
pub mod spool;
pub mod stat_cache;
pub mod threads;
pub mod tls;
pub mod transport;

/// The system's words for an error, as `strerror` has them.
pub fn os_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    // The standard library adds the number.
    match text.rsplit_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}
