//! The file with sessions that have ended before their time, so that a restart, a reload or an
//! upgrade revives none.
//!
//! A line for each: a JSON array of provider, name, the second in which it ended, and the second in
//! which it would have ended by itself. The empty name stands for everything that began until then.
//! Lines are appended under a lock; a file beyond its limit is replaced by one with those that
//! still count. Several processes may share the file. Lines that cannot be read are skipped: a full
//! disk or a power failure may have cut them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use lighty_io::clock::deadline::Deadline;
use lighty_io::file::followed::{Followed, FollowedContents};
use lighty_io::sandbox;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

#[cfg(doc)]
use crate::revocations::NAME_BYTES_MAX;
use crate::revocations::ends;

/// Size in bytes beyond which the file is replaced by a shorter one.
pub const ENDED_FILE_BYTES_MAX: u64 = 4 << 20;

/// Size in bytes of the shorter one.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Maximum length in bytes of a line. A name of [`NAME_BYTES_MAX`] fits in any case.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Time for which a process waits for the lock. Others hold it for the time of a write.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Interval at which it tries.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// A line: provider, name, second of the end, and second until which it counts.
type EndedLine<'a> = (&'a str, &'a str, i64, i64);

/// The seconds in which sessions have ended, by provider and name.
#[derive(Default)]
pub struct EndedList(HashMap<Box<str>, EndedNames, RandomState>);

type EndedNames = HashMap<Box<str>, i64, RandomState>;

impl FollowedContents for EndedList {
    const KIND: &'static str = "ended sessions";

    fn entries(&self) -> u64 {
        self.0.values().map(|names| names.len() as u64).sum()
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

impl EndedList {
    fn parse(bytes: Vec<u8>) -> io::Result<Self> {
        let mut list = Self::default();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let (provider, name, at_s, _) = match serde_json::from_slice::<OwnedLine>(line) {
                Ok(line) => line,
                Err(error) if number > 0 || error.is_eof() => continue,
                Err(_) => return Err(io::Error::other("line 1 is no ended session")),
            };
            let names = list.0.entry(provider.into()).or_default();
            let known_s = names.entry(name.into()).or_insert(at_s);
            *known_s = at_s.max(*known_s);
        }
        Ok(list)
    }

    fn has_ended(&self, provider: &str, names: &[String], began_s: i64) -> bool {
        let Some(ended) = self.0.get(provider) else { return false };
        let mut names = names.iter().map(String::as_str).chain([""]);
        names.any(|name| ended.get(name).is_some_and(|at_s| ends(name, *at_s, began_s)))
    }
}

type OwnedLine = (String, String, i64, i64);

/// The file. Equal paths are one file in the whole process.
#[derive(Clone)]
pub struct EndedFile(Arc<Followed<EndedList>>);

impl std::fmt::Debug for EndedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EndedFile").field(&self.0.path()).finish()
    }
}

impl EndedFile {
    /// The file with this path, which need not exist.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        // A file with lines beyond the limit is on the way to be replaced.
        let bytes_max = ENDED_FILE_BYTES_MAX + LINE_BYTES_MAX as u64;
        Self(Followed::at(path, bytes_max, EndedList::parse))
    }

    /// Reads the file, if it exists. Blocks.
    ///
    /// # Errors
    /// It cannot be read, or is another file, with the path.
    pub fn read(&self) -> io::Result<()> {
        self.0.read()
    }

    /// True if a session of the provider that began in this second and has one of these names has
    /// ended, as of the latest look at the file.
    #[must_use]
    pub fn has_ended(&self, provider: &str, names: &[String], began_s: i64) -> bool {
        let list = self.0.contents();
        list.is_some_and(|list| list.has_ended(provider, names, began_s))
    }

    /// Checks that the file's directory exists. Blocks.
    ///
    /// # Errors
    /// It does not, or cannot be looked at, with its path.
    pub fn check_directory(&self) -> io::Result<()> {
        let directory = self.0.path().parent().unwrap_or(Path::new("."));
        let fault = match fs::metadata(directory) {
            Ok(meta) if meta.is_dir() => return Ok(()),
            Ok(_) => io::Error::from(io::ErrorKind::NotADirectory),
            Err(error) => error,
        };
        let text = format!("{}: {}", directory.display(), lighty_io::os_text(&fault));
        Err(io::Error::new(fault.kind(), text))
    }

    /// Adds a session. Blocks.
    ///
    /// # Errors
    /// Errors of the system, with the path; the line is too long.
    pub fn add(&self, provider: &str, name: &str, now_s: i64, until_s: i64) -> io::Result<()> {
        let path = self.0.path();
        append(path, (provider, name, now_s, until_s)).map_err(|error| {
            let text = format!("{}: {}", path.display(), lighty_io::os_text(&error));
            io::Error::new(error.kind(), text)
        })
    }
}

fn append(path: &Path, line: EndedLine<'_>) -> io::Result<()> {
    let now_s = line.2;
    let line = text_of(&line)?;
    if line.len() > LINE_BYTES_MAX {
        return Err(io::Error::other("the name of the session is too long"));
    }
    let mut file = open_locked(path)?;
    let length = file.metadata()?.len();
    if length + line.len() as u64 <= ENDED_FILE_BYTES_MAX {
        // The last line may be incomplete.
        let separator = if ends_line(&file, length)? { "" } else { "\n" };
        file.write_all(format!("{separator}{line}").as_bytes())?;
        return file.sync_data();
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    replace(path, &file, &(shortened(&text, now_s)? + &line))
}

/// Puts another file in the place of the locked one, with its mode.
fn replace(path: &Path, locked: &File, text: &str) -> io::Result<()> {
    // A link stays one.
    let path = fs::canonicalize(path)?;
    let beside = beside(&path);
    // Left by a process that was killed: all others wait for the lock.
    let _ = fs::remove_file(&beside);
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let opened = options.open(&beside);
    let mut file = opened.map_err(|error| sandbox::explained_write(&beside, error))?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.set_permissions(locked.metadata()?.permissions()))
        .and_then(|()| file.sync_data());
    let replaced = written.and_then(|()| fs::rename(&beside, &path));
    replaced.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Opens the file that the path names while its lock is held.
fn open_locked(path: &Path) -> io::Result<File> {
    let deadline = Deadline::after(LOCK_PATIENCE);
    loop {
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(path).map_err(|error| sandbox::explained_write(path, error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) if deadline.is_over() => {
                return Err(io::Error::other("another process holds its lock"));
            }
            Err(Errno::WOULDBLOCK) => {
                std::thread::sleep(LOCK_INTERVAL);
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        let (ours, named) = (file.metadata()?, fs::metadata(path));
        // Another process may have replaced it meanwhile.
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
            return Ok(file);
        }
    }
}

fn ends_line(file: &File, length: u64) -> io::Result<bool> {
    let mut last = [b'\n'];
    if length > 0 {
        std::os::unix::fs::FileExt::read_exact_at(file, &mut last, length - 1)?;
    }
    Ok(last == [b'\n'])
}

/// The lines that still count, one for a name. Without room, the oldest ones become one that stands
/// for all of their time: it ends further sessions, and revives none.
fn shortened(text: &[u8], now_s: i64) -> io::Result<String> {
    let mut names: HashMap<(String, String), (i64, i64), RandomState> = HashMap::default();
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(line) = serde_json::from_slice::<OwnedLine>(line) else { continue };
        let (provider, name, at_s, until_s) = line;
        let latest = names.entry((provider, name)).or_insert((at_s, until_s));
        *latest = (latest.0.max(at_s), latest.1.max(until_s));
    }
    let mut lines: Vec<_> =
        names.into_iter().filter(|(_, (_, until_s))| *until_s > now_s).collect();
    lines.sort_by_key(|(_, (at_s, _))| *at_s);
    let mut kept = Vec::new();
    let mut bytes = 0;
    while let Some(((provider, name), (at_s, until_s))) = lines.pop() {
        let line = text_of(&(&*provider, &*name, at_s, until_s))?;
        bytes += line.len();
        if bytes > KEPT_BYTES_MAX {
            lines.push(((provider, name), (at_s, until_s)));
            break;
        }
        kept.push(line);
    }
    let mut dropped: HashMap<String, (i64, i64), RandomState> = HashMap::default();
    for ((provider, _), (at_s, until_s)) in lines {
        let latest = dropped.entry(provider).or_insert((at_s, until_s));
        *latest = (latest.0.max(at_s), latest.1.max(until_s));
    }
    for (provider, (at_s, until_s)) in dropped {
        kept.push(text_of(&(&*provider, "", at_s, until_s))?);
    }
    kept.reverse();
    Ok(kept.concat())
}

fn text_of(line: &EndedLine<'_>) -> io::Result<String> {
    Ok(serde_json::to_string(line)? + "\n")
}

/// The path of the file that takes its place.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn ended_sessions_are_found_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ended");
        let file = EndedFile::at(&path);
        file.read().expect("it need not exist");
        assert!(!file.has_ended("corp", &names(&["sid:a"]), 1));
        file.add("corp", "sid:a", 100, 200).expect("added");
        file.add("corp", "sid:a", 90, 200).expect("added");
        file.add("corp", "sub:\"\n", 100, 200).expect("added");
        file.read().expect("read");
        for (provider, name, began_s, has_ended) in [
            ("corp", "sid:a", 100, true),
            ("corp", "sid:a", 101, false),
            ("corp", "sub:\"\n", 100, true),
            ("corp", "sid:b", 1, false),
            ("other", "sid:a", 1, false),
        ] {
            let found = file.has_ended(provider, &names(&["id:x", name]), began_s);
            assert_eq!(found, has_ended, "{provider} {name} {began_s}");
        }
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
    }

    #[test]
    fn incomplete_line_harms_no_other() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ended");
        let file = EndedFile::at(&path);
        file.add("corp", "sid:a", 100, 200).expect("added");
        let mut cut = OpenOptions::new().append(true).open(&path).expect("open");
        // Within a character.
        cut.write_all(b"[\"corp\",\"sid:\xc3").expect("written");
        file.add("corp", "sid:c", 100, 200).expect("added");
        file.read().expect("read");
        assert!(["sid:a", "sid:c"].iter().all(|name| file.has_ended("corp", &names(&[name]), 100)));
        let text = fs::read(&path).expect("text");
        fs::write(&path, [&text[..], b"\n\0\0\0\0", b"\n", &text].concat()).expect("written");
        file.read().expect("lines of zeros are skipped");
        assert!(file.has_ended("corp", &names(&["sid:c"]), 100));
        fs::write(&path, "bind-pw = hush\n").expect("written");
        let error = file.read().expect_err("another file").to_string();
        assert!(error.contains("line 1 is no ended session") && !error.contains("hush"), "{error}");
        let long = file.add("corp", &"x".repeat(LINE_BYTES_MAX), 100, 200);
        assert!(long.is_err_and(|error| error.to_string().contains("too long")));
    }

    #[test]
    fn full_file_becomes_shorter_and_revives_no_session() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ended");
        let line = |number: i64, until_s| {
            text_of(&("corp", &*format!("sid:{number:0>100}"), number, until_s)).expect("JSON")
        };
        let name = |number: i64| names(&[&format!("sid:{number:0>100}")]);
        let count = ENDED_FILE_BYTES_MAX as i64 / line(30_000, 1_000_000).len() as i64;
        let all: String = (10_000..10_000 + count).map(|number| line(number, 1_000_000)).collect();
        fs::write(&path, &all).expect("written");
        let file = EndedFile::at(&path);
        let last = 10_000 + count;
        for number in [last, last + 1, last + 2] {
            file.add("corp", &name(number)[0], number, 1_000_000).expect("added");
        }
        let length = fs::metadata(&path).expect("a file").len();
        assert!(length < ENDED_FILE_BYTES_MAX && length > KEPT_BYTES_MAX as u64 / 2, "{length}");
        file.read().expect("read");
        for number in [10_000, 10_001, last - 1, last + 2] {
            assert!(file.has_ended("corp", &name(number), number), "{number}");
        }
        assert!(file.has_ended("corp", &names(&["sid:other"]), 10_000), "as old as the first");
        assert!(!file.has_ended("corp", &names(&["sid:other"]), last), "a late one");
        assert!(!file.has_ended("other", &names(&["sid:other"]), 1));
        assert!(!file.has_ended("other", &names(&["id:x"]), 1));
        // Repeated lines, and then those that no longer count, go first.
        let repeated = line(last, 1_000_000).repeat(usize::try_from(count).expect("a count"));
        fs::write(&path, repeated).expect("written");
        (0..2).for_each(|_| file.add("corp", &name(last)[0], last, 1_000_000).expect("added"));
        file.read().expect("read");
        assert!(!file.has_ended("corp", &names(&["sid:other"]), last), "nothing else has ended");
        assert!(fs::metadata(&path).expect("a file").len() < 400);
        fs::write(&path, all.replace(",1000000]", ",      2]")).expect("written");
        (0..2).for_each(|_| file.add("corp", &name(last)[0], last, 1_000_000).expect("added"));
        let length = fs::metadata(&path).expect("a file").len();
        assert!(length < 400, "{length}");
        assert!(!beside(&path).exists());
    }

    #[test]
    fn lock_is_waited_for_a_while_and_links_and_modes_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, link) = (directory.path().join("ended"), directory.path().join("link"));
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let file = EndedFile::at(&link);
        file.add("corp", "sid:a", 100, 200).expect("added");
        let held = File::open(&path).expect("open");
        flock(&held, FlockOperation::LockExclusive).expect("locked");
        let error = file.add("corp", "sid:b", 100, 200).expect_err("locked").to_string();
        assert!(error.contains("another process holds its lock"), "{error}");
        drop(held);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).expect("a mode");
        fs::write(&path, "x".repeat(ENDED_FILE_BYTES_MAX as usize)).expect("written");
        fs::write(beside(&path), "left").expect("written");
        file.add("corp", "sid:c", 100, 200).expect("added");
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        let meta = fs::metadata(&path).expect("a file");
        assert_eq!((meta.mode() & 0o777, meta.len() < 100), (0o660, true));
        assert!(!beside(&path).exists());
    }
}
