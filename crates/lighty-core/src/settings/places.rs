//! Databases of places for conditions and variables (`maxminddb.db`).

use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use lighty_io::file::followed::Followed;
use lighty_io::file::place_db::{self, PlaceDb};

use crate::machine::known_places::KnownPlaces;

/// Databases, in the order in which they are asked.
#[derive(Clone, Default)]
pub struct Places(Arc<[Arc<Followed<PlaceDb>>]>);

impl Places {
    /// The databases at these paths, which are read before requests are served.
    pub fn at<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        Self(paths.map(|path| place_db::at(Path::new(path))).collect())
    }

    /// The value of the first database that has one for the address. Values are looked up once for
    /// each address, unless a database is read again.
    pub fn find(&self, known: &KnownPlaces, address: IpAddr, path: &str) -> Option<Rc<str>> {
        self.0.iter().find_map(|file| {
            // Before the contents: newer contents under the former version are looked up again.
            let version = file.version();
            known.find(version, address, path, || file.contents()?.find(address, path))
        })
    }

    /// True if there is no database.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|file| file.path())).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use lighty_testkit::place_db::{PlaceValue, map, place_db};

    use super::*;

    #[test]
    fn database_that_is_read_again_has_other_values_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.mmdb");
        let places = Places::at([path.to_str().expect("text")].into_iter());
        let (known, address) = (KnownPlaces::default(), IpAddr::from([192, 0, 2, 1]));
        assert_eq!(places.find(&known, address, "name"), None, "it is not read yet");
        for name in ["one", "two"] {
            let values = map([("name", PlaceValue::Text(name))]);
            std::fs::write(&path, place_db(&[("192.0.2.0/24", values)])).expect("written");
            places.0[0].read().expect("a database");
            assert_eq!(places.find(&known, address, "name").as_deref(), Some(name));
            assert_eq!(places.find(&known, address, "name").as_deref(), Some(name));
        }
    }

    #[test]
    #[ignore = "measures"]
    fn cost_of_a_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.mmdb");
        let network = |at: u32| format!("10.{}.{}.0/24", at / 256, at % 256);
        let networks: Vec<_> = (0..20_000).map(network).collect();
        let value = || map([("country", map([("iso_code", PlaceValue::Text("DE"))]))]);
        let listed: Vec<_> = networks.iter().map(|network| (&**network, value())).collect();
        std::fs::write(&path, place_db(&listed)).expect("written");
        let places = Places::at([path.to_str().expect("text")].into_iter());
        places.0[0].read().expect("a database");
        let took_ns = |known: &dyn Fn() -> KnownPlaces, addresses: u32| {
            let (rounds, mut cache) = (200_000, known());
            let began = std::time::Instant::now();
            for at in 0..rounds {
                if at % addresses == 0 {
                    cache = if addresses > 1 { known() } else { cache };
                }
                let at = at % addresses * 7919 % 20_000;
                let address = Ipv4Addr::from_bits(10 << 24 | at << 8 | 1).into();
                assert!(places.find(&cache, address, "country/iso_code").is_some());
            }
            began.elapsed().as_nanos() as f64 / f64::from(rounds)
        };
        println!("known {:.0} ns", took_ns(&KnownPlaces::default, 1));
        println!("looked up {:.0} ns", took_ns(&KnownPlaces::default, 20_000));
    }
}
