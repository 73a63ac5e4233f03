//! A counting allocator. Test binaries that count allocations include this file by `#[path]`: the
//! testkit itself has no `unsafe` code, and a binary has one allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The system's allocator, with counters.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static ALL: AtomicU64 = AtomicU64::new(0);

/// Bytes that are allocated, with what an allocator needs for each piece.
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of all threads.
#[allow(dead_code, reason = "not every user asks for both")]
pub(crate) fn allocations() -> u64 {
    ALL.load(Ordering::Relaxed)
}

/// Allocations of this thread.
#[allow(dead_code, reason = "not every user asks for both")]
pub(crate) fn own_allocations() -> u64 {
    OWN.get()
}

/// Bytes of memory that is in use, about as glibc would need for it.
#[allow(dead_code, reason = "few users ask for it")]
pub(crate) fn live_bytes() -> i64 {
    LIVE_BYTES.load(Ordering::Relaxed)
}

/// Bytes that glibc takes for a piece: eight more, in steps of 16, and 32 at least.
fn taken(bytes: usize) -> i64 {
    (bytes + 8).next_multiple_of(16).max(32) as i64
}

fn count() {
    ALL.fetch_add(1, Ordering::Relaxed);
    let _ = OWN.try_with(|own| own.set(own.get() + 1));
}

// SAFETY: every call is forwarded to the system's allocator unchanged; counting allocates nothing
// (a const thread-local without a destructor, and an atomic).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        LIVE_BYTES.fetch_add(taken(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(taken(layout.size()), Ordering::Relaxed);
        // SAFETY: the memory came from `alloc` above, thus from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        LIVE_BYTES.fetch_add(taken(size) - taken(layout.size()), Ordering::Relaxed);
        // SAFETY: the memory came from `alloc` above, thus from the system's allocator.
        unsafe { System.realloc(memory, layout, size) }
    }
}
