//! Tests of flights.

use lighty_io::file::store_dir::StoreDir;

use super::*;

fn take(passenger: &Passenger) -> Option<FlightPiece> {
    passenger.flight.state().take_piece(passenger.number)
}

fn bytes(piece: Option<FlightPiece>) -> Vec<u8> {
    match piece {
        Some(FlightPiece::Memory(bytes)) => bytes.to_vec(),
        Some(FlightPiece::File { file, offset, length }) => {
            file.file.read_range(offset, length as usize).expect("read")
        }
        None => Vec::new(),
    }
}

#[test]
fn pieces_come_from_the_file_and_then_from_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = StoreDir::open(dir.path()).expect("opened");
    let file = dir.create_file("one").expect("made");
    file.write_all_at(b"abcdef", 0).expect("written");
    let file = Arc::new(BodyFile { file });
    let flight = Arc::new(Flight::default());
    let (early, late) = (flight.board().expect("room"), flight.board().expect("room"));
    for piece in ["abc", "def", "ghi"] {
        flight.push(Bytes::from(piece));
    }
    assert_eq!(bytes(take(&early)), b"abc");
    assert_eq!(flight.unfiled(0, 4).concat(), b"abcdef");
    // The file may end within a piece.
    flight.file(&file, 5);
    assert_eq!(flight.unfiled(5, 4).len(), 0, "not at the start of a piece");
    assert_eq!(bytes(take(&early)), b"de");
    assert_eq!(bytes(take(&early)), b"f");
    assert_eq!(bytes(take(&early)), b"ghi");
    assert_eq!(bytes(take(&late)), b"abcde");
    assert_eq!(bytes(take(&late)), b"f");
    flight.file(&file, 6);
    assert_eq!(bytes(take(&late)), b"ghi");
    assert!(take(&late).is_none());
}

#[test]
fn nothing_is_filed_once_pieces_are_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = StoreDir::open(dir.path()).expect("opened");
    let file = Arc::new(BodyFile { file: dir.create_file("one").expect("made") });
    let flight = Arc::new(Flight::default());
    let one = flight.board().expect("room");
    flight.spill();
    for piece in ["abc", "def"] {
        flight.push(Bytes::from(piece));
    }
    assert_eq!(bytes(take(&one)), b"abc");
    flight.narrow();
    assert!(flight.unfiled(0, 10).is_empty() && flight.unfiled(3, 10).is_empty());
    flight.file(&file, 6);
    assert_eq!(bytes(take(&one)), b"def");
}

fn object(content: Content) -> Arc<Object> {
    let (place, head) =
        ((crate::key::KeyWriter::default().finish(), Box::default()), StoredHead::empty());
    Arc::new(Object::new(place, head, content, 0))
}

#[test]
fn body_of_a_stored_flight_belongs_to_the_store() {
    let flight = Arc::new(Flight::default());
    let mut cx = Context::from_waker(Waker::noop());
    let mut passengers = [(); 3].map(|()| flight.board().expect("room"));
    flight.push(Bytes::from("abc"));
    flight.push(Bytes::from("def"));
    let [early, mid, late] = &mut passengers;
    assert_eq!(bytes(take(early)), b"abc");
    assert_eq!(bytes(take(mid)), b"abc");
    let stored = object(flight.content().expect("the body"));
    flight.land_stored(&stored);
    assert_eq!(Arc::strong_count(&stored), 1);
    assert_eq!(bytes(take(early)), b"def");
    drop(stored);
    assert!(matches!(early.poll_piece(&mut cx), Poll::Ready(None)));
    for passenger in [mid, &mut *late] {
        let news = passenger.poll_piece(&mut cx);
        assert!(matches!(news, Poll::Ready(Some(Err(FlightBroken::Evicted)))));
    }
    let head = late.poll_head(&mut cx);
    assert!(matches!(head, Poll::Ready(Boarding::Failed(FetchFailure::GIVEN_UP))));
}

#[test]
fn stalled_passenger_leaves_a_window_that_others_wait_for() {
    let flight = Arc::new(Flight::default());
    let mut cx = Context::from_waker(Waker::noop());
    let [quick, mut slow, mut stalled] = [(); 3].map(|()| flight.board().expect("room"));
    flight.narrow();
    let fill = || {
        for _ in 0..=WINDOW_BYTES / STALLED_BYTES {
            flight.push(Bytes::from(vec![0; STALLED_BYTES as usize]));
        }
    };
    fill();
    assert_eq!(flight.drop_stalled(), 0, "none of them waits for more");
    while take(&quick).is_some() {}
    assert!(take(&slow).is_some());
    assert!(flight.poll_room(&mut cx, WINDOW_BYTES).is_pending());
    assert_eq!(flight.drop_stalled(), 1);
    let stalled = stalled.poll_piece(&mut cx);
    assert!(matches!(stalled, Poll::Ready(Some(Err(FlightBroken::Stalled)))));
    assert!(flight.poll_room(&mut cx, WINDOW_BYTES).is_ready(), "it reads the rest in time");
    assert_eq!(flight.drop_stalled(), 0, "there is room");
    assert!(matches!(slow.poll_piece(&mut cx), Poll::Ready(Some(Ok(_)))));
    drop(quick);
    fill();
    assert_eq!((flight.drop_stalled(), flight.drop_stalled()), (0, 0), "it holds none up");
}

#[test]
fn new_passenger_has_time_until_the_second_check() {
    let flight = Arc::new(Flight::default());
    let mut cx = Context::from_waker(Waker::noop());
    let quick = flight.board().expect("room");
    flight.narrow();
    let late = flight.board().expect("room");
    for _ in 0..=WINDOW_BYTES / STALLED_BYTES {
        flight.push(Bytes::from(vec![0; STALLED_BYTES as usize]));
    }
    while take(&quick).is_some() {}
    assert!(flight.poll_room(&mut cx, WINDOW_BYTES).is_pending());
    assert_eq!((flight.drop_stalled(), flight.drop_stalled()), (0, 1));
    drop(late);
}

#[test]
fn an_end_without_all_pieces_is_a_break() {
    let flight = Arc::new(Flight::default());
    let (mut one, mut late) = (flight.board().expect("room"), flight.board().expect("room"));
    flight.push(Bytes::from("abc"));
    flight.push(Bytes::from("def"));
    assert_eq!(bytes(take(&one)), b"abc");
    // As if the pieces were gone that the other has not read.
    flight.state().pieces.pop_front();
    flight.land(&object(Content::default()));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(one.poll_piece(&mut cx), Poll::Ready(Some(Ok(_)))));
    assert!(matches!(one.poll_piece(&mut cx), Poll::Ready(None)));
    assert!(matches!(late.poll_piece(&mut cx), Poll::Ready(Some(Err(FlightBroken::Failed)))));
}

#[test]
fn failures_fit_into_a_number() {
    for status in [0, 200, 504, 999] {
        for fault in [None, Some(0), Some(1), Some(8_190)] {
            let failure = FetchFailure { status, fault };
            assert!(failure.pack() >> FAILURE_BITS == 0, "{failure:?}");
            assert_eq!(FetchFailure::unpack(7 << FAILURE_BITS | failure.pack()), failure);
        }
    }
    let failure = FetchFailure { status: 502, fault: Some(8_191) };
    assert_eq!(FetchFailure::unpack(failure.pack()).fault, None);
}
