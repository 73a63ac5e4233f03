use super::*;
use crate::upstream::spec::{CheckKind, CheckSpec};

fn spec() -> HealthSpec {
    HealthSpec {
        disable_ms: 1_000,
        disable_ms_max: 5_000,
        fails_max: 1,
        hold_ms: 3_000,
        slow_start_ms: 0,
        check: None,
    }
}

fn checked() -> HealthSpec {
    let kind = CheckKind::Tcp;
    let check = CheckSpec { kind, interval_ms: 500, timeout_ms: 100, rise: 2, fall: 3 };
    HealthSpec { check: Some(check), ..spec() }
}

/// Returns an address that responded to one request.
fn worked(spec: &HealthSpec) -> Health {
    let health = Health::new(spec);
    assert_eq!(health.record_success(0, 1), HealthChange::Nothing);
    health
}

#[test]
fn a_new_address_is_up() {
    let health = Health::new(&spec());
    assert_eq!(health.state(0), AddressState::Up);
    assert!(health.begin(0));
    assert_eq!(health.slow_start_permille(0), 1_000);
    assert_eq!(health.held_until(0), None);
}

#[test]
fn failures_below_the_limit_do_no_harm_and_a_success_forgives_them() {
    let health = Health::new(&HealthSpec { fails_max: 3, ..spec() });
    for round in 0..5 {
        for _ in 0..2 {
            assert_eq!(health.record_failure(round, round), HealthChange::Nothing);
        }
        assert_eq!(health.state(round), AddressState::Up);
        health.record_success(round, round);
    }
    health.record_failure(9, 9);
    health.record_failure(9, 9);
    assert_eq!(health.record_failure(9, 9), HealthChange::WentDown { until_ms: 1_009 });
    assert_eq!(health.state(9), AddressState::Down { until_ms: 1_009 });
}

#[test]
fn without_a_limit_no_failure_takes_an_address_out() {
    let health = Health::new(&HealthSpec { fails_max: 0, ..spec() });
    for now in 0..1_000 {
        assert_eq!(health.record_failure(now, now), HealthChange::Nothing);
    }
    assert_eq!(health.state(1_000), AddressState::Up);
}

#[test]
fn the_disable_time_ends_to_the_millisecond_and_lets_one_request_try() {
    let health = worked(&spec());
    health.record_failure(100, 100);
    assert_eq!(health.state(1_099), AddressState::Down { until_ms: 1_100 });
    assert!(!health.begin(1_099));
    assert_eq!(health.state(1_100), AddressState::Probing);
    assert!(health.begin(1_100));
    assert!(!health.begin(1_100));
    assert_eq!(health.state(1_101), AddressState::Down { until_ms: 1_100 + PROBE_MS_MAX });
    assert_eq!(health.record_success(1_100, 1_110), HealthChange::CameBack);
    assert_eq!(health.state(1_110), AddressState::Up);
    assert!(health.begin(1_110));
}

#[test]
fn each_failed_probe_doubles_the_disable_time_up_to_its_limit() {
    let health = worked(&spec());
    let mut now = 10;
    health.record_failure(now, now);
    for wait in [1_000, 2_000, 4_000, 5_000, 5_000] {
        assert_eq!(health.state(now), AddressState::Down { until_ms: now + wait });
        now += wait;
        assert!(health.begin(now));
        assert!(matches!(health.record_failure(now, now), HealthChange::WentDown { .. }));
    }
    for _ in 0..100 {
        now += 5_000;
        assert!(health.begin(now));
        health.record_failure(now, now);
    }
    assert_eq!(health.state(now), AddressState::Down { until_ms: now + 5_000 });
    now += 5_000;
    assert!(health.begin(now));
    assert_eq!(health.record_success(now, now), HealthChange::CameBack);
    health.record_failure(now, now);
    assert_eq!(health.state(now), AddressState::Down { until_ms: now + 1_000 });
}

#[test]
fn a_burst_of_failures_is_one() {
    let health = worked(&spec());
    assert_eq!(health.record_failure(5, 10), HealthChange::WentDown { until_ms: 1_010 });
    for now in 11..60 {
        assert_eq!(health.record_failure(5, now), HealthChange::Nothing);
    }
    assert_eq!(health.state(60), AddressState::Down { until_ms: 1_010 });
    assert!(health.begin(1_010));
    assert_eq!(health.record_failure(5, 1_011), HealthChange::Nothing, "an old request's end");
    assert_eq!(health.record_success(1_010, 1_012), HealthChange::CameBack);
    assert_eq!(health.record_failure(5, 1_013), HealthChange::Nothing, "an old request's end");
    assert_eq!(health.state(1_013), AddressState::Up);
}

#[test]
fn older_success_does_not_bring_an_address_back() {
    let health = worked(&spec());
    health.record_failure(10, 10);
    assert_eq!(health.record_success(9, 20), HealthChange::Nothing);
    assert!(matches!(health.state(20), AddressState::Down { .. }));
}

#[test]
fn a_probe_that_tells_nothing_makes_room_for_the_next() {
    let health = worked(&spec());
    health.record_failure(0, 0);
    assert!(health.begin(1_000));
    health.record_abandoned(999);
    assert!(!health.begin(1_001));
    health.record_abandoned(1_000);
    assert!(health.begin(1_001));
    assert!(!health.begin(1_001 + PROBE_MS_MAX - 1));
    assert!(health.begin(1_001 + PROBE_MS_MAX), "whoever never came back is not waited for");
}

#[test]
fn requests_are_held_for_an_address_that_worked_and_only_so_long() {
    let health = worked(&spec());
    assert_eq!(health.held_until(99), None);
    health.record_failure(100, 100);
    assert_eq!(health.held_until(100), Some(3_100));
    assert_eq!(health.held_until(3_099), Some(3_100));
    assert_eq!(health.held_until(3_100), None);
    assert!(health.begin(1_100));
    health.record_failure(1_100, 1_100);
    assert_eq!(health.held_until(1_200), Some(3_100), "the first failure counts");
    assert!(health.begin(3_100));
    health.record_success(3_100, 3_100);
    assert_eq!(health.held_until(3_101), None);
    health.record_failure(4_000, 4_000);
    assert_eq!(health.held_until(4_000), Some(7_000));
}

#[test]
fn no_request_waits_for_an_address_that_never_worked() {
    let health = Health::new(&spec());
    health.record_failure(10, 10);
    assert_eq!(health.held_until(10), None);
    assert!(!health.begin_held(500));
}

#[test]
fn held_requests_try_now_and_then_without_prolonging_the_outage() {
    let health = worked(&spec());
    health.record_failure(100, 100);
    assert!(!health.begin_held(100 + HOLD_PROBE_MS - 1));
    assert!(health.begin_held(100 + HOLD_PROBE_MS));
    assert!(!health.begin_held(100 + HOLD_PROBE_MS));
    assert_eq!(health.record_failure(150, 151), HealthChange::Nothing);
    assert_eq!(health.state(151), AddressState::Down { until_ms: 1_100 });
    assert!(!health.begin(200));
    assert!(health.begin_held(200));
    assert_eq!(health.record_success(200, 210), HealthChange::CameBack);
    assert!(health.begin_held(211));
}

#[test]
fn the_hold_is_over_for_those_who_would_try_too() {
    let slow = HealthSpec { disable_ms: 10_000, disable_ms_max: 10_000, ..spec() };
    let health = worked(&slow);
    health.record_failure(100, 100);
    assert!(health.begin_held(3_000));
    assert!(!health.begin_held(3_100));
    assert!(health.begin_held(10_100), "the disable time is over");
}

#[test]
fn weight_grows_evenly_after_a_come_back() {
    let health = worked(&HealthSpec { slow_start_ms: 1_000, ..spec() });
    assert_eq!(health.slow_start_permille(2), 1_000);
    health.record_failure(10, 10);
    assert!(health.begin(1_010));
    health.record_success(1_010, 2_000);
    for (now, part) in [(1_990, 0), (2_000, 0), (2_001, 1), (2_500, 500), (2_999, 999)] {
        assert_eq!(health.slow_start_permille(now), part, "{now}");
    }
    assert_eq!(health.slow_start_permille(3_000), 1_000);
    assert_eq!(health.slow_start_permille(2_500), 1_000, "it does not shrink again");
}

#[test]
fn checks_take_out_and_bring_back() {
    let health = worked(&checked());
    for now in [100, 600] {
        assert_eq!(health.record_check(false, now, now + 500), HealthChange::Nothing);
        assert_eq!(health.state(now), AddressState::Up);
    }
    let change = health.record_check(false, 1_100, 1_600);
    assert_eq!(change, HealthChange::WentDown { until_ms: 1_600 });
    assert_eq!(health.state(1_100), AddressState::Down { until_ms: 1_600 });
    assert_eq!(health.held_until(1_100), Some(4_100));
    assert!(!health.begin(9_000), "requests do not try it, however late the check");
    assert!(!health.begin_held(9_000));
    assert_eq!(health.record_success(1_500, 1_500), HealthChange::Nothing);
    assert_eq!(health.record_failure(1_500, 1_500), HealthChange::Nothing);
    assert_eq!(health.record_check(true, 1_600, 2_100), HealthChange::Nothing);
    assert_eq!(health.state(1_700), AddressState::Down { until_ms: 2_100 });
    assert_eq!(health.record_check(true, 2_100, 2_600), HealthChange::CameBack);
    assert_eq!(health.state(2_100), AddressState::Up);
}

#[test]
fn good_checks_shorten_a_disable_time_but_a_request_has_the_last_word() {
    let slow = HealthSpec { disable_ms: 60_000, disable_ms_max: 60_000, ..checked() };
    let health = worked(&slow);
    for now in [0, 500, 1_000] {
        health.record_check(true, now, now + 500);
    }
    health.record_failure(1_200, 1_200);
    assert_eq!(health.record_check(true, 1_500, 2_000), HealthChange::Nothing);
    assert_eq!(health.state(1_500), AddressState::Down { until_ms: 61_200 });
    assert_eq!(health.record_check(true, 2_000, 2_500), HealthChange::Nothing);
    assert_eq!(health.state(2_000), AddressState::Probing);
    assert!(health.begin(2_000));
    assert_eq!(health.record_failure(2_000, 2_001), HealthChange::WentDown { until_ms: 62_001 });
}

#[test]
fn an_address_that_only_checks_ever_met_is_held_for() {
    let health = Health::new(&checked());
    health.record_check(true, 0, 500);
    health.record_failure(100, 100);
    assert_eq!(health.held_until(100), Some(3_100));
}

#[test]
fn times_at_the_end_of_the_world_do_not_overflow() {
    let health = worked(&HealthSpec { slow_start_ms: u64::MAX, ..spec() });
    health.record_failure(u64::MAX, u64::MAX);
    assert_eq!(health.state(u64::MAX), AddressState::Probing);
    assert!(health.begin(u64::MAX));
    health.record_success(u64::MAX, u64::MAX);
    assert_eq!(health.slow_start_permille(u64::MAX), 0);
}

#[test]
fn of_many_workers_one_gets_the_probe() {
    let health = worked(&spec());
    for round in 1..200u64 {
        let now = round * 1_000_000;
        health.record_failure(now, now);
        let claims = std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| health.begin(now + 1_000))).collect();
            workers.into_iter().filter_map(|w| w.join().expect("a worker").then_some(())).count()
        });
        assert_eq!(claims, 1);
        assert_eq!(health.record_success(now + 1_000, now + 1_001), HealthChange::CameBack);
    }
}

#[test]
fn failures_before_a_check_do_not_count_once_the_check_is_removed() {
    let unchecked = HealthSpec { fails_max: 2, ..spec() };
    let health = worked(&HealthSpec { fails_max: 2, ..checked() });
    assert_eq!(health.record_failure(10, 10), HealthChange::Nothing);
    for now in [20, 30, 40] {
        health.record_check(false, now, now + 500);
    }
    assert!(matches!(health.state(40), AddressState::Down { .. }));
    health.adopt(&unchecked);
    assert_eq!(health.state(50), AddressState::Up);
    assert_eq!(health.record_failure(60, 60), HealthChange::Nothing, "the first since then");
    health.record_success(70, 70);
    assert_eq!(health.record_failure(80, 80), HealthChange::Nothing);
}
