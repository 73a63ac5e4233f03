//! Levels of the error log: one for all modules, and others for single modules.
//!
//! The module of a line is the directory of the source that writes it. All clones of a log share
//! its levels; the start, a reload and the control socket change them.

use std::panic::Location;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use crate::log::Level;

/// Names of modules in `server.errorlog-levels`, sorted. A test of lighty-server compares them
/// with its list of modules.
const NAMES: &[&str] = &[
    "access",
    "accesslog",
    "acme",
    "alias",
    "auth",
    "auth_forward",
    "cache",
    "cgi",
    "chunked",
    "control",
    "core",
    "cors",
    "deflate",
    "dirlisting",
    "evasive",
    "evhost",
    "expire",
    "extforward",
    "flv_streaming",
    "health",
    "https",
    "indexfile",
    "io",
    "magnet",
    "maintenance",
    "maxminddb",
    "proxy",
    "redirect",
    "rewrite",
    "secdownload",
    "server",
    "setenv",
    "simple_vhost",
    "ssi",
    "staticfile",
    "status",
    "timing",
    "tls",
    "tracing",
    "trigger_b4_dl",
    "uploadprogress",
    "userdir",
    "usertrack",
    "vhostdb",
    "webdav",
];

/// Crates whose directories are modules of their own.
const DIVIDED: &[&str] = &["modules", "server"];

/// A module without a level of its own.
const INHERITS: u8 = u8::MAX;

/// A module of the error log, as an index of `NAMES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogModule(u8);

impl LogModule {
    /// The module with a given name: `proxy`, `mod_proxy_core` and `mod_proxy` are the same.
    pub fn of_name(name: &str) -> Option<Self> {
        let short = name.strip_prefix("mod_").unwrap_or(name);
        let short = if short == "proxy_core" { "proxy" } else { short };
        NAMES.binary_search(&short).ok().map(Self::at)
    }

    /// The module of a place in the source; `None` for code of tests and libraries.
    pub fn of_place(place: &Location<'_>) -> Option<Self> {
        Self::of_path(place.file())
    }

    fn of_path(path: &str) -> Option<Self> {
        let (name, below) = path.rsplit_once("lighty-")?.1.split_once("/src/")?;
        let directory = below.split(['/', '.']).next().filter(|_| DIVIDED.contains(&name));
        directory.and_then(Self::of_name).or_else(|| Self::of_name(name))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// All modules, sorted by their names.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..NAMES.len()).map(Self::at)
    }

    /// All names, sorted.
    pub fn names() -> &'static [&'static str] {
        NAMES
    }

    fn at(index: usize) -> Self {
        Self(u8::try_from(index).expect("fewer than 255 modules"))
    }
}

/// A level as configured, and an operator's order in its place for a time.
struct OrderableLevel {
    /// The level in effect, or `INHERITS`.
    current: AtomicU8,
    configured: AtomicU8,
    /// Wall-clock second at which an ordered level ends; 0: none is ordered.
    ordered_until_s: AtomicI64,
}

impl OrderableLevel {
    const fn new(configured: u8) -> Self {
        Self {
            current: AtomicU8::new(configured),
            configured: AtomicU8::new(configured),
            ordered_until_s: AtomicI64::new(0),
        }
    }

    fn get(&self) -> Option<Level> {
        let current = self.current.load(Ordering::Relaxed);
        (current != INHERITS).then(|| level(current))
    }

    fn ordered_until_s(&self) -> Option<i64> {
        Some(self.ordered_until_s.load(Ordering::Relaxed)).filter(|until_s| *until_s != 0)
    }

    /// An order stays in effect until its end.
    fn configure(&self, configured: u8) {
        self.configured.store(configured, Ordering::Relaxed);
        if self.ordered_until_s().is_none() {
            self.current.store(configured, Ordering::Relaxed);
        }
    }

    fn order(&self, order: Option<(Level, i64)>) {
        let configured = self.configured.load(Ordering::Relaxed);
        let (current, until_s) =
            order.map_or((configured, 0), |(ordered, until_s)| (ordered as u8, until_s.max(1)));
        self.ordered_until_s.store(until_s, Ordering::Relaxed);
        self.current.store(current, Ordering::Relaxed);
    }

    /// Ends an order whose time is over. Returns true if it has.
    fn expire(&self, now_s: i64) -> bool {
        let until_s = self.ordered_until_s.load(Ordering::Relaxed);
        if until_s == 0 || now_s < until_s {
            return false;
        }
        // Several threads may end it, and another order may begin meanwhile.
        let ended =
            self.ordered_until_s.compare_exchange(until_s, 0, Ordering::Relaxed, Ordering::Relaxed);
        if ended.is_ok() {
            self.order(None);
        }
        ended.is_ok()
    }
}

/// A module's level by an operator's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedModuleLevel {
    /// The module.
    pub module: LogModule,
    /// Its level.
    pub level: Level,
    /// Wall-clock second at which the configured level takes its place.
    pub until_s: i64,
}

/// Levels of all modules. The main thread changes them; any thread reads them, and ends an order
/// whose time is over.
pub struct Levels {
    /// The level of modules without one of their own.
    common: OrderableLevel,
    modules: [OrderableLevel; NAMES.len()],
    /// The lowest level of all, so that most calls compare one number.
    lowest: AtomicU8,
}

impl Levels {
    /// The same level for all modules.
    pub fn new(common: Level) -> Self {
        Self {
            common: OrderableLevel::new(common as u8),
            modules: [const { OrderableLevel::new(INHERITS) }; NAMES.len()],
            lowest: AtomicU8::new(common as u8),
        }
    }

    /// The level of modules without one of their own.
    pub fn common(&self) -> Level {
        self.common.get().unwrap_or(Level::Debug)
    }

    /// The level in force for a module.
    pub fn of(&self, module: LogModule) -> Level {
        self.own(module).unwrap_or_else(|| self.common())
    }

    /// A module's own level, if it has one.
    pub fn own(&self, module: LogModule) -> Option<Level> {
        self.at(module).get()
    }

    fn at(&self, module: LogModule) -> &OrderableLevel {
        &self.modules[usize::from(module.0)]
    }

    /// Changes the level of modules without one of their own. An operator's order stays in effect
    /// until its end.
    pub fn set_common(&self, common: Level) {
        self.common.configure(common as u8);
        self.settle();
    }

    /// Wall-clock second at which the configured common level takes the place of an ordered one.
    pub fn ordered_until_s(&self) -> Option<i64> {
        self.common.ordered_until_s()
    }

    /// Sets the common level until a wall-clock second; `None`: the configured one again.
    pub fn order(&self, order: Option<(Level, i64)>) {
        self.common.order(order);
        self.settle();
    }

    /// Sets a module's level until a wall-clock second; `None`: the configured one again.
    pub fn order_module(&self, module: LogModule, order: Option<(Level, i64)>) {
        self.at(module).order(order);
        self.settle();
    }

    /// The orders for single modules, sorted by the modules' names.
    pub fn ordered_modules(&self) -> Vec<OrderedModuleLevel> {
        let ordered = |module: LogModule| {
            let (level, until_s) = (self.own(module)?, self.at(module).ordered_until_s()?);
            Some(OrderedModuleLevel { module, level, until_s })
        };
        LogModule::all().filter_map(ordered).collect()
    }

    /// Ends the orders whose time is over.
    pub fn expire(&self, now_s: i64) {
        let all = self.modules.iter().chain([&self.common]);
        if all.filter(|one| one.expire(now_s)).count() > 0 {
            self.settle();
        }
    }

    /// Gives a module a level of its own, or the common one.
    pub fn set(&self, module: LogModule, own: Option<Level>) {
        self.at(module).configure(own.map_or(INHERITS, |level| level as u8));
        self.settle();
    }

    /// Sets all levels, as a configuration has them. A later pair of a module wins. An operator's
    /// orders stay in effect until their end.
    pub fn replace(&self, common: Level, own: &[(LogModule, Level)]) {
        self.common.configure(common as u8);
        for module in LogModule::all() {
            let named = own.iter().rev().find(|(named, _)| *named == module);
            self.at(module).configure(named.map_or(INHERITS, |(_, level)| *level as u8));
        }
        self.settle();
    }

    fn settle(&self) {
        let all = LogModule::all().map(|module| self.of(module));
        let lowest = all.min().unwrap_or(Level::Debug).min(self.common());
        self.lowest.store(lowest as u8, Ordering::Relaxed);
    }

    /// True if a line of this level, written at this place, belongs into the log.
    pub(super) fn admit(&self, level: Level, place: &Location<'_>) -> bool {
        if (level as u8) < self.lowest.load(Ordering::Relaxed) {
            return false;
        }
        let module = LogModule::of_place(place);
        level >= module.map_or_else(|| self.common(), |module| self.of(module))
    }
}

fn level(number: u8) -> Level {
    Level::ALL.get(usize::from(number)).copied().unwrap_or(Level::Debug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn places_have_modules() {
        for (path, expected) in [
            ("crates/lighty-proxy/src/serve.rs", Some("proxy")),
            ("crates/lighty-modules/src/cgi/output.rs", Some("cgi")),
            ("crates/lighty-modules/src/cgi.rs", Some("cgi")),
            ("/lighty-2/crates/lighty-server/src/tls/keeper.rs", Some("tls")),
            ("crates/lighty-server/src/boot.rs", Some("server")),
            ("crates/lighty-core/src/log/levels.rs", Some("core")),
            ("crates/lighty-core/tests/integration/main.rs", None),
            ("library/core/src/option.rs", None),
        ] {
            assert_eq!(LogModule::of_path(path).map(LogModule::name), expected, "{path}");
        }
        for name in ["proxy", "mod_proxy", "mod_proxy_core"] {
            assert_eq!(LogModule::of_name(name).map(LogModule::name), Some("proxy"));
        }
        assert_eq!(LogModule::of_name("prox"), None);
    }

    #[test]
    fn module_may_have_a_level_of_its_own() {
        let levels = Levels::new(Level::Notice);
        let core = LogModule::of_name("core").expect("a module");
        let admits = |level| levels.admit(level, Location::caller());
        assert!(admits(Level::Notice) && !admits(Level::Info));
        levels.set(core, Some(Level::Debug));
        assert!(admits(Level::Debug));
        assert_eq!((levels.of(core), levels.common()), (Level::Debug, Level::Notice));
        levels.set(core, Some(Level::Error));
        assert!(admits(Level::Error) && !admits(Level::Warning));
        levels.set(core, None);
        assert!(admits(Level::Notice) && !admits(Level::Info));
        levels.set_common(Level::Info);
        assert!(admits(Level::Info) && !admits(Level::Debug));
        let acme = LogModule::of_name("acme").expect("a module");
        levels.replace(Level::Error, &[(acme, Level::Debug), (acme, Level::Info)]);
        assert_eq!(levels.own(acme), Some(Level::Info));
        assert!(admits(Level::Error) && !admits(Level::Warning));
    }

    #[test]
    fn ordered_level_of_a_module_ends_and_outlives_a_reload() {
        let levels = Levels::new(Level::Notice);
        let [core, tls] = ["core", "tls"].map(|name| LogModule::of_name(name).expect("a module"));
        let admits = |level| levels.admit(level, Location::caller());
        levels.order_module(core, Some((Level::Debug, 100)));
        levels.order_module(tls, Some((Level::Error, 200)));
        assert!(admits(Level::Debug));
        let names: Vec<_> = levels.ordered_modules().iter().map(|one| one.module.name()).collect();
        assert_eq!(names, ["core", "tls"]);
        levels.replace(Level::Warning, &[(core, Level::Info)]);
        assert!(admits(Level::Debug), "an order outlives a reload");
        levels.expire(99);
        assert_eq!(levels.of(core), Level::Debug);
        levels.expire(100);
        assert_eq!(levels.of(core), Level::Info, "as the new configuration has it");
        assert!(!admits(Level::Debug));
        assert_eq!(levels.of(tls), Level::Error);
        levels.order_module(tls, None);
        assert_eq!((levels.of(tls), levels.own(tls)), (Level::Warning, None));
        assert_eq!(levels.ordered_modules(), []);
    }
}
