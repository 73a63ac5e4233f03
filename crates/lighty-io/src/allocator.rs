//! The process's allocator: mimalloc.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as mi;

/// mimalloc, with an explicit alignment only where the natural one does not suffice: its aligned
/// allocations take four times as long.
pub struct Allocator;

/// Every block of at least this many bytes is aligned to as many, every smaller one to a word
/// (`MI_MAX_ALIGN_SIZE`).
const NATURAL: usize = 16;

unsafe extern "C" {
    /// mimalloc.h: the version, with two digits each for minor version and patch.
    fn mi_version() -> libc::c_int;
}

/// The version of mimalloc, such as `2.3.2`.
pub(crate) fn version() -> String {
    // SAFETY: takes nothing and returns a constant.
    let version = unsafe { mi_version() };
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

fn is_natural(layout: Layout, bytes: usize) -> bool {
    layout.align() <= size_of::<usize>() || layout.align() <= NATURAL && bytes >= NATURAL
}

// SAFETY: mimalloc's blocks have the requested size and at least the requested alignment, given
// explicitly or natural; `mi_free` takes blocks of either kind.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match is_natural(layout, layout.size()) {
                true => mi::mi_malloc(layout.size()).cast(),
                false => mi::mi_malloc_aligned(layout.size(), layout.align()).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match is_natural(layout, layout.size()) {
                true => mi::mi_zalloc(layout.size()).cast(),
                false => mi::mi_zalloc_aligned(layout.size(), layout.align()).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block is one of this allocator's.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match is_natural(layout, bytes) {
                true => mi::mi_realloc(block.cast(), bytes).cast(),
                false => mi::mi_realloc_aligned(block.cast(), bytes, layout.align()).cast(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_as_asked() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
            for size in [1, 7, 8, 15, 16, 17, 24, 40, 100, 4097] {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                // SAFETY: the layout has a size, and is that of the block.
                unsafe {
                    let block = Allocator.alloc(layout);
                    assert_eq!(block.addr() % align, 0, "{layout:?}");
                    let block = Allocator.realloc(block, layout, size + 9);
                    assert_eq!(block.addr() % align, 0, "{layout:?} grown");
                    let layout = Layout::from_size_align(size + 9, align).expect("a layout");
                    Allocator.dealloc(block, layout);
                    let block = Allocator.alloc_zeroed(layout);
                    assert_eq!((block.addr() % align, *block), (0, 0), "{layout:?} of zeros");
                    Allocator.dealloc(block, layout);
                }
            }
        }
    }
}
