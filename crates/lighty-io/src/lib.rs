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
//! Everything but the thread pool, the blocking actors, the starter of processes and the log writers
//! belongs to one worker and one thread: a tokio `LocalRuntime`.
//!
//! Reading order: `clock` and `ticks` (time), `listen` and `transport` (sockets), `file` (the
//! engines that open and read), `stat_cache` (what was opened before), `send` (the network
//! backends, the only code that writes to a client), `resolve` and `connect` (the way to a
//! backend), `spool` (bodies that wait on disk), `cache_file` (bodies that are kept), `pool` (where what
//! may block waits), `small_file` (what is read there whole), `blocking_actor` (databases), `spawn`
//! (processes of ours), then `log_writer`, `local_time`, `pcre` (patterns that no linear engine can
//! match), `signals`, `deadline`, `panics`, `slice`, `threads`, `memory`, `entropy`, `load`,
//! `syscall_fallback` and `privileges`, which the process needs and a request does not, and
//! `simulated`, a thread without any of it.

pub mod blocking_actor;
pub mod cache_file;
pub mod clock;
pub mod connect;
pub mod control;
pub mod deadline;
pub mod entropy;
pub mod file;
pub mod listen;
pub mod load;
pub mod local_time;
pub mod log_writer;
pub mod memory;
pub mod panics;
pub mod pcre;
pub mod pool;
pub mod privileges;
pub mod resolve;
pub mod send;
pub mod signals;
pub mod simulated;
pub mod slice;
pub mod small_file;
pub mod spawn;
pub mod spool;
pub mod stat_cache;
pub mod syscall_fallback;
pub mod terminal;
pub mod threads;
pub mod ticks;
pub mod transport;
