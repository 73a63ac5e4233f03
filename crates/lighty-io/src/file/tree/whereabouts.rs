//! Which place a path leads to: with links, several document roots and several spellings, many
//! paths lead to one.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::meta::FileKind;
use super::super::resolve::{self, retry};
use super::{Tree, look_at};

/// A place, by names that do not depend on the way to it. The system knows no better name that
/// outlives a restart: of a directory that is mounted twice, or a file with two names (hard links),
/// each is a place of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CanonicalPath {
    /// The absolute path. No directory on it is a link; nothing need have its last names.
    pub path: Vec<u8>,
    /// The links that were passed on the way, each by such a path of its own.
    pub links: Vec<Vec<u8>>,
}

impl Tree {
    /// The place of a name, which itself is not followed.
    ///
    /// # Errors
    /// What the system says of the way; that it ends is none.
    pub fn whereabouts(&self, path: &[u8]) -> io::Result<CanonicalPath> {
        let root = self.path_of(self.dir.as_fd(), b"")?;
        if path.is_empty() {
            return Ok(CanonicalPath { path: root, links: Vec::new() });
        }
        let mut known = path.len();
        loop {
            match resolve::find_parent(self.dir.as_fd(), &path[..known], self.how) {
                Ok((parent, name)) => {
                    let way = path[..known - name.len()].strip_suffix(b"/").unwrap_or_default();
                    let above = self.path_of(parent.as_fd(), way)?;
                    let rest = &path[known - name.len()..];
                    let links = match above == join(&root, way) {
                        true => Vec::new(),
                        false => self.links_on(way)?,
                    };
                    return Ok(CanonicalPath { path: join(&above, rest), links });
                }
                Err(error) if is_missing(&error) => {
                    let slash = path[..known].iter().rposition(|byte| *byte == b'/');
                    known = slash.ok_or(error)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The place of what a name leads to, links followed as far as the tree allows.
    ///
    /// # Errors
    /// What the system says.
    pub fn whereabouts_through(&self, path: &[u8]) -> io::Result<CanonicalPath> {
        let found = resolve::find_fd(self.dir.as_fd(), path, self.how)?;
        let links = self.links_on(path)?;
        Ok(CanonicalPath { path: self.path_of(found.as_fd(), path)?, links })
    }

    fn links_on(&self, way: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let slashes = way.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let ends: Vec<usize> = slashes.map(|(at, _)| at).chain([way.len()]).collect();
        let mut links = Vec::new();
        for end in ends {
            let (parent, name) = resolve::find_parent(self.dir.as_fd(), &way[..end], self.how)?;
            if look_at(parent.as_fd(), name)?.kind == FileKind::Symlink {
                let above = &way[..end - name.len()];
                let above = above.strip_suffix(b"/").unwrap_or_default();
                links.push(join(&self.path_of(parent.as_fd(), above)?, name));
            }
        }
        Ok(links)
    }

    /// The path that the system has for what was found at `way`.
    fn path_of(&self, found: BorrowedFd<'_>, way: &[u8]) -> io::Result<Vec<u8>> {
        let link = format!("/proc/self/fd/{}", found.as_raw_fd());
        if let Ok(path) = retry(|| rustix::fs::readlink(&*link, Vec::new()))
            && leads_to(path.as_bytes(), found)
        {
            return Ok(path.into_bytes());
        }
        // A jail without /proc: the path that the tree was opened by is as good, if it still is
        // one.
        let spelled = join(self.path.as_os_str().as_bytes(), way);
        let path = std::fs::canonicalize(OsStr::from_bytes(&spelled))?;
        let path = path.into_os_string().into_encoded_bytes();
        match leads_to(&path, found) {
            true => Ok(path),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn leads_to(path: &[u8], found: BorrowedFd<'_>) -> bool {
    let same = look_at(rustix::fs::CWD, path).and_then(|there| {
        let found = resolve::meta_of(found, false)?;
        Ok(there.same_file(&found))
    });
    path.starts_with(b"/") && same.unwrap_or(false)
}

/// [`CanonicalPath::path`] of an absolute path that nothing is held open of.
pub fn canonical(path: &[u8]) -> Vec<u8> {
    let mut known = path.len();
    while let Some(slash) = path[..known].iter().rposition(|byte| *byte == b'/') {
        let above = Path::new(OsStr::from_bytes(if slash == 0 { b"/" } else { &path[..slash] }));
        if let Ok(above) = above.canonicalize() {
            return join(above.as_os_str().as_bytes(), &path[slash + 1..]);
        }
        known = slash;
    }
    path.to_vec()
}

/// Links at the end of a path that are followed at most, as the system does.
const LINKS_MAX: usize = 40;

/// As [`canonical`], of what a link at its end leads to, there or not.
pub fn canonical_through(path: &[u8]) -> Vec<u8> {
    let mut place = canonical(path);
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(OsStr::from_bytes(&place)) else { break };
        let target = target.as_os_str().as_bytes();
        let above =
            place.iter().rposition(|byte| *byte == b'/').filter(|_| !target.starts_with(b"/"));
        place = match above {
            Some(slash) => canonical(&join(&place[..slash], target)),
            None => canonical(target),
        };
    }
    place
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn join(above: &[u8], rest: &[u8]) -> Vec<u8> {
    match (above, rest) {
        (above, b"") => above.to_vec(),
        (b"/", rest) => [b"/", rest].concat(),
        (above, rest) => [above, b"/", rest].concat(),
    }
}
