//! The functions behind the objects that scripts use. They access the request of the running script
//! through [`Current`].

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

use lighty_io::entropy::random_bytes;
use lighty_io::loan::{Lend, Loan};
use lighty_io::lua_call::{self, HostReply, ScriptHost};
use lighty_io::lua_hook;
use mlua::{Error, FromLuaMulti, Function, IntoLuaMulti, Lua, LuaString, Table, Value};

use crate::request::{BodyPiece, Group, Requests, ScriptRequest, ScriptValue};
use crate::{budget, chunk, error_text, json, lfs, lib_c, packing, pattern, shared};

/// Additional capabilities of scripts.
#[derive(Clone, Default)]
pub struct ScriptOptions {
    /// `os.execute`, `io.popen` and files open for writing are allowed (`magnet.unsafe`).
    pub unsafe_calls: bool,
    /// The dictionaries of `lighty.shared`.
    pub shared: Vec<(Box<str>, std::sync::Arc<crate::shared::Dictionary>)>,
}

/// A type of request that can be lent.
pub(crate) struct Lent<R>(PhantomData<R>);

impl<R: Requests> Lend for Lent<R> {
    type Of<'a> = R::Of<'a>;
}

/// The request of the running script.
pub(crate) struct Current<R: Requests> {
    pub(crate) request: Loan<Lent<R>>,
    path: RefCell<Rc<str>>,
    memory_max: Cell<usize>,
    kept: Cell<KeptBytes>,
    options: ScriptOptions,
}

/// Bytes that a run has added to its request and its response, which are not part of Lua's memory.
#[derive(Clone, Copy, Default)]
pub(crate) struct KeptBytes {
    /// The response's body.
    body: usize,
    /// Fields, variables, the request's body, printed text.
    values: usize,
}

/// Overhead of a value or a piece in bytes.
const KEPT_EACH: usize = 64;

const NO_ROOM: &str = "not enough memory: the script has given too much to its response";

impl<R: Requests> Current<R> {
    pub(crate) fn new(options: ScriptOptions) -> Self {
        Self {
            request: Loan::default(),
            path: RefCell::new("".into()),
            memory_max: Cell::new(0),
            kept: Cell::default(),
            options,
        }
    }

    pub(crate) fn enter(&self, path: &Rc<str>, memory_max: usize, kept: KeptBytes) {
        self.kept.set(kept);
        self.path.replace(Rc::clone(path));
        self.memory_max.set(memory_max);
    }

    pub(crate) fn kept(&self) -> KeptBytes {
        self.kept.get()
    }

    /// Counts `bytes` added to the request, replacing `instead_of` others. `false` if the limit is
    /// exceeded; then the script is stopped.
    fn keep(&self, bytes: usize, instead_of: usize) -> bool {
        let mut kept = self.kept.get();
        kept.values = (kept.values + bytes).saturating_sub(instead_of);
        self.is_room_for(kept)
    }

    fn keep_piece(&self, bytes: usize) -> bool {
        let mut kept = self.kept.get();
        kept.body += bytes + KEPT_EACH;
        self.is_room_for(kept)
    }

    /// Changes the response's body if there is space for another piece of this length.
    fn change_body(
        &self,
        length: usize,
        answer: &mut HostReply,
        change: impl FnOnce(&mut R::Of<'_>),
    ) {
        let has_room = self.keep_piece(length);
        match self.request.with(|request| has_room.then(|| change(request))) {
            Some(Some(())) => {}
            Some(None) => answer.error(NO_ROOM),
            None => answer.error(OUTSIDE),
        }
    }

    fn forget_pieces(&self) {
        let values = self.kept.get().values;
        self.kept.set(KeptBytes { body: 0, values });
    }

    fn is_room_for(&self, kept: KeptBytes) -> bool {
        let is_room = kept.body + kept.values <= self.memory_max.get();
        if is_room {
            self.kept.set(kept);
        } else {
            budget::stop_for_memory();
        }
        is_room
    }

    /// Runs `work` with the request.
    fn with<T>(&self, work: impl for<'a> FnOnce(&mut R::Of<'a>) -> T) -> mlua::Result<T> {
        self.request.with(work).ok_or_else(|| Error::runtime(OUTSIDE))
    }

    fn set_value(
        &self,
        request: &mut R::Of<'_>,
        group: Group,
        name: &[u8],
        value: Option<&[u8]>,
        answer: &mut HostReply,
    ) {
        let each = name.len() + KEPT_EACH;
        // Other groups hold a fixed number of numbers.
        let holds_texts = matches!(
            group,
            Group::RequestHeader
                | Group::ResponseHeader
                | Group::Environment
                | Group::Attribute
                | Group::Cache
        );
        let before = match request.get(group, name) {
            Ok(ScriptValue::Bytes(bytes)) if holds_texts => bytes.len() + each,
            _ => 0,
        };
        if let Err(error) = request.set(group, name, value) {
            return answer.error(&error.to_string());
        }
        let now = value.map_or(0, |value| value.len() + each);
        if holds_texts && !self.keep(now, before) {
            answer.error(NO_ROOM);
        }
    }
}

impl<R: Requests> ScriptHost for Current<R> {
    fn get(&self, group: usize, name: &[u8], answer: &mut HostReply) {
        let Some((_, group, _)) = GROUPS.get(group) else { return answer.error(OUTSIDE) };
        let outcome = self.request.with(|request| match request.get(*group, name) {
            Ok(ScriptValue::Nil) => {}
            Ok(ScriptValue::Bool(value)) => answer.bool(value),
            Ok(ScriptValue::Int(number)) => answer.number(number),
            Ok(ScriptValue::Bytes(Cow::Borrowed(bytes))) => answer.bytes(bytes),
            // Short texts are copied to the reply's buffer, which is reused.
            Ok(ScriptValue::Bytes(Cow::Owned(bytes))) if bytes.len() < OWN_BYTES_MIN => {
                answer.bytes(&bytes);
            }
            Ok(ScriptValue::Bytes(Cow::Owned(bytes))) => answer.own_bytes(bytes),
            Err(error) => answer.error(&error.to_string()),
        });
        if outcome.is_none() {
            answer.error(OUTSIDE);
        }
    }

    fn set(&self, group: usize, name: &[u8], value: Option<&[u8]>, answer: &mut HostReply) {
        let Some((_, group, _)) = GROUPS.get(group) else { return answer.error(OUTSIDE) };
        let set = |request: &mut R::Of<'_>| self.set_value(request, *group, name, value, answer);
        if self.request.with(set).is_none() {
            answer.error(OUTSIDE);
        }
    }

    fn set_body(&self, bytes: &[u8], answer: &mut HostReply) {
        self.forget_pieces();
        self.change_body(bytes.len(), answer, |request| {
            let first = (!bytes.is_empty()).then(|| BodyPiece::Bytes(bytes.to_vec()));
            request.set_body(first);
        });
    }

    fn add_body(&self, bytes: &[u8], answer: &mut HostReply) {
        let add = |request: &mut R::Of<'_>| request.add_body(BodyPiece::Bytes(bytes.to_vec()));
        self.change_body(bytes.len(), answer, add);
    }
}

/// Length from which a text is passed on instead of copied.
const OWN_BYTES_MIN: usize = 64 * 1024;

const OUTSIDE: &str = "there is no request here";

fn room(is_there: bool) -> mlua::Result<()> {
    if is_there { Ok(()) } else { Err(Error::runtime(NO_ROOM)) }
}

/// The groups as fields of `lighty.r` and `lighty.server`: name, group, and true if scripts can
/// list the names.
const GROUPS: &[(&str, Group, bool)] = &[
    ("req_header", Group::RequestHeader, true),
    ("req_attr", Group::Attribute, true),
    ("req_env", Group::Environment, true),
    ("req_item", Group::RequestItem, false),
    ("resp_header", Group::ResponseHeader, true),
    ("req_body", Group::RequestBody, false),
    ("resp_body", Group::ResponseBody, false),
    ("plugin_stats", Group::PluginStats, true),
    ("stats", Group::ServerStats, false),
    ("cache", Group::Cache, false),
];

/// The index of the response's fields in [`GROUPS`].
pub(crate) const RESPONSE_HEADER: usize = 4;

/// The functions passed to the prelude.
pub(crate) fn primitives<R: Requests>(lua: &Lua, current: &Rc<Current<R>>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    groups(lua, current, &table)?;
    bodies(lua, current, &table)?;
    surroundings(lua, current, &table)?;
    table.set("c", lib_c::table(lua)?)?;
    table.set("strings", pattern::table(lua)?)?;
    table.set("packing", packing::table(lua)?)?;
    table.set("charge", lua_hook::booker(lua)?)?;
    let jumps = |lua: &Lua, text: LuaString| {
        budget::charge_bytes(lua, text.as_bytes().len());
        Ok(chunk::jumps(&text.as_bytes()))
    };
    table.set("seed", seed()?)?;
    table.set("instantiate", lua_call::instantiator(lua)?)?;
    table.set("compile_here_max", chunk::COMPILE_HERE_MAX)?;
    table.set("jumps", lua.create_function(jumps)?)?;
    table.set("must_pause", lua_hook::checkpoint(lua)?)?;
    table.set("modules", lua.create_table()?)?;
    table.set("json", json::table(lua)?)?;
    table.set("lfs", lua.create_function(|lua, call: mlua::Function| lfs::table(lua, call))?)?;
    let own = current.options.shared.iter().map(|(name, own)| (&**name, own));
    table.set("shared", shared::table(lua, own)?)?;
    Ok(table)
}

/// A seed for `math.random`, with as many bits as a Lua number holds exactly.
fn seed() -> mlua::Result<f64> {
    let bytes = random_bytes::<8>().map_err(Error::external)?;
    Ok((u64::from_ne_bytes(bytes) >> 11) as f64)
}

/// A function with access to the running script's request.
fn method<R: Requests, A: FromLuaMulti, T: IntoLuaMulti>(
    lua: &Lua,
    current: &Rc<Current<R>>,
    body: impl Fn(&Lua, &Current<R>, A) -> mlua::Result<T> + 'static,
) -> mlua::Result<Function> {
    let own = Rc::clone(current);
    lua.create_function(move |lua, arguments| body(lua, &own, arguments))
}

fn groups<R: Requests>(lua: &Lua, current: &Rc<Current<R>>, table: &Table) -> mlua::Result<()> {
    let (get, set, list) = (lua.create_table()?, lua.create_table()?, lua.create_table()?);
    for (at, &(name, group, is_listed)) in GROUPS.iter().enumerate() {
        get.set(name, lua_call::getter(lua, at)?)?;
        set.set(name, lua_call::setter(lua, at)?)?;
        if is_listed {
            let pairs = method(lua, current, move |lua, own, ()| {
                let all = lua.create_table()?;
                let pairs = own.with(|request| request.pairs(group))?;
                // Each name was searched among the others.
                let searched = (pairs.len() * pairs.len() / 8) as u64;
                budget::charge(
                    lua,
                    budget::CALL + 4 * budget::VALUE * pairs.len() as u64 + searched,
                );
                for (name, value) in pairs {
                    all.raw_push(lua.create_string(name)?)?;
                    all.raw_push(lua.create_string(value)?)?;
                }
                Ok(all)
            })?;
            list.set(name, pairs)?;
        }
    }
    table.set("get", get)?;
    table.set("set", set)?;
    table.set("list", list)
}

fn bodies<R: Requests>(lua: &Lua, current: &Rc<Current<R>>, table: &Table) -> mlua::Result<()> {
    let clear = method(lua, current, |_, own, ()| {
        own.forget_pieces();
        own.with(|request| request.set_body(None))
    })?;
    let bytes = method(lua, current, |lua, own, bytes: LuaString| {
        budget::charge_bytes(lua, bytes.as_bytes().len());
        room(own.keep_piece(bytes.as_bytes().len()))?;
        let piece = BodyPiece::Bytes(bytes.as_bytes().to_vec());
        own.with(|request| request.add_body(piece))
    })?;
    let file = method(lua, current, |lua, own, (path, offset, length): (LuaString, f64, f64)| {
        budget::charge_bytes(lua, path.as_bytes().len());
        let length = (length >= 0.0).then_some(length as u64);
        let path = path.as_bytes().to_vec();
        room(own.keep_piece(path.len()))?;
        let piece = BodyPiece::File { path, offset: offset as i64, length };
        own.with(|request| request.add_body(piece))
    })?;
    let request = method(lua, current, |lua, own, (bytes, replace): (LuaString, bool)| {
        room(own.keep(bytes.as_bytes().len() + KEPT_EACH, 0))?;
        let length = own.with(|request| request.add_request_body(&bytes.as_bytes(), replace))?;
        // The whole body is copied for the next reader.
        budget::charge_bytes(lua, length.map_err(Error::runtime)?);
        Ok(())
    })?;
    table.set("body_clear", clear)?;
    table.set("body_bytes", bytes)?;
    table.set("body_file", file)?;
    table.set("request_body", request)
}

fn surroundings<R: Requests>(
    lua: &Lua,
    current: &Rc<Current<R>>,
    table: &Table,
) -> mlua::Result<()> {
    let log = method(lua, current, |lua, own, (level, text): (String, LuaString)| {
        room(own.keep(text.as_bytes().len(), 0))?;
        budget::charge(lua, log_work(text.as_bytes().len()));
        own.with(|request| request.log(&level, &text.as_bytes()))
    })?;
    let print = method(lua, current, |lua, own, text: LuaString| {
        room(own.keep(text.as_bytes().len(), 0))?;
        budget::charge(lua, log_work(text.as_bytes().len()));
        own.with(|request| request.log("print", &text.as_bytes()))
    })?;
    let run = |lua: &Lua, (current, env_meta, meta): (Table, Table, Table)| {
        let finish = lua_call::finisher(lua, &current, RESPONSE_HEADER)?;
        Ok((lua_call::enterer(lua, &current, env_meta, meta)?, finish))
    };
    table.set("log", log)?;
    table.set("print", print)?;
    table.set("path", method(lua, current, |_, own, ()| Ok(own.path.borrow().to_string()))?)?;
    table.set("run", lua.create_function(run)?)?;
    table.set("unsafe", method(lua, current, |_, own, ()| Ok(own.options.unsafe_calls))?)?;
    table.set("memory_max", method(lua, current, |_, own, ()| Ok(own.memory_max.get()))?)?;
    table.set("error_text", lua.create_function(error_text)?)
}

/// Maximum bytes of a text that a script writes to the server's log; the rest is dropped, because
/// writing megabytes would delay other tasks.
pub const LOG_TEXT_BYTES_MAX: usize = 64 << 10;

/// Cost of a line of the log without its text, in instructions.
const LOG_LINE: u64 = 400;

/// Cost of writing this many bytes, in instructions.
fn log_work(bytes: usize) -> u64 {
    LOG_LINE + (bytes.min(LOG_TEXT_BYTES_MAX) + bytes / 8) as u64
}

/// An error of a Rust function as a text.
fn error_text(lua: &Lua, error: Value) -> mlua::Result<Value> {
    match error {
        Value::Error(error) => lua.create_string(error_text::cause(&error)).map(Value::String),
        other => Ok(other),
    }
}
