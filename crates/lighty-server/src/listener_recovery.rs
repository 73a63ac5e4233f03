//! What a worker does about a listener that cannot accept any more.

use std::io;

use lighty_core::log::Level;
use lighty_io::listen::Listener;
use tokio::time::{Duration, sleep};

use crate::worker::Worker;

/// How often a listener is mended, one time after the other, before it is given up: accepting a
/// connection starts the count anew.
pub(crate) const MENDS_MAX: u32 = 5;

/// How long it rests before it is mended once more.
const MEND_PAUSE: Duration = Duration::from_secs(1);

/// How often a listener has been mended since it accepted a connection.
#[derive(Default)]
pub(crate) struct ListenerRecovery(u32);

impl ListenerRecovery {
    /// A connection was accepted: all is well.
    pub(crate) fn start_anew(&mut self) {
        self.0 = 0;
    }

    /// Makes a broken listener listen again. `None`: it is given up, and the log says so.
    pub(crate) async fn mend(
        &mut self,
        worker: &Worker,
        name: &str,
        listener: Listener,
        error: &io::Error,
    ) -> Option<Listener> {
        worker.log(Level::Error, &format!("listening on {name} broke off: {error}"));
        let mended = self.try_to_mend(worker, listener).await;
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
        mut listener: Listener,
    ) -> io::Result<Listener> {
        self.rest(worker).await?;
        // Another time the same socket is of no use any more.
        let refused = match self.0 {
            1 => listener.listen_again().err(),
            _ => Some(io::Error::other("the socket is broken")),
        };
        let Some(mut refused) = refused else { return Ok(listener) };
        let Some(site) = listener.site() else { return Err(refused) };
        // It holds the address, and until it is closed it is given connections.
        drop(listener);
        loop {
            match site.bind_again() {
                Ok(listener) => return Ok(listener),
                Err(error) => refused = error,
            }
            if self.rest(worker).await.is_err() {
                return Err(refused);
            }
        }
    }

    /// Counts, and pauses but for the first time.
    async fn rest(&mut self, worker: &Worker) -> io::Result<()> {
        if self.0 >= MENDS_MAX {
            return Err(io::Error::other(format!("mended {MENDS_MAX} times in vain")));
        }
        self.0 += 1;
        if self.0 > 1 {
            tokio::select! {
                () = sleep(MEND_PAUSE) => {}
                () = worker.stops() => return Err(io::Error::other("the server stops")),
            }
        }
        Ok(())
    }
}
