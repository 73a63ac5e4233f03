//! The process itself and the processes it starts: signals, privileges, memory, children.

pub mod background;
pub mod capabilities;
pub mod control;
pub(crate) mod descriptors;
pub(crate) mod execution;
pub(crate) mod forked;
pub(crate) mod limits;
pub mod load;
pub mod memory;
pub mod memory_file;
pub mod own_program;
pub mod pam;
pub mod predecessor;
pub mod privileges;
pub mod program;
pub mod service_manager;
pub mod signals;
pub mod simulated;
pub mod spawn;
pub mod state_file;
pub mod succession;
pub mod syscall_fallback;
pub mod terminal;
pub mod usage;
