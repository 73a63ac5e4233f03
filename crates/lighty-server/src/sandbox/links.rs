//! Symbolic links in served directories that lead out of them. Landlock judges the target of a
//! link, so each target needs a rule.
//!
//! Only links that exist at the start get one: a link that is made later, as by a client who can
//! upload files, opens nothing.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Entries that are looked at in all served directories together.
const ENTRIES_MAX: usize = 10_000;

/// Levels of directories that are looked at.
const DEPTH_MAX: usize = 5;

/// Returns the targets of links beneath the directories, without links, and true if all entries
/// were looked at.
pub(super) fn targets(directories: &[PathBuf]) -> (Vec<PathBuf>, bool) {
    let mut queue: VecDeque<(PathBuf, usize)> =
        directories.iter().map(|directory| (directory.clone(), 0)).collect();
    let (mut found, mut entries) = (Vec::new(), 0);
    while let Some((directory, depth)) = queue.pop_front() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            entries += 1;
            if entries > ENTRIES_MAX {
                return (found, false);
            }
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() {
                found.extend(target(&entry.path(), &directory));
            } else if kind.is_dir() && depth < DEPTH_MAX {
                queue.push_back((entry.path(), depth + 1));
            }
        }
    }
    (found, true)
}

/// The target of a link, unless it is beside the link.
fn target(link: &Path, directory: &Path) -> Option<PathBuf> {
    link.canonicalize().ok().filter(|target| !target.starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_that_lead_out_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().canonicalize().expect("a path");
        let (root, data) = (base.join("root"), base.join("data"));
        std::fs::create_dir_all(root.join("a/b")).expect("directories");
        std::fs::create_dir(&data).expect("a directory");
        symlink("../../../data", root.join("a/b/data")).expect("a link");
        symlink("b", root.join("a/inside")).expect("a link");
        symlink("/nowhere/at/all", root.join("broken")).expect("a link");
        assert_eq!(targets(&[root]), (vec![data], true));
    }
}
