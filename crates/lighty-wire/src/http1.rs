//! HTTP/1.0 and HTTP/1.1: RFC 9112, read strictly.

pub mod answer;
mod answer_fault;
mod answer_framing;
pub mod chunked;
pub mod client;
mod connection;
pub mod fault;
mod framing;
pub mod request;
pub mod response;
mod scan;
pub mod trailer;
mod whole;

pub use answer::{
    AnswerFault, AnswerFraming, AnswerHead, AnswerLimits, other_protocol, parse_response,
};
pub use client::{RequestLine, encode_request, encode_request_fields};
pub use fault::RequestFault;
pub use request::{BodyFraming, Head, Limits, RequestHead, parse_request};
