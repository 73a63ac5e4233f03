//! Measures the server's time for an operation, on a machine that may be busy.
//!
//! Limits apply to the server's time, not to that of a build running beside it. The kernel records
//! the time for which each thread was ready without a processor; this is subtracted. It is zero on
//! an idle machine, and where the kernel does not provide it.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::server::Server;

/// Processor time used by this thread, which hardly depends on other processes.
#[must_use]
pub fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// A stopwatch that runs from its creation.
pub struct Stopwatch {
    begun: Instant,
    server: u32,
    waited_before: Duration,
}

impl Stopwatch {
    /// Starts a stopwatch.
    #[must_use]
    pub fn start(server: &Server) -> Self {
        let server = server.pid();
        // The slow call comes first.
        let waited_before = waited(server);
        Self { begun: Instant::now(), server, waited_before }
    }

    /// Elapsed time.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Elapsed time, without the time for which this test and its server waited for a processor.
    #[must_use]
    pub fn took(&self) -> Duration {
        let elapsed = self.begun.elapsed();
        elapsed.saturating_sub(waited(self.server).saturating_sub(self.waited_before))
    }
}

/// Time for which the threads of the server and of this test have waited for a processor.
fn waited(server: u32) -> Duration {
    // A thread without a name of its own inherits its creator's, so the threads of one test have
    // the same name.
    let mine = std::fs::read("/proc/thread-self/comm").unwrap_or_default();
    let of_this_test =
        |task: &Path| std::fs::read(task.join("comm")).is_ok_and(|name| name == mine);
    sum("self", of_this_test) + sum(&server.to_string(), |_| true)
}

fn sum(process: &str, counts: impl Fn(&Path) -> bool) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let tasks = tasks.into_iter().flatten().flatten().map(|entry| entry.path());
    tasks.filter(|task| counts(task)).filter_map(|task| waited_of(&task)).sum()
}

/// The second number of `schedstat`: nanoseconds on the run queue.
fn waited_of(task: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
    Some(Duration::from_nanos(text.split(' ').nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::wait_until;

    #[test]
    fn wait_for_a_processor_is_measured() {
        if waited_of(Path::new("/proc/thread-self")).is_none() {
            return;
        }
        let name = std::fs::read("/proc/thread-self/comm").expect("a name");
        let child = std::thread::spawn(|| std::fs::read("/proc/thread-self/comm"));
        assert_eq!(child.join().expect("it ends").expect("a name"), name);
        // More busy threads than processors, so that some wait. There is no process 0, so only this
        // test's threads are counted.
        let threads = 2 + std::thread::available_parallelism().map_or(1, usize::from);
        let (before, is_done) = (waited(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let waits = wait_until(Duration::from_secs(60), || waited(0) > before);
            is_done.store(true, Ordering::Relaxed);
            assert!(waits);
        });
    }
}
