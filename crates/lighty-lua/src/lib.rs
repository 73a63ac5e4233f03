//! Scripts: the Lua engine, its budgets and its libraries. This crate does not depend on the
//! server: scripts access a request through a trait, and calls that wait are values that the
//! surrounding program performs, so that a module and a FastCGI program run the same scripts.
//!
//! Reading order: `request` (a script's view of a request), `call` (calls that wait), `engine`
//! (states, scripts, runs), `budget` (limits of a run), `objects` and `reply` (between Rust and
//! Lua), `cache` (compiled scripts), `accounts` (resource usage), `prelude.lua` (the sandbox),
//! `pattern` (patterns with a bound), `chunk` (compiling texts). `lib_c` has the functions of
//! `lighty.c`, `json` is `lighty.json`, `shared` has the dictionaries of `lighty.shared`, `lfs` is
//! the module of that name; these know Lua, but no request.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod accounts;
pub mod budget;
pub mod cache;
pub mod call;
pub mod engine;
pub mod json;
pub mod lfs;
pub mod lib_c;
pub mod pattern;
pub mod request;
pub mod shared;

mod argument;
mod chunk;
mod error_text;
mod objects;
mod packing;
mod reply;

pub use budget::RunLimits;
pub use call::{Call, Destination, HttpCall, OpenRequest, Reply, Stat};
pub use chunk::{COMPILE_HERE_MAX, Chunk, Compiled, LoadError, compile};
pub use engine::{Engine, EngineRun, RunInput, RunProgress, Script, ScriptFailure};
pub use mlua::Error as LuaError;
pub use objects::{LOG_TEXT_BYTES_MAX, ScriptOptions};
pub use request::{AccessError, BodyPiece, Group, Requests, ScriptRequest, ScriptValue};

/// The server's allocator, which keeps the memory of long texts. With others, most of the time for
/// creating such a text is spent in the kernel.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: lighty_io::allocator::Allocator = lighty_io::allocator::Allocator;

/// The Lua implementation of this build.
pub const LUA: &str = if cfg!(feature = "luajit") { "LuaJIT 2.1" } else { "Lua 5.4" };
