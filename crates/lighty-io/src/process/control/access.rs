//! Access to the control socket: the rights of a caller, by the user and the groups that the kernel
//! names, and the mode of the socket's file, which admits no more users than may call.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::XattrFlags;

/// Rights of a caller, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControlRight {
    /// Queries.
    Query,
    /// Queries and changes.
    Change,
}

/// The users and groups that may call. Root and the owner may always call, for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlAccess {
    /// The user that owns the socket; `None`: the process's own.
    pub owner: Option<u32>,
    /// Groups that may query.
    pub readers: Vec<u32>,
    /// Groups that may query and change.
    pub admins: Vec<u32>,
}

impl ControlAccess {
    /// Returns the owner's number.
    pub(super) fn owner(&self) -> u32 {
        self.owner.unwrap_or_else(|| rustix::process::geteuid().as_raw())
    }

    /// Returns the rights of a user with these groups, the primary one included.
    pub(super) fn right(&self, uid: u32, groups: &[u32]) -> Option<ControlRight> {
        let is_in = |permitted: &[u32]| groups.iter().any(|group| permitted.contains(group));
        if uid == 0 || uid == self.owner() || is_in(&self.admins) {
            return Some(ControlRight::Change);
        }
        is_in(&self.readers).then_some(ControlRight::Query)
    }

    /// True if groups besides the owner may call.
    pub(super) fn has_groups(&self) -> bool {
        !self.readers.is_empty() || !self.admins.is_empty()
    }

    /// Sets owner and mode of the socket's file: the owner may connect, and each of the groups.
    ///
    /// # Errors
    /// The file system refuses it, or cannot admit several groups.
    pub(super) fn apply(&self, path: &Path) -> io::Result<()> {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        if let Some(owner) = self.owner {
            std::os::unix::fs::chown(path, Some(owner), None)?;
        }
        let mut groups = [&self.readers[..], &self.admins[..]].concat();
        groups.sort_unstable();
        groups.dedup();
        if groups.is_empty() {
            return Ok(());
        }
        // A list of access works for an owner that is in none of the groups, unlike `chown`.
        let list = access_list(&groups);
        let set = rustix::fs::setxattr(path, ACCESS_LIST, &list, XattrFlags::empty());
        match (set, &groups[..]) {
            (Ok(()), _) => Ok(()),
            (Err(_), [group]) => {
                std::os::unix::fs::chown(path, None, Some(*group))?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
            }
            (Err(error), _) => {
                let text = format!("its file system admits no more than one group: {error}");
                Err(io::Error::new(io::Error::from(error).kind(), text))
            }
        }
    }
}

const ACCESS_LIST: &str = "system.posix_acl_access";

/// Tags of posix_acl_xattr.h in the kernel's headers.
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// A list of access, as an extended attribute has it: the owner and the groups may read and write.
fn access_list(groups: &[u32]) -> Vec<u8> {
    const READ_WRITE: u16 = 6;
    const NO_ID: u32 = u32::MAX;
    let named = groups.iter().map(|group| (GROUP, READ_WRITE, *group));
    let head = [(USER_OBJ, READ_WRITE, NO_ID), (GROUP_OBJ, 0, NO_ID)];
    let tail = [(MASK, READ_WRITE, NO_ID), (OTHER, 0, NO_ID)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in head.into_iter().chain(named).chain(tail) {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Maximum number of supplementary groups of a process (limits.h of the kernel).
const GROUPS_MAX: usize = 65_536;

/// Returns the supplementary groups of the process at the other end of a unix socket, as they were
/// when it connected. None if the kernel does not name them (before Linux 4.13).
pub(super) fn peer_groups(socket: BorrowedFd<'_>) -> Vec<u32> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        // GROUPS_MAX times four fits.
        let mut bytes = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: the buffer has `bytes` bytes, both outlive the call, and any bits are a gid_t.
        let code = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast::<c_void>(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<libc::gid_t>();
        let is_short = io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE);
        if code == 0 {
            groups.truncate(count);
            return groups;
        }
        if !is_short || count <= groups.len() || count > GROUPS_MAX {
            return Vec::new();
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn rights_follow_from_user_and_groups() {
        let access = ControlAccess { owner: Some(10), readers: vec![1, 2], admins: vec![3] };
        let (query, change) = (Some(ControlRight::Query), Some(ControlRight::Change));
        for (uid, groups, right) in [
            (0, &[][..], change),
            (10, &[], change),
            (11, &[], None),
            (11, &[9], None),
            (11, &[9, 2], query),
            (11, &[1, 3], change),
        ] {
            assert_eq!(access.right(uid, groups), right, "{uid} {groups:?}");
        }
    }

    #[test]
    fn file_admits_the_groups_and_nobody_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ctl");
        let _listener = UnixListener::bind(&path).expect("bound");
        let mode = |access: ControlAccess| {
            access.apply(&path).expect("applied");
            std::fs::metadata(&path).expect("a file").mode() & 0o777
        };
        assert_eq!(mode(ControlAccess::default()), 0o600);
        let own = rustix::process::getegid().as_raw();
        let readers = ControlAccess { readers: vec![own], ..ControlAccess::default() };
        // With a list of access, these are the owner's bits and the mask.
        assert_eq!(mode(readers), 0o660);
    }

    #[test]
    fn access_list_has_its_entries_in_the_order_of_the_kernel() {
        let list = access_list(&[7]);
        assert_eq!(list.len(), 4 + 5 * 8);
        assert_eq!(list[..12], [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255]);
        assert_eq!(list[20..28], [8, 0, 6, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn peer_groups_are_those_of_this_process() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let mut found = peer_groups(one.as_fd());
        let own = rustix::process::getgroups().expect("groups");
        let mut own: Vec<u32> = own.into_iter().map(|group| group.as_raw()).collect();
        found.sort_unstable();
        own.sort_unstable();
        assert_eq!(found, own);
    }
}
