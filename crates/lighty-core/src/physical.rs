//! Where a request points to in the file system.

use std::rc::Rc;

use lighty_io::file::Root;
use lighty_io::stat_cache::Entry;

/// The physical path of a request, in two parts: the document root, held open as a directory
/// descriptor, and the path beneath it. Nothing outside `docroot` can be named, because `rel`
/// holds no `..`.
#[derive(Default)]
pub struct Physical {
    /// Absolute path of the document root, without a trailing slash.
    pub docroot: Vec<u8>,
    /// Document root of the site, where an alias or a user's directory took its place; else empty.
    pub site: Vec<u8>,
    /// Path beneath it, without a leading slash; empty for the root itself.
    pub rel: Vec<u8>,
    /// Part of the URL path behind a file's name (`/index.php/a/b` has `/a/b`).
    pub path_info: Vec<u8>,
    /// The held descriptor of `docroot`.
    pub root: Option<Rc<Root>>,
    /// What is there, once looked up.
    pub entry: Option<Rc<Entry>>,
    /// It is judged as what is there, before anything is looked up, see [`crate::locate::authorize_path`].
    pub presumed: bool,
}

impl Physical {
    /// Forgets the path, keeps the buffers.
    pub fn clear(&mut self) {
        self.docroot.clear();
        self.site.clear();
        self.rel.clear();
        self.path_info.clear();
        self.root = None;
        self.entry = None;
        self.presumed = false;
    }

    /// Leads to a directory beside the site: its document root stays known.
    pub fn lead_to(&mut self, docroot: Vec<u8>) {
        let before = std::mem::replace(&mut self.docroot, docroot);
        if self.site.is_empty() {
            self.site = before;
        }
    }

    /// Makes the directory around the document root the document root; the whole path stays.
    /// `false` where there is none, or none that a configuration would name.
    pub fn step_out(&mut self) -> bool {
        let Some(slash) = self.docroot.iter().rposition(|b| *b == b'/').filter(|at| *at > 0) else {
            return false;
        };
        let mut rel = self.docroot.split_off(slash);
        rel.remove(0);
        rel.push(b'/');
        rel.append(&mut self.rel);
        self.rel = rel;
        true
    }

    /// Whether the whole path ends like this: what a rule names may begin above the document root.
    #[must_use]
    pub fn ends_with(&self, end: &[u8]) -> bool {
        if end.len() <= self.rel.len() {
            return self.rel.ends_with(end);
        }
        end.strip_suffix(&*self.rel)
            .and_then(|above| above.strip_suffix(b"/"))
            .is_some_and(|above| self.docroot.ends_with(above))
    }

    /// The whole path, for conditions, logs and gateways.
    pub fn path(&self) -> Vec<u8> {
        let mut path = Vec::with_capacity(self.docroot.len() + 1 + self.rel.len());
        path.extend_from_slice(&self.docroot);
        path.push(b'/');
        path.extend_from_slice(&self.rel);
        path
    }
}
