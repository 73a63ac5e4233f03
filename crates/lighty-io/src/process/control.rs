//! The control socket: a unix socket beside the pid file. A caller sends a request and gets a reply
//! with its outcome. The main thread serves it, never a worker.

use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

/// Maximum lengths of a request and of a reply, in bytes.
const REQUEST_BYTES_MAX: u64 = 256;
const REPLY_BYTES_MAX: u64 = 4 << 20;

/// Timeout for a caller's request and for sending the reply. Other callers wait meanwhile.
const CALLER_PATIENCE: Duration = Duration::from_secs(1);

/// The path of the control socket of a server with this pid file.
pub fn path_beside(pid_file: &Path) -> PathBuf {
    beside(pid_file, ".ctl")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The server's end. Dropping it removes its file.
#[derive(Debug)]
pub struct ControlSocket {
    /// Accepts callers, also while [`next`](Self::next) is not awaited.
    accepting: JoinHandle<()>,
    calls: Mutex<mpsc::Receiver<Caller>>,
    path: PathBuf,
    /// Device and inode: another server may have put its own socket there.
    identity: (u64, u64),
}

/// A caller that waits for a reply.
#[derive(Debug)]
pub struct Caller {
    stream: UnixStream,
    /// The request's text.
    pub request: String,
}

impl ControlSocket {
    /// Binds the socket, replacing that of an earlier server. Only the server's user and root may
    /// connect.
    ///
    /// # Errors
    /// Errors with the path in the text.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Self::bind_at(path).map_err(|error| {
            io::Error::new(error.kind(), format!("control socket {}: {error}", path.display()))
        })
    }

    fn bind_at(path: &Path) -> io::Result<Self> {
        let is_socket =
            |path| std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
        if is_socket(path) && net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server has it"));
        }
        if std::fs::symlink_metadata(path).is_ok() && !is_socket(path) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "it is there, and no socket"));
        }
        // It gets its name only once it listens and is private.
        let unnamed = beside(path, "~");
        if is_socket(&unnamed) {
            std::fs::remove_file(&unnamed)?;
        }
        let listener = UnixListener::bind(&unnamed)?;
        let named = std::fs::set_permissions(&unnamed, std::fs::Permissions::from_mode(0o600))
            .and_then(|()| std::fs::rename(&unnamed, path));
        if let Err(error) = named {
            let _ = std::fs::remove_file(&unnamed);
            return Err(error);
        }
        let meta = std::fs::symlink_metadata(path)?;
        let identity = (meta.dev(), meta.ino());
        let owner = rustix::process::geteuid().as_raw();
        let (queue, calls) = mpsc::channel(1);
        let accepting = tokio::spawn(accept_calls(listener, owner, queue));
        Ok(Self { accepting, calls: Mutex::new(calls), path: path.to_owned(), identity })
    }

    /// The next permitted caller with a complete request. No caller is lost if the future is
    /// dropped before it is ready.
    pub async fn next(&self) -> Caller {
        match self.calls.lock().await.recv().await {
            Some(caller) => caller,
            None => std::future::pending().await,
        }
    }
}

/// Reads one request after the other; only root and the owner may connect.
async fn accept_calls(listener: UnixListener, owner: u32, queue: mpsc::Sender<Caller>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: wait until connections in progress return some.
            tokio::time::sleep(CALLER_PATIENCE).await;
            continue;
        };
        if let Some(caller) = read_call(stream, owner).await
            && queue.send(caller).await.is_err()
        {
            return;
        }
    }
}

async fn read_call(mut stream: UnixStream, owner: u32) -> Option<Caller> {
    let caller = stream.peer_cred().ok()?.uid();
    if caller != 0 && caller != owner {
        return None;
    }
    let mut request = String::new();
    let mut limited = (&mut stream).take(REQUEST_BYTES_MAX);
    let reading = limited.read_to_string(&mut request);
    tokio::time::timeout(CALLER_PATIENCE, reading).await.ok()?.ok()?;
    Some(Caller { stream, request: request.trim().to_owned() })
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.accepting.abort();
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity) {
            // If the directory does not permit it any more, the next start removes the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Caller {
    /// Sends the reply. A caller that is gone misses it.
    pub async fn reply(mut self, text: &str) {
        let _ = tokio::time::timeout(CALLER_PATIENCE, self.stream.write_all(text.as_bytes())).await;
    }
}

/// Sends a request to a control socket, and waits at most `patience` for the reply.
///
/// # Errors
/// No server listens, it denies access, or it ended or took too long.
pub fn ask(path: &Path, request: &str, patience: Duration) -> io::Result<String> {
    let mut stream = net::UnixStream::connect(path)?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.set_read_timeout(Some(patience))?;
    let mut reply = String::new();
    stream.take(REPLY_BYTES_MAX).read_to_string(&mut reply)?;
    match reply.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server gave no reply")),
        false => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    #[test]
    fn a_caller_gets_its_reply_and_the_file_goes_with_the_server() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = path_beside(&directory.path().join("pid"));
        let socket_path = path.clone();
        runtime().block_on(async {
            let socket = ControlSocket::bind(&path).expect("a socket");
            let mode = std::fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let asking =
                std::thread::spawn(move || ask(&socket_path, "reload\n", Duration::from_secs(20)));
            let caller = socket.next().await;
            assert_eq!(caller.request, "reload");
            caller.reply("ok\n").await;
            assert_eq!(asking.join().expect("no panic").expect("a reply"), "ok\n");
        });
        assert!(!path.exists());
    }

    #[test]
    fn a_caller_that_says_nothing_does_not_keep_the_next_one_waiting() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        runtime().block_on(async {
            let socket = ControlSocket::bind(&path).expect("a socket");
            let _mute = net::UnixStream::connect(&path).expect("connected");
            let second = path.clone();
            let asking =
                std::thread::spawn(move || ask(&second, "reload", Duration::from_secs(20)));
            socket.next().await.reply("refused\nno\n").await;
            assert_eq!(asking.join().expect("no panic").expect("a reply"), "refused\nno\n");
        });
    }

    #[test]
    fn a_caller_is_not_lost_when_something_else_comes_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        runtime().block_on(async {
            let socket = ControlSocket::bind(&path).expect("a socket");
            let mut caller = UnixStream::connect(&path).await.expect("connected");
            caller.write_all(b"rel").await.expect("written");
            // The connection was accepted, and half of the request has been read.
            let brief = tokio::time::timeout(Duration::from_millis(50), socket.next());
            brief.await.expect_err("nobody has said all yet");
            caller.write_all(b"oad").await.expect("written");
            caller.shutdown().await.expect("shut down");
            let next = tokio::time::timeout(Duration::from_secs(20), socket.next());
            assert_eq!(next.await.expect("it still waits").request, "reload");
        });
    }

    #[test]
    fn the_socket_of_a_running_server_is_left_to_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        runtime().block_on(async {
            let first = ControlSocket::bind(&path).expect("a socket");
            let error = ControlSocket::bind(&path).expect_err("it is in use");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
            assert!(error.to_string().contains("another server"), "{error}");
            assert!(path.exists());
            drop(first);
            drop(ControlSocket::bind(&path).expect("free again"));
        });
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_file_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        drop(net::UnixListener::bind(&path).expect("bound"));
        runtime().block_on(async { drop(ControlSocket::bind(&path).expect("replaced")) });
        std::fs::write(&path, "mine").expect("written");
        runtime().block_on(async { ControlSocket::bind(&path).expect_err("a file") });
        assert_eq!(std::fs::read_to_string(&path).expect("kept"), "mine");
    }
}
