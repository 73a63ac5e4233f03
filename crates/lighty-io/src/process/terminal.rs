//! The controlling terminal, for interactive commands.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Disables the echo of a terminal until it is dropped, for reading secrets.
pub struct Silenced<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> Silenced<'a> {
    /// Disables the echo of `terminal`; line ends are still shown.
    ///
    /// # Errors
    /// ENOTTY and others of the system.
    pub fn new(terminal: &'a impl AsFd) -> io::Result<Self> {
        let terminal = terminal.as_fd();
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &silent)?;
        Ok(Silenced { terminal, before })
    }
}

impl Drop for Silenced<'_> {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

/// A terminal that delivers each key as it is pressed, Ctrl-C included, until this is dropped.
pub struct KeyByKey<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> KeyByKey<'a> {
    /// Switches the terminal.
    ///
    /// # Errors
    /// ENOTTY and others of the system.
    pub fn new(terminal: &'a impl AsFd) -> io::Result<Self> {
        let terminal = terminal.as_fd();
        let before = tcgetattr(terminal)?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(terminal, OptionalActions::Flush, &raw)?;
        Ok(KeyByKey { terminal, before })
    }
}

impl Drop for KeyByKey<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

/// Columns and rows of a terminal, if it reports any.
pub fn size(terminal: &impl AsFd) -> Option<(usize, usize)> {
    let size = tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// Input typed at the terminal on standard input.
pub struct Typed(AsyncFd<io::Stdin>);

impl Typed {
    /// Registers standard input with the runtime.
    ///
    /// # Errors
    /// Standard input is a file, or no descriptor is left for the runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn listen() -> io::Result<Self> {
        // SAFETY: standard input is not closed while the process runs, so its number keeps
        // referring to the registered file.
        let input = unsafe { AsyncFd::register_with_interest(io::stdin(), Interest::READABLE) };
        Ok(Self(input?))
    }

    /// Waits for input and reads it; 0 bytes at the end of the input.
    ///
    /// # Errors
    /// Errors of the system.
    pub async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut ready = self.0.readable().await?;
        ready.clear_ready();
        let input = ready.get_inner().as_fd();
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(input, &mut *bytes))?)
    }
}
