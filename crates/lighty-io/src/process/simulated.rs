//! Processes of simulations: connections in memory in place of pipes, and an end without a process.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

use rustix::process::Signal as ChildSignal;

use super::program::Exit;
use crate::transport::Stream;

/// A started process of a simulation.
#[derive(Debug)]
pub struct SimulatedChild {
    /// The process.
    pub process: SimulatedProcess,
    /// Our ends of its input and output.
    pub pipes: SimulatedPipes,
}

/// Ends of connections in memory that behave like pipes.
#[derive(Debug)]
pub struct SimulatedPipes {
    /// The program's standard input; `None` once it is closed.
    pub stdin: Option<Stream>,
    /// The program's standard output.
    pub stdout: Stream,
    /// The program's standard error output, if it is a pipe.
    pub stderr: Option<Stream>,
}

/// A process that the server waits for and signals, and that the simulation plays.
#[derive(Clone, Debug, Default)]
pub struct SimulatedProcess(Rc<ProcessState>);

#[derive(Debug, Default)]
struct ProcessState {
    exit: Cell<Option<Exit>>,
    signal: Cell<Option<ChildSignal>>,
    changed: Notify,
}

impl SimulatedProcess {
    /// Ends the process. Its first end counts.
    pub fn end(&self, exit: Exit) {
        if self.0.exit.get().is_none() {
            self.0.exit.set(Some(exit));
            self.0.changed.notify_waiters();
        }
    }

    /// Returns its exit status, if it has ended.
    pub fn exit(&self) -> Option<Exit> {
        self.0.exit.get()
    }

    /// Waits for its end.
    pub async fn ended(&self) -> Exit {
        self.changed(|state| state.exit.get()).await
    }

    /// Waits for a signal. `KILL` also ends the process.
    pub async fn signalled(&self) -> ChildSignal {
        self.changed(|state| state.signal.get()).await
    }

    async fn changed<T>(&self, get: impl Fn(&ProcessState) -> Option<T>) -> T {
        loop {
            // It is notified of everything that happens from here on.
            let changed = self.0.changed.notified();
            if let Some(found) = get(&self.0) {
                return found;
            }
            changed.await;
        }
    }

    /// Sends it a signal; false if it has ended.
    pub(super) fn signal(&self, signal: ChildSignal) -> bool {
        if self.exit().is_some() {
            return false;
        }
        self.0.signal.set(Some(signal));
        self.0.changed.notify_waiters();
        if signal == ChildSignal::KILL {
            self.end(Exit::Signal(signal.as_raw()));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_simulated_process_learns_of_signals_and_is_ended_by_kill_alone() {
        let process = SimulatedProcess::default();
        let other = process.clone();
        let (signal, sent) =
            tokio::join!(biased; other.signalled(), async { process.signal(ChildSignal::TERM) });
        assert_eq!((signal, sent, process.exit()), (ChildSignal::TERM, true, None));
        let (exit, sent) =
            tokio::join!(biased; other.ended(), async { process.signal(ChildSignal::KILL) });
        assert_eq!((exit, sent), (Exit::Signal(9), true));
        assert!(!process.signal(ChildSignal::TERM));
        process.end(Exit::Code(0));
        assert_eq!(process.exit(), Some(Exit::Signal(9)));
    }
}
