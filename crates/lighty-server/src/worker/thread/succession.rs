//! Replaces a worker that has ended by a panic.
//!
//! Its connections and caches are lost: nobody knows which of its state is intact. Another thread
//! starts from the same arguments and listens on the same sockets, whose queues stay. Panics in a
//! row end the process instead, so that its supervisor notices.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_config::Config;
use lighty_core::Settings;
use lighty_core::log::{About, Level};
use lighty_io::clock::Clock;
use lighty_io::threads::panics::{self, Panicked};
use tokio::runtime::LocalRuntime;

use super::{Command, Ready, Setup, spawn};
use crate::boot::error::BootError;
use crate::listen::live::ListenerGuard;
use crate::listen::spare::SpareSocket;

/// Seconds within which restarts are counted.
const WINDOW_S: i64 = 60;

/// The part of a worker's arguments that concerns its successor.
#[derive(Default)]
pub(crate) struct Succession {
    restarts: Restarts,
    /// One for each listener, in their order; `None` if no descriptor was free.
    pub(super) spares: Vec<Option<Arc<SpareSocket>>>,
    /// Counts as a listener until a successor has its own, so that the process does not end.
    pub(super) bridge: Option<ListenerGuard>,
    /// The worker replaces another one: the start of the server is over.
    pub(super) is_successor: bool,
}

impl Succession {
    /// For a worker that shares the count of restarts with the others.
    pub(crate) fn counted_by(restarts: &Restarts) -> Self {
        Self { restarts: restarts.clone(), ..Self::default() }
    }
}

/// Moments of the restarts of workers, in seconds of the wall clock. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Restarts(Arc<Mutex<Vec<i64>>>);

impl Restarts {
    /// Counts a restart; false if there were `max` within the last minute.
    fn admit(&self, now_s: i64, max: u32) -> bool {
        let mut moments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        moments.retain(|moment| (0..WINDOW_S).contains(&(now_s - moment)));
        if moments.len() >= max as usize {
            return false;
        }
        moments.push(now_s);
        true
    }
}

/// Reason why a worker is not replaced.
#[derive(Debug, thiserror::Error)]
enum NoSuccessor {
    #[error("the server starts or stops")]
    NotServing,
    #[error("{0} restarts of workers within a minute are the limit (server.max-worker-restarts)")]
    Limit(u32),
    #[error("one of its listeners is closed, or no descriptor is free for it")]
    Listener,
    #[error("{0}")]
    Thread(io::Error),
}

/// Arguments for the successor of a worker.
pub(super) struct Successor {
    setup: Setup,
    /// The worker is a successor itself.
    follows_another: bool,
}

impl Successor {
    /// Duplicates the sockets of a worker that is about to start.
    pub(super) fn of(setup: &mut Setup) -> Self {
        let spares = setup.sockets.iter().map(|(name, socket)| SpareSocket::of(name, socket));
        setup.succession.spares = spares.map(Result::ok).collect();
        let succession = Succession {
            restarts: setup.succession.restarts.clone(),
            spares: setup.succession.spares.clone(),
            bridge: None,
            is_successor: true,
        };
        let follows_another = setup.succession.is_successor;
        Self { setup: setup.copy(Vec::new(), succession), follows_another }
    }

    /// Ends the runtime of a worker that has panicked, and starts its successor. Returns false if
    /// there is none; then the main thread knows of the loss.
    pub(super) fn take_over(
        mut self,
        panicked: &Panicked,
        runtime: LocalRuntime,
        has_started: bool,
    ) -> bool {
        let bridge = self.setup.live_listeners.guard(None);
        // Destructors of tasks may panic, too.
        let _ = panics::caught_in(|| runtime.shutdown_background());
        let (index, log) = (self.setup.index, self.setup.log.clone());
        let (live_listeners, ready) = (self.setup.live_listeners.clone(), self.setup.ready.clone());
        let say = |text: &str| {
            log.line(Level::Error, Clock::start().unix_s(), text, About::default());
        };
        self.setup.succession.bridge = Some(bridge);
        let may_be_replaced = has_started || self.follows_another;
        match self.start(may_be_replaced) {
            Ok(()) => {
                say(&format!("worker {index} has ended by a panic: another one takes its place"));
                true
            }
            Err(why) => {
                if !matches!(why, NoSuccessor::NotServing) {
                    say(&format!("worker {index} is not replaced: {why}"));
                }
                let _ = ready.send(Ready::Failed(BootError::Panicked(panicked.0.clone())));
                live_listeners.lose(index);
                false
            }
        }
    }

    fn start(mut self, may_be_replaced: bool) -> Result<(), NoSuccessor> {
        let setup = &mut self.setup;
        if !may_be_replaced || setup.order.borrow().command != Command::Serve {
            return Err(NoSuccessor::NotServing);
        }
        let spares = setup.succession.spares.iter();
        let sockets: Option<_> = spares.map(|spare| spare.as_ref()?.share()).collect();
        setup.sockets = sockets.ok_or(NoSuccessor::Listener)?;
        let config: Arc<Config<Settings>> = Arc::clone(&setup.plans.borrow().config);
        let max = config.global().server.worker_restarts_max;
        if !setup.succession.restarts.admit(Clock::start().unix_s(), max) {
            return Err(NoSuccessor::Limit(max));
        }
        spawn(self.setup).map_err(NoSuccessor::Thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_limited_within_a_minute() {
        let restarts = Restarts::default();
        assert!(!restarts.admit(100, 0));
        assert!(restarts.admit(100, 2) && restarts.clone().admit(130, 2));
        assert!(!restarts.admit(159, 2), "the first one is 59 seconds old");
        assert!(restarts.admit(160, 2));
        assert!(!restarts.admit(189, 2));
        assert!(restarts.admit(50, 1), "the clock was set back");
    }
}
