//! Orders for backends that outlive the process: a file in `server.state-dir`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_io::process::state_file;
use lighty_io::threads;
use lighty_proxy::upstream::operator::OperatorState;
use lighty_proxy::upstream::order::OrderedBackend;
use lighty_proxy::upstream::preset::{PresetBackend, PresetNumber};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::fault::ControlFault;
use super::route::BackendChange;

const FILE: &str = "backends.json";

/// Version of the file's form.
const VERSION: u32 = 1;

/// Maximum number of backends with kept orders.
const KEPT_MAX: usize = 10_000;

#[derive(Serialize, Deserialize)]
struct KeptFile {
    version: u32,
    backends: Vec<KeptBackend>,
}

/// The orders for one backend.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct KeptBackend {
    upstream: String,
    backend: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<KeptNumber>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connections_max: Option<KeptNumber>,
    /// Weight of a backend that the configuration does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    added: Option<u32>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct KeptNumber {
    configured: u32,
    ordered: u32,
}

impl KeptNumber {
    fn of(configured: u32, ordered: u32) -> Option<Self> {
        (configured != ordered).then_some(Self { configured, ordered })
    }

    fn preset(self) -> PresetNumber {
        PresetNumber { configured: self.configured, ordered: self.ordered }
    }
}

impl KeptBackend {
    fn is_empty(&self) -> bool {
        let Self { state, weight, connections_max, added, .. } = self;
        state.is_none() && weight.is_none() && connections_max.is_none() && added.is_none()
    }

    fn preset(&self) -> PresetBackend {
        let state = self.state.as_deref().and_then(OperatorState::of_name);
        PresetBackend {
            upstream: self.upstream.as_str().into(),
            backend: self.backend.as_str().into(),
            state: state.unwrap_or_default(),
            weight: self.weight.map(KeptNumber::preset),
            connections_max: self.connections_max.map(KeptNumber::preset),
            added: self.added,
        }
    }
}

/// The kept orders, in memory and in their file.
#[derive(Debug, Default)]
pub(crate) struct KeptOrders {
    /// The file; `None` without `server.state-dir`.
    path: Option<PathBuf>,
    backends: Mutex<Vec<KeptBackend>>,
}

impl KeptOrders {
    /// Reads the file in a directory. Returns a warning with it if the file cannot be used.
    pub(crate) fn load(directory: Option<&str>) -> (Self, Option<String>) {
        let Some(directory) = directory else { return (Self::default(), None) };
        let path = Path::new(directory).join(FILE);
        let (backends, warning) = match read(&path) {
            Ok(backends) => (backends, None),
            Err(why) => {
                let text = format!("{}: {why}: no orders for backends are kept", path.display());
                (Vec::new(), Some(text))
            }
        };
        (Self { path: Some(path), backends: Mutex::new(backends) }, warning)
    }

    /// The orders, for the upstreams.
    pub(crate) fn presets(&self) -> Arc<[PresetBackend]> {
        self.lock().iter().map(KeptBackend::preset).collect()
    }

    /// True if orders for a backend are kept.
    pub(super) fn has(&self, upstream: &str, backend: &str) -> bool {
        self.lock().iter().any(|kept| kept.upstream == upstream && kept.backend == backend)
    }

    /// Checks, before an order is given, that it can be kept.
    ///
    /// # Errors
    /// There is no directory, or too many orders are kept.
    pub(super) fn check(&self) -> Result<(), ControlFault> {
        if self.path.is_none() {
            return Err(ControlFault::NoStateDir);
        }
        match self.lock().len() < KEPT_MAX {
            true => Ok(()),
            false => Err(ControlFault::KeptMax { max: KEPT_MAX }),
        }
    }

    /// Records an order that a backend has obeyed.
    pub(super) fn note(&self, change: BackendChange, now: &OrderedBackend) {
        let mut backends = self.lock();
        let is_it =
            |kept: &KeptBackend| *kept.upstream == *now.upstream && *kept.backend == *now.backend;
        let at = backends.iter().position(is_it).unwrap_or_else(|| {
            backends.push(KeptBackend {
                upstream: now.upstream.to_string(),
                backend: now.backend.to_string(),
                state: None,
                weight: None,
                connections_max: None,
                added: None,
            });
            backends.len() - 1
        });
        let kept = &mut backends[at];
        match change {
            BackendChange::Ready | BackendChange::Drain | BackendChange::Maintenance => {
                let is_ready = now.state == OperatorState::Ready;
                kept.state = (!is_ready).then(|| now.state.name().to_owned());
            }
            BackendChange::Weight => {
                kept.weight = KeptNumber::of(now.configured_weight, now.weight);
            }
            BackendChange::Limit => {
                let (configured, ordered) = (now.configured_connections_max, now.connections_max);
                kept.connections_max = KeptNumber::of(configured, ordered);
            }
            BackendChange::Add => kept.added = Some(now.configured_weight),
            BackendChange::Remove => {
                backends.remove(at);
                return;
            }
        }
        if kept.is_empty() {
            backends.remove(at);
        }
    }

    /// Drops the kept orders for backends of a name, or all. Returns their number.
    pub(super) fn forget(&self, backend: Option<&str>) -> usize {
        let mut backends = self.lock();
        let before = backends.len();
        backends.retain(|kept| backend.is_some_and(|backend| kept.backend != backend));
        before - backends.len()
    }

    /// Writes the file, on a thread of its own: a disk may be slow.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) async fn save(&self) -> Result<(), ControlFault> {
        let Some(path) = self.path.clone() else { return Err(ControlFault::NoStateDir) };
        let file = KeptFile { version: VERSION, backends: self.lock().clone() };
        let failed = |why: String| ControlFault::NotKept(why);
        let mut content = serde_json::to_vec(&file).map_err(|error| failed(error.to_string()))?;
        content.push(b'\n');
        let (done, written) = oneshot::channel();
        let named = path.display().to_string();
        let body = move || drop(done.send(state_file::replace(&path, &content)));
        threads::start("state file", None, body).map_err(|error| failed(error.to_string()))?;
        match written.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(format!("{named}: {error}"))),
            Err(_) => Err(failed(format!("{named}: writing it panicked"))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<KeptBackend>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum KeptFault {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("{0}")]
    Form(#[from] serde_json::Error),
    #[error("its version is {0}, not {VERSION}")]
    Version(u32),
}

fn read(path: &Path) -> Result<Vec<KeptBackend>, KeptFault> {
    state_file::read(path)?.map_or(Ok(Vec::new()), |content| parse(&content))
}

fn parse(content: &[u8]) -> Result<Vec<KeptBackend>, KeptFault> {
    let file: KeptFile = serde_json::from_slice(content)?;
    match file.version {
        VERSION => Ok(file.backends),
        other => Err(KeptFault::Version(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(state: OperatorState, weight: u32) -> OrderedBackend {
        OrderedBackend {
            upstream: "u".into(),
            backend: "192.0.2.1:80".into(),
            state,
            weight,
            configured_weight: 1,
            connections_max: 256,
            configured_connections_max: 256,
        }
    }

    #[test]
    fn orders_without_an_effect_are_not_kept() {
        let kept = KeptOrders::default();
        kept.note(BackendChange::Drain, &ordered(OperatorState::Draining, 1));
        assert!(kept.has("u", "192.0.2.1:80") && !kept.has("v", "192.0.2.1:80"));
        kept.note(BackendChange::Weight, &ordered(OperatorState::Draining, 7));
        let preset = &kept.presets()[0];
        let weight = Some(PresetNumber { configured: 1, ordered: 7 });
        assert_eq!((preset.state, preset.weight), (OperatorState::Draining, weight));
        kept.note(BackendChange::Ready, &ordered(OperatorState::Ready, 7));
        kept.note(BackendChange::Weight, &ordered(OperatorState::Ready, 1));
        assert!(kept.presets().is_empty());
    }

    #[test]
    fn file_of_another_version_or_form_is_refused() {
        for (content, reason) in [
            ("{\"version\": 2, \"backends\": []}", "its version is 2, not 1"),
            ("[]", "invalid"),
            ("", "EOF"),
        ] {
            let error = parse(content.as_bytes()).expect_err(content).to_string();
            assert!(error.contains(reason), "{error}");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let name = directory.path().to_str().expect("a name");
        std::fs::write(directory.path().join(FILE), "{").expect("written");
        let (kept, warning) = KeptOrders::load(Some(name));
        assert!(
            kept.presets().is_empty() && warning.is_some_and(|text| text.contains("no orders"))
        );
    }
}
