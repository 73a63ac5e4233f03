//! `$5$` and `$6$`: Ulrich Drepper's "Unix crypt using SHA-256 and SHA-512".

use aws_lc_rs::constant_time::verify_slices_are_equal;
use sha2::{Digest, Sha256, Sha512};

use super::md5_crypt::{is_sum, push_24_bits};

const ROUNDS_DEFAULT: u32 = 5000;
const ROUNDS_MIN: u32 = 1000;
/// Maximum rounds of the specification; higher numbers are reduced to it. A few million take a
/// second.
const ROUNDS_MAX: u32 = 999_999_999;

/// Maximum length of the salt; further characters are ignored.
const SALT_BYTES_MAX: usize = 16;

struct Parts<'a> {
    wide: bool,
    rounds: u32,
    salt: &'a [u8],
    sum: &'a str,
}

/// Returns true if the text has an algorithm number, optional rounds, a salt and a sum.
pub(super) fn is_well_formed(text: &str) -> bool {
    split(text).is_some_and(|parts| is_sum(parts.sum, if parts.wide { 86 } else { 43 }))
}

/// Returns true if the hash was made from this password.
pub(super) fn verify(text: &str, password: &[u8]) -> bool {
    let Some(parts) = split(text) else { return false };
    let made = match parts.wide {
        true => encode_wide(&stretch::<Sha512>(&parts, password)),
        false => encode(&stretch::<Sha256>(&parts, password)),
    };
    verify_slices_are_equal(&made, parts.sum.as_bytes()).is_ok()
}

fn split(text: &str) -> Option<Parts<'_>> {
    let wide = text.starts_with("$6$");
    let mut rest = text.strip_prefix("$5$").or_else(|| text.strip_prefix("$6$"))?;
    let mut rounds = ROUNDS_DEFAULT;
    if let Some(told) = rest.strip_prefix("rounds=") {
        let (number, behind) = told.split_once('$')?;
        rounds = number.parse::<u32>().ok()?.clamp(ROUNDS_MIN, ROUNDS_MAX);
        rest = behind;
    }
    let (salt, sum) = rest.split_once('$')?;
    let salt = &salt.as_bytes()[..salt.len().min(SALT_BYTES_MAX)];
    Some(Parts { wide, rounds, salt, sum })
}

fn stretch<D: Digest>(parts: &Parts<'_>, password: &[u8]) -> Vec<u8> {
    let mut sum = first::<D>(parts.salt, password);
    let mut repeated = D::new();
    for _ in 0..password.len() {
        repeated.update(password);
    }
    let p = repeat(&repeated.finalize(), password.len());
    let mut repeated = D::new();
    for _ in 0..16 + usize::from(sum[0]) {
        repeated.update(parts.salt);
    }
    let s = repeat(&repeated.finalize(), parts.salt.len());
    for round in 0..parts.rounds {
        let mut next = D::new();
        let odd = round % 2 == 1;
        next.update(if odd { &p } else { &sum });
        if round % 3 != 0 {
            next.update(&s);
        }
        if round % 7 != 0 {
            next.update(&p);
        }
        next.update(if odd { &sum } else { &p });
        sum = next.finalize().to_vec();
    }
    sum
}

fn first<D: Digest>(salt: &[u8], password: &[u8]) -> Vec<u8> {
    let other = D::new().chain_update(password).chain_update(salt).chain_update(password);
    let other = other.finalize();
    let mut sum = D::new().chain_update(password).chain_update(salt);
    sum.update(repeat(&other, password.len()));
    let mut left = password.len();
    while left > 0 {
        if left % 2 == 1 {
            sum.update(&other);
        } else {
            sum.update(password);
        }
        left /= 2;
    }
    sum.finalize().to_vec()
}

/// Repeats `bytes` up to `length` bytes.
fn repeat(bytes: &[u8], length: usize) -> Vec<u8> {
    bytes.iter().copied().cycle().take(length).collect()
}

fn encode(sum: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(43);
    let mut places = [0, 10, 20];
    for _ in 0..10 {
        push_24_bits(places.map(|at| sum[at]), 4, &mut out);
        let [a, b, c] = places;
        places = [c + 1, a + 1, b + 1];
    }
    push_24_bits([0, sum[31], sum[30]], 3, &mut out);
    out
}

fn encode_wide(sum: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(86);
    let mut places = [0, 21, 42];
    for _ in 0..21 {
        push_24_bits(places.map(|at| sum[at]), 4, &mut out);
        let [a, b, c] = places;
        places = [b + 1, c + 1, a + 1];
    }
    push_24_bits([0, 0, sum[63]], 2, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Output of crypt(3) for the inputs of the specification.
    const VECTORS: &[(&str, &str)] = &[
        ("$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5", "Hello world!"),
        (
            "$5$rounds=10000$saltstringsaltst$3xv.VbSHBb41AL9AvLeujZkZRBAwqFMz2.opqey6IcA",
            "Hello world!",
        ),
        (
            "$5$rounds=1400$anotherlongsalts$Rx.j8H.h8HjEDGomFU8bDkXm3XIUnzyxf12oP84Bnq1",
            "a very much longer text to encrypt.  This one even stretches over morethan one line.",
        ),
        (
            "$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v.",
            "Hello world!",
        ),
    ];

    #[test]
    fn hashes_of_the_document() {
        for (text, password) in VECTORS.iter().chain(MORE) {
            assert!(is_well_formed(text), "{text}");
            assert!(verify(text, password.as_bytes()), "{text}");
            assert!(!verify(text, b"wrong"), "{text}");
        }
    }

    const MORE: &[(&str, &str)] = &[
        ("$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM.", "secret"),
        (
            "$6$x$zLU9o2.WTZFQFmirf03.Kz8cvrD.ysMTEG8LYnlt08nyoqLRnT90C8X6E5awV3UAT/yHTyjNZ4vmU.9k8C3Z71",
            "a longer password that is more than sixteen bytesa longer password that is more than sixteen bytes",
        ),
        (
            "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1",
            "secret",
        ),
        (
            "$5$s$apQ4MBghZLRPIMi6qD3rpdLUzos1Pr7WA2sjLHcoVQD",
            "a longer password that is more than sixteen bytesa longer password that is more than sixteen bytes",
        ),
    ];
}
