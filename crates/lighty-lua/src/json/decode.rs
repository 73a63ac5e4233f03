//! Builds Lua values from the pieces of a JSON text.

use mlua::{IntoLua, Lua, LuaString, Result, Table, Value};

use super::reader::{JsonError, JsonPiece, JsonReader};
use super::{array_mark, refused};

/// An array or object that is being filled.
enum Open {
    Array(Table, usize),
    Object(Table, Option<LuaString>),
}

/// The value of a text, and the number of values in it.
pub(super) fn value(lua: &Lua, text: &[u8]) -> (Result<Value>, usize) {
    match JsonReader::new(text) {
        Ok(mut reader) => (whole(lua, &mut reader), reader.values()),
        Err(refusal) => (Err(refused(&format!("decode: {refusal}"))), 0),
    }
}

fn whole(lua: &Lua, reader: &mut JsonReader<'_>) -> Result<Value> {
    let refusal = |refusal: JsonError| refused(&format!("decode: {refusal}"));
    let mark = array_mark(lua)?;
    let mut open: Vec<Open> = Vec::new();
    let mut whole = Value::Nil;
    while let Some(piece) = reader.next_piece().map_err(refusal)? {
        let done = match piece {
            JsonPiece::Null => Value::NULL,
            JsonPiece::Bool(bool) => Value::Boolean(bool),
            JsonPiece::Integer(integer) => integer.into_lua(lua)?,
            JsonPiece::Number(number) => Value::Number(number),
            JsonPiece::String(text) => Value::String(lua.create_string(text.as_bytes())?),
            JsonPiece::BeginArray => {
                let table = lua.create_table()?;
                table.set_metatable(Some(mark.clone()))?;
                open.push(Open::Array(table, 0));
                continue;
            }
            JsonPiece::BeginObject => {
                open.push(Open::Object(lua.create_table()?, None));
                continue;
            }
            JsonPiece::Name(text) => {
                if let Some(Open::Object(_, name)) = open.last_mut() {
                    *name = Some(lua.create_string(text.as_bytes())?);
                }
                continue;
            }
            JsonPiece::EndArray | JsonPiece::EndObject => match open.pop() {
                Some(Open::Array(table, _) | Open::Object(table, _)) => Value::Table(table),
                None => Value::Nil,
            },
        };
        match open.last_mut() {
            None => whole = done,
            Some(Open::Array(table, count)) => {
                *count += 1;
                table.raw_set(*count, done)?;
            }
            Some(Open::Object(table, name)) => table.raw_set(name.take(), done)?,
        }
    }
    Ok(whole)
}
