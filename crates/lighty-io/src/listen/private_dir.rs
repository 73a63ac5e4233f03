//! A directory for sockets that only this user may connect to.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::entropy;

/// Names that are tried before it is given up.
const TRIES_MAX: usize = 16;

/// A directory that nobody else may enter, so that what is bound in it is reached by this user
/// alone. Dropping it removes it with the sockets in it.
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
}

impl PrivateDir {
    /// Makes one with a name that nobody can have guessed, in the directory for temporary files.
    ///
    /// # Errors
    /// What the kernel said of the last try.
    pub fn create(prefix: &str) -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir(), prefix)
    }

    fn create_in(parent: &Path, prefix: &str) -> io::Result<Self> {
        let mut tries = 0;
        loop {
            let number = u64::from_ne_bytes(entropy::random_bytes()?);
            let path = parent.join(format!("{prefix}-{number:016x}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES_MAX => {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // Whoever cannot remove it leaves it: it is empty, or holds dead sockets.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nobody_else_may_enter_and_nothing_stays() {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = PrivateDir::create_in(parent.path(), "x").expect("a directory");
        let other = PrivateDir::create_in(parent.path(), "x").expect("another");
        assert_ne!(dir.path(), other.path());
        let mode = fs::metadata(dir.path()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(dir.path().join("left"), "behind").expect("a file");
        drop((dir, other));
        assert_eq!(fs::read_dir(parent.path()).expect("the parent").count(), 0);
    }

    #[test]
    fn a_parent_that_is_missing_is_an_error() {
        assert!(PrivateDir::create_in(Path::new("/nonexistent/x"), "x").is_err());
    }
}
