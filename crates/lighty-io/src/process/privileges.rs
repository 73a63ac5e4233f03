//! The process's privileges and limits: user and group, chroot, resource limits, the pid file.
//!
//! Order at start: look the names up ([`Identity::lookup`] reads /etc and so must precede a
//! chroot), raise the limits, bind, then [`drop_privileges`].

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::process::capabilities;
use crate::process::limits::{self, Limit, LimitKind};

/// The user and group to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user to switch to, if any.
    pub user: Option<User>,
    /// The group; the user's own if none was named.
    pub gid: Option<u32>,
}

/// A user of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name, used to find its supplementary groups.
    pub name: CString,
    /// Its numeric id.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
}

impl Identity {
    /// Looks names up. A numeric name that no user or group has is taken as an id.
    ///
    /// # Errors
    /// `NotFound` with the name in the text, or the error of the look-up.
    pub fn lookup(user: Option<&str>, group: Option<&str>) -> io::Result<Self> {
        let user = user.map(user_by_name).transpose()?;
        let gid = match group {
            Some(group) => Some(gid_by_name(group)?),
            None => user.as_ref().map(|user| user.gid),
        };
        Ok(Identity { user, gid })
    }

    /// True if the user is root.
    pub fn is_root(&self) -> bool {
        self.user.as_ref().is_some_and(|user| user.uid == 0)
    }

    /// True if nothing would change.
    pub fn is_unchanged(&self) -> bool {
        self.user.is_none() && self.gid.is_none()
    }
}

/// Limits the look-up of users and groups to `/etc/passwd` and `/etc/group`. Call before the first
/// look-up. A statically linked glibc would load the modules that `/etc/nsswitch.conf` names, such
/// as systemd's, and crash in them: they belong to a dynamic one.
pub fn look_users_up_in_files() {
    #[cfg(target_env = "gnu")]
    {
        // nss.h of glibc; the crate `libc` lacks it.
        unsafe extern "C" {
            fn __nss_configure_lookup(
                database: *const libc::c_char,
                services: *const libc::c_char,
            ) -> libc::c_int;
        }
        for database in [c"passwd", c"group", c"initgroups"] {
            // SAFETY: both strings live as long as the program, and no other thread that looks
            // something up is running yet.
            unsafe { __nss_configure_lookup(database.as_ptr(), c"files".as_ptr()) };
        }
    }
}

/// Maximum size of a user database entry; a group may have thousands of members.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Calls `getpwnam_r` or a similar function with a buffer that grows on demand.
fn with_entry_buffer<T>(
    mut call: impl FnMut(&mut [libc::c_char]) -> Result<Option<T>, libc::c_int>,
) -> io::Result<Option<T>> {
    let mut bytes = 1_024;
    loop {
        match call(&mut vec![0; bytes]) {
            Ok(found) => return Ok(found),
            Err(libc::ERANGE) if bytes < ENTRY_BYTES_MAX => bytes *= 4,
            Err(libc::EINTR) => {}
            // C libraries report "no such entry" with different codes, see getpwnam(3).
            Err(0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM) => return Ok(None),
            Err(code) => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// The home directory of a user; `None` if there is no such user. May block: the user database can
/// be on the network.
///
/// # Errors
/// The error of the look-up.
pub fn home_of(name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let home = user_entry(&c_string(name)?, |entry| {
        // SAFETY: a directory that is not null is a string in the entry's buffer.
        (!entry.pw_dir.is_null())
            .then(|| unsafe { CStr::from_ptr(entry.pw_dir) }.to_bytes().to_vec())
    })?;
    Ok(home.flatten())
}

/// The name of the user with an id; `None` if there is no such user. May block like [`home_of`].
///
/// # Errors
/// The error of the look-up.
pub fn user_name(uid: u32) -> io::Result<Option<Vec<u8>>> {
    entry(libc::getpwuid_r, uid, |entry: &libc::passwd| {
        // SAFETY: `pw_name` is a string in the entry's buffer, which is still alive.
        unsafe { CStr::from_ptr(entry.pw_name) }.to_bytes().to_vec()
    })
}

/// `getpwnam_r` and similar functions, with their type of key and entry.
type LookUp<K, E> =
    unsafe extern "C" fn(K, *mut E, *mut libc::c_char, libc::size_t, *mut *mut E) -> libc::c_int;

/// Looks an entry up and passes it to `read`; its strings live as long as that call. `None` if
/// there is no entry. A key that is a pointer must point to a string that outlives the call.
fn entry<K: Copy, E, T>(
    look_up: LookUp<K, E>,
    key: K,
    read: impl Fn(&E) -> T,
) -> io::Result<Option<T>> {
    with_entry_buffer(|buffer| {
        let mut entry = std::mem::MaybeUninit::<E>::uninit();
        let mut result = std::ptr::null_mut();
        // SAFETY: a name ends with a zero byte, the buffer has the given length, and both outlive
        // the call, as do the two pointers for the result.
        let code = unsafe {
            look_up(key, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut result)
        };
        if code != 0 || result.is_null() {
            return if code == 0 { Ok(None) } else { Err(code) };
        }
        // SAFETY: a result that is not null points to `entry`, which the call has filled in.
        Ok(Some(read(&unsafe { entry.assume_init() })))
    })
}

fn user_entry<T>(name: &CStr, read: impl Fn(&libc::passwd) -> T) -> io::Result<Option<T>> {
    entry(libc::getpwnam_r, name.as_ptr(), read)
}

fn user_by_name(name: &str) -> io::Result<User> {
    let c_name = c_string(name.as_bytes())?;
    let found = user_entry(&c_name, |entry| {
        // SAFETY: `pw_name` is a string in the entry's buffer, which is still alive.
        let name = unsafe { CStr::from_ptr(entry.pw_name) }.to_owned();
        User { name, uid: entry.pw_uid, gid: entry.pw_gid }
    })?;
    match (found, name.parse::<u32>()) {
        (Some(user), _) => Ok(user),
        // An unknown id has no primary group, so the same number is the best guess.
        (None, Ok(uid)) => Ok(User { name: c_name, uid, gid: uid }),
        (None, Err(_)) => Err(no_such("user", name)),
    }
}

fn gid_by_name(name: &str) -> io::Result<u32> {
    let c_name = c_string(name.as_bytes())?;
    let found = entry(libc::getgrnam_r, c_name.as_ptr(), |group: &libc::group| group.gr_gid)?;
    match (found, name.parse::<u32>()) {
        (Some(gid), _) => Ok(gid),
        (None, Ok(gid)) => Ok(gid),
        (None, Err(_)) => Err(no_such("group", name)),
    }
}

fn no_such(what: &str, name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no {what} \"{name}\""))
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Enters the chroot, if any, then switches identity permanently: group, supplementary groups,
/// user, in this order, because each step needs privileges that the next one drops. Applies to all
/// threads of the process.
///
/// # Errors
/// The step that failed; the process must not continue.
pub fn drop_privileges(identity: &Identity, chroot: Option<&Path>) -> io::Result<()> {
    if let Some(root) = chroot {
        enter_chroot(root)?;
    }
    assume_group(identity)?;
    assume_user(identity)
}

/// The first half of a change of identity: group and supplementary groups. Reads /etc/group.
///
/// # Errors
/// The step that failed; the process must not continue.
pub fn assume_group(identity: &Identity) -> io::Result<()> {
    let Some(gid) = identity.gid else { return Ok(()) };
    // Before setgid, which may remove the privilege to do this.
    set_groups(identity.user.as_ref(), gid)?;
    // SAFETY: takes a number, touches no memory of ours.
    step("setgid", unsafe { libc::setgid(gid) })
}

/// The second half: the user, for good.
///
/// # Errors
/// The step that failed; the process must not continue.
pub fn assume_user(identity: &Identity) -> io::Result<()> {
    let Some(user) = &identity.user else { return Ok(()) };
    // SAFETY: takes a number, touches no memory of ours.
    step("setuid", unsafe { libc::setuid(user.uid) })?;
    // SAFETY: as above. Being root again must fail now, or the drop was none.
    if user.uid != 0 && unsafe { libc::setuid(0) } == 0 {
        return Err(io::Error::other("setuid: the process could become root again"));
    }
    Ok(())
}

/// True if the process has root privileges.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The first unprivileged port.
pub fn first_free_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024)
}

/// True if this process may listen on a port. Port 0 is any free one.
pub fn may_listen_on(port: u16) -> bool {
    const NET_BIND_SERVICE: u32 = 10;
    if port == 0 || port >= first_free_port() {
        return true;
    }
    capabilities::effective().map_or_else(is_root, |set| set >> NET_BIND_SERVICE & 1 == 1)
}

/// A user's groups, for a process that will switch to that user. Call before the fork, because it
/// reads /etc.
pub(crate) fn groups_of(identity: &Identity) -> io::Result<Vec<libc::gid_t>> {
    let Some(gid) = identity.gid else { return Ok(Vec::new()) };
    let Some(user) = &identity.user else { return Ok(vec![gid]) };
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the name ends with a zero byte, `groups` has space for `count` groups, and all of
        // it outlives the call.
        let result = unsafe {
            libc::getgrouplist(user.name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count)
        };
        let found = usize::try_from(count).unwrap_or(0);
        if result >= 0 {
            groups.truncate(found);
            return Ok(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other("getgrouplist: too many groups"));
        }
        groups.resize((groups.len() * 2).max(found), 0);
    }
}

/// The kernel's limit on groups per process (NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;

fn set_groups(user: Option<&User>, gid: u32) -> io::Result<()> {
    // SAFETY: takes nothing, touches no memory of ours.
    if unsafe { libc::geteuid() } != 0 {
        // An ordinary user has no right to it, and may only "change" to itself.
        return Ok(());
    }
    match user {
        // SAFETY: the name ends with a zero byte and outlives the call.
        Some(user) => step("initgroups", unsafe { libc::initgroups(user.name.as_ptr(), gid) }),
        // SAFETY: one group, at a place that outlives the call.
        None => step("setgroups", unsafe { libc::setgroups(1, &raw const gid) }),
    }
}

/// Makes a directory the root and the working directory of the process.
///
/// # Errors
/// The step that failed.
pub fn enter_chroot(root: &Path) -> io::Result<()> {
    let path = c_string(root.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero byte and outlives the call.
    step("chroot", unsafe { libc::chroot(path.as_ptr()) })?;
    // An outside working directory would allow an escape.
    std::env::set_current_dir("/")
}

fn step(name: &str, result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(io::Error::new(error.kind(), format!("{name}: {error}")))
}

/// Raises the limit on open descriptors as far as permitted, up to `wanted` or to the maximum.
/// Returns the new limit.
///
/// # Errors
/// The kernel refuses even the limit that it reported as permitted.
pub fn raise_max_files(wanted: Option<u64>) -> io::Result<u64> {
    let now = limits::get(LimitKind::OpenFiles);
    let hard = now.hard.unwrap_or(u64::MAX);
    let target = wanted.unwrap_or(hard);
    if target > hard {
        // Only root may exceed the hard limit; otherwise settle for that.
        let beyond = Limit { soft: Some(target), hard: Some(target) };
        if limits::set(LimitKind::OpenFiles, beyond).is_ok() {
            return Ok(target);
        }
    }
    let target = target.min(hard);
    limits::set(LimitKind::OpenFiles, Limit { soft: Some(target), hard: now.hard })?;
    Ok(target)
}

/// The limit on open descriptors as it is.
pub fn max_files() -> u64 {
    limits::get(LimitKind::OpenFiles).soft.unwrap_or(u64::MAX)
}

/// Grows the process's descriptor table to `limit` at once. The table grows by doubling, and in a
/// multi-threaded process the growing thread waits for all others, so an event loop that accepts a
/// connection would stall for milliseconds. Call before threads are started.
///
/// # Errors
/// If the highest descriptor is unavailable.
pub fn reserve_descriptors(limit: u64) -> io::Result<()> {
    let highest = libc::c_int::try_from(limit.saturating_sub(1)).unwrap_or(libc::c_int::MAX);
    let any = std::fs::File::open("/")?;
    // The copy is closed at once; the table keeps its size.
    rustix::io::fcntl_dupfd_cloexec(&any, highest)?;
    Ok(())
}

/// Allows or forbids core dumps. To allow them, call this again after a change of user, because the
/// kernel then forbids them. Forbidding only sets the size limit, so the user's tools (`strace`,
/// `ss -p`, /proc) can still see the process.
///
/// # Errors
/// If the kernel refuses.
pub fn allow_core_dumps(allowed: bool) -> io::Result<()> {
    let hard = limits::get(LimitKind::CoreSize).hard;
    let soft = if allowed { hard } else { Some(0) };
    limits::set(LimitKind::CoreSize, Limit { soft, hard })?;
    if !allowed {
        return Ok(());
    }
    // SAFETY: PR_SET_DUMPABLE takes a number, touches no memory of ours.
    step("prctl", unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1 as libc::c_ulong) })
}

/// Maximum length of a pid file.
const PID_BYTES_MAX: u64 = 16;

/// A file with the process id. On drop the file is removed if it is still ours, or emptied if
/// removal is no longer permitted.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Kept open: after a privilege drop or chroot it could not be reopened.
    file: File,
    pid: u32,
}

impl PidFile {
    /// Writes the file, replacing that of an earlier server, and locks it. A symbolic link is not
    /// followed.
    ///
    /// # Errors
    /// Errors with the path in the text; `AddrInUse` if a running server holds the file.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::write(path).map_err(|error| {
            io::Error::new(error.kind(), format!("pid file {}: {error}", path.display()))
        })
    }

    fn write(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            // A FIFO without a reader must not block the start.
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        if !file.metadata()?.is_file() {
            // It is removed at the end, so it must not be a device or socket.
            return Err(io::Error::other("is not a regular file"));
        }
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            // A file system without locks takes none; then the last server has the file.
            let mut holder = String::new();
            let _ = (&file).take(PID_BYTES_MAX).read_to_string(&mut holder);
            let text = format!("a running server holds it, process {}", holder.trim());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        let pid_file = PidFile { path: path.to_path_buf(), file, pid: std::process::id() };
        pid_file.claim()?;
        Ok(pid_file)
    }

    /// The pid file of the server before this one, with its lock. It still contains the id of that
    /// server.
    pub fn handed(descriptor: OwnedFd, path: &Path) -> Self {
        let (path, pid) = (path.to_path_buf(), std::process::id());
        PidFile { path, file: File::from(descriptor), pid }
    }

    /// Its path, and a descriptor for another process.
    pub fn descriptor(&self) -> (&Path, BorrowedFd<'_>) {
        (&self.path, self.file.as_fd())
    }

    /// Writes the id of this process.
    ///
    /// # Errors
    /// The system's, such as a full disk.
    pub fn claim(&self) -> io::Result<()> {
        let text = format!("{}\n", self.pid);
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }

    /// Releases the lock, so that another server may take the file over while this one drains.
    pub fn release(&self) {
        // Without locks there is nothing to release.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    /// True if the file still contains our id; another server may have overwritten it.
    fn is_ours(&self) -> bool {
        let mut text = [0; 16];
        let count = self.file.read_at(&mut text, 0).unwrap_or(0);
        text[..count] == *format!("{}\n", self.pid).as_bytes()
    }

    fn remove(&self) -> io::Result<()> {
        let (ours, named) = (self.file.metadata()?, std::fs::symlink_metadata(&self.path)?);
        if (ours.dev(), ours.ino()) != (named.dev(), named.ino()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        std::fs::remove_file(&self.path)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // A forked child must not remove its parent's file.
        if std::process::id() == self.pid && self.is_ours() && self.remove().is_err() {
            // After the privilege drop the directory may not be writable; an empty file means that
            // the server is gone.
            let _ = self.file.set_len(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_is_a_regular_file_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("pid");
        std::fs::write(&path, "an older and longer content").expect("write");
        let pid_file = PidFile::create(&path).expect("create");
        let written = std::fs::read_to_string(&path).expect("read");
        assert_eq!(written, format!("{}\n", std::process::id()));
        drop(pid_file);
        assert!(!path.exists());
        let socket = std::os::unix::net::UnixListener::bind(&path).expect("bind");
        assert!(PidFile::create(&path).is_err(), "a socket is no pid file");
        assert!(path.exists());
        drop(socket);
        std::os::unix::fs::symlink("elsewhere", dir.path().join("link")).expect("link");
        assert!(PidFile::create(&dir.path().join("link")).is_err());
    }

    #[test]
    fn a_pid_file_that_cannot_be_removed_is_emptied_and_one_of_another_server_is_left() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (path, aside) = (dir.path().join("pid"), dir.path().join("aside"));
        let pid_file = PidFile::create(&path).expect("create");
        std::fs::rename(&path, &aside).expect("rename");
        std::fs::write(&path, "another's\n").expect("write");
        drop(pid_file);
        assert_eq!(std::fs::read_to_string(&aside).expect("read"), "");
        let pid_file = PidFile::create(&path).expect("create");
        std::fs::write(&path, "1\n").expect("write");
        drop(pid_file);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "1\n");
    }

    #[test]
    fn names_are_looked_up() {
        let root = Identity::lookup(Some("root"), None).expect("root");
        assert_eq!(root.user.as_ref().map(|user| user.uid), Some(0));
        assert_eq!(root.gid, Some(0));
        let group = Identity::lookup(None, Some("daemon")).expect("daemon");
        assert!(group.user.is_none() && group.gid.is_some());
        assert!(Identity::lookup(None, None).expect("nobody asked").is_unchanged());
        let numbers = Identity::lookup(Some("54321"), Some("54322")).expect("numbers");
        assert_eq!((numbers.user.expect("user").uid, numbers.gid), (54_321, Some(54_322)));
    }

    #[test]
    fn unknown_names_are_named() {
        let error = Identity::lookup(Some("no-such-user"), None).expect_err("user");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("no-such-user"), "{error}");
        let error = Identity::lookup(None, Some("no-such-group")).expect_err("group");
        assert!(error.to_string().contains("no-such-group"), "{error}");
        assert!(Identity::lookup(Some("a\0b"), None).is_err());
    }

    #[test]
    fn a_pid_file_is_written_and_removed() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("pid");
        std::fs::write(&path, "999999 left behind by a dead server\n").expect("write");
        let pid_file = PidFile::create(&path).expect("create");
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("{}\n", std::process::id()));
        drop(pid_file);
        assert!(!path.exists());
    }

    #[test]
    fn a_pid_file_of_another_server_stays() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("pid");
        let pid_file = PidFile::create(&path).expect("create");
        std::fs::rename(&path, dir.path().join("old")).expect("rename");
        std::fs::write(&path, "1\n").expect("write");
        drop(pid_file);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "1\n");
    }

    #[test]
    fn a_pid_file_does_not_follow_a_link() {
        let dir = tempfile::tempdir().expect("tempdir");
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").expect("write");
        let link = dir.path().join("pid");
        std::os::unix::fs::symlink(&victim, &link).expect("link");
        let error = PidFile::create(&link).expect_err("refused");
        assert!(error.to_string().contains("pid file"), "{error}");
        assert_eq!(std::fs::read_to_string(&victim).expect("read"), "precious");
    }

    /// Runs in a process of its own, because the changes are permanent.
    #[test]
    fn limits_and_identity_of_a_process() {
        const MARK: &str = "LIGHTY_TEST_PRIVILEGES";
        if let Some(dir) = std::env::var_os(MARK) {
            return change_for_good(Path::new(&dir));
        }
        let dir = tempfile::tempdir().expect("tempdir");
        let output = std::process::Command::new(std::env::current_exe().expect("test binary"))
            .args(["--exact", "process::privileges::tests::limits_and_identity_of_a_process"])
            .arg("--nocapture")
            .env(MARK, dir.path())
            .output()
            .expect("run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn change_for_good(dir: &Path) {
        assert_eq!(raise_max_files(Some(100)).expect("lower"), 100);
        let hard = raise_max_files(None).expect("raise");
        assert_eq!(hard, max_files());
        // SAFETY: only reads a flag; takes no memory of ours.
        let visible = || unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
        let before = visible();
        allow_core_dumps(false).expect("forbid");
        assert_eq!(visible(), before, "the user's own tools go on seeing the process");
        assert_eq!(limits::get(LimitKind::CoreSize).soft, Some(0));

        let path = dir.join("pid");
        // SAFETY: takes nothing, touches no memory of ours.
        if unsafe { libc::geteuid() } != 0 {
            let identity = Identity::lookup(Some("root"), None).expect("root");
            drop_privileges(&identity, None).expect_err("an ordinary user cannot become root");
            return;
        }
        let pid_file = PidFile::create(&path).expect("create");
        std::fs::write(dir.join("inside"), "").expect("write");
        let identity = Identity::lookup(Some("daemon"), None).expect("daemon");
        drop_privileges(&identity, Some(dir)).expect("drop");
        assert!(Path::new("/inside").exists(), "the root is the directory now");
        let ids = (rustix::process::geteuid(), rustix::process::getegid());
        assert_eq!(ids.0.as_raw(), identity.user.expect("user").uid);
        assert_eq!(ids.1.as_raw(), identity.gid.expect("gid"));
        let groups = rustix::process::getgroups().expect("groups");
        assert!(groups.iter().all(|group| group.as_raw() != 0), "root's groups are gone");
        drop(pid_file);
    }
}
