//! Databases of places and networks in MaxMind's format (`.mmdb`).

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use maxminddb::{PathElement, Reader};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::followed::{Followed, FollowedContents};

/// Maximum length of a database, in bytes.
pub const DATABASE_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of keys in a path.
const KEYS_MAX: usize = 16;

/// A database, held in memory: a mapped file that somebody truncates would kill the process.
pub struct PlaceDb(Reader<Vec<u8>>);

/// The file with this path, which is not read yet.
pub fn at(path: &Path) -> Arc<Followed<PlaceDb>> {
    Followed::at(path, DATABASE_BYTES_MAX, PlaceDb::parse)
}

impl PlaceDb {
    /// Parses and verifies a database.
    ///
    /// # Errors
    /// `InvalidData`: it is malformed.
    pub fn parse(bytes: Vec<u8>) -> io::Result<Self> {
        let malformed = |error| {
            let text = format!("not a database in MaxMind's format: {error}");
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let reader = Reader::from_source(bytes).map_err(malformed)?;
        reader.verify().map_err(malformed)?;
        Ok(Self(reader))
    }

    /// The value at a path of keys between slashes, such as `country/iso_code`; numbers are places
    /// in arrays. Texts are returned as they are, truth values as `1` and `0`, numbers in decimal
    /// form with five digits behind the point, 128-bit numbers in hexadecimal form. `None`: the
    /// database knows nothing of it, or the value is a map or an array.
    pub fn find(&self, address: IpAddr, path: &str) -> Option<String> {
        let mut elements = [const { PathElement::Index(0) }; KEYS_MAX];
        let mut count = 0;
        for key in path.split('/') {
            *elements.get_mut(count)? = match key.parse() {
                Ok(index) => PathElement::Index(index),
                Err(_) => PathElement::Key(key),
            };
            count += 1;
        }
        let found = self.0.lookup(address.to_canonical()).ok()?;
        // An error: a key where the database has no map.
        let value: PlaceValue = found.decode_path(elements.get(..count)?).ok()??;
        value.0
    }
}

impl FollowedContents for PlaceDb {
    const KIND: &'static str = "places";

    /// Nodes of the search tree.
    fn entries(&self) -> u64 {
        self.0.metadata().node_count.into()
    }
}

impl fmt::Debug for PlaceDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PlaceDb").field(&self.0.metadata().database_type).finish()
    }
}

/// A value as text.
struct PlaceValue(Option<String>);

impl<'de> Deserialize<'de> for PlaceValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AsText).map(Self)
    }
}

struct AsText;

impl<'de> Visitor<'de> for AsText {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_bool<E>(self, is_true: bool) -> Result<Self::Value, E> {
        Ok(Some(if is_true { "1" } else { "0" }.to_owned()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Self::Value, E> {
        Ok(Some(format!("0x{number:032X}")))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Some(format!("{number:.5}")))
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}
