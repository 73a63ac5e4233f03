//! no_new_privs, capabilities, and memory that other processes cannot read.

use super::LayerFault;
use crate::process::capabilities;

/// Capabilities that a process which stays root keeps: it reads and writes files of other users,
/// listens on low ports, and has as many pipes as before. Numbers of linux/capability.h.
const KEPT: &[u32] =
    &[CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, NET_BIND_SERVICE, SYS_RESOURCE];

const CHOWN: u32 = 0;
const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const FOWNER: u32 = 3;
const FSETID: u32 = 4;
const NET_BIND_SERVICE: u32 = 10;
const SYS_RESOURCE: u32 = 24;

/// The highest number that may exist.
const CAPABILITY_MAX: u32 = 63;

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// Sets of 32 capabilities each.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Forbids this thread, and all that it starts, to gain privileges by executing a program.
pub(super) fn forbid_new_privileges() -> Result<String, LayerFault> {
    prctl("PR_SET_NO_NEW_PRIVS", libc::PR_SET_NO_NEW_PRIVS, 1).map(|()| String::new())
}

fn prctl(
    name: &'static str,
    option: libc::c_int,
    argument: libc::c_ulong,
) -> Result<(), LayerFault> {
    let unused: libc::c_ulong = 0;
    // SAFETY: the options used here take numbers and touch no memory of ours.
    match unsafe { libc::prctl(option, argument, unused, unused, unused) } {
        0 => Ok(()),
        _ => Err(LayerFault::last_error(name)),
    }
}

/// Drops all capabilities of this thread that serving does not need. Returns the kept ones.
pub(super) fn reduce_capabilities() -> Result<String, LayerFault> {
    let header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 has two sets of data, and all outlives the call.
    let read = unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) };
    if read != 0 {
        return Err(LayerFault::last_error("capget"));
    }
    let held = u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32;
    if held == 0 {
        return Ok("none are held".to_owned());
    }
    capabilities::keep_from_programs();
    let kept = KEPT.iter().fold(0, |set, number| set | 1 << number) & held;
    for number in (0..=CAPABILITY_MAX).filter(|number| kept >> number & 1 == 0) {
        // Fails for numbers that the kernel lacks, and without CAP_SETPCAP. The bounding set limits
        // only what executing a program could give, which no_new_privs forbids as well.
        let _ = prctl("PR_CAPBSET_DROP", libc::PR_CAPBSET_DROP, libc::c_ulong::from(number));
    }
    let low = kept as u32;
    let data = [CapData { effective: low, permitted: low, inheritable: 0 }, CapData::default()];
    // SAFETY: version 3 has two sets of data, and all outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    let set = if result == 0 { Ok(()) } else { Err(LayerFault::last_error("capset")) };
    reduced(held, kept, set)
}

/// Outcome of a reduction. A service manager may forbid capset(2)
/// (`SystemCallFilter=~@privileged`), which protects as well where it has granted no more than what
/// is kept.
fn reduced(held: u64, kept: u64, set: Result<(), LayerFault>) -> Result<String, LayerFault> {
    match set {
        Err(fault) if kept != held => Err(fault),
        _ => Ok(format!("{} of {} are kept", kept.count_ones(), held.count_ones())),
    }
}

/// Keeps other processes of the user from reading the memory of the process.
pub(super) fn hide_memory() -> Result<String, LayerFault> {
    prctl("PR_SET_DUMPABLE", libc::PR_SET_DUMPABLE, 0)
        .map(|()| "hidden from other processes of the user".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_capset_matters_only_where_something_is_dropped() {
        let forbidden = || Err(LayerFault::Call("capset", "EPERM".to_owned()));
        let low_ports = 1 << NET_BIND_SERVICE;
        let granted = reduced(low_ports, low_ports, forbidden());
        assert_eq!(granted.as_deref(), Ok("1 of 1 are kept"));
        let more = low_ports | 1 << 21;
        assert!(reduced(more, low_ports, forbidden()).is_err());
        assert_eq!(reduced(more, low_ports, Ok(())).as_deref(), Ok("1 of 2 are kept"));
    }
}
