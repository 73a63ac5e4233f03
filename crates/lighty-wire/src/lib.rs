//! The grammar: bytes to events and back, one folder for each protocol.
//!
//! Every codec here is a machine without a socket and without a clock: it is handed bytes in
//! whatever pieces they arrive, says how many it used and what they meant, and appends what is to
//! be sent to a buffer that it is given. A peer may cut its messages anywhere; no piece is too
//! small, and nothing is read twice beyond a bound.
//!
//! What it refuses to do: waiting, reading, sending, logging, deciding what a request gets. Faults
//! name the rule that was broken and the status that RFC 9110 has for it; what happens to the
//! connection is decided elsewhere.
//!
//! Reading order: [`http1::request`] (what a client sends), with `http1::scan` (where its head
//! ends) and `http1::framing` (how its body is delimited) · [`http1::chunked`] (bodies of unknown
//! length, both ways) and [`http1::trailer`] (what may follow them) · [`http1::response`] (what it
//! gets) · [`http1::fault`] (the table of refusals).
//!
//! Towards backends: [`http1::client`] (what one is asked) and [`http1::answer`] (what it answers) ·
//! [`cgi`] (the variables that describe a request, the head of an answer), which [`fastcgi`],
//! [`scgi`] and [`uwsgi`] share.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod cgi;
pub mod fastcgi;
mod fault_table;
pub mod http1;
pub mod scgi;
pub mod uwsgi;
