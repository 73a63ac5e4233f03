//! Getting a connection to a backend: the pools, the backlog and the time limits of the wait.

pub(crate) mod backlog;
pub(crate) mod checkout;
pub(crate) mod deadline;
pub(crate) mod listen_queue;
pub(crate) mod pool;
