//! Whether an address may be used.
//!
//! What requests meet ([`passive`]) and what checks of our own find ([`active`]) come together in
//! one [`passive::Health`] per address, which reads neither a clock nor a socket: times are
//! milliseconds of one monotonic clock, handed in by whoever asks. Workers whose clocks differ by a
//! little do no harm; none of the rules needs two workers to agree on a moment. What is asked, and
//! when, is in [`checks`].

pub(crate) mod active;
pub(crate) mod checks;
pub(crate) mod passive;
