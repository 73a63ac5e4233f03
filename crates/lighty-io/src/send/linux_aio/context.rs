//! One worker's kernel AIO context: requests are submitted with `io_submit`, and an eventfd in the
//! reactor signals completions.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::{Rc, Weak};

use rustix::event::EventfdFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::pages::Pages;
use super::{ALIGN_BYTES, PageSegment};
use crate::process::syscall_fallback::Syscall;
use crate::threads::{keep, panics};

/// Completions taken at a time.
const EVENTS_MAX: usize = 64;

/// linux/aio_abi.h: `struct iocb`. The key and the flags of the operation are two words in
/// machine-dependent order; both are zero here.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key_and_rw_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// linux/aio_abi.h: `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;
const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<IoEvent>() == 32);

/// The kernel's name for a context.
type ContextId = libc::c_ulong;

/// A context and the resources of its requests.
pub(in crate::send) struct AioContext {
    id: ContextId,
    completed: Rc<AsyncFd<OwnedFd>>,
    requests: RefCell<Vec<Option<LinuxAioRequest>>>,
    free: RefCell<Vec<usize>>,
    under_way: Cell<usize>,
    reaper: RefCell<Option<AbortHandle>>,
}

/// Resources that the kernel uses until a request ends. The context owns them, not the future.
struct LinuxAioRequest {
    pages: Pages,
    // The kernel holds the file too; kept so that a direct descriptor can be reused.
    _file: Rc<OwnedFd>,
    reply: oneshot::Sender<(Pages, io::Result<u64>)>,
}

/// Checks that the kernel supports AIO.
pub(in crate::send) fn probe() -> io::Result<()> {
    setup(1).map(destroy).map_err(|error| {
        io::Error::new(error.kind(), format!("linux-aio-sendfile: io_setup: {error}"))
    })
}

fn setup(requests_max: usize) -> io::Result<ContextId> {
    let mut id: ContextId = 0;
    let requests_max = u32::try_from(requests_max).unwrap_or(u32::MAX);
    // SAFETY: `id` is zero, as demanded, and outlives the call, which writes to it.
    let result = unsafe { libc::syscall(libc::SYS_io_setup, requests_max, &raw mut id) };
    if result == 0 { Ok(id) } else { Err(io::Error::last_os_error()) }
}

fn destroy(id: ContextId) {
    // SAFETY: a context made by `setup`, and destroyed once.
    unsafe { libc::syscall(libc::SYS_io_destroy, id) };
}

impl AioContext {
    /// Creates a context for at most `requests_max` concurrent requests.
    pub(in crate::send) fn start(requests_max: usize) -> io::Result<Rc<Self>> {
        let requests_max = requests_max.max(1);
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // SAFETY: an `OwnedFd` that is not replaced refers to the same open descriptor for as long
        // as it lives, and the registration owns it.
        let completed = unsafe { AsyncFd::register_with_interest(eventfd, Interest::READABLE) }?;
        let completed = Rc::new(completed);
        let context = Rc::new(AioContext {
            id: setup(requests_max)?,
            completed: Rc::clone(&completed),
            requests: RefCell::new((0..requests_max).map(|_| None).collect()),
            free: RefCell::new((0..requests_max).collect()),
            under_way: Cell::new(0),
            reaper: RefCell::new(None),
        });
        let weak = Rc::downgrade(&context);
        let reaper = keep::keep("kernel AIO", move || reap(Rc::clone(&completed), weak.clone()));
        *context.reaper.borrow_mut() = Some(reaper.abort_handle());
        Ok(context)
    }

    /// Reads `want` bytes from `offset`, or as many as there are.
    pub(in crate::send) async fn read(
        self: Rc<Self>,
        file: Rc<OwnedFd>,
        offset: u64,
        want: u64,
    ) -> io::Result<PageSegment> {
        let skip = offset % ALIGN_BYTES;
        let length = (skip + want).next_multiple_of(ALIGN_BYTES);
        let pages = Pages::new(usize::try_from(length).map_err(|_| too_large())?)?;
        let (reply, response) = oneshot::channel();
        self.submit(LinuxAioRequest { pages, _file: file, reply }, offset - skip)?;
        let lost = |_| io::Error::other("kernel AIO: the context is gone");
        let (pages, result) = response.await.map_err(lost)?;
        let bytes = result?.saturating_sub(skip).min(want);
        Ok(PageSegment { memory: pages.into_file()?, skip, bytes })
    }

    /// Submits a request to the kernel.
    ///
    /// # Errors
    /// EAGAIN if there are too many; EINVAL if the file does not support it.
    fn submit(&self, request: LinuxAioRequest, offset: u64) -> io::Result<()> {
        let again = || io::Error::from_raw_os_error(libc::EAGAIN);
        let slot = self.free.borrow_mut().pop().ok_or_else(again)?;
        let mut control = Iocb {
            data: slot as u64,
            opcode: IOCB_CMD_PREAD,
            fd: request._file.as_raw_fd().cast_unsigned(),
            buf: request.pages.address(),
            nbytes: request.pages.length() as u64,
            offset: i64::try_from(offset).map_err(|_| too_large())?,
            flags: IOCB_FLAG_RESFD,
            resfd: self.completed.get_ref().as_raw_fd().cast_unsigned(),
            ..Iocb::default()
        };
        debug_assert!(self.requests.borrow()[slot].is_none(), "slot {slot} is in use");
        self.requests.borrow_mut()[slot] = Some(request);
        let mut list = [&raw mut control];
        // SAFETY: the context is alive; the call copies the list and the control block; the slot
        // owns the memory that they refer to until the completion has been taken.
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1, list.as_mut_ptr()) };
        if taken == 1 {
            self.under_way.set(self.under_way.get() + 1);
            return Ok(());
        }
        let error = if taken < 0 { io::Error::last_os_error() } else { again() };
        Syscall::IoSubmit.note(&error);
        self.requests.borrow_mut()[slot] = None;
        self.free.borrow_mut().push(slot);
        Err(error)
    }

    /// Takes completions and notifies the waiters. Returns true if there may be more.
    fn take_completions(&self) -> bool {
        let mut events = [IoEvent::default(); EVENTS_MAX];
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the array has space for this many events; the timeout outlives the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                0,
                EVENTS_MAX,
                events.as_mut_ptr(),
                &raw const none,
            )
        };
        let count = usize::try_from(count).unwrap_or(0);
        for event in &events[..count] {
            self.complete(event);
        }
        count == EVENTS_MAX
    }

    fn complete(&self, event: &IoEvent) {
        let slot = event.data as usize;
        let Some(request) = self.requests.borrow_mut().get_mut(slot).and_then(Option::take) else {
            return;
        };
        self.free.borrow_mut().push(slot);
        self.under_way.set(self.under_way.get() - 1);
        let slots = self.free.borrow().len() + self.under_way.get();
        debug_assert_eq!(slots, self.requests.borrow().len(), "slots of requests");
        let result = match u64::try_from(event.res) {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(io::Error::from_raw_os_error(-event.res as i32)),
        };
        // The receiver is gone if the connection is.
        let _ = request.reply.send((request.pages, result));
    }
}

async fn reap(completed: Rc<AsyncFd<OwnedFd>>, context: Weak<AioContext>) {
    while let Ok(mut ready) = completed.readable().await {
        let mut count = [0; 8];
        if ready.try_io(|eventfd| Ok(rustix::io::read(eventfd.get_ref(), &mut count)?)).is_err() {
            continue;
        }
        let Some(context) = context.upgrade() else { return };
        panics::point("kernel AIO");
        while context.take_completions() {}
    }
}

impl Drop for AioContext {
    fn drop(&mut self) {
        if let Some(reaper) = self.reaper.borrow_mut().take() {
            reaper.abort();
        }
        if self.under_way.get() == 0 {
            destroy(self.id);
        } else {
            // `io_destroy` would wait for a disk that may never respond. The kernel may still write
            // to this memory, so it is leaked with the context.
            std::mem::forget(self.requests.take());
        }
    }
}

fn too_large() -> io::Error {
    io::Error::from_raw_os_error(libc::EOVERFLOW)
}
