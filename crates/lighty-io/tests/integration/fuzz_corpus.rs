//! Replays the fuzzers' corpora (`fuzz/corpus`) through the same functions.

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../../fuzz/src/tls.rs"]
mod tls;

use lighty_testkit::fuzz::replay;

#[test]
fn every_input_of_every_target() {
    replay("tls_hello", tls::tls_hello);
    replay("tls_records", tls::tls_records);
}
