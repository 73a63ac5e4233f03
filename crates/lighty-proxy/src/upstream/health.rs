//! Health of an address, which decides whether it may be used.
//!
//! Results of requests ([`passive`]) and of health checks ([`active`]) are combined in one
//! [`passive::Health`] per address. It reads neither a clock nor a socket: callers pass times in
//! milliseconds of one monotonic clock. Workers' clocks may differ a little; no rule needs two
//! workers to agree on a moment. The checks themselves are in [`checks`].

pub(crate) mod active;
pub(crate) mod check_fault;
pub(crate) mod checks;
mod http2_checks;
pub(crate) mod passive;
