//! Replays the fuzzer's corpus (`fuzz/corpus/rewrite`) through the same function.

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the function public")]
#[path = "../../../../fuzz/src/rules.rs"]
mod rules;

#[test]
fn every_input() {
    lighty_testkit::fuzz::replay("rewrite", rules::rewrite);
}
