//! `$argon2id$` and `$argon2i$` in the form of the PHC string format.

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64ct::{Base64Unpadded, Encoding};

/// Memory that one verification may take, in KiB.
const MEMORY_KIB_MAX: u32 = 256 << 10;

/// Maximum product of memory in KiB and passes, as an estimate of time.
const WORK_MAX: u64 = 4 * MEMORY_KIB_MAX as u64;

/// Maximum number of lanes. They are computed one after the other.
const LANES_MAX: u32 = 16;

/// Lengths of salts and sums, in bytes.
const SALT_BYTES: std::ops::RangeInclusive<usize> = 8..=64;
const SUM_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// Parameters of hashes made here (the second recommendation of RFC 9106 section 4).
const MADE_KIB: u32 = 64 << 10;
const MADE_PASSES: u32 = 3;
const MADE_LANES: u32 = 4;
const MADE_SUM_BYTES: usize = 32;

/// Parts of a stored hash.
struct Argon2Parts {
    algorithm: Algorithm,
    version: Version,
    params: Params,
    salt: Vec<u8>,
    sum: Vec<u8>,
}

/// True if the hash has parameters, a salt and a sum.
pub(super) fn is_well_formed(text: &str) -> bool {
    split(text).is_some()
}

/// True if a verification stays within the limits of memory and time.
pub(super) fn is_affordable(text: &str) -> bool {
    split(text).is_some_and(|Argon2Parts { params, .. }| {
        params.m_cost() <= MEMORY_KIB_MAX
            && params.p_cost() <= LANES_MAX
            && u64::from(params.m_cost()) * u64::from(params.t_cost()) <= WORK_MAX
    })
}

/// True if the hash was made from this password.
pub(super) fn verify(text: &str, password: &[u8]) -> bool {
    let Some(parts) = split(text) else { return false };
    let mut made = vec![0; parts.sum.len()];
    let maker = Argon2::new(parts.algorithm, parts.version, parts.params);
    let done = maker.hash_password_into(password, &parts.salt, &mut made);
    done.is_ok() && verify_slices_are_equal(&made, &parts.sum).is_ok()
}

/// Makes an argon2id hash. Returns `None` if there is no memory for it.
pub(super) fn make(password: &[u8], salt: &[u8; 16]) -> Option<String> {
    let params = Params::new(MADE_KIB, MADE_PASSES, MADE_LANES, None).ok()?;
    let mut sum = [0; MADE_SUM_BYTES];
    let maker = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    maker.hash_password_into(password, salt, &mut sum).ok()?;
    let [salt, sum] = [salt.as_slice(), &sum].map(Base64Unpadded::encode_string);
    Some(format!("$argon2id$v=19$m={MADE_KIB},t={MADE_PASSES},p={MADE_LANES}${salt}${sum}"))
}

fn split(text: &str) -> Option<Argon2Parts> {
    let mut parts = text.strip_prefix('$')?.split('$');
    let algorithm = match parts.next()? {
        "argon2id" => Algorithm::Argon2id,
        "argon2i" => Algorithm::Argon2i,
        _ => return None,
    };
    let mut next = parts.next()?;
    // Without a version, the hash is of the first one.
    let version = match next.strip_prefix("v=") {
        None => Version::V0x10,
        Some(number) => {
            next = parts.next()?;
            number.parse::<u32>().ok()?.try_into().ok()?
        }
    };
    let mut costs = next.split(',');
    let mut cost = |name: &str| costs.next()?.strip_prefix(name)?.parse::<u32>().ok();
    let params = Params::new(cost("m=")?, cost("t=")?, cost("p=")?, None).ok()?;
    let mut bytes = |lengths: std::ops::RangeInclusive<usize>| {
        let bytes = Base64Unpadded::decode_vec(parts.next()?).ok()?;
        lengths.contains(&bytes.len()).then_some(bytes)
    };
    let (salt, sum) = (bytes(SALT_BYTES)?, bytes(SUM_BYTES)?);
    let is_over = costs.next().is_none() && parts.next().is_none();
    is_over.then_some(Argon2Parts { algorithm, version, params, salt, sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the tests of the reference implementation, password "password", and one of argon2-cffi.
    const KNOWN: [&str; 4] = [
        "$argon2i$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA",
        "$argon2i$m=65536,t=2,p=1$c29tZXNhbHQ$9sTbSlTio3Biev89thdrlKKiCaYsjjYVJxGAL3swxpQ",
        "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
        "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc",
    ];

    #[test]
    fn hashes_of_the_reference_are_verified() {
        for text in KNOWN {
            assert!(is_well_formed(text) && is_affordable(text), "{text}");
            assert!(verify(text, b"password"), "{text}");
            assert!(!verify(text, b"passwort") && !verify(text, b""), "{text}");
        }
    }

    #[test]
    fn made_hashes_are_verified_and_affordable() {
        let text = make(b"open sesame", b"0123456789abcdef").expect("memory");
        assert!(is_well_formed(&text) && is_affordable(&text), "{text}");
        assert!(verify(&text, b"open sesame") && !verify(&text, b"open"), "{text}");
    }

    #[test]
    fn malformed_hashes_are_refused() {
        let sum = "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        for text in [
            "$argon2id$".to_owned(),
            format!("$argon2d$v=19$m=65536,t=2,p=1$c29tZXNhbHQ${sum}"),
            format!("$argon2id$v=20$m=65536,t=2,p=1$c29tZXNhbHQ${sum}"),
            format!("$argon2id$v=19$m=65536,t=2$c29tZXNhbHQ${sum}"),
            format!("$argon2id$v=19$m=65536,t=2,p=1,x=1$c29tZXNhbHQ${sum}"),
            format!("$argon2id$v=19$m=65536,t=0,p=1$c29tZXNhbHQ${sum}"),
            format!("$argon2id$v=19$m=65536,t=2,p=1$c29t${sum}"),
            format!("$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ=${sum}"),
            format!("$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ${sum}$"),
            "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFh".to_owned(),
        ] {
            assert!(!is_well_formed(&text), "{text}");
        }
    }

    #[test]
    fn costs_have_limits_on_both_sides() {
        let sum = "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        for (costs, fits) in [
            ("m=262144,t=4,p=16", true),
            ("m=262145,t=1,p=1", false),
            ("m=262144,t=5,p=1", false),
            ("m=65536,t=1,p=17", false),
            ("m=8,t=131072,p=1", true),
            ("m=8,t=131073,p=1", false),
        ] {
            let text = format!("$argon2id$v=19${costs}$c29tZXNhbHQ${sum}");
            assert_eq!(is_well_formed(&text) && is_affordable(&text), fits, "{costs}");
        }
    }
}
