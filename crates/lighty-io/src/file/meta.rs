//! Metadata of files and classes of file systems.

use rustix::fs::{Statx, StatxFlags};

/// Fields requested from `statx`.
pub(super) const STATX_MASK: StatxFlags = StatxFlags::BASIC_STATS;

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file: the only kind that is served.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that was not followed.
    Symlink,
    /// A device, FIFO or socket: never opened for reading, never read.
    Other,
}

/// The metadata of a file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Type of the file.
    pub kind: FileKind,
    /// Device number.
    pub dev: u64,
    /// Inode number on that device.
    pub ino: u64,
    /// Number of names (hard links) the inode has.
    pub links: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last change of the bytes: seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds within that second.
    pub mtime_ns: u32,
    /// Last change of the inode: seconds since 1970.
    pub ctime_s: i64,
    /// Nanoseconds within that second.
    pub ctime_ns: u32,
    /// Type and permission bits as in `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Meta {
    /// True if both describe the same content of the same file: device, inode, size and both times
    /// are equal.
    pub fn same_content(&self, other: &Meta) -> bool {
        self.same_file(other)
            && self.size == other.size
            && (self.mtime_s, self.mtime_ns) == (other.mtime_s, other.mtime_ns)
            && (self.ctime_s, self.ctime_ns) == (other.ctime_s, other.ctime_ns)
    }

    /// True if both describe the same inode.
    pub fn same_file(&self, other: &Meta) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// Nanoseconds since 1970 of the later of the two times.
    pub(crate) fn changed_ns(&self) -> i128 {
        let mtime = i128::from(self.mtime_s) * 1_000_000_000 + i128::from(self.mtime_ns);
        let ctime = i128::from(self.ctime_s) * 1_000_000_000 + i128::from(self.ctime_ns);
        mtime.max(ctime)
    }

    pub(super) fn from_statx(stat: &Statx) -> Meta {
        Meta {
            kind: kind_of(stat.stx_mode),
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            links: stat.stx_nlink,
            size: stat.stx_size,
            mtime_s: stat.stx_mtime.tv_sec,
            mtime_ns: stat.stx_mtime.tv_nsec,
            ctime_s: stat.stx_ctime.tv_sec,
            ctime_ns: stat.stx_ctime.tv_nsec,
            mode: stat.stx_mode,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
        }
    }
}

fn kind_of(mode: u16) -> FileKind {
    match u32::from(mode) & libc::S_IFMT {
        libc::S_IFREG => FileKind::File,
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFLNK => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

/// Class of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsClass {
    /// tmpfs, ramfs: data is always in memory.
    Memory,
    /// A disk file system of this kernel: cached data is available without waiting.
    Local,
    /// overlayfs: usually local, but without the non-blocking calls.
    Layered,
    /// FUSE, NFS and unknown ones: another process or machine may have to respond, even to a close.
    Remote,
}

impl FsClass {
    pub(super) fn from_magic(magic: i64) -> FsClass {
        match magic as u32 {
            0x0102_1994 | 0x8584_58f6 => FsClass::Memory,
            // ext2/3/4, xfs, btrfs, f2fs, squashfs, erofs, iso9660
            0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 | 0x7371_7368 | 0xe0f5_e1e2
            | 0x9660 => FsClass::Local,
            0x794c_7630 => FsClass::Layered,
            _ => FsClass::Remote,
        }
    }

    /// True if look-ups that hit the kernel's caches never wait.
    pub fn answers_from_cache(self) -> bool {
        matches!(self, FsClass::Memory | FsClass::Local)
    }
}
