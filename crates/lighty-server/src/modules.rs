//! THE list of modules, in the order in which they are asked.
//!
//! Adding one: a file in `lighty-modules` and a line in each of the two lists here. The manual,
//! `-t`, `-p` and the scope check follow.

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::{Module, ModuleList, Settings, directives};
use lighty_modules::accesslog::{AccessLog, Sinks};
use lighty_modules::{dirlisting::DirListing, indexfile::IndexFile, staticfile::StaticFile};
use lighty_proxy::local::Registry;
use lighty_proxy::proxy::ProxyCore;

/// Modules that are always there, whatever `server.modules` names.
pub const BUILT_IN: &[&str] =
    &["mod_indexfile", "mod_proxy_core", "mod_staticfile", "mod_dirlisting", "mod_accesslog"];

/// What the instances of a module in all workers have in common.
#[derive(Clone)]
pub struct Shared {
    pub access_logs: Sinks,
    pub upstreams: Arc<Registry>,
}

/// Every directive of this build.
pub fn directives() -> Vec<Directive<Settings>> {
    let mut rows = directives::all();
    rows.extend(IndexFile::directives());
    rows.extend(StaticFile::directives());
    rows.extend(DirListing::directives());
    rows.extend(AccessLog::directives());
    rows.extend(ProxyCore::directives());
    rows
}

/// A worker's modules, in order.
pub fn instances(shared: &Shared) -> ModuleList {
    ModuleList::new(vec![
        Rc::new(IndexFile) as Rc<dyn Module>,
        Rc::new(ProxyCore::new(Arc::clone(&shared.upstreams))),
        Rc::new(StaticFile),
        Rc::new(DirListing),
        Rc::new(AccessLog::new(&shared.access_logs)),
    ])
}
