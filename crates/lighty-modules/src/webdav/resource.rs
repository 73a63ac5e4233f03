//! The path of a URL beneath a document root, and its file.

use std::rc::Rc;

use lighty_core::pipeline::locate::Located;
use lighty_core::pipeline::protected_files::{self, is_protected, names_protected};
use lighty_core::{Exchange, Fault, Physical, Settings};
use lighty_io::file::tree::{CanonicalPath, Tree};
use lighty_io::file::{FileKind, Meta, Root};
use lighty_io::threads::pool::{Lane, ThreadPool};

use super::dav_error::DavError;
use super::settings::DavSettings;

/// A path beneath a document root. Paths have no slash at their end.
#[derive(Clone)]
pub(super) struct Resource {
    pub(super) root: Rc<Root>,
    pub(super) tree: Tree,
    /// Path relative to the document root.
    pub(super) rel: Vec<u8>,
    /// Key of properties and locks.
    pub(super) canonical: CanonicalPath,
    /// The decoded path of the URL.
    pub(super) url: Vec<u8>,
    /// The URL ends with a slash: the client means a collection.
    pub(super) slash: bool,
    /// The resource is the one named by the request's own URL.
    pub(super) is_requested: bool,
    pub(super) settings: Rc<Settings>,
}

impl Resource {
    /// Resolves the request's own URL.
    pub(super) async fn of_request(ex: &Exchange) -> Result<Self, DavError> {
        let physical = (&*ex.physical.docroot, &*ex.physical.rel);
        let resource = Self::new(ex, physical, &ex.request.path, Rc::clone(&ex.settings)).await?;
        Ok(Self { is_requested: true, ..resource })
    }

    /// Resolves another URL.
    pub(super) async fn of_located(ex: &Exchange, found: &Located) -> Result<Self, DavError> {
        let Physical { docroot, rel, .. } = &found.physical;
        Self::new(ex, (docroot, rel), &found.path, Rc::clone(&found.settings)).await
    }

    async fn new(
        ex: &Exchange,
        (docroot, rel): (&[u8], &[u8]),
        url: &[u8],
        settings: Rc<Settings>,
    ) -> Result<Self, DavError> {
        let root = match ex.machine.root(docroot) {
            Some(root) => root,
            None => ex.machine.open_root(docroot).await?,
        };
        // Directories on the path may be links that stay beneath the root.
        let follow = settings.core.follow_symlink;
        let tree = ex.machine.engine.tree(&root, follow).await?;
        let slash = url.ends_with(b"/");
        let rel = without_slash(rel).to_vec();
        let canonical = {
            let (tree, rel) = (tree.clone(), rel.clone());
            in_pool(Lane::Stat, move || tree.whereabouts(&rel)).await??
        };
        Ok(Self {
            root,
            tree,
            rel,
            canonical,
            url: without_slash(url).to_vec(),
            slash,
            is_requested: false,
            settings,
        })
    }

    /// Looks up the file without following links; `None` if it does not exist.
    ///
    /// # Errors
    /// 403 for a file that the server protects, existing or not.
    pub(super) async fn look(&self) -> Result<Option<Meta>, DavError> {
        if names_protected(&self.canonical.path) {
            return Err(kept());
        }
        let (tree, rel, slash) = (self.tree.clone(), self.rel.clone(), self.slash);
        let found = in_pool(Lane::Stat, move || tree.look(&rel)).await?;
        match found {
            // A file is not a collection, even if the URL ends with a slash.
            Ok(meta) if slash && meta.kind == FileKind::File => Ok(None),
            Ok(meta) if is_protected(&meta) => Err(kept()),
            Ok(meta) => Ok(Some(meta)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the parent collection; `None` for a document root.
    pub(super) fn parent(&self) -> Option<CanonicalPath> {
        let CanonicalPath { path, links } = &self.canonical;
        let slash = path.iter().rposition(|byte| *byte == b'/')?;
        let path = path[..slash].to_vec();
        (!self.rel.is_empty() && slash > 0).then(|| CanonicalPath { path, links: links.clone() })
    }

    /// Returns the URL of a canonical path beneath this resource.
    pub(super) fn url_of(&self, path: &[u8]) -> Vec<u8> {
        match path.strip_prefix(&*self.canonical.path) {
            Some(rest) => [&*self.url, rest].concat(),
            None => self.url.clone(),
        }
    }

    pub(super) fn own(&self) -> &DavSettings {
        self.settings.module::<DavSettings>()
    }
}

/// Returns the error for a file that the server protects.
pub(super) fn kept() -> DavError {
    DavError::fault(Fault::Forbidden, protected_files::REFUSAL)
}

/// Returns the URL that a listing shows for a collection or a file.
pub(super) fn listed(url: &[u8], kind: FileKind) -> Vec<u8> {
    let mut url = url.to_vec();
    if kind == FileKind::Directory || url.is_empty() {
        url.push(b'/');
    }
    url
}

/// Runs blocking disk work on the thread pool.
pub(super) async fn in_pool<T: Send + 'static>(
    lane: Lane,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, DavError> {
    Ok(ThreadPool::global().run(lane, job).await?)
}

pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        (dir, b"") => dir.to_vec(),
        (b"", name) => name.to_vec(),
        (dir, name) => [dir, b"/", name].concat(),
    }
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}
