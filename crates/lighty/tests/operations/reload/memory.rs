//! Memory of a large configuration while it is reloaded and afterwards.

use std::fmt::Write;
use std::time::Duration;

use lighty_testkit::wait_until;

use super::site::ReloadSite;

const HOSTS: usize = 1_000;

/// Hosts with a pattern each, which take most of the memory of such a configuration.
fn hosts(kind: &str) -> String {
    let mut text = String::new();
    for host in 0..HOSTS {
        let pattern = format!("^(www\\.)?{kind}{host}[a-z]*\\.example\\.[a-z]+$");
        let _ = writeln!(text, "$HTTP[\"host\"] =~ \"{pattern}\" {{ server.tag = \"{host}\" }}");
    }
    text
}

/// Waits until the server holds at most `percent` of `first_kib`.
fn await_share(site: &ReloadSite, percent: u64, first_kib: u64) {
    let limit = first_kib * percent / 100;
    let is_within = || site.server.own_kib() <= limit;
    let now = || format!("{} KiB, at first {first_kib} KiB", site.server.own_kib());
    assert!(wait_until(Duration::from_secs(30), is_within), "{}", now());
}

/// Most memory that the server ever held, without the pages of files that it has mapped.
fn peak_kib(site: &ReloadSite) -> u64 {
    let mapped = site.server.resident_kib() - site.server.own_kib();
    site.server.peak_resident_kib().saturating_sub(mapped)
}

#[test]
fn patterns_of_both_configurations_are_shared_during_a_reload() {
    let lines = hosts("a");
    let site = ReloadSite::start(1, &lines, &[]);
    let first = site.server.own_kib();
    for turn in 0..4 {
        site.change(&format!("{lines}server.max-keep-alive-requests = {}", 100 + turn));
    }
    let peak = peak_kib(&site);
    assert!(peak < first * 3 / 2, "{first} KiB at first, at most {peak} KiB");
    await_share(&site, 120, first);
}

#[test]
fn first_configuration_goes_with_the_first_reload() {
    let site = ReloadSite::start(1, &hosts("a"), &[]);
    let first = site.server.own_kib();
    for kind in ["b", "c", "d"] {
        site.change(&hosts(kind));
        await_share(&site, 130, first);
    }
    let peak = peak_kib(&site);
    assert!(peak < first * 5 / 2, "{first} KiB at first, at most {peak} KiB");
    site.change("");
    await_share(&site, 60, first);
}
