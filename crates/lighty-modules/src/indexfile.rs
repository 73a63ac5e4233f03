//! `mod_indexfile`: serves the directory's index file for a URL that ends in `/`.

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Directive, Strings};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Fault, Physical, Settings, module_settings, pipeline};
use lighty_io::file::FileKind;
use lighty_io::stat_cache::CacheEntry;

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

    fn traits(&self) -> Traits {
        Hooks { directory: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<IndexFiles>().names.is_empty())
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
                 site's document root, also beneath an alias, so one page can stand in for every \
                 directory that has none; a script learns from `PATH_TRANSLATED_DIRINDEX` which \
                 directory that is.",
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

/// Serves the directory's index file if all lookups hit the stat cache.
fn probe_ready(ex: &mut Exchange) -> Option<Step<'static>> {
    use lighty_io::stat_cache::Lookup;
    let names = Arc::clone(&ex.settings.module::<IndexFiles>().names);
    let name = names.first()?;
    let before = enter(ex, name);
    let follow = ex.settings.core.follow_symlink;
    let noatime = ex.settings.server.use_noatime;
    let (physical, cache) = (&ex.physical, &ex.machine.stat_cache);
    let looked = physical.root.as_ref().map(|r| cache.lookup(r, &physical.rel, follow, noatime));
    let found = match looked {
        Some(Lookup::Ready(Ok(entry))) if entry.meta().kind == FileKind::File => Some(entry),
        _ => None,
    };
    match found {
        Some(entry) => {
            settle(ex, name, before, entry);
            Some(Step::Next)
        }
        None => {
            leave(ex, before);
            None
        }
    }
}

/// Tries every name, waiting for the disk where needed.
async fn probe(ex: &mut Exchange) -> Step<'static> {
    let names = Arc::clone(&ex.settings.module::<IndexFiles>().names);
    for name in names.iter() {
        let before = enter(ex, name);
        match look_up(ex).await {
            Ok(entry) if entry.meta().kind == FileKind::File => {
                settle(ex, name, before, entry);
                return Step::Next;
            }
            Err(Fault::NotFound | Fault::NameTooLong) | Ok(_) => {}
            Err(fault) => {
                ex.fail_saying(fault, name);
                return Step::Answered;
            }
        }
        leave(ex, before);
    }
    Step::Next
}

async fn look_up(ex: &mut Exchange) -> Result<Rc<CacheEntry>, Fault> {
    if ex.physical.root.is_none() {
        pipeline::hold_root(ex).await?;
    }
    pipeline::look_up_path(ex).await.map_err(|error| Fault::of_file_error(&error))
}

/// The state that `enter` replaced, so that `leave` can restore it.
enum Before {
    /// Length of the path.
    Length(usize),
    /// The complete physical path.
    Directory(Box<Physical>),
}

/// Points the physical path at an index file of the directory or, with a leading slash, of the
/// site.
fn enter(ex: &mut Exchange, name: &str) -> Before {
    let Some(absolute) = name.strip_prefix('/') else {
        let rel = &mut ex.physical.rel;
        let length = rel.len();
        // An alias may name the directory without a slash at its end.
        if !rel.is_empty() && !rel.ends_with(b"/") {
            rel.push(b'/');
        }
        rel.extend_from_slice(name.as_bytes());
        return Before::Length(length);
    };
    let own = &ex.physical;
    let (docroot, root) = match &own.site[..] {
        b"" => (own.docroot.clone(), own.root.clone()),
        site => (site.to_vec(), ex.machine.root(site)),
    };
    let rel = absolute.as_bytes().to_vec();
    let front = Physical { docroot, rel, root, ..Physical::default() };
    Before::Directory(Box::new(std::mem::replace(&mut ex.physical, front)))
}

fn leave(ex: &mut Exchange, before: Before) {
    match before {
        Before::Directory(before) => ex.physical = *before,
        Before::Length(length) => ex.physical.rel.truncate(length),
    }
}

/// Makes the index file the target of the request and its URL path, for scripts and rules. An index
/// file of the site gets the requested directory as `PATH_TRANSLATED_DIRINDEX`.
fn settle(ex: &mut Exchange, name: &str, before: Before, entry: Rc<CacheEntry>) {
    ex.physical.entry = Some(entry);
    if let Before::Directory(before) = before {
        ex.environment.set(b"PATH_TRANSLATED_DIRINDEX", &before.path());
    }
    ex.take_index(name);
}
