//! `posix-aio`: `aio_read` of the C library, which answers from a thread of its own.

use std::io;

use super::File;
use super::disk::ReadResult;
use crate::file::OwnedBuf;

#[cfg(target_env = "gnu")]
pub(super) use gnu::{probe, read};

#[cfg(not(target_env = "gnu"))]
pub(super) fn probe() -> io::Result<()> {
    let why = "posix-aio: not with this C library";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

#[cfg(not(target_env = "gnu"))]
pub(super) async fn read(_file: &File, _offset: u64, buf: OwnedBuf) -> ReadResult {
    (buf, probe().map(|()| 0))
}

#[cfg(target_env = "gnu")]
mod gnu {
    use super::{File, OwnedBuf, ReadResult, io};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::Arc;

    use tokio::sync::oneshot;

    pub(in crate::send) fn probe() -> io::Result<()> {
        Ok(())
    }

    /// One request. From `aio_read` to the notification it belongs to the C library; nothing of
    /// it moves or is freed in that time, whoever loses interest.
    struct Request {
        control: libc::aiocb,
        buf: OwnedBuf,
        // Open until after the last use.
        _fd: Arc<OwnedFd>,
        reply: oneshot::Sender<ReadResult>,
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

    /// Reads into the buffer.
    pub(in crate::send) async fn read(file: &File, offset: u64, buf: OwnedBuf) -> ReadResult {
        let (reply, answer) = oneshot::channel();
        if let Err((buf, error)) = submit(file, offset, buf, reply) {
            return (buf, Err(error));
        }
        match answer.await {
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
        let request = Box::into_raw(Box::new(Request { control, buf, _fd: fd, reply }));
        let event = ThreadEvent {
            value: libc::sigval { sival_ptr: request.cast() },
            signo: 0,
            notify: SIGEV_THREAD,
            function: Some(finished),
            attributes: std::ptr::null_mut(),
        };
        // SAFETY: `request` was just made from a box and is ours until aio_read accepts it. The
        // place of the sigevent is large and aligned enough for a ThreadEvent, as asserted above.
        let code = unsafe {
            (&raw mut (*request).control.aio_sigevent).cast::<ThreadEvent>().write(event);
            libc::aio_read(&raw mut (*request).control)
        };
        if code == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // SAFETY: aio_read refused, so nobody else knows the pointer.
        let request = unsafe { Box::from_raw(request) };
        Err((request.buf, error))
    }

    /// Called once for each accepted request, on a thread that the C library made for it.
    extern "C" fn finished(value: libc::sigval) {
        // SAFETY: the value is the pointer that `submit` gave away with this request, and the
        // notification is the last that the C library does with it.
        let mut request = unsafe { Box::from_raw(value.sival_ptr.cast::<Request>()) };
        // SAFETY: the request is over, so its status may be asked, and its result taken once.
        let (code, bytes) = unsafe {
            let code = libc::aio_error(&raw const request.control);
            (code, libc::aio_return(&raw mut request.control))
        };
        let result = match code {
            0 => Ok(usize::try_from(bytes).unwrap_or(0)),
            code => Err(io::Error::from_raw_os_error(code)),
        };
        let Request { buf, reply, .. } = *request;
        // The connection may be gone, and the buffer with it.
        let _ = reply.send((buf, result));
    }
}
