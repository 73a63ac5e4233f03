//! Replays the fuzzers' corpora (`fuzz/corpus`) through the same functions, also with modified
//! inputs.

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../../fuzz/src/scripts.rs"]
mod scripts;

use lighty_testkit::fuzz;

#[test]
fn every_input_of_every_target() {
    replay("lua_texts", scripts::lua_texts);
    replay("lua_json", scripts::lua_json);
}

fn replay(target: &str, run: fn(&[u8])) {
    fuzz::replay(target, |input| {
        run(input);
        disturb(input, run);
    });
}

/// Runs truncated inputs, and inputs with each byte replaced by significant ones.
fn disturb(input: &[u8], run: fn(&[u8])) {
    let mut copy = input.to_vec();
    for at in 0..input.len() {
        run(&input[..at]);
        for byte in *b"\"\\%/=;,{}[]:u0d.+-\0\xff " {
            copy[at] = byte;
            run(&copy);
        }
        copy[at] = input[at];
    }
}
