use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use lighty_core::machine::status_board::ConnState;
use lighty_io::transport::Stream;
use tokio::net::UnixStream;

use super::stream::RATE_GRACE_S;
use super::*;

#[test]
fn silent_connection_has_a_whole_second_from_the_stop_on() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime").block_on(async {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let conns = ConnTable::default();
        let silent = conns.enter(Stream::from(one).shutdown_handle(), "".into(), 10);
        conns.close_when_idle(15);
        assert_eq!(silent.overdue(16), None);
        assert_eq!(silent.overdue(17), Some(Fault::ClientGone));
    });
}

#[tokio::test]
async fn connection_in_use_has_a_whole_second_from_the_stop_on() {
    for (served_s, has_grace) in [(13, false), (14, true), (15, true)] {
        let (one, _client) = UnixStream::pair().expect("a pair");
        let conns = ConnTable::default();
        let one = Stream::from(one);
        let entry = conns.enter(one.shutdown_handle(), "".into(), 10);
        entry.begin_request();
        conns.wait_idle(&entry, served_s);
        conns.close_when_idle(15);
        assert!(entry.is_closing(), "the next response is the last one");
        assert_eq!(entry.overdue(16), None);
        // Without the grace period it closes at once, and no time limit ends it.
        assert_eq!(entry.overdue(17), has_grace.then_some(Fault::ClientGone), "{served_s}");
    }
}

#[test]
fn half_heads_make_room_where_no_connection_is_idle_but_not_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime").block_on(async {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (one, other) = (Stream::from(one), Stream::from(other));
        let conns = ConnTable::default();
        let first = conns.enter(one.shutdown_handle(), "".into(), 10);
        let second = conns.enter(other.shutdown_handle(), "".into(), 10);
        second.wait_for_head_from(11);
        first.wait_for_head_from(10);
        assert_eq!(conns.reap(2, 11), 0, "both may still be on their way");
        assert_eq!(conns.reap(2, 12), 1);
        assert_eq!(
            (first.shut_down_for(), second.shut_down_for()),
            (Some(Fault::HeadTimeout), None)
        );
        first.wait_for_request(12);
        assert_eq!(conns.reap(2, 20), 1, "an idle one goes before");
        assert_eq!(second.shut_down_for(), None);
        assert_eq!(conns.reap(2, 20), 1);
        assert_eq!(second.shut_down_for(), Some(Fault::HeadTimeout));
    });
}

#[test]
fn the_longest_idle_make_room_first_and_newcomers_last() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime").block_on(async {
        for (now_s, newcomer_stays) in [(11, true), (12, false)] {
            let (one, other) = UnixStream::pair().expect("a pair");
            let (one, other) = (Stream::from(one), Stream::from(other));
            let conns = ConnTable::default();
            let newcomer = conns.enter(one.shutdown_handle(), "".into(), 10);
            let requesting = conns.enter(other.shutdown_handle(), "".into(), 10);
            requesting.begin_request();
            conns.wait_idle(&requesting, 10);
            assert_eq!(conns.reap(1, now_s), 1);
            assert_eq!(requesting.is_closing(), newcomer_stays);
            assert_eq!(newcomer.is_closing(), !newcomer_stays);
            assert_eq!(conns.reap(2, now_s), 1, "the other one, where nothing else is left");
        }
    });
}

#[test]
fn only_an_idle_connection_with_tls_rests_and_not_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime").block_on(async {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (one, other) = (Rc::new(Stream::from(one)), Stream::from(other));
        let conns = ConnTable::default();
        let secured = conns.enter(one.shutdown_handle(), "".into(), 10);
        let clear = conns.enter(other.shutdown_handle(), "".into(), 10);
        secured.secure(&one);
        assert!(secured.long_idle(11).is_none() && secured.long_idle(12).is_some());
        assert!(clear.long_idle(12).is_none(), "there is nothing to free");
        secured.begin_request();
        assert!(secured.long_idle(20).is_none(), "it is busy");
        conns.wait_idle(&secured, 20);
        assert!(secured.long_idle(21).is_none() && secured.long_idle(22).is_some());
        drop(one);
        assert!(secured.long_idle(23).is_none(), "it is closed");
    });
}

/// A handler that takes a body in small parts pauses the wait again and again.
#[test]
fn pauses_of_a_body_excuse_no_slow_client() {
    for pauses in [false, true] {
        let clock = Clock::manual(0);
        let stream = StreamEntry::new();
        let limits = StreamLimits { min_read_rate: 100, read_idle_s: 5, ..StreamLimits::default() };
        stream.limit(limits);
        stream.wait_for_body(&clock);
        let mut cut_s = None;
        for second in 1..30 {
            clock.advance(Duration::from_millis(500));
            if pauses {
                stream.stop_waiting_for_body(&clock);
                assert_eq!(stream.overdue(sweep_s(&clock)), None);
                stream.wait_for_body(&clock);
            }
            clock.advance(Duration::from_millis(500));
            stream.progress.set(stream.progress.get() + 10);
            if stream.overdue(sweep_s(&clock)) == Some(Fault::ReadRate) {
                cut_s.get_or_insert(second);
            }
        }
        assert!(cut_s.is_some_and(|cut_s| (10..=12).contains(&cut_s)), "{pauses}: {cut_s:?}");
    }
}

/// Closing a lingering connection could destroy the response: a stop leaves it alone, and it makes
/// room after all other idle ones, also with unread bytes.
#[test]
fn lingering_connections_make_room_last_and_outlive_a_stop() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime").block_on(async {
        for (now_s, is_last) in [(11, true), (12, false)] {
            let (one, client) = UnixStream::pair().expect("a pair");
            let (other, _peer) = UnixStream::pair().expect("a pair");
            let (one, other) = (Stream::from(one), Stream::from(other));
            client.try_write(b"more").expect("written");
            one.readable().await.expect("readable");
            let conns = ConnTable::default();
            let lingering = conns.enter(one.shutdown_handle(), "".into(), 10);
            lingering.begin_request();
            conns.wait_idle(&lingering, 10);
            lingering.linger();
            let idle = conns.enter(other.shutdown_handle(), "".into(), 5);
            idle.begin_request();
            conns.wait_idle(&idle, 5);
            conns.close_when_idle(10);
            assert!(!lingering.is_closing());
            let again = conns.enter(other.shutdown_handle(), "".into(), 5);
            again.begin_request();
            conns.wait_idle(&again, 5);
            assert_eq!(conns.reap(1, now_s), 1);
            assert_eq!((again.is_closing(), lingering.is_closing()), (is_last, !is_last));
            assert_eq!(conns.reap(2, now_s), 1);
            assert!(again.is_closing() && lingering.is_closing());
            let mut buffer = [0; 8];
            assert_eq!(one.read(&mut buffer).await.expect("the unread bytes"), 4);
            assert_eq!(one.read(&mut buffer).await.expect("the end"), 0);
        }
    });
}

/// A burst of other streams is no credit for later, and a stream that only waits is never cut.
#[test]
fn bytes_of_other_streams_count_as_far_as_the_limit_demands() {
    for (is_steady, cut_s) in [(true, None), (false, Some(10))] {
        let clock = Clock::manual(0);
        let stream = StreamEntry::new();
        stream.limit(StreamLimits { min_write_rate: 100, ..StreamLimits::default() });
        stream.write(&clock);
        let mut cut = None;
        for second in 1..40 {
            clock.advance(Duration::from_secs(1));
            let before = stream.overdue(sweep_s(&clock));
            cut = cut.or(before.map(|_| second));
            if is_steady || second == 1 {
                let since_ms = clock.mono_ms() - 1_000;
                stream.excuse(1 << 30, since_ms, &clock);
            }
        }
        assert_eq!(cut, cut_s, "steady: {is_steady}");
    }
}

/// Neither the time of a pause counts nor the bytes with which the next request begins.
#[test]
fn pause_of_a_body_does_not_count_against_its_client() {
    let clock = Clock::manual(0);
    let stream = StreamEntry::new();
    stream.limit(StreamLimits { min_read_rate: 100, read_idle_s: 5, ..StreamLimits::default() });
    stream.wait_for_body(&clock);
    clock.advance(Duration::from_secs(4));
    stream.stop_waiting_for_body(&clock);
    clock.advance(Duration::from_secs(100));
    stream.wait_for_body(&clock);
    clock.advance(Duration::from_secs(4));
    assert_eq!(stream.overdue(sweep_s(&clock)), None);
    clock.advance(Duration::from_secs(2));
    assert_eq!(stream.overdue(sweep_s(&clock)), Some(Fault::ReadTimeout));
    stream.stop_waiting_for_body(&clock);
    // The next request.
    stream.wait_for(ConnState::Handler, &clock);
    stream.wait_for_body(&clock);
    assert_eq!((stream.since_s(), stream.progress.get()), (wait_s(&clock), 0));
}

/// Seconds are whole: a wait that begins late in one does not count it.
#[tokio::test]
async fn no_wait_ends_before_its_time() {
    let carrier = Stream::from(UnixStream::pair().expect("a pair").0);
    let conns = ConnTable::default();
    let clock = Clock::manual(0);
    let entry = conns.enter(carrier.shutdown_handle(), "".into(), wait_s(&clock));
    entry.limit(ConnLimits { idle_s: 1, head_s: 1, ..ConnLimits::default() });
    let stream = StreamEntry::new();
    stream.limit(StreamLimits { write_idle_s: 1, ..StreamLimits::default() });
    clock.advance(Duration::from_millis(900));
    let begun_ms = clock.mono_ms();
    conns.wait_idle(&entry, wait_s(&clock));
    stream.wait_for(ConnState::Write, &clock);
    let mut ended_ms = [None; 2];
    for _ in 0..30 {
        clock.advance(Duration::from_millis(100));
        let overdue = [entry.overdue(sweep_s(&clock)), stream.overdue(sweep_s(&clock))];
        for (ended, overdue) in ended_ms.iter_mut().zip(overdue) {
            *ended = ended.or(overdue.map(|_| clock.mono_ms() - begun_ms));
        }
    }
    assert!(ended_ms.iter().flatten().all(|ms| (1000..=2000).contains(ms)), "{ended_ms:?}");
    assert!(ended_ms.iter().all(Option::is_some));
}

#[test]
fn a_client_that_neither_reads_nor_sends_enough_is_cut() {
    let entry = StreamEntry::new();
    entry.limit(StreamLimits { write_idle_s: 5, min_read_rate: 100, ..StreamLimits::default() });
    let clock = Clock::manual(0);
    let overdue_after = |seconds: u32, bytes_each: u64| {
        entry.wait_from(ConnState::Write, 0);
        entry.wait_for_body(&clock);
        (1..=seconds).find_map(|now_s| {
            entry.progress.set(entry.progress.get() + bytes_each);
            entry.overdue(now_s).map(|fault| (now_s, fault))
        })
    };
    assert_eq!(overdue_after(60, 0), Some((5, Fault::WriteTimeout)));
    assert_eq!(overdue_after(60, 99), Some((RATE_GRACE_S, Fault::ReadRate)));
    assert_eq!(overdue_after(60, 100), None);
    entry.stop_waiting_for_body(&clock);
    assert_eq!(entry.state(), ConnState::Write, "the limits of writing go on");
}

/// A connection with two streams that write, and the clients' ends of the streams.
struct Siblings {
    conns: ConnTable,
    entry: Rc<ConnEntry>,
    streams: [Rc<StreamEntry>; 2],
    woken: [Arc<Woken>; 2],
    _carrier: Stream,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn siblings() -> Siblings {
    let carrier = Stream::from(UnixStream::pair().expect("a pair").0);
    let conns = ConnTable::default();
    let entry = conns.enter(carrier.shutdown_handle(), "".into(), 0);
    entry.limit(ConnLimits { idle_s: 5, head_s: 5, ..ConnLimits::default() });
    entry.begin_request();
    let streams = [(); 2].map(|()| Rc::new(StreamEntry::new()));
    let woken: [Arc<Woken>; 2] = Default::default();
    for (id, (stream, woken)) in streams.iter().zip(&woken).enumerate() {
        entry.watch_stream(id as u32 + 1, stream, Waker::from(Arc::clone(woken)), None);
        stream.limit(StreamLimits { write_idle_s: 5, ..StreamLimits::default() });
        stream.wait_from(ConnState::Write, 0);
    }
    Siblings { conns, entry, streams, woken, _carrier: carrier }
}

impl Siblings {
    /// Returns the faults that the sweep reports in each of the seconds, while `moves` moves bytes.
    fn sweep(&self, seconds: u32, moves: &[&StreamEntry]) -> Vec<(u32, Fault)> {
        let mut faults = Vec::new();
        for now_s in 1..=seconds {
            moves.iter().for_each(|stream| stream.progress.set(stream.progress.get() + 1));
            self.conns.sweep(now_s, |fault| faults.push((now_s, fault)));
        }
        faults
    }

    /// Returns whether each of the streams was woken.
    fn woken(&self) -> [bool; 2] {
        self.woken.each_ref().map(|woken| woken.0.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn a_slow_stream_is_cut_without_its_sibling_and_its_connection() {
    let both = siblings();
    let faults = both.sweep(5, &[&both.streams[1]]);
    assert_eq!(faults, [(5, Fault::WriteTimeout)]);
    assert_eq!((both.streams[0].cut(), both.streams[1].cut()), (Some(Fault::WriteTimeout), None));
    assert_eq!(both.entry.shut_down_for(), None);
    assert_eq!(both.woken(), [true, false]);
}

#[tokio::test]
async fn each_stream_has_the_limits_of_its_own_request() {
    let both = siblings();
    let slower = StreamLimits { min_write_rate: 2, ..StreamLimits::default() };
    both.streams[1].limit(slower);
    let faults = both.sweep(RATE_GRACE_S, &[&both.streams[0], &both.streams[1]]);
    assert_eq!(faults, [(RATE_GRACE_S, Fault::WriteRate)]);
    assert_eq!((both.streams[0].cut(), both.streams[1].cut()), (None, Some(Fault::WriteRate)));
}

#[tokio::test]
async fn a_connection_is_idle_only_without_streams_and_a_closed_stream_is_not_judged() {
    let both = siblings();
    both.streams.iter().for_each(|stream| stream.wait_from(ConnState::Handler, 0));
    assert_eq!(both.sweep(60, &[]), [], "what the server itself waits for has other limits");
    assert_eq!(both.entry.doing().state, ConnState::Handler);
    let Siblings { streams, entry, conns, .. } = &both;
    streams[0].wait_from(ConnState::Write, 60);
    entry.forget_stream(&streams[0]);
    conns.sweep(70, |fault| panic!("{fault:?}"));
    assert_eq!((entry.doing().state, streams[1].cut()), (ConnState::Handler, None));
    conns.wait_idle(entry, 70);
    let mut faults = Vec::new();
    conns.sweep(75, |fault| faults.push(fault));
    assert_eq!((faults, entry.shut_down_for()), (vec![Fault::ClientGone], Some(Fault::ClientGone)));
}

#[tokio::test]
async fn a_loop_of_streams_is_woken_to_take_leave_before_its_connection_is_shut_down() {
    let both = siblings();
    let woken = Arc::new(Woken::default());
    both.entry.wake_at_end(&Waker::from(Arc::clone(&woken)));
    both.conns.close_when_idle(0);
    assert!(woken.0.swap(false, Ordering::Relaxed), "a stop concerns one that is busy too");
    both.conns.wait_idle(&both.entry, 0);
    both.conns.sweep(5, |_| {});
    assert!(woken.0.swap(false, Ordering::Relaxed));
    assert_eq!(both.entry.shut_down_for(), Some(Fault::ClientGone));
    both.conns.sweep(6, |_| {});
    assert!(!woken.0.load(Ordering::Relaxed), "not a second time");
}

#[tokio::test]
async fn killed_stream_is_woken_and_its_sibling_goes_on() {
    let both = siblings();
    let Siblings { conns, entry, streams, .. } = &both;
    let serial = conns.serial(entry);
    assert!(!conns.kill(entry.number(), serial, 9) && !conns.kill(7, 0, 0));
    assert!(!conns.kill(entry.number(), serial + 1, 1), "an earlier connection's number");
    assert!(conns.kill(entry.number(), serial, 2));
    assert_eq!((streams[0].cut(), streams[1].cut()), (None, Some(Fault::Killed)));
    assert_eq!((both.woken(), entry.shut_down_for()), ([false, true], None));
    assert!(conns.kill(entry.number(), serial, 0));
    assert_eq!(
        (streams[0].cut(), entry.shut_down_for()),
        (Some(Fault::Killed), Some(Fault::Killed))
    );
}

#[tokio::test]
async fn serial_tells_a_connection_from_earlier_ones_of_its_number() {
    let conns = ConnTable::default();
    let (one, other) = UnixStream::pair().expect("a pair");
    let (one, other) = (Stream::from(one), Stream::from(other));
    let first = conns.enter(one.shutdown_handle(), "".into(), 0);
    let before = (first.number(), conns.serial(&first));
    conns.leave(&first);
    let second = conns.enter(other.shutdown_handle(), "".into(), 0);
    assert_eq!((second.number(), conns.serial(&second)), (before.0, before.1 + 1));
    assert!(!conns.kill(before.0, before.1, 0) && second.shut_down_for().is_none());
}
