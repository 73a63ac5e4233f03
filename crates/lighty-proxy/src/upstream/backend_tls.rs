//! TLS with a backend: how it is spoken, the sessions that are kept, and what they are worth.

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
    /// Handshakes that were completed, resumed ones included.
    handshakes: AtomicU64,
    resumed: AtomicU64,
}

/// A policy, and what it was made from.
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

    /// Turns a connection to the backend into one that speaks TLS.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) async fn shake_hands(&self, stream: &mut Stream) -> Result<(), ServerFault> {
        let policy = self.policy()?;
        let info = stream.connect_tls(&policy).await?;
        // Without a choice of the server's, HTTP/1 is meant (RFC 9113 section 3.2).
        let wanted = self.options.alpn.first().filter(|wanted| **wanted == "h2");
        if wanted.is_some() && info.alpn.as_deref() != Some(b"h2") {
            return Err(ServerFault::Unfit("it does not speak HTTP/2".to_owned()));
        }
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        self.resumed.fetch_add(u64::from(info.is_resumed), Ordering::Relaxed);
        Ok(())
    }

    /// The policy, made again when its files have changed. One that cannot be made again stays.
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

    /// Handshakes that were completed, and how many of them went on with an earlier session.
    pub(crate) fn handshakes(&self) -> (u64, u64) {
        (self.handshakes.load(Ordering::Relaxed), self.resumed.load(Ordering::Relaxed))
    }
}
