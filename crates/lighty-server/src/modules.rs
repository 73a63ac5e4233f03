//! THE list of modules, in call order.
//!
//! To add one: a file in `lighty-modules` and a line in each list here. The manual, `-t`, `-p` and
//! the scope check follow.

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Config, Directive};
use lighty_core::permits::Permits;
use lighty_core::status_board::StatusBoard;
use lighty_core::{Module, ModuleList, Settings, directives};
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
use lighty_proxy::proxy::{ProxyCore, WorkerProxy};
use lighty_proxy::registry::Naming;

/// Modules in this build, whatever `server.modules` names.
pub const BUILT_IN: &[&str] = &[
    "mod_extforward",
    "mod_evasive",
    "mod_rewrite",
    "mod_redirect",
    "mod_access",
    "mod_auth",
    "mod_setenv",
    "mod_status",
    "mod_uploadprogress",
    "mod_simple_vhost",
    "mod_evhost",
    "mod_alias",
    "mod_userdir",
    "mod_secdownload",
    "mod_webdav",
    "mod_indexfile",
    "mod_proxy_core",
    "mod_cgi",
    "mod_ssi",
    "mod_flv_streaming",
    "mod_staticfile",
    "mod_dirlisting",
    "mod_expire",
    "mod_usertrack",
    "mod_deflate",
    "mod_compress",
    "mod_chunked",
    "mod_accesslog",
];

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
    /// One worker's share of the process's memory limit, if there is one.
    pub memory_share: Option<u64>,
}

/// Every directive in this build.
pub fn directives() -> Vec<Directive<Settings>> {
    let mut rows = directives::all();
    rows.extend(Extforward::directives());
    rows.extend(Evasive::directives());
    rows.extend(Rewrite::directives());
    rows.extend(RewriteIfNotFile::directives());
    rows.extend(Redirect::directives());
    rows.extend(Access::directives());
    rows.extend(Auth::directives());
    rows.extend(Setenv::directives());
    rows.extend(Status::directives());
    rows.extend(UploadProgress::directives());
    rows.extend(SimpleVhost::directives());
    rows.extend(Evhost::directives());
    rows.extend(Alias::directives());
    rows.extend(Userdir::directives());
    rows.extend(Secdownload::directives());
    rows.extend(Webdav::directives());
    rows.extend(IndexFile::directives());
    rows.extend(Cgi::directives());
    rows.extend(Ssi::directives());
    rows.extend(FlvStreaming::directives());
    rows.extend(StaticFile::directives());
    rows.extend(DirListing::directives());
    rows.extend(Expire::directives());
    rows.extend(Usertrack::directives());
    rows.extend(Deflate::directives());
    rows.extend(Chunked::directives());
    rows.extend(AccessLog::directives());
    rows.extend(ProxyCore::directives());
    rows
}

/// A worker's modules for a configuration, in order. Modules that do nothing unless configured are included only if one
/// of their directives is set or `server.modules` names them.
pub fn instances(
    config: &Config<Settings>,
    shared: &Shared,
    proxy: &Rc<WorkerProxy>,
) -> ModuleList {
    let asked = Asked(config);
    let all = [
        // Before any module that uses the client's address.
        asked.if_set(Extforward),
        asked.if_set(Evasive),
        asked.for_one(Rewrite),
        asked.for_one(Redirect),
        asked.for_one(Access),
        asked.for_one(Auth::new(Arc::clone(&shared.keeper))),
        asked.if_set(EvasiveUser),
        // Before any module that responds: conditions may see its changes and reject the request.
        asked.if_set(Setenv),
        asked.if_set(Status::new(&shared.board, shared.started_s)),
        asked.for_one(UploadProgress::new(&shared.uploads)),
        asked.for_one(SimpleVhost),
        asked.for_one(Evhost),
        asked.for_one(Alias),
        asked.for_one(Userdir::default()),
        asked.for_one(Secdownload),
        // After modules that change the physical path, but before URLs without a file are
        // rewritten: the file may not exist yet.
        asked.if_set(Webdav::new(&shared.stores)),
        // After modules that change the physical path.
        asked.for_one(RewriteIfNotFile),
        asked.for_one(IndexFile),
        asked.for_one(ProxyCore::new(proxy, &shared.naming)),
        asked.for_one(Cgi::new(&shared.permits)),
        asked.if_set(Ssi::new(&shared.page_permits)),
        asked.for_one(FlvStreaming),
        always(StaticFile),
        always(DirListing::new(&shared.listings)),
        asked.for_one(Expire),
        asked.for_one(Usertrack),
        // Filters: each one filters the output of those before it.
        asked.for_one(Deflate::new(shared.memory_share)),
        asked.for_one(Chunked),
        asked.for_one(AccessLog::new(&shared.access_logs)),
    ];
    ModuleList::new(all.into_iter().flatten().collect())
}

fn always(module: impl Module + 'static) -> Option<Rc<dyn Module>> {
    Some(Rc::new(module))
}

/// What the configuration uses.
struct Asked<'a>(&'a Config<Settings>);

impl Asked<'_> {
    fn for_one<M: Module + 'static>(&self, module: M) -> Option<Rc<dyn Module>> {
        let named = &self.0.global().server.modules;
        match named.iter().any(|name| **name == *module.name()) {
            true => always(module),
            false => self.if_set(module),
        }
    }

    /// Includes a module only if one of its directives is set, even if it is named. It would
    /// otherwise inspect every request for nothing.
    fn if_set<M: Module + 'static>(&self, module: M) -> Option<Rc<dyn Module>> {
        let rows = M::directives();
        let mut written = self.0.blocks().iter().flat_map(|block| &block.settings);
        let is_set = written.any(|setting| rows.iter().any(|row| row.name == setting.name));
        is_set.then(|| Rc::new(module) as Rc<dyn Module>)
    }
}
