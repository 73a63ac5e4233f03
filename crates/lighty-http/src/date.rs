//! HTTP dates: RFC 9110 section 5.6.7. Times are seconds since 1970, passed in by the caller.

/// Length of `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const DATE_LEN: usize = 29;

const DAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

const DAY_SECS: i64 = 86_400;

/// The first and last second that can be written with a four-digit year.
const SECS_MIN: i64 = -62_167_219_200;
const SECS_MAX: i64 = 253_402_300_799;

/// Writes the preferred form (IMF-fixdate). A time outside the years 0 to 9999 is clamped.
#[must_use]
pub fn format(unix_secs: i64) -> [u8; DATE_LEN] {
    let secs = unix_secs.clamp(SECS_MIN, SECS_MAX);
    let (days, second) = (secs.div_euclid(DAY_SECS), secs.rem_euclid(DAY_SECS));
    let (year, month, day) = civil_from_days(days);
    let mut out = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    // 1970-01-01 was a Thursday.
    out[..3].copy_from_slice(DAYS[(days + 4).rem_euclid(7) as usize]);
    put_digits(&mut out[5..7], day);
    out[8..11].copy_from_slice(MONTHS[month as usize - 1]);
    put_digits(&mut out[12..16], year);
    put_digits(&mut out[17..19], second / 3600);
    put_digits(&mut out[20..22], second / 60 % 60);
    put_digits(&mut out[23..25], second % 60);
    out
}

/// Writes `1994-11-06T08:49:37Z` (RFC 3339), for logs.
#[must_use]
pub fn iso8601(unix_secs: i64) -> [u8; 20] {
    let secs = unix_secs.clamp(SECS_MIN, SECS_MAX);
    let (days, second) = (secs.div_euclid(DAY_SECS), secs.rem_euclid(DAY_SECS));
    let (year, month, day) = civil_from_days(days);
    let mut out = *b"1970-01-01T00:00:00Z";
    put_digits(&mut out[..4], year);
    put_digits(&mut out[5..7], month);
    put_digits(&mut out[8..10], day);
    put_digits(&mut out[11..13], second / 3600);
    put_digits(&mut out[14..16], second / 60 % 60);
    put_digits(&mut out[17..19], second % 60);
    out
}

/// Parses any of the three forms; `None` for anything else. The name of the day is not compared
/// with the date. A two-digit year means 1970 to 2069: there is no clock here for the RFC's "more
/// than 50 years in the future".
#[must_use]
pub fn parse(text: &[u8]) -> Option<i64> {
    match text.get(3)? {
        b',' => parse_imf(text),
        b' ' => parse_asctime(text),
        _ => parse_rfc850(text),
    }
}

/// Parses any of the three forms for a cache: the preferred form in any letter case, and a
/// two-digit year as the one nearest to `now_s`, at most 50 years ahead of it.
#[must_use]
pub fn parse_near(text: &[u8], now_s: i64) -> Option<i64> {
    match text.get(3)? {
        b',' => {
            let mut usual: [u8; DATE_LEN] = text.try_into().ok()?;
            usual.make_ascii_lowercase();
            usual[0].make_ascii_uppercase();
            usual[8].make_ascii_uppercase();
            usual[26..].make_ascii_uppercase();
            parse_imf(&usual)
        }
        b' ' => parse_asctime(text),
        _ => parse_rfc850_in(text, |short_year| {
            let secs = now_s.clamp(SECS_MIN, SECS_MAX);
            let (this_year, ..) = civil_from_days(secs.div_euclid(DAY_SECS));
            let ahead = (short_year - this_year).rem_euclid(100);
            if ahead <= YEARS_AHEAD_MAX { this_year + ahead } else { this_year + ahead - 100 }
        }),
    }
}

/// A two-digit year further ahead is one of the past: RFC 9110 section 5.6.7.
const YEARS_AHEAD_MAX: i64 = 50;

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
fn parse_imf(text: &[u8]) -> Option<i64> {
    if text.len() != DATE_LEN || &text[3..5] != b", " || &text[25..] != b" GMT" {
        return None;
    }
    is_day(&text[..3])?;
    expect_at(text, &[(7, b' '), (11, b' '), (16, b' ')])?;
    let (day, year) = (digits(&text[5..7])?, digits(&text[12..16])?);
    to_unix(year, month_at(&text[8..11])?, day, &text[17..25])
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`.
fn parse_rfc850(text: &[u8]) -> Option<i64> {
    parse_rfc850_in(text, |year| if year >= 70 { 1900 + year } else { 2000 + year })
}

/// Parses this form; `whole_year` adds the century to the two digits.
fn parse_rfc850_in(text: &[u8], whole_year: impl Fn(i64) -> i64) -> Option<i64> {
    const AFTER_DAY_LEN: usize = ", 06-Nov-94 08:49:37 GMT".len();
    let rest = &text[text.len().checked_sub(AFTER_DAY_LEN)?..];
    let name = &text[..text.len() - AFTER_DAY_LEN];
    let long_name = name.len() >= 6 && name.len() <= 9 && name.ends_with(b"day");
    if !long_name || !rest.starts_with(b", ") || &rest[20..] != b" GMT" {
        return None;
    }
    is_day(&name[..3])?;
    expect_at(rest, &[(4, b'-'), (8, b'-'), (11, b' ')])?;
    let year = whole_year(digits(&rest[9..11])?);
    to_unix(year, month_at(&rest[5..8])?, digits(&rest[2..4])?, &rest[12..20])
}

/// `Sun Nov  6 08:49:37 1994`.
fn parse_asctime(text: &[u8]) -> Option<i64> {
    if text.len() != "Sun Nov  6 08:49:37 1994".len() {
        return None;
    }
    is_day(&text[..3])?;
    expect_at(text, &[(7, b' '), (10, b' '), (19, b' ')])?;
    let day = if text[8] == b' ' { digits(&text[9..10])? } else { digits(&text[8..10])? };
    to_unix(digits(&text[20..])?, month_at(&text[4..7])?, day, &text[11..19])
}

fn to_unix(year: i64, month: i64, day: i64, time: &[u8]) -> Option<i64> {
    expect_at(time, &[(2, b':'), (5, b':')])?;
    let (hour, minute, second) = (digits(&time[..2])?, digits(&time[3..5])?, digits(&time[6..])?);
    // 60 is a leap second.
    if hour > 23 || minute > 59 || second > 60 || day < 1 || day > month_len(year, month) {
        return None;
    }
    Some(days_from_civil(year, month, day) * DAY_SECS + hour * 3600 + minute * 60 + second)
}

fn expect_at(text: &[u8], places: &[(usize, u8)]) -> Option<()> {
    places.iter().all(|&(at, byte)| text.get(at) == Some(&byte)).then_some(())
}

fn is_day(name: &[u8]) -> Option<()> {
    DAYS.iter().any(|day| *day == name).then_some(())
}

fn month_at(name: &[u8]) -> Option<i64> {
    MONTHS.iter().position(|month| *month == name).map(|index| index as i64 + 1)
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter()
        .try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
}

fn put_digits(out: &mut [u8], mut number: i64) {
    for byte in out.iter_mut().rev() {
        *byte = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn month_len(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

const ERA_DAYS: i64 = 146_097;
/// From 0000-03-01, where eras of 400 years begin, to 1970-01-01.
const EPOCH_OFFSET_DAYS: i64 = 719_468;

/// Days since 1970 of a date in the proleptic Gregorian calendar; years begin in March so that the
/// leap day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA_DAYS + day_of_era - EPOCH_OFFSET_DAYS
}

/// The inverse: year, month (1 to 12), day (1 to 31).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + EPOCH_OFFSET_DAYS;
    let (era, day_of_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn text(secs: i64) -> String {
        String::from_utf8(format(secs).to_vec()).expect("ASCII")
    }

    #[test]
    fn two_digit_years_are_near_to_the_time() {
        const NOW: i64 = 1_795_000_000; // In 2026.
        let parse = |text: &str| parse_near(text.as_bytes(), NOW);
        assert_eq!(parse("Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777));
        for (short, year) in [("26", 2026), ("75", 2075), ("76", 2076), ("77", 1977), ("00", 2000)]
        {
            let text = std::format!("Sunday, 06-Nov-{short} 08:49:37 GMT");
            let full = std::format!("Sun, 06 Nov {year} 08:49:37 GMT");
            assert_eq!(parse(&text), super::parse(full.as_bytes()), "{text}");
        }
        for now in [i64::MIN, i64::MAX] {
            assert!(parse_near(b"Sunday, 06-Nov-94 08:49:37 GMT", now).is_some());
        }
    }

    #[test]
    fn preferred_form_is_read_in_any_case() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "sUN, 06 nOV 1994 08:49:37 gmt"] {
            assert_eq!(parse_near(text.as_bytes(), 0), Some(784_111_777), "{text}");
        }
        assert_eq!(parse_near(b"Sun Nov  6 08:49:37 1994", 0), Some(784_111_777));
        for text in [
            "0",
            "",
            "-1",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 AEST",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06  Nov 1994 08:49:37 GMT",
            "Sun,  06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
        ] {
            assert_eq!(parse_near(text.as_bytes(), 0), None, "{text}");
        }
    }

    #[test]
    fn known_moments() {
        for (secs, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (2_147_483_648, "Tue, 19 Jan 2038 03:14:08 GMT"),
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
            (SECS_MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (SECS_MIN, "Sat, 01 Jan 0000 00:00:00 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (i64::MIN, "Sat, 01 Jan 0000 00:00:00 GMT"),
        ] {
            assert_eq!(text(secs), expected);
        }
    }

    #[test]
    fn three_forms_are_read() {
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(form.as_bytes()), Some(784_111_777), "{form}");
        }
        assert_eq!(parse(b"Wednesday, 01-Jan-69 00:00:00 GMT"), Some(3_124_224_000));
        assert_eq!(parse(b"Sun Nov 16 08:49:37 1994"), Some(784_975_777));
    }

    #[test]
    fn other_texts_are_not_dates() {
        for bad in [
            "",
            "0",
            "Sun",
            "Sun,",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08-49-37 GMT",
            "Sun, 06 Nov -994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Someday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 006 08:49:37 1994",
            "784111777",
            "Sun, 29 Feb 1900 00:00:00 GMT",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn dates_round_trip(secs in SECS_MIN..=SECS_MAX) {
            prop_assert_eq!(parse(&format(secs)), Some(secs));
        }

        #[test]
        fn parsing_never_panics(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _: Option<i64> = parse(&text);
        }

        #[test]
        fn a_broken_date_never_panics(secs in 0..SECS_MAX, at in 0..DATE_LEN, byte: u8) {
            let mut text: Vec<u8> = format(secs).to_vec();
            text[at] = byte;
            let _: Option<i64> = parse(&text);
            text.remove(at);
            let _: Option<i64> = parse(&text);
        }
    }
}
