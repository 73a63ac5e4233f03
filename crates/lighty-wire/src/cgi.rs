//! The common part of the gateway protocols: the Common Gateway Interface, RFC 3875.
//!
//! Reading order: [`params`] (the variables that describe a request) · [`head`] (the response head)
//! · [`left`] (the rest of the body).

mod fault;
pub mod head;
pub mod left;
pub mod params;

pub use crate::http1::Head;
pub use fault::CgiFault;
pub use head::{CgiHead, HEAD_BYTES_MAX, HEAD_LINES_MAX, HeadLimits, parse_head};
pub use left::Left;
pub use params::{Params, Purpose};
