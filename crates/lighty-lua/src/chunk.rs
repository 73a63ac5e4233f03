//! Compiles texts, also on other threads, and estimates their cost before.
//!
//! The compiler cannot be interrupted: it takes a tenth of a second for a megabyte. Long texts are
//! compiled by another thread, in a state of its own, and the event loop only loads the byte code.
//! Only byte code from this process is loaded; byte code in scripts is refused.

use std::borrow::Cow;

use lighty_io::lua_hook;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua};

use crate::error_text::message;

/// A compiled text that can be run with any environment, in the engine that compiled it.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk(pub(crate) Function);

/// Reason why a script cannot be compiled.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoadError {
    /// The file at this path contains byte code, which could corrupt memory.
    #[error("{0}: byte code is not loaded")]
    ByteCode(Box<str>),
    /// It is not valid Lua; the compiler's message.
    #[error("{0}")]
    NotLua(String),
    /// Lua is out of memory.
    #[error("{0}")]
    Memory(String),
}

impl From<mlua::Error> for LoadError {
    fn from(error: mlua::Error) -> Self {
        Self::Memory(message(&error))
    }
}

/// Maximum bytes of a text that is compiled on the event loop. Longer ones go to another thread.
pub const COMPILE_HERE_MAX: usize = 8 << 10;

/// A compiled chunk that can be loaded into another state.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) bytes: Vec<u8>,
    /// Its text contains `header`.
    pub(crate) has_header: bool,
}

/// Wrapper around a text: each run calls the outer function for a closure of its own, with its own
/// environment.
const HEAD: &[u8] = match cfg!(feature = "luajit") {
    true => b"return function(...) ",
    false => b"local _ENV = ... return function(...) ",
};

/// Compiles a text, on any thread. `name` is the chunk's name, `@PATH` for a file.
///
/// # Errors
/// A message with path and line, if it is not valid Lua.
pub fn compile(name: &str, source: &[u8]) -> Result<Compiled, LoadError> {
    let lua = lua_hook::new_state()?;
    let bytes = factory(&lua, name, source)?.dump(false);
    Ok(Compiled { bytes, has_header: names_header(source) })
}

/// The function that creates closures of a text, in this state.
pub(crate) fn factory(lua: &Lua, name: &str, source: &[u8]) -> Result<Function, LoadError> {
    if source.starts_with(b"\x1b") {
        return Err(LoadError::ByteCode(name.trim_start_matches('@').into()));
    }
    let text = without_shebang(source);
    let chunk = |text: &[u8]| {
        let made = lua.load(text).set_name(name).set_mode(ChunkMode::Text).into_function();
        made.map_err(|error| LoadError::NotLua(message(&error)))
    };
    // Compiled alone first, so that the wrapper cannot complete an incomplete text.
    chunk(&text)?;
    chunk(&[HEAD, &text, b"\nend"].concat())
}

/// Like [`factory`], from byte code compiled on another thread.
pub(crate) fn loaded(lua: &Lua, name: &str, compiled: &Compiled) -> mlua::Result<Function> {
    let chunk = lua.load(&compiled.bytes[..]).set_name(name);
    chunk.set_mode(ChunkMode::Binary).into_function()
}

pub(crate) fn names_header(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"header").is_some()
}

/// The source with a first line `#!...` emptied, so that line numbers stay the same.
fn without_shebang(source: &[u8]) -> Cow<'_, [u8]> {
    let source = source.strip_prefix(b"\xef\xbb\xbf").unwrap_or(source);
    match source.first() {
        Some(b'#') => {
            let line = source.iter().position(|byte| *byte == b'\n').unwrap_or(source.len());
            source[line..].into()
        }
        _ => source.into(),
    }
}

/// Words that the compiler turns into chains of jumps. It follows a chain to its end for each added
/// jump, so that the time grows with the square of their number.
const JUMPS: &[&[u8]] = &[b"and", b"or", b"elseif", b"break", b"goto"];

/// Number of words in a text that cause jumps, including words in comments and quotes.
pub(crate) fn jumps(text: &[u8]) -> usize {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    text.split(|byte| !is_of_word(byte)).filter(|word| JUMPS.contains(word)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_other_threads_are_those_of_this_one() {
        let lua = lua_hook::new_state().expect("a state");
        let thread = std::thread::spawn(|| compile("@/a.lua", b"#!x\nreturn ... + 1"));
        let compiled = thread.join().expect("a thread").expect("Lua");
        let factory = loaded(&lua, "@/a.lua", &compiled).expect("byte code");
        let made: Function = factory.call(lua.globals()).expect("a closure");
        assert_eq!(made.call::<i64>(6).expect("a number"), 7);
        let error = made.call::<i64>("x").expect_err("no number").to_string();
        assert!(error.contains("/a.lua:2:"), "{error}");
        let refused = compile("@/a.lua", b"return 1 end do").expect_err("not Lua").to_string();
        assert!(refused.starts_with("/a.lua:1:"), "{refused}");
        assert!(matches!(compile("@/a.lua", b"\x1bLJ\x02"), Err(LoadError::ByteCode(_))));
    }

    #[test]
    fn words_that_jump_are_counted() {
        assert_eq!(jumps(b""), 0);
        assert_eq!(jumps(b"android = error or_else"), 0);
        assert_eq!(jumps(b"return a and(b)or c -- and so on"), 3);
        assert_eq!(jumps(b"while a do if b then break elseif c then goto d end end"), 3);
    }
}
