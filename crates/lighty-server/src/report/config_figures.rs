//! Figures of the configuration and its certificates, for the status page.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lighty_core::machine::status_board::{Statistics, StatusBoard};
use lighty_io::clock::Clock;
use lighty_io::tls::Materials;

/// The active configuration, and the result of the last attempt to replace it.
#[derive(Default)]
pub(crate) struct ConfigFigures {
    generation: AtomicU64,
    /// The last reload was refused.
    is_refused: AtomicBool,
    /// Time when the configuration was read, in wall-clock seconds.
    read_s: AtomicI64,
    materials: Mutex<Arc<Materials>>,
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
        self.generation.store(generation, Ordering::Relaxed);
        self.is_refused.store(false, Ordering::Relaxed);
        self.read_s.store(Clock::start().unix_s(), Ordering::Relaxed);
        *self.materials.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(materials);
    }

    /// True if the last reload was not refused.
    pub(crate) fn has_succeeded(&self) -> bool {
        !self.is_refused.load(Ordering::Relaxed)
    }

    /// Records that a configuration was refused.
    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }
}

impl Statistics for ConfigFigures {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        let success = u8::from(!self.is_refused.load(Ordering::Relaxed));
        let figure = |name: &str, value: String| (format!("config.{name}"), value);
        figures.extend([
            figure("generation", self.generation.load(Ordering::Relaxed).to_string()),
            figure("last-reload-success", success.to_string()),
            figure("last-reload-s", self.read_s.load(Ordering::Relaxed).to_string()),
        ]);
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
        let shown = || {
            let mut figures = Vec::new();
            config.collect(&mut figures);
            figures.into_iter().take(2).map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(shown(), ["0", "1"]);
        config.refuse();
        assert_eq!(shown(), ["0", "0"]);
        config.adopt(1, &Arc::default());
        assert_eq!(shown(), ["1", "1"]);
    }
}
