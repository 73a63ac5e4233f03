//! Threads: creation, the pool, and handling of panics.
//!
//! A machine, a container or a user has a limit on threads (RLIMIT_NPROC, pids.max); beyond it the
//! kernel only reports "try again".

pub mod blocking_actor;
pub mod keep;
pub(crate) mod lane;
pub(crate) mod outside;
pub mod panic_log;
pub mod panics;
pub mod pool;
pub mod slice;

use std::cell::Cell;
use std::io;
use std::thread::{Builder, JoinHandle};

use crate::process::limits::{self, LimitKind};

/// Stack of the main thread if it is not limited (`ulimit -s`).
const MAIN_STACK_BYTES: usize = 8 << 20;

/// Runs the program's main function, on a thread of its own if the main thread's stack is smaller
/// than usual. Parsing a configuration and starting a server overflow 96 KiB.
pub fn with_usual_stack<T: Send + 'static>(main: fn() -> T) -> T {
    let limit = limits::get(LimitKind::StackSize).soft;
    if limit.is_none_or(|bytes| bytes >= MAIN_STACK_BYTES as u64) {
        return main();
    }
    match start("main", Some(MAIN_STACK_BYTES), main) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        // The stack may still suffice.
        Err(_) => main(),
    }
}

/// Starts a thread. Tools such as top(1) show its name.
///
/// # Errors
/// The system's error, with the limits that may be the cause added to its text.
pub fn start<T: Send + 'static>(
    name: &str,
    stack_bytes: Option<usize>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = Builder::new().name(name.to_owned());
    let builder = match stack_bytes {
        Some(bytes) => builder.stack_size(bytes),
        None => builder,
    };
    let is_restricted = IS_RESTRICTED.get();
    let body = move || {
        IS_RESTRICTED.set(is_restricted);
        body()
    };
    builder.spawn(body).map_err(|error| explain(&error))
}

thread_local!(static IS_RESTRICTED: Cell<bool> = const { Cell::new(false) });

/// Marks the calling thread as restricted by the sandbox, as the threads are that it starts.
/// Returns true if it was marked before.
pub(crate) fn mark_restricted() -> bool {
    IS_RESTRICTED.replace(true)
}

fn explain(error: &io::Error) -> io::Error {
    let limits = "ulimit -u, TasksMax, pids.max";
    io::Error::new(error.kind(), format!("cannot make a thread: {error}; limits: {limits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_name_and_gives_back_what_it_made() {
        let name = || std::thread::current().name().map(str::to_owned);
        for stack_bytes in [None, Some(64 << 10)] {
            let thread = start("tester", stack_bytes, name).expect("a thread");
            assert_eq!(thread.join().expect("joined").as_deref(), Some("tester"));
        }
    }

    #[test]
    fn a_thread_that_cannot_start_says_why() {
        let error = explain(&io::Error::from_raw_os_error(libc::EAGAIN));
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(error.to_string().contains("ulimit -u"), "{error}");
    }
}
