//! A simulated thread: no sockets, no other threads, simulated time.
//!
//! A simulation runs the whole server on one thread, over [`transport::memory`], and replays it
//! from a seed. Operations that depend on the machine use the thread's [`World`] instead: connects,
//! processes, random bytes, jobs of the thread pool and the clock. On other threads each of these
//! costs one load.
//!
//! [`transport::memory`]: crate::transport::memory

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::connect::Target;
use crate::process::program::Program;
use crate::process::simulated::SimulatedChild;
use crate::threads::lane::Lane;
use crate::transport::Stream;

/// A connect in progress.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>>>>;

/// Replaces the machine on a simulated thread.
pub trait World {
    /// Connects to a backend.
    fn connect(&self, target: &Target) -> Connecting;

    /// Starts a program, which must have pipes for input and output.
    ///
    /// # Errors
    /// The program does not start.
    fn start(&self, program: &Program) -> io::Result<SimulatedChild>;

    /// The next random number.
    fn random(&self) -> u64;

    /// Delay of a job of the thread pool; `None`: no delay.
    ///
    /// # Errors
    /// The job fails with this error instead of running.
    fn job(&self, lane: Lane) -> io::Result<Option<Duration>>;
}

/// Wall-clock time in seconds at the start of a simulation.
pub const STARTED_UNIX_S: i64 = 1_800_000_000;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static WORLD: RefCell<Option<(Rc<dyn World>, tokio::time::Instant)>> =
        const { RefCell::new(None) };
}

/// Guard: the thread is simulated until this is dropped.
#[derive(Debug)]
#[must_use = "the simulation ends when this is dropped"]
pub struct Inside(());

/// Makes this thread a simulated one. Call it inside a runtime with paused time.
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

/// The thread's world.
#[inline]
pub(crate) fn world() -> Option<Rc<dyn World>> {
    if is_on() {
        WORLD.with_borrow(|world| world.as_ref().map(|(world, _)| Rc::clone(world)))
    } else {
        None
    }
}

/// Time at which the simulation began.
pub(crate) fn started() -> Option<tokio::time::Instant> {
    if is_on() {
        WORLD.with_borrow(|world| world.as_ref().map(|(_, started)| *started))
    } else {
        None
    }
}
