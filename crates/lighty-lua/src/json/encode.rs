//! Writes Lua values as JSON texts.

use std::io::Write as _;

use lighty_http::json::push_string;
use mlua::{LuaString, Result, Table, Value};

use super::{DEPTH_MAX, OUTPUT_BYTES_MAX, VALUES_MAX, refused};

/// Appends a value, and returns the number of values in it. `mark` is the metatable of tables that
/// are always arrays.
pub(super) fn push(value: &Value, mark: &Table, out: &mut Vec<u8>) -> Result<usize> {
    let mut encoder = Encoder { mark, out, values: 0 };
    encoder.push(value, 0)?;
    Ok(encoder.values)
}

struct Encoder<'a> {
    mark: &'a Table,
    out: &'a mut Vec<u8>,
    values: usize,
}

impl Encoder<'_> {
    fn push(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(refused(&format!("encode: more than {VALUES_MAX} values")));
        }
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => {
                self.out.extend_from_slice(b"null");
            }
            Value::Boolean(bool) => {
                self.out.extend_from_slice(if *bool { b"true" } else { b"false" })
            }
            Value::Integer(integer) => push_integer(*integer, self.out),
            Value::Number(number) => push_number(*number, self.out)?,
            Value::String(text) => self.push_text(&text.as_bytes())?,
            Value::Table(table) => self.push_table(table, depth)?,
            other => {
                let what = other.type_name();
                return Err(refused(&format!("encode: a {what} cannot be written")));
            }
        }
        self.check_length(0)
    }

    /// Fails if `more` bytes would exceed the maximum length.
    fn check_length(&self, more: usize) -> Result<()> {
        if self.out.len() + more > OUTPUT_BYTES_MAX {
            return Err(refused(&format!("encode: more than {OUTPUT_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    /// Appends a string. Escaping may make it six times as long, so its final length is checked
    /// first.
    fn push_text(&mut self, text: &[u8]) -> Result<()> {
        self.check_length(text.len())?;
        let codes = text.iter().filter(|byte| is_written_as_code(**byte)).count();
        self.check_length(text.len() + CODE_BYTES_MORE * codes)?;
        push_string(text, self.out);
        Ok(())
    }

    fn push_table(&mut self, table: &Table, depth: usize) -> Result<()> {
        if depth == DEPTH_MAX {
            return Err(refused(&format!("encode: tables nested deeper than {DEPTH_MAX}")));
        }
        match self.length_of_array(table)? {
            Some(length) => self.push_array(table, length, depth),
            None => self.push_object(table, depth),
        }
    }

    /// The length, if the table is an array: marked as one, or with the keys 1 to n only.
    fn length_of_array(&self, table: &Table) -> Result<Option<usize>> {
        if table.metatable().as_ref() == Some(self.mark) {
            return Ok(Some(table.raw_len()));
        }
        let length = table.raw_len();
        if length == 0 {
            return Ok(None);
        }
        for (count, pair) in table.pairs::<Value, Value>().enumerate() {
            let (key, _) = pair?;
            let is_within = index(&key).is_some_and(|at| (1..=length as i64).contains(&at));
            if !is_within || count == length {
                return Ok(None);
            }
        }
        Ok(Some(length))
    }

    fn push_array(&mut self, table: &Table, length: usize, depth: usize) -> Result<()> {
        self.out.push(b'[');
        for at in 1..=length {
            if at > 1 {
                self.out.push(b',');
            }
            self.push(&table.raw_get(at)?, depth + 1)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn push_object(&mut self, table: &Table, depth: usize) -> Result<()> {
        let mut members: Vec<(Vec<u8>, Value)> = Vec::new();
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            members.push((name(&key)?, value));
            if self.values + members.len() > VALUES_MAX {
                return Err(refused(&format!("encode: more than {VALUES_MAX} values")));
            }
        }
        members.sort_by(|one, other| one.0.cmp(&other.0));
        self.out.push(b'{');
        for (at, (name, value)) in members.iter().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.push_text(name)?;
            self.out.push(b':');
            self.push(value, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// Additional bytes of `\u0001` compared with the byte itself.
const CODE_BYTES_MORE: usize = 5;

/// True for bytes that are always written as a code, never as a letter.
const fn is_written_as_code(byte: u8) -> bool {
    byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')
}

/// The index of an array element that a key stands for, if any.
fn index(key: &Value) -> Option<i64> {
    match key {
        Value::Integer(integer) => Some(*integer),
        // In the range in which a double is exact.
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            Some(*number as i64)
        }
        _ => None,
    }
}

/// A key as the name of a member; numbers are converted.
fn name(key: &Value) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    match key {
        Value::String(text) => out.extend_from_slice(&LuaString::as_bytes(text)),
        Value::Integer(integer) => push_integer(*integer, &mut out),
        Value::Number(number) => push_number(*number, &mut out)?,
        other => {
            let what = other.type_name();
            return Err(refused(&format!("encode: a {what} cannot be a key")));
        }
    }
    Ok(out)
}

fn push_integer(integer: i64, out: &mut Vec<u8>) {
    write!(out, "{integer}").expect("a buffer takes everything");
}

/// Appends the shortest text that parses to the same number.
fn push_number(number: f64, out: &mut Vec<u8>) -> Result<()> {
    if !number.is_finite() {
        return Err(refused("encode: a number must be finite"));
    }
    let size = number.abs();
    let written = match size != 0.0 && !(1e-5..1e16).contains(&size) {
        true => write!(out, "{number:e}"),
        false => write!(out, "{number}"),
    };
    written.expect("a buffer takes everything");
    Ok(())
}
