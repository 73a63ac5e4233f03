//! lighttpd and lighty answer the same requests under the same configuration.

mod ancestor_http;
mod lighttpd_compat;
