//! State shared by the pages of one response: variables, formats, and use of the limits.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use lighty_core::exchange::variables;
use lighty_core::{Exchange, Extension, Fault, extension_slot};
use lighty_io::file::Meta;
use lighty_io::stat_cache::CacheEntry;

use super::settings::SsiLimits;

/// Default time format.
pub(super) const TIME_FORMAT: &[u8] = b"%a, %d %b %Y %H:%M:%S %Z";

/// A failure of the whole response.
#[derive(Debug)]
pub(super) struct Fatal {
    pub(super) fault: Fault,
    pub(super) message: String,
}

impl Fatal {
    /// Reports an exceeded limit by its directive's name.
    pub(super) fn limit(message: impl Into<String>) -> Self {
        Self { fault: Fault::PageLimit, message: message.into() }
    }
}

/// Formats that pages have chosen.
pub(super) struct Formats {
    pub(super) time: Vec<u8>,
    /// Show sizes as `1 kB` instead of all digits.
    pub(super) abbreviate: bool,
    /// Text written in place of a failed command.
    pub(super) error: Vec<u8>,
}

/// The requested page, of which included pages are a part.
pub(super) struct PageDocument {
    pub(super) name: Vec<u8>,
    pub(super) uri: Vec<u8>,
    pub(super) modified_s: i64,
    pub(super) owner: u32,
}

/// The relation of a request to pages.
#[derive(Default)]
pub(super) struct Within {
    /// The response that the request is a part of.
    pub(super) outer: Option<Rc<PageState>>,
    /// The response was made from a page.
    pub(super) is_page: bool,
}

impl Within {
    /// Marks a request as part of a response.
    pub(super) fn part_of(outer: &Rc<PageState>) -> Self {
        Self { outer: Some(Rc::clone(outer)), is_page: false }
    }
}

impl Extension for Within {
    extension_slot!();
}

/// State of one response.
pub(super) struct PageState {
    pub(super) document: PageDocument,
    pub(super) variables: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(super) formats: RefCell<Formats>,
    limits: SsiLimits,
    commands: Cell<u32>,
    memory_bytes: Cell<usize>,
    depth: Cell<u32>,
    only_looks: Cell<bool>,
    failed: Cell<bool>,
    newest_s: Cell<i64>,
    digest: Cell<u64>,
}

impl PageState {
    /// Creates the state for a requested page.
    pub(super) fn of(ex: &Exchange, entry: &CacheEntry, limits: SsiLimits) -> Self {
        let rel = &ex.physical.rel;
        let name_at = rel.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let meta = entry.meta();
        Self {
            document: PageDocument {
                name: rel[name_at..].to_vec(),
                uri: variables::split_path(ex).0.to_vec(),
                modified_s: meta.mtime_s,
                owner: meta.uid,
            },
            variables: RefCell::default(),
            formats: RefCell::new(Formats {
                time: TIME_FORMAT.to_vec(),
                abbreviate: false,
                error: Vec::new(),
            }),
            limits,
            commands: Cell::new(0),
            memory_bytes: Cell::new(0),
            depth: Cell::new(0),
            only_looks: Cell::new(false),
            failed: Cell::new(false),
            newest_s: Cell::new(meta.mtime_s),
            digest: Cell::new(0),
        }
    }

    /// Counts a command; returns their number so far.
    pub(super) fn count_command(&self) -> Result<u32, Fatal> {
        let count = self.commands.get() + 1;
        self.commands.set(count);
        match count > self.limits.commands_max {
            true => Err(Fatal::limit(format!("ssi.max-commands = {}", self.limits.commands_max))),
            false => Ok(count),
        }
    }

    /// Counts bytes that are held in memory until the response is sent.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), Fatal> {
        let sum = self.memory_bytes.get().saturating_add(bytes);
        self.memory_bytes.set(sum);
        match sum > self.limits.memory_bytes_max {
            true => {
                let max = self.limits.memory_bytes_max / 1024;
                Err(Fatal::limit(format!("ssi.max-memory = {max}")))
            }
            false => Ok(()),
        }
    }

    /// Begins a page, the requested one or a part of it; `None` if the nesting is too deep.
    pub(super) fn enter(self: &Rc<Self>, depth_max: u32) -> Option<DepthGuard> {
        let depth = self.depth.get();
        if depth > depth_max {
            return None;
        }
        self.depth.set(depth + 1);
        Some(DepthGuard(Rc::clone(self)))
    }

    /// Makes pages report only size and time while the guard is held.
    pub(super) fn look(self: &Rc<Self>) -> PageLook {
        self.only_looks.set(true);
        PageLook(Rc::clone(self))
    }

    pub(super) fn only_looks(&self) -> bool {
        self.only_looks.get()
    }

    /// Records that a page within this response failed as a whole.
    pub(super) fn fail(&self) {
        self.failed.set(true);
    }

    /// Returns true if a page has failed since the last call.
    pub(super) fn take_failed(&self) -> bool {
        self.failed.take()
    }

    /// Records a file that became part of the response.
    pub(super) fn take_in(&self, meta: &Meta) {
        use std::hash::BuildHasher;
        self.newest_s.set(self.newest_s.get().max(meta.mtime_s));
        let what = (self.digest.get(), meta.ino, meta.size, meta.mtime_s, meta.mtime_ns);
        self.digest.set(foldhash::quality::FixedState::default().hash_one(what));
    }

    /// Returns the newest file's modification time, and a tag over all files. The tag is weak,
    /// because other content of the page is unknown.
    pub(super) fn validators(&self) -> (i64, String) {
        (self.newest_s.get(), format!("W/\"{:x}\"", self.digest.get()))
    }
}

/// Guard of one nesting level.
pub(super) struct DepthGuard(Rc<PageState>);

impl Drop for DepthGuard {
    fn drop(&mut self) {
        self.0.depth.set(self.0.depth.get() - 1);
    }
}

/// Guard of [`PageState::look`].
pub(super) struct PageLook(Rc<PageState>);

impl Drop for PageLook {
    fn drop(&mut self) {
        self.0.only_looks.set(false);
    }
}
