//! Signals as values that the boot thread can await.

use std::io;
use std::task::{Context, Poll};

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// A signal, by its meaning for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// TERM: stop immediately.
    Stop,
    /// INT: finish the requests in progress, accept no new ones, then stop.
    GracefulStop,
    /// HUP: reopen the log files.
    ReopenLogs,
    /// USR1: reload the configuration.
    Reload,
    /// USR2: write the counters to the error log.
    Report,
}

/// The signals of the process, from [`listen`](Self::listen) on.
#[derive(Debug)]
pub struct Signals {
    streams: [(Signal, Stream); 5],
}

impl Signals {
    /// Handles these signals from now on; their default action, ending the process, never happens
    /// again.
    ///
    /// # Errors
    /// The runtime cannot install a handler.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn listen() -> io::Result<Self> {
        forget_what_was_inherited()?;
        survive_the_file_size_limit()?;
        let streams = [
            // If several are pending, the first in the list wins, so the ones that end the server
            // come first.
            (Signal::Stop, signal(SignalKind::terminate())?),
            (Signal::GracefulStop, signal(SignalKind::interrupt())?),
            (Signal::ReopenLogs, signal(SignalKind::hangup())?),
            (Signal::Reload, signal(SignalKind::user_defined1())?),
            (Signal::Report, signal(SignalKind::user_defined2())?),
        ];
        Ok(Signals { streams })
    }

    /// The next signal. Several signals of one kind in quick succession may be merged.
    pub async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Signal> {
        for (meaning, stream) in &mut self.streams {
            if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                return Poll::Ready(*meaning);
            }
        }
        Poll::Pending
    }
}

/// Unblocks all signals and resets SIGCHLD. A parent may have blocked or ignored them for itself,
/// and both are inherited through `exec`. Called before there is a second thread.
fn forget_what_was_inherited() -> io::Result<()> {
    // SAFETY: sigemptyset initializes the set before it is read; the default action replaces the
    // inherited one, and no handler of ours was set.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) {
            0 => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
        if libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Keeps a write beyond RLIMIT_FSIZE from ending the process (SIGXFSZ): the write fails with EFBIG,
/// which logs, uploads and spools report as they report a full disk. This is a handler rather than
/// `SIG_IGN`, because programs that the server starts would inherit an ignored signal.
fn survive_the_file_size_limit() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the action is whole before it is read, and its handler does nothing.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigemptyset(&raw mut action.sa_mask);
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_signal_arrives_as_its_meaning() {
        let mut signals = Signals::listen().expect("handlers");
        let table = [
            (libc::SIGTERM, Signal::Stop),
            (libc::SIGINT, Signal::GracefulStop),
            (libc::SIGHUP, Signal::ReopenLogs),
            (libc::SIGUSR1, Signal::Reload),
            (libc::SIGUSR2, Signal::Report),
        ];
        for (number, meaning) in table {
            // SAFETY: sends a signal to this process, which handles it from here on.
            assert_eq!(unsafe { libc::kill(libc::getpid(), number) }, 0);
            assert_eq!(signals.next().await, meaning);
        }
    }
}
