//! Gets a connection to a backend: the pools, the backlog, the time limits of the wait, and opening
//! a new connection.

pub(crate) mod backlog;
pub(crate) mod checkout;
pub(crate) mod dial;
pub(crate) mod h2;
pub(crate) mod listen_queue;
pub(crate) mod pool;
