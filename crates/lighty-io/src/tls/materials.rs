//! Certificates, keys, trust anchors and revocation lists, read from files before they are needed.
//!
//! A handshake cannot wait for a disk, so everything that a configuration names is loaded when the
//! configuration is. Changed files are loaded again behind it ([`Materials::refresh`]); a pair that
//! no longer fits together, or a file that cannot be read, leaves what was loaded before in place.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::certificate;

/// Bytes of a file of certificates that are read: a bundle of all public authorities has 250 KB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where a certificate and its key are: `ssl.pemfile`, and `ssl.privkey` if the key stands alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PairFiles {
    /// The leaf, then the chain; the key as well, unless it has a file of its own.
    pub chain: Arc<str>,
    /// The key.
    pub key: Option<Arc<str>>,
}

impl PairFiles {
    fn paths(&self) -> impl Iterator<Item = &Arc<str>> {
        [Some(&self.chain), self.key.as_ref()].into_iter().flatten()
    }
}

/// What a file holds.
struct PemFile {
    certificates: Vec<CertificateDer<'static>>,
    keys: Vec<PrivateKeyDer<'static>>,
    lists: Vec<CertificateRevocationListDer<'static>>,
}

/// Everything that the TLS of one configuration is made from.
#[derive(Default)]
pub struct Materials {
    loaded: RwLock<Loaded>,
    /// Grows when something was loaded again.
    version: AtomicU64,
}

#[derive(Default)]
struct Loaded {
    pairs: HashMap<PairFiles, Arc<CertifiedKey>>,
    files: HashMap<Arc<str>, Arc<PemFile>>,
    stamps: HashMap<Arc<str>, Stamp>,
}

/// What tells one version of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp(Option<(SystemTime, u64)>);

impl Stamp {
    fn of(path: &str) -> Self {
        let meta = std::fs::metadata(path).ok();
        Self(meta.and_then(|meta| Some((meta.modified().ok()?, meta.len()))))
    }
}

impl Debug for Materials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Materials")
    }
}

impl Materials {
    /// Loads a certificate with its key.
    ///
    /// # Errors
    /// In words: a file that cannot be read or holds no certificate or key, or a key that belongs
    /// to another certificate.
    pub fn load_pair(&self, files: &PairFiles) -> Result<(), String> {
        self.keep_pair(files, Arc::new(read_pair(files)?));
        Ok(())
    }

    fn keep_pair(&self, files: &PairFiles, pair: Arc<CertifiedKey>) {
        let mut loaded = self.write();
        for path in files.paths() {
            loaded.stamps.insert(Arc::clone(path), Stamp::of(path));
        }
        loaded.pairs.insert(files.clone(), pair);
    }

    /// Takes over from `before` what is unchanged since it was loaded, and not readable any more: a
    /// process that has given up its rights goes on with what it has read. `false` if there is no
    /// such pair.
    pub fn take_over_pair(&self, files: &PairFiles, before: &Materials) -> bool {
        let known = before.read().pairs.get(files).cloned();
        let is_taken = known.is_some() && files.paths().any(|path| !is_readable(path));
        if let (true, Some(pair)) = (is_taken, known) {
            self.keep_pair(files, pair);
        }
        is_taken
    }

    /// [`take_over_pair`](Self::take_over_pair) for a file of authorities or revocation lists.
    pub fn take_over_file(&self, path: &Arc<str>, before: &Materials) -> bool {
        let known = before.file(path).filter(|_| !is_readable(path));
        if let Some(file) = &known {
            let mut loaded = self.write();
            loaded.stamps.insert(Arc::clone(path), Stamp::of(path));
            loaded.files.insert(Arc::clone(path), Arc::clone(file));
        }
        known.is_some()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Loaded> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads certificates of authorities.
    ///
    /// # Errors
    /// In words: a file that cannot be read or holds none.
    pub fn load_authorities(&self, path: &Arc<str>) -> Result<(), String> {
        let file = read(path)?;
        if file.certificates.is_empty() {
            return Err(format!("{path}: it holds no certificate"));
        }
        self.keep(path, file);
        Ok(())
    }

    /// Loads certificate revocation lists.
    ///
    /// # Errors
    /// In words: a file that cannot be read or holds none.
    pub fn load_revocations(&self, path: &Arc<str>) -> Result<(), String> {
        let file = read(path)?;
        if file.lists.is_empty() {
            return Err(format!("{path}: it holds no certificate revocation list"));
        }
        self.keep(path, file);
        Ok(())
    }

    fn keep(&self, path: &Arc<str>, file: PemFile) {
        let mut loaded = self.write();
        loaded.stamps.insert(Arc::clone(path), Stamp::of(path));
        loaded.files.insert(Arc::clone(path), Arc::new(file));
    }

    /// Loads again what has changed on disk. Returns what to log, a line for each file.
    pub fn refresh(&self) -> Vec<String> {
        let (stamps, pairs, files) = {
            let loaded = self.read();
            let pairs: Vec<_> = loaded.pairs.keys().cloned().collect();
            let files: Vec<_> = loaded.files.keys().cloned().collect();
            (loaded.stamps.clone(), pairs, files)
        };
        let changed: Vec<(Arc<str>, Stamp)> = stamps
            .into_iter()
            .map(|(path, old)| (Stamp::of(&path), path, old))
            .filter(|(new, _, old)| new != old)
            .map(|(new, path, _)| (path, new))
            .collect();
        if changed.is_empty() {
            return Vec::new();
        }
        let is_changed = |path: &Arc<str>| changed.iter().any(|(other, _)| other == path);
        let mut said = Vec::new();
        for files in pairs.iter().filter(|files| files.paths().any(is_changed)) {
            said.push(match self.load_pair(files) {
                Ok(()) => format!("{}: the certificate was loaded again", files.chain),
                Err(why) => format!("{why}: the certificate loaded before stays"),
            });
        }
        for path in files.iter().filter(|path| is_changed(path)) {
            match read(path) {
                Ok(file) if !file.certificates.is_empty() || !file.lists.is_empty() => {
                    self.keep(path, file);
                    said.push(format!("{path}: it was loaded again"));
                }
                Ok(_) => said.push(format!("{path}: it is empty; what was loaded before stays")),
                Err(why) => said.push(format!("{why}: what was loaded before stays")),
            }
        }
        // Also of a file that was refused, so that it is reported once.
        self.write().stamps.extend(changed);
        self.version.fetch_add(1, Ordering::Release);
        said
    }

    /// What is to be said of certificates that are not valid now, or only for `warn_s` seconds.
    pub fn warnings(&self, now_s: i64, warn_s: i64) -> Vec<String> {
        let loaded = self.read();
        let mut said: Vec<String> = loaded
            .pairs
            .iter()
            .filter_map(|(files, pair)| {
                let valid = certificate::validity(pair.cert.first()?)?;
                let words = match now_s {
                    now_s if now_s < valid.start => "is not valid yet".to_owned(),
                    now_s if now_s >= valid.end => "has expired".to_owned(),
                    now_s if now_s >= valid.end - warn_s => {
                        format!("expires in {} days", (valid.end - now_s) / 86_400)
                    }
                    _ => return None,
                };
                Some(format!("{}: the certificate {words}", files.chain))
            })
            .collect();
        said.sort_unstable();
        said
    }

    /// True if nothing was loaded.
    pub fn is_empty(&self) -> bool {
        self.read().stamps.is_empty()
    }

    /// Changes when [`refresh`](Self::refresh) has loaded something.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The pair; also if the chain was loaded with a key from elsewhere: conditions may bring a
    /// chain together with the key of another.
    pub(super) fn pair(&self, files: &PairFiles) -> Option<Arc<CertifiedKey>> {
        let loaded = self.read();
        let of_chain = || loaded.pairs.iter().find(|(other, _)| other.chain == files.chain);
        let found = loaded.pairs.get(files).or_else(|| of_chain().map(|(_, pair)| pair));
        found.cloned()
    }

    pub(super) fn authorities(&self, path: &str) -> Vec<CertificateDer<'static>> {
        self.file(path).map(|file| file.certificates.clone()).unwrap_or_default()
    }

    pub(super) fn revocations(&self, path: &str) -> Vec<CertificateRevocationListDer<'static>> {
        self.file(path).map(|file| file.lists.clone()).unwrap_or_default()
    }

    fn file(&self, path: &str) -> Option<Arc<PemFile>> {
        self.read().files.get(path).cloned()
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Loaded> {
        self.loaded.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// False if rights are missing.
fn is_readable(path: &str) -> bool {
    let opened = std::fs::File::open(path).map(drop);
    !opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

fn read(path: &str) -> Result<PemFile, String> {
    let bytes = read_bytes(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
    parse(&bytes).map_err(|why| format!("{path}: {why}"))
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let meta = std::fs::metadata(path).map_err(|error| crate::os_text(&error))?;
    if !meta.is_file() {
        return Err("it is not a file".to_owned());
    }
    if meta.len() > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    std::fs::read(path).map_err(|error| crate::os_text(&error))
}

fn parse(bytes: &[u8]) -> Result<PemFile, String> {
    let (mut certificates, mut keys, mut lists) = (Vec::new(), Vec::new(), Vec::new());
    let mut found = false;
    for section in <(SectionKind, Vec<u8>) as PemObject>::pem_slice_iter(bytes) {
        let (kind, der) = section.map_err(|error| format!("its PEM is broken: {error}"))?;
        found = true;
        match kind {
            SectionKind::Certificate => certificates.push(CertificateDer::from(der)),
            SectionKind::Crl => lists.push(CertificateRevocationListDer::from(der)),
            _ => keys.extend(PrivateKeyDer::from_pem(kind, der)),
        }
    }
    if !found && bytes.first() == Some(&0x30) {
        // DER, which has no name for what it holds.
        match PrivateKeyDer::try_from(bytes.to_vec()) {
            Ok(key) => keys.push(key),
            Err(_) => certificates.push(CertificateDer::from(bytes.to_vec())),
        }
    }
    Ok(PemFile { certificates, keys, lists })
}

fn read_pair(files: &PairFiles) -> Result<CertifiedKey, String> {
    let chain = read(&files.chain)?;
    if chain.certificates.is_empty() {
        return Err(format!("{}: it holds no certificate", files.chain));
    }
    let mut keys: Vec<PrivateKeyDer<'static>> = Vec::new();
    if let Some(path) = &files.key {
        keys.extend(read(path)?.keys);
    }
    // A chain that brings its own key does not need the other.
    keys.extend(chain.keys.iter().map(PrivateKeyDer::clone_key));
    let place = files.key.as_ref().unwrap_or(&files.chain);
    let mut why = match (keys.is_empty(), &files.key) {
        (true, None) => format!("{place}: it holds no private key; ssl.privkey may name one"),
        (true, Some(_)) => format!("{place}: it holds no private key"),
        (false, _) => format!("{place}: the private key belongs to another certificate"),
    };
    for key in &keys {
        let signing = match aws_lc_rs::sign::any_supported_type(key) {
            Ok(signing) => signing,
            Err(error) => {
                why = format!("{place}: the private key cannot be used: {error}");
                continue;
            }
        };
        let pair = CertifiedKey::new(chain.certificates.clone(), signing);
        match pair.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                return Ok(pair);
            }
            Err(rustls::Error::InconsistentKeys(_)) => {}
            Err(error) => why = format!("{}: the certificate is broken: {error}", files.chain),
        }
    }
    Err(why)
}
