//! The control socket: a unix socket, by default beside the pid file. A caller sends a request and
//! gets a reply with its outcome. The main thread serves it, never a worker.

pub mod access;

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, Arc, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use self::access::{ControlAccess, ControlRight};

/// Maximum lengths of a request and of a reply, in bytes.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// Callers at a time, from the connection to the end of the reply. Beyond it, root and the server's
/// user wait in the kernel's queue, and members of the groups are turned away, so that members
/// cannot keep the owner waiting.
const OWNERS_MAX: usize = 64;
const MEMBERS_MAX: usize = 64;

/// Timeout for a caller's request, and for each part of the reply.
const CALLER_PATIENCE: Duration = Duration::from_secs(1);

/// Timeout for the whole reply.
const REPLY_PATIENCE: Duration = Duration::from_secs(30);

/// Decides whether the bytes so far are a whole request.
pub type IsComplete = fn(&[u8]) -> bool;

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
    accepting: sync::Mutex<JoinHandle<()>>,
    calls: Mutex<mpsc::Receiver<Caller>>,
    queue: mpsc::Sender<Caller>,
    path: PathBuf,
    /// Device and inode: another server may have put its own socket there.
    identity: (u64, u64),
    listening: OwnedFd,
    access: Arc<ControlAccess>,
    is_complete: IsComplete,
    /// Another process has the socket, and its file.
    is_left: AtomicBool,
}

/// A caller that waits for a reply.
#[derive(Debug)]
pub struct Caller {
    stream: UnixStream,
    /// The request's bytes.
    pub request: Vec<u8>,
    /// The process that called.
    pub process: CallerProcess,
    /// Its place among the callers.
    place: OwnedSemaphorePermit,
}

/// A calling process, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerProcess {
    /// Its effective user.
    pub uid: u32,
    /// Its number; 0 if it is in another namespace of processes.
    pub pid: i32,
    /// Its rights.
    pub right: ControlRight,
}

impl CallerProcess {
    /// True for root and the server's user, who can do all that the server can.
    pub fn is_owner(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

impl ControlSocket {
    /// Binds the socket, replacing that of an earlier server. Root, the owner and the groups of
    /// `access` may connect. A request ends where `is_complete` says so, or where the caller ends
    /// its stream.
    ///
    /// # Errors
    /// Errors with the path in the text.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn bind(path: &Path, access: ControlAccess, is_complete: IsComplete) -> io::Result<Self> {
        Self::bind_at(path, access, is_complete).map_err(|error| {
            io::Error::new(error.kind(), format!("control socket {}: {error}", path.display()))
        })
    }

    fn bind_at(path: &Path, access: ControlAccess, is_complete: IsComplete) -> io::Result<Self> {
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
        let named = access.apply(&unnamed).and_then(|()| std::fs::rename(&unnamed, path));
        if let Err(error) = named {
            let _ = std::fs::remove_file(&unnamed);
            return Err(error);
        }
        let named = Self::over(listener, path, access, is_complete);
        named.inspect_err(|_| drop(std::fs::remove_file(path)))
    }

    /// Continues on the listening socket of the server before this one, which has this path. Its
    /// callers have the rights of `access` from now on.
    ///
    /// # Errors
    /// It is no socket, or its path is gone.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn handed(
        descriptor: OwnedFd,
        path: &Path,
        access: ControlAccess,
        is_complete: IsComplete,
    ) -> io::Result<Self> {
        let listener = net::UnixListener::from(descriptor);
        listener.set_nonblocking(true)?;
        // The file may belong to another user, who has chosen its mode. Rights are checked anyway.
        let _ = access.apply(path);
        Self::over(UnixListener::from_std(listener)?, path, access, is_complete)
    }

    fn over(
        listener: UnixListener,
        path: &Path,
        access: ControlAccess,
        is_complete: IsComplete,
    ) -> io::Result<Self> {
        let meta = std::fs::symlink_metadata(path)?;
        let access = Arc::new(ControlAccess { owner: Some(access.owner()), ..access });
        let (queue, calls) = mpsc::channel(1);
        let listening = listener.as_fd().try_clone_to_owned()?;
        let accepting =
            tokio::spawn(accept_calls(listener, Arc::clone(&access), is_complete, queue.clone()));
        Ok(Self {
            accepting: sync::Mutex::new(accepting),
            calls: Mutex::new(calls),
            queue,
            path: path.to_owned(),
            identity: (meta.dev(), meta.ino()),
            listening,
            access,
            is_complete,
            is_left: AtomicBool::new(false),
        })
    }

    /// Its path, and a descriptor for another process to accept callers on.
    pub fn listening(&self) -> (&Path, BorrowedFd<'_>) {
        (&self.path, self.listening.as_fd())
    }

    /// Leaves callers, and the file, to another process that has the socket. Callers that were
    /// accepted are still served.
    pub fn leave(&self) {
        self.accepting.lock().unwrap_or_else(PoisonError::into_inner).abort();
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// Accepts callers again after [`leave`](Self::leave).
    ///
    /// # Errors
    /// EMFILE and other errors of the system.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn resume(&self) -> io::Result<()> {
        let listener = net::UnixListener::from(self.listening.try_clone()?);
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let (access, queue) = (Arc::clone(&self.access), self.queue.clone());
        let accepting = tokio::spawn(accept_calls(listener, access, self.is_complete, queue));
        *self.accepting.lock().unwrap_or_else(PoisonError::into_inner) = accepting;
        self.is_left.store(false, Ordering::Relaxed);
        Ok(())
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

/// Places of callers, by kind.
struct Places {
    owners: Arc<Semaphore>,
    members: Arc<Semaphore>,
}

impl Places {
    fn new() -> Self {
        let [owners, members] =
            [OWNERS_MAX, MEMBERS_MAX].map(|count| Arc::new(Semaphore::new(count)));
        Self { owners, members }
    }

    /// A place for this process. `None`: as many of its kind are served already.
    async fn take(&self, process: CallerProcess) -> Option<OwnedSemaphorePermit> {
        match process.is_owner() {
            true => Arc::clone(&self.owners).acquire_owned().await.ok(),
            false => Arc::clone(&self.members).try_acquire_owned().ok(),
        }
    }
}

/// Reads requests, of several callers at a time.
async fn accept_calls(
    listener: UnixListener,
    access: Arc<ControlAccess>,
    is_complete: IsComplete,
    queue: mpsc::Sender<Caller>,
) {
    let places = Places::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: wait until connections in progress return some.
            tokio::time::sleep(CALLER_PATIENCE).await;
            continue;
        };
        let Some(process) = permitted(&stream, &access) else { continue };
        let Some(place) = places.take(process).await else { continue };
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut caller = Caller { stream, request: Vec::new(), process, place };
            let reading = caller.read(is_complete);
            if let Ok(Ok(())) = tokio::time::timeout(CALLER_PATIENCE, reading).await {
                // The socket is gone if nobody receives.
                let _ = queue.send(caller).await;
            }
        });
    }
}

/// The process behind a connection, if it has a right.
fn permitted(stream: &UnixStream, access: &ControlAccess) -> Option<CallerProcess> {
    let peer = stream.peer_cred().ok()?;
    let mut groups = vec![peer.gid()];
    if access.has_groups() {
        groups.extend(access::peer_groups(stream.as_fd()));
    }
    let right = access.right(peer.uid(), &groups)?;
    Some(CallerProcess { uid: peer.uid(), pid: peer.pid().unwrap_or(0), right })
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.accepting.lock().unwrap_or_else(PoisonError::into_inner).abort();
        if self.is_left.load(Ordering::Relaxed) {
            return;
        }
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity) {
            // If the directory does not permit it any more, the next start removes the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Caller {
    async fn read(&mut self, is_complete: IsComplete) -> io::Result<()> {
        while self.request.len() < REQUEST_BYTES_MAX && !is_complete(&self.request) {
            let room = (REQUEST_BYTES_MAX - self.request.len()) as u64;
            if (&mut self.stream).take(room).read_buf(&mut self.request).await? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The request as a line of text.
    pub fn line(&self) -> &str {
        str::from_utf8(&self.request).unwrap_or_default().trim()
    }

    /// Sends the reply. A caller that does not take it at once gets the rest while others are
    /// served; one that is gone, or takes nothing for a second, misses it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn reply(self, reply: &[u8]) {
        // Written past tokio, which does not know yet whether the socket is writable: the process
        // may end right after.
        let sent = match rustix::io::write(&self.stream, reply) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => return,
        };
        if let Some(left) = reply.get(sent..).filter(|left| !left.is_empty()) {
            let left = left.to_vec();
            tokio::spawn(tokio::time::timeout(REPLY_PATIENCE, self.reply_slowly(left)));
        }
    }

    async fn reply_slowly(mut self, reply: Vec<u8>) {
        let mut left = reply.as_slice();
        while !left.is_empty() {
            let write = self.stream.write(left);
            match tokio::time::timeout(CALLER_PATIENCE, write).await {
                Ok(Ok(written)) if written > 0 => left = &left[written..],
                _ => break,
            }
        }
        drop(self.place);
    }
}

/// Sends a request to a control socket, and waits at most `patience` for each part of the reply.
///
/// # Errors
/// No server listens, it denies access, or it ended or took too long.
pub fn ask(path: &Path, request: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = net::UnixStream::connect(path)?;
    stream.write_all(request)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.set_read_timeout(Some(patience))?;
    let mut reply = Vec::new();
    stream.take(REPLY_BYTES_MAX).read_to_end(&mut reply)?;
    match reply.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server gave no reply")),
        false => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn bind(path: &Path, is_complete: IsComplete) -> io::Result<ControlSocket> {
        ControlSocket::bind(path, ControlAccess::default(), is_complete)
    }

    fn until_end(_: &[u8]) -> bool {
        false
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    #[test]
    fn a_caller_gets_its_reply_and_the_file_goes_with_the_server() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = path_beside(&directory.path().join("pid"));
        let socket_path = path.clone();
        runtime().block_on(async {
            let socket = bind(&path, until_end).expect("a socket");
            let mode = std::fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let asking =
                std::thread::spawn(move || ask(&socket_path, b"reload\n", Duration::from_secs(20)));
            let caller = socket.next().await;
            assert_eq!(caller.line(), "reload");
            caller.reply(b"ok\n");
            assert_eq!(asking.join().expect("no panic").expect("a reply"), b"ok\n");
        });
        assert!(!path.exists());
    }

    #[test]
    fn a_caller_that_says_nothing_does_not_keep_the_next_one_waiting() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        runtime().block_on(async {
            let socket = bind(&path, until_end).expect("a socket");
            let _mute = net::UnixStream::connect(&path).expect("connected");
            let second = path.clone();
            let asking =
                std::thread::spawn(move || ask(&second, b"reload", Duration::from_secs(20)));
            socket.next().await.reply(b"refused\nno\n");
            assert_eq!(asking.join().expect("no panic").expect("a reply"), b"refused\nno\n");
        });
    }

    #[test]
    fn caller_that_does_not_take_its_reply_keeps_nobody_waiting() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        let long = vec![b'x'; 4 << 20];
        runtime().block_on(async {
            let socket = bind(&path, until_end).expect("a socket");
            let mut slow = net::UnixStream::connect(&path).expect("connected");
            slow.shutdown(std::net::Shutdown::Write).expect("shut down");
            let began = std::time::Instant::now();
            socket.next().await.reply(&long);
            assert!(began.elapsed() < CALLER_PATIENCE / 2, "{:?}", began.elapsed());
            // It gets the whole reply once it reads.
            let reading = tokio::task::spawn_blocking(move || {
                let mut got = Vec::new();
                slow.read_to_end(&mut got).map(|_| got)
            });
            assert_eq!(reading.await.expect("no panic").expect("a reply"), long);
        });
    }

    #[test]
    fn members_are_turned_away_at_their_limit_and_owners_wait() {
        let owner = CallerProcess {
            uid: rustix::process::geteuid().as_raw(),
            pid: 1,
            right: ControlRight::Change,
        };
        let member = CallerProcess { uid: owner.uid.wrapping_add(1), ..owner };
        let places = Places::new();
        runtime().block_on(async {
            let mut taken = Vec::new();
            for _ in 0..MEMBERS_MAX {
                taken.push(places.take(member).await.expect("a place"));
            }
            assert!(places.take(member).await.is_none());
            for _ in 0..OWNERS_MAX {
                taken.push(places.take(owner).await.expect("a place"));
            }
            let waiting = tokio::time::timeout(Duration::from_millis(20), places.take(owner));
            waiting.await.expect_err("no place is free");
            taken.clear();
            assert!(places.take(owner).await.is_some() && places.take(member).await.is_some());
        });
    }

    #[test]
    fn a_caller_is_not_lost_when_something_else_comes_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        runtime().block_on(async {
            let socket = bind(&path, until_end).expect("a socket");
            let mut caller = UnixStream::connect(&path).await.expect("connected");
            caller.write_all(b"rel").await.expect("written");
            // The connection was accepted, and half of the request has been read.
            let brief = tokio::time::timeout(Duration::from_millis(50), socket.next());
            brief.await.expect_err("nobody has said all yet");
            caller.write_all(b"oad").await.expect("written");
            caller.shutdown().await.expect("shut down");
            let next = tokio::time::timeout(Duration::from_secs(20), socket.next());
            assert_eq!(next.await.expect("it still waits").line(), "reload");
        });
    }

    #[test]
    fn the_socket_of_a_running_server_is_left_to_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        runtime().block_on(async {
            let first = bind(&path, until_end).expect("a socket");
            let error = bind(&path, until_end).expect_err("it is in use");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
            assert!(error.to_string().contains("another server"), "{error}");
            assert!(path.exists());
            drop(first);
            drop(bind(&path, until_end).expect("free again"));
        });
    }

    #[test]
    fn complete_request_is_served_before_its_stream_ends() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        runtime().block_on(async {
            let socket = bind(&path, |bytes| bytes.ends_with(b".")).expect("it");
            let mut caller = UnixStream::connect(&path).await.expect("connected");
            caller.write_all(b"reload.").await.expect("written");
            let next = tokio::time::timeout(Duration::from_secs(20), socket.next());
            let next = next.await.expect("it is complete");
            assert_eq!(next.line(), "reload.");
            assert_eq!(next.process.pid, std::process::id() as i32);
            assert_eq!(next.process.uid, rustix::process::geteuid().as_raw());
        });
    }

    #[test]
    fn request_is_cut_at_its_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        for length in [REQUEST_BYTES_MAX - 1, REQUEST_BYTES_MAX, REQUEST_BYTES_MAX + 1] {
            runtime().block_on(async {
                let socket = bind(&path, until_end).expect("a socket");
                let mut caller = UnixStream::connect(&path).await.expect("connected");
                let sending = async {
                    let _ = caller.write_all(&vec![b'x'; length]).await;
                    let _ = caller.shutdown().await;
                };
                let (next, ()) = tokio::join!(socket.next(), sending);
                assert_eq!(next.request.len(), length.min(REQUEST_BYTES_MAX));
            });
        }
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_file_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        drop(net::UnixListener::bind(&path).expect("bound"));
        runtime().block_on(async { drop(bind(&path, until_end).expect("replaced")) });
        std::fs::write(&path, "mine").expect("written");
        runtime().block_on(async { bind(&path, until_end).expect_err("a file") });
        assert_eq!(std::fs::read_to_string(&path).expect("kept"), "mine");
    }
}
