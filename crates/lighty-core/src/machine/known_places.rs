//! Values of places that a worker has looked up: a look-up walks a tree in cold memory, and the
//! requests of a connection need the same values.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use foldhash::fast::RandomState;

/// Maximum number of addresses whose values a worker keeps, per database.
pub const ADDRESSES_MAX: usize = 1024;

/// Values by path. A configuration names few paths.
type PlaceValues = Vec<(Box<str>, Option<Rc<str>>)>;

/// Values by the version of a database and the client's address.
type ValuesByAddress = HashMap<(u64, IpAddr), PlaceValues, RandomState>;

/// The values of recent addresses.
#[derive(Default)]
pub struct KnownPlaces(RefCell<RecentAddresses>);

/// Addresses that were used lately move to the newer half. When it is full, the older one goes.
#[derive(Default)]
struct RecentAddresses {
    newer: ValuesByAddress,
    older: ValuesByAddress,
}

impl KnownPlaces {
    /// The value at a path in this version of a database, looked up if it is not known.
    pub fn find(
        &self,
        version: u64,
        address: IpAddr,
        path: &str,
        look_up: impl FnOnce() -> Option<String>,
    ) -> Option<Rc<str>> {
        let mut recent = self.0.borrow_mut();
        let values = recent.values(version, address);
        if let Some((_, value)) = values.iter().find(|(known, _)| **known == *path) {
            return value.clone();
        }
        let value: Option<Rc<str>> = look_up().map(Rc::from);
        values.push((path.into(), value.clone()));
        value
    }
}

impl RecentAddresses {
    fn values(&mut self, version: u64, address: IpAddr) -> &mut PlaceValues {
        let key = (version, address);
        if !self.newer.contains_key(&key) {
            if self.newer.len() >= ADDRESSES_MAX / 2 {
                self.older = std::mem::take(&mut self.newer);
            }
            let values = self.older.remove(&key).unwrap_or_default();
            self.newer.insert(key, values);
        }
        self.newer.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: usize) -> IpAddr {
        Ipv4Addr::from_bits(u32::try_from(number).expect("a small number")).into()
    }

    #[test]
    fn values_are_looked_up_once_for_address_path_and_version() {
        let (known, count) = (KnownPlaces::default(), Cell::new(0));
        let find = |version, number, path: &str| {
            let value = known.find(version, address(number), path, || {
                count.set(count.get() + 1);
                (path != "none").then(|| format!("{version} {number} {path}"))
            });
            (value.as_deref().map(str::to_owned), count.get())
        };
        assert_eq!(find(1, 1, "a"), (Some("1 1 a".to_owned()), 1));
        assert_eq!(find(1, 1, "a"), (Some("1 1 a".to_owned()), 1));
        assert_eq!(find(1, 1, "none"), (None, 2));
        assert_eq!(find(1, 1, "none"), (None, 2), "an unknown value is kept, too");
        assert_eq!(find(1, 2, "a"), (Some("1 2 a".to_owned()), 3));
        assert_eq!(find(2, 1, "a"), (Some("2 1 a".to_owned()), 4), "another database");
        assert_eq!(find(1, 1, "a"), (Some("1 1 a".to_owned()), 4));
    }

    #[test]
    fn number_of_addresses_has_a_limit() {
        let (known, count) = (KnownPlaces::default(), Cell::new(0));
        let find = |number| {
            known.find(1, address(number), "a", || {
                count.set(count.get() + 1);
                None
            })
        };
        let held = || {
            let recent = known.0.borrow();
            recent.newer.len() + recent.older.len()
        };
        (0..ADDRESSES_MAX).for_each(|number| drop(find(number)));
        assert_eq!((held(), count.get()), (ADDRESSES_MAX, ADDRESSES_MAX));
        find(ADDRESSES_MAX - 1);
        assert_eq!(count.get(), ADDRESSES_MAX, "a recent one stays");
        find(ADDRESSES_MAX);
        assert!(held() <= ADDRESSES_MAX && count.get() == ADDRESSES_MAX + 1);
        find(0);
        assert_eq!(count.get(), ADDRESSES_MAX + 2, "the oldest ones have gone");
    }
}
