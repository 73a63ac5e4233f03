//! `lighty.json`: converts JSON texts (RFC 8259) to Lua values and back, in the manner of cjson.
//!
//! `decode(text)` converts null to `lighty.json.null`, objects to tables and arrays to tables that
//! are marked as arrays, so that an empty one is encoded as an array again. `encode(value)` writes
//! a marked table, or one with the keys 1 to n, as an array, and any other as an object, with its
//! keys in order. `array(table)` marks a table. All raise an error for invalid arguments.
//!
//! `reader.rs` reads a text piece by piece and knows no Lua; `decode.rs` builds values from the
//! pieces, `encode.rs` writes them.

pub mod reader;

mod decode;
mod encode;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::argument::{self, Text};
use crate::budget;

/// Maximum bytes of a JSON text to decode.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of an encoded JSON text.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Maximum values in a JSON text, which determine time and memory.
pub const VALUES_MAX: usize = 8192;

/// Maximum nesting of arrays and objects.
pub const DEPTH_MAX: usize = 128;

/// The registry key of the arrays' mark.
const ARRAY_MARK: &str = "lighty.json.array";

/// Creates the table `lighty.json`.
///
/// # Errors
/// Lua is out of memory.
pub fn table(lua: &Lua) -> Result<Table> {
    let mark = lua.create_table()?;
    mark.raw_set("__metatable", "array")?;
    lua.set_named_registry_value(ARRAY_MARK, mark)?;
    let table = lua.create_table()?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("decode", lua.create_function(decode)?)?;
    table.raw_set("encode", lua.create_function(encode)?)?;
    let array = lua.create_function(|lua, table: Option<Table>| {
        let (table, mark) = (table.map_or_else(|| lua.create_table(), Ok)?, array_mark(lua)?);
        // As in `setmetatable`: such a table belongs to the engine.
        if let Some(meta) = table.metatable()
            && meta != mark
            && meta.raw_get::<Value>("__metatable")? != Value::Nil
        {
            return Err(refused("array: cannot change a protected metatable"));
        }
        table.set_metatable(Some(mark))?;
        Ok(table)
    })?;
    table.raw_set("array", array)?;
    Ok(table)
}

fn decode(lua: &Lua, arguments: MultiValue) -> Result<Value> {
    let Some(text) = Text::first(lua, "json.decode", &arguments)? else {
        return Err(refused("decode: no text"));
    };
    argument::check_length(lua, "json.decode", text.bytes().len(), TEXT_BYTES_MAX)?;
    let (value, values) = decode::value(lua, &text.bytes());
    budget::charge(lua, 3 * budget::VALUE * values as u64);
    value
}

fn encode(lua: &Lua, value: Value) -> Result<mlua::LuaString> {
    let mut out = Vec::new();
    let pushed = encode::push(&value, &array_mark(lua)?, &mut out);
    // Charges for a refused value too, up to the error.
    let values = pushed.as_ref().map_or(VALUES_MAX / 4, |values| *values);
    budget::charge_bytes(lua, out.len() + 16 * budget::VALUE as usize * values);
    pushed?;
    lua.create_string(&out)
}

fn array_mark(lua: &Lua) -> Result<Table> {
    lua.named_registry_value(ARRAY_MARK)
}

fn refused(why: &str) -> mlua::Error {
    mlua::Error::RuntimeError(format!("json.{why}"))
}

#[cfg(test)]
mod tests;
