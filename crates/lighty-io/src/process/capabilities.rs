//! Capabilities of a process that is not root, as granted by a unit's `AmbientCapabilities=`.

/// Keeps programs that this process starts from inheriting its capabilities. The process itself
/// keeps them. Call before there is a second thread: the ambient set belongs to a thread.
pub fn keep_from_programs() {
    // A kernel before 4.3 has no ambient set and returns an error. SAFETY: takes numbers, touches
    // no memory of ours.
    let _ = unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
        )
    };
}

/// Capabilities that programs inherit which this thread starts, until it is dropped: all that the
/// service manager lets programs inherit (the inheritable set).
#[derive(Debug)]
pub(crate) struct AmbientCapabilities(());

impl AmbientCapabilities {
    /// Raises them. Those that this process does not have are left out.
    pub(crate) fn raise() -> Self {
        let inheritable = status_set("CapInh:").unwrap_or(0);
        for capability in (0..64).filter(|bit| inheritable >> bit & 1 == 1) {
            // SAFETY: takes numbers, touches no memory of ours.
            let _ = unsafe {
                libc::prctl(
                    libc::PR_CAP_AMBIENT,
                    libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong,
                    capability as libc::c_ulong,
                    0 as libc::c_ulong,
                    0 as libc::c_ulong,
                )
            };
        }
        Self(())
    }
}

impl Drop for AmbientCapabilities {
    fn drop(&mut self) {
        keep_from_programs();
    }
}

/// Keeps other processes of the user, such as programs that the server starts, from reading the
/// memory of a process with capabilities, which may hold keys. The kernel does so by itself when
/// root becomes another user and when a file gives capabilities (PR_SET_DUMPABLE(2const)).
pub fn protect_memory() {
    let is_root = rustix::process::geteuid().is_root();
    if is_root || effective().is_none_or(|set| set == 0) {
        return;
    }
    // Cannot fail: 0 is a valid value.
    // SAFETY: takes a number, touches no memory of ours.
    let _ = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0 as libc::c_ulong) };
}

/// The effective set, one bit per capability; `None` without `/proc`.
pub(crate) fn effective() -> Option<u64> {
    status_set("CapEff:")
}

/// A set of the process's first thread, by its name in proc(5).
fn status_set(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let set = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(set.trim(), 16).ok()
}
