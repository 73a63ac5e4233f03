//! The order with times as numbers.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::super::order::{
    DeviceOrder, ExpiredTurn, PATIENCE_US, READS_OF_PLACE, READS_OF_TURN, TURN_LEASE_US,
    TurnChange, TurnNumber, URGENT_TRUST_US,
};

type Order = DeviceOrder<&'static str>;

fn names(change: &TurnChange<&'static str>) -> Vec<&'static str> {
    change.granted.iter().map(|granted| granted.read).collect()
}

/// Queues a bulk read; returns its number and the reads that start.
fn queue(order: &mut Order, key: u64, read: &'static str) -> (TurnNumber, Vec<&'static str>) {
    let (number, change) = order.begin_bulk(key, read, 0);
    (number, names(&change))
}

#[test]
fn bulk_reads_start_up_to_the_limit() {
    let mut order = Order::new(2);
    let (a, started) = queue(&mut order, 1, "a");
    assert_eq!(started, ["a"]);
    let (b, started) = queue(&mut order, 2, "b");
    assert_eq!(started, ["b"]);
    let (c, started) = queue(&mut order, 3, "c");
    assert!(started.is_empty());
    assert_eq!(names(&order.end_bulk(1, a, 1)), ["c"]);
    assert!(names(&order.end_bulk(2, b, 2)).is_empty());
    assert!(names(&order.end_bulk(3, c, 3)).is_empty());
    assert!(order.is_idle());
}

/// Queues bulk reads of clients, then ends the oldest one under way until none is left; returns all
/// in the order of their starts.
fn served(order: &mut Order, reads: &[(u64, &'static str)]) -> String {
    let (mut keys, mut running, mut names) = (HashMap::new(), VecDeque::new(), Vec::new());
    let mut follow = |change: TurnChange<&'static str>, running: &mut VecDeque<TurnNumber>| {
        for granted in change.granted {
            names.push(granted.read);
            running.push_back(granted.number);
        }
    };
    for (key, read) in reads {
        let (number, change) = order.begin_bulk(*key, read, 0);
        keys.insert(number, *key);
        follow(change, &mut running);
    }
    while let Some(number) = running.pop_front() {
        follow(order.end_bulk(keys[&number], number, 1), &mut running);
    }
    assert!(order.is_idle());
    names.concat()
}

#[test]
fn clients_take_turns_of_several_reads() {
    let mut order = Order::new(1);
    let many = [(1, "a"); READS_OF_TURN as usize + 2];
    let reads = [many.as_slice(), &[(2, "b"), (3, "c"), (2, "b")]].concat();
    let turn = "a".repeat(READS_OF_TURN as usize);
    assert_eq!(served(&mut order, &reads), format!("{turn}bbcaa"));
}

#[test]
fn turn_ends_without_a_read_that_waits() {
    let mut order = Order::new(1);
    let (a, _) = queue(&mut order, 1, "a");
    let (b, _) = queue(&mut order, 2, "b");
    assert_eq!(names(&order.end_bulk(1, a, 1)), ["b"]);
    let (_, started) = queue(&mut order, 1, "a2");
    assert!(started.is_empty());
    assert_eq!(names(&order.end_bulk(2, b, 2)), ["a2"]);
}

#[test]
fn a_place_has_several_reads_of_its_client_unless_anything_was_urgent_lately() {
    let mut order = Order::new(1);
    let mut numbers = Vec::new();
    for nth in 1..=READS_OF_PLACE + 2 {
        let (number, started) = queue(&mut order, 1, "a");
        assert_eq!(started.len(), usize::from(nth <= READS_OF_PLACE), "read {nth}");
        numbers.push(number);
    }
    let urgent = order.begin_urgent("", 0);
    for number in &numbers[..READS_OF_PLACE] {
        assert!(names(&order.end_bulk(1, *number, 1)).is_empty());
    }
    assert_eq!(names(&order.end_urgent(urgent, 3)), ["a"]);
    let quiet_us = 3 + URGENT_TRUST_US;
    assert_eq!(names(&order.begin_bulk(1, "b", quiet_us - 1).1), [""; 0]);
    assert_eq!(names(&order.begin_bulk(1, "c", quiet_us).1), ["a", "b"]);
}

#[test]
fn client_alone_has_both_places_until_another_one_comes() {
    let mut order = Order::new(2);
    let reads = 2 * READS_OF_PLACE;
    let alone: Vec<_> = (0..reads).map(|_| queue(&mut order, 1, "a")).collect();
    assert!(alone.iter().all(|(_, started)| started.len() == 1));
    assert_eq!(queue(&mut order, 2, "b").1, [""; 0]);
    let second = &alone[READS_OF_PLACE..];
    let ends = second.iter().map(|(number, _)| names(&order.end_bulk(1, *number, 1)));
    assert_eq!(ends.collect::<Vec<_>>().concat(), ["b"]);
}

#[test]
fn bulk_reads_wait_while_anything_urgent_is_under_way() {
    let mut order = Order::new(2);
    let urgent = [(); 2].map(|()| order.begin_urgent("", 0));
    let (number, change) = order.begin_bulk(1, "a", 10);
    assert_eq!(names(&change), [""; 0]);
    assert_eq!(change.reminder, Some(("a", number, 10 + PATIENCE_US)));
    assert!(names(&order.end_urgent(urgent[1], 20)).is_empty());
    let change = order.end_urgent(urgent[0], 30);
    assert_eq!(names(&change), ["a"]);
    assert!(!change.granted[0].is_overdue);
}

#[test]
fn one_bulk_read_starts_in_each_period_of_patience() {
    let mut order = Order::new(2);
    let urgent = order.begin_urgent("", 0);
    let (number, change) = order.begin_bulk(1, "a", 1_000);
    let (_, _, due_us) = change.reminder.expect("one for the first");
    order.begin_bulk(2, "b", 2_000);
    let early = order.remind(number, due_us, PATIENCE_US);
    assert_eq!(names(&early), [""; 0]);
    let (_, number, due_us) = early.reminder.expect("one, as it was early");
    assert_eq!(due_us, 1_000 + PATIENCE_US);
    let change = order.remind(number, due_us, due_us);
    assert_eq!(names(&change), ["a"]);
    assert!(change.granted[0].is_overdue);
    let (read, number, due_us) = change.reminder.expect("one for the next");
    assert_eq!((read, due_us), ("b", 1_000 + 2 * PATIENCE_US));
    // An event close before the time of a reminder is not enough, one after it is.
    assert!(names(&order.end_bulk(1, 0, due_us - 1)).is_empty());
    order.begin_urgent("", 0);
    assert_eq!(names(&order.end_urgent(urgent, due_us)), ["b"]);
    let nothing = TurnChange { granted: vec![], expired: vec![], reminder: None };
    assert_eq!(order.remind(number, due_us, due_us), nothing);
}

#[test]
fn a_cancelled_read_leaves_the_queue_and_passes_its_reminder_on() {
    let mut order = Order::new(1);
    let urgent = order.begin_urgent("", 0);
    let (first, change) = order.begin_bulk(1, "a", 0);
    assert!(change.reminder.is_some());
    let (second, change) = order.begin_bulk(1, "b", 5);
    assert_eq!(change.reminder, None, "there is one");
    let change = order.end_bulk(1, first, 6);
    assert_eq!(change.reminder, Some(("b", second, PATIENCE_US)));
    order.end_bulk(1, second, 7);
    order.end_urgent(urgent, 8);
    assert!(order.is_idle());
}

#[test]
fn a_new_limit_holds_for_the_next_reads() {
    let mut order = Order::new(1);
    let (a, _) = queue(&mut order, 1, "a");
    let (b, _) = queue(&mut order, 2, "b");
    queue(&mut order, 3, "c");
    order.limit(2);
    assert_eq!(names(&order.end_bulk(1, a, 1)), ["b", "c"]);
    order.limit(0);
    queue(&mut order, 4, "d");
    assert!(names(&order.end_bulk(2, b, 2)).is_empty());
    assert_eq!(names(&order.end_bulk(3, 2, 3)), ["d"], "at least one");
}

#[test]
fn operation_that_takes_too_long_loses_its_place() {
    let mut order = Order::new(1);
    let urgent = order.begin_urgent("urgent", 0);
    assert!(names(&order.end_urgent(urgent, 1)).is_empty());
    let start_us = 1 + URGENT_TRUST_US;
    let (stuck, _) = order.begin_bulk(1, "stuck", start_us);
    let (_, change) = order.begin_bulk(2, "b", start_us + 10);
    let (owner, number, due_us) = change.reminder.expect("one for the end of the turn");
    assert_eq!((owner, due_us), ("b", start_us + TURN_LEASE_US));
    let early = order.remind(number, due_us, due_us - 1);
    assert!(early.granted.is_empty() && early.expired.is_empty());
    let (_, number, due_us) = early.reminder.expect("another one");
    let change = order.remind(number, due_us, due_us);
    assert_eq!(names(&change), ["b"]);
    let expired = ExpiredTurn { number: stuck, owner: "stuck", is_urgent: false };
    assert_eq!(change.expired, [expired]);
    // It ends after all.
    assert!(names(&order.end_bulk(1, stuck, due_us + 1)).is_empty());
    assert!(names(&order.end_bulk(2, number, due_us + 2)).is_empty());
    assert!(order.is_idle());
}

#[test]
fn urgent_operation_that_never_ends_holds_bulk_reads_up_for_its_lease() {
    let mut order = Order::new(1);
    let urgent = order.begin_urgent("hung", 0);
    let (first, change) = order.begin_bulk(1, "a", TURN_LEASE_US - 1);
    assert_eq!(names(&change), [""; 0]);
    let (_, change) = order.begin_bulk(1, "b", TURN_LEASE_US);
    assert_eq!(names(&change), ["a", "b"], "quiet again");
    assert!(change.expired[0].is_urgent && !change.granted[0].is_overdue);
    order.end_urgent(urgent, TURN_LEASE_US + 1);
    order.end_bulk(1, first, TURN_LEASE_US + 2);
    order.end_bulk(1, first + 1, TURN_LEASE_US + 3);
    assert!(order.is_idle());
}

#[test]
fn turns_of_thousands_of_files_are_found_at_once() {
    const FILES: u64 = 20_000;
    let mut order = Order::new(2);
    order.begin_urgent("", 0);
    let numbers: Vec<_> = (0..FILES).map(|key| order.begin_bulk(key, "a", 0).0).collect();
    for (key, number) in numbers.iter().enumerate().rev() {
        order.end_bulk(key as u64, *number, 1);
    }
    // Many readers of one file.
    let numbers: Vec<_> = (0..FILES).map(|_| order.begin_bulk(1, "a", 2).0).collect();
    for number in numbers.iter().rev() {
        order.end_bulk(1, *number, 3);
    }
    order.end_urgent(0, 4);
    assert!(order.is_idle());
}

#[derive(Clone, Debug)]
enum Event {
    Urgent,
    UrgentEnds,
    Bulk(u64),
    /// The bulk read at this place in the list of running and waiting ones ends.
    BulkEnds(prop::sample::Index),
    /// Time passes, and due reminders come.
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Urgent),
        Just(Event::UrgentEnds),
        (0..4u64).prop_map(Event::Bulk),
        any::<prop::sample::Index>().prop_map(Event::BulkEnds),
        (0..30_000u64).prop_map(Event::Pass),
        (0..2 * TURN_LEASE_US).prop_map(Event::Pass),
    ]
}

/// The order beside everything that must be true of it.
struct Judge {
    order: DeviceOrder<(u64, u64)>,
    bulk_max: usize,
    now_us: u64,
    urgent: Vec<(TurnNumber, u64)>,
    /// With the times of their starts.
    running: Vec<(u64, TurnNumber, u64)>,
    waiting: Vec<(u64, TurnNumber)>,
    reminder: Option<(TurnNumber, u64)>,
    starved_since_us: u64,
    /// Starts of the second client since the first one has waited for its next read.
    passed: HashMap<(u64, u64), u32>,
}

impl Judge {
    fn new(bulk_max: usize) -> Judge {
        Judge {
            order: DeviceOrder::new(bulk_max),
            bulk_max,
            now_us: 1,
            urgent: Vec::new(),
            running: Vec::new(),
            waiting: Vec::new(),
            reminder: None,
            starved_since_us: 0,
            passed: HashMap::new(),
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Urgent => {
                let number = self.order.begin_urgent((0, 0), self.now_us);
                self.urgent.push((number, self.now_us));
            }
            Event::UrgentEnds if !self.urgent.is_empty() => {
                let (number, _) = self.urgent.remove(self.urgent.len() / 2);
                let change = self.order.end_urgent(number, self.now_us);
                self.follow(change, true);
            }
            Event::Bulk(key) => {
                if self.waiting.is_empty() {
                    self.starved_since_us = self.now_us;
                }
                let (number, change) = self.order.begin_bulk(key, (key, 0), self.now_us);
                self.waiting.push((key, number));
                self.follow(change, true);
            }
            Event::BulkEnds(place) if !self.running.is_empty() || !self.waiting.is_empty() => {
                let place = place.index(self.running.len() + self.waiting.len());
                let (key, number) = if place < self.running.len() {
                    let (key, number, _) = self.running.remove(place);
                    (key, number)
                } else {
                    self.waiting.remove(place - self.running.len())
                };
                let change = self.order.end_bulk(key, number, self.now_us);
                self.follow(change, true);
            }
            Event::Pass(us) => {
                let until_us = self.now_us + us;
                while let Some((number, due_us)) = self.reminder.filter(|(_, due)| *due <= until_us)
                {
                    self.now_us = self.now_us.max(due_us);
                    self.reminder = None;
                    let change = self.order.remind(number, due_us, self.now_us);
                    self.follow(change, false);
                }
                self.now_us = until_us;
            }
            Event::UrgentEnds | Event::BulkEnds(_) => {}
        }
        self.check();
    }

    /// A reminder of a read that has left changes nothing; all else does.
    fn follow(&mut self, change: TurnChange<(u64, u64)>, is_effective: bool) {
        let now_us = self.now_us;
        let is_late = |since_us: u64| since_us + TURN_LEASE_US <= now_us;
        for expired in change.expired {
            let lost = match expired.is_urgent {
                true => self.urgent.extract_if(.., |one| one.0 == expired.number).next(),
                false => {
                    let lost = self.running.extract_if(.., |one| one.1 == expired.number).next();
                    lost.map(|(_, number, since_us)| (number, since_us))
                }
            };
            assert!(is_late(lost.expect("it was under way").1), "{}", expired.number);
        }
        if is_effective {
            assert!(!self.urgent.iter().any(|(_, since_us)| is_late(*since_us)));
            assert!(!self.running.iter().any(|(_, _, since_us)| is_late(*since_us)));
        }
        for granted in change.granted {
            let place = self.waiting.iter().position(|(_, number)| *number == granted.number);
            let (key, number) = self.waiting.remove(place.expect("it waits"));
            assert_eq!(granted.is_overdue, !self.urgent.is_empty());
            let waited_us = self.now_us - self.starved_since_us;
            assert!(!granted.is_overdue || waited_us >= PATIENCE_US, "after {waited_us}");
            let older = self.waiting.iter().any(|(own, other)| *own == key && *other < number);
            assert!(!older, "a client's reads keep their order");
            self.passed.retain(|(waiter, _), _| *waiter != key);
            for (waiter, _) in self.waiting.iter().filter(|(waiter, _)| *waiter != key) {
                self.passed.entry((*waiter, key)).or_default();
            }
            for ((_, other), count) in &mut self.passed {
                *count += u32::from(*other == key);
            }
            self.running.push((key, number, self.now_us));
            self.starved_since_us = self.now_us;
        }
        if let Some((_, number, due_us)) = change.reminder {
            self.reminder = Some((number, due_us));
        }
    }

    fn check(&mut self) {
        assert!(self.running.len() <= self.bulk_max * READS_OF_PLACE);
        let has_room = self.running.len() < self.bulk_max && !self.waiting.is_empty();
        assert!(!has_room || !self.urgent.is_empty(), "a read waits for nothing");
        if self.running.is_empty() && has_room {
            let (number, due_us) = self.reminder.expect("a reminder for reads that wait");
            assert!(self.waiting.iter().any(|(_, own)| *own == number), "of one that waits");
            assert!(due_us <= self.starved_since_us + PATIENCE_US, "too late: {due_us}");
        }
        if !self.waiting.is_empty() {
            let (_, due_us) = self.reminder.expect("a reminder for reads that wait");
            let ends = self.running.iter().map(|(_, _, since_us)| since_us + TURN_LEASE_US);
            let patient_us = self.starved_since_us + PATIENCE_US;
            assert!(due_us <= ends.min().unwrap_or(0).max(patient_us), "too late: {due_us}");
        }
        let waiting = &self.waiting;
        self.passed.retain(|(waiter, _), _| waiting.iter().any(|(key, _)| key == waiter));
        let most = 2 * READS_OF_TURN * self.bulk_max as u32;
        assert!(self.passed.values().all(|&count| count <= most), "{:?}", self.passed);
    }
}

proptest! {
    #[test]
    fn every_sequence_keeps_limits_turns_and_patience(
        bulk_max in 1..4usize,
        events in prop::collection::vec(event(), 0..200),
    ) {
        let mut judge = Judge::new(bulk_max);
        for event in events {
            judge.apply(event);
        }
        while !judge.urgent.is_empty() {
            judge.apply(Event::UrgentEnds);
        }
        while let Some(&(key, number, _)) = judge.running.first() {
            judge.running.remove(0);
            let change = judge.order.end_bulk(key, number, judge.now_us);
            judge.follow(change, true);
            judge.check();
        }
        prop_assert!(judge.waiting.is_empty() && judge.order.is_idle());
    }
}
