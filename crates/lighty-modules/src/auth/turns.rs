//! Fair queueing of password hashes.
//!
//! A hash takes a quarter of a second, so in a single queue one guessing client would delay all
//! others. Instead, each client has its own queue, served round robin. Hashes run in a separate
//! lane of the thread pool.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_io::threads::pool::{Lane, ThreadPool};
use tokio::sync::oneshot;

use super::client_queues::{ClientQueues, QueueClient, network};

type Job = Box<dyn FnOnce() + Send>;

/// All queues.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<ClientQueues<Job>>>);

/// A job's place in a queue. Dropping it removes the job.
struct QueuedJob {
    turns: Turns,
    client: QueueClient,
    id: u64,
}

impl Turns {
    /// Runs a job when its client's turn comes. `None` if `most` are waiting and no client has at
    /// least two places more than this one, if the job was evicted for another client, or if no
    /// thread is available.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        most: usize,
        client: Option<IpAddr>,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (give, take) = oneshot::channel();
        let job = Box::new(move || {
            let _ = give.send(job());
        });
        let place = self.enter(most, client.map(network), job)?;
        let turns = self.clone();
        // Each job submits a task, so that no job is left in the queues.
        ThreadPool::global().spawn(Lane::Hash, move || turns.work()).ok()?;
        let done = take.await.ok();
        drop(place);
        done
    }

    fn enter(&self, most: usize, client: QueueClient, job: Job) -> Option<QueuedJob> {
        let id = self.lock().enter(most, client, job)?;
        Some(QueuedJob { turns: self.clone(), client, id })
    }

    fn work(&self) {
        let job = self.lock().take_next();
        if let Some(job) = job {
            job();
        }
    }

    // The guarded state is consistent between any two statements.
    fn lock(&self) -> MutexGuard<'_, ClientQueues<Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QueuedJob {
    fn drop(&mut self) {
        self.turns.lock().forget(self.client, self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    fn address(last: u8) -> QueueClient {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// Test bed for the queues. Each job sends its name when it starts.
    struct Bed {
        turns: Turns,
        tell: Sender<&'static str>,
        events: Receiver<&'static str>,
    }

    impl Bed {
        fn new() -> Self {
            let (tell, events) = channel();
            Self { turns: Turns::default(), tell, events }
        }

        fn enter(&self, most: usize, client: QueueClient, name: &'static str) -> Option<QueuedJob> {
            let tell = self.tell.clone();
            self.turns.enter(most, client, Box::new(move || tell.send(name).expect("heard")))
        }

        fn all(&self) -> Vec<&'static str> {
            for _ in 0..10 {
                self.turns.work();
            }
            self.events.try_iter().collect()
        }
    }

    #[test]
    fn clients_take_turns() {
        let bed = Bed::new();
        let places = [("a1", 1), ("a2", 1), ("a3", 1), ("b1", 2), ("b2", 2)]
            .map(|(name, client)| bed.enter(9, address(client), name).expect("room"));
        assert_eq!(bed.all(), ["a1", "b1", "a2", "b2", "a3"]);
        drop(places);
        assert!(bed.turns.lock().is_empty());
    }

    #[test]
    fn client_that_gives_up_leaves_no_job_behind() {
        let bed = Bed::new();
        let first = bed.enter(2, address(1), "first");
        let second = bed.enter(2, address(1), "second");
        drop(first);
        let third = bed.enter(2, address(2), "third");
        assert!(third.is_some(), "the place is free");
        drop(third);
        assert_eq!(bed.all(), ["second"]);
        drop(second);
        assert!(bed.turns.lock().is_empty());
    }

    #[test]
    fn so_many_wait_and_the_longest_queue_makes_room() {
        let bed = Bed::new();
        let held = ["a1", "a2", "a3"].map(|name| bed.enter(3, address(1), name).expect("room"));
        assert!(bed.enter(3, address(1), "a4").is_none(), "nobody has more");
        let other = bed.enter(3, address(2), "b1");
        assert!(other.is_some());
        assert!(bed.enter(3, address(2), "b2").is_none(), "as many as the other");
        assert_eq!(bed.all(), ["a1", "b1", "a2"], "the last one was turned away");
        drop(held);
    }

    #[tokio::test]
    async fn job_returns_its_result_or_none_after_a_panic() {
        let turns = Turns::default();
        assert_eq!(turns.run(1, None, || 7).await, Some(7));
        assert_eq!(turns.run(1, None, || -> u8 { panic!("as the test wants it") }).await, None);
        assert_eq!(turns.run(1, None, || 8).await, Some(8));
        assert_eq!(turns.run(0, None, || 9).await, None);
    }
}
