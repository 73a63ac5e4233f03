//! What the gateway protocols share: the Common Gateway Interface, RFC 3875.
//!
//! Reading order: [`params`] (the variables that describe a request) · [`head`] (the head of an
//! answer).

mod fault;
pub mod head;
pub mod params;

pub use crate::http1::Head;
pub use fault::CgiFault;
pub use head::{CgiHead, HeadLimits, parse_head};
pub use params::{Params, Purpose};
