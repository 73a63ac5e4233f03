//! The directory of all files: certificates with their keys, accounts, responses to challenges, the
//! progress of orders. Processes and machines may share it.
//!
//! A file is written beside its place, synced to the disk and renamed, so that no process reads a
//! part of it. A file that cannot be read counts as missing.

mod lock;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::entropy::random_bytes;
use lighty_io::file::small_file::Stamp;
use lighty_io::tls::examine;
use serde_json::{Value, json};

use crate::error::OrderError;
use crate::schedule::{OrderProgress, Window};

pub(crate) use lock::{Lock, TOUCH_EVERY};

/// Directories of the store, except the one for locks.
const CERTIFICATES: &str = "certificates";
const ACCOUNTS: &str = "accounts";
const PROGRESS: &str = "progress";
const RENEW: &str = "renew";
const LOCKS: &str = "locks";
const HTTP_01: &str = "challenges/http-01";
const TLS_ALPN_01: &str = "challenges/tls-alpn-01";

/// All directories, parents first.
const DIRECTORIES: [&str; 9] =
    ["", CERTIFICATES, ACCOUNTS, PROGRESS, RENEW, LOCKS, "challenges", HTTP_01, TLS_ALPN_01];

/// Bytes reserved on the disk before an order: more than any certificate with its key.
const RESERVED_BYTES: usize = 32 << 10;

/// Age of a proof that no order needs any more.
const LEFT_BEHIND: Duration = Duration::from_secs(3_600);

/// Maximum size of a file of the store.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    directory: PathBuf,
}

/// A certificate's name in the store: its first host, with a wildcard's star written as `_`.
pub fn file_name(names: &[String]) -> String {
    names.first().map_or_else(String::new, |name| name.replacen('*', "_", 1))
}

impl Store {
    /// The store in this directory.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Creates missing directories, accessible by their owner only.
    ///
    /// # Errors
    /// The system's error, with the path in the text.
    pub fn prepare(&self, owner: Option<(u32, u32)>) -> io::Result<()> {
        for name in DIRECTORIES {
            let path = self.directory.join(name);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
            let owned = made.and_then(|()| match owner {
                Some((user, group)) => std::os::unix::fs::chown(&path, Some(user), Some(group)),
                None => Ok(()),
            });
            owned.map_err(|error| at(&path, &error))?;
        }
        Ok(())
    }

    /// Checks that [`prepare`](Self::prepare) and writing files would succeed, and leaves nothing
    /// behind.
    ///
    /// # Errors
    /// The system's error, with the path in the text.
    pub fn try_place(&self) -> io::Result<()> {
        for name in DIRECTORIES {
            let path = self.directory.join(name);
            let there = path.ancestors().find(|path| !path.as_os_str().is_empty() && path.exists());
            let tried =
                there.unwrap_or(Path::new(".")).join(format!(".try-{}", std::process::id()));
            let made = DirBuilder::new().mode(0o700).create(&tried);
            made.and_then(|()| std::fs::remove_dir(&tried)).map_err(|error| at(&path, &error))?;
        }
        Ok(())
    }

    /// Path of the certificate with its key.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.directory.join(CERTIFICATES).join(format!("{name}.pem"))
    }

    /// Directory of the responses to HTTP challenges, named by their tokens.
    pub fn http_challenges(&self) -> PathBuf {
        self.directory.join(HTTP_01)
    }

    /// Path of the response to a challenge in a handshake, named by the host.
    pub fn handshake_challenge(&self, host: &str) -> PathBuf {
        self.directory.join(TLS_ALPN_01).join(format!("{host}.pem"))
    }

    pub(crate) fn account(&self, id: &str) -> PathBuf {
        self.directory.join(ACCOUNTS).join(format!("{id}.json"))
    }

    pub(crate) fn lock(&self, name: &str) -> PathBuf {
        self.directory.join(LOCKS).join(format!("{name}.lock"))
    }

    /// Takes a certificate's lock; `None` if another process has it.
    ///
    /// # Errors
    /// The system's error, with the path in the text.
    pub(crate) fn take_lock(&self, name: &str) -> io::Result<Option<Lock>> {
        let path = self.lock(name);
        Lock::take(&path).map_err(|error| at(&path, &error))
    }

    fn progress_file(&self, name: &str) -> PathBuf {
        self.directory.join(PROGRESS).join(format!("{name}.json"))
    }

    /// The names of the certificates in the store.
    pub fn certificates(&self) -> Vec<String> {
        let files = fs::read_dir(self.directory.join(CERTIFICATES)).into_iter().flatten();
        let mut names: Vec<String> = files
            .filter_map(|entry| {
                Some(entry.ok()?.file_name().to_str()?.strip_suffix(".pem")?.into())
            })
            .filter(|name: &String| !name.starts_with('.'))
            .collect();
        names.sort_unstable();
        names
    }

    /// The progress of orders; empty if it cannot be read.
    pub fn progress(&self, name: &str) -> OrderProgress {
        let bytes = read(&self.progress_file(name)).unwrap_or_default();
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let number = |value: &Value| value.as_i64();
        let window = &value["window"];
        OrderProgress {
            failures: value["failures"].as_u64().unwrap_or(0).min(u32::MAX.into()) as u32,
            not_before_s: number(&value["not_before"]).unwrap_or(0),
            error: text("error"),
            issuer: text("issuer"),
            window: number(&window["from"]).zip(number(&window["to"])).map(|(from, to)| Window {
                span_s: from..to,
                ask_again_s: number(&window["ask_again"]).unwrap_or(0),
            }),
        }
    }

    pub(crate) fn keep_progress(&self, name: &str, progress: &OrderProgress) -> io::Result<()> {
        let window = progress.window.as_ref().map(|window| {
            json!({
                "from": window.span_s.start,
                "to": window.span_s.end,
                "ask_again": window.ask_again_s,
            })
        });
        let value = json!({
            "failures": progress.failures,
            "not_before": progress.not_before_s,
            "error": progress.error,
            "issuer": progress.issuer,
            "window": window,
        });
        write(&self.progress_file(name), value.to_string().as_bytes())
    }

    /// Requests a certificate's renewal by the server that maintains the store.
    ///
    /// # Errors
    /// The system's error, with the path in the text.
    pub fn ask_for_renewal(&self, name: &str) -> io::Result<()> {
        write(&self.directory.join(RENEW).join(name), b"")
    }

    /// Stamp of the request for a renewal, if there is one.
    pub(crate) fn requested_renewal(&self, name: &str) -> Option<Stamp> {
        Stamp::of(&self.directory.join(RENEW).join(name)).ok()
    }

    /// Removes leftovers of processes that were killed during an order: space reserved for the
    /// certificate, whose lock the caller holds, and temporary files and proofs that are older than
    /// any order.
    pub(crate) fn sweep(&self, name: &str) {
        let room = format!(".{name}.pem.");
        sweep(&self.directory.join(CERTIFICATES), |file, _| file.starts_with(&room));
        let is_old = |age: Duration| age >= LEFT_BEHIND;
        sweep(&self.directory.join(PROGRESS), |file, age| file.starts_with('.') && is_old(age));
        for proofs in [HTTP_01, TLS_ALPN_01] {
            sweep(&self.directory.join(proofs), |_, age| is_old(age));
        }
    }

    pub(crate) fn forget(&self, name: &str) {
        remove(&self.certificate(name));
        remove(&self.progress_file(name));
    }

    pub(crate) fn renewal_done(&self, name: &str) {
        remove(&self.directory.join(RENEW).join(name));
    }
}

/// Removes the leftovers in a directory, by their names and ages.
fn sweep(directory: &Path, is_left: impl Fn(&str, Duration) -> bool) {
    let now_s = Clock::start().unix_s();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let changed_s = entry.metadata().map_or(now_s, |meta| meta.mtime());
        let age_s = u64::try_from(now_s.saturating_sub(changed_s)).unwrap_or(0);
        if is_left(&entry.file_name().to_string_lossy(), Duration::from_secs(age_s)) {
            remove(&entry.path());
        }
    }
}

/// Reads a file of the store.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    lighty_io::file::small_file::SmallFile::open(path)?.read(FILE_BYTES_MAX)
}

/// Writes a file of the store, accessible by its owner only.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    Reserved::new(path, bytes.len())?.commit(bytes)
}

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

/// Disk space reserved for a future file. Without it an order could lead to a certificate that
/// cannot be saved.
pub(crate) struct Reserved {
    file: File,
    beside: PathBuf,
    path: PathBuf,
    is_committed: bool,
}

impl Reserved {
    /// Reserves space for a certificate.
    pub(crate) fn for_certificate(path: &Path) -> io::Result<Self> {
        Self::new(path, RESERVED_BYTES)
    }

    /// Reserves space for a new version of a small file, with the same owner, even if root writes
    /// it.
    pub(crate) fn in_place_of(path: &Path) -> io::Result<Self> {
        let before = fs::metadata(path).map_err(|error| at(path, &error))?;
        let reserved = Self::new(path, RESERVED_BYTES)?;
        let owner = (Some(before.uid()), Some(before.gid()));
        let owned = std::os::unix::fs::fchown(&reserved.file, owner.0, owner.1);
        owned.map_err(|error| at(path, &error))?;
        Ok(reserved)
    }

    fn new(path: &Path, bytes: usize) -> io::Result<Self> {
        let random = u64::from_ne_bytes(random_bytes()?);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = path.with_file_name(format!(".{name}.{random:016x}"));
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&beside);
        let file = opened.map_err(|error| at(&beside, &error))?;
        let mut reserved = Self { file, beside, path: path.to_owned(), is_committed: false };
        reserved.fill(&vec![0; bytes]).map_err(|error| at(path, &error))?;
        Ok(reserved)
    }

    fn fill(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Seek::rewind(&mut self.file)?;
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }

    /// Writes the file and renames it to its place.
    pub(crate) fn commit(mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes).map_err(|error| at(&self.path, &error))?;
        self.is_committed = true;
        Ok(())
    }

    /// Writes a certificate with its key and renames it to its place, if they belong together.
    pub(crate) fn commit_pair(mut self, bytes: &[u8]) -> Result<(), OrderError> {
        let whole = self.make_whole(bytes).map_err(|error| at(&self.path, &error));
        whole.map_err(OrderError::Store)?;
        examine(&self.beside).map_err(OrderError::Tls)?;
        self.commit(bytes).map_err(OrderError::Store)
    }

    fn make_whole(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.fill(bytes)?;
        self.file.set_len(bytes.len() as u64)?;
        self.file.sync_all()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.make_whole(bytes)?;
        fs::rename(&self.beside, &self.path)?;
        // Makes the rename durable.
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.is_committed {
            remove(&self.beside);
        }
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    let message = format!("{}: {}", path.display(), lighty_io::os_text(error));
    io::Error::new(error.kind(), message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::new(&directory.path().join("a/b"));
        store.prepare(None).expect("a store");
        (directory, store)
    }

    #[test]
    fn files_are_for_their_owner_alone_and_whole() {
        let (_directory, store) = store();
        let path = store.certificate("a.test");
        write(&path, b"first").expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().expect("one"))), (0o600, 0o700));
        drop(Reserved::for_certificate(&path).expect("room"));
        assert_eq!(read(&path).expect("read"), b"first");
        assert_eq!(fs::read_dir(path.parent().expect("one")).expect("listed").count(), 1);
        Reserved::for_certificate(&path).expect("room").commit(b"two").expect("written");
        assert_eq!(read(&path).expect("read"), b"two");
        write(&store.certificate("_.a.test"), b"").expect("written");
        assert_eq!(store.certificates(), ["_.a.test", "a.test"]);
        assert_eq!(file_name(&["*.a.test".to_owned()]), "_.a.test");
    }

    #[test]
    fn sweep_removes_files_that_a_killed_process_left() {
        let (_directory, store) = store();
        let [room, others] = ["a.test", "b.a.test"].map(|name| {
            let path = store.certificate(name);
            path.with_file_name(format!(".{name}.pem.0123456789abcdef"))
        });
        let [old, new] = ["old", "new"].map(|token| store.http_challenges().join(token));
        for path in [&room, &others, &old, &new, &store.certificate("a.test")] {
            fs::write(path, "x").expect("written");
        }
        let hour = std::time::SystemTime::now() - LEFT_BEHIND;
        let file = File::options().write(true).open(&old).expect("open");
        file.set_modified(hour).expect("set");
        store.sweep("a.test");
        assert!(!room.exists() && !old.exists());
        assert!(others.exists() && new.exists() && store.certificate("a.test").exists());
    }

    #[test]
    fn progress_is_kept_and_a_broken_file_counts_as_none() {
        let (_directory, store) = store();
        assert_eq!(store.progress("a.test"), OrderProgress::default());
        let progress = OrderProgress {
            failures: 3,
            not_before_s: 1_000,
            error: "a \"quoted\" reason".to_owned(),
            issuer: "ca.test".to_owned(),
            window: Some(Window { span_s: 5..9, ask_again_s: 7 }),
        };
        store.keep_progress("a.test", &progress).expect("kept");
        assert_eq!(store.progress("a.test"), progress);
        for broken in [&b"{"[..], b"[]", b"{\"failures\":-1,\"window\":3}", &[0xff; 9]] {
            write(&store.progress_file("a.test"), broken).expect("written");
            assert_eq!(store.progress("a.test"), OrderProgress::default());
        }
        assert!(store.requested_renewal("a.test").is_none());
        store.ask_for_renewal("a.test").expect("asked");
        assert!(store.requested_renewal("a.test").is_some());
        store.renewal_done("a.test");
        assert!(store.requested_renewal("a.test").is_none());
    }
}
