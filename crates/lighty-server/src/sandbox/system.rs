//! Files of the system that the server, its libraries and the C library read while it runs.

use lighty_io::sandbox::Access;

/// Files and directories, each with its rights. Missing ones are left out.
pub(super) const PATHS: &[(&str, Access)] = &[
    // Names and users.
    ("/etc/gai.conf", Access::READ),
    ("/etc/group", Access::READ),
    ("/etc/host.conf", Access::READ),
    ("/etc/hosts", Access::READ),
    ("/etc/nsswitch.conf", Access::READ),
    ("/etc/passwd", Access::READ),
    ("/etc/protocols", Access::READ),
    ("/etc/services", Access::READ),
    // Time zones.
    ("/etc/localtime", Access::READ),
    ("/usr/share/zoneinfo", Access::READ),
    // Authorities.
    ("/etc/ca-certificates", Access::READ),
    ("/etc/pki/ca-trust", Access::READ),
    ("/etc/pki/tls/certs", Access::READ),
    ("/etc/ssl/ca-bundle.pem", Access::READ),
    ("/etc/ssl/cert.pem", Access::READ),
    ("/etc/ssl/certs", Access::READ),
    ("/usr/local/share/ca-certificates", Access::READ),
    ("/usr/share/ca-certificates", Access::READ),
    // Libraries that the C library loads on demand, and modules of scripts.
    ("/etc/ld.so.cache", Access::READ),
    ("/lib", Access::READ),
    ("/lib64", Access::READ),
    ("/usr/lib", Access::READ),
    ("/usr/lib64", Access::READ),
    ("/usr/local/lib", Access::READ),
    ("/usr/local/share/lua", Access::READ),
    ("/usr/share/lua", Access::READ),
    // The process itself and the machine. The memory and the environment of other processes stay
    // protected, because Landlock forbids to trace them.
    ("/proc", Access::READ),
    ("/sys/devices/system", Access::READ),
    ("/sys/fs/cgroup", Access::READ),
    ("/dev/null", READ_AND_WRITE),
    ("/dev/random", Access::READ),
    ("/dev/urandom", Access::READ),
    ("/dev/zero", Access::READ),
];

const READ_AND_WRITE: Access = Access::READ.and(Access::WRITE);

/// Files that other programs replace, through links or by renaming.
pub(super) const REPLACED: &[&str] = &["/etc/resolv.conf"];
