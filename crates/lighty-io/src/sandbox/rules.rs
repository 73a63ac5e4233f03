//! Paths and ports that stay accessible in a sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// Rights at a path and beneath it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(u8);

impl Access {
    /// Open files for reading, list directories.
    pub const READ: Access = Access(1);
    /// Open files for writing, truncate them.
    pub const WRITE: Access = Access(2);
    /// Make regular files and sockets.
    pub const MAKE: Access = Access(4);
    /// Remove files.
    pub const REMOVE: Access = Access(8);
    /// Make, remove and link directories, links and files, also from one directory to another.
    pub const TREE: Access = Access(16);

    /// All rights beneath a directory whose content belongs to the server.
    pub const ALL: Access = Access(31);

    /// These rights and those.
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// True if these rights include those.
    pub fn includes(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            only if only == Access::READ => "reading",
            access if access.includes(Access::READ.and(Access::WRITE)) => "reading and writing",
            access if access.includes(Access::WRITE) => "writing",
            _ => "changing",
        })
    }
}

/// TCP ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Every port, for this reason.
    All(String),
    /// These.
    These(BTreeSet<u16>),
}

impl Ports {
    /// Adds a port.
    pub fn add(&mut self, port: u16) {
        if let Ports::These(ports) = self {
            ports.insert(port);
        }
    }

    /// Adds all ports, for a reason. The first reason is kept.
    pub fn open(&mut self, why: impl FnOnce() -> String) {
        if let Ports::These(_) = self {
            *self = Ports::All(why());
        }
    }

    /// The first of these ports that `self` lacks.
    pub fn first_missing(&self, wanted: &Ports) -> Option<MissingPort> {
        match (self, wanted) {
            (Ports::All(_), _) => None,
            (Ports::These(_), Ports::All(_)) => Some(MissingPort::All),
            (Ports::These(own), Ports::These(wanted)) => {
                wanted.difference(own).next().copied().map(MissingPort::One)
            }
        }
    }
}

/// A port that a sandbox lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPort {
    /// This one.
    One(u16),
    /// Every port is needed.
    All,
}

impl fmt::Display for MissingPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissingPort::One(port) => write!(f, "port {port}"),
            MissingPort::All => f.write_str("every port"),
        }
    }
}

/// Paths and ports that stay accessible.
#[derive(Clone, Debug)]
pub struct SandboxRules {
    /// Rights at paths and beneath them. The paths are absolute, without symbolic links.
    pub paths: BTreeMap<PathBuf, Access>,
    /// Ports to connect to.
    pub connect: Ports,
    /// Ports to listen on.
    pub bind: Ports,
    /// Sockets in the abstract name space of other processes stay reachable.
    pub reaches_abstract: bool,
}

impl SandboxRules {
    /// Rules that permit nothing.
    pub fn none() -> Self {
        let no_ports = || Ports::These(BTreeSet::new());
        let (connect, bind) = (no_ports(), no_ports());
        SandboxRules { paths: BTreeMap::new(), connect, bind, reaches_abstract: false }
    }

    /// Adds rights at a path, unless an enclosing directory gives them already.
    pub fn add(&mut self, path: &Path, access: Access) {
        if !self.permits(path, access) {
            let own = self.paths.entry(path.to_owned()).or_default();
            *own = own.and(access);
        }
    }

    /// True if the rules give these rights at a path.
    pub fn permits(&self, path: &Path, access: Access) -> bool {
        // As in the kernel, rights of enclosing directories add up.
        let rights = path.ancestors().filter_map(|at| self.paths.get(at));
        rights.fold(Access::default(), |all, own| all.and(*own)).includes(access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_of_enclosing_directories_add_up() {
        let mut rules = SandboxRules::none();
        rules.add(Path::new("/srv"), Access::READ);
        rules.add(Path::new("/srv/www/up"), Access::WRITE);
        let permits = |path: &str, access| rules.permits(Path::new(path), access);
        assert!(permits("/srv/www/up/a", Access::READ.and(Access::WRITE)));
        assert!(permits("/srv/www", Access::READ));
        assert!(!permits("/srv/www", Access::WRITE));
        assert!(!permits("/srv2", Access::READ), "a name is not a prefix of text");
    }

    #[test]
    fn rules_of_one_path_are_joined() {
        let mut rules = SandboxRules::none();
        rules.add(Path::new("/a"), Access::READ);
        rules.add(Path::new("/a"), Access::REMOVE);
        assert_eq!(rules.paths.len(), 1);
        assert!(rules.permits(Path::new("/a"), Access::READ.and(Access::REMOVE)));
    }

    #[test]
    fn missing_ports_are_named() {
        let these = |ports: &[u16]| Ports::These(ports.iter().copied().collect());
        let all = || Ports::All("because".to_owned());
        assert_eq!(these(&[80]).first_missing(&these(&[80])), None);
        assert_eq!(these(&[80]).first_missing(&these(&[80, 81])), Some(MissingPort::One(81)));
        assert_eq!(these(&[80]).first_missing(&all()), Some(MissingPort::All));
        assert_eq!(all().first_missing(&all()), None);
    }
}
