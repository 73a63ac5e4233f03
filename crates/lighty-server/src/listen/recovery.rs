//! Recovers a listener that can no longer accept.

use std::io;

use lighty_core::log::Level;
use lighty_io::listen::Listener;
use tokio::time::{Duration, sleep};

use crate::listen::info::ListenerInfo;
use crate::worker::Worker;

/// Consecutive repairs before a listener is given up. Accepting a connection resets the count.
pub(crate) const MENDS_MAX: u32 = 5;

/// Pause before another repair.
const MEND_PAUSE: Duration = Duration::from_secs(1);

/// Repairs since the last accepted connection.
#[derive(Default)]
pub(crate) struct ListenerRecovery(u32);

impl ListenerRecovery {
    /// Resets the count after a connection was accepted.
    pub(crate) fn start_anew(&mut self) {
        self.0 = 0;
    }

    /// Makes a broken listener listen again. Returns `None`, and logs the reason, if it gives up.
    pub(crate) async fn mend(
        &mut self,
        worker: &Worker,
        listener_info: &ListenerInfo,
        listener: Listener,
        error: &io::Error,
    ) -> Option<Listener> {
        let name = &listener_info.name;
        worker.log(Level::Error, &format!("listening on {name} broke off: {error}"));
        let mended = self.try_to_mend(worker, listener_info, listener).await;
        let (level, text) = match &mended {
            Ok(_) => (Level::Warning, format!("listening on {name} again")),
            Err(why) => (Level::Error, format!("giving up on listener {name}: {why}")),
        };
        worker.log(level, &text);
        mended.ok()
    }

    async fn try_to_mend(
        &mut self,
        worker: &Worker,
        listener_info: &ListenerInfo,
        mut listener: Listener,
    ) -> io::Result<Listener> {
        self.pause(worker).await?;
        // On later attempts the old socket is useless.
        let refused = match self.0 {
            1 => listener.listen_again().err(),
            _ => Some(io::Error::other("the socket is broken")),
        };
        let Some(mut refused) = refused else { return Ok(listener) };
        let Some(spec) = listener.rebind_spec() else { return Err(refused) };
        // An open socket holds the address and keeps receiving connections.
        listener_info.hold.release();
        drop(listener);
        loop {
            match spec.bind_again() {
                Ok(listener) => {
                    // Without a copy, the options of this socket cannot be changed.
                    listener.another().into_iter().for_each(|one| listener_info.hold.replace(one));
                    return Ok(listener);
                }
                Err(error) => refused = error,
            }
            if self.pause(worker).await.is_err() {
                return Err(refused);
            }
        }
    }

    fn count(&mut self) -> io::Result<()> {
        if self.0 >= MENDS_MAX {
            return Err(io::Error::other(format!("mended {MENDS_MAX} times in vain")));
        }
        self.0 += 1;
        Ok(())
    }

    /// Counts a repair, and pauses unless it is the first.
    async fn pause(&mut self, worker: &Worker) -> io::Result<()> {
        self.count()?;
        if self.0 > 1 {
            tokio::select! {
                biased;
                () = worker.stops() => return Err(io::Error::other("the server stops")),
                () = sleep(MEND_PAUSE) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_given_up_after_n_repairs_without_a_connection() {
        let mut recovery = ListenerRecovery::default();
        for _ in 0..2 {
            for nth in 1..=MENDS_MAX {
                assert!(recovery.count().is_ok(), "{nth}");
            }
            let refused = recovery.count().expect_err("too many").to_string();
            assert_eq!(refused, format!("mended {MENDS_MAX} times in vain"));
            recovery.start_anew();
        }
    }
}
