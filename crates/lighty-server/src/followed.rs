//! Files of data that a configuration names, read before it serves requests: lists of addresses,
//! databases of places, keys for tokens. Also finds stores of responses that have a name only.

use std::io;
use std::path::Path;
use std::sync::Arc;

use lighty_config::{Config, Field, Value};
use lighty_core::Settings;
use lighty_io::file::address_list::{self, AddressList};
use lighty_io::file::followed::Followed;
use lighty_io::file::place_db;
use lighty_modules::cache;

/// The lists of a configuration. Their contents are kept as long as this is.
#[derive(Clone, Default)]
pub struct FollowedFiles(#[expect(dead_code, reason = "kept")] Arc<[Arc<Followed<AddressList>>]>);

/// Reads the files that a configuration names. Blocks.
///
/// # Errors
/// All faults, with their directives or conditions.
pub fn read(config: &Config<Settings>) -> Result<FollowedFiles, Vec<String>> {
    let mut faults = Vec::new();
    let mut read = |name: &str, outcome: io::Result<()>| {
        faults.extend(outcome.err().map(|error| format!("{name}: {error}")));
    };
    let lists: Arc<[_]> =
        config.address_lists().into_iter().map(|path| address_list::at(Path::new(path))).collect();
    lists.iter().for_each(|list| read("$HTTP[\"remote-ip\"]", list.read()));
    for path in databases(config) {
        // The settings hold it.
        read(DATABASES, place_db::at(Path::new(path)).read());
    }
    faults.extend(lighty_modules::auth::read_key_files(config));
    if config.uses(&Field::Place(String::new())) && config.global().core.places.is_empty() {
        let text = "conditions on places need a database outside all conditions: maxminddb.db";
        faults.push(format!("$GEOIP: {text}"));
    }
    faults.extend(cache::unknown_stores(config));
    faults.extend(cache::oversized_slices(config));
    if faults.is_empty() { Ok(FollowedFiles(lists)) } else { Err(faults) }
}

const DATABASES: &str = "maxminddb.db";

/// Paths of all databases of places.
fn databases(config: &Config<Settings>) -> Vec<&str> {
    let mut paths = Vec::new();
    for given in config.assigned(DATABASES) {
        match &given.value {
            Value::Array(items) => {
                paths.extend(items.iter().filter_map(|(_, item)| item.value.as_str()));
            }
            other => paths.extend(other.as_str()),
        }
    }
    paths.retain(|path| !path.is_empty());
    paths.sort_unstable();
    paths.dedup();
    paths
}
