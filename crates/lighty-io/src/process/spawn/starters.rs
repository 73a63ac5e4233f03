//! Threads that start processes.
//!
//! They never end: the signal that informs a child of its parent's death is sent when the *thread*
//! that forked it ends (PR_SET_PDEATHSIG(2const)). One is enough as long as starts are quick. A
//! program on a dead disk keeps its thread in `exec`, so a caller that waits for long adds another
//! thread, up to a limit.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::threads::outside;

/// Time for which all threads may be busy before another one begins.
const PATIENCE: Duration = Duration::from_millis(100);

/// Maximum number of threads, and so of programs that hang without delaying others.
const STARTERS_MAX: usize = 16;

/// A job and the channel for its result.
type Order<J, R> = (J, oneshot::Sender<R>);

/// A queue of jobs, and the threads that do them.
pub(super) struct Starters<J, R> {
    orders: mpsc::Sender<Order<J, R>>,
    crew: Arc<Crew<J, R>>,
}

struct Crew<J, R> {
    taken: Mutex<mpsc::Receiver<Order<J, R>>>,
    run: fn(J) -> R,
    threads: AtomicUsize,
    /// Threads that wait for a job, or are about to.
    idle: AtomicUsize,
}

impl<J: Send + 'static, R: Send + 'static> Starters<J, R> {
    /// Creates a queue without threads; the first job starts one. `run` does a job.
    pub(super) fn new(run: fn(J) -> R) -> Self {
        let (orders, taken) = mpsc::channel();
        let (threads, idle) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { orders, crew: Arc::new(Crew { taken: Mutex::new(taken), run, threads, idle }) }
    }

    /// Has a thread do a job. A result whose caller has gone is dropped.
    ///
    /// # Errors
    /// The first thread cannot be started, or a panic of `run`.
    pub(super) async fn run(&self, job: J) -> io::Result<R> {
        let ended = || io::Error::other("the thread that starts processes has ended");
        if self.crew.threads.load(Ordering::SeqCst) == 0 {
            self.add()?;
        }
        let (give, mut take) = oneshot::channel();
        self.orders.send((job, give)).map_err(|_| ended())?;
        loop {
            match tokio::time::timeout(PATIENCE, &mut take).await {
                Ok(result) => return result.map_err(|_| ended()),
                // Without another thread, the caller waits for those that there are.
                Err(_) if self.crew.idle.load(Ordering::SeqCst) == 0 => drop(self.add()),
                Err(_) => {}
            }
        }
    }

    /// Adds a thread, if there are not too many.
    fn add(&self) -> io::Result<()> {
        let crew = Arc::clone(&self.crew);
        let below = |count| (count < STARTERS_MAX).then_some(count + 1);
        if crew.threads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, below).is_err() {
            return Ok(());
        }
        crew.idle.fetch_add(1, Ordering::SeqCst);
        // A program has the restrictions of the thread that starts it.
        outside::start("starter", move || crew.work()).inspect_err(|_| {
            self.crew.idle.fetch_sub(1, Ordering::SeqCst);
            self.crew.threads.fetch_sub(1, Ordering::SeqCst);
        })
    }
}

impl<J, R> Crew<J, R> {
    fn work(&self) {
        loop {
            let order = self.taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
            self.idle.fetch_sub(1, Ordering::SeqCst);
            let Ok((job, give)) = order else { return };
            // A caller that has gone drops the result.
            drop(give.send((self.run)(job)));
            self.idle.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for the end of a channel, if it has one. Returns a number.
    type TestJob = (Option<mpsc::Receiver<()>>, usize);

    fn run((blocked, number): TestJob) -> usize {
        if let Some(blocked) = blocked {
            let _ = blocked.recv();
        }
        number
    }

    #[tokio::test]
    async fn job_that_hangs_delays_no_other() {
        let starters = Starters::new(run);
        let (hold, blocked) = mpsc::channel();
        let hanging = starters.run((Some(blocked), 1));
        let others = async {
            for number in 2..5 {
                assert_eq!(starters.run((None, number)).await.expect("a thread"), number);
            }
            assert_eq!(starters.crew.threads.load(Ordering::SeqCst), 2);
            drop(hold);
        };
        let (hung, ()) = tokio::join!(hanging, others);
        assert_eq!(hung.expect("a thread"), 1);
    }

    #[tokio::test]
    async fn threads_have_a_limit() {
        let starters = Starters::new(run);
        let mut holds = Vec::new();
        let mut hanging = tokio::task::JoinSet::new();
        let starters = Arc::new(starters);
        for number in 0..STARTERS_MAX + 2 {
            let (hold, blocked) = mpsc::channel();
            holds.push(hold);
            let starters = Arc::clone(&starters);
            hanging.spawn(async move { starters.run((Some(blocked), number)).await });
        }
        while starters.crew.threads.load(Ordering::SeqCst) < STARTERS_MAX {
            tokio::time::sleep(PATIENCE).await;
        }
        tokio::time::sleep(PATIENCE * 2).await;
        assert_eq!(starters.crew.threads.load(Ordering::SeqCst), STARTERS_MAX);
        holds.clear();
        let results = hanging.join_all().await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), STARTERS_MAX + 2);
    }
}
