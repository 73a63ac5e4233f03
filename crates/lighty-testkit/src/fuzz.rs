//! Replays the corpora of fuzzers.

use std::path::Path;

/// Runs a fuzz target over every input of its corpus (`fuzz/corpus/TARGET`). Prints each input's
/// name first, to identify the one that fails.
///
/// # Panics
/// There is no corpus, or it is empty.
pub fn replay(target: &str, run: impl Fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&dir).expect("the corpus is in the tree");
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("a readable directory").path();
        println!("{}", path.display());
        run(&std::fs::read(&path).expect("a readable file"));
        count += 1;
    }
    assert!(count > 0, "no inputs for {target}");
}
