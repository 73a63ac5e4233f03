//! Where threads come from.
//!
//! A machine, a container or a user may have as many as it may have and no more (RLIMIT_NPROC,
//! pids.max); the kernel then says no more than "try again".

pub mod blocking_actor;
pub mod keep;
pub(crate) mod lane;
pub mod panic_log;
pub mod panics;
pub mod pool;
pub mod slice;

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread; its name is shown by top(1) and the like.
///
/// # Errors
/// What the system says, with the limits that may be behind it; the kind stays as it is.
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
    builder.spawn(body).map_err(|error| explain(&error))
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
