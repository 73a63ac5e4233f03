//! Local time in the machine's time zone, for logs and pages.

/// A moment in the machine's time zone (`TZ`, else `/etc/localtime`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Year of the Gregorian calendar.
    pub year: i32,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 60 (a leap second).
    pub second: u8,
    /// Day of the week, 0 = Sunday.
    pub weekday: u8,
    /// Day of the year, 0 to 365.
    pub year_day: u16,
    /// Seconds east of UTC.
    pub utc_offset_s: i32,
    /// The moment itself, in seconds since 1970.
    pub unix_s: i64,
    zone: [u8; ZONE_BYTES_MAX],
    zone_len: u8,
}

/// Bytes kept of a zone's short name (`CET`, `+0530`): POSIX has at least 3, real ones at most 6.
const ZONE_BYTES_MAX: usize = 8;

impl LocalTime {
    /// The local time at a moment. The zone's rules are read once per process, so call it before
    /// `chroot`. A moment beyond the calendar of the C library is shown as 1970.
    pub fn at(unix_s: i64) -> Self {
        // SAFETY: every field of `tm` may be zero: integers and a pointer that may be null.
        let mut tm: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for the call; `localtime_r` writes `tm` only.
        let done = unsafe { libc::localtime_r(&unix_s, &mut tm) };
        if done.is_null() { Self::at(0) } else { Self::of(&tm, unix_s) }
    }

    /// The same moment in UTC, with the zone name `GMT`.
    pub fn gmt_at(unix_s: i64) -> Self {
        // SAFETY: every field of `tm` may be zero: integers and a pointer that may be null.
        let mut tm: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for the call; `gmtime_r` writes `tm` only.
        let done = unsafe { libc::gmtime_r(&unix_s, &mut tm) };
        if done.is_null() { Self::gmt_at(0) } else { Self::of(&tm, unix_s) }
    }

    fn of(tm: &libc::tm, unix_s: i64) -> Self {
        let (zone, zone_len) = zone_of(tm);
        Self {
            year: tm.tm_year.saturating_add(1900),
            month: (tm.tm_mon + 1) as u8,
            day: tm.tm_mday as u8,
            hour: tm.tm_hour as u8,
            minute: tm.tm_min as u8,
            second: tm.tm_sec as u8,
            weekday: tm.tm_wday as u8,
            year_day: tm.tm_yday as u16,
            utc_offset_s: tm.tm_gmtoff as i32,
            unix_s,
            zone,
            zone_len,
        }
    }

    /// Short name of the zone, for example `CEST`.
    pub fn zone(&self) -> &[u8] {
        &self.zone[..usize::from(self.zone_len)]
    }
}

fn zone_of(tm: &libc::tm) -> ([u8; ZONE_BYTES_MAX], u8) {
    let mut zone = [0; ZONE_BYTES_MAX];
    if tm.tm_zone.is_null() {
        return (zone, 0);
    }
    // SAFETY: the C library keeps the names of its zone rules, terminated by a zero, as long as
    // the process lives; nothing here calls `tzset` with another zone.
    let name = unsafe { std::ffi::CStr::from_ptr(tm.tm_zone) }.to_bytes();
    let length = name.len().min(ZONE_BYTES_MAX);
    zone[..length].copy_from_slice(&name[..length]);
    (zone, length as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_offset_agree_with_the_moment() {
        for unix_s in [0, 784_111_777, 1_751_328_000, 1_795_239_600, 4_102_444_800] {
            let time = LocalTime::at(unix_s);
            let of_day = i64::from(time.hour) * 3600 + i64::from(time.minute) * 60;
            let local = unix_s + i64::from(time.utc_offset_s);
            assert_eq!(of_day + i64::from(time.second), local.rem_euclid(86_400));
            // 1970-01-01 was a Thursday.
            assert_eq!(i64::from(time.weekday), (local.div_euclid(86_400) + 4).rem_euclid(7));
            assert!(!time.zone().is_empty());
        }
    }

    #[test]
    fn greenwich_is_where_no_offset_is() {
        let time = LocalTime::gmt_at(784_111_777);
        assert_eq!((time.day, time.hour, time.minute, time.second), (6, 8, 49, 37));
        assert_eq!((time.utc_offset_s, time.zone()), (0, &b"GMT"[..]));
        assert_eq!(LocalTime::gmt_at(i64::MAX).unix_s, 0);
    }

    #[test]
    fn a_moment_beyond_the_calendar_is_no_crash() {
        assert_eq!(LocalTime::at(i64::MAX).unix_s, 0);
    }
}
