//! Numbers as decimal text, without the machinery of formatting.

use alloc::vec::Vec;

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

/// Appends a number.
pub fn push(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; DIGITS_MAX];
    let mut start = digits.len();
    let mut left = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Reads a number of digits and nothing else; `None` too if it exceeds 64 bits.
#[must_use]
pub fn parse(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, &digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn reads_digits_and_nothing_else() {
        for number in [0, 7, 10, 65_535, u64::MAX] {
            assert_eq!(parse(number.to_string().as_bytes()), Some(number));
        }
        assert_eq!(parse(b"0012"), Some(12));
        for bad in ["", "+1", "-1", " 1", "1 ", "1,1", "0x1", "1.0", "18446744073709551616"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn agrees_with_formatting() {
        for number in [0, 1, 9, 10, 99, 100, 65_535, u64::MAX / 10, u64::MAX] {
            let mut out = Vec::new();
            push(number, &mut out);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
