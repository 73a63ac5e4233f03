//! Resource usage of scripts, and counters kept by scripts, for the statistics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::request::AccessError;

/// Maximum number of scripts with an account; other scripts only count in the sums.
const SCRIPTS_MAX: usize = 1024;

/// Maximum number of counters that scripts may create (`lighty.status`).
const COUNTERS_MAX: usize = 1024;

/// Resource usage of one script's runs, in all workers.
#[derive(Debug, Default)]
pub struct Account {
    runs: AtomicU64,
    failures: AtomicU64,
    /// Counted in whole thousands; the remainder counts for the next run.
    instructions: AtomicU64,
    /// Microseconds from start to end, waits included.
    time_us: AtomicU64,
    /// Maximum bytes that a run had allocated at its end.
    memory_max: AtomicU64,
    /// Bytes of the compiled script, in one worker.
    compiled: AtomicU64,
}

impl Account {
    /// Records the end of a run.
    pub fn add(&self, failed: bool, instructions: u64, time_us: u64, memory: usize) {
        // Each addition locks a cache line; most runs change only two figures.
        let add = |figure: &AtomicU64, more: u64| {
            if more > 0 {
                figure.fetch_add(more, Ordering::Relaxed);
            }
        };
        add(&self.runs, 1);
        add(&self.failures, failed.into());
        add(&self.instructions, instructions);
        add(&self.time_us, time_us);
        if memory as u64 > self.memory_max.load(Ordering::Relaxed) {
            self.memory_max.fetch_max(memory as u64, Ordering::Relaxed);
        }
    }

    /// Records the size of the compiled script.
    pub fn set_compiled(&self, bytes: usize) {
        self.compiled.store(bytes as u64, Ordering::Relaxed);
    }

    fn sums(&self) -> [(&'static str, u64); 4] {
        let figure = |of: &AtomicU64| of.load(Ordering::Relaxed);
        [
            ("runs", figure(&self.runs)),
            ("failures", figure(&self.failures)),
            ("instructions", figure(&self.instructions)),
            ("time-us", figure(&self.time_us)),
        ]
    }

    fn sizes(&self) -> [(&'static str, u64); 2] {
        let figure = |of: &AtomicU64| of.load(Ordering::Relaxed);
        [("memory-max", figure(&self.memory_max)), ("compiled-bytes", figure(&self.compiled))]
    }
}

#[derive(Debug, Default)]
struct AccountsInner {
    scripts: BTreeMap<Box<str>, Arc<Account>>,
    counters: BTreeMap<Box<str>, i64>,
}

/// The accounts of the process.
#[derive(Clone, Debug, Default)]
pub struct Accounts(Arc<Mutex<AccountsInner>>);

impl Accounts {
    /// The account of a script.
    pub fn of(&self, path: &str) -> Arc<Account> {
        let mut inner = self.lock();
        if let Some(known) = inner.scripts.get(path) {
            return Arc::clone(known);
        }
        let account = Arc::new(Account::default());
        if inner.scripts.len() < SCRIPTS_MAX {
            inner.scripts.insert(path.into(), Arc::clone(&account));
        }
        account
    }

    /// The value of a counter; 0 if it does not exist.
    pub fn counter(&self, name: &[u8]) -> i64 {
        let name = String::from_utf8_lossy(name);
        self.lock().counters.get(&*name).copied().unwrap_or(0)
    }

    /// Sets a counter to a value assigned by a script.
    ///
    /// # Errors
    /// The value is not a number.
    pub fn assign_counter(&self, name: &[u8], value: Option<&[u8]>) -> Result<(), AccessError> {
        let number = value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        let number: f64 = number.ok_or(AccessError::NotANumber)?;
        self.set_counter(name, number as i64);
        Ok(())
    }

    /// Sets a counter. Beyond the limit it is ignored.
    fn set_counter(&self, name: &[u8], value: i64) {
        let name = String::from_utf8_lossy(name);
        let mut inner = self.lock();
        if inner.counters.len() < COUNTERS_MAX || inner.counters.contains_key(&*name) {
            inner.counters.insert((*name).into(), value);
        }
    }

    /// All counters of scripts, for the process that takes this one's place.
    pub fn remember(&self) -> Vec<(String, i64)> {
        let inner = self.lock();
        inner.counters.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

    /// Continues the counters of the process before this one. Those that a script has set already
    /// stay.
    pub fn recall(&self, counters: Vec<(String, i64)>) {
        let mut inner = self.lock();
        for (name, value) in counters {
            if inner.counters.len() < COUNTERS_MAX {
                inner.counters.entry(name.into()).or_insert(value);
            }
        }
    }

    /// All counters of scripts.
    pub fn counters(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let inner = self.lock();
        let counters = inner.counters.iter();
        counters.map(|(name, value)| (name.as_bytes().into(), value.to_string().into())).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, AccountsInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
    /// Names and sums over all runs for the statistics: `magnet.PATH.runs` and others.
    pub fn sums(&self) -> Vec<(String, u64)> {
        let inner = self.lock();
        let mut sums = Vec::new();
        for (path, account) in &inner.scripts {
            sums.extend(
                account.sums().map(|(name, value)| (format!("magnet.{path}.{name}"), value)),
            );
        }
        sums
    }

    /// Names and values for the statistics that are no sums: `magnet.PATH.memory-max` and others,
    /// and the counters of scripts, which these set.
    pub fn figures(&self) -> Vec<(String, String)> {
        let inner = self.lock();
        let mut figures = Vec::new();
        for (path, account) in &inner.scripts {
            for (name, value) in account.sizes() {
                figures.push((format!("magnet.{path}.{name}"), value.to_string()));
            }
        }
        let counters = inner.counters.iter();
        figures.extend(counters.map(|(name, value)| (name.to_string(), value.to_string())));
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_and_counters_are_bounded() {
        let accounts = Accounts::default();
        accounts.of("/a.lua").add(true, 2000, 7, 100);
        accounts.of("/a.lua").add(false, 1000, 1, 50);
        for n in 0..=COUNTERS_MAX {
            accounts.set_counter(format!("c{n}").as_bytes(), 1);
            accounts.of(&format!("/{n}"));
        }
        assert_eq!(accounts.counter(b"c0"), 1);
        assert_eq!(accounts.counter(format!("c{COUNTERS_MAX}").as_bytes()), 0);
        let figures = accounts.figures();
        let sums = accounts.sums();
        let sum = |name: &str| sums.iter().find(|(known, _)| known == name).map(|(_, sum)| *sum);
        assert_eq!((sum("magnet./a.lua.runs"), sum("magnet./a.lua.failures")), (Some(2), Some(1)));
        let find = |name: &str| figures.iter().find(|(known, _)| known == name).map(|(_, v)| &**v);
        assert_eq!(find("magnet./a.lua.memory-max"), Some("100"));
        assert_eq!(figures.len(), SCRIPTS_MAX * 2 + COUNTERS_MAX);
        assert_eq!(sums.len(), SCRIPTS_MAX * 4);
    }
}
