//! Listeners: their sockets, the connections that they accept, and their failures.

pub(crate) mod accept;
pub(crate) mod accepting;
pub(crate) mod handed;
pub mod hold;
pub mod info;
pub mod listeners;
pub mod live;
pub(crate) mod opened;
pub(crate) mod planned;
mod recovery;
