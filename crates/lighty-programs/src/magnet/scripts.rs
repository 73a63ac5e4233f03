//! Compiled scripts by path. One `stat` per request detects changes of a file.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use lighty_io::file::small_file::{SmallFile, Stamp};
use lighty_io::threads::pool::{Lane, ThreadPool};
use lighty_lua::accounts::Accounts;
use lighty_lua::cache::{ModuleCache, SCRIPT_BYTES_MAX, ScriptCache};
use lighty_lua::{Chunk, Engine, LoadError, Requests, Script};

use super::output;
use crate::app::Response;

/// Reason why a module cannot be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModuleError {
    /// The file cannot be read.
    #[error("{}", lighty_io::os_text(.0))]
    Read(io::Error),
    /// The file is not valid Lua.
    #[error("{0}")]
    Load(LoadError),
}

/// Compiled scripts, and the modules that they require.
pub(super) struct Scripts(ScriptCache<Stamp>, ModuleCache<Stamp>);

impl Scripts {
    pub(super) fn new(accounts: &Accounts) -> Self {
        Self(ScriptCache::new(accounts), ModuleCache::default())
    }

    /// The script, compiled if necessary; or the response that explains the failure.
    pub(super) async fn get<R: Requests>(
        &self,
        pool: &ThreadPool,
        engine: &Engine<R>,
        path: &[u8],
    ) -> Result<Rc<Script>, Response> {
        if let Some(script) = self.unchanged(path) {
            return Ok(script);
        }
        let file = PathBuf::from(OsStr::from_bytes(path));
        let shown = file.display().to_string();
        let read = pool.run(Lane::Read, move || read(&file, SCRIPT_BYTES_MAX as u64));
        let read = read.await.and_then(|read| read);
        let (stamp, source) = read.map_err(|error| {
            let status = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => "404 Not Found",
                io::ErrorKind::PermissionDenied => "403 Forbidden",
                _ => "500 Internal Server Error",
            };
            output::refused(status, &format!("{shown}: {error}"))
        })?;
        let script = engine
            .load(&shown, &source)
            .map_err(|error| output::refused("500 Internal Server Error", &error.to_string()))?;
        Ok(self.0.insert(path, stamp, script))
    }

    /// A Lua module that a script requires, of at most `most` bytes, compiled if necessary.
    pub(super) async fn module<R: Requests>(
        &self,
        pool: &ThreadPool,
        engine: &Engine<R>,
        path: &[u8],
        most: u64,
    ) -> Result<Chunk, ModuleError> {
        let file = PathBuf::from(OsStr::from_bytes(path));
        let known = self.1.get(path, |stamp| Stamp::of(&file).is_ok_and(|now| now == *stamp));
        if let Some(chunk) = known {
            return Ok(chunk);
        }
        let shown = file.display().to_string();
        let read = pool.run(Lane::Read, move || read(&file, most)).await.and_then(|read| read);
        let (stamp, source) = read.map_err(ModuleError::Read)?;
        let chunk = engine.chunk(&format!("@{shown}"), &source).map_err(ModuleError::Load)?;
        self.1.insert(path, stamp, &chunk);
        Ok(chunk)
    }

    /// A compiled script, if its file has not changed. Its inode is cached, because the file was
    /// read before, so this does not wait for a disk.
    fn unchanged(&self, path: &[u8]) -> Option<Rc<Script>> {
        let now = Stamp::of(Path::new(OsStr::from_bytes(path)));
        self.0.get(path, |stamp| now.is_ok_and(|now| now == *stamp))
    }
}

/// Reads a file. The stamp is that of the opened file.
fn read(path: &Path, most: u64) -> io::Result<(Stamp, Vec<u8>)> {
    Stamp::of(path)?;
    let file = SmallFile::open(path)?;
    let stamp = file.stamp();
    let source = file.read(most).map_err(|error| {
        let text = format!("{error} (limit: {most} bytes)");
        io::Error::new(error.kind(), text)
    })?;
    Ok((stamp, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_of_a_script_has_a_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.lua");
        let read_bytes = |bytes: usize| {
            std::fs::write(&path, vec![b' '; bytes]).expect("written");
            read(&path, SCRIPT_BYTES_MAX as u64).map(|(_, source)| source.len())
        };
        assert_eq!(read_bytes(SCRIPT_BYTES_MAX).ok(), Some(SCRIPT_BYTES_MAX));
        let refused = read_bytes(SCRIPT_BYTES_MAX + 1).expect_err("too long");
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        let limit = format!("(limit: {SCRIPT_BYTES_MAX} bytes)");
        assert!(refused.to_string().ends_with(&limit), "{refused}");
    }
}
