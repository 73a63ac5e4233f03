//! The dictionaries of `lighty.shared`, which live as long as the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use lighty_lua::shared::Dictionary;

/// Dictionaries by name, shared by all workers and configurations.
#[derive(Clone, Default)]
pub struct Dictionaries(Arc<Mutex<BTreeMap<Box<str>, Arc<Dictionary>>>>);

impl Dictionaries {
    /// Returns the dictionary of this name, resized to `kbytes`, or creates it.
    pub(super) fn get(&self, name: &str, kbytes: u64) -> Arc<Dictionary> {
        let bytes = usize::try_from(kbytes.saturating_mul(1024)).unwrap_or(usize::MAX);
        // A panic leaves no dictionary half changed.
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = all.get(name) {
            known.resize(bytes);
            return Arc::clone(known);
        }
        let own = Arc::new(Dictionary::new(bytes));
        all.insert(name.into(), Arc::clone(&own));
        own
    }
}
