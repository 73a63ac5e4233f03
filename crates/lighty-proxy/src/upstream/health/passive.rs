//! Passive health: the state of an address according to its requests.
//!
//! ```text
//!        max-fails in a row              disable-time is over, a request claims the probe
//!   Up ────────────────────▶ Down ◀──────────────────────────────▶ Probed
//!    ▲                        doubled each time      it fails         │ it succeeds
//!    └────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Active checks may also take an address down and bring it back; see [`Health::record_check`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::active::{CheckVerdict, Tally};
use crate::upstream::spec::HealthSpec;

/// Time for which other requests wait for a probe's outcome before the next one probes, in
/// milliseconds.
pub(crate) const PROBE_MS_MAX: u64 = 5_000;

/// Interval in milliseconds at which a held-back request may try an address that is down.
pub(crate) const HOLD_PROBE_MS: u64 = 50;

/// Permitted use of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// Use it.
    Up,
    /// Do not use it before this time.
    Down { until_ms: u64 },
    /// A single request may try it: the one that [`Health::begin`] permits.
    Probing,
}

/// Effect of a result: an event to log and, after a return, waiting requests to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthChange {
    Nothing,
    WentDown { until_ms: u64 },
    CameBack,
}

/// The health of an address; shared by all workers.
///
/// Times are milliseconds of a monotonic clock. A result carries the start time of its request, so
/// that a request from before an address went down cannot bring it back, and one from before its
/// return cannot take it down again.
#[derive(Debug)]
pub struct Health {
    /// The address is up, works and has its full weight: the common case, which takes no lock.
    is_calm: AtomicBool,
    record: Mutex<(HealthRecord, HealthLimits)>,
}

#[derive(Clone, Copy, Debug)]
struct HealthLimits {
    disable_ms: u64,
    disable_ms_max: u64,
    fails_max: u32,
    hold_ms: u64,
    slow_start_ms: u64,
}

#[derive(Debug)]
struct HealthRecord {
    standing: HealthStanding,
    /// True once the address has worked.
    has_worked: bool,
    /// Failures in a row while up.
    fails: u32,
    /// Time of the first failure since the last success.
    failing_since_ms: Option<u64>,
    /// Number of times in a row that it was disabled; determines the doubling.
    disabled: u32,
    /// Time of its last return.
    back_since_ms: Option<u64>,
    is_starting_slowly: bool,
    /// Time of the last attempt of a held-back request.
    held_probe_ms: u64,
    checks: Option<Tally>,
}

#[derive(Clone, Copy, Debug)]
enum HealthStanding {
    Up,
    Down {
        since_ms: u64,
        until_ms: u64,
    },
    Probed {
        began_ms: u64,
        until_ms: u64,
    },
    /// Taken out by active checks; only they bring it back.
    CheckedOut {
        next_check_ms: u64,
    },
}

/// The health of a backend, for another process. Times are relative.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RememberedHealth {
    /// It has worked.
    pub has_worked: bool,
    /// Failures in a row while up.
    pub fails: u32,
    /// Number of times in a row that it was disabled.
    pub disabled: u32,
    /// Milliseconds since its first failure since the last success.
    pub failing_ms: Option<u64>,
    /// Milliseconds for which it stays disabled.
    pub down_ms: Option<u64>,
    /// Active checks have taken it out.
    pub is_checked_out: bool,
}

impl Health {
    /// Returns what another process needs to know of it.
    pub(crate) fn remember(&self, now_ms: u64) -> RememberedHealth {
        let (record, _) = &*self.lock();
        let down_ms = match record.standing {
            HealthStanding::Down { until_ms, .. } | HealthStanding::Probed { until_ms, .. } => {
                Some(until_ms.saturating_sub(now_ms))
            }
            HealthStanding::Up | HealthStanding::CheckedOut { .. } => None,
        };
        RememberedHealth {
            has_worked: record.has_worked,
            fails: record.fails,
            disabled: record.disabled,
            failing_ms: record.failing_since_ms.map(|since| now_ms.saturating_sub(since)),
            down_ms,
            is_checked_out: matches!(record.standing, HealthStanding::CheckedOut { .. }),
        }
    }

    /// Continues with the health of the process before this one. An address that checks have taken
    /// out stays out until a check succeeds, if there are checks still.
    pub(crate) fn recall(&self, health: &RememberedHealth, now_ms: u64) {
        self.change(|record, _| {
            record.has_worked = health.has_worked;
            record.disabled = health.disabled;
            let failing = health.failing_ms.map(|ms| now_ms.saturating_sub(ms));
            record.standing = match health.down_ms {
                _ if health.is_checked_out && record.checks.is_some() => {
                    HealthStanding::CheckedOut { next_check_ms: now_ms }
                }
                Some(ms) => {
                    HealthStanding::Down { since_ms: now_ms, until_ms: now_ms.saturating_add(ms) }
                }
                None => HealthStanding::Up,
            };
            let is_up = matches!(record.standing, HealthStanding::Up);
            record.failing_since_ms = failing.or((!is_up).then_some(now_ms));
            record.fails = if record.failing_since_ms.is_some() { health.fails } else { 0 };
        });
    }

    /// Creates the health of a new address: it is up until it fails.
    pub fn new(spec: &HealthSpec) -> Self {
        let limits = HealthLimits::of(spec);
        let record = HealthRecord {
            standing: HealthStanding::Up,
            has_worked: false,
            fails: 0,
            failing_since_ms: None,
            disabled: 0,
            back_since_ms: None,
            is_starting_slowly: false,
            held_probe_ms: 0,
            checks: tally(spec),
        };
        Self { is_calm: AtomicBool::new(false), record: Mutex::new((record, limits)) }
    }

    /// Continues under other limits. Keeps the counts of the checks, if the same check goes on.
    pub(crate) fn adopt(&self, spec: &HealthSpec) {
        let mut inner = self.lock();
        let (record, limits) = &mut *inner;
        *limits = HealthLimits::of(spec);
        record.adopt(spec);
        #[cfg(debug_assertions)]
        record.check();
        self.is_calm.store(record.is_calm(), Ordering::Release);
    }

    /// Returns the permitted use of the address now. Claims no probe.
    pub fn state(&self, now_ms: u64) -> AddressState {
        if self.is_calm() { AddressState::Up } else { self.lock().0.state(now_ms) }
    }

    /// Claims the address for a request. Returns false if the address is down, or another request
    /// is probing it.
    pub fn begin(&self, now_ms: u64) -> bool {
        self.is_calm() || self.change(|record, _| record.begin(now_ms))
    }

    /// Lets a held-back request ([`held_until`](Self::held_until)) try the address before its
    /// disable time is over: one every [`HOLD_PROBE_MS`]. A failure does not prolong the disable
    /// time.
    pub fn begin_held(&self, now_ms: u64) -> bool {
        self.is_calm() || self.change(|record, limits| record.begin_held(limits, now_ms))
    }

    /// Records a response to a request that began at `began_ms`.
    pub fn record_success(&self, began_ms: u64, now_ms: u64) -> HealthChange {
        if self.is_calm() {
            return HealthChange::Nothing;
        }
        self.change(|record, limits| record.succeeded(limits, began_ms, now_ms))
    }

    /// Records a failure of a request that began at `began_ms` that counts against the address.
    pub fn record_failure(&self, began_ms: u64, now_ms: u64) -> HealthChange {
        self.change(|record, limits| record.failed(limits, began_ms, now_ms))
    }

    /// Records that a request that began at `began_ms` ended without a result, because its client
    /// went away.
    pub fn record_abandoned(&self, began_ms: u64) {
        if !self.is_calm() {
            self.change(|record, _| record.abandoned(began_ms));
        }
    }

    /// Records the result of an active check; the next is due at `next_ms`.
    ///
    /// `fall` failures in a row take the address down until `rise` successes bring it back. If
    /// requests took it down instead, `rise` successes let the next request try it before its
    /// disable time is over.
    pub fn record_check(&self, is_good: bool, now_ms: u64, next_ms: u64) -> HealthChange {
        self.change(|record, limits| record.checked(limits, is_good, now_ms, next_ms))
    }

    /// Returns the time until which a request that finds no address up waits for this one: it
    /// worked once, and it failed so recently that it may be restarting. `None` for an address that
    /// never worked, that works, or that has been failing for the hold time.
    pub fn held_until(&self, now_ms: u64) -> Option<u64> {
        if self.is_calm() {
            return None;
        }
        let (record, limits) = &*self.lock();
        let since = record.failing_since_ms.filter(|_| record.has_worked)?;
        Some(since.saturating_add(limits.hold_ms)).filter(|until| *until > now_ms)
    }

    /// Returns the effective part of the weight, in thousandths: grows linearly from 0 to 1000 over
    /// the slow-start time after a return.
    pub fn slow_start_permille(&self, now_ms: u64) -> u32 {
        const WHOLE: u32 = 1_000;
        if self.is_calm() {
            return WHOLE;
        }
        self.change(|record, limits| {
            let back = record.back_since_ms.filter(|_| record.is_starting_slowly);
            let Some(back) = back else { return WHOLE };
            let passed = now_ms.saturating_sub(back);
            if passed >= limits.slow_start_ms {
                record.is_starting_slowly = false;
                return WHOLE;
            }
            let part = u128::from(passed) * u128::from(WHOLE) / u128::from(limits.slow_start_ms);
            u32::try_from(part).unwrap_or(WHOLE)
        })
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Acquire)
    }

    fn change<T>(&self, work: impl FnOnce(&mut HealthRecord, &HealthLimits) -> T) -> T {
        let mut inner = self.lock();
        let (record, limits) = &mut *inner;
        let done = work(record, limits);
        #[cfg(debug_assertions)]
        record.check();
        self.is_calm.store(record.is_calm(), Ordering::Release);
        done
    }

    fn lock(&self) -> MutexGuard<'_, (HealthRecord, HealthLimits)> {
        // No code panics while it holds the lock.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HealthLimits {
    fn of(spec: &HealthSpec) -> Self {
        Self {
            disable_ms: spec.disable_ms,
            disable_ms_max: spec.disable_ms_max.max(spec.disable_ms),
            fails_max: spec.fails_max,
            hold_ms: spec.hold_ms,
            slow_start_ms: spec.slow_start_ms,
        }
    }
}

fn tally(spec: &HealthSpec) -> Option<Tally> {
    spec.check.as_ref().map(|check| Tally::new(check.rise, check.fall))
}

impl HealthRecord {
    fn adopt(&mut self, spec: &HealthSpec) {
        let wanted = tally(spec);
        let is_same = match (&self.checks, &wanted) {
            (Some(before), Some(after)) => before.has_limits_of(after),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            self.checks = wanted;
        }
        // Without a check, the address would stay down forever.
        if self.checks.is_none() && matches!(self.standing, HealthStanding::CheckedOut { .. }) {
            self.standing = HealthStanding::Up;
            self.fails = 0;
            self.failing_since_ms = None;
        }
        self.is_starting_slowly &= spec.slow_start_ms > 0;
    }

    /// Checks that the parts agree, in a debug build.
    #[cfg(debug_assertions)]
    fn check(&self) {
        let is_up = matches!(self.standing, HealthStanding::Up);
        debug_assert!(self.fails == 0 || self.failing_since_ms.is_some(), "{self:?}");
        debug_assert!(is_up || self.failing_since_ms.is_some(), "{self:?}");
        debug_assert!(is_up || !self.is_starting_slowly, "{self:?}");
        let is_checked_out = matches!(self.standing, HealthStanding::CheckedOut { .. });
        debug_assert!(!is_checked_out || self.checks.is_some(), "{self:?}");
    }

    fn is_calm(&self) -> bool {
        let is_up = matches!(self.standing, HealthStanding::Up);
        is_up && self.has_worked && self.failing_since_ms.is_none() && !self.is_starting_slowly
    }

    fn state(&self, now_ms: u64) -> AddressState {
        match self.standing {
            HealthStanding::Up => AddressState::Up,
            HealthStanding::Down { until_ms, .. } | HealthStanding::Probed { until_ms, .. } => {
                if now_ms < until_ms {
                    AddressState::Down { until_ms }
                } else {
                    AddressState::Probing
                }
            }
            HealthStanding::CheckedOut { next_check_ms } => {
                // An overdue check does not permit an attempt.
                AddressState::Down { until_ms: next_check_ms.max(now_ms.saturating_add(1)) }
            }
        }
    }

    fn begin(&mut self, now_ms: u64) -> bool {
        match self.state(now_ms) {
            AddressState::Up => true,
            AddressState::Down { .. } => false,
            AddressState::Probing => {
                let until_ms = now_ms.saturating_add(PROBE_MS_MAX);
                self.standing = HealthStanding::Probed { began_ms: now_ms, until_ms };
                true
            }
        }
    }

    fn begin_held(&mut self, limits: &HealthLimits, now_ms: u64) -> bool {
        let HealthStanding::Down { since_ms, .. } = self.standing else {
            return self.begin(now_ms);
        };
        if self.state(now_ms) == AddressState::Probing {
            return self.begin(now_ms);
        }
        let since = self.failing_since_ms.filter(|_| self.has_worked);
        let is_held = since.is_some_and(|since| now_ms < since.saturating_add(limits.hold_ms));
        let last = since_ms.max(self.held_probe_ms);
        let may_try = is_held && now_ms >= last.saturating_add(HOLD_PROBE_MS);
        if may_try {
            self.held_probe_ms = now_ms;
        }
        may_try
    }

    fn succeeded(&mut self, limits: &HealthLimits, began_ms: u64, now_ms: u64) -> HealthChange {
        match self.standing {
            HealthStanding::Up => {
                self.has_worked = true;
                self.fails = 0;
                self.failing_since_ms = None;
                HealthChange::Nothing
            }
            HealthStanding::Down { since_ms: since, .. }
            | HealthStanding::Probed { began_ms: since, .. }
                if began_ms >= since =>
            {
                self.come_back(limits, now_ms)
            }
            _ => HealthChange::Nothing,
        }
    }

    fn come_back(&mut self, limits: &HealthLimits, now_ms: u64) -> HealthChange {
        self.standing = HealthStanding::Up;
        self.has_worked = true;
        self.fails = 0;
        self.failing_since_ms = None;
        self.disabled = 0;
        self.back_since_ms = Some(now_ms);
        self.is_starting_slowly = limits.slow_start_ms > 0;
        HealthChange::CameBack
    }

    fn failed(&mut self, limits: &HealthLimits, began_ms: u64, now_ms: u64) -> HealthChange {
        match self.standing {
            HealthStanding::Up if self.back_since_ms.is_none_or(|back| began_ms >= back) => {
                self.failing_since_ms.get_or_insert(now_ms);
                self.fails = self.fails.saturating_add(1);
                let is_out = limits.fails_max > 0 && self.fails >= limits.fails_max;
                if is_out { self.go_down(limits, now_ms) } else { HealthChange::Nothing }
            }
            HealthStanding::Probed { began_ms: probe, .. } if began_ms >= probe => {
                self.go_down(limits, now_ms)
            }
            _ => HealthChange::Nothing,
        }
    }

    fn go_down(&mut self, limits: &HealthLimits, now_ms: u64) -> HealthChange {
        let factor = 1u64.checked_shl(self.disabled).unwrap_or(u64::MAX);
        let wait_ms = limits.disable_ms.saturating_mul(factor).min(limits.disable_ms_max);
        let until_ms = now_ms.saturating_add(wait_ms);
        self.standing = HealthStanding::Down { since_ms: now_ms, until_ms };
        self.disabled = self.disabled.saturating_add(1);
        self.is_starting_slowly = false;
        if let Some(checks) = &mut self.checks {
            checks.doubt();
        }
        HealthChange::WentDown { until_ms }
    }

    fn abandoned(&mut self, began_ms: u64) {
        if let HealthStanding::Probed { began_ms: probe, .. } = self.standing
            && began_ms == probe
        {
            self.standing = HealthStanding::Down { since_ms: probe, until_ms: probe };
        }
    }

    fn checked(
        &mut self,
        limits: &HealthLimits,
        is_good: bool,
        now_ms: u64,
        next_ms: u64,
    ) -> HealthChange {
        let turned = self.checks.as_mut().and_then(|checks| checks.record(is_good));
        self.has_worked |= is_good;
        if let HealthStanding::CheckedOut { next_check_ms } = &mut self.standing {
            *next_check_ms = next_ms;
        }
        match (turned, self.standing) {
            (Some(CheckVerdict::Bad), _) => self.check_out(now_ms, next_ms),
            (Some(CheckVerdict::Good), HealthStanding::CheckedOut { .. }) => {
                self.come_back(limits, now_ms)
            }
            (Some(CheckVerdict::Good), HealthStanding::Down { since_ms, .. }) => {
                self.standing = HealthStanding::Down { since_ms, until_ms: now_ms };
                HealthChange::Nothing
            }
            _ => HealthChange::Nothing,
        }
    }

    fn check_out(&mut self, now_ms: u64, next_ms: u64) -> HealthChange {
        let was_up = matches!(self.standing, HealthStanding::Up);
        self.failing_since_ms.get_or_insert(now_ms);
        self.standing = HealthStanding::CheckedOut { next_check_ms: next_ms };
        self.is_starting_slowly = false;
        if was_up { HealthChange::WentDown { until_ms: next_ms } } else { HealthChange::Nothing }
    }
}

#[cfg(test)]
#[path = "passive_tests.rs"]
mod tests;
