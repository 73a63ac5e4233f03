//! The registry of modules, in call order.
//!
//! To add one: a file in `lighty-modules` and a line in [`REGISTRY`]. The manual, `-t`, `-p` and
//! the scope check follow.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_config::{Config, Directive};
use lighty_core::machine::status_board::StatusBoard;
use lighty_core::settings::directives;
use lighty_core::{Module, ModuleList, Settings};
use lighty_modules::accesslog::{AccessLog, Sinks};
#[cfg(feature = "acme")]
use lighty_modules::acme::Acme;
#[cfg(feature = "scripts")]
use lighty_modules::magnet::MagnetModule;
#[cfg(feature = "tracing")]
use lighty_modules::tracing::Tracing;
#[cfg(feature = "vhostdb")]
use lighty_modules::vhostdb::Vhostdb;
use lighty_modules::webdav::Stores;
#[cfg(feature = "webdav")]
use lighty_modules::webdav::Webdav;
use lighty_modules::{
    access::Access,
    alias::Alias,
    auth::{Auth, CredentialCache},
    auth_forward::AuthForward,
    cache::Cache,
    cgi::Cgi,
    chunked::Chunked,
    cors::Cors,
    deflate::Deflate,
    dirlisting::DirListing,
    evasive::Evasive,
    evhost::Evhost,
    expire::Expire,
    extforward::Extforward,
    flv_streaming::FlvStreaming,
    health::Health,
    https::Https,
    indexfile::IndexFile,
    maintenance::Maintenance,
    maxminddb::Maxminddb,
    redirect::Redirect,
    rewrite::Rewrite,
    secdownload::Secdownload,
    setenv::Setenv,
    simple_vhost::SimpleVhost,
    ssi::Ssi,
    staticfile::StaticFile,
    status::Status,
    timing::Timing,
    trigger_b4_dl::TriggerB4Dl,
    uploadprogress::UploadProgress,
    userdir::Userdir,
    usertrack::Usertrack,
};
use lighty_proxy::route::{ProxyCore, WorkerProxy};
use lighty_proxy::upstream::registry::Naming;

use crate::followed::FollowedFiles;
use crate::tls::Tls;

/// A line of the registry.
pub struct Entry {
    /// Its name in `server.modules`.
    pub name: &'static str,
    included: Included,
    directives: fn() -> Vec<Directive<Settings>>,
    create: fn(&Making<'_>) -> Rc<dyn Module>,
}

/// When a worker has an instance of a module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Included {
    Always,
    /// `server.modules` names it, or one of its directives is set.
    Named,
    /// A directive of the module is set. Otherwise it would inspect every request in vain.
    Set,
}

/// Arguments of module constructors.
struct Making<'a> {
    shared: &'a Shared,
    proxy: &'a Rc<WorkerProxy>,
    /// Name of the module to construct.
    name: &'static str,
}

impl Making<'_> {
    /// Returns the state that the instances of this module in all workers share.
    fn state<T: State>(&self) -> T {
        self.shared.states.of(self.name)
    }
}

/// Each line: name, type, condition for an instance, constructor. A cargo feature may gate it.
macro_rules! modules {
    ($(
        $(#[$gate:meta])?
        $name:literal, $module:ty, $included:ident, |$with:pat_param| $create:expr;
    )*) => {
        /// Every module in this build, in call order.
        pub const REGISTRY: &[Entry] = &[$($(#[$gate])? Entry {
            name: $name,
            included: Included::$included,
            directives: <$module>::directives,
            create: |$with| Rc::new($create),
        },)*];
    };
}

modules! {
    // Before all modules that could redirect an authority.
    #[cfg(feature = "acme")]
    "mod_acme", Acme, Set, |_| Acme;
    // Runs before `mod_extforward`: trust depends on the direct peer's address.
    #[cfg(feature = "tracing")]
    "mod_tracing", Tracing, Set, |with| Tracing::new(with.state());
    // Before any module that uses the client's address.
    "mod_extforward", Extforward, Set, |_| Extforward;
    // Before redirections: a probe speaks plain HTTP and follows none.
    "mod_health", Health, Set, |with| Health::new(with.state());
    "mod_maintenance", Maintenance, Set, |with| Maintenance::new(with.state());
    "mod_https", Https, Always, |_| Https;
    // Before redirections, which browsers do not follow in a preflight, and before authentication.
    "mod_cors", Cors, Set, |_| Cors;
    "mod_redirect", Redirect, Named, |_| Redirect;
    "mod_access", Access, Named, |_| Access;
    // Before passwords: a service may name the user for rules about users.
    "mod_auth_forward", AuthForward, Set, |_| AuthForward;
    "mod_auth", Auth, Named, |with| Auth::new(Arc::clone(&with.shared.keeper));
    "mod_trigger_b4_dl", TriggerB4Dl, Set, |with| TriggerB4Dl::new(with.state());
    // After authentication.
    "mod_evasive", Evasive, Set, |_| Evasive;
    // Before the modules that find a host's directory by its name.
    #[cfg(feature = "vhostdb")]
    "mod_vhostdb", Vhostdb, Set, |with| Vhostdb::new(with.state());
    "mod_simple_vhost", SimpleVhost, Named, |_| SimpleVhost;
    "mod_evhost", Evhost, Named, |_| Evhost;
    "mod_alias", Alias, Named, |_| Alias;
    "mod_userdir", Userdir, Named, |_| Userdir::default();
    "mod_secdownload", Secdownload, Named, |_| Secdownload;
    // Before `mod_setenv`, which may replace its variables.
    "mod_maxminddb", Maxminddb, Set, |_| Maxminddb;
    // Before any module that responds: conditions may see its changes and reject the request.
    // Before scripts, which see them too.
    "mod_setenv", Setenv, Set, |_| Setenv;
    // After access control, so that scripts see only permitted requests, and after modules that
    // change the physical path.
    #[cfg(feature = "scripts")]
    "mod_magnet", MagnetModule, Set, |with| MagnetModule::new(
        with.state(), with.state(), &with.shared.board, with.shared.started_s,
    );
    "mod_status", Status, Set, |with| Status::new(
        &with.shared.board, with.state(), with.shared.started_s,
    );
    "mod_uploadprogress", UploadProgress, Named, |with| UploadProgress::new(with.state());
    // After modules that change the physical path, but before URLs without a file are rewritten:
    // the file may not exist yet.
    #[cfg(feature = "webdav")]
    "mod_webdav", Webdav, Set, |with| Webdav::new(&with.shared.stores);
    // After modules that change the physical path.
    "mod_rewrite", Rewrite, Named, |_| Rewrite;
    "mod_indexfile", IndexFile, Named, |_| IndexFile;
    // In front of the handlers that it stores the responses of.
    "mod_cache", Cache, Set, |with| Cache::new(with.state());
    "mod_proxy_core", ProxyCore, Named, |with| {
        ProxyCore::new(with.proxy, &with.shared.naming)
    };
    "mod_cgi", Cgi, Named, |with| Cgi::new(with.state());
    "mod_ssi", Ssi, Set, |with| Ssi::new(with.state());
    "mod_flv_streaming", FlvStreaming, Named, |_| FlvStreaming;
    "mod_staticfile", StaticFile, Always, |_| StaticFile;
    "mod_dirlisting", DirListing, Always, |with| DirListing::new(with.state());
    "mod_expire", Expire, Named, |_| Expire;
    "mod_usertrack", Usertrack, Named, |_| Usertrack;
    // After all modules that spend time on the head.
    "mod_timing", Timing, Set, |_| Timing::default();
    // Filters. Each one filters the output of the previous ones.
    "mod_deflate", Deflate, Named, |with| Deflate::new(with.shared.memory_share);
    "mod_chunked", Chunked, Named, |_| Chunked;
    "mod_accesslog", AccessLog, Named, |with| AccessLog::new(&with.shared.access_logs);
}

/// Modules, and directives of others that need them.
const WORKS_FOR: &[(&str, &str)] =
    &[("mod_status", "tracing.metrics-collector"), ("mod_maintenance", "status.route")];

/// Returns the names of the modules in this build, whatever `server.modules` names.
pub fn names() -> Vec<&'static str> {
    REGISTRY.iter().map(|entry| entry.name).collect()
}

/// State that a module's instances share, in all workers and under all configurations. Its clones
/// refer to the same data.
pub trait State: Any + Clone + Default + Send {}

impl<T: Any + Clone + Default + Send> State for T {}

/// The states of all modules, each created on first use.
#[derive(Clone, Default)]
pub struct States(Arc<Mutex<HashMap<StateKey, Box<dyn Any + Send>>>>);

/// A module's name, and the type of one of its states.
type StateKey = (&'static str, TypeId);

impl States {
    /// Returns a module's state of this type.
    pub fn of<T: State>(&self, module: &'static str) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = all.entry((module, TypeId::of::<T>())).or_insert_with(|| Box::<T>::default());
        state.downcast_ref::<T>().cloned().unwrap_or_default()
    }
}

/// State that modules share across workers and configurations.
#[derive(Clone)]
pub struct Shared {
    /// Private state of each module.
    pub states: States,
    /// The access logs that the configuration names.
    pub access_logs: Sinks,
    /// Workers report their counters and connections here.
    pub board: StatusBoard,
    /// Wall-clock start time in seconds.
    pub started_s: i64,
    /// The upstreams that the configuration names.
    pub naming: Arc<Naming>,
    /// User files, and the credentials verified so far (`mod_auth`).
    pub keeper: Arc<CredentialCache>,
    /// Certificates and ticket keys.
    pub(crate) tls: Tls,
    /// Lists of addresses.
    #[expect(dead_code, reason = "generations find the contents that it holds")]
    pub(crate) files: FollowedFiles,
    /// Databases of locks and properties.
    pub stores: Stores,
    /// A worker's share of the process's memory limit, if there is one.
    pub memory_share: Option<u64>,
}

impl Shared {
    /// Creates the state for workers of a process that keeps no log, has no earlier counters, and
    /// has no memory limit.
    ///
    /// # Errors
    /// The thread for password hashes cannot be started.
    pub fn new(started_s: i64, naming: Arc<Naming>) -> io::Result<Self> {
        Ok(Self {
            states: States::default(),
            access_logs: Sinks::none(),
            board: StatusBoard::default(),
            started_s,
            naming,
            keeper: CredentialCache::start(started_s.unsigned_abs())?,
            tls: Tls::default(),
            files: FollowedFiles::default(),
            stores: Stores::new(|_| ()),
            memory_share: None,
        })
    }
}

/// Returns every directive in this build.
pub fn directives() -> Vec<Directive<Settings>> {
    let mut rows = directives::all();
    rows.extend(REGISTRY.iter().flat_map(|entry| (entry.directives)()));
    rows
}

/// Returns a worker's modules for a configuration, in order.
pub fn instances(
    config: &Config<Settings>,
    shared: &Shared,
    proxy: &Rc<WorkerProxy>,
) -> ModuleList {
    // Needed even if no module proxies any more, to drop the previous upstreams.
    proxy.adopt(&shared.naming);
    let included = REGISTRY.iter().filter(|entry| entry.is_included(config));
    let create = |entry: &Entry| (entry.create)(&Making { shared, proxy, name: entry.name });
    // Scripts reach backends even under a configuration without routes.
    let backends = Rc::new(ProxyCore::new(proxy, &shared.naming));
    ModuleList::new(included.map(create).collect()).with_backends(backends)
}

/// Returns the names of the modules that take part under a configuration, in call order.
pub(crate) fn included(config: &Config<Settings>) -> Vec<&'static str> {
    let included = REGISTRY.iter().filter(|entry| entry.is_included(config));
    included.map(|entry| entry.name).collect()
}

impl Entry {
    fn is_included(&self, config: &Config<Settings>) -> bool {
        let named = &config.global().server.modules;
        let is_named = || named.iter().any(|name| **name == *self.name);
        match self.included {
            Included::Always => true,
            Included::Named => is_named() || self.is_set(config),
            Included::Set => self.is_set(config),
        }
    }

    /// True if one of its directives is set anywhere, or another one that it works for.
    fn is_set(&self, config: &Config<Settings>) -> bool {
        let works_for = |(module, name): &(&str, &str)| *module == self.name && config.is_set(name);
        (self.directives)().iter().any(|row| config.is_set(row.name))
            || WORKS_FOR.iter().any(works_for)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_module_is_one_file_and_one_line() {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../lighty-modules/src");
        let files: BTreeSet<String> = std::fs::read_dir(sources)
            .expect("the modules")
            .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
            .filter(|name| name != "lib")
            .collect();
        let own = names().into_iter().filter(|name| *name != "mod_proxy_core");
        let mut lines: Vec<_> =
            own.map(|name| name.trim_start_matches("mod_").to_owned()).collect();
        lines.sort_unstable();
        assert_eq!(files.into_iter().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn every_module_has_a_level_in_the_error_log() {
        use lighty_core::log::levels::LogModule;
        let unknown: Vec<_> =
            names().into_iter().filter(|name| LogModule::of_name(name).is_none()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn no_directive_is_registered_twice() {
        let mut names: Vec<_> = directives().iter().map(|row| row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
