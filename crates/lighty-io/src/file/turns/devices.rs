//! Disks that seek: block devices with moving parts.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::DiskReads;

/// Bulk reads at a time on a disk that seeks, unless configured: a mirror of two disks is busy with
/// two, and a single one has the second read at hand when the first one ends.
const SEEKING_READS_MAX: usize = 2;

/// Directory of the block devices by number.
const BLOCK_DEVICES: &str = "/sys/dev/block";

/// The mounted devices.
static SURVEY: OnceLock<Vec<SurveyedDevice>> = OnceLock::new();

/// A device with a mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SurveyedDevice {
    number: u64,
    /// Number of the disk that it is a part of.
    disk: u64,
    /// Name of the disk in the kernel, such as `sda`.
    name: String,
    is_seeking: bool,
}

/// Finds the mounted disks and their properties, once for the process. Call it while `/proc` and
/// `/sys` are readable, before the first engine starts. A device that is mounted later counts as a
/// disk of its own that does not seek.
pub fn survey_disks() {
    SURVEY.get_or_init(|| {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        survey(&mounts, Path::new(BLOCK_DEVICES))
    });
}

fn survey(mounts: &str, block_devices: &Path) -> Vec<SurveyedDevice> {
    let survey_one = |number| {
        let (disk, name) = whole_disk(block_devices, number)?;
        let is_seeking = is_seeking(block_devices, number);
        Some(SurveyedDevice { number, disk, name, is_seeking })
    };
    mounted_devices(mounts).into_iter().filter_map(survey_one).collect()
}

/// Names the mounted disks with an order of reads, for the log. `None` if there is no order.
pub fn turns_text(reads: DiskReads) -> Option<String> {
    text_of(SURVEY.get().map_or(&[][..], Vec::as_slice), reads)
}

fn text_of(devices: &[SurveyedDevice], reads: DiskReads) -> Option<String> {
    let names = names_with_turns(devices, reads).join(", ");
    Some(match reads {
        DiskReads::Limit(0) => return None,
        DiskReads::Limit(most) => format!("{most} files at a time on each device: {names}"),
        DiskReads::Auto if names.is_empty() => "none of the mounted disks seeks".to_owned(),
        DiskReads::Auto => {
            format!("{SEEKING_READS_MAX} files at a time on disks that seek: {names}")
        }
    })
}

fn names_with_turns(devices: &[SurveyedDevice], reads: DiskReads) -> Vec<String> {
    let takes_turns = |device: &&SurveyedDevice| match reads {
        DiskReads::Limit(most) => most > 0,
        DiskReads::Auto => device.is_seeking,
    };
    let mut names: Vec<String> =
        devices.iter().filter(takes_turns).map(|device| device.name.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn surveyed(device: u64) -> Option<&'static SurveyedDevice> {
    SURVEY.get()?.iter().find(|one| one.number == device)
}

/// Number of the disk that a device is a part of.
pub(super) fn disk_of(device: u64) -> u64 {
    surveyed(device).map_or(device, |one| one.disk)
}

/// Bulk reads at a time on this device; `None`: no limit, and no order.
pub(super) fn bulk_reads_max(reads: DiskReads, device: u64) -> Option<usize> {
    match reads {
        DiskReads::Limit(0) => None,
        DiskReads::Limit(most) => Some(most),
        DiskReads::Auto => surveyed(device).filter(|one| one.is_seeking).map(|_| SEEKING_READS_MAX),
    }
}

/// Numbers of the devices in a table of mounts (proc(5), `/proc/pid/mountinfo`).
fn mounted_devices(mounts: &str) -> Vec<u64> {
    let number = |line: &str| device_number(line.split(' ').nth(2)?);
    let mut devices: Vec<u64> = mounts.lines().filter_map(number).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// The number of a device as text, such as `8:1`.
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// True if the kernel says so. File systems without a block device of their own (tmpfs, NFS,
/// overlayfs, btrfs) have no entry.
fn is_seeking(block_devices: &Path, device: u64) -> bool {
    let entry = entry_of(block_devices, device);
    // A partition has the queue and the driver of its disk.
    [entry.join(".."), entry].iter().any(|disk| {
        let value = std::fs::read(disk.join("queue/rotational"));
        value.is_ok_and(|value| value.starts_with(b"1")) && !is_virtual(disk, SLAVES_DEPTH_MAX)
    })
}

fn entry_of(block_devices: &Path, device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    block_devices.join(format!("{major}:{minor}"))
}

/// Number and name of the disk that a device is a part of: a partition, or a volume on one device
/// alone. `None` if it is no block device.
fn whole_disk(block_devices: &Path, device: u64) -> Option<(u64, String)> {
    let mut place = std::fs::canonicalize(entry_of(block_devices, device)).ok()?;
    for _ in 0..SLAVES_DEPTH_MAX {
        if place.join("partition").exists() {
            place.pop();
        }
        let below = std::fs::read_dir(place.join("slaves")).into_iter().flatten().flatten();
        let below: Vec<PathBuf> = below.map(|slave| slave.path()).collect();
        let [one] = &below[..] else { break };
        place = std::fs::canonicalize(one).ok()?;
    }
    let number = std::fs::read_to_string(place.join("dev")).ok()?;
    Some((device_number(number.trim())?, place.file_name()?.to_string_lossy().into_owned()))
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
        assert!(!is_seeking(Path::new(BLOCK_DEVICES), procfs));
        survey_disks();
        assert_eq!(bulk_reads_max(DiskReads::Auto, procfs), None);
    }

    /// A disk with two partitions, one of which has a volume, and an array of two disks.
    #[test]
    fn partitions_and_volumes_of_one_disk_share_its_queue() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |path: &str| directory.path().join(path);
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(at(path).parent().expect("a parent")).expect("made");
            std::fs::write(at(path), text).expect("written");
        };
        for (name, number) in [
            ("sda", "8:0"),
            ("sda/sda1", "8:1"),
            ("sda/sda2", "8:2"),
            ("sdb", "8:16"),
            ("dm-0", "253:0"),
            ("md0", "9:0"),
        ] {
            write(&format!("devices/{name}/dev"), &format!("{number}\n"));
            if name.contains('/') {
                write(&format!("devices/{name}/partition"), "1\n");
            } else {
                write(&format!("devices/{name}/queue/rotational"), "1\n");
            }
            std::fs::create_dir_all(at("block")).expect("made");
            let place = at(&format!("devices/{name}"));
            std::os::unix::fs::symlink(place, at(&format!("block/{number}"))).expect("linked");
        }
        for (above, below) in [("dm-0", "sda/sda2"), ("md0", "sda"), ("md0", "sdb")] {
            let slaves = at(&format!("devices/{above}/slaves"));
            std::fs::create_dir_all(&slaves).expect("made");
            let name = below.rsplit('/').next().expect("a name");
            let place = at(&format!("devices/{below}"));
            std::os::unix::fs::symlink(place, slaves.join(name)).expect("linked");
        }
        let line = |number: &str| format!("22 1 {number} / /x rw - ext4 x rw\n");
        let mounts = ["8:1", "8:2", "253:0", "9:0", "8:16", "0:21"].map(line).concat();
        let devices = survey(&mounts, &at("block"));
        let found: Vec<(u64, u64, &str)> = devices
            .iter()
            .inspect(|one| assert!(one.is_seeking, "{one:?}"))
            .map(|one| (one.number, one.disk, one.name.as_str()))
            .collect();
        let number = rustix::fs::makedev;
        let (sda, sdb, md0) = (number(8, 0), number(8, 16), number(9, 0));
        let expected = [
            (number(8, 1), sda, "sda"),
            (number(8, 2), sda, "sda"),
            (sdb, sdb, "sdb"),
            (md0, md0, "md0"),
            (number(253, 0), sda, "sda"),
        ];
        assert_eq!(found, expected);
        assert_eq!(names_with_turns(&devices, DiskReads::Auto), ["md0", "sda", "sdb"]);
        for (reads, text) in [
            (DiskReads::Limit(0), None),
            (DiskReads::Limit(3), Some("3 files at a time on each device: md0, sda, sdb")),
            (DiskReads::Auto, Some("2 files at a time on disks that seek: md0, sda, sdb")),
        ] {
            assert_eq!(text_of(&devices, reads).as_deref(), text);
        }
        let none = text_of(&[], DiskReads::Auto);
        assert_eq!(none.as_deref(), Some("none of the mounted disks seeks"));
    }
}
