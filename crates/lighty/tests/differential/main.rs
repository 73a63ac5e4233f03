//! Compares lighttpd's and lighty's responses to the same requests under the same configuration.

mod lighttpd_compat;
mod reference_http;
