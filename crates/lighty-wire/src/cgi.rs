//! What the gateway protocols share: the Common Gateway Interface, RFC 3875.
//!
//! Reading order: [`params`] (the variables that describe a request) · [`head`] (the head of an
//! answer) · [`left`] (how much of it is to come).

mod fault;
pub mod head;
pub mod left;
pub mod params;

pub use crate::http1::Head;
pub use fault::CgiFault;
pub use head::{CgiHead, HeadLimits, parse_head};
pub use left::Left;
pub use params::{Params, Purpose};
