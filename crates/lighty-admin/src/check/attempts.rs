//! Attempts at other machines that the checks make, all at the same time and with a time limit.
//! Each takes a thread, because the system's resolver cannot be interrupted.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use lighty_config::Span;
use lighty_io::clock::deadline::Deadline;

/// Limit on attempts.
const ATTEMPTS_MAX: usize = 32;

/// Time limit for all attempts together: `-tt` runs before a service starts.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

/// An attempt, by its subject.
pub(super) type Attempts<F> = BTreeMap<String, (Span, F)>;

/// An attempt that failed.
pub(super) struct FailedAttempt {
    pub(super) subject: String,
    pub(super) span: Span,
    /// `None`: it was not over in time.
    pub(super) error: Option<io::Error>,
}

/// Makes all attempts, and returns the ones that failed.
pub(super) fn make<F>(attempts: Attempts<F>) -> Vec<FailedAttempt>
where
    F: FnOnce() -> io::Result<()> + Send + 'static,
{
    let (sender, results) = mpsc::channel();
    let mut waiting = BTreeMap::new();
    for (subject, (span, attempt)) in attempts.into_iter().take(ATTEMPTS_MAX) {
        let (sender, name) = (sender.clone(), subject.clone());
        let run = move || {
            let _ = sender.send((name, attempt()));
        };
        if std::thread::Builder::new().spawn(run).is_ok() {
            waiting.insert(subject, span);
        }
    }
    let deadline = Deadline::after(PATIENCE);
    let mut failed = Vec::new();
    while !waiting.is_empty() {
        let Ok((subject, result)) = results.recv_timeout(deadline.left()) else { break };
        if let (Some(span), Err(error)) = (waiting.remove(&subject), result) {
            failed.push(FailedAttempt { subject, span, error: Some(error) });
        }
    }
    let late = waiting.into_iter();
    failed.extend(late.map(|(subject, span)| FailedAttempt { subject, span, error: None }));
    failed
}
