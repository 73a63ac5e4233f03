//! Keys of session tickets: generated and rotated here, or read from a file that several processes
//! and machines share (`ssl.stek-file`).

use std::fmt::{self, Debug};
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hkdf, rand};
use rustls::server::ProducesTickets;

use crate::clock::Clock;
use crate::file::small_file::{SmallFile, Stamp};

/// Seconds after which a generated key is replaced, as in lighttpd.
const ROTATE_S: i64 = 8 * 3_600;
/// Seconds for which a generated key's tickets are accepted.
const LIFETIME_S: i64 = 24 * 3_600;
/// Maximum number of keys kept.
const KEYS_MAX: usize = 4;
/// The size of lighttpd's key file: version, two times, a name and two keys.
const FILE_BYTES: usize = 92;
/// Maximum bytes read of a key file, so that one of a wrong size can be reported.
const FILE_BYTES_MAX: u64 = 64 << 10;

const NAME_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
const SECRET_BYTES: usize = 64;
/// Bytes of a key between two processes.
const EXPORT_BYTES: usize = NAME_BYTES + SECRET_BYTES + 16;

#[derive(Clone)]
struct TicketKey {
    name: [u8; NAME_BYTES],
    secret: [u8; SECRET_BYTES],
    /// Times from which it encrypts, and until which it decrypts, in seconds since 1970.
    active_from_s: i64,
    expires_s: i64,
}

/// The ticket keys of the process, shared by workers and generations.
#[derive(Clone, Default)]
pub struct TicketKeys(Arc<RwLock<Keys>>);

#[derive(Default)]
struct Keys {
    /// Newest first.
    keys: Vec<TicketKey>,
    /// The file's stamp when it was read.
    file: Option<Stamp>,
}

impl TicketKeys {
    /// Generates a key if the newest one is too old. For keys that are not read from a file.
    pub fn rotate(&self, now_s: i64) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.keys.retain(|key| key.expires_s > now_s);
        let is_due = all.keys.first().is_none_or(|key| now_s - key.active_from_s >= ROTATE_S);
        let (mut name, mut secret) = ([0; NAME_BYTES], [0; 64]);
        // Without random bytes there are no tickets, and every handshake is a full one.
        if is_due && rand::fill(&mut name).is_ok() && rand::fill(&mut secret).is_ok() {
            let (active_from_s, expires_s) = (now_s, now_s + LIFETIME_S);
            all.keys.insert(0, TicketKey { name, secret, active_from_s, expires_s });
            all.keys.truncate(KEYS_MAX);
        }
    }

    /// Reads the key file if it has changed.
    ///
    /// # Errors
    /// The system's error, and `InvalidData` for a file of another format; the keys stay.
    pub fn read_file(&self, path: &Path, now_s: i64) -> io::Result<()> {
        // Opened before the lock is taken, because handshakes wait for that lock.
        let file = SmallFile::open(path)?;
        let stamp = file.stamp();
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.keys.retain(|key| key.expires_s > now_s);
        if all.file == Some(stamp) {
            return Ok(());
        }
        let key = parse(&file.read(FILE_BYTES_MAX)?)?;
        all.file = Some(stamp);
        all.keys.retain(|known| known.name != key.name);
        if key.expires_s > now_s {
            all.keys.insert(0, key);
        }
        all.keys.truncate(KEYS_MAX);
        Ok(())
    }

    /// The keys, for another process of this server: for each one its name, its secret and the two
    /// times, in native byte order.
    pub fn export(&self) -> Vec<u8> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = Vec::with_capacity(all.keys.len() * EXPORT_BYTES);
        for key in &all.keys {
            bytes.extend_from_slice(&key.name);
            bytes.extend_from_slice(&key.secret);
            bytes.extend_from_slice(&key.active_from_s.to_ne_bytes());
            bytes.extend_from_slice(&key.expires_s.to_ne_bytes());
        }
        bytes
    }

    /// Takes the keys of the process before this one. Skips what is not whole.
    pub fn import(&self, bytes: &[u8]) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for key in bytes.chunks_exact(EXPORT_BYTES).take(KEYS_MAX) {
            let (mut name, mut secret) = ([0; NAME_BYTES], [0; SECRET_BYTES]);
            let (mut from, mut until) = ([0; 8], [0; 8]);
            name.copy_from_slice(&key[..NAME_BYTES]);
            secret.copy_from_slice(&key[NAME_BYTES..EXPORT_BYTES - 16]);
            from.copy_from_slice(&key[EXPORT_BYTES - 16..EXPORT_BYTES - 8]);
            until.copy_from_slice(&key[EXPORT_BYTES - 8..]);
            let (active_from_s, expires_s) = (i64::from_ne_bytes(from), i64::from_ne_bytes(until));
            all.keys.push(TicketKey { name, secret, active_from_s, expires_s });
        }
    }

    /// Tickets for connections of one policy. Tickets of other policies are not accepted, because a
    /// session keeps the result of the verification at its start.
    pub(super) fn for_policy(&self, policy: &str) -> Arc<dyn ProducesTickets> {
        Arc::new(Tickets { keys: self.clone(), policy: policy.to_owned() })
    }
}

impl Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys")
    }
}

/// Parses lighttpd's format: version 0, active-from and expires as native 32-bit numbers, a name of
/// 16 bytes, an HMAC key and an AES key of 32 bytes each.
fn parse(bytes: &[u8]) -> io::Result<TicketKey> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let bytes: &[u8; FILE_BYTES] = bytes.try_into().map_err(|_| {
        wrong(&format!("it has {} bytes, a key file has {FILE_BYTES}", bytes.len()))
    })?;
    let number =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if number(0) != 0 {
        return Err(wrong("its format is not version 0"));
    }
    let (mut name, mut secret) = ([0; NAME_BYTES], [0; 64]);
    name.copy_from_slice(&bytes[12..28]);
    secret.copy_from_slice(&bytes[28..]);
    let (active_from_s, expires_s) = (i64::from(number(4)), i64::from(number(8)));
    Ok(TicketKey { name, secret, active_from_s, expires_s })
}

#[derive(Debug)]
struct Tickets {
    keys: TicketKeys,
    policy: String,
}

struct Length32;

impl hkdf::KeyType for Length32 {
    fn len(&self) -> usize {
        32
    }
}

impl Tickets {
    fn cipher(&self, key: &TicketKey) -> Option<RandomizedNonceKey> {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, &key.name).extract(&key.secret);
        let info = [self.policy.as_bytes()];
        let mut bytes = [0; 32];
        prk.expand(&info, Length32).ok()?.fill(&mut bytes).ok()?;
        RandomizedNonceKey::new(&AES_256_GCM, &bytes).ok()
    }
}

fn wall_s() -> i64 {
    Clock::start().unix_s()
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_S as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let all = self.keys.0.read().unwrap_or_else(PoisonError::into_inner);
        let now_s = wall_s();
        let key =
            all.keys.iter().find(|key| (key.active_from_s..key.expires_s).contains(&now_s))?;
        let mut sealed = plain.to_vec();
        let cipher = self.cipher(key)?;
        let nonce = cipher.seal_in_place_append_tag(Aad::from(&key.name), &mut sealed).ok()?;
        Some([&key.name[..], nonce.as_ref(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_BYTES)?;
        let all = self.keys.0.read().unwrap_or_else(PoisonError::into_inner);
        let now_s = wall_s();
        let key = all.keys.iter().find(|key| key.name == name && key.expires_s > now_s)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut opened = sealed.to_vec();
        let cipher = self.cipher(key)?;
        let length = cipher.open_in_place(nonce, Aad::from(&key.name), &mut opened).ok()?.len();
        opened.truncate(length);
        Some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: u8, active_from_s: u32, expires_s: u32) -> Vec<u8> {
        let numbers = [0, active_from_s, expires_s].map(u32::to_ne_bytes).concat();
        [numbers, vec![name; 16], vec![7; 64]].concat()
    }

    #[test]
    fn tickets_are_taken_under_the_same_policy_alone() {
        let keys = TicketKeys::default();
        let (one, other) = (keys.for_policy("a"), keys.for_policy("b"));
        assert_eq!(one.encrypt(b"state"), None);
        keys.rotate(wall_s());
        let ticket = one.encrypt(b"state").expect("a ticket");
        assert_eq!(one.decrypt(&ticket).as_deref(), Some(&b"state"[..]));
        assert_eq!(keys.for_policy("a").decrypt(&ticket).as_deref(), Some(&b"state"[..]));
        assert_eq!(other.decrypt(&ticket), None);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(one.decrypt(&changed), None, "{at}");
            assert_eq!(one.decrypt(&ticket[..at]), None, "{at}");
        }
    }

    #[test]
    fn keys_rotate_and_expire() {
        let keys = TicketKeys::default();
        let now_s = wall_s();
        keys.rotate(now_s - ROTATE_S);
        let ticket = keys.for_policy("a").encrypt(b"state").expect("a ticket");
        keys.rotate(now_s);
        let next = keys.for_policy("a").encrypt(b"state").expect("a ticket");
        assert_ne!(ticket[..NAME_BYTES], next[..NAME_BYTES]);
        assert!(keys.for_policy("a").decrypt(&ticket).is_some());
        keys.rotate(now_s - ROTATE_S + LIFETIME_S);
        assert!(keys.for_policy("a").decrypt(&ticket).is_none());
    }

    #[test]
    fn the_latest_keys_are_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let now_s = wall_s();
        let numbers = |count: usize| {
            let keys = TicketKeys::default();
            for number in 1..=count as u8 {
                // Another path is another file, whatever its time.
                let path = directory.path().join(number.to_string());
                let bytes = file(number, now_s as u32 - 10, now_s as u32 + 100);
                std::fs::write(&path, bytes).expect("written");
                keys.read_file(&path, now_s).expect("read");
            }
            let all = keys.0.read().expect("no panic");
            all.keys.iter().map(|key| key.name[0]).collect::<Vec<_>>()
        };
        assert_eq!(numbers(KEYS_MAX), [4, 3, 2, 1]);
        assert_eq!(numbers(KEYS_MAX + 1), [5, 4, 3, 2]);
    }

    #[test]
    fn a_key_file_is_lighttpds() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("stek");
        let now_s = wall_s();
        let now = now_s as u32;
        let (one, other) = (TicketKeys::default(), TicketKeys::default());
        std::fs::write(&path, file(1, now - 10, now + 100)).expect("write");
        one.read_file(&path, now_s).expect("read");
        other.read_file(&path, now_s).expect("read");
        let ticket = one.for_policy("a").encrypt(b"state").expect("a ticket");
        assert!(other.for_policy("a").decrypt(&ticket).is_some(), "another process");
        // The next key is read before it becomes active.
        std::fs::write(&path, file(2, now + 50, now + 200)).expect("write");
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .expect("open")
            .set_modified(later)
            .expect("time");
        one.read_file(&path, now_s).expect("read");
        assert_eq!(one.for_policy("a").encrypt(b"state").expect("a ticket")[0], 1);
        // A FIFO without a writer does not block.
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).expect("made");
        let refused = one.read_file(&fifo, now_s).expect_err("no file");
        assert!(refused.to_string().contains("not a regular file"), "{refused}");
        for wrong in [file(1, 0, 0)[..91].to_vec(), [file(1, 0, 0), vec![0]].concat()] {
            assert!(parse(&wrong).is_err());
        }
        let mut version = file(1, 0, 0);
        version[0] = 1;
        assert!(parse(&version).is_err());
    }
}
