//! Rotation of a log file by size and age, on the log's thread.
//!
//! The next file is made beside the present one before anything is renamed: a full disk leaves all
//! files as they are. The log's name never disappears, because the next file is renamed over it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::Clock;
use crate::clock::deadline::Deadline;

/// Largest number of old files.
pub const KEPT_FILES_MAX: u32 = 1000;

/// Time before a failed rotation is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// Rules by which a log file is rotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes that a file may have.
    pub bytes_max: Option<u64>,
    /// Age of a file, in seconds since it was made.
    pub age_max_s: Option<u64>,
    /// Number of old files, at most [`KEPT_FILES_MAX`].
    pub kept_files: u32,
}

/// The rotation of one log.
#[derive(Default)]
pub(super) struct Rotator {
    pub(super) rotation: Option<Rotation>,
    /// The last line that was written has no end yet.
    is_within_line: bool,
    /// Set after a failure.
    pause: Option<Deadline>,
}

/// The next step of a log with lines to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RotationStep {
    /// Write this number of bytes.
    Write(usize),
    /// Rotate first.
    Rotate,
}

impl Rotator {
    /// Decides about the next lines of a file.
    pub(super) fn step(&self, file: &File, lines: &[u8]) -> RotationStep {
        let Some(rotation) = self.rotation.filter(|_| !self.pauses()) else {
            return RotationStep::Write(lines.len());
        };
        let first = line_end(lines);
        if self.is_within_line {
            return RotationStep::Write(first);
        }
        let Some(meta) = file.metadata().ok().filter(fs::Metadata::is_file) else {
            return RotationStep::Write(lines.len());
        };
        let room = rotation.bytes_max.map_or(u64::MAX, |max| max.saturating_sub(meta.len()));
        let is_old = || rotation.age_max_s.is_some_and(|max_s| age_s(&meta) >= max_s);
        if meta.len() > 0 && (room < first as u64 || is_old()) {
            return RotationStep::Rotate;
        }
        RotationStep::Write(whole_lines(lines, room).max(first))
    }

    fn pauses(&self) -> bool {
        self.pause.is_some_and(|pause| !pause.is_over())
    }

    /// Notes that bytes were written.
    pub(super) fn note(&mut self, written: &[u8]) {
        self.is_within_line = written.last().is_some_and(|last| *last != b'\n');
    }

    /// Makes the present file an old one. Returns the next file.
    ///
    /// # Errors
    /// The system's error. Lines go to the present file for another minute then.
    pub(super) fn rotate(&mut self, path: &Path, file: &File) -> io::Result<File> {
        let kept_files = self.rotation.map_or(0, |rotation| rotation.kept_files);
        let rotated = rotate(path, file, kept_files);
        self.pause = rotated.is_err().then(|| Deadline::after(RETRY));
        rotated
    }
}

/// Seconds since a file was made, or last changed where the file system does not know.
fn age_s(meta: &fs::Metadata) -> u64 {
    let made = meta.created().or_else(|_| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let made_s = made.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Clock::start().unix_s().unsigned_abs().saturating_sub(made_s)
}

/// Length of the first line, in bytes.
fn line_end(lines: &[u8]) -> usize {
    let end = lines.iter().position(|byte| *byte == b'\n');
    end.map_or(lines.len(), |end| end + 1)
}

/// Length of the whole lines within the first `room` bytes.
fn whole_lines(lines: &[u8], room: u64) -> usize {
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(lines.len());
    if room == lines.len() {
        return room;
    }
    lines[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// Opens a log file, never writable for other users, regardless of the umask.
pub(super) fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o644).open(path)
}

fn rotate(path: &Path, file: &File, kept_files: u32) -> io::Result<File> {
    // A link to the log stays one.
    let path = fs::canonicalize(path)?;
    let own = file.metadata()?;
    let is_own = |meta: &fs::Metadata| (meta.dev(), meta.ino()) == (own.dev(), own.ino());
    if !fs::metadata(&path).is_ok_and(|meta| is_own(&meta)) {
        // Another process, or a tool, has rotated it.
        return append_to(&path);
    }
    let (next_path, next) = make_next(&path, file, &own)?;
    let renamed = make_room(&path, kept_files).and_then(|()| {
        if kept_files > 0 {
            keep(&path, &numbered(&path, 1))?;
        }
        fs::rename(&next_path, &path)
    });
    if renamed.is_err() {
        let _ = fs::remove_file(&next_path);
    }
    renamed.map(|()| next)
}

/// Creates the next file beside the log, with its permissions.
fn make_next(path: &Path, file: &File, own: &fs::Metadata) -> io::Result<(PathBuf, File)> {
    let next_path = with_suffix(path, "next");
    let create = || OpenOptions::new().append(true).create_new(true).mode(0o600).open(&next_path);
    let next = create().or_else(|error| match error.kind() {
        // Left by a process that has crashed.
        io::ErrorKind::AlreadyExists => fs::remove_file(&next_path).and_then(|()| create()),
        _ => Err(error),
    })?;
    // Only root can give a file away.
    let _ = fchown(&next, Some(own.uid()), Some(own.gid()));
    match next.set_permissions(file.metadata()?.permissions()) {
        Ok(()) => Ok((next_path, next)),
        Err(error) => {
            let _ = fs::remove_file(&next_path);
            Err(error)
        }
    }
}

/// Renames the old files, so that the first number is free. Removes the ones beyond the limit.
fn make_room(path: &Path, kept_files: u32) -> io::Result<()> {
    for number in kept_files.max(1)..=KEPT_FILES_MAX {
        match fs::remove_file(numbered(path, number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            removed => removed?,
        }
    }
    for number in (1..kept_files).rev() {
        match fs::rename(numbered(path, number), numbered(path, number + 1)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    Ok(())
}

/// Gives the log a second name; the first one is taken by the next file. File systems without hard
/// links rename it.
fn keep(path: &Path, old: &Path) -> io::Result<()> {
    fs::hard_link(path, old).or_else(|_| fs::rename(path, old))
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    with_suffix(path, &number.to_string())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn rotator(bytes_max: u64) -> Rotator {
        let rotation = Rotation { bytes_max: Some(bytes_max), age_max_s: None, kept_files: 2 };
        Rotator { rotation: Some(rotation), ..Rotator::default() }
    }

    fn log(directory: &tempfile::TempDir, content: &str) -> (PathBuf, File) {
        let path = directory.path().join("log");
        fs::write(&path, content).expect("written");
        let file = OpenOptions::new().append(true).open(&path).expect("opened");
        (path, file)
    }

    fn names(directory: &tempfile::TempDir) -> Vec<String> {
        let entries = fs::read_dir(directory.path()).expect("a directory").flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn whole_lines_fill_a_file_up_to_its_size() {
        let directory = tempfile::tempdir().expect("a directory");
        let (_, file) = log(&directory, "123\n");
        let rotator = rotator(10);
        assert_eq!(rotator.step(&file, b"45678\n"), RotationStep::Write(6));
        assert_eq!(rotator.step(&file, b"456789\n"), RotationStep::Rotate);
        assert_eq!(rotator.step(&file, b"45\n67\n8\n"), RotationStep::Write(6));
        let (_, empty) = log(&directory, "");
        assert_eq!(rotator.step(&empty, b"a line that is too long\nb\n"), RotationStep::Write(24));
    }

    #[test]
    fn no_file_is_rotated_within_a_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let (_, file) = log(&directory, "123456789");
        let mut rotator = rotator(10);
        rotator.note(b"123");
        assert_eq!(rotator.step(&file, b"4567\n8\n"), RotationStep::Write(5));
        rotator.note(b"4567\n");
        assert_eq!(rotator.step(&file, b"8\n9\n"), RotationStep::Rotate);
    }

    #[test]
    fn file_is_rotated_at_its_age() {
        let directory = tempfile::tempdir().expect("a directory");
        let (_, file) = log(&directory, "1\n");
        for (age_max_s, expected) in [(0, RotationStep::Rotate), (1000, RotationStep::Write(2))] {
            let rotation = Rotation { age_max_s: Some(age_max_s), ..Rotation::default() };
            let rotator = Rotator { rotation: Some(rotation), ..Rotator::default() };
            assert_eq!(rotator.step(&file, b"2\n"), expected);
        }
    }

    #[test]
    fn old_files_are_numbered_and_limited() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, mut file) = log(&directory, "");
        let mut rotator = rotator(1);
        for number in 1..=4 {
            writeln!(file, "{number}").expect("written");
            file = rotator.rotate(&path, &file).expect("rotated");
        }
        assert_eq!(names(&directory), ["log", "log.1", "log.2"]);
        let content = |name: &str| fs::read_to_string(directory.path().join(name)).expect("read");
        assert_eq!(
            (content("log"), content("log.1"), content("log.2")),
            (String::new(), "4\n".into(), "3\n".into())
        );
        // A lower limit removes older files as well.
        for kept_files in [1, 0] {
            rotator.rotation = Some(Rotation { kept_files, ..Rotation::default() });
            file = rotator.rotate(&path, &file).expect("rotated");
            let expected = ["log", "log.1"];
            assert_eq!(names(&directory), expected[..1 + kept_files as usize]);
        }
    }

    #[test]
    fn next_file_has_the_permissions_of_the_last_one() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let (path, file) = log(&directory, "1\n");
        file.set_permissions(fs::Permissions::from_mode(0o640)).expect("changed");
        // Left by a crash.
        fs::write(directory.path().join("log.next"), "x").expect("written");
        rotator(1).rotate(&path, &file).expect("rotated");
        let meta = fs::metadata(&path).expect("a file");
        assert_eq!((meta.permissions().mode() & 0o777, meta.len()), (0o640, 0));
        assert_eq!(names(&directory), ["log", "log.1"]);
    }

    #[test]
    fn log_that_was_moved_away_is_opened_by_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, file) = log(&directory, "1\n");
        fs::rename(&path, directory.path().join("moved")).expect("renamed");
        assert!(rotator(1).rotate(&path, &file).is_err(), "there is no log");
        fs::write(&path, "new\n").expect("written");
        let mut file = rotator(1).rotate(&path, &file).expect("opened");
        writeln!(file, "line").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("read"), "new\nline\n");
        assert_eq!(names(&directory), ["log", "moved"]);
    }

    #[test]
    fn log_behind_a_link_is_rotated_in_its_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, file) = log(&directory, "1\n");
        let links = tempfile::tempdir().expect("a directory");
        let link = links.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        rotator(1).rotate(&link, &file).expect("rotated");
        assert_eq!(names(&directory), ["log", "log.1"]);
        assert!(link.is_symlink());
    }

    #[test]
    fn failed_rotation_pauses() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, file) = log(&directory, "123456789\n");
        // A directory in the way of the old file.
        fs::create_dir(directory.path().join("log.2")).expect("a directory");
        let mut rotator = rotator(10);
        assert_eq!(rotator.step(&file, b"1\n"), RotationStep::Rotate);
        assert!(rotator.rotate(&path, &file).is_err());
        assert_eq!(rotator.step(&file, b"1\n"), RotationStep::Write(2));
        assert_eq!(names(&directory), ["log", "log.2"]);
    }
}
