//! Moving, and renaming staged results to their targets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use super::super::meta::FileKind;
use super::super::resolve::retry;
use super::apart::check_apart;
use super::copy::{copy_entries, copy_mode, open_file};
use super::remove::remove_at;
use super::staging;
use super::upload::{Expected, Upload};
use super::{Cancel, EntryFailure, Tree, is_one_of, look_at, open_dir, sync_dir};

/// Treatment of an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It stays, and the operation fails with `AlreadyExists`.
    No,
    /// It is replaced, including all entries beneath it.
    Yes,
}

/// Depth of a directory's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The directory alone, empty.
    Itself,
    /// Including all entries beneath it.
    All,
}

impl Tree {
    /// Copies a file or a directory to `path` of another tree (or this one). The copy appears, and
    /// replaces an existing target, only once it is complete. Entries that cannot be copied are
    /// reported and skipped.
    ///
    /// # Errors
    /// Errors of the system, after which nothing has changed. `ResourceBusy` if source and target
    /// are the same or one contains the other.
    pub fn copy_to(
        &self,
        from: &[u8],
        to: (&Tree, &[u8]),
        how: (Replace, Reach),
        cancel: &Cancel,
    ) -> io::Result<Vec<EntryFailure>> {
        let kind = self.look(from)?.kind;
        if !from.is_empty() {
            let (parent, name) = self.parent(from)?;
            let (new_parent, new_name) = to.0.parent(to.1)?;
            check_apart((parent.as_fd(), name), (new_parent.as_fd(), new_name))?;
        }
        match kind {
            FileKind::File => self.copy_file(from, to, how.0, cancel),
            FileKind::Directory => self.copy_dir(from, to, how, cancel),
            FileKind::Symlink | FileKind::Other => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    fn copy_file(
        &self,
        from: &[u8],
        (tree, path): (&Tree, &[u8]),
        replace: Replace,
        cancel: &Cancel,
    ) -> io::Result<Vec<EntryFailure>> {
        let mut upload = Upload::begin(tree, path)?;
        upload.copy_from(self, from, cancel)?;
        let is_dir = tree.look(path).is_ok_and(|meta| meta.kind == FileKind::Directory);
        if is_dir && replace == Replace::Yes {
            upload.commit_over(|parent, staged, name| {
                place((parent, staged), (parent, name), replace)
            })?;
            return Ok(Vec::new());
        }
        let expected = if replace == Replace::Yes { Expected::Anything } else { Expected::Nothing };
        upload.commit(expected)?;
        Ok(Vec::new())
    }

    fn copy_dir(
        &self,
        from: &[u8],
        (tree, path): (&Tree, &[u8]),
        (replace, reach): (Replace, Reach),
        cancel: &Cancel,
    ) -> io::Result<Vec<EntryFailure>> {
        let (parent, name) = tree.parent(path)?;
        let source = if from.is_empty() {
            open_dir(self.dir.as_fd(), b".")?
        } else {
            let (above, name) = self.parent(from)?;
            open_dir(above.as_fd(), name)?
        };
        let meta = self.look(from)?;
        let (staged, dir) = staging::make_dir(parent.as_fd())?;
        let mut failures = Vec::new();
        let copied = match reach {
            Reach::Itself => Ok(()),
            Reach::All => {
                dir.try_clone().and_then(|to| copy_entries(source, to, cancel, &mut failures))
            }
        };
        let placed = copied.and_then(|()| {
            copy_mode(dir.as_fd(), &meta);
            place((parent.as_fd(), &staged), (parent.as_fd(), name), replace)
        });
        if placed.is_err() {
            remove_at(parent.as_fd(), &staged, &Cancel::default(), &mut Vec::new());
        }
        placed.map(|()| failures)
    }

    /// Moves an entry to a name in another tree (or this one): by a rename, or, to another file
    /// system, by copying and removing it. Entries for which that failed are reported.
    ///
    /// # Errors
    /// Errors of the system, after which nothing has changed. `ResourceBusy` if source and target
    /// are the same or one contains the other.
    pub fn move_to(
        &self,
        from: &[u8],
        (tree, path): (&Tree, &[u8]),
        replace: Replace,
        cancel: &Cancel,
    ) -> io::Result<Vec<EntryFailure>> {
        let (parent, name) = self.parent(from)?;
        let (new_parent, new_name) = tree.parent(path)?;
        check_apart((parent.as_fd(), name), (new_parent.as_fd(), new_name))?;
        match place((parent.as_fd(), name), (new_parent.as_fd(), new_name), replace) {
            Err(error) if is_one_of(&error, &[Errno::XDEV]) => {}
            done => return done.map(|()| Vec::new()),
        }
        let failures = self.copy_to(from, (tree, path), (replace, Reach::All), cancel)?;
        if failures.is_empty() { self.remove_all(from, cancel) } else { Ok(failures) }
    }
}

/// Renames an entry. An existing target of any kind is replaced in one step.
fn place(
    (parent, name): (BorrowedFd<'_>, &[u8]),
    (new_parent, new_name): (BorrowedFd<'_>, &[u8]),
    replace: Replace,
) -> io::Result<()> {
    let rename =
        |flags| retry(|| rustix::fs::renameat_with(parent, name, new_parent, new_name, flags));
    match rename(RenameFlags::NOREPLACE) {
        Err(error) if is_one_of(&error, &[Errno::INVAL, Errno::NOSYS]) => {
            place_plainly((parent, name), (new_parent, new_name), replace)?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && replace == Replace::Yes => {
            match rename(RenameFlags::EXCHANGE) {
                Err(error) if is_one_of(&error, &[Errno::INVAL, Errno::NOSYS]) => {
                    place_plainly((parent, name), (new_parent, new_name), replace)?;
                }
                // The replaced entry now has the old name.
                done => done.and_then(|()| aside(parent, name))?,
            }
        }
        done => done?,
    }
    sync_dir(new_parent)?;
    sync_dir(parent)
}

/// Renames without flags, for file systems that do not support them (renameat2(2)).
fn place_plainly(
    (parent, name): (BorrowedFd<'_>, &[u8]),
    (new_parent, new_name): (BorrowedFd<'_>, &[u8]),
    replace: Replace,
) -> io::Result<()> {
    let is_dir = |kind| kind == FileKind::Directory;
    let hidden = match (look_at(new_parent, new_name), replace) {
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => None,
        (Err(error), _) => return Err(error),
        (Ok(_), Replace::No) => return Err(Errno::EXIST.into()),
        // A rename replaces a file by a file in one step.
        (Ok(there), Replace::Yes)
            if !is_dir(there.kind) && !is_dir(look_at(parent, name)?.kind) =>
        {
            None
        }
        (Ok(_), Replace::Yes) => Some(hide(new_parent, new_name)?),
    };
    let done = retry(|| rustix::fs::renameat(parent, name, new_parent, new_name));
    match (hidden, &done) {
        (Some((staged, _held)), Ok(())) => {
            remove_at(new_parent, &staged, &Cancel::default(), &mut Vec::new());
        }
        // The target gets its name back.
        (Some((staged, _held)), Err(_)) => {
            retry(|| rustix::fs::renameat(new_parent, &staged, new_parent, new_name))?;
        }
        (None, _) => {}
    }
    done
}

/// Removes an entry. A tree is renamed first, so that it disappears in one step.
fn aside(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    if look_at(parent, name)?.kind != FileKind::Directory {
        return retry(|| rustix::fs::unlinkat(parent, name, AtFlags::empty()));
    }
    let (staged, _held) = hide(parent, name)?;
    remove_at(parent, &staged, &Cancel::default(), &mut Vec::new());
    Ok(())
}

/// Gives an entry a staging name. The returned descriptor holds its lock, so that no sweep takes it
/// for a leftover of a crash.
fn hide(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let held = match look_at(parent, name)?.kind {
        FileKind::Directory => Some(open_dir(parent, name)?),
        FileKind::File => open_file(parent, name).ok(),
        FileKind::Symlink | FileKind::Other => None,
    };
    if let Some(held) = &held {
        staging::claim(held.as_fd());
    }
    let flags = RenameFlags::NOREPLACE;
    let (staged, ()) = staging::with_name(|staged| {
        match retry(|| rustix::fs::renameat_with(parent, name, parent, staged, flags)) {
            Err(error) if is_one_of(&error, &[Errno::INVAL, Errno::NOSYS]) => {
                retry(|| rustix::fs::renameat(parent, name, parent, staged))
            }
            done => done,
        }
    })?;
    Ok((staged, held))
}
