//! `posix-aio`: `aio_read` of the C library, which completes on its own threads.

use std::io;

use super::File;
use super::disk::ReadResult;
use crate::file::OwnedBuf;

#[cfg(target_env = "gnu")]
pub(super) use gnu::{probe, read, recover_lost};

#[cfg(not(target_env = "gnu"))]
pub(super) fn probe() -> io::Result<()> {
    let why = "posix-aio: not with this C library";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn recover_lost() {}

#[cfg(not(target_env = "gnu"))]
pub(super) async fn read(_file: &File, _offset: u64, buf: OwnedBuf) -> ReadResult {
    (buf, probe().map(|()| 0))
}

#[cfg(target_env = "gnu")]
mod gnu {
    use super::{File, OwnedBuf, ReadResult, io};
    use std::collections::HashMap;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use tokio::sync::oneshot;

    pub(in crate::send) fn probe() -> io::Result<()> {
        Ok(())
    }

    /// One request. Between `aio_read` and completion it belongs to the C library, so nothing in it
    /// may be moved or freed, even if no future waits for it any more.
    struct PosixAioRequest {
        control: libc::aiocb,
        buf: OwnedBuf,
        // Stays open until after the last use.
        _fd: Arc<OwnedFd>,
        reply: oneshot::Sender<ReadResult>,
    }

    /// Pointer to a request in progress.
    struct UnderWay(*mut PosixAioRequest);

    // SAFETY: the thread that takes the pointer out of the list owns the request: numbers, a buffer
    // of our own, a descriptor, and the sending end of a channel.
    unsafe impl Send for UnderWay {}

    /// Requests in progress in this process, keyed by the number in their notification.
    /// Notifications for unknown numbers are ignored.
    #[derive(Default)]
    struct Requests {
        list: HashMap<usize, UnderWay>,
        latest: usize,
    }

    static REQUESTS: Mutex<Option<Requests>> = Mutex::new(None);

    fn requests() -> MutexGuard<'static, Option<Requests>> {
        REQUESTS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes requests whose notification was lost: the C library creates a thread per
    /// notification and drops the notification if it cannot. Runs once a second.
    pub(in crate::send) fn recover_lost() {
        let mut requests = requests();
        let Some(requests) = requests.as_mut().filter(|requests| !requests.list.is_empty()) else {
            return;
        };
        // SAFETY: a request is not freed while it is in the list. aio_error takes the lock under
        // which the library ends a request, its notification included.
        let is_over = |request: &UnderWay| unsafe {
            libc::aio_error(&raw const (*request.0).control) != libc::EINPROGRESS
        };
        let over: Vec<usize> = requests
            .list
            .iter()
            .filter(|(_, request)| is_over(request))
            .map(|(number, _)| *number)
            .collect();
        over.iter().filter_map(|number| requests.list.remove(number)).for_each(conclude);
    }

    /// glibc's `struct sigevent` as far as SIGEV_THREAD needs it; the libc crate declares only
    /// the fields of the other kinds.
    #[repr(C)]
    struct ThreadEvent {
        value: libc::sigval,
        signo: libc::c_int,
        notify: libc::c_int,
        function: Option<extern "C" fn(libc::sigval)>,
        attributes: *mut libc::c_void,
    }

    const SIGEV_THREAD: libc::c_int = 2;
    const _: () = assert!(size_of::<ThreadEvent>() <= size_of::<libc::sigevent>());
    const _: () = assert!(align_of::<ThreadEvent>() <= align_of::<libc::sigevent>());

    /// Reads into `buf`.
    pub(in crate::send) async fn read(file: &File, offset: u64, buf: OwnedBuf) -> ReadResult {
        let (reply, response) = oneshot::channel();
        if let Err((buf, error)) = submit(file, offset, buf, reply) {
            return (buf, Err(error));
        }
        match response.await {
            Ok(done) => done,
            Err(_gone) => (OwnedBuf::Heap(Vec::new()), Err(io::Error::other("aio_read: lost"))),
        }
    }

    fn submit(
        file: &File,
        offset: u64,
        mut buf: OwnedBuf,
        reply: oneshot::Sender<ReadResult>,
    ) -> Result<(), (OwnedBuf, io::Error)> {
        let fd = file.share_fd();
        let Ok(offset) = libc::off_t::try_from(offset) else {
            return Err((buf, io::Error::from_raw_os_error(libc::EOVERFLOW)));
        };
        // SAFETY: all zeroes is a valid aiocb: numbers, null pointers, and no notification.
        let mut control: libc::aiocb = unsafe { std::mem::zeroed() };
        control.aio_fildes = fd.as_raw_fd();
        control.aio_offset = offset;
        control.aio_buf = buf.as_mut_ptr().cast();
        control.aio_nbytes = buf.len();
        let request = Box::into_raw(Box::new(PosixAioRequest { control, buf, _fd: fd, reply }));
        let mut known = requests();
        let known = known.get_or_insert_default();
        known.latest = known.latest.wrapping_add(1);
        let number = known.latest;
        let event = ThreadEvent {
            value: libc::sigval { sival_ptr: std::ptr::without_provenance_mut(number) },
            signo: 0,
            notify: SIGEV_THREAD,
            function: Some(notified()),
            attributes: std::ptr::null_mut(),
        };
        // SAFETY: `request` was just created from a box and is ours until aio_read accepts it. The
        // sigevent is large and aligned enough for a ThreadEvent, as asserted above.
        let code = unsafe {
            (&raw mut (*request).control.aio_sigevent).cast::<ThreadEvent>().write(event);
            libc::aio_read(&raw mut (*request).control)
        };
        if code == 0 {
            // The notification blocks on the list's lock until then.
            known.list.insert(number, UnderWay(request));
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // SAFETY: aio_read refused it, so this is the only pointer to it.
        let request = unsafe { Box::from_raw(request) };
        Err((request.buf, error))
    }

    #[cfg(not(test))]
    fn notified() -> extern "C" fn(libc::sigval) {
        finished
    }

    #[cfg(test)]
    fn notified() -> extern "C" fn(libc::sigval) {
        if tests::LOSES_NOTIFICATIONS.get() { tests::ignored } else { finished }
    }

    /// Called once per accepted request, on a thread created by the C library.
    extern "C" fn finished(value: libc::sigval) {
        let mut requests = requests();
        let known = requests.as_mut().and_then(|known| known.list.remove(&value.sival_ptr.addr()));
        drop(requests);
        known.into_iter().for_each(conclude);
    }

    /// Hands the result to the waiting future.
    fn conclude(UnderWay(request): UnderWay) {
        // SAFETY: it was created from a box, and taking it out of the list transfers ownership. The
        // request is over: the notification, or aio_error's result under the library's lock, is the
        // library's last access to it.
        let mut request = unsafe { Box::from_raw(request) };
        // SAFETY: the request is over, so its status may be read, and its result taken once.
        let (code, bytes) = unsafe {
            let code = libc::aio_error(&raw const request.control);
            (code, libc::aio_return(&raw mut request.control))
        };
        let result = match code {
            0 => Ok(usize::try_from(bytes).unwrap_or(0)),
            code => Err(io::Error::from_raw_os_error(code)),
        };
        let PosixAioRequest { buf, reply, .. } = *request;
        // The connection may be gone; the buffer is then dropped.
        let _ = reply.send((buf, result));
    }

    #[cfg(test)]
    mod tests {
        use std::cell::Cell;
        use std::time::Duration;

        use super::*;
        use crate::file::{EngineChoice, EngineLimits, FileEngine, Follow};

        thread_local! {
            /// Simulates a C library that cannot create threads.
            pub(super) static LOSES_NOTIFICATIONS: Cell<bool> = const { Cell::new(false) };
        }

        pub(super) extern "C" fn ignored(_: libc::sigval) {}

        #[tokio::test(flavor = "local")]
        async fn a_read_whose_notification_is_lost_ends_all_the_same() {
            let directory = tempfile::tempdir().expect("a directory");
            std::fs::write(directory.path().join("a"), "content").expect("written");
            let engine = FileEngine::start(EngineChoice::Threads, EngineLimits::default());
            let engine = engine.expect("an engine");
            let root = engine.open_root(directory.path()).await.expect("a root");
            let file = engine.open(&root, b"a", Follow::None, false).await.expect("a file");
            LOSES_NOTIFICATIONS.set(true);
            let mut reading = Box::pin(read(&file, 0, OwnedBuf::Heap(vec![0; 7])));
            let in_time = tokio::time::timeout(Duration::from_millis(300), &mut reading).await;
            assert!(in_time.is_err(), "nobody is told");
            let (buf, result) = loop {
                recover_lost();
                let rest = Duration::from_millis(20);
                if let Ok(done) = tokio::time::timeout(rest, &mut reading).await {
                    break done;
                }
            };
            assert_eq!((result.expect("read"), &buf[..]), (7, &b"content"[..]));
        }
    }
}
