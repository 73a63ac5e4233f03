//! User and group files, parsed into tables.

use std::collections::HashMap;
use std::hash::BuildHasher;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use md5::{Digest, Md5};

use super::digest::{Algorithm, hex_digest};
use super::password::Password;
use super::user_line_error::UserLineError;

/// Format of a user file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum UserFileFormat {
    /// `name:password`
    Plain,
    /// `name:hash`
    Htpasswd,
    /// `name:realm:HA1`
    Htdigest,
}

/// A parsed file, and the errors in its lines.
pub(super) type Parsed<T> = (T, Vec<String>);

/// Maximum number of bad lines reported one by one; the rest are only counted.
const PROBLEMS_MAX: usize = 10;

/// The users of a file.
pub(super) struct Users {
    kind: UserFileFormat,
    /// In htdigest files `name:realm`.
    places: HashMap<Box<[u8]>, usize, foldhash::fast::RandomState>,
    entries: Vec<Entry>,
}

enum Entry {
    Password(Password),
    /// HA1 of MD5, and of SHA-256, in lower case digits.
    Digest([Option<Box<str>>; 2]),
}

impl Users {
    /// Parses a file; lines with errors are skipped.
    pub(super) fn parse(kind: UserFileFormat, text: &[u8]) -> Parsed<Self> {
        let mut users = Self { kind, places: HashMap::default(), entries: Vec::new() };
        let problems = each_line(text, |line| users.take(line));
        (users, problems)
    }

    fn take(&mut self, line: &str) -> Result<(), UserLineError> {
        let (name, rest) = line.split_once(':').ok_or(UserLineError::NoColonAfterUser)?;
        if name.is_empty() {
            return Err(UserLineError::NoName);
        }
        match self.kind {
            UserFileFormat::Plain => {
                let password = Password::Plain(rest.as_bytes().into());
                self.keep(name.as_bytes(), Entry::Password(password));
            }
            UserFileFormat::Htpasswd => {
                let hash = rest.split_once(':').map_or(rest, |(hash, _)| hash);
                self.keep(name.as_bytes(), Entry::Password(Password::parse(hash.trim_end())?));
            }
            UserFileFormat::Htdigest => self.take_digest(name, rest)?,
        }
        Ok(())
    }

    fn take_digest(&mut self, name: &str, rest: &str) -> Result<(), UserLineError> {
        let (realm, rest) = rest.split_once(':').ok_or(UserLineError::NoColonAfterRealm)?;
        let sum = rest.split_once(':').map_or(rest, |(sum, _)| sum).trim_end();
        let which = match sum.len() {
            32 => 0,
            64 => 1,
            _ => return Err(UserLineError::SumLength),
        };
        if !sum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(UserLineError::SumNotHex);
        }
        let key = format!("{name}:{realm}");
        let mut sums = [None, None];
        if let Some(Entry::Digest(known)) = self.find(key.as_bytes()) {
            sums.clone_from(known);
        }
        sums[which].get_or_insert_with(|| sum.to_ascii_lowercase().into());
        self.keep(key.as_bytes(), Entry::Digest(sums));
        Ok(())
    }

    /// Adds a user. The first line for a user wins, as in Apache.
    fn keep(&mut self, key: &[u8], entry: Entry) {
        match self.places.get(key) {
            Some(&at) if matches!(entry, Entry::Digest(_)) => self.entries[at] = entry,
            Some(_) => {}
            None => {
                self.places.insert(key.into(), self.entries.len());
                self.entries.push(entry);
            }
        }
    }

    fn find(&self, key: &[u8]) -> Option<&Entry> {
        self.places.get(key).map(|&at| &self.entries[at])
    }

    fn key(&self, name: &[u8], realm: &str) -> Vec<u8> {
        match self.kind {
            UserFileFormat::Htdigest => [name, b":", realm.as_bytes()].concat(),
            UserFileFormat::Plain | UserFileFormat::Htpasswd => name.to_vec(),
        }
    }

    /// Verifies a user's password. For an unknown user another, fixed user's password is checked in
    /// vain, so that both take equally long.
    pub(super) fn verify(&self, name: &[u8], realm: &str, password: &[u8]) -> bool {
        let key = self.key(name, realm);
        let known = self.find(&key);
        let decoy = || {
            let at = self.places.hasher().hash_one(key.as_slice());
            let count = u64::try_from(self.entries.len()).ok().filter(|count| *count > 0)?;
            usize::try_from(at % count).ok().map(|at| &self.entries[at])
        };
        let Some(entry) = known.or_else(decoy) else { return false };
        let same = match entry {
            Entry::Password(kept) => kept.verify(password),
            Entry::Digest(sums) => verify_digest(sums, name, realm, password),
        };
        same && known.is_some()
    }

    /// HA1: the hash of name, realm and password.
    pub(super) fn ha1(&self, name: &[u8], realm: &str, algorithm: Algorithm) -> Option<String> {
        match self.find(&self.key(name, realm))? {
            Entry::Password(Password::Plain(password)) => {
                Some(hex_digest(algorithm, &[name, realm.as_bytes(), password]))
            }
            Entry::Password(_) => None,
            Entry::Digest(sums) => {
                sums[usize::from(algorithm.is_sha256())].as_deref().map(str::to_owned)
            }
        }
    }

    /// The user with this hash of name and realm (RFC 7616 section 3.4.4). Takes a hash per user.
    pub(super) fn unhash(&self, hash: &str, realm: &str, algorithm: Algorithm) -> Option<Vec<u8>> {
        let names = self.places.keys().filter_map(|key| match self.kind {
            UserFileFormat::Htdigest => key.strip_suffix(realm.as_bytes())?.strip_suffix(b":"),
            UserFileFormat::Plain | UserFileFormat::Htpasswd => Some(&**key),
        });
        let same = |name: &&[u8]| hex_digest(algorithm, &[name, realm.as_bytes()]) == hash;
        names.into_iter().find(same).map(<[u8]>::to_vec)
    }
}

fn verify_digest(sums: &[Option<Box<str>>; 2], name: &[u8], realm: &str, password: &[u8]) -> bool {
    let [md5, sha256] = sums;
    let parts = [name, realm.as_bytes(), password];
    match (sha256, md5) {
        (Some(sum), _) => verify_slices_are_equal(
            sum.as_bytes(),
            hex_digest(Algorithm::Sha256, &parts).as_bytes(),
        )
        .is_ok(),
        (None, Some(sum)) => {
            verify_slices_are_equal(sum.as_bytes(), hex_digest(Algorithm::Md5, &parts).as_bytes())
                .is_ok()
        }
        (None, None) => false,
    }
}

/// Group members: lines of `group: name name`.
#[derive(Default)]
pub(super) struct Groups {
    members: HashMap<Box<str>, Vec<Box<[u8]>>, foldhash::fast::RandomState>,
}

impl Groups {
    /// Reads a file.
    pub(super) fn parse(text: &[u8]) -> Parsed<Self> {
        let mut groups = Self::default();
        let problems = each_line(text, |line| {
            let (name, rest) = line.split_once(':').ok_or(UserLineError::NoColonAfterGroup)?;
            let names = rest.split([' ', '\t', ',']).filter(|name| !name.is_empty());
            let members = groups.members.entry(name.trim().into()).or_default();
            members.extend(names.map(|name| name.as_bytes().into()));
            Ok(())
        });
        (groups, problems)
    }

    /// True if the user is in the group.
    pub(super) fn contains(&self, group: &str, name: &[u8]) -> bool {
        self.members.get(group).is_some_and(|members| members.iter().any(|one| **one == *name))
    }
}

/// Calls `take` for every non-empty line; returns errors with line numbers.
fn each_line(text: &[u8], mut take: impl FnMut(&str) -> Result<(), UserLineError>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut more = 0;
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let taken =
            std::str::from_utf8(line).map_err(|_| UserLineError::NotUtf8).and_then(&mut take);
        match taken {
            Ok(()) => {}
            Err(problem) if problems.len() < PROBLEMS_MAX => {
                problems.push(format!("line {}: {problem}", at + 1));
            }
            Err(_) => more += 1,
        }
    }
    if more > 0 {
        problems.push(format!("{more} more lines are wrong"));
    }
    problems
}

/// Checksum for detecting changed contents; not for secrets.
pub(super) fn sum(text: &[u8]) -> [u8; 16] {
    Md5::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_files_hold_what_they_say() {
        let (users, problems) =
            Users::parse(UserFileFormat::Plain, b"# c\nkim:a:b \r\n\nlee:\nkim:c\nx\n:y\n");
        assert_eq!(problems, ["line 6: no colon behind the user's name", "line 7: no user's name"]);
        assert!(users.verify(b"kim", "r", b"a:b "));
        assert!(!users.verify(b"kim", "r", b"c"), "the first line counts");
        assert!(users.verify(b"lee", "r", b""));
        assert!(!users.verify(b"nobody", "r", b"a:b "));
        assert!(!users.verify(b"nobody", "r", b""));
        let ha1 = hex_digest(Algorithm::Md5, &[b"kim", b"r", b"a:b "]);
        assert_eq!(users.ha1(b"kim", "r", Algorithm::Md5), Some(ha1));
        let hash = hex_digest(Algorithm::Sha256, &[b"lee", b"r"]);
        assert_eq!(users.unhash(&hash, "r", Algorithm::Sha256), Some(b"lee".to_vec()));
        assert_eq!(users.unhash(&hash, "s", Algorithm::Sha256), None);
    }

    #[test]
    fn htdigest_files_have_realms() {
        let md5 = hex_digest(Algorithm::Md5, &[b"kim", b"r", b"secret"]);
        let sha = hex_digest(Algorithm::Sha256, &[b"kim", b"s", b"secret"]);
        let text = format!("kim:r:{md5}\nkim:s:{}\nkim:r:zz\n", sha.to_uppercase());
        let (users, problems) = Users::parse(UserFileFormat::Htdigest, text.as_bytes());
        assert_eq!(problems.len(), 1);
        assert!(users.verify(b"kim", "r", b"secret"));
        assert!(users.verify(b"kim", "s", b"secret"));
        assert!(!users.verify(b"kim", "t", b"secret"));
        assert_eq!(users.ha1(b"kim", "r", Algorithm::Md5), Some(md5));
        assert_eq!(users.ha1(b"kim", "r", Algorithm::Sha256), None);
        let hash = hex_digest(Algorithm::Md5, &[b"kim", b"r"]);
        assert_eq!(users.unhash(&hash, "r", Algorithm::Md5), Some(b"kim".to_vec()));
    }

    #[test]
    fn problems_are_counted() {
        let text = "bad\n".repeat(PROBLEMS_MAX + 2);
        let (_, problems) = Users::parse(UserFileFormat::Htpasswd, text.as_bytes());
        assert_eq!(problems.len(), PROBLEMS_MAX + 1);
        assert_eq!(problems.last().map(String::as_str), Some("2 more lines are wrong"));
    }

    #[test]
    fn groups_have_members() {
        let (groups, problems) = Groups::parse(b"admins: kim lee\nadmins:ann,bob\nnone\n");
        assert_eq!(problems.len(), 1);
        for name in [&b"kim"[..], b"lee", b"ann", b"bob"] {
            assert!(groups.contains("admins", name));
        }
        assert!(!groups.contains("admins", b"eve") && !groups.contains("users", b"kim"));
    }
}
