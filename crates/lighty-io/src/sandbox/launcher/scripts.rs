//! Files that are programs themselves or code of an interpreter: they must lie where clients find
//! them, and where the server cannot write.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::messages::{LaunchFault, LaunchRefusal};

/// Symbolic links on the way to a file; the kernel follows as many.
const LINKS_MAX: usize = 40;

/// The file systems whose links lead where other processes decide.
const OF_KERNEL: [&str; 2] = ["/proc", "/sys"];

/// Places of programs that are served files, and of files that the server may change.
#[derive(Clone, Debug, Default)]
pub struct ScriptPlaces {
    /// Directories or files that requests are served from, as the configuration names them.
    pub roots: Vec<PathBuf>,
    /// Targets of links in these directories, without links.
    pub targets: BTreeSet<PathBuf>,
    /// Directories that the server may write to, without links.
    pub written: Vec<PathBuf>,
}

impl ScriptPlaces {
    /// Checks that a file lies beneath a served directory, and that the server can replace neither
    /// it nor a link on the way to it.
    ///
    /// # Errors
    /// A refusal; the system's error if the file cannot be found.
    pub(super) fn check(&self, script: &Path) -> Result<(), LaunchFault> {
        let path = std::path::absolute(script)?;
        let found = resolved(&path, &self.written)?;
        for root in self.roots.iter().filter(|root| path.starts_with(root)) {
            if found.starts_with(resolved(root, &self.written)?) {
                return Ok(());
            }
        }
        match found.ancestors().any(|at| self.targets.contains(at)) {
            true => Ok(()),
            false => Err(LaunchRefusal::OutsideRoots.into()),
        }
    }
}

/// The path without links. Each directory on the way must be one that the server does not write
/// to, so that the path leads to the same file later.
fn resolved(path: &Path, written: &[PathBuf]) -> Result<PathBuf, LaunchFault> {
    let mut parts: VecDeque<OsString> = names(path);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = parts.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        if OF_KERNEL.iter().any(|directory| at.starts_with(directory)) {
            return Err(LaunchRefusal::OutsideRoots.into());
        }
        if written.iter().any(|directory| at.starts_with(directory)) {
            return Err(LaunchRefusal::WrittenDirectory.into());
        }
        at.push(&name);
        if !at.symlink_metadata()?.is_symlink() {
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(io::Error::from_raw_os_error(libc::ELOOP).into());
        }
        let target = at.read_link()?;
        at.pop();
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for name in names(&target).into_iter().rev() {
            parts.push_front(name);
        }
    }
    // The file itself may have a rule of its own.
    match written.iter().any(|directory| at.starts_with(directory)) {
        true => Err(LaunchRefusal::WrittenDirectory.into()),
        false => Ok(at),
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A site whose directory `up` the server writes to.
    fn site() -> (tempfile::TempDir, ScriptPlaces) {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().canonicalize().expect("a path");
        for name in ["root/up", "releases/1", "elsewhere/cgi", "rootless"] {
            std::fs::create_dir_all(base.join(name)).expect("directories");
        }
        let scripts =
            ["root/a", "root/up/b", "releases/1/c", "elsewhere/d", "elsewhere/cgi/e", "rootless/f"];
        for name in scripts {
            std::fs::write(base.join(name), name).expect("a file");
        }
        symlink("releases/1", base.join("current")).expect("a link");
        let places = ScriptPlaces {
            roots: vec![base.join("root"), base.join("current")],
            targets: [base.join("elsewhere/cgi")].into(),
            written: vec![base.join("root/up")],
        };
        (dir, places)
    }

    fn outcome(places: &ScriptPlaces, path: &Path) -> String {
        match places.check(path) {
            Ok(()) => "permitted".to_owned(),
            Err(LaunchFault::Refused(refusal)) => format!("{refusal:?}"),
            Err(LaunchFault::Failed(error)) => format!("{:?}", error.kind()),
        }
    }

    #[test]
    fn scripts_lie_beneath_roots() {
        let (dir, places) = site();
        let base = dir.path().canonicalize().expect("a path");
        symlink("../elsewhere/cgi/e", base.join("root/link")).expect("a link");
        symlink("../elsewhere/d", base.join("root/out")).expect("a link");
        symlink("loop", base.join("root/loop")).expect("a link");
        symlink("../a", base.join("root/up/back")).expect("a link");
        symlink(format!("/proc/{}/cwd", std::process::id()), base.join("root/proc")).expect("link");
        for (name, expected) in [
            ("root/a", "permitted"),
            ("current/c", "permitted"),
            ("root/link", "permitted"),
            ("root/./x/../a", "NotFound"),
            ("root/up/../a", "permitted"),
            ("root/out", "OutsideRoots"),
            ("root/../elsewhere/d", "OutsideRoots"),
            ("rootless/f", "OutsideRoots"),
            ("elsewhere/d", "OutsideRoots"),
            ("root/proc/a", "OutsideRoots"),
            ("root/up/b", "WrittenDirectory"),
            ("root/up/back", "WrittenDirectory"),
            ("root/missing", "NotFound"),
            ("root/a/b", "NotADirectory"),
            ("root/loop", "FilesystemLoop"),
        ] {
            let found = outcome(&places, &base.join(name));
            // The kind of ELOOP has no stable name.
            let is_loop = expected == "FilesystemLoop" && found != "permitted";
            assert!(found == expected || is_loop, "{name}: {found}");
        }
        assert_eq!(outcome(&places, Path::new("/bin/sh")), "OutsideRoots");
        assert_eq!(outcome(&places, Path::new("/proc/self/exe")), "OutsideRoots");
    }

    #[test]
    fn roots_may_be_swapped() {
        let (dir, places) = site();
        let base = dir.path().canonicalize().expect("a path");
        std::fs::create_dir(base.join("releases/2")).expect("a directory");
        std::fs::write(base.join("releases/2/g"), "g").expect("a file");
        std::fs::remove_file(base.join("current")).expect("removed");
        symlink("releases/2", base.join("current")).expect("a link");
        assert_eq!(outcome(&places, &base.join("current/g")), "permitted");
        assert_eq!(outcome(&places, &base.join("releases/1/c")), "OutsideRoots");
    }
}
