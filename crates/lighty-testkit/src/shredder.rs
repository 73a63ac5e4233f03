//! Cuts input into pieces, as networks do.
//!
//! A codec must give the same result for a message in any pieces. Each vector is run in two pieces
//! cut at every position, byte by byte, and in random pieces from a fixed seed.

/// Runs `run` with `input` in one piece, and cut in two at every position (empty pieces included).
pub fn every_split(input: &[u8], mut run: impl FnMut(&[&[u8]])) {
    run(&[input]);
    for at in 0..=input.len() {
        let (front, back) = input.split_at(at);
        run(&[front, back]);
    }
}

/// Runs `run` once with `input` in pieces of one byte.
pub fn byte_by_byte(input: &[u8], mut run: impl FnMut(&[&[u8]])) {
    let pieces: Vec<&[u8]> = input.chunks(1).collect();
    run(&pieces);
}

/// Runs `run` `rounds` times with `input` in random pieces, mostly small ones. The same seed gives
/// the same pieces.
pub fn random_fragments(input: &[u8], seed: u64, rounds: u32, mut run: impl FnMut(&[&[u8]])) {
    let mut random = SplitMix { state: seed };
    for _ in 0..rounds {
        let mut pieces = Vec::new();
        let mut rest = input;
        while !rest.is_empty() {
            let scale = 1 << (random.next() % 8);
            let len = (random.next() as usize % scale + 1).min(rest.len());
            let (piece, tail) = rest.split_at(len);
            pieces.push(piece);
            rest = tail;
        }
        run(&pieces);
    }
}

/// Runs `run` in all three ways.
pub fn shred(input: &[u8], mut run: impl FnMut(&[&[u8]])) {
    const SEED: u64 = 0x6C69_6768_7479;
    const ROUNDS: u32 = 20;
    every_split(input, &mut run);
    byte_by_byte(input, &mut run);
    random_fragments(input, SEED, ROUNDS, &mut run);
}

/// A small generator, sufficient to choose lengths (Steele, Lea and Flood, 2014).
struct SplitMix {
    state: u64,
}

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_or_added() {
        let input: Vec<u8> = (0..=255).collect();
        let mut runs = 0;
        shred(&input, |pieces| {
            assert_eq!(pieces.concat(), input);
            runs += 1;
        });
        assert_eq!(runs, 1 + 257 + 1 + 20);
        shred(b"", |pieces| assert!(pieces.concat().is_empty()));
    }

    #[test]
    fn the_same_seed_cuts_the_same_way() {
        let input = [0; 300];
        let lengths = |seed| {
            let mut all = Vec::new();
            random_fragments(&input, seed, 5, |pieces| {
                all.push(pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>());
            });
            all
        };
        assert_eq!(lengths(1), lengths(1));
        assert_ne!(lengths(1), lengths(2));
    }
}
