//! `$5$` and `$6$`: Ulrich Drepper's "Unix crypt using SHA-256 and SHA-512". The library hashes;
//! parsing is here, because its parser refuses rounds that the specification brings into range.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64ct::{Base64ShaCrypt, Encoding};
use sha_crypt::{Params, sha256_crypt, sha512_crypt};

use super::md5_crypt::is_sum;

struct ShaCryptParts<'a> {
    wide: bool,
    params: Params,
    salt: &'a [u8],
    sum: &'a str,
}

/// Returns true if the text has an algorithm number, optional rounds, a salt and a sum.
pub(super) fn is_well_formed(text: &str) -> bool {
    split(text).is_some_and(|parts| is_sum(parts.sum, if parts.wide { 86 } else { 43 }))
}

/// Returns true if the hash was made from this password.
pub(super) fn verify(text: &str, password: &[u8]) -> bool {
    let Some(ShaCryptParts { wide, params, salt, sum }) = split(text) else { return false };
    let made = match wide {
        true => encode(&sha512_crypt(password, salt, params), &WIDE_ORDER),
        false => encode(&sha256_crypt(password, salt, params), &ORDER),
    };
    verify_slices_are_equal(made.as_bytes(), sum.as_bytes()).is_ok()
}

fn split(text: &str) -> Option<ShaCryptParts<'_>> {
    let wide = text.starts_with("$6$");
    let mut rest = text.strip_prefix("$5$").or_else(|| text.strip_prefix("$6$"))?;
    let mut params = Params::default();
    if let Some(text) = rest.strip_prefix("rounds=") {
        let (number, behind) = text.split_once('$')?;
        // A few million rounds take a second.
        let rounds = number.parse::<u32>().ok()?.clamp(Params::ROUNDS_MIN, Params::ROUNDS_MAX);
        params = Params::new(rounds).ok()?;
        rest = behind;
    }
    let (salt, sum) = rest.split_once('$')?;
    Some(ShaCryptParts { wide, params, salt: salt.as_bytes(), sum })
}

/// Order in which the text of `$5$` has the bytes of a sum.
const ORDER: [usize; 32] = [
    20, 10, 0, 11, 1, 21, 2, 22, 12, 23, 13, 3, 14, 4, 24, 5, 25, 15, 26, 16, 6, 17, 7, 27, 8, 28,
    18, 29, 19, 9, 30, 31,
];

/// Order in which the text of `$6$` has the bytes of a sum.
const WIDE_ORDER: [usize; 64] = [
    42, 21, 0, 1, 43, 22, 23, 2, 44, 45, 24, 3, 4, 46, 25, 26, 5, 47, 48, 27, 6, 7, 49, 28, 29, 8,
    50, 51, 30, 9, 10, 52, 31, 32, 11, 53, 54, 33, 12, 13, 55, 34, 35, 14, 56, 57, 36, 15, 16, 58,
    37, 38, 17, 59, 60, 39, 18, 19, 61, 40, 41, 20, 62, 63,
];

fn encode<const N: usize>(sum: &[u8; N], order: &[usize; N]) -> String {
    Base64ShaCrypt::encode_string(&order.map(|at| sum[at]))
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

    /// Made with crypt(3) of libxcrypt 4.4 and with `openssl passwd`: an empty salt, an empty
    /// password, and lengths around the blocks of both sums.
    const EDGES: &[(&str, &str, usize)] = &[
        (
            "$6$rounds=1001$abcdefghijklmnop$xY5.m/RlTX8U5.ddOmMav1a.o0FZ.q82hWY7xuDXaNqqu/w.5ZB8Ah4RCFapEm.x4YJeCAbOpeoJMLm8TOdIu0",
            "xy",
            128,
        ),
        ("$5$saltstring$FdNfA4gXqvCeO6iZs7G/.wwwoywYZqo0l1pwmfWaBA7", "a", 0),
        (
            "$6$saltstring$kyGrqt6gmjAdtFLPrflEFifSYLCWWq1pyx95SvqinLDy2UHmj0sTF0MSLMwxPFZc3tu5kQckI8fks0zOPda3n1",
            "a",
            0,
        ),
        ("$5$$o1w7HPzHt8gHmL5zUzDkRqt6Az.BjDfkvuDNNLWnXx5", "secret", 1),
        (
            "$6$$2M9DchxW4txWyTYoZrH9D3VvAAQxBpEezYsLY6Cao.jwzEXpyL9xwip9hiUZX7GqTqe/E/z6iKvZqXUuqniQH.",
            "secret",
            1,
        ),
        ("$5$s$zLlSEjkN7pMXW4bDfs03sI4hRtGs1pDFrTzZtXsBuLA", "a", 31),
        ("$5$s$1dNooBpWm.2e9qD6IsJCKat67H.3VsPjBxgDB0M4TV7", "a", 32),
        ("$5$s$yBh69N5Y/es8yFfV8TGlJ8GxfXGCEd.Tax6k7U2/bT.", "a", 33),
        (
            "$6$s$2lVndakd4i0m/8qnbI3D/2ApRulzCLmVjNzmLqrbYs9.bNISaBLLc2eLlNOgqdSIJ.lvcLOWI/s93IvII9PFz0",
            "a",
            63,
        ),
        (
            "$6$s$e/ci9X0P/si6JKhId/bD59PwDCRUXGfXtlmFJBl9WlbG81lQ4/GNHZY264VcCPxDM9r6CfZeIDoPfOHTcfX4A/",
            "a",
            64,
        ),
        (
            "$6$s$rKIFf36U8QHwzVezr2.b8ooIdwyjNXpiQhA5b0vKHEMvibJLTqdx46XC6sq8KYrzKiLt240J/ZBV8u4q9rGy30",
            "a",
            65,
        ),
    ];

    /// Made with `openssl passwd`, which writes the rounds that it used.
    #[test]
    fn too_few_rounds_are_a_thousand() {
        let password = "the minimum number is still observed";
        for (setting, sum) in [
            ("$5$rounds=10$roundstoolow", "yfvwcWrQ8l/K0DAWyuPMDNHpIVlTQebY9l/gL972bIC"),
            (
                "$6$rounds=10$roundstoolow",
                "kUMsbe306n21p9R.FRkW3IGn.S9NPN0x50YhH1xhLsPuWGsUSklZt58jaTfF4ZEQpyUNGc0dqbpBYYBaHHrsX.",
            ),
        ] {
            let text = format!("{setting}${sum}");
            assert!(is_well_formed(&text) && verify(&text, password.as_bytes()), "{text}");
            assert!(!verify(&text, b"wrong"), "{text}");
        }
    }

    #[test]
    fn sums_at_the_edges_of_blocks_are_verified() {
        for (text, letter, times) in EDGES {
            let password = letter.repeat(*times);
            assert!(is_well_formed(text), "{text}");
            assert!(verify(text, password.as_bytes()), "{text} {times}");
        }
    }

    #[test]
    fn rounds_are_brought_into_range() {
        let sum = "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5";
        for (rounds, expected) in [
            ("0", Some(1000)),
            ("999", Some(1000)),
            ("1001", Some(1001)),
            ("1000000000", Some(999_999_999)),
            ("4294967295", Some(999_999_999)),
            ("4294967296", None),
            ("-1", None),
            ("", None),
        ] {
            let text = format!("$5$rounds={rounds}$salt${sum}");
            let params = split(&text).map(|parts| parts.params);
            assert_eq!(params, expected.and_then(|rounds| Params::new(rounds).ok()), "{rounds}");
        }
    }
}
