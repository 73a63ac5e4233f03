//! Disks that seek: block devices with moving parts.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::DiskReads;

/// Bulk reads at a time on a disk that seeks, unless configured: a mirror of two disks is busy with
/// two, and a single one has the second read at hand when the first one ends.
const SEEKING_READS_MAX: usize = 2;

/// Numbers of the devices with mounted file systems that seek.
static SEEKING: OnceLock<Vec<u64>> = OnceLock::new();

/// Finds the mounted disks that seek, once for the process. Call it while `/proc` and `/sys` are
/// readable, before the first engine starts. A device that is mounted later counts as one that does
/// not seek.
pub fn survey_disks() {
    SEEKING.get_or_init(|| {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut devices = mounted_devices(&mounts);
        devices.retain(|&device| is_seeking(device));
        devices
    });
}

/// Bulk reads at a time on this device; `None`: no limit, and no order.
pub(super) fn bulk_reads_max(reads: DiskReads, device: u64) -> Option<usize> {
    match reads {
        DiskReads::Limit(0) => None,
        DiskReads::Limit(most) => Some(most),
        DiskReads::Auto => {
            let seeking = SEEKING.get()?;
            seeking.contains(&device).then_some(SEEKING_READS_MAX)
        }
    }
}

/// Numbers of the devices in a table of mounts (proc(5), `/proc/pid/mountinfo`).
fn mounted_devices(mounts: &str) -> Vec<u64> {
    let number = |line: &str| {
        let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    let mut devices: Vec<u64> = mounts.lines().filter_map(number).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// True if the kernel says so. File systems without a block device of their own (tmpfs, NFS,
/// overlayfs, btrfs) have no entry.
fn is_seeking(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition has the queue and the driver of its disk.
    [entry.join(".."), entry].iter().any(|disk| {
        let value = std::fs::read(disk.join("queue/rotational"));
        value.is_ok_and(|value| value.starts_with(b"1")) && !is_virtual(disk, SLAVES_DEPTH_MAX)
    })
}

/// Levels of devices that consist of others (LVM over LUKS over RAID).
const SLAVES_DEPTH_MAX: usize = 8;

/// True for a disk of a virtual machine, and for a device that has one below. Virtio does not tell
/// a guest whether a disk seeks, and the kernel takes each for one that does.
fn is_virtual(disk: &Path, depth_left: usize) -> bool {
    let Ok(place) = std::fs::canonicalize(disk) else { return true };
    if place.components().any(|part| part.as_os_str().to_string_lossy().starts_with("virtio")) {
        return true;
    }
    let below = std::fs::read_dir(place.join("slaves")).into_iter().flatten().flatten();
    let mut below = below.map(|slave| slave.path());
    below.any(|slave| depth_left == 0 || is_virtual(&slave, depth_left - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_mounts_are_found_once() {
        let mounts = "22 1 8:17 / / rw,noatime shared:1 - ext4 /dev/sdb1 rw\n\
                      23 22 0:21 / /proc rw - proc proc rw\n\
                      24 22 8:17 /srv /srv rw - ext4 /dev/sdb1 rw\n\
                      torn\n25 22 x:y / /z rw - a b c\n";
        let expected = [rustix::fs::makedev(0, 21), rustix::fs::makedev(8, 17)];
        assert_eq!(mounted_devices(mounts), expected);
    }

    #[test]
    fn a_number_counts_for_every_device_and_0_for_none() {
        assert_eq!(bulk_reads_max(DiskReads::Limit(3), 1), Some(3));
        assert_eq!(bulk_reads_max(DiskReads::Limit(0), 1), None);
        let procfs = rustix::fs::stat("/proc").expect("procfs").st_dev;
        assert!(!is_seeking(procfs));
        survey_disks();
        assert_eq!(bulk_reads_max(DiskReads::Auto, procfs), None);
    }
}
