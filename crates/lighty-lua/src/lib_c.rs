//! The functions of `lighty.c` that need no disk: digests, encodings, tokens, clock. None waits.
//!
//! Names, arguments and results are the ones of lighttpd 1.4's mod_magnet; where that has a defect,
//! this implements its manual (`differences.txt` lists both). Each family is a file of functions
//! from bytes to bytes, which do not depend on Lua; this file adds them to a table.

pub mod digest;
pub mod encoding;
pub mod path;
pub mod quoting;
pub mod tokens;
pub mod url;

use lighty_io::clock::Clock;
use lighty_io::entropy::random_bytes;
use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::argument::{self, PAIRS_MAX, TEXT_BYTES_MAX, TOKENS_MAX, Text};

/// A function from text to text that returns false for invalid input.
type Transform = fn(&[u8], &mut Vec<u8>) -> bool;

/// Result for the script if a [`Transform`] returns false.
#[derive(Clone, Copy)]
enum FailureResult {
    Nil,
    NoValue,
}

/// Functions with one text argument. Like lighttpd's they convert nil to an empty text.
const TRANSFORMS: &[(&str, Transform, FailureResult)] = &[
    ("b64dec", encoding::base64_decode, FailureResult::Nil),
    ("b64enc", encoding::base64_encode, FailureResult::Nil),
    ("b64urldec", encoding::base64url_decode, FailureResult::Nil),
    ("b64urlenc", encoding::base64url_encode, FailureResult::Nil),
    ("bsdec", quoting::backslash_decode, FailureResult::Nil),
    ("bsenc", quoting::backslash_encode, FailureResult::Nil),
    ("bsenc_json", quoting::json_encode, FailureResult::Nil),
    ("fspath_simplify", path::simplify, FailureResult::Nil),
    ("hexdec", encoding::hex_decode, FailureResult::NoValue),
    ("hexenc", encoding::hex_encode, FailureResult::Nil),
    ("quoteddec", quoting::quoted_decode, FailureResult::NoValue),
    ("quotedenc", quoting::quoted_encode, FailureResult::Nil),
    ("urldec", url::decode, FailureResult::Nil),
    ("urlenc", url::encode, FailureResult::Nil),
    ("urlenc_normalize", url::normalize, FailureResult::Nil),
    ("xmlenc", encoding::xml_encode, FailureResult::Nil),
];

/// Creates the table `lighty.c`, without the functions that access the disk.
///
/// # Errors
/// Lua is out of memory.
pub fn table(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    for &(name, transform, refusal) in TRANSFORMS {
        table.raw_set(name, transformer(lua, name, transform, refusal)?)?;
    }
    add_digests(lua, &table)?;
    add_tokens(lua, &table)?;
    add_clock(lua, &table)?;
    Ok(table)
}

fn transformer(
    lua: &Lua,
    name: &'static str,
    transform: Transform,
    refusal: FailureResult,
) -> Result<mlua::Function> {
    lua.create_function(move |lua, arguments: MultiValue| {
        let Some(text) = Text::first(lua, name, &arguments)? else {
            return one(lua.create_string("")?);
        };
        let text = text.bytes();
        argument::check_length(lua, name, text.len(), TEXT_BYTES_MAX)?;
        if text.is_empty() {
            return one(lua.create_string("")?);
        }
        let mut out = Vec::with_capacity(text.len());
        match (transform(&text, &mut out), refusal) {
            (true, _) => one(lua.create_string(&out)?),
            (false, FailureResult::Nil) => Ok(MultiValue::from_iter([Value::Nil])),
            (false, FailureResult::NoValue) => Ok(MultiValue::new()),
        }
    })
}

fn one(text: mlua::LuaString) -> Result<MultiValue> {
    Ok(MultiValue::from_iter([Value::String(text)]))
}

fn add_digests(lua: &Lua, table: &Table) -> Result<()> {
    let md = lua.create_function(|lua, arguments: MultiValue| {
        let [name, data] = argument::texts(lua, "md(algo, data)", &arguments)?;
        match digest::digest(&name.bytes(), &data.bytes()) {
            Some(hex) => lua.create_string(hex).map(Some),
            None => Ok(None),
        }
    })?;
    table.raw_set("md", md)?;
    let hmac = lua.create_function(|lua, arguments: MultiValue| {
        let [name, secret, data] = argument::texts(lua, "hmac(algo, secret, data)", &arguments)?;
        match digest::hmac(&name.bytes(), &secret.bytes(), &data.bytes()) {
            Some(hex) => lua.create_string(hex).map(Some),
            None => Ok(None),
        }
    })?;
    table.raw_set("hmac", hmac)?;
    let digest_eq = lua.create_function(|lua, arguments: MultiValue| {
        let [one, other] = argument::texts(lua, "digest_eq(d1, d2)", &arguments)?;
        Ok(digest::equal_digests(&one.bytes(), &other.bytes()))
    })?;
    table.raw_set("digest_eq", digest_eq)?;
    let secret_eq = lua.create_function(|lua, arguments: MultiValue| {
        let [one, other] = argument::texts(lua, "secret_eq(d1, d2)", &arguments)?;
        Ok(digest::equal_secrets(&one.bytes(), &other.bytes()))
    })?;
    table.raw_set("secret_eq", secret_eq)
}

fn add_tokens(lua: &Lua, table: &Table) -> Result<()> {
    let cookies = lua.create_function(|lua, arguments: MultiValue| {
        let table = lua.create_table()?;
        let Some(text) = Text::first(lua, "cookie_tokens", &arguments)? else { return Ok(table) };
        argument::check_length(lua, "cookie_tokens", text.bytes().len(), TEXT_BYTES_MAX)?;
        for (at, (name, value)) in tokens::cookies(&text.bytes()).enumerate() {
            argument::check_count(lua, "cookie_tokens", at, ("cookies", PAIRS_MAX))?;
            table.raw_set(lua.create_string(name)?, lua.create_string(value)?)?;
        }
        Ok(table)
    })?;
    table.raw_set("cookie_tokens", cookies)?;
    let header = lua.create_function(|lua, arguments: MultiValue| {
        let table = lua.create_table()?;
        let Some(text) = Text::first(lua, "header_tokens", &arguments)? else { return Ok(table) };
        argument::check_length(lua, "header_tokens", text.bytes().len(), TEXT_BYTES_MAX)?;
        for (at, token) in tokens::header(&text.bytes()).enumerate() {
            argument::check_count(lua, "header_tokens", at, ("words", TOKENS_MAX))?;
            table.raw_set(at + 1, lua.create_string(token)?)?;
        }
        Ok(table)
    })?;
    table.raw_set("header_tokens", header)?;
    let query = lua.create_function(|lua, arguments: MultiValue| {
        let table = lua.create_table()?;
        let Some(text) = Text::first(lua, "urldec_query", &arguments)? else { return Ok(table) };
        argument::check_length(lua, "urldec_query", text.bytes().len(), TEXT_BYTES_MAX)?;
        for (at, (name, value)) in url::query_pairs(&text.bytes()).enumerate() {
            argument::check_count(lua, "urldec_query", at, ("pairs", PAIRS_MAX))?;
            table.raw_set(lua.create_string(name)?, lua.create_string(value)?)?;
        }
        Ok(table)
    })?;
    table.raw_set("urldec_query", query)?;
    table.raw_set("urlenc_query", lua.create_function(encode_query)?)
}

/// Encodes pairs in the order of the table. Keys that are not texts are skipped; without a table
/// the query is empty.
fn encode_query(lua: &Lua, arguments: MultiValue) -> Result<mlua::LuaString> {
    let mut out = Vec::new();
    if let Some(Value::Table(pairs)) = arguments.front() {
        for (at, pair) in pairs.pairs::<Value, Value>().enumerate() {
            argument::check_count(lua, "urlenc_query", at, ("pairs", PAIRS_MAX))?;
            let (key, value) = pair?;
            if !matches!(key, Value::String(_) | Value::Integer(_) | Value::Number(_)) {
                continue;
            }
            let key = Text::of(lua, "urlenc_query", &key)?;
            let value = Text::of(lua, "urlenc_query", &value)?;
            url::push_query_pair(&key.bytes(), &value.bytes(), &mut out);
            argument::check_length(lua, "urlenc_query", out.len(), TEXT_BYTES_MAX)?;
        }
    }
    lua.create_string(&out)
}

fn add_clock(lua: &Lua, table: &Table) -> Result<()> {
    table.raw_set("time", lua.create_function(|_, ()| Ok(clock().unix_s()))?)?;
    let precise = lua.create_function(|_, ()| {
        let clock = clock();
        let in_turn_us = clock.precise_us().saturating_sub(clock.mono_us());
        let us = u64::from(clock.unix_us()) + in_turn_us;
        let (seconds, us) = (us / 1_000_000, us % 1_000_000);
        Ok((clock.unix_s() + seconds.cast_signed(), us * 1000))
    })?;
    table.raw_set("hrtime", precise)?;
    // 31 bits, as random() gives them to lighttpd.
    let random = lua.create_function(|_, ()| {
        let bytes = random_bytes::<4>().map_err(mlua::Error::external)?;
        Ok(u32::from_ne_bytes(bytes) >> 1)
    })?;
    table.raw_set("rand", random)
}

/// The clock of this worker; a program without workers gets a new one.
pub(crate) fn clock() -> Clock {
    Clock::current().unwrap_or_else(|| {
        let clock = Clock::start();
        clock.install();
        clock
    })
}

#[cfg(test)]
mod tests;
