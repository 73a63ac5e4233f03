//! Memory that is free and still resident.

#[cfg(feature = "mimalloc")]
use libmimalloc_sys as _;

#[cfg(feature = "mimalloc")]
unsafe extern "C" {
    /// mimalloc.h: of this thread's heap and of the arenas; forced, all that is free goes at once.
    fn mi_collect(force: bool);
}

/// Gives back to the kernel what this thread has freed, and what lies free in common. For a thread
/// that has computed and rests now: it takes milliseconds, and whoever asks for memory next has to
/// fetch it anew. Does something where the allocator is mimalloc (the feature of that name).
pub fn give_back() {
    #[cfg(feature = "mimalloc")]
    // SAFETY: may be called on any thread at any time; memory in use is not touched.
    unsafe {
        mi_collect(true);
    }
}
