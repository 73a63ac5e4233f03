//! Parser of log lines.

use serde_json::Value;

/// Maximum bytes of a stage's name.
const NAME_BYTES_MAX: usize = 32;

/// Contents of a log line.
#[derive(Debug, PartialEq)]
pub(super) enum LogLine {
    /// Times of a request.
    Times(RequestTimes),
    /// Another line.
    Other,
    /// Invalid times of a request.
    Broken(TimingLineError),
}

/// Fault of a line about the times of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingLineError {
    /// The line begins with a brace and is no JSON.
    #[error("it is no JSON")]
    NotJson,
    /// The line has no time, or an invalid one.
    #[error("it has no time")]
    NoTime,
    /// The line has no stages.
    #[error("it has no stages_us")]
    NoStages,
    /// The time of a stage is missing or invalid.
    #[error("a stage has no time")]
    NoStageTime,
    /// A time is no number, or is out of range.
    #[error("a time is no number")]
    NotNumber,
    /// A time is not followed by its unit.
    #[error("a time has no unit")]
    NoUnit,
    /// The total is missing.
    #[error("it has no total")]
    NoTotal,
    /// The name of a stage is empty, too long, or has other characters than small letters and `-`.
    #[error("a stage has no sound name")]
    BadName,
}

/// Times of a request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RequestTimes {
    /// Time of the line, in microseconds since 1970.
    pub(super) at_us: i64,
    /// Names of stages, with microseconds.
    pub(super) stages: Vec<(String, u64)>,
}

pub(super) fn read(line: &[u8]) -> LogLine {
    let Ok(text) = std::str::from_utf8(line) else { return LogLine::Other };
    let text = text.trim_end();
    if text.starts_with('{') {
        return read_json(text).map_or_else(LogLine::Broken, LogLine::Times);
    }
    match text.split_once(" timing write-start: ") {
        Some((_, rest)) => read_timing(rest).map_or_else(LogLine::Broken, LogLine::Times),
        None => LogLine::Other,
    }
}

fn read_json(text: &str) -> Result<RequestTimes, TimingLineError> {
    let line: Value = serde_json::from_str(text).map_err(|_| TimingLineError::NotJson)?;
    let time = line["time"].as_str().and_then(unix_us);
    let at_us = time.ok_or(TimingLineError::NoTime)?;
    let stages = line["stages_us"].as_object().ok_or(TimingLineError::NoStages)?;
    let stage = |(name, took_us): (&String, &Value)| -> Result<_, TimingLineError> {
        let took_us = took_us.as_u64().ok_or(TimingLineError::NoStageTime)?;
        Ok((name_of(name)?, took_us))
    };
    Ok(RequestTimes { at_us, stages: stages.iter().map(stage).collect::<Result<_, _>>()? })
}

/// Parses a line of `debug.log-timing`, starting at the time. The stages follow the total.
fn read_timing(text: &str) -> Result<RequestTimes, TimingLineError> {
    // The fields that every line about a request has follow after the comma.
    let text = text.split_once(',').map_or(text, |(times, _)| times);
    let mut tokens = text.split_ascii_whitespace();
    let at_s = tokens.next().and_then(|word| word.parse::<f64>().ok());
    let at_s = at_s.filter(|at_s| (0.0..1e11).contains(at_s)).ok_or(TimingLineError::NoTime)?;
    let (mut stages, mut is_stage) = (Vec::new(), false);
    while let Some(name) = tokens.next().and_then(|word| word.strip_suffix(':')) {
        let value = tokens.next().and_then(|word| word.parse::<f64>().ok());
        let took_ms =
            value.filter(|ms| (0.0..1e12).contains(ms)).ok_or(TimingLineError::NotNumber)?;
        if tokens.next() != Some("ms") {
            return Err(TimingLineError::NoUnit);
        }
        if is_stage {
            stages.push((name_of(name)?, (took_ms * 1_000.0).round() as u64));
        }
        is_stage |= name == "total";
    }
    match is_stage {
        true => Ok(RequestTimes { at_us: (at_s * 1e6) as i64, stages }),
        false => Err(TimingLineError::NoTotal),
    }
}

/// Checks a stage's name, which becomes part of charts.
fn name_of(text: &str) -> Result<String, TimingLineError> {
    let is_sound = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    match is_sound && (1..=NAME_BYTES_MAX).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err(TimingLineError::BadName),
    }
}

/// Converts `2026-11-24T08:15:00.123456+01:00` (RFC 3339) to microseconds since 1970.
fn unix_us(text: &str) -> Option<i64> {
    let number = |at: std::ops::Range<usize>| text.get(at)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let rest = text.get(19..)?;
    let digits = rest.strip_prefix('.').unwrap_or("");
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    let zone = rest.get(if digits.is_empty() { 0 } else { digits.len() + 1 }..)?;
    let micros: i64 = format!("{:0<6}", digits.get(..digits.len().min(6))?).parse().ok()?;
    let offset_s = match zone.split_at_checked(1)? {
        ("Z", "") => 0,
        (sign @ ("+" | "-"), rest) => {
            let (hours, minutes) = rest.split_once(':')?;
            let ahead_s = hours.parse::<i64>().ok()? * 3_600 + minutes.parse::<i64>().ok()? * 60;
            if sign == "-" { -ahead_s } else { ahead_s }
        }
        _ => return None,
    };
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset_s;
    is_date.then_some(seconds * 1_000_000 + micros)
}

/// Days from 1970 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Counts years from March, so that the leap day is the last day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_access_log_are_read() {
        for (text, wanted) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01T01:00:00.5+01:00", Some(500_000)),
            ("2000-02-29T12:00:00.123456-00:30", Some(951_827_400_123_456)),
            ("2026-11-24T08:15:02.250000+00:00", Some(1_795_508_102_250_000)),
            ("2026-13-24T08:15:02Z", None),
            ("2026-11-24T08:15:02", None),
            ("yesterday", None),
        ] {
            assert_eq!(unix_us(text), wanted, "{text}");
        }
    }

    #[test]
    fn names_that_could_be_markup_are_broken() {
        let line = br#"{"time":"1970-01-01T00:00:00Z","stages_us":{"<script>":1}}"#;
        assert_eq!(read(line), LogLine::Broken(TimingLineError::BadName));
    }
}
