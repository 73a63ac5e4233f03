//! Fair queueing of password hashes.
//!
//! A hash takes a quarter of a second, so in a single queue one guessing client would delay all
//! others. Instead, each client has its own queue, served round robin. Hashes run in a separate
//! lane of the thread pool.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_io::threads::pool::{Lane, ThreadPool};
use tokio::sync::oneshot;

/// A client: an address, or for IPv6 its /64 network.
type Client = Option<IpAddr>;

type Job = Box<dyn FnOnce() + Send>;

/// All queues.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    queues: HashMap<Client, VecDeque<(u64, Job)>, foldhash::fast::RandomState>,
    /// Clients with a queue, next one first.
    order: VecDeque<Client>,
    count: usize,
    next_id: u64,
}

/// A job's place in a queue. Dropping it removes the job.
struct QueuedJob {
    turns: Turns,
    client: Client,
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

    fn enter(&self, most: usize, client: Client, job: Job) -> Option<QueuedJob> {
        let mut waiting = self.lock();
        if waiting.count >= most && !waiting.make_room(client) {
            return None;
        }
        let id = waiting.next_id;
        waiting.next_id += 1;
        waiting.count += 1;
        let queue = waiting.queues.entry(client).or_default();
        queue.push_back((id, job));
        if queue.len() == 1 {
            waiting.order.push_back(client);
        }
        #[cfg(debug_assertions)]
        waiting.check();
        Some(QueuedJob { turns: self.clone(), client, id })
    }

    fn work(&self) {
        let job = self.lock().take_next();
        if let Some(job) = job {
            job();
        }
    }

    // The guarded state is consistent between any two statements.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn take_next(&mut self) -> Option<Job> {
        let client = self.order.pop_front()?;
        let queue = self.queues.get_mut(&client)?;
        let (_, job) = queue.pop_front()?;
        self.count -= 1;
        if queue.is_empty() {
            self.queues.remove(&client);
        } else {
            self.order.push_back(client);
        }
        #[cfg(debug_assertions)]
        self.check();
        Some(job)
    }

    /// Checks the counts of a debug build.
    #[cfg(debug_assertions)]
    fn check(&self) {
        debug_assert_eq!(self.order.len(), self.queues.len(), "each client has one queue");
        debug_assert!(self.count >= self.order.len(), "{} {}", self.count, self.order.len());
    }

    /// Evicts the last job of the longest queue for a client with at least two places fewer.
    fn make_room(&mut self, client: Client) -> bool {
        let own = self.queues.get(&client).map_or(0, VecDeque::len);
        let Some(longest) = self.queues.values_mut().max_by_key(|queue| queue.len()) else {
            return false;
        };
        if longest.len() <= own + 1 {
            return false;
        }
        longest.pop_back();
        self.count -= 1;
        true
    }

    fn forget(&mut self, client: Client, id: u64) {
        let Some(queue) = self.queues.get_mut(&client) else { return };
        let Some(at) = queue.iter().position(|(other, _)| *other == id) else { return };
        queue.remove(at);
        self.count -= 1;
        if queue.is_empty() {
            self.queues.remove(&client);
            self.order.retain(|other| *other != client);
        }
    }
}

impl Drop for QueuedJob {
    fn drop(&mut self) {
        self.turns.lock().forget(self.client, self.id);
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    fn address(last: u8) -> Client {
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

        fn enter(&self, most: usize, client: Client, name: &'static str) -> Option<QueuedJob> {
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
        assert_eq!(bed.turns.lock().count, 0);
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
        let waiting = bed.turns.lock();
        assert!(waiting.count == 0 && waiting.queues.is_empty() && waiting.order.is_empty());
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

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
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
