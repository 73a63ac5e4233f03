//! Moments at which the requests for stored responses and the ones under way were sent: purge rules
//! that are older than all of them have nothing left to remove.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Groups that are told apart.
const GROUPS_MAX: usize = 64;

/// Numbers of responses in memory and of fetches, in groups by the moment of their request.
#[derive(Debug, Default)]
pub(super) struct SendMoments(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    /// In the order of their moments.
    groups: Vec<MomentGroup>,
    /// Responses that are being read from the disk.
    loads: usize,
}

#[derive(Clone, Copy, Debug)]
struct MomentGroup {
    /// The first moment of the group. The last one is before the next group.
    from: u64,
    count: u64,
}

impl SendMoments {
    // No other lock is taken while this one is held.
    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a response or a fetch.
    pub(super) fn enter(&self, moment: u64) {
        self.groups().of(moment).count += 1;
    }

    /// Counts a fetch that begins at the present moment, and returns that.
    pub(super) fn enter_now(&self, now: impl Fn() -> u64) -> u64 {
        let mut groups = self.groups();
        let moment = now();
        groups.of(moment).count += 1;
        moment
    }

    /// Counts it no longer.
    pub(super) fn leave(&self, moment: u64) {
        let mut groups = self.groups();
        let group = groups.of(moment);
        group.count = group.count.saturating_sub(1);
    }

    /// A response of an unknown moment is being read from the disk, or no longer.
    pub(super) fn note_load(&self, begins: bool) {
        let mut groups = self.groups();
        groups.loads = if begins { groups.loads + 1 } else { groups.loads.saturating_sub(1) };
    }

    /// A moment that no request was sent before; `now` returns the present one.
    pub(super) fn oldest(&self, now: impl Fn() -> u64) -> u64 {
        let mut groups = self.groups();
        if groups.loads > 0 {
            return 0;
        }
        let now = now();
        groups.groups.retain(|group| group.count > 0);
        groups.merge();
        let oldest = groups.groups.first().map_or(now, |group| group.from.min(now));
        // Later requests are a group of their own; the ones so far were sent now at the latest.
        groups.groups.push(MomentGroup { from: now + 1, count: 0 });
        oldest
    }
}

impl Groups {
    fn of(&mut self, moment: u64) -> &mut MomentGroup {
        if self.groups.is_empty() {
            self.groups.push(MomentGroup { from: moment, count: 0 });
        }
        let at = self.groups.partition_point(|group| group.from <= moment).saturating_sub(1);
        let group = &mut self.groups[at];
        group.from = group.from.min(moment);
        group
    }

    /// Merges neighbours, the smallest first.
    fn merge(&mut self) {
        while self.groups.len() >= GROUPS_MAX {
            let sums = self.groups.windows(2).map(|pair| pair[0].count + pair[1].count);
            let Some((at, sum)) = sums.enumerate().min_by_key(|(_, sum)| *sum) else { return };
            self.groups[at].count = sum;
            self.groups.remove(at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_is_older_than_the_oldest_group() {
        let moments = SendMoments::default();
        assert_eq!(moments.oldest(|| 7), 7);
        let mut present = std::collections::BTreeMap::<u64, u64>::new();
        let mut random = 1_u64;
        for now in 10..20_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let sent = if random >> 60 == 0 { now - (random >> 32) % now } else { now };
            moments.enter(sent);
            *present.entry(sent).or_default() += 1;
            // Most of what is older goes.
            while present.len() > 50 {
                let (oldest, count) = present.pop_first().expect("one");
                (0..count).for_each(|_| moments.leave(oldest));
            }
            if random.is_multiple_of(5) {
                let oldest = moments.oldest(|| now);
                let first = present.first_key_value().map_or(now, |(moment, _)| *moment);
                assert!(oldest <= first, "{oldest} {first}");
            }
            assert!(moments.groups().groups.len() <= GROUPS_MAX);
        }
        for (moment, count) in present {
            (0..count).for_each(|_| moments.leave(moment));
        }
        assert_eq!(moments.oldest(|| 30_000), 30_000, "none is left");
    }

    #[test]
    fn oldest_group_leaves_with_its_last_response() {
        let moments = SendMoments::default();
        moments.enter(5);
        assert_eq!(moments.oldest(|| 9), 5);
        assert_eq!(moments.enter_now(|| 12), 12);
        moments.note_load(true);
        moments.leave(5);
        assert_eq!(moments.oldest(|| 20), 0, "a response of an unknown moment");
        moments.note_load(false);
        assert_eq!(moments.oldest(|| 20), 10);
        moments.leave(12);
        assert_eq!(moments.oldest(|| 20), 20);
    }
}
