//! The codecs against corpora in every cut, against other implementations, and allocation counts.

mod case_files;
mod cases;
mod corpus;
mod faults;
mod fuzz_corpus;
mod gateways;
mod http2_allocations;
mod http2_peers;
#[allow(unreachable_pub, reason = "shared with an example")]
mod http2_server;
mod peers;
mod upstream_responses;
