//! How long the server took for something, on a machine that may have other things to do.
//!
//! What is to be bounded is the server's time, not that of a build beside it. The kernel knows how
//! long each thread stood ready without a processor; so much is taken off. On a machine that has
//! processors to spare that is nothing, and where the kernel does not tell, too.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::server::Server;

/// Processor time that this thread has used: what others do beside it adds little.
#[must_use]
pub fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// Runs from its making on.
pub struct Stopwatch {
    begun: Instant,
    server: u32,
    waited_before: Duration,
}

impl Stopwatch {
    /// Begins.
    #[must_use]
    pub fn start(server: &Server) -> Self {
        let server = server.pid();
        // First what takes its time.
        let waited_before = waited(server);
        Self { begun: Instant::now(), server, waited_before }
    }

    /// Time that went by, all of it.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Time that went by, without that for which this test and its server waited for a processor.
    #[must_use]
    pub fn took(&self) -> Duration {
        let elapsed = self.begun.elapsed();
        elapsed.saturating_sub(waited(self.server).saturating_sub(self.waited_before))
    }
}

/// How long the threads of the server, and those of this test, have waited for a processor.
fn waited(server: u32) -> Duration {
    // A thread that is given no name has that of its maker: those of one test are alike.
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
    fn who_waits_for_a_processor_is_known() {
        if waited_of(Path::new("/proc/thread-self")).is_none() {
            return;
        }
        let name = std::fs::read("/proc/thread-self/comm").expect("a name");
        let child = std::thread::spawn(|| std::fs::read("/proc/thread-self/comm"));
        assert_eq!(child.join().expect("it ends").expect("a name"), name);
        // More threads than processors that all want one: some of them wait. There is no process 0,
        // so only this test's own are counted.
        let threads = 2 + std::thread::available_parallelism().map_or(1, usize::from);
        let (before, told) = (waited(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !told.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let waits = wait_until(Duration::from_secs(60), || waited(0) > before);
            told.store(true, Ordering::Relaxed);
            assert!(waits);
        });
    }
}
