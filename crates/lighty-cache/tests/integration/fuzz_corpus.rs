//! Replays the fuzzers' corpora (`fuzz/corpus`) through the same functions, also with modified
//! bytes.

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../../fuzz/src/caches.rs"]
mod caches;

use lighty_testkit::fuzz::replay;

/// Runs a target over an input, its prefixes, and the input with each byte replaced.
fn with_variations(run: impl Fn(&[u8])) -> impl Fn(&[u8]) {
    move |data| {
        run(data);
        for at in 0..data.len() {
            run(&data[..at]);
            for byte in *b"\",=; \\*1a\n\xff" {
                let mut changed = data.to_vec();
                changed[at] = byte;
                run(&changed);
            }
        }
    }
}

#[test]
fn every_input_of_every_target() {
    replay("cache_control", with_variations(caches::cache_control));
    replay("vary", with_variations(caches::vary));
    replay("structured", with_variations(caches::structured));
    replay("cache_disk", with_variations(caches::cache_disk));
}
