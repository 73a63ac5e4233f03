//! TLS with a backend: its policy, and counters of full and resumed handshakes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lighty_io::tls::{ClientOptions, ClientPolicy, Materials, ServerFault};
use lighty_io::transport::Stream;

/// The certificates and keys that the current configuration has loaded.
#[derive(Default)]
pub(crate) struct CurrentMaterials(Mutex<Arc<Materials>>);

impl CurrentMaterials {
    pub(crate) fn set(&self, materials: Arc<Materials>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = materials;
    }

    fn get(&self) -> Arc<Materials> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// TLS with one backend, shared by all workers.
pub(crate) struct BackendTls {
    options: Arc<ClientOptions>,
    materials: Arc<CurrentMaterials>,
    made: Mutex<Option<Made>>,
    /// Number of completed handshakes, including resumed ones.
    handshakes: AtomicU64,
    resumed: AtomicU64,
}

/// A policy, and the version of the files that it was made from.
struct Made {
    policy: Arc<ClientPolicy>,
    materials: Arc<Materials>,
    version: u64,
}

impl BackendTls {
    pub(crate) fn new(options: &Arc<ClientOptions>, materials: &Arc<CurrentMaterials>) -> Self {
        Self {
            options: Arc::clone(options),
            materials: Arc::clone(materials),
            made: Mutex::default(),
            handshakes: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
        }
    }

    /// Performs the TLS handshake on a connection to the backend.
    ///
    /// # Errors
    /// The handshake failed, or the policy cannot be made.
    pub(crate) async fn shake_hands(&self, stream: &mut Stream) -> Result<(), ServerFault> {
        let policy = self.policy()?;
        let info = stream.connect_tls(&policy).await?;
        // A server that chooses no protocol means HTTP/1 (RFC 9113 section 3.2).
        let wanted = self.options.alpn.first().filter(|wanted| **wanted == "h2");
        if wanted.is_some() && info.alpn.as_deref() != Some(b"h2") {
            return Err(ServerFault::Unfit("it does not speak HTTP/2".to_owned()));
        }
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        self.resumed.fetch_add(u64::from(info.is_resumed), Ordering::Relaxed);
        Ok(())
    }

    /// Returns the policy, made again when its files have changed. If that fails, the old one
    /// stays.
    fn policy(&self) -> Result<Arc<ClientPolicy>, ServerFault> {
        let materials = self.materials.get();
        let version = materials.version();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh =
            |made: &&Made| Arc::ptr_eq(&made.materials, &materials) && made.version == version;
        if let Some(made) = made.as_ref().filter(is_fresh) {
            return Ok(Arc::clone(&made.policy));
        }
        match (ClientPolicy::new(&self.options, &materials), &*made) {
            (Ok(policy), _) => {
                let policy = Arc::new(policy);
                *made = Some(Made { policy: Arc::clone(&policy), materials, version });
                Ok(policy)
            }
            (Err(_), Some(before)) => Ok(Arc::clone(&before.policy)),
            (Err(why), None) => Err(ServerFault::Unfit(why.to_string())),
        }
    }

    /// Returns the number of completed handshakes, and of resumed ones among them.
    pub(crate) fn handshakes(&self) -> (u64, u64) {
        (self.handshakes.load(Ordering::Relaxed), self.resumed.load(Ordering::Relaxed))
    }
}
