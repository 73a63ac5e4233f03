//! `strftime` patterns in the C locale, so that logs and pages do not depend on the server's
//! locale.

use lighty_io::clock::local_time::LocalTime;

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A conversion that [`render`] does not know.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Offset of its `%` in the pattern.
    pub at: usize,
    /// The conversion as written.
    pub text: String,
}

/// Checks a pattern for a log line. `%n` is rejected because it breaks the line.
///
/// # Errors
/// The first unknown conversion.
pub fn check(pattern: &str) -> Result<(), Unknown> {
    let mut chars = pattern.char_indices();
    while let Some((at, c)) = chars.next() {
        if c != '%' {
            continue;
        }
        match chars.next() {
            Some((_, letter)) if "aAbBcCdDeFgGhHIjklmMpPrRsStTuUVwWxXyYzZ%".contains(letter) => {}
            Some((_, letter)) => return Err(Unknown { at, text: format!("%{letter}") }),
            None => return Err(Unknown { at, text: "%".to_owned() }),
        }
    }
    Ok(())
}

/// Appends the time as formatted by a pattern. Unknown conversions produce nothing.
pub fn render(pattern: &[u8], time: &LocalTime, out: &mut Vec<u8>) {
    let mut rest = pattern;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
        } else if let Some((&letter, after)) = rest.split_first() {
            rest = after;
            convert(letter, time, out);
        }
    }
}

fn convert(letter: u8, time: &LocalTime, out: &mut Vec<u8>) {
    match letter {
        b'a' => out.extend_from_slice(&weekday(time).as_bytes()[..3]),
        b'A' => out.extend_from_slice(weekday(time).as_bytes()),
        b'b' | b'h' => out.extend_from_slice(&month(time).as_bytes()[..3]),
        b'B' => out.extend_from_slice(month(time).as_bytes()),
        b'c' => render(b"%a %b %e %H:%M:%S %Y", time, out),
        b'D' | b'x' => render(b"%m/%d/%y", time, out),
        b'F' => render(b"%Y-%m-%d", time, out),
        b'r' => render(b"%I:%M:%S %p", time, out),
        b'R' => render(b"%H:%M", time, out),
        b'T' | b'X' => render(b"%H:%M:%S", time, out),
        b'p' => out.extend_from_slice(if time.hour < 12 { b"AM" } else { b"PM" }),
        b'P' => out.extend_from_slice(if time.hour < 12 { b"am" } else { b"pm" }),
        b't' => out.push(b'\t'),
        b'n' => out.push(b'\n'),
        b'z' => offset(time.utc_offset_s, false, out),
        b'Z' => out.extend_from_slice(time.zone()),
        b'%' => out.push(b'%'),
        _ => convert_number(letter, time, out),
    }
}

fn convert_number(letter: u8, time: &LocalTime, out: &mut Vec<u8>) {
    let year = i64::from(time.year);
    let (value, width, fill) = match letter {
        b'C' => (year.div_euclid(100), 2, b'0'),
        b'd' => (i64::from(time.day), 2, b'0'),
        b'e' => (i64::from(time.day), 2, b' '),
        b'g' => (iso_week(time).0.rem_euclid(100), 2, b'0'),
        b'G' => (iso_week(time).0, 4, b'0'),
        b'H' => (i64::from(time.hour), 2, b'0'),
        b'I' => (hour12(time), 2, b'0'),
        b'j' => (i64::from(time.year_day) + 1, 3, b'0'),
        b'k' => (i64::from(time.hour), 2, b' '),
        b'l' => (hour12(time), 2, b' '),
        b'm' => (i64::from(time.month), 2, b'0'),
        b'M' => (i64::from(time.minute), 2, b'0'),
        b's' => (time.unix_s, 1, b'0'),
        b'S' => (i64::from(time.second), 2, b'0'),
        b'u' => ((i64::from(time.weekday) + 6) % 7 + 1, 1, b'0'),
        b'U' => ((i64::from(time.year_day) + 7 - i64::from(time.weekday)) / 7, 2, b'0'),
        b'V' => (iso_week(time).1, 2, b'0'),
        b'w' => (i64::from(time.weekday), 1, b'0'),
        b'W' => ((i64::from(time.year_day) + 7 - monday_based(time)) / 7, 2, b'0'),
        b'y' => (year.rem_euclid(100), 2, b'0'),
        b'Y' => (year, 1, b'0'),
        _ => return,
    };
    number(value, width, fill, out);
}

/// `+0200`, or `+02:00` for RFC 3339.
pub fn offset(seconds: i32, colon: bool, out: &mut Vec<u8>) {
    out.push(if seconds < 0 { b'-' } else { b'+' });
    let minutes = i64::from(seconds.unsigned_abs() / 60);
    number(minutes / 60, 2, b'0', out);
    if colon {
        out.push(b':');
    }
    number(minutes % 60, 2, b'0', out);
}

/// Appends a number, padded to at least `width` with `fill`.
pub fn number(value: i64, width: usize, fill: u8, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    lighty_http::decimal::push_padded(value.unsigned_abs(), width, fill, out);
}

fn weekday(time: &LocalTime) -> &'static str {
    DAYS[usize::from(time.weekday) % 7]
}

fn month(time: &LocalTime) -> &'static str {
    MONTHS[(usize::from(time.month) + 11) % 12]
}

fn hour12(time: &LocalTime) -> i64 {
    (i64::from(time.hour) + 11) % 12 + 1
}

/// Days since Monday.
fn monday_based(time: &LocalTime) -> i64 {
    (i64::from(time.weekday) + 6) % 7
}

/// Year and week of ISO 8601: week 1 contains the year's first Thursday.
fn iso_week(time: &LocalTime) -> (i64, i64) {
    let year = i64::from(time.year);
    let thursday = i64::from(time.year_day) - monday_based(time) + 3;
    if thursday < 0 {
        return (year - 1, (thursday + year_days(year - 1)) / 7 + 1);
    }
    if thursday >= year_days(year) {
        return (year + 1, 1);
    }
    (year, thursday / 7 + 1)
}

fn year_days(year: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    365 + i64::from(leap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(pattern: &str, unix_s: i64) -> String {
        check(pattern).expect("a good pattern");
        let mut out = Vec::new();
        render(pattern.as_bytes(), &utc(unix_s), &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    /// Makes tests independent of the machine's time zone.
    fn utc(unix_s: i64) -> LocalTime {
        let there = LocalTime::at(unix_s);
        let mut time = LocalTime::at(unix_s - i64::from(there.utc_offset_s));
        (time.utc_offset_s, time.unix_s) = (0, unix_s);
        time
    }

    #[test]
    fn every_conversion() {
        // Sunday, 6 November 1994, 08:49:37 UTC; `date -u -d @784111777 +...` says the same.
        for (pattern, expected) in [
            ("%a %A %b %B %h", "Sun Sunday Nov November Nov"),
            ("%c", "Sun Nov  6 08:49:37 1994"),
            ("%C %d %D %e %F", "19 06 11/06/94  6 1994-11-06"),
            ("%g %G %V", "94 1994 44"),
            ("%H %I %j %k %l", "08 08 310  8  8"),
            ("%m %M %p %P", "11 49 AM am"),
            ("%r %R %s", "08:49:37 AM 08:49 784111777"),
            ("%S %T %u %U %w %W", "37 08:49:37 7 45 0 44"),
            ("%x %X %y %Y %z %%", "11/06/94 08:49:37 94 1994 +0000 %"),
            ("a%tb", "a\tb"),
        ] {
            assert_eq!(show(pattern, 784_111_777), expected, "{pattern}");
        }
    }

    #[test]
    fn iso_weeks_at_the_turn_of_the_year() {
        for (unix_s, expected) in [
            (1_104_537_600, "2004-53"), // 2005-01-01
            (1_230_768_000, "2009-01"), // 2009-01-01
            (1_230_595_200, "2009-01"), // 2008-12-30
            (1_262_304_000, "2009-53"), // 2010-01-01
            (1_735_603_200, "2025-01"), // 2024-12-31
        ] {
            assert_eq!(show("%G-%V", unix_s), expected);
        }
    }

    #[test]
    fn offsets_east_and_west() {
        for (seconds, colon, expected) in [
            (0, false, "+0000"),
            (7200, false, "+0200"),
            (-12_600, false, "-0330"),
            (20_700, true, "+05:45"),
        ] {
            let mut out = Vec::new();
            offset(seconds, colon, &mut out);
            assert_eq!(out, expected.as_bytes());
        }
    }

    #[test]
    fn unknown_conversions_are_found_where_they_stand() {
        assert_eq!(check("%H:%Q"), Err(Unknown { at: 3, text: "%Q".into() }));
        assert_eq!(check("%H%n"), Err(Unknown { at: 2, text: "%n".into() }));
        assert_eq!(check("100%"), Err(Unknown { at: 3, text: "%".into() }));
    }
}
