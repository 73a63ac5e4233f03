//! THE list of modules, in the order in which they are asked.
//!
//! Adding one: a file in `lighty-modules` and a line in each of the two lists here. The manual,
//! `-t`, `-p` and the scope check follow.

use std::rc::Rc;

use lighty_config::Directive;
use lighty_core::{Module, ModuleList, Settings, directives};
use lighty_modules::accesslog::{AccessLog, Sinks};
use lighty_modules::{dirlisting::DirListing, indexfile::IndexFile, staticfile::StaticFile};

/// Modules that are always there, whatever `server.modules` names.
pub const BUILT_IN: &[&str] =
    &["mod_indexfile", "mod_staticfile", "mod_dirlisting", "mod_accesslog"];

/// Every directive of this build.
pub fn directives() -> Vec<Directive<Settings>> {
    let mut rows = directives::all();
    rows.extend(IndexFile::directives());
    rows.extend(StaticFile::directives());
    rows.extend(DirListing::directives());
    rows.extend(AccessLog::directives());
    rows.extend(lighty_proxy::directives::all());
    rows
}

/// A worker's modules, in order.
pub fn instances(access_logs: &Sinks) -> ModuleList {
    ModuleList::new(vec![
        Rc::new(IndexFile) as Rc<dyn Module>,
        Rc::new(StaticFile),
        Rc::new(DirListing),
        Rc::new(AccessLog::new(access_logs)),
    ])
}
