//! Replays the fuzzers' corpora (`fuzz/corpus`) through the same functions, also with modified
//! bytes.

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../../fuzz/src/directories.rs"]
mod directories;
#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../../fuzz/src/key_sets.rs"]
mod key_sets;

use lighty_testkit::fuzz::replay;

/// Runs a target over an input, some of its prefixes, and the input with bytes replaced.
fn with_variations(run: impl Fn(&[u8])) -> impl Fn(&[u8]) {
    move |data| {
        run(data);
        let step = 1 + data.len() / 64;
        for at in (0..data.len()).step_by(step) {
            run(&data[..at]);
            for byte in *b"\"{}[],:A0\x80\xff" {
                let mut changed = data.to_vec();
                changed[at] = byte;
                run(&changed);
            }
        }
    }
}

#[test]
fn every_input_of_every_target() {
    replay("ldap_message", with_variations(directories::ldap_message));
    replay("jwks", with_variations(key_sets::jwks));
}
