//! Resource usage of the process, from proc(5).

use std::fs;

use crate::process::limits::{self, LimitKind};

/// Resource usage of the process; a value that cannot be read is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in microseconds, user and system.
    pub cpu_us: u64,
    /// Bytes of memory that are resident.
    pub resident_bytes: u64,
    /// Bytes of address space.
    pub virtual_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub fds_open: u64,
    /// The limit on descriptors; 0: unlimited.
    pub fds_max: u64,
}

/// Processor time of this process, in microseconds.
#[must_use]
pub fn cpu_us() -> u64 {
    stat().cpu_us
}

fn stat() -> Usage {
    fs::read_to_string("/proc/self/stat").map_or_else(|_| Usage::default(), parse)
}

/// Reads the usage. Slow with many open descriptors, so call it outside event loops.
#[must_use]
pub fn usage() -> Usage {
    let mut usage = stat();
    usage.fds_open = fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    usage.fds_max = limits::get(LimitKind::OpenFiles).soft.unwrap_or(0);
    usage
}

fn parse(stat: String) -> Usage {
    // The program's name may contain spaces and parentheses.
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let fields: Vec<u64> =
        behind.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    // Fields are numbered from 1, and the first two were cut off.
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
    let ticks_per_s = rustix::param::clock_ticks_per_second().max(1);
    Usage {
        cpu_us: (field(14) + field(15)).saturating_mul(1_000_000) / ticks_per_s,
        threads: field(20),
        virtual_bytes: field(23),
        resident_bytes: field(24).saturating_mul(rustix::param::page_size() as u64),
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_the_own_process_is_plausible() {
        let usage = usage();
        assert!(usage.resident_bytes > 100_000 && usage.virtual_bytes > usage.resident_bytes);
        assert!(usage.threads > 0 && usage.fds_open > 2, "{usage:?}");
        assert!(usage.fds_max == 0 || usage.fds_max >= usage.fds_open, "{usage:?}");
    }

    #[test]
    fn a_name_may_look_like_fields() {
        let line = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 50 0 0 20 0 3 0 9 4096 2 0";
        let usage = parse(line.to_owned());
        assert_eq!((usage.threads, usage.virtual_bytes), (3, 4096));
        assert_eq!(usage.resident_bytes, 2 * rustix::param::page_size() as u64);
        assert_eq!(usage.cpu_us, 150 * 1_000_000 / rustix::param::clock_ticks_per_second());
    }
}
