//! The directory of a store on disk: private, locked by one process, with files that are written
//! at positions and read by event loops.
//!
//! For threads that may wait for the disk. No file is synchronised: its contents prove themselves.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation};

use super::{FsClass, Meta, OpenFile};
use crate::spool;

/// Name of the file that the owner of a directory has locked.
const LOCK_NAME: &str = "lock";

/// An open store directory, which no other process has open at the same time.
#[derive(Debug)]
pub struct StoreDir {
    path: PathBuf,
    /// Unlocked when it is closed.
    lock: File,
}

/// The reason why a store directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreDirFault {
    /// Another process has it.
    #[error("{}: another process uses this directory", .0.display())]
    Locked(PathBuf),
    /// The system's error.
    #[error("{}: {error}", .path.display())]
    System {
        /// The directory.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// An open file of a store. Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct StoreFile {
    file: Arc<OwnedFd>,
    fs: FsClass,
    meta: Meta,
}

impl StoreDir {
    /// Opens a directory, which is created if it does not exist: only the server's user may enter
    /// it.
    ///
    /// # Errors
    /// Another process has it, or the system's error.
    pub fn open(path: &Path) -> Result<Self, StoreDirFault> {
        let system = |error| StoreDirFault::System { path: path.to_owned(), error };
        make_private(path).map_err(system)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW);
        let lock = options.open(path.join(LOCK_NAME)).map_err(system)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreDirFault::Locked(path.to_owned())),
            Err(error) => Err(system(error.into())),
        }
    }

    /// The contents of a file, up to `bytes_max`, without opening the directory as its owner;
    /// `None` without the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn peek(path: &Path, name: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = match options.open(path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut contents = Vec::new();
        file.take(bytes_max).read_to_end(&mut contents)?;
        // An empty one is what a loss of power has left.
        Ok(Some(contents).filter(|contents| !contents.is_empty()))
    }

    /// Creates the directory and a file in it, unless another process has just done so.
    ///
    /// # Errors
    /// The system's error.
    pub fn found(path: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
        make_private(path)?;
        let temporary = path.join(format!("{name}.{}.part", std::process::id()));
        let _ = fs::remove_file(&temporary);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(contents)?;
        // An empty file would be all that is left after a loss of power.
        file.sync_all()?;
        // A name that exists is not replaced.
        let linked = match fs::hard_link(&temporary, path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::symlink_metadata(path.join(name))?.len() > 0 {
                    Ok(())
                } else {
                    return fs::rename(&temporary, path.join(name));
                }
            }
            Err(error) if is_without_links(&error) => {
                return fs::rename(&temporary, path.join(name));
            }
            linked => linked,
        };
        fs::remove_file(&temporary)?;
        linked
    }

    /// Gives the directory, and a file in it, to a user and a group.
    ///
    /// # Errors
    /// The system's error.
    pub fn give(path: &Path, name: &str, (user, group): (u32, u32)) -> io::Result<()> {
        lchown(path, Some(user), Some(group))?;
        lchown(path.join(name), Some(user), Some(group))
    }

    /// Lets another process have the directory. This one may go on reading.
    pub fn release(&self) {
        // Closing unlocks it at the latest.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the entries of the directory `within`, which may not exist.
    ///
    /// # Errors
    /// The system's error.
    pub fn names(&self, within: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path.join(within)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The contents of a file, up to `bytes_max`; `None` without the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn contents(&self, name: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match self.open_file(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut contents = vec![0; usize::try_from(file.length()?.min(bytes_max)).unwrap_or(0)];
        let read = file.read_at(&mut contents, 0)?;
        contents.truncate(read);
        Ok(Some(contents))
    }

    /// Replaces a small file with another in one step.
    ///
    /// # Errors
    /// The system's error.
    pub fn replace(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        let temporary = format!("{name}.part");
        let file = self.create_file(&temporary)?;
        file.write_all_at(contents, 0)?;
        self.rename(&temporary, name)
    }

    /// Creates a file, or empties the one that has this name. Missing directories are created.
    ///
    /// # Errors
    /// The system's error.
    pub fn create_file(&self, name: &str) -> io::Result<StoreFile> {
        let path = self.path.join(name);
        let create = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)
        };
        let file = match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_private(path.parent().unwrap_or(&self.path))?;
                create()?
            }
            file => file?,
        };
        StoreFile::new(file)
    }

    /// Creates a file that does not exist. Missing directories are created.
    ///
    /// # Errors
    /// It exists, or the system's error.
    pub fn create_new_file(&self, name: &str) -> io::Result<StoreFile> {
        let path = self.path.join(name);
        make_private(path.parent().unwrap_or(&self.path))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        StoreFile::new(options.open(&path)?)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_file(&self, name: &str) -> io::Result<StoreFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        StoreFile::new(options.open(self.path.join(name))?)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// The system's error.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let to = self.path.join(to);
        make_private(to.parent().unwrap_or(&self.path))?;
        fs::rename(self.path.join(from), to)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    /// Free bytes that the server's user may take, and all bytes of the file system.
    ///
    /// # Errors
    /// The system's error.
    pub fn room(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::statvfs(&self.path)?;
        Ok((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
    }
}

/// Creates a directory for the server's user alone. Missing parents are for everybody.
fn make_private(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// True if the file system knows no hard links.
fn is_without_links(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EPERM, libc::EOPNOTSUPP, libc::EMLINK].iter().any(|known| code == Some(*known))
}

impl StoreFile {
    fn new(file: File) -> io::Result<Self> {
        let fd = OwnedFd::from(file);
        let (fs, meta) = super::describe(fd.as_fd())?;
        if meta.kind != super::FileKind::File {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(Self { file: Arc::new(fd), fs, meta })
    }

    /// The file for an event loop. Its size counts as unknown, because it may grow.
    pub fn to_send(&self) -> OpenFile {
        OpenFile::shared(Arc::clone(&self.file), self.fs, self.meta)
    }

    /// Its present length in bytes.
    ///
    /// # Errors
    /// The system's error.
    pub fn length(&self) -> io::Result<u64> {
        Ok(u64::try_from(rustix::fs::fstat(&*self.file)?.st_size).unwrap_or(0))
    }

    /// Has the kernel read a part ahead, without waiting for it.
    pub fn will_need(&self, offset: u64, bytes: u64) {
        // It would be read later otherwise.
        let bytes = std::num::NonZeroU64::new(bytes);
        let _ = rustix::fs::fadvise(&*self.file, offset, bytes, rustix::fs::Advice::WillNeed);
    }

    /// Reads until the buffer is full or the file ends. Returns the number of bytes.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            let at = offset + read as u64;
            let more = &mut buffer[read..];
            match rustix::io::retry_on_intr(|| rustix::io::pread(&*self.file, &mut *more, at))? {
                0 => break,
                bytes => read += bytes,
            }
        }
        Ok(read)
    }

    /// Reads exactly the bytes of a range.
    ///
    /// # Errors
    /// The system's error, or `UnexpectedEof` if the file is shorter.
    pub fn read_range(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        match self.read_at(&mut bytes, offset)? == length {
            true => Ok(bytes),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes all bytes at a position.
    ///
    /// # Errors
    /// The system's error; a part of the bytes may be written then.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match spool::anonymous::write_all(self.file.as_fd(), bytes, offset) {
            (_, None) => Ok(()),
            (_, Some(error)) => Err(error),
        }
    }

    /// Takes the space of the first `length` bytes, so that writing there does not find the disk
    /// full. Does nothing where the file system cannot.
    ///
    /// # Errors
    /// There is not enough space.
    pub fn preallocate(&self, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&*self.file, FallocateFlags::KEEP_SIZE, 0, length) {
            Err(error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Cuts the file off, and gives the space behind back.
    ///
    /// # Errors
    /// The system's error.
    pub fn truncate(&self, length: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&*self.file, length)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_has_one_owner_and_is_private() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("cache/pages");
        let one = StoreDir::open(&path).expect("opened");
        let mode = fs::metadata(&path).expect("made").permissions().mode() & 0o777;
        assert_eq!(mode, 0o700);
        assert!(matches!(StoreDir::open(&path), Err(StoreDirFault::Locked(_))));
        one.release();
        drop(StoreDir::open(&path).expect("opened again"));
        drop(one);
        StoreDir::open(&path).expect("opened again");
        let error = StoreDir::open(&path.join("lock")).expect_err("a file");
        assert!(error.to_string().contains("lock"), "{error}");
    }

    #[test]
    fn the_first_founder_decides() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("new");
        assert_eq!(StoreDir::peek(&path, "store", 9).expect("no error"), None);
        StoreDir::found(&path, "store", b"one").expect("made");
        StoreDir::found(&path, "store", b"two").expect("no error");
        let found = StoreDir::peek(&path, "store", 9).expect("no error");
        assert_eq!(found.as_deref(), Some(&b"one"[..]));
        fs::write(path.join("store"), b"").expect("emptied");
        assert_eq!(StoreDir::peek(&path, "store", 9).expect("no error"), None);
        StoreDir::found(&path, "store", b"two").expect("no error");
        let found = StoreDir::peek(&path, "store", 9).expect("no error");
        assert_eq!(found.as_deref(), Some(&b"two"[..]));
        assert_eq!(fs::read_dir(&path).expect("a directory").count(), 1);
        let mode = |path: &Path| fs::metadata(path).expect("made").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        StoreDir::found(&path.join("a/b"), "store", b"one").expect("made");
        assert_eq!((mode(&path.join("a")), mode(&path.join("a/b"))), (0o755, 0o700));
    }

    #[test]
    fn files_are_written_at_positions_and_cut() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = StoreDir::open(dir.path()).expect("opened");
        let file = dir.create_file("a/b/one").expect("made");
        file.preallocate(1 << 20).expect("room");
        assert_eq!(file.length().expect("a length"), 0);
        file.write_all_at(b"world", 5).expect("written");
        file.write_all_at(b"hello", 0).expect("written");
        assert_eq!(file.read_range(3, 4).expect("read"), b"lowo");
        assert_eq!(
            file.read_range(8, 4).expect_err("the end").kind(),
            io::ErrorKind::UnexpectedEof
        );
        file.truncate(4).expect("cut");
        assert_eq!(dir.contents("a/b/one", 100).expect("read").as_deref(), Some(&b"hell"[..]));
        assert_eq!(dir.contents("a/b/one", 2).expect("read").as_deref(), Some(&b"he"[..]));
        assert_eq!(dir.contents("none", 2).expect("no error"), None);
        assert_eq!(dir.names("a/b").expect("names"), ["one"]);
        assert!(dir.names("c").expect("no error").is_empty());
        dir.rename("a/b/one", "two").expect("renamed");
        dir.replace("two", b"new").expect("replaced");
        assert_eq!(dir.contents("two", 100).expect("read").as_deref(), Some(&b"new"[..]));
        dir.remove("two").expect("removed");
        let (free, all) = dir.room().expect("room");
        assert!(free <= all && all > 0);
    }

    #[test]
    fn a_link_in_place_of_a_file_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = StoreDir::open(dir.path()).expect("opened");
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("s-1")).expect("a link");
        store.open_file("s-1").expect_err("a link");
        fs::create_dir(dir.path().join("s-2")).expect("a directory");
        store.open_file("s-2").expect_err("a directory");
    }
}
