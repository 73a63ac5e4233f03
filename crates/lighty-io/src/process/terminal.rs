//! The terminal that a person types at.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// A terminal that does not show what is typed, until this is dropped.
pub struct Silenced<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> Silenced<'a> {
    /// Stops the echo of `terminal`; line ends are still shown.
    ///
    /// # Errors
    /// ENOTTY and the like.
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
        // A terminal that is gone shows nothing either.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}
