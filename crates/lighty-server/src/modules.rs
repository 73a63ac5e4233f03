//! The registry of modules, in call order.
//!
//! To add one: a file in `lighty-modules` and a line in [`REGISTRY`]. The manual, `-t`, `-p` and
//! the scope check follow.

use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Config, Directive};
use lighty_core::machine::permits::Permits;
use lighty_core::machine::status_board::StatusBoard;
use lighty_core::settings::directives;
use lighty_core::{Module, ModuleList, Settings};
use lighty_modules::accesslog::{AccessLog, Sinks};
use lighty_modules::rewrite::{Rewrite, RewriteIfNotFile};
use lighty_modules::uploadprogress::{UploadProgress, Uploads};
use lighty_modules::webdav::{Stores, Webdav};
use lighty_modules::{
    access::Access,
    alias::Alias,
    auth::{Auth, CredentialCache},
    cgi::Cgi,
    chunked::Chunked,
    deflate::Deflate,
    dirlisting::{DirListing, Listings},
    evasive::{Evasive, EvasiveUser},
    evhost::Evhost,
    expire::Expire,
    extforward::Extforward,
    flv_streaming::FlvStreaming,
    indexfile::IndexFile,
    magnet::{Accounts, Dictionaries, Magnet, MagnetPhysical, MagnetResponse, MagnetUrl},
    redirect::Redirect,
    secdownload::Secdownload,
    setenv::Setenv,
    simple_vhost::SimpleVhost,
    ssi::Ssi,
    staticfile::StaticFile,
    status::Status,
    userdir::Userdir,
    usertrack::Usertrack,
};
use lighty_proxy::route::{ProxyCore, WorkerProxy};
use lighty_proxy::upstream::registry::Naming;

/// A line of the registry. A module that acts at two places of the order has two.
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
    /// One of its directives is set. It would otherwise inspect every request for nothing.
    Set,
}

/// What modules are made from.
struct Making<'a> {
    shared: &'a Shared,
    proxy: &'a Rc<WorkerProxy>,
    /// The worker's scripts.
    magnet: Rc<Magnet>,
}

/// Each line: name, type, when it is included, how it is made.
macro_rules! modules {
    ($($name:literal, $module:ty, $included:ident, |$with:pat_param| $create:expr;)*) => {
        /// Every module in this build, in call order.
        pub const REGISTRY: &[Entry] = &[$(Entry {
            name: $name,
            included: Included::$included,
            directives: <$module>::directives,
            create: |$with| Rc::new($create),
        },)*];
    };
}

modules! {
    // Before any module that uses the client's address.
    "mod_extforward", Extforward, Set, |_| Extforward;
    "mod_evasive", Evasive, Set, |_| Evasive;
    "mod_rewrite", Rewrite, Named, |_| Rewrite;
    "mod_redirect", Redirect, Named, |_| Redirect;
    "mod_access", Access, Named, |_| Access;
    "mod_auth", Auth, Named, |with| Auth::new(Arc::clone(&with.shared.keeper));
    "mod_evasive", EvasiveUser, Set, |_| EvasiveUser;
    // After access was decided, so that scripts see requests that may pass.
    "mod_magnet", MagnetUrl, Set, |with| MagnetUrl(Rc::clone(&with.magnet));
    // Before any module that responds: conditions may see its changes and reject the request.
    "mod_setenv", Setenv, Set, |_| Setenv;
    "mod_status", Status, Set, |with| Status::new(&with.shared.board, with.shared.started_s);
    "mod_uploadprogress", UploadProgress, Named, |with| UploadProgress::new(&with.shared.uploads);
    "mod_simple_vhost", SimpleVhost, Named, |_| SimpleVhost;
    "mod_evhost", Evhost, Named, |_| Evhost;
    "mod_alias", Alias, Named, |_| Alias;
    "mod_userdir", Userdir, Named, |_| Userdir::default();
    "mod_secdownload", Secdownload, Named, |_| Secdownload;
    "mod_magnet", MagnetPhysical, Set, |with| MagnetPhysical(Rc::clone(&with.magnet));
    // After modules that change the physical path, but before URLs without a file are rewritten:
    // the file may not exist yet.
    "mod_webdav", Webdav, Set, |with| Webdav::new(&with.shared.stores);
    // After modules that change the physical path.
    "mod_rewrite", RewriteIfNotFile, Named, |_| RewriteIfNotFile;
    "mod_indexfile", IndexFile, Named, |_| IndexFile;
    "mod_proxy_core", ProxyCore, Named, |with| ProxyCore::new(with.proxy, &with.shared.naming);
    "mod_cgi", Cgi, Named, |with| Cgi::new(&with.shared.permits);
    "mod_ssi", Ssi, Set, |with| Ssi::new(&with.shared.page_permits);
    "mod_flv_streaming", FlvStreaming, Named, |_| FlvStreaming;
    "mod_staticfile", StaticFile, Always, |_| StaticFile;
    "mod_dirlisting", DirListing, Always, |with| DirListing::new(&with.shared.listings);
    "mod_expire", Expire, Named, |_| Expire;
    "mod_usertrack", Usertrack, Named, |_| Usertrack;
    "mod_magnet", MagnetResponse, Set, |with| MagnetResponse(Rc::clone(&with.magnet));
    // Filters: each one filters the output of those before it.
    "mod_deflate", Deflate, Named, |with| Deflate::new(with.shared.memory_share);
    "mod_chunked", Chunked, Named, |_| Chunked;
    "mod_accesslog", AccessLog, Named, |with| AccessLog::new(&with.shared.access_logs);
}

/// Names of the modules in this build, whatever `server.modules` names.
pub fn names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for entry in REGISTRY {
        if !names.contains(&entry.name) {
            names.push(entry.name);
        }
    }
    names
}

/// State shared by a module's instances in all workers.
#[derive(Clone)]
pub struct Shared {
    pub access_logs: Sinks,
    pub board: StatusBoard,
    /// Wall-clock start time in seconds.
    pub started_s: i64,
    pub uploads: Uploads,
    /// Permits for running programs.
    pub permits: Permits,
    /// Permits for commands run by pages.
    pub page_permits: Permits,
    /// The upstreams that the configuration names.
    pub naming: Arc<Naming>,
    pub keeper: Arc<CredentialCache>,
    /// Databases of locks and properties.
    pub stores: Stores,
    pub listings: Listings,
    /// What scripts share.
    pub dictionaries: Dictionaries,
    /// What scripts have used.
    pub script_accounts: Accounts,
    /// One worker's share of the process's memory limit, if there is one.
    pub memory_share: Option<u64>,
}

impl Shared {
    /// For workers of a process that keeps no log, counts nothing from before, and has no limit of
    /// memory.
    ///
    /// # Errors
    /// No thread can be had for passwords.
    pub fn new(started_s: i64, naming: Arc<Naming>) -> io::Result<Self> {
        Ok(Self {
            access_logs: Sinks::none(),
            board: StatusBoard::default(),
            started_s,
            uploads: Uploads::default(),
            permits: Permits::default(),
            page_permits: Permits::default(),
            naming,
            keeper: CredentialCache::start(started_s.unsigned_abs())?,
            stores: Stores::new(|_| ()),
            listings: Listings::default(),
            dictionaries: Dictionaries::default(),
            script_accounts: Accounts::default(),
            memory_share: None,
        })
    }
}

/// Every directive in this build. A module that acts at two places may have the same ones at both.
pub fn directives() -> Vec<Directive<Settings>> {
    let mut rows = directives::all();
    for (at, entry) in REGISTRY.iter().enumerate() {
        let mut own = (entry.directives)();
        for earlier in REGISTRY[..at].iter().filter(|earlier| earlier.name == entry.name) {
            let known = (earlier.directives)();
            own.retain(|row| known.iter().all(|known| known.name != row.name));
        }
        rows.extend(own);
    }
    rows
}

/// A worker's modules for a configuration, in order.
pub fn instances(
    config: &Config<Settings>,
    shared: &Shared,
    proxy: &Rc<WorkerProxy>,
) -> ModuleList {
    // Also where no module proxies any more: the upstreams of before are let go.
    proxy.adopt(&shared.naming);
    let magnet = Rc::new(Magnet::new(&shared.dictionaries, &shared.script_accounts));
    let making = Making { shared, proxy, magnet };
    // Looked at once, not once for each module: workers wait for this at a reload.
    let written = config.blocks().iter().flat_map(|block| &block.settings);
    let written: HashSet<&str> = written.map(|setting| setting.name).collect();
    let included = REGISTRY.iter().filter(|entry| entry.is_included(config, &written));
    ModuleList::new(included.map(|entry| (entry.create)(&making)).collect())
}

impl Entry {
    fn is_included(&self, config: &Config<Settings>, written: &HashSet<&str>) -> bool {
        let named = &config.global().server.modules;
        match self.included {
            Included::Always => true,
            Included::Named if named.iter().any(|name| **name == *self.name) => true,
            Included::Named | Included::Set => self.is_set(written),
        }
    }

    /// True if one of its directives is set anywhere.
    fn is_set(&self, written: &HashSet<&str>) -> bool {
        (self.directives)().iter().any(|row| written.contains(row.name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_module_is_one_file_and_the_lines_under_its_name() {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../lighty-modules/src");
        let files: BTreeSet<String> = std::fs::read_dir(sources)
            .expect("the modules")
            .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
            .filter(|name| name != "lib")
            .collect();
        let registered: BTreeSet<String> = names()
            .into_iter()
            .filter(|name| *name != "mod_proxy_core")
            .map(|name| name.trim_start_matches("mod_").to_owned())
            .collect();
        assert_eq!(files, registered);
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
