//! Compiled scripts by path. One `stat` for each request says whether a file has changed.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use lighty_io::file::small_file::{SmallFile, Stamp};
use lighty_io::threads::pool::{Lane, ThreadPool};
use lighty_lua::accounts::Accounts;
use lighty_lua::cache::{SCRIPT_BYTES_MAX, ScriptCache};
use lighty_lua::{Engine, Script, ScriptRequest};

use super::output;
use crate::app::Response;

/// The scripts that were compiled.
pub(super) struct Scripts(ScriptCache<Stamp>);

impl Scripts {
    pub(super) fn new(accounts: &Accounts) -> Self {
        Self(ScriptCache::new(accounts))
    }

    /// The script, compiled if necessary; or the response that says why there is none.
    pub(super) async fn get<R: ScriptRequest>(
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
        let read = pool.run(Lane::Read, move || read(&file)).await.and_then(|read| read);
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

    /// A script that is known, if its file is as it was. Its inode is in memory: it was asked for
    /// before, so that this does not wait for a disk.
    fn unchanged(&self, path: &[u8]) -> Option<Rc<Script>> {
        let now = Stamp::of(Path::new(OsStr::from_bytes(path)));
        self.0.get(path, |stamp| now.is_ok_and(|now| now == *stamp))
    }
}

/// The stamp is that of the file which is read.
fn read(path: &Path) -> io::Result<(Stamp, Vec<u8>)> {
    Stamp::of(path)?;
    let file = SmallFile::open(path)?;
    let stamp = file.stamp();
    let source = file.read(SCRIPT_BYTES_MAX as u64).map_err(|error| {
        let text = format!("{error} (limit: {SCRIPT_BYTES_MAX} bytes)");
        io::Error::new(error.kind(), text)
    })?;
    Ok((stamp, source))
}
