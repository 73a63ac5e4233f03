//! The cached data of one path.

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::rc::Rc;

use bytes::Bytes;

use crate::file::{Meta, OpenFile};

/// An open file with its cached data. Lives as long as it is in use, even after the cache has
/// dropped it.
pub struct CacheEntry {
    file: Rc<OpenFile>,
    small: Option<Small>,
    attachment: OnceCell<Rc<dyn Any>>,
    /// Changed so shortly before loading that a further change may not alter the times.
    pub(super) racy: bool,
}

/// The contents of a small file, charged to the cache's budget until dropped.
struct Small {
    bytes: Bytes,
    budget: Rc<Cell<u64>>,
}

impl CacheEntry {
    pub(super) fn new(file: Rc<OpenFile>, racy: bool) -> CacheEntry {
        CacheEntry { file, small: None, attachment: OnceCell::new(), racy }
    }

    pub(super) fn with_small(mut self, bytes: Bytes, budget: &Rc<Cell<u64>>) -> CacheEntry {
        budget.set(budget.get() + bytes.len() as u64);
        self.small = Some(Small { bytes, budget: budget.clone() });
        self
    }

    /// The file, open for reading if it is regular.
    pub fn file(&self) -> &Rc<OpenFile> {
        &self.file
    }

    /// The file's metadata when it was opened.
    pub fn meta(&self) -> &Meta {
        self.file.meta()
    }

    /// The whole contents, if the file is small.
    pub fn small(&self) -> Option<&Bytes> {
        self.small.as_ref().map(|small| &small.bytes)
    }

    /// A slot for data that upper layers derive from the file, once per entry.
    pub fn attachment(&self) -> &OnceCell<Rc<dyn Any>> {
        &self.attachment
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        self.budget.set(self.budget.get().saturating_sub(self.bytes.len() as u64));
    }
}

impl fmt::Debug for CacheEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("file", &self.file)
            .field("small_bytes", &self.small().map(Bytes::len))
            .finish_non_exhaustive()
    }
}
