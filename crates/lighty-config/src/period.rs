//! Spans of time in values.

use crate::directive::parse_int;
use crate::reject::Reject;
use crate::value::Value;

/// Limit on periods, in seconds: a year. A longer period is a mistake.
pub const SECONDS_MAX: i64 = 365 * 86_400;

/// Reads milliseconds: a number is seconds; text may have a unit.
///
/// # Errors
/// The value is no span of time, or shorter than `least_ms`, or longer than a year.
pub fn parse_period(value: &Value, least_ms: u64) -> Result<u64, Reject> {
    let seconds = i64::from(least_ms > 0)..=SECONDS_MAX;
    if value.as_int().is_some() {
        return Ok(parse_int(value, &seconds)?.unsigned_abs() * 1000);
    }
    let text = value.as_str().ok_or_else(bad_period)?;
    let most_ms = SECONDS_MAX.unsigned_abs() * 1000;
    match milliseconds(text)?.filter(|ms| (least_ms..=most_ms).contains(ms)) {
        Some(ms) => Ok(ms),
        None => Err(Reject::new(format!("must be from {least_ms}ms to a year"))),
    }
}

fn bad_period() -> Reject {
    Reject::new("must be seconds, or a number with a unit")
        .help("write 5, \"5s\", \"500ms\", \"2min\", \"1h\" or \"2min30s\"")
}

/// Units of time and their milliseconds.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("sec", 1000), ("min", 60_000), ("h", 3_600_000)];

/// Common misspellings of units, and the unit meant.
const MEANT: [(&str, &str); 13] = [
    ("m", "min"),
    ("mins", "min"),
    ("minute", "min"),
    ("minutes", "min"),
    ("secs", "sec"),
    ("second", "sec"),
    ("seconds", "sec"),
    ("hour", "h"),
    ("hours", "h"),
    ("hr", "h"),
    ("hrs", "h"),
    ("msec", "ms"),
    ("millis", "ms"),
];

/// Returns the sum of several numbers with units; `None` on overflow.
fn milliseconds(text: &str) -> Result<Option<u64>, Reject> {
    let mut sum = Some(0u64);
    let mut rest = text;
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at(digits);
        let end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let number: u64 = number.parse().map_err(|_| bad_period())?;
        let Some((_, unit_ms)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(unknown_unit(unit));
        };
        let part = number.checked_mul(*unit_ms);
        sum = sum.zip(part).and_then(|(sum, part)| sum.checked_add(part));
        rest = behind;
        if rest.is_empty() {
            return Ok(sum);
        }
    }
}

fn unknown_unit(unit: &str) -> Reject {
    let lower = unit.trim().to_ascii_lowercase();
    let is_meant = |(name, _): &&(&str, &'static str)| *name == lower;
    let by_case = UNITS.iter().map(|(name, _)| *name).find(|name| *name == lower);
    match by_case.or_else(|| MEANT.iter().find(is_meant).map(|(_, meant)| *meant)) {
        Some(meant) if meant != unit => bad_period().help(format!(
            "{unit:?} is no unit: did you mean \"{meant}\"? It follows its number without a space"
        )),
        _ => bad_period(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period_of(text: &str, least_ms: u64) -> Option<u64> {
        parse_period(&Value::Str(text.into()), least_ms).ok()
    }

    #[test]
    fn periods_have_units() {
        let number = |seconds| parse_period(&Value::Int(seconds), 1).ok();
        assert_eq!(number(5), Some(5000));
        for (text, ms) in
            [("5", 5000), ("5s", 5000), ("250ms", 250), ("2min", 120_000), ("1h", 3_600_000)]
                .into_iter()
                .chain([("30sec", 30_000), ("2min1sec", 121_000), ("1h2min3s4ms", 3_723_004)])
        {
            assert_eq!(period_of(text, 1), Some(ms), "{text}");
        }
        for text in ["", "s", "5m", "5 s", "-5s", "1.5s", "5S", "ms", "2min1", "2min 1s", "1é"] {
            assert_eq!(period_of(text, 1), None, "{text:?}");
        }
        let help = |text: &str| parse_period(&Value::Str(text.into()), 1).map_err(|bad| bad.help);
        for (text, meant) in
            [("5m", "min"), ("5 s", "s"), ("5S", "s"), ("1minutes", "min"), ("2min1secs", "sec")]
        {
            let help = help(text).expect_err(text).expect("a help");
            assert!(help.contains(&format!("did you mean \"{meant}\"?")), "{text}: {help}");
        }
        assert!(parse_period(&Value::Array(Vec::new()), 1).is_err());
    }

    #[test]
    fn periods_have_limits() {
        let number = |seconds, least_ms| parse_period(&Value::Int(seconds), least_ms).ok();
        assert_eq!((number(0, 0), number(0, 1), number(1, 1)), (Some(0), None, Some(1000)));
        assert_eq!(number(SECONDS_MAX, 1), Some(SECONDS_MAX as u64 * 1000));
        assert_eq!(number(SECONDS_MAX + 1, 1), None);
        assert_eq!((period_of("100ms", 100), period_of("99ms", 100)), (Some(100), None));
        assert_eq!((period_of("8760h", 1), period_of("8761h", 1)), (Some(31_536_000_000), None));
        assert_eq!(period_of("18446744073709551615h", 1), None, "more than a number holds");
        assert_eq!(period_of("99999999999999999999h", 1), None);
    }
}
