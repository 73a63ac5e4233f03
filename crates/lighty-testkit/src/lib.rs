//! Support for the tests of several crates: a harness for the built server, a raw client with its
//! own strict reader, contents that depend on their offset, a file system that stalls, scripted
//! backends.
//!
//! It depends on no other crate of the project, so that it cannot share their mistakes. It offers
//! no retries: a wait has a deadline, and missing it fails the test.
//!
//! Read in this order: `server`, `client`, `response`, `http2`, `hpack`, `content`, `cases`,
//! `stallfs`, `tls`, `backend`, `gateway`, `peer`, `real`, `transfer`, `websocket`, `dav`,
//! `send_file`; `fuzz`, `matrix`, `scratch`, `shredder`, `small_disk`, `stopwatch` and
//! `token` stand alone.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod backend;
pub mod cases;
pub mod client;
pub mod content;
pub mod dav;
pub mod fuzz;
pub mod gateway;
pub mod hpack;
pub mod http2;
pub mod matrix;
pub mod name_server;
pub mod origin;
pub mod peer;
pub mod place_db;
pub mod process;
pub mod real;
pub mod response;
pub mod scratch;
pub mod send_file;
pub mod server;
pub mod shredder;
pub mod small_disk;
pub mod stallfs;
pub mod stopwatch;
pub mod tls;
pub mod token;
pub mod transfer;
pub mod websocket;

use std::time::{Duration, Instant};

/// Polls until `condition` holds; `false` if it does not within `deadline`.
pub fn wait_until(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
