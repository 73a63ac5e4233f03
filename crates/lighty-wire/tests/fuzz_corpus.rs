//! Replays what the fuzzers found interesting (`fuzz/corpus`) through the same functions.

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../fuzz/src/codecs.rs"]
mod codecs;

use std::path::Path;

#[test]
fn every_input_of_every_target() {
    replay("http1_request", codecs::http1_request);
    replay("http1_response", codecs::http1_response);
    replay("http1_chunked", codecs::http1_chunked);
    replay("uri", codecs::uri);
    replay("range", codecs::range);
}

fn replay(target: &str, run: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&dir).expect("the corpus is in the tree");
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("a readable directory").path();
        let input = std::fs::read(&path).expect("a readable file");
        println!("{}", path.display());
        run(&input);
        count += 1;
    }
    assert!(count > 0, "no inputs for {target}");
}
