//! HTTP/1.0 and HTTP/1.1: RFC 9112, read strictly.

pub mod chunked;
pub mod fault;
mod framing;
pub mod request;
pub mod response;
mod scan;

pub use fault::RequestFault;
pub use request::{BodyFraming, Head, Limits, RequestHead, parse_request};
