//! A thread that owns blocking state, such as a database. Callers queue jobs and wait without
//! blocking an event loop.
//!
//! Jobs run in sequence, so each sees the effects of the previous ones. All workers share the
//! handles; the thread ends with the last one.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::sync::oneshot;

use crate::threads;

/// Maximum queued jobs; each belongs to a request.
pub const JOBS_MAX: usize = 1024;

/// Stack size of the thread in bytes: databases compile statements on it.
const STACK_BYTES: usize = 1024 * 1024;

type ActorJob<S> = Box<dyn FnOnce(&mut io::Result<S>) + Send>;

/// A handle to the thread. Clones share it.
pub struct BlockingActor<S> {
    jobs: SyncSender<ActorJob<S>>,
}

impl<S> Clone for BlockingActor<S> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone() }
    }
}

impl<S: 'static> BlockingActor<S> {
    /// Starts a thread. `make` creates its state there for the first job, and again for later jobs
    /// after a failure or a panic.
    ///
    /// # Errors
    /// If no thread can be created.
    pub fn start(
        name: &str,
        make: impl FnMut() -> io::Result<S> + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, inbox) = sync_channel(JOBS_MAX);
        threads::start(name, Some(STACK_BYTES), move || work(&inbox, make))?;
        Ok(Self { jobs })
    }

    /// Runs a job and returns its result.
    ///
    /// # Errors
    /// `WouldBlock` if [`JOBS_MAX`] jobs are queued; the error of creating the state; `Other` if
    /// the job panicked.
    pub fn run<T, F>(&self, job: F) -> impl Future<Output = io::Result<T>> + use<T, F, S>
    where
        T: Send + 'static,
        F: FnOnce(&mut S) -> T + Send + 'static,
    {
        let (give, take) = oneshot::channel();
        let left = self.jobs.try_send(Box::new(move |kept| {
            let done = match kept {
                Ok(kept) => Ok(job(kept)),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            // The receiver may be gone.
            let _ = give.send(done);
        }));
        async move {
            left.map_err(|_| io::Error::new(io::ErrorKind::WouldBlock, "too many jobs wait"))?;
            take.await.map_err(|_| io::Error::other("the job panicked"))?
        }
    }
}

fn work<S>(inbox: &Receiver<ActorJob<S>>, mut make: impl FnMut() -> io::Result<S>) {
    let mut kept = None;
    while let Ok(job) = inbox.recv() {
        let mut state = match kept.take() {
            Some(state) => Ok(state),
            None => make(),
        };
        let ended = catch_unwind(AssertUnwindSafe(|| job(&mut state)));
        // After a panic the state may be inconsistent.
        kept = state.ok().filter(|_| ended.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn jobs_run_in_order_on_what_is_kept() {
        let actor = BlockingActor::start("actor", || Ok(Vec::new())).expect("a thread");
        let one = actor.run(|list: &mut Vec<u32>| list.push(1));
        let two = actor.clone().run(|list| {
            list.push(2);
            list.clone()
        });
        assert_eq!(two.await.expect("done"), [1, 2]);
        one.await.expect("done");
    }

    #[tokio::test]
    async fn state_is_made_again_after_a_failure_or_a_panic() {
        let mut tries = 0;
        let actor = BlockingActor::start("actor", move || {
            tries += 1;
            if tries == 1 { Err(io::Error::other("not yet")) } else { Ok(tries) }
        });
        let actor = actor.expect("a thread");
        let failed = actor.run(|kept: &mut u32| *kept).await;
        assert_eq!(failed.expect_err("not yet").to_string(), "not yet");
        assert_eq!(actor.run(|kept| *kept).await.expect("made"), 2);
        let lost = actor.run(|_| panic!("as the test wants it")).await;
        assert_eq!(lost.expect_err("lost").to_string(), "the job panicked");
        assert_eq!(actor.run(|kept| *kept).await.expect("made again"), 3);
    }

    #[tokio::test]
    async fn the_queue_has_a_limit() {
        let actor = BlockingActor::start("actor", || Ok(0_usize)).expect("a thread");
        let (begun, begins) = channel();
        let (release, stuck) = channel::<()>();
        let first = actor.run(move |_| {
            let _ = begun.send(());
            let _ = stuck.recv();
        });
        begins.recv().expect("it runs");
        let waiting: Vec<_> = (0..JOBS_MAX).map(|_| actor.run(|count| *count += 1)).collect();
        let refused = actor.run(|count| *count).await.expect_err("one too many");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(release);
        first.await.expect("done");
        for job in waiting {
            job.await.expect("done");
        }
        assert_eq!(actor.run(|count| *count).await.expect("room again"), JOBS_MAX);
    }
}
