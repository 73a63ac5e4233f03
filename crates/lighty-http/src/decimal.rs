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

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn agrees_with_formatting() {
        for number in [0, 1, 9, 10, 99, 100, 65_535, u64::MAX / 10, u64::MAX] {
            let mut out = Vec::new();
            push(number, &mut out);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
