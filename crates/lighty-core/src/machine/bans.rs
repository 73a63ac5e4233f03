//! Clients that are refused for a time, by an operator or for wrong credentials. Shared by all
//! workers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};

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

/// A ban of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// Wall-clock second at which it ends.
    pub until_s: i64,
    /// The reason for it.
    pub cause: BanCause,
    /// The part of the client's traffic that it refuses.
    pub extent: BanExtent,
}

/// The reason for a ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BanCause {
    /// An operator's order.
    Operator,
    /// Wrong credentials (`auth.failures`).
    Logins,
}

/// The part of a client's traffic that a ban refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BanExtent {
    /// All connections.
    Connections,
    /// Requests for protected paths: the client shares the connections of a proxy with others.
    Requests,
}

/// The bans.
#[derive(Debug, Default)]
pub struct Bans {
    /// Number of bans: a connection reads it, and nothing else while there is none.
    count: AtomicUsize,
    /// Bans by network.
    rows: RwLock<HashMap<IpAddr, Ban>>,
}

impl Bans {
    /// True if connections of a client are refused.
    #[inline]
    pub fn refuse_connections(&self, ip: IpAddr, now_s: i64) -> bool {
        let is_banned = |ban: Ban| ban.extent == BanExtent::Connections;
        self.count.load(Ordering::Relaxed) > 0 && self.find(ip, now_s).is_some_and(is_banned)
    }

    /// The ban of a client.
    #[cold]
    pub fn find(&self, ip: IpAddr, now_s: i64) -> Option<Ban> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        rows.get(&network(ip)).copied().filter(|ban| ban.until_s > now_s)
    }

    /// Bans a client. A ban for wrong credentials leaves an operator's as it is. Returns false if
    /// there are too many bans.
    pub fn add(&self, ip: IpAddr, ban: Ban, now_s: i64) -> bool {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|_, ban| ban.until_s > now_s);
        let ip = network(ip);
        let known = rows.get(&ip).map(|known| known.cause);
        let has_room = rows.len() < BANS_MAX || known.is_some();
        if has_room && (ban.cause == BanCause::Operator || known != Some(BanCause::Operator)) {
            rows.insert(ip, ban);
        }
        self.count.store(rows.len(), Ordering::Relaxed);
        has_room
    }

    /// Ends a ban. Returns false if there is none.
    pub fn remove(&self, ip: IpAddr) -> bool {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let was_banned = rows.remove(&network(ip)).is_some();
        self.count.store(rows.len(), Ordering::Relaxed);
        was_banned
    }

    /// Returns the bans by network, sorted.
    pub fn list(&self, now_s: i64) -> Vec<(IpAddr, Ban)> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let present = rows.iter().filter(|(_, ban)| ban.until_s > now_s);
        let mut list: Vec<_> = present.map(|(ip, ban)| (*ip, *ban)).collect();
        list.sort_unstable_by_key(|(ip, _)| *ip);
        list
    }

    /// The number of bans of each cause: operators', and for wrong credentials.
    pub fn counts(&self, now_s: i64) -> [u64; 2] {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let present = rows.values().filter(|ban| ban.until_s > now_s);
        present.fold([0, 0], |[operators, logins], ban| match ban.cause {
            BanCause::Operator => [operators + 1, logins],
            BanCause::Logins => [operators, logins + 1],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn until(until_s: i64) -> Ban {
        Ban { until_s, cause: BanCause::Operator, extent: BanExtent::Connections }
    }

    #[test]
    fn ban_covers_an_address_or_a_network_of_ipv6_for_a_time() {
        let bans = Bans::default();
        assert!(!bans.refuse_connections(ip("192.0.2.1"), 0));
        assert!(
            bans.add(ip("192.0.2.1"), until(10), 0) && bans.add(ip("2001:db8::1"), until(10), 0)
        );
        for (client, is_banned) in [
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.2", false),
            ("2001:db8::ffff", true),
            ("2001:db8:0:1::1", false),
        ] {
            assert_eq!(bans.refuse_connections(ip(client), 9), is_banned, "{client}");
            assert!(!bans.refuse_connections(ip(client), 10), "{client}");
        }
        assert_eq!(bans.list(0), [(ip("192.0.2.1"), until(10)), (ip("2001:db8::"), until(10))]);
        assert!(bans.list(10).is_empty());
        assert!(bans.remove(ip("2001:db8::2")) && !bans.remove(ip("2001:db8::2")));
        assert!(!bans.refuse_connections(ip("2001:db8::1"), 0));
    }

    #[test]
    fn number_of_bans_is_limited_and_ended_ones_make_room() {
        let bans = Bans::default();
        let numbered = |number: usize| IpAddr::V4((number as u32).into());
        assert!((0..BANS_MAX).all(|number| bans.add(numbered(number), until(10), 0)));
        assert!(!bans.add(numbered(BANS_MAX), until(10), 0));
        assert!(bans.add(numbered(0), until(20), 0), "longer");
        assert!(bans.add(numbered(BANS_MAX), until(20), 10));
        assert_eq!(bans.list(10).len(), 2);
    }

    #[test]
    fn ban_for_logins_leaves_an_operators_as_it_is() {
        let bans = Bans::default();
        let logins = Ban { cause: BanCause::Logins, extent: BanExtent::Requests, ..until(20) };
        assert!(bans.add(ip("192.0.2.1"), logins, 0) && bans.add(ip("192.0.2.2"), until(10), 0));
        assert!(bans.add(ip("192.0.2.2"), logins, 0));
        assert_eq!(bans.find(ip("192.0.2.1"), 0), Some(logins));
        assert_eq!(bans.find(ip("192.0.2.2"), 0), Some(until(10)));
        assert!(!bans.refuse_connections(ip("192.0.2.1"), 0), "a proxy has others' requests, too");
        assert_eq!(bans.counts(0), [1, 1]);
        assert!(bans.add(ip("192.0.2.1"), until(30), 0));
        assert_eq!((bans.counts(0), bans.counts(10)), ([2, 0], [1, 0]));
    }
}
