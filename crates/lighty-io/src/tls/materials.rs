//! Certificates, keys, trust anchors, revocation lists and OCSP responses, read from files before
//! they are needed.
//!
//! A handshake cannot wait for a disk, so all files that a configuration names are loaded with the
//! configuration. Changed files are loaded again in the background ([`Materials::refresh`]). If a
//! pair no longer matches, or a file cannot be read, the previous version stays in use.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::sign::CertifiedKey;

use super::certificate::{self, CertificateNames};
use super::on_demand::OnDemandPairs;
use super::pem_file::{self, PairError, PairFiles, PemFile, read, read_bytes, read_pair};
use super::signing;
use super::stapling::Staple;
use super::tls_error::TlsError;
use crate::clock::Clock;

/// Certificates, keys and other files for the TLS of one configuration.
#[derive(Default)]
pub struct Materials {
    loaded: RwLock<Loaded>,
    /// Increases when a file was loaded again.
    version: AtomicU64,
    /// Certificates for names that are not in the configuration. They outlive it.
    on_demand: OnDemandPairs,
}

#[derive(Default)]
struct Loaded {
    pairs: HashMap<PairFiles, Arc<CertifiedKey>>,
    /// Certificates that the server obtains by itself, in the order of the configuration.
    managed: Vec<Managed>,
    files: HashMap<Arc<str>, Arc<PemFile>>,
    /// OCSP responses, or the reason why there is none.
    staples: HashMap<Arc<str>, Result<Staple, TlsError>>,
    stamps: HashMap<Arc<str>, MaterialStamp>,
    /// When the files were last checked, in seconds since 1970.
    looked_s: i64,
}

/// A certificate that the server obtains by itself.
#[derive(Clone)]
struct Managed {
    names: Arc<[String]>,
    files: PairFiles,
}

/// Identifies a version of a file. It is taken before the file is read, so that a concurrent write
/// counts as a change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MaterialStamp(Option<(SystemTime, u64)>);

impl MaterialStamp {
    fn of(path: &str) -> Self {
        let meta = std::fs::metadata(path).ok();
        Self(meta.and_then(|meta| Some((meta.modified().ok()?, meta.len()))))
    }

    fn of_all(files: &PairFiles) -> Vec<(Arc<str>, Self)> {
        files.paths().map(|path| (Arc::clone(path), Self::of(path))).collect()
    }
}

impl Debug for Materials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Materials")
    }
}

impl Materials {
    /// No materials yet, except those of `before` that outlive its configuration.
    #[must_use]
    pub fn after(before: &Materials) -> Self {
        Self { on_demand: before.on_demand.clone(), ..Self::default() }
    }

    /// Certificates for names that are not in the configuration.
    pub fn on_demand(&self) -> &OnDemandPairs {
        &self.on_demand
    }

    /// Loads a certificate with its key.
    ///
    /// # Errors
    /// A message: a file cannot be read or holds no certificate or key, or the key belongs to
    /// another certificate.
    pub fn load_pair(&self, files: &PairFiles) -> Result<(), PairError> {
        let stamps = MaterialStamp::of_all(files);
        self.keep_pair(files, Arc::new(read_pair(files)?), stamps);
        Ok(())
    }

    /// Loads a certificate that the server obtains by itself, from the file that contains
    /// certificate and key. Until that can be read, a self-signed certificate, which clients do not
    /// trust, is used.
    ///
    /// # Errors
    /// A message: a name is invalid, or no key can be generated.
    pub fn load_managed(
        &self,
        names: &Arc<[String]>,
        file: &Arc<str>,
        before: &Materials,
    ) -> Result<(), TlsError> {
        let files = PairFiles { chain: Arc::clone(file), key: None };
        let stamps = MaterialStamp::of_all(&files);
        if !self.take_over_pair(&files, before) && self.load_pair(&files).is_err() {
            let known = before.read().pairs.get(&files).cloned();
            let pair = known.map_or_else(|| signing::placeholder(names), Ok)?;
            self.keep_pair(&files, pair, stamps);
        }
        self.write().managed.push(Managed { names: Arc::clone(names), files });
        Ok(())
    }

    /// The certificates that the server obtains by itself, each with its names.
    pub(super) fn managed(&self) -> Vec<(Arc<[String]>, Arc<CertifiedKey>)> {
        let loaded = self.read();
        let found = loaded.managed.iter().filter_map(|managed| {
            Some((Arc::clone(&managed.names), Arc::clone(loaded.pairs.get(&managed.files)?)))
        });
        found.collect()
    }

    /// The address assumed for clients that send no server name, as clients do that connect by
    /// address: the reached address, or, if it has no certificate, the first address that has one.
    /// `None` if the server obtains no certificate for an address.
    pub fn unnamed(&self, reached: Option<IpAddr>) -> Option<IpAddr> {
        let loaded = self.read();
        let names = loaded.managed.iter().flat_map(|managed| managed.names.iter());
        let mut addresses = names.filter_map(|name| name.parse::<IpAddr>().ok());
        let first = addresses.next()?;
        let is_reached = |address: &IpAddr| Some(*address) == reached;
        Some(if is_reached(&first) { first } else { addresses.find(is_reached).unwrap_or(first) })
    }

    /// True if there are certificates that the server obtains by itself.
    pub fn has_managed(&self) -> bool {
        !self.read().managed.is_empty()
    }

    fn keep_pair(
        &self,
        files: &PairFiles,
        pair: Arc<CertifiedKey>,
        stamps: Vec<(Arc<str>, MaterialStamp)>,
    ) {
        let mut loaded = self.write();
        loaded.stamps.extend(stamps);
        loaded.pairs.insert(files.clone(), pair);
    }

    /// Takes a pair over from `before` if its files are not readable any more: after dropping
    /// privileges, the process continues with the previously loaded pair. `false` if there is no
    /// such pair, or the files are readable.
    pub fn take_over_pair(&self, files: &PairFiles, before: &Materials) -> bool {
        let stamps = MaterialStamp::of_all(files);
        let known = before.read().pairs.get(files).cloned();
        let is_taken = known.is_some() && files.paths().any(|path| !is_readable(path));
        if let (true, Some(pair)) = (is_taken, known) {
            self.keep_pair(files, pair, stamps);
        }
        is_taken
    }

    /// [`take_over_pair`](Self::take_over_pair) for a file of authorities or revocation lists.
    pub fn take_over_file(&self, path: &Arc<str>, before: &Materials) -> bool {
        let stamp = MaterialStamp::of(path);
        let known = before.file(path).filter(|_| !is_readable(path));
        if let Some(file) = &known {
            let mut loaded = self.write();
            loaded.stamps.insert(Arc::clone(path), stamp);
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
    /// A message: the file cannot be read or holds none.
    pub fn load_authorities(&self, path: &Arc<str>) -> Result<(), TlsError> {
        let (stamp, file) = (MaterialStamp::of(path), read(path)?);
        if file.certificates.is_empty() {
            return Err(format!("{path}: it holds no certificate").into());
        }
        self.keep(path, file, stamp);
        Ok(())
    }

    /// Loads certificate revocation lists.
    ///
    /// # Errors
    /// A message: the file cannot be read or holds none.
    pub fn load_revocations(&self, path: &Arc<str>) -> Result<(), TlsError> {
        let (stamp, file) = (MaterialStamp::of(path), read(path)?);
        if file.lists.is_empty() {
            return Err(format!("{path}: it holds no certificate revocation list").into());
        }
        self.keep(path, file, stamp);
        Ok(())
    }

    /// Loads an OCSP response, or takes it over from `before`, as
    /// [`take_over_pair`](Self::take_over_pair) does. A missing or empty file causes a warning, and
    /// is loaded when it changes.
    pub fn load_staple(&self, path: &Arc<str>, before: &Materials) {
        let stamp = MaterialStamp::of(path);
        let known = before.read().staples.get(path).cloned();
        let staple = match known {
            Some(known) if !is_readable(path) => known,
            _ => read_staple(path),
        };
        let mut loaded = self.write();
        loaded.looked_s = Clock::start().unix_s();
        loaded.stamps.insert(Arc::clone(path), stamp);
        loaded.staples.insert(Arc::clone(path), staple);
    }

    fn keep(&self, path: &Arc<str>, file: PemFile, stamp: MaterialStamp) {
        let mut loaded = self.write();
        loaded.stamps.insert(Arc::clone(path), stamp);
        loaded.files.insert(Arc::clone(path), Arc::new(file));
    }

    /// Loads changed files again. Returns log messages, one for each file.
    pub fn refresh(&self, now_s: i64) -> Vec<String> {
        let looked_s = std::mem::replace(&mut self.write().looked_s, now_s);
        let (stamps, has_turned) = {
            let loaded = self.read();
            let mut staples = loaded.staples.values().flatten();
            let is_other = |s: &Staple| s.is_valid(looked_s) != s.is_valid(now_s);
            let has_turned = staples.any(is_other);
            (loaded.stamps.clone(), has_turned)
        };
        let changed: Vec<(Arc<str>, MaterialStamp)> = stamps
            .into_iter()
            .map(|(path, old)| (MaterialStamp::of(&path), path, old))
            .filter(|(new, _, old)| new != old)
            .map(|(new, path, _)| (path, new))
            .collect();
        let messages =
            self.load_again(&|path| changed.iter().any(|(other, _)| other == path), now_s);
        if !changed.is_empty() || has_turned {
            // Files that were refused are recorded too, so that each is reported once.
            self.write().stamps.extend(changed);
            self.version.fetch_add(1, Ordering::Release);
        }
        messages
    }

    fn load_again(&self, is_changed: &dyn Fn(&Arc<str>) -> bool, now_s: i64) -> Vec<String> {
        let (pairs, files, staples) = {
            let loaded = self.read();
            let pairs: Vec<_> = loaded.pairs.keys().cloned().collect();
            let changed = |path: &&Arc<str>| is_changed(path);
            let files: Vec<_> = loaded.files.keys().filter(changed).cloned().collect();
            let staples: Vec<_> = loaded.staples.keys().filter(changed).cloned().collect();
            (pairs, files, staples)
        };
        let mut messages = Vec::new();
        for files in pairs.iter().filter(|files| files.paths().any(is_changed)) {
            messages.push(match self.load_pair_again(files, now_s) {
                Ok(()) => format!("{}: the certificate was loaded again", files.chain),
                Err(why) => format!("{why}: the certificate loaded before stays"),
            });
        }
        for path in &files {
            let stamp = MaterialStamp::of(path);
            match read(path) {
                Ok(file) if !file.certificates.is_empty() || !file.lists.is_empty() => {
                    self.keep(path, file, stamp);
                    messages.push(format!("{path}: it was loaded again"));
                }
                Ok(_) => {
                    messages.push(format!("{path}: it is empty; what was loaded before stays"))
                }
                Err(why) => messages.push(format!("{why}: what was loaded before stays")),
            }
        }
        messages.extend(staples.iter().map(|path| self.load_staple_again(path)));
        messages
    }

    /// Loads a pair again, unless the new one has expired and the previous one has not.
    fn load_pair_again(&self, files: &PairFiles, now_s: i64) -> Result<(), PairError> {
        let stamps = MaterialStamp::of_all(files);
        let pair = read_pair(files)?;
        let has_expired = |pair: &CertifiedKey| {
            let valid = pair.cert.first().and_then(|leaf| certificate::validity(leaf));
            valid.is_some_and(|valid| now_s >= valid.end)
        };
        let is_worse = |before: &Arc<CertifiedKey>| has_expired(&pair) && !has_expired(before);
        if self.read().pairs.get(files).is_some_and(is_worse) {
            let why = format!("{}: the certificate in it has expired", files.chain);
            return Err(PairError::Chain(why.into()));
        }
        self.keep_pair(files, Arc::new(pair), stamps);
        Ok(())
    }

    fn load_staple_again(&self, path: &Arc<str>) -> String {
        let staple = read_staple(path);
        let has_one = self.read().staples.get(path).is_some_and(Result::is_ok);
        match &staple {
            Err(why) if has_one => return format!("{why}: the OCSP response loaded before stays"),
            _ => {}
        }
        let messages = match &staple {
            Ok(_) => format!("{path}: the OCSP response was loaded again"),
            Err(why) => why.to_string(),
        };
        self.write().staples.insert(Arc::clone(path), staple);
        messages
    }

    /// Warnings about certificates that are not valid now or expire within `warn_s` seconds, and
    /// about OCSP responses that are not sent.
    pub fn warnings(&self, now_s: i64, warn_s: i64) -> Vec<String> {
        let loaded = self.read();
        let pairs = loaded.pairs.iter().filter_map(|(files, pair)| {
            let leaf = pair.cert.first()?;
            let text = validity_message(certificate::validity(leaf)?, now_s, warn_s)
                .or_else(|| loaded.lacks_staple(leaf, now_s))?;
            Some(format!("{}: the certificate {text}", files.chain))
        });
        let staples = loaded.staples.iter().filter_map(|(path, staple)| match staple {
            Err(why) => Some(format!("{why}: no OCSP response is sent")),
            Ok(staple) if staple.is_valid(now_s) => None,
            Ok(staple) if staple.ends_s() <= now_s => {
                Some(format!("{path}: the OCSP response has expired and is not sent"))
            }
            Ok(_) => Some(format!("{path}: the OCSP response is not valid yet and is not sent")),
        });
        let mut messages: Vec<String> = pairs.chain(staples).collect();
        messages.sort_unstable();
        messages
    }

    /// The files of certificates, and the times when they expire, in seconds since 1970.
    pub fn expiries(&self) -> Vec<(Arc<str>, i64)> {
        let expiry = |(files, pair): (&PairFiles, &Arc<CertifiedKey>)| {
            let valid_s = certificate::validity(pair.cert.first()?)?;
            Some((Arc::clone(&files.chain), valid_s.end))
        };
        self.read().pairs.iter().filter_map(expiry).collect()
    }

    /// True if nothing was loaded.
    pub fn is_empty(&self) -> bool {
        self.read().stamps.is_empty()
    }

    /// Changes when [`refresh`](Self::refresh) has found a changed file, or an OCSP response whose
    /// validity began or ended.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The pair for these files. If only the chain was loaded, with a key from elsewhere, that
    /// pair: conditions may combine a chain with the key of another.
    pub(super) fn pair(&self, files: &PairFiles) -> Option<Arc<CertifiedKey>> {
        let loaded = self.read();
        let of_chain = || loaded.pairs.iter().find(|(other, _)| other.chain == files.chain);
        let found = loaded.pairs.get(files).or_else(|| of_chain().map(|(_, pair)| pair));
        found.cloned()
    }

    /// A valid response for this certificate among these files.
    pub(super) fn staple(&self, paths: &[Arc<str>], leaf: &[u8], now_s: i64) -> Option<Vec<u8>> {
        let loaded = self.read();
        let staples = paths.iter().filter_map(|path| loaded.staples.get(path)?.as_ref().ok());
        Some(fitting(staples, leaf, now_s)?.der.clone())
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

impl Loaded {
    /// Message if the certificate requires a stapled response and there is none.
    fn lacks_staple(&self, leaf: &[u8], now_s: i64) -> Option<String> {
        let mut staples = self.staples.values().flatten();
        let is_lacking =
            certificate::must_staple(leaf) && fitting(&mut staples, leaf, now_s).is_none();
        is_lacking.then(|| {
            "is to be shown with an OCSP response (must-staple), and ssl.stapling-file has none"
                .to_owned()
        })
    }
}

fn fitting<'a>(
    mut staples: impl Iterator<Item = &'a Staple>,
    leaf: &[u8],
    now_s: i64,
) -> Option<&'a Staple> {
    let serial = CertificateNames::read(leaf)?.serial;
    staples.find(|staple| staple.is_about(serial) && staple.is_valid(now_s))
}

/// A certificate should have been renewed when this fraction of its life is left (one in this
/// many).
const LATE_PART: i64 = 6;

/// Warns `warn_s` before the end, or in the last sixth of a shorter life.
pub(super) fn validity_message(
    valid: std::ops::Range<i64>,
    now_s: i64,
    warn_s: i64,
) -> Option<String> {
    let warn_s = warn_s.min((valid.end - valid.start) / LATE_PART);
    match now_s {
        now_s if now_s < valid.start => Some("is not valid yet".to_owned()),
        now_s if now_s >= valid.end => Some("has expired".to_owned()),
        now_s if now_s >= valid.end - warn_s => Some(match valid.end - now_s {
            left_s @ ..172_800 => format!("expires in {} hours", left_s / 3600),
            left_s => format!("expires in {} days", left_s / 86_400),
        }),
        _ => None,
    }
}

/// False if permission is denied.
fn is_readable(path: &str) -> bool {
    let opened = pem_file::open(Path::new(path)).map(drop);
    !opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

fn read_staple(path: &Arc<str>) -> Result<Staple, TlsError> {
    let bytes = read_bytes(Path::new(&**path)).map_err(|error| format!("{path}: {error}"))?;
    Staple::read(&bytes).map_err(|why| format!("{path}: {why}").into())
}
