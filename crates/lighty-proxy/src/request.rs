//! Makes a backend's request from a client's.

pub(crate) mod cgi_variables;
pub(crate) mod proxy_header;
pub(crate) mod replayable_body;
pub(crate) mod script;
pub(crate) mod sticky;
pub(crate) mod upstream_request;
pub(crate) mod websocket_key;
