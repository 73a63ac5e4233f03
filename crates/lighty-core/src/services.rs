//! What a worker offers to the requests it serves.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use lighty_config::{Active, Config, Facts, Field, SnapshotCache};
use lighty_io::clock::Clock;
use lighty_io::file::{FileEngine, Root};
use lighty_io::stat_cache::StatCache;

use crate::counters::Counters;
use crate::limits;
use crate::log::Log;
use crate::module::ModuleList;
use crate::settings::Settings;

/// One per worker thread, shared by its requests.
pub struct Services {
    pub clock: Clock,
    pub engine: FileEngine,
    pub stat_cache: StatCache,
    pub log: Log,
    pub counters: Counters,
    pub modules: ModuleList,
    config: std::sync::Arc<Config<Settings>>,
    snapshots: RefCell<SnapshotCache<Settings>>,
    roots: RefCell<HashMap<Vec<u8>, Rc<Root>, foldhash::fast::RandomState>>,
    active: RefCell<Active>,
    /// The one variant of a configuration without conditions.
    unconditional: Option<Rc<Settings>>,
    /// Whether any condition asks for the physical path, and settings must be resolved once more.
    pub asks_physical: bool,
}

impl Services {
    /// Puts a worker's services together.
    pub fn new(
        config: std::sync::Arc<Config<Settings>>,
        clock: Clock,
        engine: FileEngine,
        stat_cache: StatCache,
        log: Log,
        modules: ModuleList,
    ) -> Self {
        let asks_physical =
            config.uses(&Field::PhysicalPath) || config.uses(&Field::PhysicalExistingPath);
        let unconditional =
            (config.blocks().len() <= 1).then(|| Rc::new(config.settings(&Active::default())));
        Self {
            unconditional,
            clock,
            engine,
            stat_cache,
            log,
            counters: Counters::default(),
            modules,
            snapshots: RefCell::new(SnapshotCache::with_limit(limits::SETTINGS_VARIANTS_MAX)),
            roots: RefCell::default(),
            active: RefCell::new(Active::default()),
            config,
            asks_physical,
        }
    }

    /// The settings that apply to a request with these facts.
    pub fn resolve(&self, facts: &dyn Facts) -> Rc<Settings> {
        if let Some(settings) = &self.unconditional {
            return Rc::clone(settings);
        }
        let mut active = self.active.borrow_mut();
        self.config.evaluate(facts, &mut active);
        Rc::clone(self.snapshots.borrow_mut().get(&self.config, &active))
    }

    /// The configuration.
    pub fn config(&self) -> &Config<Settings> {
        &self.config
    }

    /// The held descriptor of a document root, if there is one by now.
    pub fn root(&self, docroot: &[u8]) -> Option<Rc<Root>> {
        self.roots.borrow().get(docroot).cloned()
    }

    /// Opens a document root and holds it.
    pub async fn open_root(&self, docroot: &[u8]) -> std::io::Result<Rc<Root>> {
        use std::os::unix::ffi::OsStrExt;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(docroot));
        let root = self.engine.open_root(path).await?;
        let mut roots = self.roots.borrow_mut();
        if roots.len() >= limits::ROOTS_MAX {
            roots.clear();
        }
        roots.insert(docroot.to_vec(), Rc::clone(&root));
        Ok(root)
    }

    /// Lets go of what is held open: document roots and the stat cache.
    pub fn drop_caches(&self) {
        self.roots.borrow_mut().clear();
        self.stat_cache.clear();
    }
}
