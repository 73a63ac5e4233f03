//! Wire protocols: bytes to events and back, one folder per protocol.
//!
//! Every codec is a state machine without a socket or a clock: it takes bytes in pieces of any
//! size, returns the number of bytes consumed and their meaning, and appends output to the caller's
//! buffer. A peer may split its messages anywhere; no piece is too small, and the number of times
//! that a byte is parsed is bounded.
//!
//! The codecs do not wait, read, send, log or choose a response. Faults name the violated rule and
//! the status that RFC 9110 assigns to it; the caller decides the fate of the connection.
//!
//! Reading order: [`http1::request`] (client requests), with `http1::scan` (end of the head) and
//! `http1::framing` (how the body is delimited) · [`http1::chunked`] (bodies of unknown length,
//! both ways) and [`http1::trailer`] (trailers) · [`http1::response`] (responses to clients) ·
//! [`http1::fault`] (the table of rejections) · [`http1::client`] (requests to backends) ·
//! [`http1::upstream_response`] (their responses) · [`http2`] (both ends of a connection,
//! multiplexed).
//!
//! For backends: [`cgi`] (CGI variables and response heads), shared by [`fastcgi`], [`scgi`] and
//! [`uwsgi`] · [`ajp13`] (servlet containers). Between proxies: [`proxy_protocol`] (the client
//! behind a relayed connection).
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod ajp13;
pub mod cgi;
pub mod fastcgi;
pub mod http1;
pub mod http2;
pub mod proxy_protocol;
pub mod scgi;
pub mod uwsgi;
pub mod websocket;
