//! `mod_indexfile`: a URL that ends in `/` is answered with the directory's index file.

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Directive, Strings};
use lighty_core::module::{Hooks, Module, Step};
use lighty_core::{Exchange, Fault, Settings, module_settings, pipeline};
use lighty_io::file::FileKind;

/// Index file names, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct IndexFiles {
    names: Strings,
}
module_settings!(IndexFiles);

/// The module.
pub struct IndexFile;

impl Module for IndexFile {
    fn name(&self) -> &'static str {
        "mod_indexfile"
    }

    fn hooks(&self) -> Hooks {
        Hooks { directory: true, ..Hooks::default() }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.hooks().only_if(!settings.module::<IndexFiles>().names.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::strings("index-file.names", |s: &mut Settings, names| {
                s.module_mut::<IndexFiles>().names = names;
            })
            .module("mod_indexfile")
            .default("()")
            .since("1.4")
            .doc(
                "Names of index files. A URL that ends in `/` is answered with the first of them \
                 that exists in the directory. A name that begins with `/` is taken from the \
                 document root, so one page can stand in for every directory that has none; a \
                 script learns from `PATH_TRANSLATED_DIRINDEX` which directory that is.",
            )
            .example("index-file.names = ( \"index.html\", \"index.htm\" )")
            .alias("server.indexfiles"),
        ]
    }

    fn directory<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if !ex.request.path.ends_with(b"/") {
            return Step::Next;
        }
        if ex.settings.module::<IndexFiles>().names.is_empty() {
            return Step::Next;
        }
        match probe_ready(ex) {
            Some(step) => step,
            None => Step::Wait(Box::pin(probe(ex))),
        }
    }
}

/// The directory's index file if all that it takes is in the stat cache.
fn probe_ready(ex: &mut Exchange) -> Option<Step<'static>> {
    use lighty_io::stat_cache::Lookup;
    let names = Arc::clone(&ex.settings.module::<IndexFiles>().names);
    let name = names.first()?;
    let depth = enter(ex, name);
    let root = ex.physical.root.as_ref()?;
    let follow = ex.settings.core.follow_symlink;
    let noatime = ex.settings.server.use_noatime;
    let found = match ex.services.stat_cache.lookup(root, &ex.physical.rel, follow, noatime) {
        Lookup::Ready(Ok(entry)) if entry.meta().kind == FileKind::File => Some(entry),
        _ => None,
    };
    match found {
        Some(entry) => {
            settle(ex, name, &depth, entry);
            Some(Step::Next)
        }
        None => {
            leave(ex, depth);
            None
        }
    }
}

/// Tries every name, waiting for the disk where needed.
async fn probe(ex: &mut Exchange) -> Step<'static> {
    let names = Arc::clone(&ex.settings.module::<IndexFiles>().names);
    for name in names.iter() {
        let before = enter(ex, name);
        match pipeline::look_up_path(ex).await {
            Ok(entry) if entry.meta().kind == FileKind::File => {
                settle(ex, name, &before, entry);
                return Step::Next;
            }
            Err(error) => match Fault::of_file_error(&error) {
                Fault::NotFound | Fault::NameTooLong => {}
                fault => {
                    ex.fail_saying(fault, name);
                    return Step::Answered;
                }
            },
            Ok(_) => {}
        }
        leave(ex, before);
    }
    Step::Next
}

/// The part of `rel` that `enter` replaced.
struct Before {
    rel: Option<Vec<u8>>,
    length: usize,
}

/// Points the physical path at an index file.
fn enter(ex: &mut Exchange, name: &str) -> Before {
    match name.strip_prefix('/') {
        Some(absolute) => {
            let rel = std::mem::replace(&mut ex.physical.rel, absolute.as_bytes().to_vec());
            Before { rel: Some(rel), length: 0 }
        }
        None => {
            let length = ex.physical.rel.len();
            ex.physical.rel.extend_from_slice(name.as_bytes());
            Before { rel: None, length }
        }
    }
}

fn leave(ex: &mut Exchange, before: Before) {
    match before.rel {
        Some(rel) => ex.physical.rel = rel,
        None => ex.physical.rel.truncate(before.length),
    }
}

/// The request now is for the index file; its URL path says so too, for scripts and rules. A page
/// that stands in for the index of many directories is told which one was asked for.
fn settle(ex: &mut Exchange, name: &str, before: &Before, entry: Rc<lighty_io::stat_cache::Entry>) {
    ex.physical.entry = Some(entry);
    if let Some(rel) = &before.rel {
        let directory = [&*ex.physical.docroot, b"/", rel].concat();
        ex.environment.set(b"PATH_TRANSLATED_DIRINDEX", &directory);
    }
    ex.take_index(name);
}
