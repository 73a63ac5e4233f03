//! Time slices of threads.
//!
//! A thread that wakes up may have to wait until the running thread has used up its slice, about 3
//! ms, however nice that one is. A thread that requested a shorter slice runs first instead: it has
//! the earlier deadline (EEVDF, `Documentation/scheduler/sched-eevdf.rst` of Linux). Its share of
//! the processor still depends on its niceness only.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Slice of an event loop: the time of a few requests, and the shortest that Linux grants.
pub const LOOP_SLICE: Duration = Duration::from_micros(100);

/// Requests a slice for this thread; Linux grants 0.1 to 100 ms. Threads and processes that it
/// starts later have the system's default, unless its niceness is negative.
///
/// # Errors
/// The system's error. Linux before 6.12 accepts the call and ignores the slice.
pub fn ask_for_slice(slice: Duration) -> io::Result<()> {
    let mut attr = attributes()?;
    let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH];
    if !fair.iter().any(|policy| u32::try_from(*policy) == Ok(attr.sched_policy)) {
        // Keep a scheduling policy that was set from outside.
        return Ok(());
    }
    attr.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    if attr.sched_nice >= 0 {
        // This flag would also reset the children's negative niceness.
        attr.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    }
    // SAFETY: `attr` has the length in its `size`, is only read, and outlives the call; zero means
    // the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Scheduling attributes of this thread.
fn attributes() -> io::Result<libc::sched_attr> {
    let mut attr = MaybeUninit::<libc::sched_attr>::zeroed();
    // SAFETY: the buffer has the given length and outlives the call; zero means the calling thread.
    let done = unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, attr.as_mut_ptr(), size_of_val(&attr), 0)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all of its fields are numbers, and were zero before the kernel wrote some of them.
    Ok(unsafe { attr.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slice of a new thread, which may have requested one, and of a thread started by it.
    fn slices(requested: Option<Duration>) -> (Duration, Duration) {
        let slice = || Duration::from_nanos(attributes().expect("attributes").sched_runtime);
        let thread = std::thread::spawn(move || {
            if let Some(requested) = requested {
                ask_for_slice(requested).expect("granted");
            }
            (slice(), std::thread::spawn(slice).join().expect("joined"))
        });
        thread.join().expect("joined")
    }

    #[test]
    fn time_slice_is_granted_and_not_inherited() {
        let usual = slices(None).0;
        let (own, child) = slices(Some(LOOP_SLICE));
        // Zero: the kernel does not support slices for such threads.
        assert!(own == LOOP_SLICE || usual.is_zero(), "{own:?}, usually {usual:?}");
        assert_eq!(child, usual);
    }

    #[test]
    fn time_slice_leaves_policy_and_niceness_alone() {
        let thread = std::thread::spawn(|| {
            rustix::process::nice(3).expect("nicer");
            let before = attributes().expect("attributes");
            ask_for_slice(LOOP_SLICE).expect("granted");
            (before, attributes().expect("attributes"))
        });
        let (before, after) = thread.join().expect("joined");
        assert_eq!(before.sched_policy, after.sched_policy);
        assert_eq!(before.sched_nice, after.sched_nice);
    }
}
