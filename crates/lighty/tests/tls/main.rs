//! TLS, HTTP/2 and ACME, with real clients and authorities.

mod acme;
mod browser;
mod foreign_clients;
mod http2;
mod http2_backend_tunnels;
mod http2_features;
mod http2_tunnels;
mod http2_uploads;
mod https;
