//! Canonical location of a path. Because of links, several document roots and several spellings,
//! many paths lead to the same location.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::meta::FileKind;
use super::super::resolve::{self, retry};
use super::{Tree, look_at};

/// A location, independent of the path that led to it. The system has no better name that outlives
/// a restart: two mounts of one directory, and two hard links of one file, count as different
/// locations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CanonicalPath {
    /// The absolute path. No directory on it is a link; its last components need not exist.
    pub path: Vec<u8>,
    /// The links followed on the way, each as a canonical path of its own.
    pub links: Vec<Vec<u8>>,
}

impl Tree {
    /// The location of a name. If the name is a link, it is not followed.
    ///
    /// # Errors
    /// Errors of the system about the directories; missing ones are not an error.
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

    /// The location of a name's target, with links followed as far as the tree allows.
    ///
    /// # Errors
    /// Errors of the system.
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

    /// The system's path of the descriptor that was opened at `way`.
    fn path_of(&self, found: BorrowedFd<'_>, way: &[u8]) -> io::Result<Vec<u8>> {
        let link = format!("/proc/self/fd/{}", found.as_raw_fd());
        if let Ok(path) = retry(|| rustix::fs::readlink(&*link, Vec::new()))
            && leads_to(path.as_bytes(), found)
        {
            return Ok(path.into_bytes());
        }
        // A chroot without /proc: use the path by which the tree was opened, if it still leads
        // there.
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

/// [`CanonicalPath::path`] of an absolute path, without an open descriptor.
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

/// Maximum number of links followed at the end of a path, the kernel's limit.
const LINKS_MAX: usize = 40;

/// Like [`canonical`], for the target of a link at the end of the path, whether it exists or not.
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
