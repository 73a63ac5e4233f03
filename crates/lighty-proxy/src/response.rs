//! The response as the client gets it, made from a backend's.

pub(crate) mod internal_redirect;
pub(crate) mod mapping;
pub(crate) mod reply;
pub(crate) mod upstream_body;
