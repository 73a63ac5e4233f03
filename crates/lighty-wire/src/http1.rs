//! HTTP/1.0 and HTTP/1.1: RFC 9112, read strictly.

pub mod chunked;
pub mod client;
mod connection;
pub mod fault;
pub mod fault_position;
mod framing;
mod limits;
pub mod request;
mod request_head;
pub mod response;
mod response_fault;
mod response_framing;
mod scan;
pub mod trailer;
pub mod upstream_response;
mod whole;

pub use client::{RequestLine, encode_passed_on, encode_request, encode_request_fields};
pub use fault::RequestFault;
pub use request::{BodyFraming, Head, Http1Limits, RequestHead, parse_request};
pub use upstream_response::{
    ResponseFault, ResponseFraming, ResponseHead, ResponseLimits, other_protocol, parse_response,
};
