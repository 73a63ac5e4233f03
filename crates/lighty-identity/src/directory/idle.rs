//! Connections that wait for the next search.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lighty_io::clock::deadline::Deadline;

use super::Servers;
use super::connection::Connection;

/// Time after which an unused connection is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Pause between two looks for such connections.
const LOOK: Duration = Duration::from_secs(10);

/// The connections. There are at most as many as search at the same time.
#[derive(Default)]
pub(super) struct IdleConnections {
    kept: Mutex<Vec<(Deadline, Connection)>>,
    is_watched: AtomicBool,
}

impl IdleConnections {
    /// The connection that was used last, so that the others may end.
    pub(super) fn take(&self) -> Option<Connection> {
        let mut kept = self.kept();
        kept.retain(|(until, connection)| !until.is_over() && connection.is_open());
        kept.pop().map(|(_, connection)| connection)
    }

    /// Keeps a connection, and watches its age.
    pub(super) fn keep(&self, connection: Connection, owner: &Arc<Servers>) {
        self.kept().push((Deadline::after(IDLE), connection));
        if !self.is_watched.swap(true, Ordering::Relaxed) {
            tokio::spawn(watch(Arc::downgrade(owner)));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(Deadline, Connection)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes old connections until none is left.
async fn watch(owner: Weak<Servers>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(owner) = owner.upgrade() else { return };
        let mut kept = owner.idle.kept();
        kept.retain(|(until, connection)| !until.is_over() && connection.is_open());
        if kept.is_empty() {
            owner.idle.is_watched.store(false, Ordering::Relaxed);
            return;
        }
    }
}
