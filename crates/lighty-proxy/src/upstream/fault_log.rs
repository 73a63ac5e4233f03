//! Limits error-log lines that every request to an upstream would repeat.

use std::sync::atomic::{AtomicU64, Ordering};

use lighty_core::{Exchange, Fault, FaultReport};

/// Milliseconds between two lines about one fault.
const AGAIN_MS: u64 = 10_000;

/// State of the log lines about requests without a backend, by fault.
#[derive(Debug, Default)]
pub(crate) struct FaultLog {
    down: FaultThrottle,
    backlog_full: FaultThrottle,
    backlog_timeout: FaultThrottle,
}

#[derive(Debug, Default)]
struct FaultThrottle {
    /// Time of the next permitted line, in monotonic milliseconds.
    next_ms: AtomicU64,
    /// Requests without a line since the last one.
    hushed: AtomicU64,
}

/// Result for a fault: whether it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged {
    No,
    /// Logged, with the number of requests that had the same fault and no line.
    Yes {
        hushed: u64,
    },
}

impl FaultLog {
    /// Returns whether a fault is logged now: faults outside of this list always are.
    pub(crate) fn log(&self, fault: Fault, now_ms: u64) -> Logged {
        match fault {
            Fault::BackendsDown => self.down.log(now_ms),
            Fault::BacklogFull => self.backlog_full.log(now_ms),
            Fault::BacklogTimeout => self.backlog_timeout.log(now_ms),
            _ => Logged::Yes { hushed: 0 },
        }
    }
}

impl FaultLog {
    /// Ends a request with a fault, and logs the fault if a line is due.
    pub(crate) fn fail(&self, ex: &mut Exchange, report: &mut FaultReport, now_ms: u64) {
        match self.log(report.fault, now_ms) {
            Logged::No => ex.fail_hushed(report),
            Logged::Yes { hushed } => {
                report.add_repeats(hushed);
                ex.fail_reporting(report);
            }
        }
    }
}

impl FaultThrottle {
    fn log(&self, now_ms: u64) -> Logged {
        let due = |next_ms: u64| (now_ms >= next_ms).then_some(now_ms + AGAIN_MS);
        match self.next_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due) {
            Ok(_) => Logged::Yes { hushed: self.hushed.swap(0, Ordering::Relaxed) },
            Err(_) => {
                self.hushed.fetch_add(1, Ordering::Relaxed);
                Logged::No
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_logged_once_in_a_while_with_a_count() {
        let faults = FaultLog::default();
        let log = |fault, now_ms| faults.log(fault, now_ms);
        assert_eq!(log(Fault::BackendsDown, 1), Logged::Yes { hushed: 0 });
        assert_eq!(log(Fault::BackendsDown, 2), Logged::No);
        assert_eq!(log(Fault::BackendsDown, AGAIN_MS), Logged::No);
        assert_eq!(log(Fault::BacklogFull, 3), Logged::Yes { hushed: 0 });
        assert_eq!(log(Fault::BackendsDown, 1 + AGAIN_MS), Logged::Yes { hushed: 2 });
        assert_eq!(log(Fault::BackendsDown, 2 + 2 * AGAIN_MS), Logged::Yes { hushed: 0 });
        for _ in 0..3 {
            assert_eq!(log(Fault::BackendRefused, 1), Logged::Yes { hushed: 0 });
        }
    }
}
