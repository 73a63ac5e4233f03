//! A request's path in the file system.

use std::rc::Rc;

use lighty_io::file::Root;
use lighty_io::stat_cache::CacheEntry;

/// A directory's path without trailing slashes; `/` stays `/`.
#[must_use]
pub fn directory(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte != b'/') {
        Some(last) => &path[..=last],
        None => &path[..path.len().min(1)],
    }
}

/// The physical path of a request, in two parts: the document root, held open as a directory
/// descriptor, and the path beneath it. Nothing outside `docroot` can be named, because `rel`
/// holds no `..`.
#[derive(Default)]
pub struct Physical {
    /// Absolute path of the document root, without a trailing slash unless it is `/`.
    pub docroot: Vec<u8>,
    /// The site's document root, if an alias or a user directory replaced it; else empty.
    pub site: Vec<u8>,
    /// Path beneath `docroot`, without a leading slash; empty for the root itself.
    pub rel: Vec<u8>,
    /// The part of the URL's path after a file's name (`/a/b` of `/index.php/a/b`).
    pub path_info: Vec<u8>,
    /// The held descriptor of `docroot`.
    pub root: Option<Rc<Root>>,
    /// The entry at the path, once looked up.
    pub entry: Option<Rc<CacheEntry>>,
    /// The path is authorized before it is looked up, see
    /// [`crate::pipeline::locate::authorize_path`].
    pub presumed: bool,
}

impl Physical {
    /// Clears the path; keeps the buffers.
    pub fn clear(&mut self) {
        self.docroot.clear();
        self.site.clear();
        self.rel.clear();
        self.path_info.clear();
        self.root = None;
        self.entry = None;
        self.presumed = false;
    }

    /// Switches to a directory outside the site and keeps the site's document root.
    pub fn lead_to(&mut self, docroot: Vec<u8>) {
        let before = std::mem::replace(&mut self.docroot, docroot);
        if self.site.is_empty() {
            self.site = before;
        }
    }

    /// Moves the document root up to its parent; the whole path stays the same. Returns `false` if
    /// there is no parent, or if the parent is `/`.
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

    /// True if the whole path ends with `end`. A rule's suffix may start above the document root.
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
        if self.docroot != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(&self.rel);
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_directory_is_a_directory() {
        for (path, expected) in
            [("/", "/"), ("//", "/"), ("/srv/", "/srv"), ("/srv//", "/srv"), ("", ""), ("a", "a")]
        {
            assert_eq!(directory(path.as_bytes()), expected.as_bytes(), "{path}");
        }
        let mut physical =
            Physical { docroot: b"/".to_vec(), rel: b"etc/hosts".to_vec(), ..Physical::default() };
        assert_eq!(physical.path(), b"/etc/hosts");
        assert!(physical.ends_with(b"/etc/hosts") && !physical.ends_with(b"x/etc/hosts"));
        assert!(!physical.step_out());
    }
}
