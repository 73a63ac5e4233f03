//! Processes that are forked from the server and stay in its program.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Signals to the server's process group, which such a process survives. It ends with the server.
pub(crate) const IGNORED: [libc::c_int; 5] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGPIPE];

/// The last descriptor to close one by one, on old kernels.
const DESCRIPTORS_MAX: RawFd = 80_000;

/// Lets signals that such a process ignores end a program, as they do by default.
pub(crate) fn take_signals_back() {
    for signal in IGNORED {
        // SAFETY: the default action runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Closes the server's descriptors and takes back its signal handlers. The launcher keeps its
/// socket alone: a caller that waits for the end of the server's output must not wait for it.
pub(crate) fn leave_server(socket: &OwnedFd, name: &CStr) {
    // SAFETY: the name ends with a zero byte and outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    for signal in 1..=libc::SIGSYS {
        let action = if IGNORED.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither action runs code of ours.
        unsafe { libc::signal(signal, action) };
    }
    if let Ok(nowhere) = File::options().read(true).write(true).open("/dev/null") {
        for number in 0..=2 {
            // SAFETY: the standard streams have no other owner that closes them.
            unsafe { libc::dup2(nowhere.as_raw_fd(), number) };
        }
    }
    let own = socket.as_raw_fd();
    let ranges = [(3, own.saturating_sub(1)), (own + 1, RawFd::MAX)];
    for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
        // SAFETY: the server's owners of these descriptors do not exist in this process.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if closed != 0 {
            close_each(first, last.min(DESCRIPTORS_MAX));
        }
    }
}

/// Closes descriptors on kernels before 5.9.
fn close_each(first: RawFd, last: RawFd) {
    for number in first..=last {
        // SAFETY: as for the range.
        unsafe { libc::close(number) };
    }
}
