//! Human-readable figures.

/// Formats a number of bytes.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut tenths = u128::from(count) * 10;
    while tenths >= 10_240 && unit < UNITS.len() - 1 {
        tenths /= 1024;
        unit += 1;
    }
    match unit {
        0 => format!("{count} bytes"),
        unit => format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]),
    }
}

/// Formats microseconds.
pub(super) fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        _ => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

/// Formats whole seconds.
pub(super) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_readable() {
        let sizes = [0, 1023, 1024, 1536, 1 << 20, u64::MAX].map(bytes);
        assert_eq!(
            sizes,
            ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "1.0 MiB", "16383.9 PiB"]
        );
        let times = [59, 60, 3600, 90_000].map(duration);
        assert_eq!(times, ["59 s", "1 min", "1 h 0 min", "1 d 1 h"]);
    }
}
