//! The memory of brotli's encoder, whose largest table is handed from one body to the next.
//!
//! To clear 1 or 2 MB for each body costs a short one more than it takes to compress. The table
//! has positions in it, and how many of them are this body's is counted elsewhere, in a table that
//! is cleared; so what is left in it from another body is never looked at. Nothing that holds
//! bytes of a body is handed on.

use std::cell::RefCell;

use brotli::enc::cluster::HistogramPair;
use brotli::enc::command::Command;
use brotli::enc::entropy_encode::HuffmanTree;
use brotli::enc::histogram::{ContextType, HistogramCommand, HistogramDistance, HistogramLiteral};
use brotli::enc::{
    Allocator, BrotliAlloc, PDF, SliceWrapper, SliceWrapperMut, StandardAlloc, StaticCommand,
    ZopfliNode, floatX, s16, v8,
};

/// The tables that are kept: 1 MB for a short body and 2 MB for others, at qualities 5 and 6.
const SIZES: [usize; 2] = [1 << 18, 1 << 19];
/// Tables that a thread keeps: one of either size.
const KEPT_MAX: usize = SIZES.len();

thread_local! {
    /// Whoever compresses on this thread next takes them. They go with the thread, and threads
    /// that compress go when there is nothing to do.
    static KEPT: RefCell<Vec<Box<[u32]>>> = const { RefCell::new(Vec::new()) };
}

/// The allocator of one encoder.
#[derive(Default)]
pub(super) struct Tables {
    rest: StandardAlloc,
    /// Its search is one that counts (see above).
    counts: bool,
}

impl Tables {
    /// For an encoder of a quality.
    pub(super) fn new(quality: u32) -> Self {
        // Those below find everything by content, and those above keep trees.
        Self { counts: (5..=9).contains(&quality), ..Self::default() }
    }
}

/// Some memory of an encoder.
#[derive(Default)]
pub(super) struct Table {
    slots: Box<[u32]>,
    is_kept: bool,
}

impl Allocator<u32> for Tables {
    type AllocatedMemory = Table;

    fn alloc_cell(&mut self, len: usize) -> Table {
        let is_kept = self.counts && SIZES.contains(&len);
        let kept = if is_kept { take(len) } else { None };
        Table { slots: kept.unwrap_or_else(|| vec![0; len].into()), is_kept }
    }

    fn free_cell(&mut self, table: Table) {
        drop(table);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.is_kept {
            keep(std::mem::take(&mut self.slots));
        }
    }
}

fn take(len: usize) -> Option<Box<[u32]>> {
    KEPT.with_borrow_mut(|kept| {
        let at = kept.iter().position(|slots| slots.len() == len)?;
        Some(kept.swap_remove(at))
    })
}

fn keep(slots: Box<[u32]>) {
    // A thread that ends keeps nothing.
    let _ = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < KEPT_MAX && kept.iter().all(|other| other.len() != slots.len()) {
            kept.push(slots);
        }
    });
}

impl SliceWrapper<u32> for Table {
    fn slice(&self) -> &[u32] {
        &self.slots
    }
}

impl SliceWrapperMut<u32> for Table {
    fn slice_mut(&mut self) -> &mut [u32] {
        &mut self.slots
    }
}

macro_rules! cleared {
    ($($item:ty),* $(,)?) => {$(
        impl Allocator<$item> for Tables {
            type AllocatedMemory = <StandardAlloc as Allocator<$item>>::AllocatedMemory;

            fn alloc_cell(&mut self, len: usize) -> Self::AllocatedMemory {
                self.rest.alloc_cell(len)
            }

            fn free_cell(&mut self, memory: Self::AllocatedMemory) {
                <StandardAlloc as Allocator<$item>>::free_cell(&mut self.rest, memory);
            }
        }
    )*};
}

cleared!(
    u8,
    u16,
    i32,
    u64,
    Command,
    floatX,
    v8,
    s16,
    PDF,
    StaticCommand,
    HistogramLiteral,
    HistogramCommand,
    HistogramDistance,
    HistogramPair,
    ContextType,
    HuffmanTree,
    ZopfliNode,
);

impl BrotliAlloc for Tables {}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(tables: &mut Tables, len: usize) -> Table {
        <Tables as Allocator<u32>>::alloc_cell(tables, len)
    }

    fn kept() -> usize {
        KEPT.with_borrow(Vec::len)
    }

    #[test]
    fn one_of_each_size_is_handed_on() {
        let mut tables = Tables::new(5);
        let mut many: Vec<Table> = (0..3).map(|_| table(&mut tables, SIZES[0])).collect();
        many[0].slice_mut()[7] = 9;
        many.truncate(1);
        assert_eq!(kept(), 1);
        many.push(table(&mut tables, SIZES[1]));
        drop(many);
        assert_eq!(kept(), KEPT_MAX);
        for len in SIZES {
            assert_eq!(table(&mut tables, len).slice().len(), len);
        }
        let (_one, _other) = (table(&mut tables, SIZES[0]), table(&mut tables, SIZES[1]));
        assert_eq!(kept(), 0);
    }

    #[test]
    fn other_sizes_and_other_searches_get_cleared_memory() {
        for (quality, len) in [(5, SIZES[0] - 1), (5, SIZES[1] + 1), (4, SIZES[0]), (10, SIZES[0])]
        {
            let mut tables = Tables::new(quality);
            table(&mut tables, len).slice_mut().fill(1);
            assert_eq!(kept(), 0);
            assert!(table(&mut tables, len).slice().iter().all(|slot| *slot == 0));
        }
    }
}
