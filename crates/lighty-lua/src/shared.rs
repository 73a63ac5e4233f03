//! `lighty.shared.NAME`: dictionaries that all workers share, with expiry and counters.
//!
//! A dictionary has a fixed size in bytes. When it is full, the least recently used entries are
//! evicted. The interface is that of nginx's `ngx.shared.NAME`.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_io::clock::Clock;
use mlua::{Lua, LuaString, Result, Table, UserData, UserDataMethods, Value};

use crate::budget;
use crate::lib_c::clock;

/// Maximum bytes of a key.
pub const KEY_BYTES_MAX: usize = 4096;

/// Overhead of an entry in bytes, besides its key and its value.
pub const ENTRY_BYTES: usize = 160;

/// Default maximum of keys that `keys()` returns.
const KEYS_DEFAULT: usize = 1024;

/// Maximum of keys that `keys()` returns: more would delay the event loop, and other workers that
/// need the dictionary.
pub const KEYS_MAX: usize = 4096;

/// Cost of finding an entry, and of returning a key, in instructions.
const FIND: u64 = 2 * budget::CALL;
const KEY: u64 = 96;

/// Value of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum SharedValue {
    /// Lua's `true` or `false`.
    Bool(bool),
    /// A number, the only kind that counters change.
    Number(f64),
    /// A string of any bytes.
    Bytes(Arc<[u8]>),
}

/// Reason for not writing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedWriteError {
    /// It would not fit even into an empty dictionary.
    TooLarge,
    /// The key is longer than [`KEY_BYTES_MAX`] bytes.
    LongKey,
    /// `add` found a value under the key.
    Exists,
    /// There is no value under the key.
    Missing,
    /// The value is not a number.
    NoNumber,
}

impl SharedWriteError {
    /// The message; nginx's where it has the case.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::TooLarge => "no memory",
            Self::LongKey => "key too long",
            Self::Exists => "exists",
            Self::Missing => "not found",
            Self::NoNumber => "not a number",
        }
    }
}

/// A dictionary. Times are milliseconds of a clock that all its users share and that never goes
/// back; see [`Clock::mono_ms`].
#[derive(Debug)]
pub struct Dictionary {
    bytes_max: AtomicUsize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Arc<[u8]>, SharedEntry>,
    /// Keys in the order of their last use.
    by_use: BTreeMap<u64, Arc<[u8]>>,
    uses: u64,
    bytes: usize,
    evicted: u64,
    /// Entries that were removed in bulk and are still to be freed.
    doomed: Option<Box<Entries>>,
}

/// Entries freed by each use of a dictionary that has doomed ones.
const FREED_EACH: usize = 64;

/// Maximum number of entries that a new one evicts one by one, about 200 microseconds. If it needs
/// more space, this many of the latest entries stay, and the others are doomed: freeing 100,000 at
/// once would delay the event loop, and other workers that need the dictionary.
const EVICTED_EACH: usize = 1024;

#[derive(Debug)]
struct SharedEntry {
    item: SharedValue,
    used: u64,
    /// Time of its expiry; 0: never.
    expires_ms: u64,
}

impl Dictionary {
    /// Creates an empty dictionary of this size in bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max: AtomicUsize::new(bytes_max), entries: Mutex::default() }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<SharedValue> {
        let mut entries = self.lock();
        entries.touch(key, now_ms).map(|entry| entry.item.clone())
    }

    /// Writes an entry, for `ttl_ms` milliseconds or, if that is 0, until it is evicted.
    ///
    /// # Errors
    /// [`SharedWriteError::TooLarge`] or [`SharedWriteError::LongKey`].
    pub fn set(
        &self,
        key: &[u8],
        item: SharedValue,
        ttl_ms: u64,
        now_ms: u64,
    ) -> SharedWriteResult<()> {
        self.lock().insert(key, item, expiry(ttl_ms, now_ms), self.bytes_max())
    }

    /// Writes an entry that must not exist.
    ///
    /// # Errors
    /// As for [`set`](Self::set), and [`SharedWriteError::Exists`].
    pub fn add(
        &self,
        key: &[u8],
        item: SharedValue,
        ttl_ms: u64,
        now_ms: u64,
    ) -> SharedWriteResult<()> {
        let mut entries = self.lock();
        match entries.touch(key, now_ms) {
            Some(_) => Err(SharedWriteError::Exists),
            None => entries.insert(key, item, expiry(ttl_ms, now_ms), self.bytes_max()),
        }
    }

    /// Adds to a number, which keeps its expiry. A missing entry starts at `first`, for `ttl_ms`.
    ///
    /// # Errors
    /// As for [`set`](Self::set); [`SharedWriteError::Missing`] without `first`;
    /// [`SharedWriteError::NoNumber`].
    pub fn incr(
        &self,
        key: &[u8],
        by: f64,
        first: Option<f64>,
        ttl_ms: u64,
        now_ms: u64,
    ) -> SharedWriteResult<f64> {
        let mut entries = self.lock();
        if let Some(entry) = entries.touch(key, now_ms) {
            let SharedValue::Number(number) = &mut entry.item else {
                return Err(SharedWriteError::NoNumber);
            };
            *number += by;
            return Ok(*number);
        }
        let number = first.ok_or(SharedWriteError::Missing)? + by;
        entries.insert(
            key,
            SharedValue::Number(number),
            expiry(ttl_ms, now_ms),
            self.bytes_max(),
        )?;
        Ok(number)
    }

    /// Removes an entry, if it exists.
    pub fn delete(&self, key: &[u8]) {
        self.lock().remove(key);
    }

    /// Removes all entries. The memory of many is freed gradually, by later uses of the dictionary.
    pub fn clear(&self) {
        let mut entries = self.lock();
        let doomed = entries.doomed.take();
        let mut old = std::mem::take(&mut *entries);
        old.doomed = doomed;
        entries.doomed = Some(Box::new(old));
    }

    /// Milliseconds until an entry expires; `Some(0)`: never.
    #[must_use]
    pub fn ttl_ms(&self, key: &[u8], now_ms: u64) -> Option<u64> {
        let mut entries = self.lock();
        entries.touch(key, now_ms).map(|entry| entry.expires_ms.saturating_sub(now_ms))
    }

    /// Sets the time to live of an entry; false if there is no such entry.
    pub fn expire(&self, key: &[u8], ttl_ms: u64, now_ms: u64) -> bool {
        let mut entries = self.lock();
        let Some(entry) = entries.touch(key, now_ms) else { return false };
        entry.expires_ms = expiry(ttl_ms, now_ms);
        true
    }

    /// At most `count` keys and at most [`KEYS_MAX`], the latest used first. Also removes expired
    /// entries that it encounters, at most [`KEYS_MAX`].
    #[must_use]
    pub fn keys(&self, count: usize, now_ms: u64) -> Vec<Arc<[u8]>> {
        let count = count.min(KEYS_MAX);
        let mut entries = self.lock();
        let (mut live, mut dead) = (Vec::new(), Vec::new());
        for key in entries.by_use.values().rev() {
            if live.len() == count || dead.len() == KEYS_MAX {
                break;
            }
            let lives = entries.by_key.get(key).is_some_and(|entry| entry.lives(now_ms));
            if lives { live.push(Arc::clone(key)) } else { dead.push(Arc::clone(key)) }
        }
        dead.iter().for_each(|key| entries.remove(key));
        live
    }

    /// Bytes in use by its entries.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Maximum bytes for its entries.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Changes its size. If it is too small, the next writes evict entries.
    pub fn resize(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Number of evicted entries.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.lock().evicted
    }

    /// A panic leaves the entries consistent: no change has two steps that can panic.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.doomed.is_some() {
            entries.free_some();
        }
        entries
    }
}

type SharedWriteResult<T> = std::result::Result<T, SharedWriteError>;

fn expiry(ttl_ms: u64, now_ms: u64) -> u64 {
    if ttl_ms == 0 { 0 } else { now_ms.saturating_add(ttl_ms) }
}

fn entry_bytes(key: &[u8], item: &SharedValue) -> usize {
    let value = if let SharedValue::Bytes(bytes) = item { bytes.len() } else { 0 };
    key.len() + value + ENTRY_BYTES
}

impl SharedEntry {
    fn lives(&self, now_ms: u64) -> bool {
        self.expires_ms == 0 || now_ms < self.expires_ms
    }
}

impl Entries {
    #[cold]
    fn free_some(&mut self) {
        let Some(doomed) = &mut self.doomed else { return };
        for _ in 0..FREED_EACH {
            let Some((_, key)) = doomed.by_use.pop_first() else {
                self.doomed = doomed.doomed.take();
                return;
            };
            doomed.by_key.remove(&key);
        }
    }

    /// Finds a live entry, and makes it the latest used one.
    fn touch(&mut self, key: &[u8], now_ms: u64) -> Option<&mut SharedEntry> {
        if !self.by_key.get(key)?.lives(now_ms) {
            self.remove(key);
            return None;
        }
        self.uses += 1;
        let entry = self.by_key.get_mut(key)?;
        if let Some(key) = self.by_use.remove(&entry.used) {
            self.by_use.insert(self.uses, key);
        }
        entry.used = self.uses;
        Some(entry)
    }

    fn insert(
        &mut self,
        key: &[u8],
        item: SharedValue,
        expires_ms: u64,
        max: usize,
    ) -> SharedWriteResult<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(SharedWriteError::LongKey);
        }
        let bytes = entry_bytes(key, &item);
        if bytes > max {
            return Err(SharedWriteError::TooLarge);
        }
        self.remove(key);
        let mut left = EVICTED_EACH;
        while self.bytes + bytes > max {
            if left == 0 {
                self.keep_latest(max - bytes);
                break;
            }
            left -= 1;
            let Some((_, oldest)) = self.by_use.first_key_value() else { break };
            let oldest = Arc::clone(oldest);
            self.remove(&oldest);
            self.evicted += 1;
        }
        self.uses += 1;
        self.bytes += bytes;
        let key: Arc<[u8]> = key.into();
        self.by_use.insert(self.uses, Arc::clone(&key));
        self.by_key.insert(key, SharedEntry { item, used: self.uses, expires_ms });
        Ok(())
    }

    /// Dooms all entries except the latest used: at most [`EVICTED_EACH`], which fit into `room`.
    #[cold]
    fn keep_latest(&mut self, room: usize) {
        let doomed = self.doomed.take();
        let mut old = std::mem::take(self);
        (self.uses, self.evicted) = (old.uses, old.evicted + old.by_key.len() as u64);
        while self.by_key.len() < EVICTED_EACH
            && let Some((used, key)) = old.by_use.pop_last()
        {
            let Some((key, entry)) = old.by_key.remove_entry(&key) else { continue };
            let bytes = entry_bytes(&key, &entry.item);
            if self.bytes + bytes > room {
                break;
            }
            self.bytes += bytes;
            self.evicted -= 1;
            self.by_use.insert(used, Arc::clone(&key));
            self.by_key.insert(key, entry);
        }
        old.doomed = doomed;
        self.doomed = Some(Box::new(old));
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(entry) = self.by_key.remove(key) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry_bytes(key, &entry.item);
        }
    }
}

/// Creates the table `lighty.shared`: each dictionary under its name.
///
/// # Errors
/// Lua is out of memory.
pub fn table<'a>(
    lua: &Lua,
    dictionaries: impl IntoIterator<Item = (&'a str, &'a Arc<Dictionary>)>,
) -> Result<Table> {
    let table = lua.create_table()?;
    for (name, dictionary) in dictionaries {
        table.raw_set(name, lua.create_userdata(Handle(Arc::clone(dictionary)))?)?;
    }
    Ok(table)
}

/// A dictionary as a Lua object.
struct Handle(Arc<Dictionary>);

/// A value, or nil and a reason.
type ValueOrReason<T> = (Option<T>, Option<&'static str>);

fn answer<T>(result: SharedWriteResult<T>) -> ValueOrReason<T> {
    match result {
        Ok(value) => (Some(value), None),
        Err(refusal) => (None, Some(refusal.message())),
    }
}

impl UserData for Handle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, own, key: LuaString| {
            budget::charge(lua, FIND);
            Ok(match own.0.get(&key.as_bytes(), now()) {
                None => Value::Nil,
                Some(SharedValue::Bool(bool)) => Value::Boolean(bool),
                Some(SharedValue::Number(number)) => number_value(number),
                Some(SharedValue::Bytes(bytes)) => {
                    budget::charge_bytes(lua, bytes.len());
                    Value::String(lua.create_string(&*bytes)?)
                }
            })
        });
        methods.add_method(
            "set",
            |lua, own, (key, value, ttl): (LuaString, Value, Option<f64>)| {
                charge_entry(lua, &value);
                let Some(item) = item(&value)? else {
                    own.0.delete(&key.as_bytes());
                    return Ok((Some(true), None));
                };
                Ok(answer(own.0.set(&key.as_bytes(), item, ttl_ms(ttl)?, now()).map(|()| true)))
            },
        );
        methods.add_method(
            "add",
            |lua, own, (key, value, ttl): (LuaString, Value, Option<f64>)| {
                charge_entry(lua, &value);
                let item = item(&value)?.ok_or_else(|| refused("a value is wanted"))?;
                Ok(answer(own.0.add(&key.as_bytes(), item, ttl_ms(ttl)?, now()).map(|()| true)))
            },
        );
        type Increment = (LuaString, f64, Option<f64>, Option<f64>);
        methods.add_method("incr", |lua, own, (key, by, first, ttl): Increment| {
            budget::charge(lua, FIND);
            let number = own.0.incr(&key.as_bytes(), by, first, ttl_ms(ttl)?, now());
            Ok(answer(number.map(number_value)))
        });
        methods.add_method("delete", |lua, own, key: LuaString| {
            budget::charge(lua, FIND);
            own.0.delete(&key.as_bytes());
            Ok(())
        });
        methods.add_method("ttl", |lua, own, key: LuaString| {
            budget::charge(lua, FIND);
            let left = own.0.ttl_ms(&key.as_bytes(), now());
            Ok(answer(left.map(|ms| ms as f64 / 1000.0).ok_or(SharedWriteError::Missing)))
        });
        methods.add_method("expire", |lua, own, (key, ttl): (LuaString, f64)| {
            budget::charge(lua, FIND);
            let is_there = own.0.expire(&key.as_bytes(), ttl_ms(Some(ttl))?, now());
            Ok(answer(if is_there { Ok(true) } else { Err(SharedWriteError::Missing) }))
        });
        methods.add_method("keys", |lua, own, count: Option<usize>| {
            let keys = own.0.keys(count.unwrap_or(KEYS_DEFAULT), now());
            budget::charge(lua, FIND + KEY * keys.len() as u64);
            lua.create_sequence_from(keys.iter().map(|key| Bytes(key)))
        });
        methods.add_method("clear", |_, own, ()| {
            own.0.clear();
            Ok(())
        });
        methods.add_method("bytes", |_, own, ()| Ok((own.0.bytes(), own.0.bytes_max())));
    }
}

fn charge_entry(lua: &Lua, value: &Value) {
    let bytes = if let Value::String(text) = value { text.as_bytes().len() } else { 0 };
    budget::charge(lua, FIND + bytes as u64 / 4);
}

/// Bytes to be converted to a Lua string.
struct Bytes<'a>(&'a [u8]);

impl mlua::IntoLua for Bytes<'_> {
    fn into_lua(self, lua: &Lua) -> Result<Value> {
        lua.create_string(self.0).map(Value::String)
    }
}

/// Converts a whole number to an integer: Lua 5.4 would otherwise write `1.0`.
fn number_value(number: f64) -> Value {
    let is_whole = number.fract() == 0.0 && number.abs() < 9e15;
    if is_whole { Value::Integer(number as i64) } else { Value::Number(number) }
}

fn item(value: &Value) -> Result<Option<SharedValue>> {
    Ok(Some(match value {
        Value::Nil => return Ok(None),
        Value::Boolean(bool) => SharedValue::Bool(*bool),
        Value::Integer(number) => SharedValue::Number(*number as f64),
        Value::Number(number) => SharedValue::Number(*number),
        Value::String(text) => SharedValue::Bytes((&*text.as_bytes()).into()),
        other => {
            return Err(refused(&format!("a {} cannot be kept", other.type_name())));
        }
    }))
}

/// Converts a script's seconds, which may be fractional, to milliseconds; `None` to 0.
fn ttl_ms(seconds: Option<f64>) -> Result<u64> {
    match seconds {
        None => Ok(0),
        // A very short time must not become 0, which means no expiry.
        Some(seconds) if seconds > 0.0 => Ok(((seconds * 1000.0) as u64).max(1)),
        Some(0.0) => Ok(0),
        Some(_) => Err(refused("a time to live is a number of seconds")),
    }
}

fn refused(why: &str) -> mlua::Error {
    mlua::Error::RuntimeError(format!("lighty.shared: {why}"))
}

fn now() -> u64 {
    Clock::mono_ms(&clock())
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
