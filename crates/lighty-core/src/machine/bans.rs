//! Clients whose connections an operator refuses for a time. Shared by all workers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

/// Maximum number of bans at a time.
pub const BANS_MAX: usize = 10_000;

/// Bits of an IPv6 address that name a client: it may choose the others (RFC 4291 section 2.5.4).
const IPV6_BITS: u32 = 64;

/// The network that a ban of an address covers: the address, or the /64 network of an IPv6 address.
pub fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let mask = u128::MAX << (128 - IPV6_BITS);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
        ip => ip,
    }
}

/// The bans.
#[derive(Debug, Default)]
pub struct Bans {
    /// Number of bans: a connection reads it, and nothing else while there is none.
    count: AtomicUsize,
    /// Networks, and the wall-clock seconds at which their bans end.
    until_s: RwLock<HashMap<IpAddr, i64>>,
}

impl Bans {
    /// True if a client is banned.
    #[inline]
    pub fn has(&self, ip: IpAddr, now_s: i64) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.look_up(ip, now_s)
    }

    #[cold]
    fn look_up(&self, ip: IpAddr, now_s: i64) -> bool {
        let bans = self.until_s.read().unwrap_or_else(PoisonError::into_inner);
        bans.get(&network(ip)).is_some_and(|until_s| *until_s > now_s)
    }

    /// Bans a client. Returns false if there are too many bans.
    pub fn add(&self, ip: IpAddr, until_s: i64, now_s: i64) -> bool {
        let mut bans = self.until_s.write().unwrap_or_else(PoisonError::into_inner);
        bans.retain(|_, until_s| *until_s > now_s);
        let has_room = bans.len() < BANS_MAX || bans.contains_key(&network(ip));
        if has_room {
            bans.insert(network(ip), until_s);
        }
        self.count.store(bans.len(), Ordering::Relaxed);
        has_room
    }

    /// Ends a ban. Returns false if there is none.
    pub fn remove(&self, ip: IpAddr) -> bool {
        let mut bans = self.until_s.write().unwrap_or_else(PoisonError::into_inner);
        let was_banned = bans.remove(&network(ip)).is_some();
        self.count.store(bans.len(), Ordering::Relaxed);
        was_banned
    }

    /// Returns the banned networks and the seconds at which the bans end, sorted.
    pub fn list(&self, now_s: i64) -> Vec<(IpAddr, i64)> {
        let bans = self.until_s.read().unwrap_or_else(PoisonError::into_inner);
        let present = bans.iter().filter(|(_, until_s)| **until_s > now_s);
        let mut list: Vec<_> = present.map(|(ip, until_s)| (*ip, *until_s)).collect();
        list.sort_unstable();
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn ban_covers_an_address_or_a_network_of_ipv6_for_a_time() {
        let bans = Bans::default();
        assert!(!bans.has(ip("192.0.2.1"), 0));
        assert!(bans.add(ip("192.0.2.1"), 10, 0) && bans.add(ip("2001:db8::1"), 10, 0));
        for (client, is_banned) in [
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.2", false),
            ("2001:db8::ffff", true),
            ("2001:db8:0:1::1", false),
        ] {
            assert_eq!(bans.has(ip(client), 9), is_banned, "{client}");
            assert!(!bans.has(ip(client), 10), "{client}");
        }
        assert_eq!(bans.list(0), [(ip("192.0.2.1"), 10), (ip("2001:db8::"), 10)]);
        assert!(bans.list(10).is_empty());
        assert!(bans.remove(ip("2001:db8::2")) && !bans.remove(ip("2001:db8::2")));
        assert!(!bans.has(ip("2001:db8::1"), 0));
    }

    #[test]
    fn number_of_bans_is_limited_and_ended_ones_make_room() {
        let bans = Bans::default();
        let numbered = |number: usize| IpAddr::V4((number as u32).into());
        assert!((0..BANS_MAX).all(|number| bans.add(numbered(number), 10, 0)));
        assert!(!bans.add(numbered(BANS_MAX), 10, 0));
        assert!(bans.add(numbered(0), 20, 0), "longer");
        assert!(bans.add(numbered(BANS_MAX), 20, 10));
        assert_eq!(bans.list(10).len(), 2);
    }
}
