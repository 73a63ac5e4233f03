use super::*;

/// A mean response time from which the queue learns much in a short time.
const FAST_US: u32 = 100;

const SLOW_US: u32 = 200_000;

fn queue() -> Arc<ListenQueue> {
    Arc::new(ListenQueue { is_local: true, ..ListenQueue::default() })
}

/// Returns the queue of a backend that has shown that it accepts `limit` connections.
fn limited(limit: u32) -> Arc<ListenQueue> {
    let queue = queue();
    queue.limit.store(limit, Ordering::Relaxed);
    queue.lock().raise.at_ms = u64::MAX;
    queue
}

fn stand(queue: &Arc<ListenQueue>) -> Standing {
    let standing = queue.enter(0, SLOW_US).0;
    standing.complete(0);
    standing
}

fn held(queue: &Arc<ListenQueue>) -> Standing {
    let mut standing = stand(queue);
    standing.answered();
    standing
}

/// Returns the number of idle connections to be closed.
fn surplus(queue: &ListenQueue) -> u32 {
    let mut count = 0;
    while queue.claim_surplus() {
        queue.leave_idle();
        count += 1;
    }
    count
}

/// Checks until the line has stood still for long enough.
fn look_twice(queue: &ListenQueue) {
    assert!(queue.look(0).is_some() && queue.look(0).is_some());
}

#[test]
fn a_target_has_one_queue_for_as_long_as_it_is_used() {
    let target = |port: u16| Target::Tcp(std::net::SocketAddr::from(([192, 0, 2, 1], port)));
    let first = ListenQueue::at(&target(1));
    assert!(Arc::ptr_eq(&first, &ListenQueue::at(&target(1))));
    assert!(!Arc::ptr_eq(&first, &ListenQueue::at(&target(2))));
    let weak = Arc::downgrade(&first);
    drop(first);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_connection_rests_where_no_request_waits() {
    let queue = queue();
    let _one = held(&queue);
    assert_eq!(queue.become_idle(SLOW_US), MayIdle::Yes);
}

#[test]
fn none_rests_while_a_request_waits_for_what_may_be_the_only_process() {
    for queue in [queue(), limited(1)] {
        let one = held(&queue);
        let mut other = stand(&queue);
        assert_eq!(queue.become_idle(SLOW_US), MayIdle::No);
        drop(one);
        other.answered();
        assert_eq!(queue.become_idle(SLOW_US), MayIdle::Yes);
    }
}

#[test]
fn idle_connections_make_room_for_a_new_one_beyond_the_processes_that_are_known() {
    for queue in [queue(), limited(2)] {
        let (_first, _second) = (held(&queue), held(&queue));
        assert_eq!(queue.become_idle(SLOW_US), MayIdle::Yes);
        assert_eq!(queue.become_idle(SLOW_US), MayIdle::Yes);
        let (_third, doubts) = queue.enter(0, SLOW_US);
        assert_eq!((doubts, surplus(&queue)), (false, 1), "two are known, three are needed");
    }
}

#[test]
fn as_many_as_were_held_at_once_are_kept_and_watched() {
    let queue = queue();
    let (first, second) = (held(&queue), held(&queue));
    drop(second);
    assert_eq!(queue.become_idle(SLOW_US), MayIdle::Yes);
    let (waits, doubts) = queue.enter(0, SLOW_US);
    waits.complete(0);
    assert_eq!((doubts, surplus(&queue)), (true, 0), "two were held before");
    // The line does not move: the second process must have ended.
    look_twice(&queue);
    assert_eq!((surplus(&queue), queue.limit()), (1, 1));
    assert_eq!(queue.become_idle(SLOW_US), MayIdle::No, "one process is known, two are needed");
    drop(first);
}

#[test]
fn a_response_tells_of_all_that_were_made_before() {
    let queue = queue();
    let _one = held(&queue);
    let (_slow, mut fast) = (stand(&queue), stand(&queue));
    assert_eq!(queue.become_idle(SLOW_US), MayIdle::No);
    fast.answered();
    assert_eq!(
        queue.become_idle(SLOW_US),
        MayIdle::Yes,
        "the slow one was accepted before the fast"
    );
}

/// The kernel may have accepted the second first, if two workers accepted in parallel.
#[test]
fn a_response_tells_nothing_of_what_was_made_meanwhile() {
    let queue = queue();
    let _one = held(&queue);
    let first = queue.enter(0, SLOW_US).0;
    let mut second = queue.enter(0, SLOW_US).0;
    second.complete(0);
    first.complete(0);
    second.answered();
    assert_eq!(queue.lock().len(), 1, "the first may wait behind the second");
}

#[test]
fn over_a_network_the_order_is_sure_after_a_while() {
    for (begun_ms, waiting) in [(NETWORK_MS - 1, 1), (NETWORK_MS, 0)] {
        let queue = Arc::new(ListenQueue::default());
        let _one = held(&queue);
        let _slow = stand(&queue);
        let mut fast = queue.enter(begun_ms, SLOW_US).0;
        fast.complete(begun_ms);
        fast.answered();
        assert_eq!(queue.lock().len(), waiting, "{begun_ms} ms");
    }
}

#[test]
fn request_that_leaves_without_a_response_waits_no_longer() {
    let queue = queue();
    let _one = held(&queue);
    let (first, second) = (stand(&queue), stand(&queue));
    drop(second);
    assert_eq!(queue.become_idle(SLOW_US), MayIdle::No);
    drop(first);
    assert_eq!(queue.become_idle(SLOW_US), MayIdle::Yes);
}

#[test]
fn surplus_is_forgotten_when_no_request_waits() {
    let queue = queue();
    let _one = held(&queue);
    assert_eq!(queue.become_idle(SLOW_US), MayIdle::Yes);
    let waits = stand(&queue);
    assert!(queue.has_surplus());
    drop(waits);
    assert!(!queue.has_surplus());
}

/// A process that was freed for the connection in line need not be freed twice.
#[test]
fn one_connection_is_closed_for_each_waiting_request() {
    let queue = limited(2);
    let (first, _second) = (held(&queue), held(&queue));
    let _waits = stand(&queue);
    assert_eq!(queue.become_idle(FAST_US), MayIdle::No);
    drop(first);
    assert_ne!(queue.become_idle(FAST_US), MayIdle::No, "its process has accepted the other");
}

/// Many connections to a backend that accepts all: all of them are kept after one round.
#[test]
fn no_connection_is_closed_where_all_are_accepted() {
    let queue = queue();
    let mut standing: Vec<_> = (0..300).map(|_| stand(&queue)).collect();
    for one in &mut standing {
        one.answered();
        assert_ne!(queue.become_idle(FAST_US), MayIdle::No);
        // The next request of its client takes it.
        queue.leave_idle();
        // A busy backend takes longer for one response than the line is given.
        queue.look(0);
        queue.look(0);
    }
    assert_eq!((surplus(&queue), queue.is_limited()), (0, false));
}

/// All are busy, and the first in line takes its time: that is no reason to close any.
#[test]
fn a_slow_request_is_not_taken_for_a_full_backend() {
    let queue = queue();
    let _busy: Vec<_> = (0..3).map(|_| held(&queue)).collect();
    let _slow = stand(&queue);
    assert_eq!(queue.become_idle(FAST_US), MayIdle::InDoubt);
    queue.leave_idle();
    for _ in 0..10 {
        assert!(queue.look(0).is_some());
    }
    assert_eq!((surplus(&queue), queue.is_limited()), (0, false));
}

#[test]
fn a_line_that_others_pass_again_and_again_shows_a_limit() {
    let queue = queue();
    let _busy: Vec<_> = (0..3).map(|_| held(&queue)).collect();
    let _waits = stand(&queue);
    for response in 0..=PASSED_MAX * 4 {
        assert_eq!(queue.limit(), UNLIMITED, "{response}");
        queue.become_idle(FAST_US);
        queue.leave_idle();
        queue.look(0);
    }
    queue.become_idle(FAST_US);
    queue.leave_idle();
    queue.look(0);
    assert_eq!(queue.limit(), 3);
    assert_eq!(queue.become_idle(FAST_US), MayIdle::No, "it makes room for the one in line");
}

#[test]
fn the_limit_is_raised_rarely_where_that_fails() {
    let queue = queue();
    let _one = held(&queue);
    queue.become_idle(FAST_US);
    let mut raised_ms = Vec::new();
    for now_ms in (0..200_000).step_by(100) {
        if queue.is_limited() && !queue.raise(now_ms) {
            continue;
        }
        raised_ms.push(now_ms);
        let _waits = queue.enter(now_ms, FAST_US).0;
        _waits.complete(now_ms);
        queue.look(now_ms);
        queue.look(now_ms);
        assert_eq!(queue.limit(), 1);
    }
    let pauses: Vec<u64> = raised_ms.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses[0], PAUSE_MS_MIN);
    assert!(pauses.windows(2).all(|two| two[1] >= two[0]), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= PAUSE_MS_MAX), "{pauses:?}");
}

#[test]
fn a_limit_that_is_none_is_soon_forgotten() {
    let queue = limited(2);
    queue.lock().raise.at_ms = 1;
    let mut standing: Vec<_> = (0..2).map(|_| held(&queue)).collect();
    assert!(!queue.raise(0), "not yet");
    for rounds in 0.. {
        assert!(rounds < 8, "it grows too slowly");
        assert!(queue.raise(1) && !queue.raise(1), "once, until it has been reached");
        while standing.len() < queue.limit() as usize {
            standing.push(held(&queue));
        }
        if standing.len() > 100 {
            break;
        }
    }
}

#[test]
fn more_and_more_may_be_opened_where_none_comes_free() {
    let queue = limited(2);
    let _busy: Vec<_> = (0..2).map(|_| held(&queue)).collect();
    let more: Vec<u32> = (0..4).map(|_| queue.overflow(100)).collect();
    assert_eq!((&more[..], queue.limit()), (&[1, 1, 2, 4][..], 10));
    assert_eq!((queue.overflow(3), queue.overflow(0), queue.limit()), (3, 0, 13));
    queue.become_idle(SLOW_US);
    assert_eq!(queue.limit(), 2);
}

#[test]
fn nothing_is_tried_where_answers_come_too_far_apart_to_teach_anything() {
    let queue = queue();
    let _one = held(&queue);
    let _waits = stand(&queue);
    let two_open_us = DOUBT_MS as u32 * 1000 * 2;
    assert_eq!(queue.become_idle(two_open_us + 2), MayIdle::No);
    assert_eq!(queue.become_idle(two_open_us), MayIdle::InDoubt);
}
