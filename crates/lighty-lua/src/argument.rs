//! Arguments that scripts pass to Rust functions.

use std::borrow::Cow;

use mlua::{BorrowedBytes, Error, Lua, LuaString, MultiValue, Result, Value};

use crate::budget;

/// Maximum bytes of a text for a function of `lighty.c`. A longer one would hold the event loop for
/// more than a few milliseconds.
pub(crate) const TEXT_BYTES_MAX: usize = 512 << 10;

/// Maximum name-value pairs for a function of `lighty.c`: each costs a microsecond.
pub(crate) const PAIRS_MAX: usize = 2048;

/// Maximum tokens that a function of `lighty.c` makes of a field.
pub(crate) const TOKENS_MAX: usize = 4096;

/// A text from a script. Numbers are converted to texts, as everywhere in Lua.
pub(crate) struct Text(LuaString);

impl Text {
    /// The first argument; `None` for nil.
    ///
    /// # Errors
    /// The argument is missing, or not a text.
    pub(crate) fn first(lua: &Lua, function: &str, arguments: &MultiValue) -> Result<Option<Self>> {
        match arguments.front() {
            Some(Value::Nil) => Ok(None),
            Some(value) => Self::of(lua, function, value).map(Some),
            None => Err(refused(1, function, "no value")),
        }
    }

    /// A value as text; nil is an empty text.
    ///
    /// # Errors
    /// The value is not a text.
    pub(crate) fn of(lua: &Lua, function: &str, value: &Value) -> Result<Self> {
        match value {
            Value::String(text) => Ok(Self(text.clone())),
            Value::Nil => lua.create_string("").map(Self),
            Value::Integer(_) | Value::Number(_) => {
                let text = lua.coerce_string(value.clone())?;
                text.map(Self).ok_or_else(|| refused(1, function, "number"))
            }
            other => Err(refused(1, function, other.type_name())),
        }
    }

    /// The bytes of the text.
    #[must_use]
    pub(crate) fn bytes(&self) -> BorrowedBytes {
        self.0.as_bytes()
    }
}

/// All arguments of a function that takes exactly `N` texts; `signature` is its name with them.
///
/// # Errors
/// There are more or fewer, one is not a text, or together they are longer than [`TEXT_BYTES_MAX`].
pub(crate) fn texts<const N: usize>(
    lua: &Lua,
    signature: &str,
    arguments: &MultiValue,
) -> Result<[Text; N]> {
    if arguments.len() != N {
        let what = format!("lighty.c.{signature}: incorrect number of arguments");
        return Err(Error::RuntimeError(what));
    }
    let name = signature.split('(').next().unwrap_or(signature);
    let texts = arguments.iter().map(|value| Text::of(lua, name, value));
    let texts = texts.collect::<Result<Vec<_>>>()?;
    let bytes = texts.iter().map(|text| text.bytes().len()).sum();
    check_length(lua, name, bytes, TEXT_BYTES_MAX)?;
    texts.try_into().map_err(|_| refused(1, name, "no value"))
}

/// Rejects an item after the maximum, and charges the script for the next one otherwise.
/// Charges the script for the item at index `at`, and rejects it beyond the maximum.
/// # Errors
/// There are too many items.
pub(crate) fn check_count(
    lua: &Lua,
    function: &str,
    at: usize,
    (what, max): (&str, usize),
) -> Result<()> {
    if at < max {
        budget::charge(lua, 3 * budget::VALUE);
        return Ok(());
    }
    Err(Error::RuntimeError(format!("{function}: more than {max} {what}")))
}

/// Rejects a text of more than `max` bytes, and charges the script for processing it otherwise.
/// Charges the script for processing a text, and rejects one of more than `max` bytes.
/// # Errors
/// The text is too long.
pub(crate) fn check_length(lua: &Lua, function: &str, bytes: usize, max: usize) -> Result<()> {
    if bytes <= max {
        budget::charge_bytes(lua, bytes);
        return Ok(());
    }
    Err(Error::RuntimeError(format!("{function}: {bytes} bytes of text, limit {max}")))
}

fn refused(position: usize, function: &str, got: &str) -> Error {
    let what = Cow::Borrowed("string expected");
    let text = format!("bad argument #{position} to '{function}' ({what}, got {got})");
    Error::RuntimeError(text)
}
