//! Figures of the configuration and its certificates, for the status page.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lighty_core::machine::status_board::{Statistics, StatusBoard};
use lighty_io::clock::Clock;
use lighty_io::tls::Materials;

/// The active configuration, and the attempts to replace it.
#[derive(Default)]
pub(crate) struct ConfigFigures {
    generation: AtomicU64,
    /// The last reload was refused.
    is_refused: AtomicBool,
    /// Wall-clock second of the last reload, or of the start before the first one.
    last_s: AtomicI64,
    /// Wall-clock second when the active configuration took effect.
    adopted_s: AtomicI64,
    refusals: AtomicU64,
    /// Earlier configurations that requests under way use.
    old_generations: AtomicUsize,
    materials: Mutex<Arc<Materials>>,
}

/// Reloads since the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReloadHistory {
    pub(crate) succeeded: u64,
    pub(crate) refused: u64,
    pub(crate) has_last_succeeded: bool,
    /// Wall-clock second of the last reload, whatever its outcome; `None` before the first one.
    pub(crate) last_s: Option<i64>,
    /// Wall-clock second when the active configuration took effect, by a reload or the start.
    pub(crate) adopted_s: i64,
}

impl ConfigFigures {
    /// Adds the figures of the first configuration to the board.
    pub(crate) fn begin(board: &StatusBoard, materials: &Arc<Materials>) -> Arc<Self> {
        let figures = Arc::new(Self::default());
        figures.adopt(0, materials);
        board.add(Arc::clone(&figures) as _);
        figures
    }

    /// Records that a configuration takes effect.
    pub(crate) fn adopt(&self, generation: u64, materials: &Arc<Materials>) {
        let now_s = Clock::start().unix_s();
        self.generation.store(generation, Ordering::Relaxed);
        self.is_refused.store(false, Ordering::Relaxed);
        self.last_s.store(now_s, Ordering::Relaxed);
        self.adopted_s.store(now_s, Ordering::Relaxed);
        *self.materials.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(materials);
    }

    /// Records that a configuration was refused.
    pub(crate) fn refuse(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        self.is_refused.store(true, Ordering::Relaxed);
        self.last_s.store(Clock::start().unix_s(), Ordering::Relaxed);
    }

    /// Records the number of earlier configurations that are still in use.
    pub(crate) fn set_old_generations(&self, count: usize) {
        self.old_generations.store(count, Ordering::Relaxed);
    }

    pub(crate) fn reloads(&self) -> ReloadHistory {
        // Generations are numbered by the reloads that succeed.
        let succeeded = self.generation.load(Ordering::Relaxed);
        let refused = self.refusals.load(Ordering::Relaxed);
        let last_s = self.last_s.load(Ordering::Relaxed);
        ReloadHistory {
            succeeded,
            refused,
            has_last_succeeded: !self.is_refused.load(Ordering::Relaxed),
            last_s: (succeeded + refused > 0).then_some(last_s),
            adopted_s: self.adopted_s.load(Ordering::Relaxed),
        }
    }
}

impl Statistics for ConfigFigures {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        let reloads = self.reloads();
        let old_generations = self.old_generations.load(Ordering::Relaxed);
        let figure = |name: &str, value: String| (format!("config.{name}"), value);
        figures.extend([
            figure("generation", self.generation.load(Ordering::Relaxed).to_string()),
            figure("last-reload-success", u8::from(reloads.has_last_succeeded).to_string()),
            figure("last-reload-s", self.last_s.load(Ordering::Relaxed).to_string()),
            figure("last-reload-success-s", reloads.adopted_s.to_string()),
            figure("old-generations", old_generations.to_string()),
        ]);
    }

    fn count(&self, counters: &mut Vec<(String, u64)>) {
        let ReloadHistory { succeeded, refused, .. } = self.reloads();
        counters.push(("config.reloads.refused".to_owned(), refused));
        counters.push(("config.reloads.succeeded".to_owned(), succeeded));
    }

    fn collect_certificates(&self, certificates: &mut Vec<(String, i64)>) {
        let materials = self.materials.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let named = materials.expiries().into_iter().map(|(file, at_s)| (file.to_string(), at_s));
        certificates.extend(named);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_reload_shows_until_one_succeeds() {
        let config = ConfigFigures::default();
        config.adopt(0, &Arc::default());
        let shown = |name: &str| {
            let mut figures = Vec::new();
            config.collect(&mut figures);
            let mut counters = Vec::new();
            config.count(&mut counters);
            figures.extend(counters.into_iter().map(|(name, count)| (name, count.to_string())));
            let found = figures.into_iter().find(|(known, _)| *known == format!("config.{name}"));
            found.expect("a figure").1
        };
        let names = ["generation", "last-reload-success", "reloads.succeeded", "reloads.refused"];
        assert_eq!(names.map(shown), ["0", "1", "0", "0"]);
        assert_eq!(config.reloads().last_s, None);
        config.refuse();
        assert_eq!(names.map(shown), ["0", "0", "0", "1"]);
        assert!(config.reloads().last_s.is_some());
        config.adopt(1, &Arc::default());
        assert_eq!(names.map(shown), ["1", "1", "1", "1"]);
    }

    #[test]
    fn refusal_leaves_the_time_of_the_last_success() {
        let config = ConfigFigures::default();
        config.adopt(0, &Arc::default());
        config.adopted_s.store(5, Ordering::Relaxed);
        config.refuse();
        let reloads = config.reloads();
        assert_eq!(reloads.adopted_s, 5);
        assert!(reloads.last_s > Some(5));
    }
}
