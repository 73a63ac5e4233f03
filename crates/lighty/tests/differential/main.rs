//! Compares lighttpd's and lighty's responses to the same requests under the same configuration.

mod ancestor_http;
mod lighttpd_compat;
