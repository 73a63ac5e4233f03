//! The scripts that a thread has compiled, by path.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::accounts::Accounts;
use crate::chunk::Chunk;
use crate::engine::Script;

/// Maximum bytes of a script.
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of compiled scripts; beyond it, all are dropped and compiled again when needed.
pub const SCRIPTS_MAX: usize = 1024;

/// Compiled scripts, each with data of type `K` about its file.
#[derive(Debug)]
pub struct ScriptCache<K> {
    kept: RefCell<CachedScripts<K>>,
    accounts: Accounts,
}

type CachedScripts<K> = HashMap<Box<[u8]>, (K, Rc<Script>), foldhash::fast::RandomState>;

impl<K> ScriptCache<K> {
    /// An empty cache. Its scripts' accounts are kept in `accounts`.
    pub fn new(accounts: &Accounts) -> Self {
        Self { kept: RefCell::default(), accounts: accounts.clone() }
    }

    /// The script of a path, if `is_unchanged` returns true for its file.
    pub fn get(
        &self,
        path: &[u8],
        is_unchanged: impl FnOnce(&mut K) -> bool,
    ) -> Option<Rc<Script>> {
        let mut scripts = self.kept.borrow_mut();
        let (known, script) = scripts.get_mut(path)?;
        is_unchanged(known).then(|| Rc::clone(script))
    }

    /// Stores a script in place of an older one, and opens its account.
    pub fn insert(&self, path: &[u8], known: K, mut script: Script) -> Rc<Script> {
        script.account = self.accounts.of(&script.path);
        script.account.set_compiled(script.bytes);
        let script = Rc::new(script);
        let mut scripts = self.kept.borrow_mut();
        if scripts.len() >= SCRIPTS_MAX {
            scripts.clear();
        }
        scripts.insert(path.into(), (known, Rc::clone(&script)));
        script
    }
}

/// Maximum number of compiled modules; beyond it, all are dropped and compiled again when needed.
pub const MODULES_MAX: usize = 256;

/// Compiled modules by path, for `require`, each with data of type `K` about its file.
#[derive(Debug)]
pub struct ModuleCache<K>(RefCell<Modules<K>>);

type Modules<K> = HashMap<Box<[u8]>, (K, Chunk), foldhash::fast::RandomState>;

impl<K> Default for ModuleCache<K> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<K> ModuleCache<K> {
    /// The module of a path, if `is_unchanged` returns true for its file.
    pub fn get(&self, path: &[u8], is_unchanged: impl FnOnce(&mut K) -> bool) -> Option<Chunk> {
        let mut modules = self.0.borrow_mut();
        let (known, chunk) = modules.get_mut(path)?;
        is_unchanged(known).then(|| chunk.clone())
    }

    /// Stores a module in place of an older one.
    pub fn insert(&self, path: &[u8], known: K, chunk: &Chunk) {
        let mut modules = self.0.borrow_mut();
        if modules.len() >= MODULES_MAX {
            modules.clear();
        }
        modules.insert(path.into(), (known, chunk.clone()));
    }
}
