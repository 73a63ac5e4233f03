//! Sizes in bytes: numbers, and texts with a unit.

use std::ops::RangeInclusive;

use crate::reject::Reject;
use crate::value::Value;

/// Parses a size: a number of bytes, or a text with the unit `K`, `M`, `G` or `T`, each 1,024 times
/// the one before.
///
/// # Errors
/// The value is no size, or beyond the limits.
pub fn parse_size(value: &Value, range: &RangeInclusive<u64>) -> Result<u64, Reject> {
    let bytes = match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Str(text) => bytes_of(text.trim()),
        Value::Array(_) => None,
    };
    let help = "write a number of bytes, or \"64K\", \"16M\", \"2G\"";
    let bytes = bytes.ok_or_else(|| Reject::new("must be a size").help(help))?;
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    let text = format!("must be from {} to {}", shown(*range.start()), shown(*range.end()));
    Err(Reject::new(text))
}

const UNITS: [(char, u64); 4] = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40)];

fn bytes_of(text: &str) -> Option<u64> {
    let unit = text.chars().last()?.to_ascii_uppercase();
    let Some((_, factor)) = UNITS.into_iter().find(|(letter, _)| *letter == unit) else {
        return text.parse().ok();
    };
    text[..text.len() - 1].trim_end().parse::<u64>().ok()?.checked_mul(factor)
}

fn shown(bytes: u64) -> String {
    let fitting = |(_, factor): &&(char, u64)| bytes >= *factor && bytes.is_multiple_of(*factor);
    match UNITS.iter().rfind(fitting) {
        Some((letter, factor)) => format!("{}{letter}", bytes / factor),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let all = 0..=u64::MAX;
        let size = |text: &str| parse_size(&Value::Str(text.into()), &all).ok();
        for (text, bytes) in [
            ("0", Some(0)),
            ("17", Some(17)),
            ("64K", Some(65_536)),
            ("64 k", Some(65_536)),
            ("2G", Some(2 << 30)),
            ("1T", Some(1 << 40)),
            ("K", None),
            ("1.5M", None),
            ("-1", None),
            ("99999999999T", None),
            ("1KB", None),
            ("", None),
            ("é", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
        assert_eq!(parse_size(&Value::Int(5), &all).ok(), Some(5));
        assert!(parse_size(&Value::Int(-5), &all).is_err());
        assert!(parse_size(&Value::Array(Vec::new()), &all).is_err());
    }

    #[test]
    fn limits_are_named() {
        let range = 1024..=1 << 20;
        let fault = |bytes| parse_size(&Value::Int(bytes), &range).map_err(|reject| reject.message);
        assert_eq!((fault(1024), fault(1 << 20)), (Ok(1024), Ok(1 << 20)));
        let text = Err("must be from 1K to 1M".to_owned());
        assert_eq!((fault(1023), fault((1 << 20) + 1)), (text.clone(), text));
    }
}
