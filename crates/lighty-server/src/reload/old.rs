//! Earlier configurations, until nothing uses them any more.

use std::sync::Arc;

use lighty_config::Config;
use lighty_core::Settings;
use lighty_io::clock::Clock;
use lighty_io::process::memory;
use lighty_io::threads;

/// An earlier configuration that requests under way may still use.
pub(crate) struct OldGeneration {
    pub(crate) number: u64,
    config: Arc<Config<Settings>>,
    /// Wall-clock second in which another one took its place.
    replaced_s: i64,
}

/// The earlier configurations, the oldest first.
#[derive(Default)]
pub(crate) struct OldGenerations(Vec<OldGeneration>);

impl OldGeneration {
    /// Seconds since another configuration took its place.
    pub(crate) fn age_s(&self) -> i64 {
        Clock::start().unix_s() - self.replaced_s
    }
}

impl OldGenerations {
    pub(super) fn add(&mut self, number: u64, config: Arc<Config<Settings>>) {
        let replaced_s = Clock::start().unix_s();
        self.0.push(OldGeneration { number, config, replaced_s });
    }

    /// Drops those that nothing uses.
    pub(super) fn forget(&mut self) {
        let is_unused = |old: &mut OldGeneration| Arc::strong_count(&old.config) == 1;
        let over: Vec<_> = self.0.extract_if(.., is_unused).map(|old| old.config).collect();
        if !over.is_empty() {
            free(over);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OldGeneration> {
        self.0.iter()
    }
}

/// Drops something large on a thread of its own, because that takes time. Memory of this thread is
/// freed now, and that of event loops within a second: a configuration may be hundreds of
/// megabytes, which the next reload needs for the next one.
pub(super) fn free<T: Send + 'static>(large: T) {
    let body = move || {
        drop(large);
        memory::note_freed();
        memory::give_back();
    };
    // Without a thread, it is dropped here.
    let _ = threads::start("free memory", None, body);
}
