//! `$y$` (yescrypt), which Debian's `mkpasswd` makes, and `$7$` (scrypt) of crypt(3).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64ct::{Base64ShaCrypt, Encoding};
use yescrypt::{Mode, Params};

use super::md5_crypt::{ALPHABET, is_sum};

/// Memory that one verification may take, in bytes. `mkpasswd` makes hashes of 16 MiB.
const MEMORY_MAX: u64 = 64 << 20;

/// Maximum product of memory and parallelism, as an estimate of time.
const WORK_MAX: u64 = 4 * MEMORY_MAX;

/// Bytes of the sum, and the characters that they take.
const SUM_BYTES: usize = 32;
const SUM_CHARS: usize = 43;

/// Parts of a stored hash.
struct YescryptParts<'a> {
    params: Params,
    salt: Vec<u8>,
    sum: &'a str,
}

/// True if the hash has parameters, a salt and a sum.
pub(super) fn is_well_formed(text: &str) -> bool {
    split(text).is_some_and(|parts| is_sum(parts.sum, SUM_CHARS))
}

/// True if a verification stays within the limits of memory and time.
pub(super) fn is_affordable(text: &str) -> bool {
    split(text).is_some_and(|parts| {
        let memory = memory(&parts.params);
        let work = memory.and_then(|memory| memory.checked_mul(parts.params.p().into()));
        memory.is_some_and(|memory| memory <= MEMORY_MAX)
            && work.is_some_and(|work| work <= WORK_MAX)
            && takes_no_more_time(&parts.params)
    })
}

/// True if the hash was made from this password.
pub(super) fn verify(text: &str, password: &[u8]) -> bool {
    let Some(parts) = split(text) else { return false };
    let mut made = [0; SUM_BYTES];
    let done = yescrypt::yescrypt(password, &parts.salt, &parts.params, &mut made);
    let made = Base64ShaCrypt::encode_string(&made);
    done.is_ok() && verify_slices_are_equal(made.as_bytes(), parts.sum.as_bytes()).is_ok()
}

fn memory(params: &Params) -> Option<u64> {
    params.n().checked_mul(128)?.checked_mul(params.r().into())
}

/// True if the time parameter `t`, which makes a hash slower at the same memory, is not set. The
/// library has no accessor for `t`, so `params` is compared with parameters without it.
fn takes_no_more_time(params: &Params) -> bool {
    [Mode::Rw, Mode::Worm, Mode::Classic].into_iter().any(|mode| {
        Params::new(mode, params.n(), params.r(), params.p()).is_ok_and(|plain| plain == *params)
    })
}

fn split(text: &str) -> Option<YescryptParts<'_>> {
    if let Some(rest) = text.strip_prefix("$y$") {
        let (setting, sum) = rest.rsplit_once('$')?;
        let (params, salt) = setting.split_once('$')?;
        return Some(YescryptParts {
            params: params.parse().ok()?,
            salt: Base64ShaCrypt::decode_vec(salt).ok()?,
            sum,
        });
    }
    let (setting, sum) = text.strip_prefix("$7$")?.rsplit_once('$')?;
    // One character for the logarithm of N, five each for r and p; the salt is not encoded.
    let (params, salt) = setting.as_bytes().split_at_checked(11)?;
    let digits: Vec<u32> = params.iter().map(|byte| digit(*byte)).collect::<Option<_>>()?;
    let number = |digits: &[u32]| digits.iter().rev().fold(0u32, |sum, digit| sum << 6 | digit);
    let n = 1u64.checked_shl(digits[0])?;
    let params = Params::new(Mode::Classic, n, number(&digits[1..6]), number(&digits[6..])).ok()?;
    Some(YescryptParts { params, salt: salt.to_vec(), sum })
}

fn digit(byte: u8) -> Option<u32> {
    ALPHABET.iter().position(|known| *known == byte).map(|at| at as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with crypt(3) of libxcrypt 4.4.
    const KNOWN: [(&str, &str); 5] = [
        ("$y$j9T$abcdefgh12345678$5sAznj4WEIGgyua2AXu2NRSCMeWB3V6LpE45tV7hHM8", "secret"),
        (
            "$y$j75$LdJMENpBABJJ3hIHjB1Bi.$LOFz5qVpaHYHlkfy7RM1hH9gRBSqy5mk4KRmFVRFKM4",
            "pleaseletmein",
        ),
        (
            "$7$CU..../....2Q9obwLhin8qvQl6sisAO/$Y8A3h6Nz5PfnkdP.z6z9uU.BU1f18IcAi43Nga4hwUD",
            "päss",
        ),
        ("$7$BU..../....abcdefgh$XUA8Nj3bxww49WLzTVmSlhXuWalkW4GrVGNFh8BRMuA", "secret"),
        ("$y$.5/$abcdefgh$0jTV8HsANtl.rPVb2caj8rfrua91KaJp6p2v7IGjSE9", "worm"),
    ];

    #[test]
    fn hashes_of_libxcrypt_are_verified() {
        for (text, password) in KNOWN {
            assert!(is_well_formed(text) && is_affordable(text), "{text}");
            assert!(verify(text, password.as_bytes()), "{text}");
            assert!(!verify(text, b"other") && !verify(text, b""), "{text}");
        }
    }

    #[test]
    fn torn_hashes_are_refused() {
        let (good, _) = KNOWN[0];
        for text in [
            &good[..good.len() - 1],
            "$y$j9T$abcdefgh",
            "$y$$abcdefgh$5sAznj4WEIGgyua2AXu2NRSCMeWB3V6LpE45tV7hHM8",
            "$y$j9T$a$5sAznj4WEIGgyua2AXu2NRSCMeWB3V6LpE45tV7hHM8",
            "$y$j9T$ab!d$5sAznj4WEIGgyua2AXu2NRSCMeWB3V6LpE45tV7hHM8",
            "$7$CU....$zLxvLFYPM5KAGpCZJUSlO9j165rU./sf1Adr0M4C5A4",
            "$7$",
            "$y$",
        ] {
            assert!(!is_well_formed(text), "{text}");
        }
    }

    #[test]
    fn hashes_that_take_too_much_are_refused() {
        let sum = "5sAznj4WEIGgyua2AXu2NRSCMeWB3V6LpE45tV7hHM8";
        // 64 and 128 MiB; the largest r; a p of 2^29; more rounds.
        for (setting, fits) in [
            ("$y$jBT$abcdefgh", true),
            ("$y$jCT$abcdefgh", false),
            ("$y$jzT$abcdefgh", false),
            ("$y$j9TY$abcdefgh", false),
            ("$y$j9T//$abcdefgh", false),
            ("$7$CU..../....abcd", true),
            ("$7$zU..../....abcd", false),
            ("$7$CU....zzzzzabcd", false),
            ("$7$CzzzzzzzzzzAbcd", false),
        ] {
            let text = format!("{setting}${sum}");
            assert_eq!(is_well_formed(&text) && is_affordable(&text), fits, "{text}");
        }
    }
}
