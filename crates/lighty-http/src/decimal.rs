//! Numbers as decimal text, faster than by `core::fmt`.

use alloc::vec::Vec;

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

/// A number as text, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; DIGITS_MAX],
    start: usize,
}

impl Decimal {
    /// The text of a number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        let mut digits = [0; DIGITS_MAX];
        let mut start = digits.len();
        let mut left = number;
        loop {
            start -= 1;
            digits[start] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                return Self { digits, start };
            }
        }
    }
}

impl AsRef<[u8]> for Decimal {
    fn as_ref(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// Appends a number.
pub fn push(number: u64, out: &mut Vec<u8>) {
    push_padded(number, 0, b'0', out);
}

/// Appends a number, padded on the left with `fill` to `width` characters.
pub fn push_padded(number: u64, width: usize, fill: u8, out: &mut Vec<u8>) {
    // Two characters at most: days, hours, minutes, most counts.
    if number < 10 && width <= 1 {
        return out.push(b'0' + number as u8);
    }
    if number < 100 && width == 2 {
        let tens = if number < 10 { fill } else { b'0' + (number / 10) as u8 };
        return out.extend_from_slice(&[tens, b'0' + (number % 10) as u8]);
    }
    let digits = Decimal::new(number);
    let missing = width.saturating_sub(digits.as_ref().len());
    if missing > 0 {
        out.extend(core::iter::repeat_n(fill, missing));
    }
    out.extend_from_slice(digits.as_ref());
}

/// Parses a number of digits only; `None` also if it exceeds 64 bits.
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
    fn is_as_wide_as_asked_for_at_least() {
        for (number, fill, padded) in [(7, b'0', "007"), (7, b' ', "  7"), (1234, b'0', "1234")] {
            let mut out = Vec::new();
            push_padded(number, 3, fill, &mut out);
            assert_eq!(out, padded.as_bytes());
        }
        for number in [0, 1, 9, 10, 42, 99, 100, 101, u64::MAX] {
            for width in 0..4 {
                let mut out = Vec::new();
                push_padded(number, width, b'0', &mut out);
                assert_eq!(out, alloc::format!("{number:0width$}").as_bytes());
                out.clear();
                push_padded(number, width, b' ', &mut out);
                assert_eq!(out, alloc::format!("{number:width$}").as_bytes());
            }
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
