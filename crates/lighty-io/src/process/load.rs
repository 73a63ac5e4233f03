//! The machine's load average.

/// The load average of the last minute: the number of runnable or waiting processes. Never blocks.
pub fn load_average() -> f64 {
    // In 65536ths (`SI_LOAD_SHIFT`).
    rustix::system::sysinfo().loads[0] as f64 / 65536.0
}

#[cfg(test)]
mod tests {
    #[test]
    fn load_average_is_a_sensible_number() {
        let reference = std::fs::read_to_string("/proc/loadavg").expect("procfs");
        let reference: f64 =
            reference.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        assert!((super::load_average() - reference).abs() <= 1.0 + reference / 4.0);
    }
}
