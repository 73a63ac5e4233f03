//! Converts Lua values to calls, and their results to Lua values.

use std::cell::RefCell;

use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

use crate::budget;
use crate::call::{Call, Destination, HttpCall, OpenRequest, Reply, Stat};

/// Reason for a script's suspension.
pub(crate) enum Suspension {
    Call(Call),
    /// Its slice is over.
    Turn,
    /// A filter returns output, and needs input.
    Piece(Option<Vec<u8>>),
}

/// Error in a script's call; the message is for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// There is no call of this name.
    #[error("{0}: there is no such call")]
    Unknown(String),
    /// The first argument of this call is not a path.
    #[error("{0}: a path is wanted")]
    Path(String),
    /// `lighty.sleep` without a number.
    #[error("sleep: a number of seconds is wanted")]
    Seconds,
    /// A request lacks this value.
    #[error("{0} is wanted")]
    Wanted(&'static str),
    /// A request's `headers` contain something other than strings.
    #[error("headers: names and values are strings")]
    Headers,
}

fn bytes(value: Option<Value>) -> Option<Vec<u8>> {
    match value? {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

/// Parses the values that a script yielded.
pub(crate) fn call(mut values: MultiValue) -> Result<Suspension, CallError> {
    let name = bytes(values.pop_front()).unwrap_or_default();
    let name = String::from_utf8_lossy(&name).into_owned();
    let first = values.pop_front();
    let path = |value| bytes(value).ok_or_else(|| CallError::Path(name.clone()));
    let call = match name.as_str() {
        "preempted" => return Ok(Suspension::Turn),
        "piece" => return Ok(Suspension::Piece(bytes(first))),
        "stat" => Call::Stat { path: path(first)? },
        "readdir" => Call::ReadDir { path: path(first)? },
        "readlink" => Call::ReadLink { path: path(first)? },
        "module" => Call::Module { path: path(first)? },
        "compile" => {
            let text = bytes(values.pop_front()).unwrap_or_default();
            Call::Compile { name: bytes(first).unwrap_or_default(), text }
        }
        "read_file" => Call::ReadFile { path: path(first)? },
        "collect" => Call::CollectBody,
        "collect_response" => Call::CollectResponse,
        "clients_open" => Call::ClientsOpen,
        "open_requests" => Call::OpenRequests,
        "sleep" => Call::Sleep { ms: milliseconds(first)? },
        "request" => Call::Request(request(first, values)?),
        _ => return Err(CallError::Unknown(name)),
    };
    Ok(Suspension::Call(call))
}

fn milliseconds(value: Option<Value>) -> Result<u64, CallError> {
    let seconds = match value {
        Some(Value::Integer(seconds)) => seconds as f64,
        Some(Value::Number(seconds)) => seconds,
        _ => return Err(CallError::Seconds),
    };
    Ok((seconds.max(0.0) * 1000.0) as u64)
}

/// Parses `to`, method, URL, options, body, and true if `to` is the name of a backend.
fn request(to: Option<Value>, mut values: MultiValue) -> Result<HttpCall, CallError> {
    let to = bytes(to).ok_or(CallError::Wanted("a backend's name"))?;
    let method = bytes(values.pop_front()).ok_or(CallError::Wanted("a method"))?;
    let url = bytes(values.pop_front()).ok_or(CallError::Wanted("a URL"))?;
    let options = match values.pop_front() {
        Some(Value::Table(options)) => Some(options),
        _ => None,
    };
    let body = bytes(values.pop_front());
    let is_backend = matches!(values.pop_front(), Some(Value::Boolean(true)));
    let to = match (&to[..], is_backend) {
        (_, true) => Destination::Backend(to),
        (b"local", _) => Destination::Local,
        _ => Destination::Url,
    };
    let mut call = HttpCall { to, method, url, ..HttpCall::default() };
    let option = |name: &str| options.as_ref().and_then(|table| table.raw_get(name).ok());
    call.body = body.or_else(|| bytes(option("body"))).unwrap_or_default();
    if let Some(Value::Table(headers)) = option("headers") {
        for pair in headers.pairs::<LuaString, LuaString>() {
            let (name, value) = pair.map_err(|_| CallError::Headers)?;
            call.fields.push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
    }
    Ok(call)
}

/// Converts a result to the values that the call returns.
pub(crate) fn into_lua(lua: &Lua, reply: Reply) -> mlua::Result<MultiValue> {
    match reply {
        Reply::Done => true.into_lua_multi(lua),
        Reply::Failed(text) => (Value::Nil, text).into_lua_multi(lua),
        Reply::Stat(found) => stat(lua, &found)?.into_lua_multi(lua),
        // One by one: a list of all would delay other tasks.
        Reply::Names(names) => {
            let names = RefCell::new(names.into_iter());
            let next = lua.create_function(move |lua, _: MultiValue| {
                let name = names.borrow_mut().next();
                budget::charge(lua, budget::CALL);
                name.map(|name| lua.create_string(name)).transpose()
            })?;
            next.into_lua_multi(lua)
        }
        Reply::Chunk(chunk) => chunk.0.into_lua_multi(lua),
        Reply::Bytes(bytes) => lua.create_string(bytes)?.into_lua_multi(lua),
        Reply::Number(number) => number.into_lua_multi(lua),
        // One by one, like names.
        Reply::Requests(requests) => {
            let requests = RefCell::new(requests.into_iter());
            let next = lua.create_function(move |lua, _: MultiValue| {
                let request = requests.borrow_mut().next();
                budget::charge(lua, OPEN_REQUEST);
                request.map(|request| open_request(lua, &request)).transpose()
            })?;
            next.into_lua_multi(lua)
        }
        Reply::Response { status, fields, body } => {
            let table = lua.create_table_with_capacity(0, 4)?;
            table.raw_set("status", status)?;
            table.raw_set("body", lua.create_string(body)?)?;
            let (joined, each) = headers(lua, fields)?;
            table.raw_set("headers", joined)?;
            table.raw_set("fields", each)?;
            table.into_lua_multi(lua)
        }
    }
}

/// Fields by name, with equal ones joined, and a list of all fields, because joining loses
/// information for fields such as `Set-Cookie`.
fn headers(lua: &Lua, fields: Vec<(Vec<u8>, Vec<u8>)>) -> mlua::Result<(Table, Table)> {
    let (joined, each) = (lua.create_table()?, lua.create_table()?);
    for (name, value) in fields {
        let name = lua.create_string(name.to_ascii_lowercase())?;
        let value = lua.create_string(value)?;
        each.raw_push(lua.create_sequence_from([&name, &value])?)?;
        match joined.raw_get::<Option<LuaString>>(&name)? {
            Some(old) => {
                let both = [&*old.as_bytes(), &*value.as_bytes()].join(&b", "[..]);
                joined.raw_set(name, lua.create_string(both)?)?;
            }
            None => joined.raw_set(name, value)?,
        }
    }
    Ok((joined, each))
}

/// Cost of returning a request, in instructions.
const OPEN_REQUEST: u64 = budget::CALL + 48 * budget::VALUE;

/// The table of a request for `lighty.server.irequests()`.
fn open_request(lua: &Lua, request: &OpenRequest) -> mlua::Result<Table> {
    let attributes = lua.create_table()?;
    for (name, value) in &request.attributes {
        attributes.raw_set(*name, lua.create_string(value)?)?;
    }
    let item = lua.create_table()?;
    item.raw_set("bytes", request.bytes as mlua::Integer)?;
    item.raw_set("bytes_in", request.bytes_in as mlua::Integer)?;
    item.raw_set("bytes_out", request.bytes_out as mlua::Integer)?;
    // The value of a response that has not begun in lighttpd.
    item.raw_set("http_status", 0)?;
    item.raw_set("age", request.age.as_secs() as mlua::Integer)?;
    let table = lua.create_table()?;
    table.raw_set("req_attr", attributes)?;
    table.raw_set("req_item", item)?;
    // Scripts for lighttpd read fields and bodies, which are not available across workers.
    for name in ["req_header", "req_env", "req_body", "resp_header", "resp_body"] {
        table.raw_set(name, lua.create_table()?)?;
    }
    Ok(table)
}

/// The table for `lighty.stat`.
fn stat(lua: &Lua, found: &Stat) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 24)?;
    let kind = found.mode & 0o170_000;
    for (name, is) in [
        ("is_file", 0o100_000),
        ("is_dir", 0o040_000),
        ("is_char", 0o020_000),
        ("is_block", 0o060_000),
        ("is_socket", 0o140_000),
        ("is_link", 0o120_000),
        ("is_fifo", 0o010_000),
    ] {
        table.raw_set(name, kind == is)?;
    }
    table.raw_set("st_mode", found.mode)?;
    table.raw_set("st_size", found.size as mlua::Integer)?;
    table.raw_set("st_ino", found.ino as mlua::Integer)?;
    table.raw_set("st_uid", found.uid)?;
    table.raw_set("st_gid", found.gid)?;
    table.raw_set("st_mtime", found.mtime_s as mlua::Integer)?;
    table.raw_set("st_mtim_nsec", found.mtime_ns)?;
    table.raw_set("st_ctime", found.ctime_s as mlua::Integer)?;
    table.raw_set("st_ctim_nsec", found.ctime_ns)?;
    table.raw_set("st_atime", found.atime_s as mlua::Integer)?;
    if !found.etag.is_empty() {
        table.raw_set("etag", lua.create_string(&found.etag)?)?;
    }
    if !found.content_type.is_empty() {
        table.raw_set("content-type", lua.create_string(&found.content_type)?)?;
    }
    Ok(table)
}
