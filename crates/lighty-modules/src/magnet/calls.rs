//! Performs the asynchronous calls of scripts.

use std::future::poll_fn;
use std::os::unix::ffi::OsStringExt;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lighty_core::{Exchange, Fault};
use lighty_io::file::{FileKind, Follow};
use lighty_io::os_text;
use lighty_lua::{Call, Reply, Stat};

use super::script_changes::ScriptChanges;
use super::scripts::{look_up, read};
use super::settings::MagnetSettings;
use super::{Magnet, body, http, scripts};

/// Performs a call with a time limit. The flag is true if the call waited, so that other requests
/// had their turn.
pub(super) async fn perform_within(
    left: Duration,
    magnet: &Magnet,
    ex: &mut Exchange,
    call: Call,
) -> (Reply, bool) {
    let mut performing = pin!(perform(magnet, ex, call));
    let at_once = poll_fn(|cx| Poll::Ready(performing.as_mut().poll(cx))).await;
    match at_once {
        Poll::Ready(reply) => (reply, false),
        Poll::Pending => {
            let performed = tokio::time::timeout(left, performing).await;
            (performed.unwrap_or(Reply::Done), true)
        }
    }
}

/// Performs a call.
async fn perform(magnet: &Magnet, ex: &mut Exchange, call: Call) -> Reply {
    match call {
        Call::Stat { path } => stat(ex, &path).await,
        Call::ReadDir { path } => failed(read_dir(ex, &path).await.map(Reply::Names)),
        Call::ReadLink { path } => failed(read_link(ex, path).await.map(Reply::Bytes)),
        Call::ReadFile { path } => {
            let most = ex.settings.module::<MagnetSettings>().max_memory_kbytes as usize * 1024;
            let path = String::from_utf8_lossy(&path).into_owned();
            failed(read(&ex.machine, path, most, "magnet.max-memory").await.map(Reply::Bytes))
        }
        Call::Module { path } => {
            let most = ex.settings.module::<MagnetSettings>().max_memory_kbytes as usize * 1024;
            let path = String::from_utf8_lossy(&path).into_owned();
            let Some(engine) = magnet.engine(ex) else { return no_state() };
            let module = magnet.scripts.module(&ex.machine, engine, &path, most).await;
            module.map_or_else(|error| Reply::Failed(error.text()), Reply::Chunk)
        }
        Call::Compile { name, text } => {
            let Some(engine) = magnet.engine(ex) else { return no_state() };
            let name = String::from_utf8_lossy(&name).into_owned();
            let chunk = scripts::chunk(&ex.machine, engine, name, text).await;
            chunk.map_or_else(|error| Reply::Failed(error.text()), Reply::Chunk)
        }
        Call::Sleep { ms } => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Reply::Done
        }
        Call::CollectBody => match collect(ex).await {
            Ok(true) => Reply::Done,
            Ok(false) => Reply::Failed("the body exceeds magnet.max-memory".to_owned()),
            Err(fault) => Reply::Failed(fault.verdict().message.to_owned()),
        },
        Call::CollectResponse => {
            let most = ex.settings.module::<MagnetSettings>().max_memory_kbytes as usize * 1024;
            match body::collect(ex, most).await {
                true => Reply::Done,
                false => Reply::Failed("the body exceeds magnet.max-memory".to_owned()),
            }
        }
        Call::ClientsOpen => Reply::Number(magnet.server.clients_open().await),
        Call::OpenRequests => Reply::Requests(magnet.server.requests().await),
        Call::Request(call) => http::request(ex, call).await,
    }
}

fn no_state() -> Reply {
    Reply::Failed("no Lua state".to_owned())
}

fn failed(result: std::io::Result<Reply>) -> Reply {
    result.unwrap_or_else(|error| Reply::Failed(os_text(&error)))
}

async fn stat(ex: &Exchange, path: &[u8]) -> Reply {
    let entry = match look_up(&ex.machine, path).await {
        Ok(entry) => entry,
        Err(error) => return Reply::Failed(os_text(&error)),
    };
    let meta = entry.meta();
    let etag = ex.settings.core.etag_of(meta).map(|etag| etag.as_bytes().to_vec());
    let is_file = meta.kind == FileKind::File;
    let media = is_file.then(|| ex.settings.core.mime.lookup(path)).flatten();
    Reply::Stat(Stat {
        mode: meta.mode.into(),
        size: meta.size,
        ino: meta.ino,
        uid: meta.uid,
        gid: meta.gid,
        mtime_s: meta.mtime_s,
        mtime_ns: meta.mtime_ns,
        ctime_s: meta.ctime_s,
        ctime_ns: meta.ctime_ns,
        atime_s: meta.mtime_s,
        etag: etag.unwrap_or_default(),
        content_type: media.unwrap_or_default().as_bytes().to_vec(),
    })
}

/// Maximum number of names read from a directory. A script's memory limit may be reached earlier.
const NAMES_MAX: usize = 100_000;

async fn read_dir(ex: &Exchange, path: &[u8]) -> std::io::Result<Vec<Vec<u8>>> {
    let root = match ex.machine.root(path) {
        Some(root) => root,
        None => ex.machine.open_root(path).await?,
    };
    let mut batches = ex.machine.engine.read_dir(&root, b"", Follow::All).await?;
    let mut names = Vec::new();
    while let Some(batch) = batches.next_batch().await? {
        names.extend(batch.into_iter().map(|entry| entry.name));
        if names.len() > NAMES_MAX {
            break;
        }
    }
    Ok(names)
}

async fn read_link(ex: &Exchange, path: Vec<u8>) -> std::io::Result<Vec<u8>> {
    let path = std::path::PathBuf::from(std::ffi::OsString::from_vec(path));
    let target = ex.machine.engine.run(move || path.read_link()).await??;
    Ok(target.into_os_string().into_vec())
}

/// Receives the whole request body and puts it back for later readers. Returns `false` if it is too
/// long for a script's memory; later readers still get the whole body.
async fn collect(ex: &mut Exchange) -> Result<bool, Fault> {
    if ex.ext::<ScriptChanges>().is_some_and(|changes| changes.collected.is_some()) {
        return Ok(true);
    }
    let most = ex.settings.module::<MagnetSettings>().max_memory_kbytes as usize * 1024;
    if ex.body.announced().is_some_and(|length| length > most as u64) {
        return Ok(false);
    }
    let mut all = Vec::new();
    while let Some(piece) = ex.body.next().await {
        let piece = piece.map_err(Fault::of_body)?;
        if all.len() + piece.len() > most {
            ex.body.push_back(piece);
            ex.body.push_back(all.into());
            return Ok(false);
        }
        all.extend_from_slice(&piece);
    }
    if !all.is_empty() {
        ex.body.push_back(all.clone().into());
    }
    ex.ext_mut::<ScriptChanges>().collected = Some(all);
    Ok(true)
}
