//! Landlock (landlock(7)): rules for files, TCP ports and scopes, enforced by the kernel for a
//! thread and all that it starts.
//!
//! Rules bind to inodes: a directory that is removed and made again has none. Opened descriptors
//! are unaffected, and so are calls that do not open: stat, access, readlink.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::rules::{Access, Ports, SandboxRules};
use super::{Coverage, LayerFault};

/// Rights at files and directories (linux/landlock.h).
mod fs {
    pub(super) const EXECUTE: u64 = 1 << 0;
    pub(super) const WRITE_FILE: u64 = 1 << 1;
    pub(super) const READ_FILE: u64 = 1 << 2;
    pub(super) const READ_DIR: u64 = 1 << 3;
    pub(super) const REMOVE_DIR: u64 = 1 << 4;
    pub(super) const REMOVE_FILE: u64 = 1 << 5;
    pub(super) const MAKE_DIR: u64 = 1 << 7;
    pub(super) const MAKE_REG: u64 = 1 << 8;
    pub(super) const MAKE_SOCK: u64 = 1 << 9;
    pub(super) const MAKE_SYM: u64 = 1 << 12;
    /// All of version 1, bits 0 to 12.
    pub(super) const VERSION_1: u64 = (1 << 13) - 1;
    pub(super) const REFER: u64 = 1 << 13;
    pub(super) const TRUNCATE: u64 = 1 << 14;
    pub(super) const IOCTL_DEV: u64 = 1 << 15;
    /// Rights that a rule for a file may contain.
    pub(super) const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
}

const BIND_TCP: u64 = 1 << 0;
const CONNECT_TCP: u64 = 1 << 1;
const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1 << 0;
const SCOPE_SIGNAL: u64 = 1 << 1;

const CREATE_RULESET_VERSION: libc::c_uint = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;
const RULE_NET_PORT: libc::c_int = 2;

/// First versions of features.
const TRUNCATE_SINCE: u32 = 3;
const PORTS_SINCE: u32 = 4;
const IOCTL_SINCE: u32 = 5;
const SCOPES_SINCE: u32 = 6;

#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: i32,
}

#[repr(C)]
struct NetPortAttr {
    allowed_access: u64,
    port: u64,
}

/// A rule set, ready to restrict threads.
#[derive(Debug)]
pub(super) struct Landlock {
    ruleset: OwnedFd,
    extent: String,
    /// Ports to connect to; `None` if this version does not restrict them.
    connect: Option<Ports>,
}

/// The kernel's version of Landlock.
pub(super) fn kernel_version() -> Result<u32, LayerFault> {
    let nothing = std::ptr::null::<RulesetAttr>();
    // SAFETY: with this flag the call reads no memory and returns a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, CREATE_RULESET_VERSION)
    };
    match version {
        1.. => Ok(u32::try_from(version).unwrap_or(u32::MAX)),
        _ => Err(missing(&io::Error::last_os_error())),
    }
}

fn missing(error: &io::Error) -> LayerFault {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => LayerFault::Missing("Linux 5.13 has the first version"),
        Some(libc::EOPNOTSUPP) => LayerFault::Missing("it is off: see the boot parameter lsm="),
        Some(libc::EPERM | libc::EACCES) => LayerFault::Missing("a container runtime forbids it"),
        _ => LayerFault::Call("landlock_create_ruleset", crate::os_text(error)),
    }
}

/// The protections of a version.
pub(super) fn gains(version: u32) -> &'static str {
    match version {
        ..PORTS_SINCE => "protects files",
        PORTS_SINCE..SCOPES_SINCE => "protects files and ports",
        _ => "protects files, ports, signals and abstract sockets",
    }
}

impl Landlock {
    /// Makes a rule set of the features that the kernel has.
    pub(super) fn build(
        rules: &SandboxRules,
        coverage: Coverage,
        version_max: Option<u32>,
    ) -> Result<Self, LayerFault> {
        let kernel = kernel_version()?;
        let version = version_max.map_or(kernel, |max| max.min(kernel));
        if version == 0 {
            return Err(LayerFault::Missing("Linux 5.13 has the first version"));
        }
        let attr = handled(rules, coverage, version);
        let size = if version < PORTS_SINCE {
            8
        } else if version < SCOPES_SINCE {
            16
        } else {
            24
        };
        debug_assert!(size <= size_of::<RulesetAttr>());
        // SAFETY: the structure has at least `size` bytes and outlives the call.
        let made = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attr,
                size,
                0 as libc::c_uint,
            )
        };
        let fd = RawFd::try_from(made).ok().filter(|fd| *fd >= 0);
        let fd = fd.ok_or_else(|| missing(&io::Error::last_os_error()))?;
        // SAFETY: the call has just returned this descriptor, which has no other owner.
        let ruleset = unsafe { OwnedFd::from_raw_fd(fd) };
        let restricts_connect = attr.handled_access_net & CONNECT_TCP != 0;
        let landlock = Landlock {
            ruleset,
            extent: extent(rules, &attr, version),
            connect: restricts_connect.then(|| rules.connect.clone()),
        };
        for (path, access) in &rules.paths {
            landlock.add_path(path, *access, attr.handled_access_fs)?;
        }
        landlock.add_ports(&rules.connect, CONNECT_TCP & attr.handled_access_net)?;
        landlock.add_ports(&rules.bind, BIND_TCP & attr.handled_access_net)?;
        Ok(landlock)
    }

    /// True if a restricted thread cannot connect to a TCP port.
    pub(super) fn forbids_port(&self, port: u16) -> bool {
        match &self.connect {
            Some(Ports::These(ports)) => !ports.contains(&port),
            Some(Ports::All(_)) | None => false,
        }
    }

    fn add_path(&self, path: &Path, access: Access, handled: u64) -> Result<(), LayerFault> {
        let opened = File::options().read(true).custom_flags(libc::O_PATH).open(path);
        // A path that went away, or that the process cannot reach, needs no permission.
        let Ok(file) = opened else { return Ok(()) };
        let is_dir = file.metadata().is_ok_and(|meta| meta.is_dir());
        let wanted = bits(access) & handled;
        let allowed_access = if is_dir { wanted } else { wanted & fs::OF_FILES };
        if allowed_access == 0 {
            return Ok(());
        }
        let attr = PathBeneathAttr { allowed_access, parent_fd: file.as_raw_fd() };
        // SAFETY: the structure has the layout of this type of rule and outlives the call.
        unsafe { self.add_rule(RULE_PATH_BENEATH, (&raw const attr).cast()) }
    }

    fn add_ports(&self, ports: &Ports, allowed_access: u64) -> Result<(), LayerFault> {
        let Ports::These(ports) = ports else { return Ok(()) };
        if allowed_access == 0 {
            return Ok(());
        }
        for port in ports {
            let attr = NetPortAttr { allowed_access, port: u64::from(*port) };
            // SAFETY: the structure has the layout of this type of rule and outlives the call.
            unsafe { self.add_rule(RULE_NET_PORT, (&raw const attr).cast()) }?;
        }
        Ok(())
    }

    /// Adds a rule.
    ///
    /// # Safety
    /// `attr` points to the structure that belongs to `kind`.
    unsafe fn add_rule(
        &self,
        kind: libc::c_int,
        attr: *const libc::c_void,
    ) -> Result<(), LayerFault> {
        let ruleset = self.ruleset.as_raw_fd();
        // SAFETY: the caller vouches for the structure; the descriptor is open.
        let result = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, ruleset, kind, attr, 0 as libc::c_uint)
        };
        match result {
            0 => Ok(()),
            _ => Err(LayerFault::last_error("landlock_add_rule")),
        }
    }

    /// Restricts the calling thread. Returns the extent of the protection.
    pub(super) fn restrict(&self) -> Result<String, LayerFault> {
        let ruleset = self.ruleset.as_raw_fd();
        // SAFETY: takes a descriptor and a number, touches no memory of ours.
        let result =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0 as libc::c_uint) };
        match result {
            0 => Ok(self.extent.clone()),
            _ => Err(LayerFault::last_error("landlock_restrict_self")),
        }
    }
}

/// The rights that need a rule from now on.
fn handled(rules: &SandboxRules, coverage: Coverage, version: u32) -> RulesetAttr {
    let mut handled_access_fs = fs::VERSION_1;
    if version >= 2 {
        handled_access_fs |= fs::REFER;
    }
    if version >= TRUNCATE_SINCE {
        handled_access_fs |= fs::TRUNCATE;
    }
    if version >= IOCTL_SINCE {
        handled_access_fs |= fs::IOCTL_DEV;
    }
    let mut handled_access_net = 0;
    if version >= PORTS_SINCE {
        let closed = |ports: &Ports| matches!(ports, Ports::These(_));
        handled_access_net |= if closed(&rules.connect) { CONNECT_TCP } else { 0 };
        handled_access_net |= if closed(&rules.bind) { BIND_TCP } else { 0 };
    }
    let mut scoped = 0;
    if version >= SCOPES_SINCE {
        scoped |= if rules.reaches_abstract { 0 } else { SCOPE_ABSTRACT_UNIX_SOCKET };
        // Serving threads signal programs, which are outside.
        scoped |= if coverage == Coverage::Process { SCOPE_SIGNAL } else { 0 };
    }
    RulesetAttr { handled_access_fs, handled_access_net, scoped }
}

fn bits(access: Access) -> u64 {
    let pairs = [
        (Access::READ, fs::READ_FILE | fs::READ_DIR),
        (Access::WRITE, fs::WRITE_FILE | fs::TRUNCATE),
        (Access::MAKE, fs::MAKE_REG | fs::MAKE_SOCK),
        (Access::REMOVE, fs::REMOVE_FILE),
        (Access::TREE, fs::MAKE_DIR | fs::REMOVE_DIR | fs::MAKE_SYM | fs::REFER),
    ];
    let included = pairs.iter().filter(|(right, _)| access.includes(*right));
    included.fold(0, |all, (_, bits)| all | bits)
}

/// Describes the protection for the operator.
fn extent(rules: &SandboxRules, attr: &RulesetAttr, version: u32) -> String {
    let mut parts = vec![format!("version {version}, files beneath {} paths", rules.paths.len())];
    if rules.permits(Path::new("/"), Access::READ) {
        parts.push("files are readable everywhere".to_owned());
    }
    let ports = [("connects", &rules.connect, CONNECT_TCP), ("listens", &rules.bind, BIND_TCP)];
    for (verb, ports, bit) in ports {
        parts.push(match ports {
            Ports::All(why) => format!("{verb} at every port ({why})"),
            Ports::These(_) if attr.handled_access_net & bit == 0 => {
                format!("{verb} at every port (Linux 6.7 restricts them)")
            }
            Ports::These(ports) => format!("{verb} at {} ports", ports.len()),
        });
    }
    if version < SCOPES_SINCE {
        parts.push("signals and abstract sockets are free (Linux 6.12 restricts them)".to_owned());
    }
    parts.join(", ")
}
