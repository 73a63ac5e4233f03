//! Logs to descriptors that the process already holds: `/dev/stdout`, `/proc/self/fd/3`.
//!
//! Opening such a name fails where the descriptor is a socket (the journal) or a pipe of another
//! user. Duplicating the descriptor always works.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, RawFd};
use std::path::{Component, Path, PathBuf};

/// Symbolic links that are followed, as many as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Returns the descriptor that a path names, itself or through symbolic links: images of containers
/// often have a link to `/dev/stdout` in place of a log.
pub(super) fn named(path: &Path) -> Option<RawFd> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        if let Some(number) = of_name(&path) {
            return Some(number);
        }
        let target = std::fs::read_link(&path).ok()?;
        path = path.parent()?.join(target);
    }
    None
}

fn of_name(path: &Path) -> Option<RawFd> {
    // Without doubled slashes and `.`.
    let path: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    let text = path.to_str()?;
    let standard = ["/dev/stdin", "/dev/stdout", "/dev/stderr"];
    if let Some(number) = standard.iter().position(|name| *name == text) {
        return RawFd::try_from(number).ok();
    }
    let own = format!("/proc/{}/fd/", std::process::id());
    let mut directories = ["/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/", &own].into_iter();
    let number = directories.find_map(|directory| text.strip_prefix(directory))?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

/// Duplicates an inherited descriptor that can be written to.
pub(super) fn duplicate(number: RawFd) -> io::Result<File> {
    let unusable = |why: &str| Err(io::Error::other(format!("descriptor {number} {why}")));
    let Ok(mode) = fcntl(number, libc::F_GETFL, 0) else {
        return unusable("is not open");
    };
    if mode & libc::O_ACCMODE == libc::O_RDONLY {
        return unusable("is open for reading only");
    }
    // The server marks all of its own sockets and files; inherited descriptors have no such mark.
    if number > libc::STDERR_FILENO && fcntl(number, libc::F_GETFD, 0)? & libc::FD_CLOEXEC != 0 {
        return unusable("was not passed to the server");
    }
    let copy = fcntl(number, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1)?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { File::from_raw_fd(copy) })
}

/// fcntl(2) of a number that may be no open descriptor.
fn fcntl(number: RawFd, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: the commands used here take and return numbers and touch no memory.
    match unsafe { libc::fcntl(number, command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// True if a descriptor is the stream to the journal that systemd announces as `device:inode` in
/// `JOURNAL_STREAM` (systemd.exec(5)).
pub(super) fn is_journal(file: &impl AsFd) -> bool {
    let Ok(announced) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(meta) = rustix::fs::fstat(file) else { return false };
    announced == format!("{}:{}", meta.st_dev, meta.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn names_of_descriptors_are_known() {
        let own = format!("/proc/{}/fd/4", std::process::id());
        for (name, expected) in [
            ("/dev/stdin", Some(0)),
            ("/dev/stdout", Some(1)),
            ("//dev/./stderr", Some(2)),
            ("/dev/fd/3", Some(3)),
            ("/proc/self/fd/10", Some(10)),
            ("/proc/thread-self/fd/10", Some(10)),
            (&own, Some(4)),
            ("/dev/fd/", None),
            ("/dev/fd/+1", None),
            ("/dev/fd/1/a", None),
            ("/dev/fd/99999999999", None),
            ("/proc/1/fd/1", None),
            ("/dev/stdout2", None),
            ("dev/stdout", None),
        ] {
            assert_eq!(of_name(Path::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn links_lead_to_descriptors() {
        let dir = tempfile::tempdir().expect("a directory");
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, dir.path().join(name)).expect("a link");
            dir.path().join(name)
        };
        assert_eq!(named(&link("/dev/stdout", "a")), Some(1));
        assert_eq!(named(&link("a", "b")), Some(1));
        assert_eq!(named(&link("circle", "circle")), None);
        assert_eq!(named(&link("/dev/null", "null")), None);
        assert_eq!(named(&dir.path().join("none")), None);
    }

    #[test]
    fn only_inherited_descriptors_are_duplicated() {
        let file = tempfile::tempfile().expect("a file");
        let error = duplicate(file.as_raw_fd()).expect_err("a file of the process's own");
        assert!(error.to_string().contains("not passed"), "{error}");
        let error = duplicate(1_000_000).expect_err("none");
        assert!(error.to_string().contains("not open"), "{error}");
        let reading = File::open("/dev/null").expect("null");
        let error = duplicate(reading.as_raw_fd()).expect_err("for reading");
        assert!(error.to_string().contains("reading only"), "{error}");
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("unmarked");
        let copy = duplicate(file.as_raw_fd()).expect("a copy");
        let flags = rustix::io::fcntl_getfd(&copy).expect("flags");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "no program inherits it");
    }
}
