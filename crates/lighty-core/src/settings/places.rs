//! Databases of places for conditions and variables (`maxminddb.db`).

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use lighty_io::file::followed::Followed;
use lighty_io::file::place_db::{self, PlaceDb};

/// Databases, in the order in which they are asked.
#[derive(Clone, Default)]
pub struct Places(Arc<[Arc<Followed<PlaceDb>>]>);

impl Places {
    /// The databases at these paths, which are read before requests are served.
    pub fn at<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        Self(paths.map(|path| place_db::at(Path::new(path))).collect())
    }

    /// The value of the first database that has one for the address.
    pub fn find(&self, address: IpAddr, path: &str) -> Option<String> {
        self.0.iter().find_map(|file| file.contents()?.find(address, path))
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
