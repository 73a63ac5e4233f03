//! `lighty.json`: JSON texts (RFC 8259) into Lua values and back, as scripts know it from cjson.
//!
//! `decode(text)` turns null into `lighty.json.null`, objects into tables and arrays into tables
//! that are marked as arrays, so that an empty one is written as one again. `encode(value)` writes
//! a marked table, or one whose keys are 1 to n, as an array, and any other as an object, its keys
//! in order. `array(table)` marks a table. Both raise an error for what they refuse.
//!
//! `reader.rs` reads a text piece by piece and knows no Lua; `decode.rs` builds values from the
//! pieces, `encode.rs` writes them.

pub mod reader;

mod decode;
mod encode;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::argument::{self, Text};
use crate::budget;

/// Bytes of a JSON text that is read.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Bytes of a JSON text that is written.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Values in a JSON text: what takes the time, and the memory.
pub const VALUES_MAX: usize = 8192;

/// Arrays and objects within each other.
pub const DEPTH_MAX: usize = 128;

/// The name under which the mark of arrays is kept.
const ARRAY_MARK: &str = "lighty.json.array";

/// The table `lighty.json`.
///
/// # Errors
/// Lua has no memory for it.
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
        // As `setmetatable` has it: such a table belongs to the engine.
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
    // Also for what was written before it was refused.
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
