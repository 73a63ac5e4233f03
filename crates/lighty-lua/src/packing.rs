//! `string.pack`, `string.unpack` and `string.packsize` of Lua 5.3 for LuaJIT, which lacks them.
//!
//! LuaJIT's numbers are doubles: an integer beyond 2^53 is rounded.

use mlua::{Error, Lua, MultiValue, Result, Table, Value};

use crate::argument::{TEXT_BYTES_MAX, Text, check_length};
use crate::budget;

/// Maximum bytes of an integer, as in Lua.
const INTEGER_MAX: usize = 16;

/// Bytes of a Lua integer.
const NATIVE: usize = 8;

/// Maximum number of options in a format. Each costs as much as a value.
const OPTIONS_MAX: usize = 8192;

/// An option of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackOption {
    Signed(usize),
    Unsigned(usize),
    Float,
    Double,
    /// A text of fixed length, padded with zeros.
    Fixed(usize),
    /// A text after its length, which is an integer of this size.
    Counted(usize),
    ZeroEnded,
    Padding,
    /// Only the padding before it.
    Alignment,
}

/// Parses a format, and tracks the byte order and alignment.
struct PackFormat<'a> {
    rest: &'a [u8],
    is_big: bool,
    max_alignment: usize,
    read: usize,
}

fn failure(text: impl Into<String>) -> Error {
    Error::RuntimeError(text.into())
}

impl<'a> PackFormat<'a> {
    fn new(text: &'a [u8]) -> Self {
        let is_big = cfg!(target_endian = "big");
        Self { rest: text, is_big, max_alignment: 1, read: 0 }
    }

    /// The number after an option.
    fn number(&mut self) -> Option<usize> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let add = |sum: usize, digit: &u8| sum.saturating_mul(10) + usize::from(digit - b'0');
        (!digits.is_empty()).then(|| digits.iter().fold(0, add))
    }

    fn size(&mut self, otherwise: usize) -> Result<usize> {
        match self.number() {
            None => Ok(otherwise),
            Some(size) if (1..=INTEGER_MAX).contains(&size) => Ok(size),
            Some(size) => {
                let limits = format!("out of limits [1,{INTEGER_MAX}]");
                Err(failure(format!("integral size ({size}) {limits}")))
            }
        }
    }

    /// Parses the next option; `None` for one that only changes how others are read.
    fn item(&mut self, option: u8) -> Result<Option<PackOption>> {
        let item = match option {
            b'b' => PackOption::Signed(1),
            b'B' => PackOption::Unsigned(1),
            b'h' => PackOption::Signed(2),
            b'H' => PackOption::Unsigned(2),
            b'i' => PackOption::Signed(self.size(4)?),
            b'I' => PackOption::Unsigned(self.size(4)?),
            b'l' | b'j' => PackOption::Signed(NATIVE),
            b'L' | b'J' | b'T' => PackOption::Unsigned(NATIVE),
            b'f' => PackOption::Float,
            b'd' | b'n' => PackOption::Double,
            b's' => PackOption::Counted(self.size(NATIVE)?),
            b'c' => PackOption::Fixed(
                self.number().ok_or_else(|| failure("missing size for format option 'c'"))?,
            ),
            b'z' => PackOption::ZeroEnded,
            b'x' => PackOption::Padding,
            b'X' => PackOption::Alignment,
            b' ' => return Ok(None),
            b'<' | b'>' | b'=' => {
                self.is_big = option == b'>' || option == b'=' && cfg!(target_endian = "big");
                return Ok(None);
            }
            b'!' => {
                self.max_alignment = self.size(NATIVE)?;
                return Ok(None);
            }
            other => {
                let option = char::from(other);
                return Err(failure(format!("invalid format option '{option}'")));
            }
        };
        Ok(Some(item))
    }

    /// The next value of the format, and the number of padding bytes before it at offset `at`.
    fn next(&mut self, lua: &Lua, at: usize) -> Result<Option<(PackOption, usize)>> {
        while let Some((&option, rest)) = self.rest.split_first() {
            self.read += 1;
            if self.read > OPTIONS_MAX {
                return Err(failure(format!("more than {OPTIONS_MAX} format options")));
            }
            budget::charge(lua, budget::VALUE);
            self.rest = rest;
            let Some(item) = self.item(option)? else { continue };
            let align = match item {
                PackOption::Alignment => self.next_alignment()?,
                _ => item.alignment(),
            };
            let align = align.min(self.max_alignment);
            if align <= 1 {
                return Ok(Some((item, 0)));
            }
            if !align.is_power_of_two() {
                return Err(failure("format asks for alignment not power of 2"));
            }
            return Ok(Some((item, at.wrapping_neg() & (align - 1))));
        }
        Ok(None)
    }

    /// The alignment of the option after `X`, which is not packed.
    fn next_alignment(&mut self) -> Result<usize> {
        let wrong = || failure("invalid next option for option 'X'");
        let (&option, rest) = self.rest.split_first().ok_or_else(wrong)?;
        self.rest = rest;
        let align = self.item(option)?.map_or(0, PackOption::alignment);
        if align == 0 { Err(wrong()) } else { Ok(align) }
    }
}

impl PackOption {
    fn alignment(self) -> usize {
        match self {
            Self::Signed(size) | Self::Unsigned(size) | Self::Counted(size) => size,
            Self::Float => 4,
            Self::Double => 8,
            Self::Fixed(_) | Self::ZeroEnded | Self::Padding | Self::Alignment => 0,
        }
    }

    /// Its size in bytes, if that is the same for all values.
    fn fixed_size(self) -> Option<usize> {
        match self {
            Self::Counted(_) | Self::ZeroEnded => None,
            Self::Fixed(size) => Some(size),
            Self::Padding => Some(1),
            other => Some(other.alignment()),
        }
    }
}

fn push_integer(out: &mut Vec<u8>, value: i128, size: usize, is_big: bool) {
    let bytes = value.to_le_bytes();
    let from = out.len();
    out.extend_from_slice(&bytes[..size]);
    if is_big {
        out[from..].reverse();
    }
}

fn integer(bytes: &[u8], is_big: bool, is_signed: bool) -> Result<Value> {
    let size = bytes.len();
    let mut all = [0; INTEGER_MAX];
    for (at, byte) in bytes.iter().enumerate() {
        all[if is_big { size - 1 - at } else { at }] = *byte;
    }
    if is_signed && all[size - 1] >= 0x80 {
        all[size..].fill(0xff);
    }
    let value = i128::from_le_bytes(all);
    let fits = if is_signed { i64::try_from(value).is_ok() } else { u64::try_from(value).is_ok() };
    if size > NATIVE && !fits {
        return Err(failure(format!("{size}-byte integer does not fit into Lua Integer")));
    }
    // Unsigned eight-byte integers become signed in Lua.
    Ok(Value::Integer(value as i64))
}

/// The integer, or an error if it does not fit into the option's size.
fn checked_integer(value: &Value, item: PackOption) -> Result<i64> {
    let number = match value {
        Value::Integer(value) => *value,
        Value::Number(value) if value.fract() == 0.0 && value.abs() < 2f64.powi(63) => {
            *value as i64
        }
        Value::Number(_) => return Err(failure("number has no integer representation")),
        Value::String(text) => {
            let text = text.to_string_lossy();
            text.trim().parse().map_err(|_| failure("number expected, got string"))?
        }
        other => return Err(failure(format!("number expected, got {}", other.type_name()))),
    };
    match item {
        PackOption::Signed(size) if size < NATIVE => {
            let limit = 1i64 << (8 * size - 1);
            let fits = (-limit..limit).contains(&number);
            if fits { Ok(number) } else { Err(failure("integer overflow")) }
        }
        PackOption::Unsigned(size) if size < NATIVE => {
            let fits = (number as u64) < 1 << (8 * size);
            if fits { Ok(number) } else { Err(failure("unsigned overflow")) }
        }
        _ => Ok(number),
    }
}

fn double(value: &Value) -> Result<f64> {
    match value {
        Value::Integer(value) => Ok(*value as f64),
        Value::Number(value) => Ok(*value),
        other => Err(failure(format!("number expected, got {}", other.type_name()))),
    }
}

/// The text to pack.
fn text_of(lua: &Lua, value: &Value) -> Result<Text> {
    match value {
        Value::Nil => Err(failure("string expected, got nil")),
        value => Text::of(lua, "pack", value),
    }
}

fn push(lua: &Lua, out: &mut Vec<u8>, item: PackOption, value: &Value, is_big: bool) -> Result<()> {
    let from = out.len();
    match item {
        PackOption::Signed(size) => {
            push_integer(out, checked_integer(value, item)?.into(), size, is_big);
            return Ok(());
        }
        PackOption::Unsigned(size) => {
            let number = checked_integer(value, item)? as u64;
            push_integer(out, number.into(), size, is_big);
            return Ok(());
        }
        PackOption::Float => out.extend_from_slice(&(double(value)? as f32).to_le_bytes()),
        PackOption::Double => out.extend_from_slice(&double(value)?.to_le_bytes()),
        PackOption::Fixed(size) => {
            let text = text_of(lua, value)?;
            if text.bytes().len() > size {
                return Err(failure("string longer than given size"));
            }
            check_length(lua, "pack", out.len().saturating_add(size), TEXT_BYTES_MAX)?;
            out.extend_from_slice(&text.bytes());
            out.resize(from + size, 0);
            return Ok(());
        }
        PackOption::Counted(size) => {
            let text = text_of(lua, value)?;
            let length = text.bytes().len();
            if size < NATIVE && length >= 1 << (8 * size) {
                return Err(failure("string length does not fit in given size"));
            }
            check_length(lua, "pack", out.len() + length, TEXT_BYTES_MAX)?;
            push_integer(out, length as i128, size, is_big);
            out.extend_from_slice(&text.bytes());
            return Ok(());
        }
        PackOption::ZeroEnded => {
            let text = text_of(lua, value)?;
            if text.bytes().contains(&0) {
                return Err(failure("string contains zeros"));
            }
            check_length(lua, "pack", out.len() + text.bytes().len(), TEXT_BYTES_MAX)?;
            out.extend_from_slice(&text.bytes());
            out.push(0);
            return Ok(());
        }
        PackOption::Padding => out.push(0),
        PackOption::Alignment => {}
    }
    if is_big {
        out[from..].reverse();
    }
    Ok(())
}

fn pack(lua: &Lua, arguments: &MultiValue) -> Result<Vec<u8>> {
    let format = Text::of(lua, "pack", arguments.front().unwrap_or(&Value::Nil))?;
    let text = format.bytes();
    let mut format = PackFormat::new(&text);
    let mut values = arguments.iter().skip(1);
    let mut out = Vec::new();
    while let Some((item, padding)) = format.next(lua, out.len())? {
        out.resize(out.len() + padding, 0);
        let value = match item {
            PackOption::Padding | PackOption::Alignment => &Value::Nil,
            _ => values.next().unwrap_or(&Value::Nil),
        };
        push(lua, &mut out, item, value, format.is_big)?;
    }
    Ok(out)
}

/// The position at which a packed text is read.
struct Unpacker<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Unpacker<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let rest = &self.text[self.at..];
        let taken = rest.get(..count).ok_or_else(|| failure("data string too short"))?;
        self.at += count;
        Ok(taken)
    }

    fn value(&mut self, lua: &Lua, item: PackOption, is_big: bool) -> Result<Option<Value>> {
        let value = match item {
            PackOption::Signed(size) => integer(self.take(size)?, is_big, true)?,
            PackOption::Unsigned(size) => integer(self.take(size)?, is_big, false)?,
            PackOption::Float => {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(self.take(4)?);
                let bytes =
                    if is_big { f32::from_be_bytes(bytes) } else { f32::from_le_bytes(bytes) };
                Value::Number(f64::from(bytes))
            }
            PackOption::Double => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(self.take(8)?);
                Value::Number(if is_big {
                    f64::from_be_bytes(bytes)
                } else {
                    f64::from_le_bytes(bytes)
                })
            }
            PackOption::Fixed(size) => self.string(lua, size)?,
            PackOption::Counted(size) => {
                let length = integer(self.take(size)?, is_big, false)?;
                let length = length.as_i64().and_then(|length| usize::try_from(length).ok());
                self.string(lua, length.unwrap_or(usize::MAX))?
            }
            PackOption::ZeroEnded => {
                let rest = &self.text[self.at..];
                let length = rest.iter().position(|byte| *byte == 0);
                let length = length.ok_or_else(|| failure("unfinished string for format 'z'"))?;
                let value = self.string(lua, length)?;
                self.at += 1;
                value
            }
            PackOption::Padding => {
                self.take(1)?;
                return Ok(None);
            }
            PackOption::Alignment => return Ok(None),
        };
        Ok(Some(value))
    }

    fn string(&mut self, lua: &Lua, length: usize) -> Result<Value> {
        let bytes = self.take(length)?;
        budget::charge_bytes(lua, bytes.len());
        lua.create_string(bytes).map(Value::String)
    }
}

fn unpack(lua: &Lua, arguments: &MultiValue) -> Result<MultiValue> {
    let argument = |at| arguments.get(at).unwrap_or(&Value::Nil);
    let format = Text::of(lua, "unpack", argument(0))?;
    let data = Text::of(lua, "unpack", argument(1))?;
    let (format, text) = (format.bytes(), data.bytes());
    let from = match argument(2) {
        Value::Nil => 1,
        value => checked_integer(value, PackOption::Signed(NATIVE))?,
    };
    // As in Lua, a position before the text means its beginning.
    let from = if from < 0 { (from + text.len() as i64 + 1).max(1) } else { from };
    let at = usize::try_from(from - 1).ok().filter(|at| *at <= text.len());
    let at = at.ok_or_else(|| failure("initial position out of string"))?;
    let mut format = PackFormat::new(&format);
    let mut reader = Unpacker { text: &text, at };
    let mut values = MultiValue::new();
    while let Some((item, padding)) = format.next(lua, reader.at)? {
        reader.take(padding)?;
        values.extend(reader.value(lua, item, format.is_big)?);
    }
    values.push_back(Value::Integer(reader.at as i64 + 1));
    Ok(values)
}

fn packsize(lua: &Lua, arguments: &MultiValue) -> Result<i64> {
    let format = Text::of(lua, "packsize", arguments.front().unwrap_or(&Value::Nil))?;
    let text = format.bytes();
    let mut format = PackFormat::new(&text);
    let mut size = 0usize;
    while let Some((item, padding)) = format.next(lua, size)? {
        let item = item.fixed_size().ok_or_else(|| failure("variable-length format"))?;
        size = size.saturating_add(padding).saturating_add(item);
        if size > i32::MAX as usize {
            return Err(failure("format result too large"));
        }
    }
    Ok(size as i64)
}

/// Creates the three functions.
///
/// # Errors
/// Lua is out of memory.
pub(crate) fn table(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let packed = |lua: &Lua, arguments: MultiValue| {
        lua.create_string(pack(lua, &arguments).map_err(|error| named("pack", &error))?)
    };
    table.raw_set("pack", lua.create_function(packed)?)?;
    let unpacked = |lua: &Lua, arguments: MultiValue| {
        unpack(lua, &arguments).map_err(|error| named("unpack", &error))
    };
    table.raw_set("unpack", lua.create_function(unpacked)?)?;
    let size = |lua: &Lua, arguments: MultiValue| {
        packsize(lua, &arguments).map_err(|error| named("packsize", &error))
    };
    table.raw_set("packsize", lua.create_function(size)?)?;
    Ok(table)
}

/// An error with the name of the function that raised it.
#[cold]
fn named(function: &str, error: &Error) -> Error {
    match error {
        Error::RuntimeError(text) => failure(format!("string.{function}: {text}")),
        other => other.clone(),
    }
}
