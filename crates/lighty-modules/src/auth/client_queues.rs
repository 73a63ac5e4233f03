//! Queues of clients that take turns, so that one client delays no other.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// A client: an address, or for IPv6 its /64 network.
pub(super) type QueueClient = Option<IpAddr>;

/// A queue for each client, served round robin.
pub(super) struct ClientQueues<J> {
    queues: HashMap<QueueClient, VecDeque<(u64, J)>, foldhash::fast::RandomState>,
    /// Clients with a queue, next one first.
    order: VecDeque<QueueClient>,
    count: usize,
    next_id: u64,
}

impl<J> Default for ClientQueues<J> {
    fn default() -> Self {
        Self { queues: HashMap::default(), order: VecDeque::new(), count: 0, next_id: 0 }
    }
}

impl<J> ClientQueues<J> {
    /// Appends a job to its client's queue; returns its number. `None` if `most` are waiting and no
    /// client has at least two places more than this one.
    pub(super) fn enter(&mut self, most: usize, client: QueueClient, job: J) -> Option<u64> {
        if self.count >= most && !self.make_room(client) {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.count += 1;
        let queue = self.queues.entry(client).or_default();
        queue.push_back((id, job));
        if queue.len() == 1 {
            self.order.push_back(client);
        }
        #[cfg(debug_assertions)]
        self.check();
        Some(id)
    }

    /// Removes the next job.
    pub(super) fn take_next(&mut self) -> Option<J> {
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

    /// Removes a job that has not been taken.
    pub(super) fn forget(&mut self, client: QueueClient, id: u64) {
        let Some(queue) = self.queues.get_mut(&client) else { return };
        let Some(at) = queue.iter().position(|(other, _)| *other == id) else { return };
        queue.remove(at);
        self.count -= 1;
        if queue.is_empty() {
            self.queues.remove(&client);
            self.order.retain(|other| *other != client);
        }
    }

    /// True if no job waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        assert!(self.count > 0 || self.queues.is_empty() && self.order.is_empty());
        self.count == 0
    }

    /// Checks the counts of a debug build.
    #[cfg(debug_assertions)]
    fn check(&self) {
        debug_assert_eq!(self.order.len(), self.queues.len(), "each client has one queue");
        debug_assert!(self.count >= self.order.len(), "{} {}", self.count, self.order.len());
    }

    /// Evicts the last job of the longest queue for a client with at least two places fewer.
    fn make_room(&mut self, client: QueueClient) -> bool {
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
}

/// The client that an address belongs to.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
