//! Scripts: the Lua engine, its budgets and its libraries. It knows no server: what a script sees
//! of a request is behind a trait, and what it waits for is a value that the program around it
//! performs, so that a module and a FastCGI program run the same scripts.
//!
//! Reading order: `request` (what a script sees), `call` (what it waits for), `engine` (states,
//! scripts, runs), `budget` (what a run may use), `objects` and `reply` (between Rust and Lua),
//! `cache` (what is compiled), `accounts` (what runs used), `prelude.lua` (the sandbox), `pattern`
//! (patterns with a bound), `chunk` (texts that Lua compiles). `lib_c` are the functions of
//! `lighty.c`, `json` is `lighty.json`, `shared` are the dictionaries of `lighty.shared`, `lfs` is
//! the module of that name; they know Lua, and no request.

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

pub use budget::Limits;
pub use call::{Call, Destination, HttpCall, OpenRequest, Reply, Stat};
pub use chunk::{COMPILE_HERE_MAX, Chunk, Compiled, LoadError, compile};
pub use engine::{Engine, Failure, Input, Progress, Run, Script};
pub use mlua::Error as LuaError;
pub use objects::{LOG_TEXT_BYTES_MAX, Options};
pub use request::{AccessError, Group, Item, Piece, Requests, ScriptRequest};

/// The server's, which keeps the memory of long texts: with another one, most of the time that
/// making such a text takes is the kernel's.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: lighty_io::allocator::Allocator = lighty_io::allocator::Allocator;

/// The Lua of this build.
pub const LUA: &str = if cfg!(feature = "luajit") { "LuaJIT 2.1" } else { "Lua 5.4" };
