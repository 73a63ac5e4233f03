//! Makes a client's response from a backend's.

pub(crate) mod cgi_response;
pub(crate) mod internal_redirect;
pub(crate) mod mapping;
pub(crate) mod proxy_status;
pub(crate) mod reply;
pub(crate) mod unframed_session;
pub(crate) mod upstream_body;
