//! Watches directories, so that a change is noticed before an entry is next used.
//!
//! The kernel reports a change to the watches of the directory in which it was made by name. So an
//! entry is watched through every directory on its path from the root, and only if the path has no
//! symbolic link and the file has no second name. Some changes are not reported: changes by another
//! machine, through a shared mapping or a name created later, and mounts over a directory. Entries
//! on remote file systems are therefore not watched, and all entries are also checked each second.
//!
//! Events wait in the kernel's queue. Before a look-up trusts an entry it drains the queue if the
//! reactor has seen events; without events that costs nothing.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use foldhash::fast::RandomState;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::file::{Root, watch_readable};

/// Watched events. New names matter only to the directory's own entry.
const EVENTS: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);
/// The directory was deleted or moved.
const GONE: ReadFlags = ReadFlags::DELETE_SELF
    .union(ReadFlags::MOVE_SELF)
    .union(ReadFlags::UNMOUNT)
    .union(ReadFlags::IGNORED);
/// Bytes of events read at once.
const EVENT_BYTES: usize = 16 * 1024;

/// A directory beneath a root, in one of the root's generations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct DirKey {
    root: u64,
    generation: u64,
    rel: Rc<[u8]>,
}

/// The watches of one cache.
pub(super) struct Watcher {
    inotify: AsyncFd<OwnedFd>,
    watches_max: usize,
    state: RefCell<WatcherState>,
    /// The reason for abandoning the watches.
    broken: RefCell<Option<String>>,
    is_broken: Cell<bool>,
    /// Some directories are not watched, because there are too many.
    is_crowded: Cell<bool>,
    /// Pending log message.
    news: RefCell<Option<String>>,
}

#[derive(Default)]
struct WatcherState {
    dirs: HashMap<DirKey, Dir, RandomState>,
    by_wd: HashMap<i32, Vec<DirKey>, RandomState>,
    next_serial: u64,
}

struct Dir {
    wd: i32,
    users: usize,
    /// Distinguishes this record from an earlier one of the same directory.
    serial: u64,
}

/// A reported change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchedChange {
    /// The entry at this path, and with `below` everything beneath it.
    At { root: u64, path: Vec<u8>, below: bool },
    /// Events were lost; anything may have changed.
    Anything,
}

/// Keeps directories watched until dropped.
pub(super) struct Hold {
    watcher: Rc<Watcher>,
    dirs: Vec<(DirKey, u64)>,
}

/// Result of trying to watch a path.
pub(super) enum Acquired {
    /// All its directories are watched.
    Held(Hold),
    /// Some are not watched yet: see [`Watcher::acquire_by_asking`].
    Unknown,
    /// It cannot be watched.
    Never,
}

impl Watcher {
    pub(super) fn start(watches_max: usize) -> io::Result<Rc<Watcher>> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Rc::new(Watcher {
            inotify: watch_readable(fd)?,
            watches_max,
            state: RefCell::default(),
            broken: RefCell::new(None),
            is_broken: Cell::new(false),
            is_crowded: Cell::new(false),
            news: RefCell::new(None),
        }))
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    pub(super) fn why_broken(&self) -> Option<String> {
        self.broken.borrow().clone()
    }

    /// Warnings for the operator; each is returned once.
    pub(super) fn take_warnings(&self) -> Option<String> {
        self.news.borrow_mut().take()
    }

    /// Number of watched directories.
    pub(super) fn len(&self) -> usize {
        self.state.borrow().by_wd.len()
    }

    /// Holds the directories on a path if they are already watched. With `itself`, holds the
    /// directory that the path names.
    pub(super) fn acquire(self: &Rc<Self>, root: &Root, rel: &[u8], itself: bool) -> Acquired {
        let Some(dirs) = dirs_of(root, rel, itself) else { return Acquired::Never };
        if self.is_broken() {
            return Acquired::Never;
        }
        let mut state = self.state.borrow_mut();
        if dirs.iter().any(|dir| !state.dirs.contains_key(dir)) {
            return Acquired::Unknown;
        }
        let mut held = Vec::with_capacity(dirs.len());
        for dir in dirs {
            if let Some(known) = state.dirs.get_mut(&dir) {
                known.users += 1;
                held.push((dir, known.serial));
            }
        }
        Acquired::Held(Hold { watcher: self.clone(), dirs: held })
    }

    /// Like [`Watcher::acquire`], but adds missing watches. May wait.
    pub(super) async fn acquire_by_asking(
        self: &Rc<Self>,
        files: &crate::file::FileEngine,
        root: &Root,
        rel: &[u8],
        itself: bool,
    ) -> Option<Hold> {
        let dirs = dirs_of(root, rel, itself)?;
        if self.is_broken() {
            return None;
        }
        if self.len() + dirs.len() > self.watches_max {
            self.note_crowd();
            return None;
        }
        let fd = self.inotify.get_ref().try_clone().ok()?;
        let (path, wanted) = (root.path().to_owned(), dirs.len());
        let names: Vec<Vec<u8>> = dirs.iter().map(|dir| dir.rel.to_vec()).collect();
        // Top down: once a lower watch is added, the watches above report its replacement.
        let added = files
            .run(move || {
                let add = |rel: &Vec<u8>| add_watch(&fd, &path, rel);
                let mut wds = Vec::with_capacity(wanted);
                for rel in &names {
                    match add(rel) {
                        Ok(wd) => wds.push(wd),
                        Err(error) => return (wds, Some(error)),
                    }
                }
                (wds, None)
            })
            .await;
        let (wds, error) = added.ok()?;
        let mut hold = Hold { watcher: self.clone(), dirs: Vec::new() };
        for (dir, wd) in dirs.into_iter().zip(wds) {
            let serial = self.register(dir.clone(), wd);
            hold.dirs.push((dir, serial));
        }
        let Some(error) = error else { return Some(hold) };
        if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::ENOMEM)) {
            self.give_up(format!(
                "inotify_add_watch: {error} (sysctl fs.inotify.max_user_watches)"
            ));
        }
        // A link on the path, or a directory without read permission: not watched.
        None
    }

    /// Takes the reported changes. Costs no system call without events.
    pub(super) fn take_changes(&self) -> Vec<WatchedChange> {
        let mut events = Vec::new();
        let read = self.inotify.try_io(Interest::READABLE, |fd| read_events(fd, &mut events));
        if let Err(error) = read
            && error.kind() != io::ErrorKind::WouldBlock
        {
            self.give_up(format!("reading inotify events: {error}"));
            return vec![WatchedChange::Anything];
        }
        let mut changes = Vec::new();
        for event in events {
            self.translate(&event, &mut changes);
        }
        changes
    }

    fn register(&self, dir: DirKey, wd: i32) -> u64 {
        let mut state = self.state.borrow_mut();
        let serial = state.next_serial;
        let known = state.dirs.entry(dir.clone()).or_insert(Dir { wd, users: 0, serial });
        known.users += 1;
        let (old, known_serial) = (known.wd, known.serial);
        known.wd = wd;
        state.next_serial += 1;
        let names = state.by_wd.entry(wd).or_default();
        if !names.contains(&dir) {
            names.push(dir.clone());
        }
        if old != wd {
            // The path now leads to another directory than the one watched.
            state.unname(old, &dir);
        }
        debug_assert!(state.by_wd.len() <= state.dirs.len(), "a watch without a directory");
        known_serial
    }

    fn release(&self, dir: &DirKey, serial: u64) {
        let mut state = self.state.borrow_mut();
        let Some(known) = state.dirs.get_mut(dir).filter(|known| known.serial == serial) else {
            return;
        };
        known.users -= 1;
        if known.users > 0 {
            return;
        }
        let wd = known.wd;
        state.dirs.remove(dir);
        if state.unname(wd, dir) {
            // EINVAL if the directory, and so its watch, is gone.
            let _ = inotify::remove_watch(self.inotify.get_ref(), wd);
        }
    }

    fn translate(&self, event: &InotifyEvent, changes: &mut Vec<WatchedChange>) {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            changes.push(WatchedChange::Anything);
            return;
        }
        let mut state = self.state.borrow_mut();
        let names = state.by_wd.get(&event.wd).cloned().unwrap_or_default();
        for dir in names {
            let root = dir.root;
            let gone = event.flags.intersects(GONE);
            match &event.name {
                Some(name) if !gone => {
                    let path = join(&dir.rel, name);
                    let below = state.is_watched(&dir, &path);
                    changes.push(WatchedChange::At { root, path, below });
                    // Its own times have changed, or a name in it.
                    changes.push(WatchedChange::At { root, path: dir.rel.to_vec(), below: false });
                }
                _ => changes.push(WatchedChange::At { root, path: dir.rel.to_vec(), below: true }),
            }
            if gone {
                // The next user watches it anew; current holders find it missing.
                state.dirs.remove(&dir);
                if state.unname(event.wd, &dir) {
                    let _ = inotify::remove_watch(self.inotify.get_ref(), event.wd);
                }
            }
        }
    }

    fn note_crowd(&self) {
        if !self.is_crowded.replace(true) {
            let most = self.watches_max;
            *self.news.borrow_mut() = Some(format!(
                "{most} directories are watched, as many as may be: what is in others is looked at \
                 again once a second"
            ));
        }
    }

    fn give_up(&self, why: String) {
        if !self.is_broken() {
            let instead = "files are looked at again once a second, as with \"simple\"";
            *self.news.borrow_mut() = Some(format!("{why}; {instead}"));
        }
        self.broken.borrow_mut().get_or_insert(why);
        self.is_broken.set(true);
    }
}

impl WatcherState {
    fn is_watched(&self, dir: &DirKey, path: &[u8]) -> bool {
        let key = DirKey { root: dir.root, generation: dir.generation, rel: path.into() };
        self.dirs.contains_key(&key)
    }

    /// Removes a name from a watch. Returns `true` if it was the last one.
    fn unname(&mut self, wd: i32, dir: &DirKey) -> bool {
        let Some(names) = self.by_wd.get_mut(&wd) else { return false };
        names.retain(|name| name != dir);
        let last = names.is_empty();
        if last {
            self.by_wd.remove(&wd);
        }
        last
    }
}

impl Hold {
    /// The generation of the root that contains the watched directories.
    pub(super) fn root_generation(&self) -> Option<u64> {
        self.dirs.first().map(|(dir, _)| dir.generation)
    }

    /// Adds the directories of another hold.
    pub(super) fn and(mut self, mut other: Hold) -> Hold {
        self.dirs.append(&mut other.dirs);
        self
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for (dir, serial) in &self.dirs {
            self.watcher.release(dir, *serial);
        }
    }
}

/// The directories on a path, from the root down; with `itself`, only the path itself. `None` if
/// the path is not in its shortest form.
fn dirs_of(root: &Root, rel: &[u8], itself: bool) -> Option<Vec<DirKey>> {
    let rel = trimmed(rel);
    let names = rel.split(|&byte| byte == b'/');
    if !rel.is_empty() && names.clone().any(|name| matches!(name, b"" | b"." | b"..")) {
        return None;
    }
    let key =
        |rel: &[u8]| DirKey { root: root.id(), generation: root.generation(), rel: Rc::from(rel) };
    if itself {
        return Some(vec![key(rel)]);
    }
    let slashes = rel.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    Some(std::iter::once(key(b"")).chain(slashes.map(|(at, _)| key(&rel[..at]))).collect())
}

/// A path without its trailing slash.
pub(super) fn trimmed(rel: &[u8]) -> &[u8] {
    rel.strip_suffix(b"/").unwrap_or(rel)
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Watches a directory by path. The root's own path may contain links, the rest may not.
fn add_watch(fd: &OwnedFd, root: &Path, rel: &[u8]) -> io::Result<i32> {
    let mut flags = EVENTS | WatchFlags::ONLYDIR;
    let mut path = root.as_os_str().as_bytes().to_vec();
    if !rel.is_empty() {
        flags |= WatchFlags::DONT_FOLLOW;
        path.push(b'/');
        path.extend_from_slice(rel);
    }
    Ok(inotify::add_watch(fd, path, flags)?)
}

struct InotifyEvent {
    wd: i32,
    flags: ReadFlags,
    name: Option<Vec<u8>>,
}

/// Reads until empty, which returns `WouldBlock` and so clears the reactor's readiness.
fn read_events(fd: &OwnedFd, events: &mut Vec<InotifyEvent>) -> io::Result<()> {
    let mut buf = [MaybeUninit::uninit(); EVENT_BYTES];
    let mut reader = inotify::Reader::new(fd, &mut buf);
    loop {
        match reader.next() {
            Ok(event) => {
                let name = event.file_name().map(|name| name.to_bytes().to_vec());
                events.push(InotifyEvent { wd: event.wd(), flags: event.events(), name });
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
