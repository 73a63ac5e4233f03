//! Identities that others vouch for: signed tokens, OpenID providers, directories, and the system's
//! own users.
//!
//! Nothing here knows the server. Functions that block say so; they run on threads of their own,
//! never on an event loop.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod directory;
