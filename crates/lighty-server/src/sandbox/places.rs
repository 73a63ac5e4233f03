//! The place of a rule. Rules bind to inodes, so a file that is replaced, or a directory that is
//! made anew, needs a rule for the directory around it, if that has nothing else of value.

use std::path::{Component, Path, PathBuf};

/// Directories shared by unrelated programs, beside those directly beneath `/`.
const SHARED: &[&str] = &[
    "/etc/ssl",
    "/usr/bin",
    "/usr/lib",
    "/usr/local",
    "/usr/sbin",
    "/usr/share",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/run",
    "/var/spool",
    "/var/tmp",
];

/// Directories whose entries belong to one user each.
const HOMES: &[&str] = &["/home", "/Users", "/run/user"];

/// True if a directory has files of unrelated programs, or all files of a user.
pub(super) fn is_shared(directory: &Path) -> bool {
    let depth = directory.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let is_home = directory.parent().is_some_and(|parent| is_one_of(parent, HOMES));
    depth < 2 || is_home || is_one_of(directory, SHARED)
}

fn is_one_of(directory: &Path, list: &[&str]) -> bool {
    list.iter().any(|known| Path::new(known) == directory)
}

/// Directories in which no server makes files.
const OF_SYSTEM: &[&str] = &["/", "/bin", "/boot", "/dev", "/etc", "/lib", "/sbin", "/usr"];

/// True if a directory belongs to the system alone.
pub(super) fn is_of_system(directory: &Path) -> bool {
    let is_of_kernel = directory.starts_with("/proc") || directory.starts_with("/sys");
    is_of_kernel || is_one_of(directory, OF_SYSTEM)
}

/// The part of a path before its first variable (`%1`), up to the last slash; the path itself if it
/// has none.
pub(super) fn known_part(path: &str) -> &str {
    match path.find('%') {
        Some(variable) => &path[..path[..variable].rfind('/').map_or(0, |slash| slash + 1)],
        None => path,
    }
}

/// An absolute form of a path. A relative one belongs to the working directory.
pub(super) fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))
}

/// The path without symbolic links. Of a path that does not exist, the part that does is resolved.
pub(super) fn resolved(path: &Path) -> PathBuf {
    for existing in path.ancestors() {
        if let Ok(real) = existing.canonicalize() {
            let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}

/// The innermost directory around a path, or the path itself, that exists.
pub(super) fn existing(path: &Path) -> &Path {
    path.ancestors().find(|at| at.exists()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_directories_are_known() {
        let shared = ["/", "/etc", "/tmp", "/home", "/var/lib", "/etc/ssl", "/run/user/1000"];
        for directory in shared {
            assert!(is_shared(Path::new(directory)), "{directory}");
        }
        let own = ["/etc/lighty", "/srv/www", "/var/www", "/var/lib/lighty"];
        for directory in own {
            assert!(!is_shared(Path::new(directory)), "{directory}");
        }
        let home = Path::new(HOMES[0]).join("user");
        assert!(is_shared(&home) && !is_shared(&home.join("site")));
    }

    #[test]
    fn variables_end_the_known_part() {
        assert_eq!(known_part("/srv/www/vhosts/%0/%3/"), "/srv/www/vhosts/");
        assert_eq!(known_part("/srv/%1"), "/srv/");
        assert_eq!(known_part("/srv/site-%1/x"), "/srv/");
        assert_eq!(known_part("%0"), "");
        assert_eq!(known_part("/srv/www"), "/srv/www");
    }

    #[test]
    fn missing_parts_are_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let real = dir.path().canonicalize().expect("a path");
        std::os::unix::fs::symlink(&real, dir.path().join("link")).expect("a link");
        assert_eq!(resolved(&dir.path().join("link/a/b")), real.join("a/b"));
        assert_eq!(existing(&real.join("a/b")), real);
    }
}
