//! Compiled scripts by path. One `stat` for each request says whether a file has changed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use lighty_io::file::small_file::SmallFile;
use lighty_io::threads::pool::{Lane, ThreadPool};
use lighty_lua::{Engine, Script, ScriptRequest};

use super::output;
use crate::app::Response;

/// Bytes of a script.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;

/// Scripts that are kept; with more, all are compiled again when next needed.
const SCRIPTS_MAX: usize = 1024;

/// What changes when a file does.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp([i64; 6], u64);

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
        }
        let inode = meta.ino().cast_signed();
        let device = meta.dev().cast_signed();
        let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
        Ok(Self([inode, device, times[0], times[1], times[2], times[3]], meta.size()))
    }
}

/// Scripts by path, with the files that they were compiled from.
type Compiled = HashMap<Box<[u8]>, (Stamp, Rc<Script>)>;

/// The scripts that were compiled.
#[derive(Default)]
pub(super) struct Scripts(RefCell<Compiled>);

impl Scripts {
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
            .map_err(|text| output::refused("500 Internal Server Error", &text))?;
        let script = Rc::new(script);
        let mut scripts = self.0.borrow_mut();
        if scripts.len() >= SCRIPTS_MAX {
            scripts.clear();
        }
        scripts.insert(path.into(), (stamp, Rc::clone(&script)));
        Ok(script)
    }

    /// A script that is known, if its file is as it was. Its inode is in memory: it was asked for
    /// before, so that this does not wait for a disk.
    fn unchanged(&self, path: &[u8]) -> Option<Rc<Script>> {
        let scripts = self.0.borrow();
        let (stamp, script) = scripts.get(path)?;
        let now = Stamp::of(Path::new(OsStr::from_bytes(path))).ok()?;
        (now == *stamp).then(|| Rc::clone(script))
    }
}

/// The stamp is taken first: what is written meanwhile has another one.
fn read(path: &Path) -> io::Result<(Stamp, Vec<u8>)> {
    let stamp = Stamp::of(path)?;
    let source = SmallFile::open(path)?.read(SCRIPT_BYTES_MAX).map_err(|error| {
        let text = format!("{error} (limit: {SCRIPT_BYTES_MAX} bytes)");
        io::Error::new(error.kind(), text)
    })?;
    Ok((stamp, source))
}
