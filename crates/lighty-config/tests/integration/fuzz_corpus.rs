//! Replays the fuzzer's corpus (`fuzz/corpus/config`) through the same function.

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the function public")]
#[path = "../../../../fuzz/src/language.rs"]
mod language;

#[test]
fn every_input() {
    lighty_testkit::fuzz::replay("config", language::config);
}
