//! Blocking calls of scripts, done by threads.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lighty_io::file::small_file::SmallFile;
use lighty_io::threads::pool::{Lane, ThreadPool};
use lighty_lua::{Call, Reply, Stat};

use super::Magnet;

/// Maximum number of names in a directory listing.
const NAMES_MAX: usize = 100_000;

/// Performs a call.
pub(super) async fn perform(magnet: &Magnet, call: Call) -> Reply {
    let (pool, limits) = (&magnet.pool, &magnet.limits);
    let bytes_max = limits.memory as u64;
    match call {
        Call::Stat { path } => on(pool, path, stat, Reply::Stat).await,
        Call::ReadDir { path } => on(pool, path, names, Reply::Names).await,
        Call::ReadLink { path } => {
            let read = |path: &Path| path.read_link().map(PathBuf::into_os_string);
            on(pool, path, read, |to| Reply::Bytes(to.into_vec())).await
        }
        Call::ReadFile { path } => {
            let read = move |path: &Path| SmallFile::open(path)?.read(bytes_max);
            on(pool, path, read, Reply::Bytes).await
        }
        Call::Module { path } => {
            let module = magnet.scripts.module(pool, &magnet.engine, &path, bytes_max).await;
            module.map_or_else(|error| Reply::Failed(error.to_string()), Reply::Chunk)
        }
        Call::Compile { name, text } => {
            let name = String::from_utf8_lossy(&name);
            let chunk = magnet.engine.chunk(&name, &text);
            chunk.map_or_else(|error| Reply::Failed(error.to_string()), Reply::Chunk)
        }
        Call::Sleep { ms } => {
            tokio::time::sleep(Duration::from_millis(ms.min(limits.time_ms))).await;
            Reply::Done
        }
        // The body is complete before the script begins.
        Call::CollectBody => Reply::Done,
        Call::CollectResponse => Reply::Failed("there is no response yet".to_owned()),
        Call::ClientsOpen | Call::OpenRequests => {
            Reply::Failed("the server's connections are known in the server only".to_owned())
        }
        Call::Request(_) => Reply::Failed("requests can be made in the server only".to_owned()),
    }
}

async fn on<T: Send + 'static>(
    pool: &ThreadPool,
    path: Vec<u8>,
    job: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    reply: impl FnOnce(T) -> Reply,
) -> Reply {
    let job = move || job(Path::new(OsStr::from_bytes(&path)));
    let done = pool.run(Lane::Stat, job).await.and_then(|done| done);
    done.map_or_else(|error| Reply::Failed(lighty_io::os_text(&error)), reply)
}

fn stat(path: &Path) -> io::Result<Stat> {
    let meta = std::fs::metadata(path)?;
    let part = |nanoseconds: i64| u32::try_from(nanoseconds).unwrap_or(0);
    let etag = format!("\"{:x}-{:x}-{:x}\"", meta.ino(), meta.size(), meta.mtime());
    Ok(Stat {
        mode: meta.mode(),
        size: meta.size(),
        ino: meta.ino(),
        uid: meta.uid(),
        gid: meta.gid(),
        mtime_s: meta.mtime(),
        mtime_ns: part(meta.mtime_nsec()),
        ctime_s: meta.ctime(),
        ctime_ns: part(meta.ctime_nsec()),
        atime_s: meta.atime(),
        etag: if meta.is_file() { etag.into_bytes() } else { Vec::new() },
        content_type: Vec::new(),
    })
}

fn names(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let entries = std::fs::read_dir(path)?.take(NAMES_MAX);
    entries.map(|entry| Ok(entry?.file_name().into_vec())).collect()
}
