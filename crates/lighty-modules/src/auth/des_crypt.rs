//! DES in crypt(3). The tables are from FIPS 46-3, which counts bits from 1.
//!
//! The traditional form is two characters of salt and eleven of a sum; `htpasswd -d` makes it. The
//! password, cut after eight characters, is the key of 25 rounds of DES over zeros, in which the
//! salt swaps bits of the expansion.
//!
//! The extended form of BSDi begins with `_`: four characters of a number of rounds, four of salt,
//! eleven of a sum. All characters of the password count.

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::md5_crypt::ALPHABET;

const TEXT_CHARS: usize = 13;

const EXTENDED_CHARS: usize = 20;

/// Rounds of the traditional form.
const ROUNDS: u32 = 25;

/// Maximum rounds of the extended form. The format allows 16,777,215, but more than this limit
/// would take seconds of a thread for each login. The default of crypt(3) is 725.
const ROUNDS_MAX: u32 = 100_000;

const INITIAL: [u8; 64] = [
    58, 50, 42, 34, 26, 18, 10, 2, 60, 52, 44, 36, 28, 20, 12, 4, 62, 54, 46, 38, 30, 22, 14, 6,
    64, 56, 48, 40, 32, 24, 16, 8, 57, 49, 41, 33, 25, 17, 9, 1, 59, 51, 43, 35, 27, 19, 11, 3, 61,
    53, 45, 37, 29, 21, 13, 5, 63, 55, 47, 39, 31, 23, 15, 7,
];

const FINAL: [u8; 64] = [
    40, 8, 48, 16, 56, 24, 64, 32, 39, 7, 47, 15, 55, 23, 63, 31, 38, 6, 46, 14, 54, 22, 62, 30,
    37, 5, 45, 13, 53, 21, 61, 29, 36, 4, 44, 12, 52, 20, 60, 28, 35, 3, 43, 11, 51, 19, 59, 27,
    34, 2, 42, 10, 50, 18, 58, 26, 33, 1, 41, 9, 49, 17, 57, 25,
];

const EXPANSION: [u8; 48] = [
    32, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9, 8, 9, 10, 11, 12, 13, 12, 13, 14, 15, 16, 17, 16, 17, 18,
    19, 20, 21, 20, 21, 22, 23, 24, 25, 24, 25, 26, 27, 28, 29, 28, 29, 30, 31, 32, 1,
];

const PERMUTATION: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19,
    13, 30, 6, 22, 11, 4, 25,
];

const KEY_CHOICE: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60,
    52, 44, 36, 63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29,
    21, 13, 5, 28, 20, 12, 4,
];

const ROUND_KEY_CHOICE: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2, 41, 52,
    31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];

const ROTATIONS: [usize; 16] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];

const BOXES: [[u8; 64]; 8] = [
    [
        14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12,
        11, 9, 5, 3, 8, 4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9,
        1, 7, 5, 11, 3, 14, 10, 0, 6, 13,
    ],
    [
        15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1,
        10, 6, 9, 11, 5, 0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15,
        4, 2, 11, 6, 7, 12, 0, 5, 14, 9,
    ],
    [
        10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5,
        14, 12, 11, 15, 1, 13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6,
        9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12,
    ],
    [
        7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2,
        12, 1, 10, 14, 9, 10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1,
        13, 8, 9, 4, 5, 11, 12, 7, 2, 14,
    ],
    [
        2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15,
        10, 3, 9, 8, 6, 4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14,
        2, 13, 6, 15, 0, 9, 10, 4, 5, 3,
    ],
    [
        12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13,
        14, 0, 11, 3, 8, 9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5,
        15, 10, 11, 14, 1, 7, 6, 0, 8, 13,
    ],
    [
        4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5,
        12, 2, 15, 8, 6, 1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4,
        10, 7, 9, 5, 0, 15, 14, 2, 3, 12,
    ],
    [
        13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6,
        11, 0, 14, 9, 2, 7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10,
        8, 13, 15, 12, 9, 0, 3, 5, 6, 11,
    ],
];

/// Bits, each in a byte of its own.
type Bits<const N: usize> = [u8; N];

/// True if the text is a salt and a sum of the traditional form.
pub(super) fn is_well_formed(text: &str) -> bool {
    text.len() == TEXT_CHARS && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

/// True if the text is of the extended form.
pub(super) fn is_extended(text: &str) -> bool {
    let is_known = |rest: &str| rest.bytes().all(|byte| ALPHABET.contains(&byte));
    text.len() == EXTENDED_CHARS && text.strip_prefix('_').is_some_and(is_known)
}

/// True if a sum of the extended form takes an acceptable time.
pub(super) fn is_affordable(text: &str) -> bool {
    extended_rounds(text) <= ROUNDS_MAX
}

/// True if the hash, of either form, was made from this password.
pub(super) fn verify(text: &str, password: &[u8]) -> bool {
    // As in C, a NUL ends the password.
    let password = password.split(|byte| *byte == 0).next().unwrap_or_default();
    let bytes = text.as_bytes();
    if is_well_formed(text) {
        let key = key_bits(password);
        verify_slices_are_equal(&sum(&bytes[..2], &key, ROUNDS), &bytes[2..]).is_ok()
    } else if is_extended(text) && is_affordable(text) {
        let key = extended_key(password);
        verify_slices_are_equal(&sum(&bytes[5..9], &key, extended_rounds(text)), &bytes[9..])
            .is_ok()
    } else {
        false
    }
}

/// The number of rounds, its lowest six bits first.
fn extended_rounds(text: &str) -> u32 {
    let digits = text.bytes().skip(1).take(4).rev();
    // FreeSec, the origin of this form in crypt(3), performs one round for 0.
    digits.fold(0, |sum, character| sum << 6 | digit(character)).max(1)
}

/// The value of a character of [`ALPHABET`].
fn digit(character: u8) -> u32 {
    let at = ALPHABET.iter().position(|known| *known == character);
    at.unwrap_or_default() as u32
}

fn chosen<const N: usize>(table: &[u8; N], from: &[u8]) -> Bits<N> {
    table.map(|place| from[usize::from(place) - 1])
}

/// The eleven characters of a sum.
fn sum(salt: &[u8], key: &Bits<64>, rounds: u32) -> Vec<u8> {
    let keys = round_keys(key);
    let expansion = salted_expansion(salt);
    let mut block = [0; 64];
    for _ in 0..rounds {
        block = encrypted(&block, &keys, &expansion);
    }
    // 64 bits and two of padding, six for each character.
    let bits: Vec<u8> = block.into_iter().chain([0, 0]).collect();
    let characters = bits.chunks(6).map(|six| ALPHABET[usize::from(number(six))]);
    characters.collect()
}

fn number(bits: &[u8]) -> u8 {
    bits.iter().fold(0, |sum, bit| sum << 1 | bit)
}

/// The key of up to eight characters: seven bits of each, without the parity bit.
fn key_bits(password: &[u8]) -> Bits<64> {
    let mut key = [0; 64];
    for (at, byte) in password.iter().take(8).enumerate() {
        for bit in 0..7 {
            key[8 * at + bit] = byte >> (6 - bit) & 1;
        }
    }
    key
}

/// The key of the extended form: for each eight characters more, it is encrypted with itself and
/// mixed with them.
fn extended_key(password: &[u8]) -> Bits<64> {
    let mut pieces = password.chunks(8);
    let mut key = key_bits(pieces.next().unwrap_or_default());
    for piece in pieces {
        key = encrypted(&key, &round_keys(&key), &EXPANSION);
        key.iter_mut().zip(key_bits(piece)).for_each(|(bit, other)| *bit ^= other);
    }
    key
}

fn round_keys(key: &Bits<64>) -> [Bits<48>; 16] {
    let mut halves = chosen(&KEY_CHOICE, key);
    ROTATIONS.map(|by| {
        let (left, right) = halves.split_at_mut(28);
        left.rotate_left(by);
        right.rotate_left(by);
        chosen(&ROUND_KEY_CHOICE, &halves)
    })
}

/// Each bit of the salt, 12 or 24, swaps two places of the expansion.
fn salted_expansion(salt: &[u8]) -> [u8; 48] {
    let mut expansion = EXPANSION;
    for (at, character) in salt.iter().enumerate() {
        let digit = digit(*character);
        for bit in (0..6).filter(|bit| digit >> bit & 1 == 1) {
            expansion.swap(6 * at + bit, 6 * at + bit + 24);
        }
    }
    expansion
}

fn encrypted(block: &Bits<64>, keys: &[Bits<48>; 16], expansion: &[u8; 48]) -> Bits<64> {
    let block = chosen(&INITIAL, block);
    let (mut left, mut right) = ([0; 32], [0; 32]);
    left.copy_from_slice(&block[..32]);
    right.copy_from_slice(&block[32..]);
    for key in keys {
        let mut mixed = chosen(expansion, &right);
        mixed.iter_mut().zip(key).for_each(|(bit, key)| *bit ^= key);
        let mut substituted = [0; 32];
        for (at, six) in mixed.chunks(6).enumerate() {
            let row = six[0] << 1 | six[5];
            let four = BOXES[at][usize::from(row << 4 | number(&six[1..5]))];
            for bit in 0..4 {
                substituted[4 * at + bit] = four >> (3 - bit) & 1;
            }
        }
        let mut next = chosen(&PERMUTATION, &substituted);
        next.iter_mut().zip(left).for_each(|(bit, left)| *bit ^= left);
        left = right;
        right = next;
    }
    // The last round does not swap the halves.
    let mut both = [0; 64];
    both[..32].copy_from_slice(&right);
    both[32..].copy_from_slice(&left);
    chosen(&FINAL, &both)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with crypt(3) of libxcrypt 4.4. The first one is from Apache's manual.
    #[test]
    fn sums_of_crypt_are_made() {
        for (text, password) in [
            ("rqXexS6ZhobKA", &b"myPassword"[..]),
            ("umorVM5f.r/UE", b"secret"),
            ("mnQJWDF02Y7FI", b""),
            ("mBqntLq4hGuKg", b"a"),
            ("xnxarzLEplxwA", b"12345678"),
            ("5MqT8lgpDpk6U", b"123456789"),
            ("6OMkBfGw/vdIA", b"Hm47Ai"),
            ("sIfZv9AnXjK1E", b"5P29rp6S9q"),
            ("CffW46Kc/zR02", b"D"),
            ("4BjpZD7ewvtp.", b"5m4Q"),
            (".HOvyXiGAg3xQ", b"F"),
            ("AiHu7h4NBmTa.", b"pGDbL"),
            ("173/aNzrsbv5E", b"Mj"),
            ("OkBUpxg/9UlMU", b"65"),
            ("HUoQpmWoJMqkc", b"OzqcvuiaTL"),
            ("giPS/1.CCM18E", b"T8azftY7DpJf"),
            ("wDmlwOJNdYRk.", b"yp3"),
            ("Cylg/FdZJPjSI", b"7cfgzu69Ww6"),
            ("vxAmkWkdWLEsk", b"b"),
            ("xb8xwpdK5/4gU", b"tYlg0vhJCz5"),
            ("8GHEiYqZHTZPM", b"YETm"),
            ("BfetMYN/tb5x2", b"z8JtnXF"),
            ("VxxaHmYyYSFg6", b"XphkRH8"),
            ("I0jC3Gmy.qmE2", b"HRR"),
            ("OioQrO4UKJnxY", b"y"),
            ("G1G2JDXv5V3AY", b"LVY.GpjcE4"),
        ] {
            assert!(verify(text, password), "{text}");
            assert!(!verify(text, b"other"), "{text}");
        }
    }

    /// Made with crypt(3) of libxcrypt 4.4.
    #[test]
    fn extended_sums_of_crypt_are_made() {
        for (text, password) in [
            ("_J9..abcdIPPmXD22F8s", &b"password"[..]),
            ("_J9..rasmEedsvB6g8/6", b"password"),
            ("_J9..abcdoj0PMidvoVc", b""),
            ("_/...ZZZZNhi8KzQgma6", b"a"),
            ("_J9..SDsdhRgzT.3A.xo", b"12345678"),
            ("_J9..SDsduccD.VXkk4I", b"123456789"),
            ("_.1..xxxxKPI/WxqOcso", b"this is a long password beyond eight"),
            ("_J9..CCCCXBrJUJV154M", b"U*U*U*U*"),
            ("_z1..SaltzY0lFt96KIE", "\u{e4}\u{f6}".as_bytes()),
            ("_J9..abcd2gxHU5Dmfiw", b"Hm47Ai"),
            ("_....abcdqjafSXzc3AA", b"pass"),
            ("_zz..abcdZAWEE9ngHzY", b"pass"),
            ("_J9..abcd8S5PmZPSS3.", b"sixteen chars!!!"),
            ("_J9..abcdUtOirc1/WR6", b"seventeen chars!!"),
        ] {
            assert!(is_extended(text) && is_affordable(text), "{text}");
            assert!(verify(text, password), "{text}");
            assert!(!verify(text, b"other") && !verify(text, &[password, b"x"].concat()), "{text}");
        }
    }

    #[test]
    fn extended_sums_have_a_limit_of_rounds() {
        // 100,000 and 100,001, lowest six bits first.
        assert_eq!(extended_rounds("_UOM.abcdNhi8KzQgma6"), ROUNDS_MAX);
        assert!(is_affordable("_UOM.abcdNhi8KzQgma6") && !is_affordable("_VOM.abcdNhi8KzQgma6"));
        assert!(!verify("_zzz.abcdQytt1wVdr2w", b"pass"));
        for torn in ["_J9..abcdIPPmXD22F8", "_J9..abcdIPPmXD22F8!", "J9..abcdIPPmXD22F8s_", "_", ""]
        {
            assert!(!is_extended(torn), "{torn}");
        }
    }

    #[test]
    fn eight_characters_count() {
        assert!(verify("rqXexS6ZhobKA", b"myPasswo") && verify("rqXexS6ZhobKA", b"myPassword2"));
        assert!(!verify("rqXexS6ZhobKA", b"myPassw") && !verify("rqXexS6ZhobKA", b"mypasswo"));
        assert!(!is_well_formed("rqXexS6ZhobK") && !is_well_formed("rqXexS6ZhobK!"));
    }
}
