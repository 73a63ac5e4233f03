use super::*;

/// A mean time to a response with which much is to be learnt in a short time.
const FAST_US: u32 = 100;

const SLOW_US: u32 = 200_000;

fn queue() -> Arc<ListenQueue> {
    Arc::new(ListenQueue { is_local: true, ..ListenQueue::default() })
}

fn stand(queue: &Arc<ListenQueue>) -> Standing {
    let standing = queue.enter(0).0;
    standing.complete(0);
    standing
}

fn held(queue: &Arc<ListenQueue>) -> Standing {
    let mut standing = stand(queue);
    standing.answered();
    standing
}

/// How many idle connections are to be ended.
fn surplus(queue: &ListenQueue) -> u32 {
    let mut count = 0;
    while queue.claim_surplus() {
        queue.leave_idle();
        count += 1;
    }
    count
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
    assert_eq!(queue.become_idle(0, SLOW_US), MayIdle::Yes);
}

#[test]
fn none_rests_while_a_request_waits_for_what_may_be_the_only_process() {
    let queue = queue();
    let one = held(&queue);
    let mut other = stand(&queue);
    assert_eq!(queue.become_idle(0, SLOW_US), MayIdle::No);
    drop(one);
    other.answered();
    assert_eq!(queue.become_idle(0, SLOW_US), MayIdle::Yes);
}

#[test]
fn idle_connections_make_room_for_a_new_one_beyond_the_processes_that_are_known() {
    let queue = queue();
    let (_first, _second) = (held(&queue), held(&queue));
    assert_eq!(
        (queue.become_idle(0, SLOW_US), queue.become_idle(0, SLOW_US)),
        (MayIdle::Yes, MayIdle::Yes)
    );
    let (_third, doubts) = queue.enter(0);
    assert_eq!((doubts, surplus(&queue)), (false, 1), "two processes are known, three are needed");
}

#[test]
fn as_many_as_were_held_at_once_are_kept_and_watched() {
    let queue = queue();
    let (first, second) = (held(&queue), held(&queue));
    drop(second);
    assert_eq!(queue.become_idle(0, SLOW_US), MayIdle::Yes);
    let (waits, doubts) = queue.enter(0);
    waits.complete(0);
    assert_eq!((doubts, surplus(&queue)), (true, 0), "two were held before");
    assert!(queue.look(DOUBT_MS), "it was still being made when it was looked first");
    // It does not move: the second process must have ended.
    assert!(!queue.look(DOUBT_MS * 2));
    assert_eq!(surplus(&queue), 1);
    assert_eq!(
        queue.become_idle(DOUBT_MS, SLOW_US),
        MayIdle::No,
        "one process is known, two are needed"
    );
    drop(first);
}

#[test]
fn a_response_tells_of_all_that_were_made_before() {
    let queue = queue();
    let _one = held(&queue);
    let (_slow, mut fast) = (stand(&queue), stand(&queue));
    assert_eq!(queue.become_idle(0, SLOW_US), MayIdle::No);
    fast.answered();
    assert_eq!(
        queue.become_idle(0, SLOW_US),
        MayIdle::Yes,
        "the slow one was accepted before the fast"
    );
}

/// The kernel may have taken the second first, where two workers were at it side by side.
#[test]
fn a_response_tells_nothing_of_what_was_made_meanwhile() {
    let queue = queue();
    let _one = held(&queue);
    let first = queue.enter(0).0;
    let mut second = queue.enter(0).0;
    second.complete(0);
    first.complete(0);
    second.answered();
    assert_eq!(queue.become_idle(0, SLOW_US), MayIdle::No, "the first may wait behind the second");
}

#[test]
fn over_a_network_the_order_is_sure_after_a_while() {
    for (begun_ms, rest) in [(NETWORK_MS - 1, MayIdle::No), (NETWORK_MS, MayIdle::Yes)] {
        let queue = Arc::new(ListenQueue::default());
        let _one = held(&queue);
        let _slow = stand(&queue);
        let mut fast = queue.enter(begun_ms).0;
        fast.complete(begun_ms);
        fast.answered();
        assert_eq!(queue.become_idle(begun_ms, SLOW_US), rest, "{begun_ms} ms");
    }
}

#[test]
fn what_leaves_without_a_response_waits_no_longer() {
    let queue = queue();
    let _one = held(&queue);
    let (first, second) = (stand(&queue), stand(&queue));
    drop(second);
    assert_eq!(queue.become_idle(0, SLOW_US), MayIdle::No);
    drop(first);
    assert_eq!(queue.become_idle(0, SLOW_US), MayIdle::Yes);
}

#[test]
fn what_is_to_be_ended_is_forgotten_when_no_request_waits() {
    let queue = queue();
    let _one = held(&queue);
    assert_eq!(queue.become_idle(0, SLOW_US), MayIdle::Yes);
    let waits = stand(&queue);
    assert!(queue.has_surplus());
    drop(waits);
    assert!(!queue.has_surplus());
}

/// Many connections to a backend that has a process for each: they are all kept after one round.
#[test]
fn processes_are_learnt_where_answers_come_fast() {
    let queue = queue();
    let mut standing: Vec<_> = (0..8).map(|_| stand(&queue)).collect();
    let mut rests = Vec::new();
    for one in &mut standing {
        one.answered();
        rests.push(queue.become_idle(0, FAST_US));
    }
    assert_eq!(rests[..2], [MayIdle::InDoubt, MayIdle::Yes], "one watches for all");
    assert!(rests.iter().all(|rest| *rest != MayIdle::No), "{rests:?}");
    assert!(!queue.look(DOUBT_MS), "nobody waits");
    assert_eq!(surplus(&queue), 0);
}

/// The same with one process. It is tried again, less and less often.
#[test]
fn what_is_tried_in_vain_is_tried_rarely() {
    let queue = queue();
    let mut now_ms = 0;
    let mut tried_ms = Vec::new();
    while now_ms < 200_000 {
        let (one, _waits) = (held(&queue), stand(&queue));
        match queue.become_idle(now_ms, FAST_US) {
            MayIdle::No => now_ms += 100,
            _ => {
                tried_ms.push(now_ms);
                now_ms += DOUBT_MS;
                assert!(!queue.look(now_ms), "it does not move");
                assert_eq!(surplus(&queue), 1);
            }
        }
        drop(one);
    }
    let pauses: Vec<u64> = tried_ms.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses[0] >= PAUSE_MS_MIN && pauses[0] < PAUSE_MS_MIN + 200, "{pauses:?}");
    assert!(pauses.windows(2).all(|two| two[1] >= two[0]), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause < PAUSE_MS_MAX + 200), "{pauses:?}");
}

#[test]
fn a_line_that_moves_is_left_alone() {
    let queue = queue();
    let _one = held(&queue);
    let mut line: Vec<_> = (0..3).map(|_| stand(&queue)).collect();
    assert_eq!(queue.become_idle(0, FAST_US), MayIdle::InDoubt);
    for waits in &mut line[..2] {
        waits.answered();
        assert!(queue.look(DOUBT_MS), "somebody waits still");
        assert_eq!(surplus(&queue), 0);
    }
    line[2].answered();
    assert!(!queue.look(DOUBT_MS));
}

#[test]
fn nothing_is_tried_where_answers_come_too_far_apart_to_teach_anything() {
    let queue = queue();
    let _one = held(&queue);
    let _waits = stand(&queue);
    let two_open_us = DOUBT_MS as u32 * 1000 * 2;
    assert_eq!(queue.become_idle(0, two_open_us + 2), MayIdle::No);
    assert_eq!(queue.become_idle(0, two_open_us), MayIdle::InDoubt);
}
