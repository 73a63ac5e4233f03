//! Replays what the fuzzer found interesting (`fuzz/corpus/rewrite`) through the same function.

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the function public")]
#[path = "../../../fuzz/src/rules.rs"]
mod rules;

use std::path::Path;

#[test]
fn every_input() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rewrite");
    let entries = std::fs::read_dir(&dir).expect("the corpus is in the tree");
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("a readable directory").path();
        println!("{}", path.display());
        rules::rewrite(&std::fs::read(&path).expect("a readable file"));
        count += 1;
    }
    assert!(count > 0, "no inputs");
}
