//! Walks through a tree entry by entry, for operations that check the whole tree before they change
//! it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Dir;
use rustix::io::Errno;

use super::super::meta::{FileKind, Meta};
use super::super::resolve;
use super::remove::push_name;
use super::{TREE_DEPTH_MAX, Tree, is_staging, look_at, open_dir};

/// A walk through a tree. Links are members and are not followed.
pub struct Survey {
    levels: Vec<SurveyLevel>,
    path: Vec<u8>,
    extent: Extent,
    /// The directory at the end of the last batch.
    into: Option<Vec<u8>>,
}

/// Depth of a survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The entries of the directory itself.
    Members,
    /// All entries beneath it.
    Tree,
}

struct SurveyLevel {
    dir: OwnedFd,
    entries: Dir,
    path_len: usize,
}

/// An entry of a tree.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its path beneath the starting directory.
    pub path: Vec<u8>,
    /// Its metadata.
    pub meta: Meta,
}

impl Survey {
    /// Starts at a directory.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn begin(tree: &Tree, path: &[u8], extent: Extent) -> io::Result<Self> {
        let found = resolve::find_fd(tree.dir.as_fd(), path, tree.how)?;
        let dir = open_dir(found.as_fd(), b".")?;
        let entries = Dir::read_from(&dir)?;
        let levels = vec![SurveyLevel { dir, entries, path_len: 0 }];
        Ok(Self { levels, path: Vec::new(), extent, into: None })
    }

    /// Returns the next entries, at most `most`; none at the end. In a whole tree, a batch ends
    /// after a directory.
    ///
    /// # Errors
    /// Errors of the system about an entry.
    pub fn next_batch(&mut self, most: usize) -> io::Result<Vec<Member>> {
        self.into = None;
        let mut batch = Vec::new();
        while let Some(level) = self.levels.last_mut().filter(|_| batch.len() < most) {
            self.path.truncate(level.path_len);
            let name = match level.entries.read() {
                None => {
                    self.levels.pop();
                    continue;
                }
                Some(entry) => entry?.file_name().to_bytes().to_vec(),
            };
            if name == b"." || name == b".." || is_staging(&name) {
                continue;
            }
            let meta = match look_at(level.dir.as_fd(), &name) {
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                meta => meta?,
            };
            push_name(&mut self.path, &name);
            batch.push(Member { path: self.path.clone(), meta });
            if meta.kind == FileKind::Directory && self.extent == Extent::Tree {
                self.into = Some(name);
                break;
            }
        }
        Ok(batch)
    }

    /// Descends into the directory at the end of the last batch, if there is one. After an error
    /// the survey continues behind that directory.
    ///
    /// # Errors
    /// Errors of the system about the directory; `ENAMETOOLONG` beyond [`TREE_DEPTH_MAX`].
    pub fn enter(&mut self) -> io::Result<()> {
        let Some(name) = self.into.take() else { return Ok(()) };
        let Some(level) = self.levels.last() else { return Ok(()) };
        if self.levels.len() > TREE_DEPTH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let opened = open_dir(level.dir.as_fd(), &name).and_then(|dir| {
            let entries = Dir::read_from(&dir)?;
            Ok(SurveyLevel { dir, entries, path_len: self.path.len() })
        });
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => {
                self.levels.push(opened?);
                Ok(())
            }
        }
    }
}
