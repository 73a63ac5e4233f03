//! A thread that is simulated: no sockets, no other threads, no time of its own.
//!
//! A simulation runs the whole server on one thread, over [`transport::memory`], and replays it
//! from a seed. What would otherwise ask the machine asks the thread's [`World`] instead: connects,
//! random bytes, jobs of the thread pool and the clock. On other threads each of these costs one
//! load.
//!
//! [`transport::memory`]: crate::transport::memory

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::connect::Target;
use crate::threads::lane::Lane;
use crate::transport::Stream;

/// A connect in progress.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>>>>;

/// What a simulated thread has in place of a machine.
pub trait World {
    /// Connects to a backend.
    fn connect(&self, target: &Target) -> Connecting;

    /// The next random number.
    fn random(&self) -> u64;

    /// How late a job of the thread pool runs; `None`: at once.
    ///
    /// # Errors
    /// Why it does not run at all.
    fn job(&self, lane: Lane) -> io::Result<Option<Duration>>;
}

/// Wall-clock seconds at which a simulation begins.
pub const STARTED_UNIX_S: i64 = 1_800_000_000;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    static WORLD: RefCell<Option<(Rc<dyn World>, tokio::time::Instant)>> =
        const { RefCell::new(None) };
}

/// The thread is simulated until this is dropped.
#[derive(Debug)]
#[must_use = "the simulation ends when this is dropped"]
pub struct Inside(());

/// Makes this thread a simulated one. Call it inside a runtime whose time is paused.
pub fn enter(world: Rc<dyn World>) -> Inside {
    WORLD.set(Some((world, tokio::time::Instant::now())));
    IS_ON.set(true);
    Inside(())
}

impl Drop for Inside {
    fn drop(&mut self) {
        IS_ON.set(false);
        WORLD.set(None);
    }
}

/// True on a simulated thread.
#[inline]
pub fn is_on() -> bool {
    IS_ON.get()
}

/// A bug that a test of the simulation plants, to see it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A finished operation on a file wakes no task.
    LostWakeup,
    /// A connection to a backend keeps its permit when it is closed.
    PermitLeak,
    /// A piece of a body has bytes of the piece before it, whosever that was.
    MixedBodies,
    /// The sweep judges no request.
    MissingTimeout,
    /// A response is sent twice.
    TwoResponses,
    /// A response is cut without a fault.
    CutWithoutFault,
    /// A body that breaks off looks whole.
    SilentTruncation,
}

impl Bug {
    /// All bugs, in the order of their declaration.
    pub const ALL: [Bug; 7] = [
        Bug::LostWakeup,
        Bug::PermitLeak,
        Bug::MixedBodies,
        Bug::MissingTimeout,
        Bug::TwoResponses,
        Bug::CutWithoutFault,
        Bug::SilentTruncation,
    ];
}

/// Plants a bug in the simulations of this thread, or removes it. Only debug builds have any.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// True where a test has planted this bug.
#[inline]
pub fn has_bug(bug: Bug) -> bool {
    cfg!(debug_assertions) && is_on() && PLANTED.get() == Some(bug)
}

/// The thread's world.
#[inline]
pub(crate) fn world() -> Option<Rc<dyn World>> {
    if is_on() {
        WORLD.with_borrow(|world| world.as_ref().map(|(world, _)| Rc::clone(world)))
    } else {
        None
    }
}

/// When the simulation began.
pub(crate) fn started() -> Option<tokio::time::Instant> {
    if is_on() {
        WORLD.with_borrow(|world| world.as_ref().map(|(_, started)| *started))
    } else {
        None
    }
}
