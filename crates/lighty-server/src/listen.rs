//! Listeners: their sockets, the connections that they accept, and their failures.

pub(crate) mod accept;
pub(crate) mod handed;
pub mod info;
pub mod listeners;
pub mod live;
mod recovery;
pub(crate) mod spare;
