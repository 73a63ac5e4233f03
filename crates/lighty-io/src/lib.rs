//! All system calls of the server and all of its `unsafe` code.
//!
//! This crate listens, accepts, reads and writes sockets, opens, stats and reads files without
//! blocking the event loop, sends queues of chunks to clients, drops privileges, handles signals
//! and writes logs. It knows nothing of HTTP: paths come in as bytes beneath an open root,
//! responses go out as chunks.
//!
//! It does not parse client input, does not assign blame for an error, and holds no configuration.
//! It returns `io::Error` and plain counters, which the crates above interpret.
//!
//! All types belong to one worker and one thread, a tokio `LocalRuntime`, except for the thread
//! pool, the blocking actors, the starters of processes and the log writers.
//!
//! Reading order: `clock` (time), `listen`, `transport` and `tls` (sockets), `file` (the engines
//! that open and read), `stat_cache` (files opened before), `send` (the network backends, the only
//! code that writes to a client), `connect` (connections to backends, names included), `spool`
//! (bodies buffered on disk), `threads` (threads that may block: the pool, databases; handling of
//! panics), `process` (children, signals, privileges, memory), then `log_writer`, `pcre` (patterns
//! that no linear engine can match), `lua_thread`, `lua_frame`, `lua_call` and `lua_hook` (parts of
//! the script engine that bypass mlua), `loan` (a value lent to functions that C calls), `entropy`,
//! `allocator`, and `simulated` (a thread with simulated time, network and faults).
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
pub mod sandbox;
pub mod send;
pub mod simulated;
pub mod spool;
pub mod stat_cache;
pub mod threads;
pub mod tls;
pub mod transport;

/// The system's message for an error, as from `strerror`.
pub fn os_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    // The standard library appends the number.
    match text.rsplit_once(" (os error ") {
        Some((message, _)) => message.to_owned(),
        None => text,
    }
}
