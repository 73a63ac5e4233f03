//! Input split into pieces of any size has the same meaning.

use proptest::prelude::*;

use super::*;

/// Input for these tests: several streams, content, padding, a continued block, unknown and ignored
/// frames, mistakes.
fn session() -> Vec<u8> {
    let mut all = PREFACE.to_vec();
    for frame in [
        raw(kind::SETTINGS, 0, 0, &[]),
        raw(kind::SETTINGS, flag::ACK, 0, &[]),
        post(1),
        raw(kind::DATA, flag::PADDED, 1, b"\x03content\0\0\0"),
        raw(kind::PING, 0, 0, b"12345678"),
        raw(
            kind::HEADERS,
            flag::END_STREAM | flag::PADDED,
            3,
            &[&[2][..], &GET[..3], &[0, 0]].concat(),
        ),
        raw(kind::CONTINUATION, flag::END_HEADERS, 3, &GET[3..]),
        raw(0x77, 0xFF, 9, b"unknown"),
        data(1, b"", false),
        window_update(0, 1000),
        window_update(3, 1000),
        data(1, b"the end", true),
        raw(kind::HEADERS, END, 5, &GET[..2]),
        raw(kind::HEADERS, END, 7, &[GET, &[0x40, 1, b'x', 1, b'y']].concat()),
        raw(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 7, b'i']),
        rst(7, ErrorCode::CANCEL),
        raw(kind::HEADERS, END, 9, &[GET, &[0xBE]].concat()),
        raw(kind::GOAWAY, 0, 0, &[0; 8]),
        raw(5, 0, 1, &[0; 8]),
    ] {
        all.extend(frame);
    }
    all
}

/// Observed results: events without offsets, content, output, the fault.
#[derive(Debug, PartialEq, Eq)]
struct Observed {
    events: Vec<Event>,
    content: Vec<u8>,
    output: Vec<u8>,
    fault: Option<ConnFault>,
}

/// Feeds `input` in pieces that end at `cuts`. Unconsumed bytes are passed again with the next
/// piece.
fn observe(input: &[u8], cuts: impl IntoIterator<Item = usize>) -> Observed {
    let mut conn = Connection::server(Limits::default(), 0);
    let mut seen = Observed { events: vec![], content: vec![], output: vec![], fault: None };
    let mut at = 0;
    for end in cuts.into_iter().chain([input.len()]) {
        while seen.fault.is_none() {
            let piece = &input[at..end.max(at)];
            match conn.handle_input(piece, 0) {
                Err(fault) => seen.fault = Some(fault),
                Ok(handled) => {
                    at += handled.consumed;
                    let Some(event) = handled.event else { break };
                    seen.note(event, piece);
                }
            }
        }
    }
    conn.poll_output(&mut seen.output);
    seen
}

impl Observed {
    /// Merges pieces of one frame's content.
    fn note(&mut self, event: Event, piece: &[u8]) {
        let Event::Data { stream, start, len, ends } = event else {
            return self.events.push(event);
        };
        self.content.extend_from_slice(&piece[start..start + len]);
        let event = Event::Data { stream, start: 0, len: 0, ends };
        if let Some(Event::Data { stream: last, ends: false, .. }) = self.events.last()
            && *last == stream
        {
            self.events.pop();
        }
        self.events.push(event);
    }
}

#[test]
fn cut_in_two_at_every_byte() {
    let input = session();
    let whole = observe(&input, []);
    assert_eq!(whole.fault, Some(ConnFault::PushPromise));
    assert_eq!(whole.content, b"contentthe end");
    assert!(whole.events.len() >= 8, "{:?}", whole.events);
    for cut in 0..input.len() {
        assert_eq!(observe(&input, [cut]), whole, "cut at {cut}");
    }
}

#[test]
fn one_byte_at_a_time() {
    let input = session();
    assert_eq!(observe(&input, 0..input.len()), observe(&input, []));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn noise_is_read_the_same_in_any_pieces(
        noise in prop::collection::vec(any::<u8>(), 0..60),
        at in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut input = session();
        let at = at.index(input.len());
        let end = (at + noise.len()).min(input.len());
        input.splice(at..end, noise);
        let cuts: std::collections::BTreeSet<_> =
            cuts.iter().map(|cut| cut.index(input.len())).collect();
        prop_assert_eq!(observe(&input, cuts), observe(&input, []));
    }

    /// Both ends of the machine exchange random amounts of content: all of it arrives, in order,
    /// and no window is left open or closed.
    #[test]
    fn both_ends(
        streams in prop::collection::vec((0usize..200_000, 0usize..200_000), 1..6),
        piece in 1usize..40_000,
    ) {
        both_ends_agree(&streams, piece)?;
    }
}

/// Requests and responses with these amounts of content.
fn both_ends_agree(streams: &[(usize, usize)], piece: usize) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(streams);
    for _ in 0..20_000 {
        if pair.turn(piece) {
            break;
        }
    }
    for (nth, (up, down)) in streams.iter().enumerate() {
        prop_assert_eq!((pair.received[0][nth], pair.received[1][nth]), (*down, *up));
    }
    prop_assert_eq!((pair.client.streams_alive(), pair.server.streams_alive()), (0, 0));
    Ok(())
}

/// A client and a server, with the bytes in transit between them.
struct Pair {
    client: Connection,
    server: Connection,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    down: Vec<usize>,
    /// Bytes received by each end for each stream.
    received: [Vec<usize>; 2],
}

impl Pair {
    fn new(streams: &[(usize, usize)]) -> Self {
        let mut client = Connection::client(Limits::default(), 0);
        let parts = RequestParts {
            method: b"POST",
            scheme: b"http",
            authority: b"a",
            path: b"/",
            protocol: None,
        };
        for (up, _) in streams {
            let key = client.open(&parts, &Fields::new(), false).expect("a stream");
            client.queue_data(key, *up as u64, true).expect("content");
        }
        Self {
            client,
            server: Connection::server(Limits::default(), 0),
            to_server: vec![],
            to_client: vec![],
            down: streams.iter().map(|(_, down)| *down).collect(),
            received: [vec![0; streams.len()], vec![0; streams.len()]],
        }
    }

    /// Moves a piece in each direction; returns true when all is done.
    fn turn(&mut self, piece: usize) -> bool {
        pump(&mut self.client, &mut self.to_server);
        pump(&mut self.server, &mut self.to_client);
        if self.to_server.is_empty() && self.to_client.is_empty() {
            return true;
        }
        let len = piece.max(FRAME_BYTES_MAX + FRAME_HEAD_BYTES).min(self.to_server.len());
        let taken = self.take(1, len);
        self.to_server.drain(..taken);
        let len = piece.max(FRAME_BYTES_MAX + FRAME_HEAD_BYTES).min(self.to_client.len());
        let taken = self.take(0, len);
        self.to_client.drain(..taken);
        false
    }

    fn take(&mut self, end: usize, len: usize) -> usize {
        let (conn, input) = match end {
            0 => (&mut self.client, &self.to_client[..len]),
            _ => (&mut self.server, &self.to_server[..len]),
        };
        let mut at = 0;
        loop {
            let handled = conn.handle_input(&input[at..], 0).expect("no fault");
            at += handled.consumed;
            let (stream, ends) = match handled.event {
                None => return at,
                Some(Event::Data { stream, len, ends, .. }) => {
                    self.received[end][stream.id() as usize / 2] += len;
                    conn.credit(stream, len);
                    (stream, ends)
                }
                Some(Event::Response { stream, ends }) => (stream, ends),
                Some(Event::Request { stream, ends }) => {
                    let down = self.down[stream.id() as usize / 2] as u64;
                    conn.send_head(stream, Status::OK, &Fields::new(), false).expect("a head");
                    conn.queue_data(stream, down, true).expect("content");
                    (stream, ends)
                }
                Some(other) => panic!("{other:?}"),
            };
            let _ = (stream, ends);
        }
    }
}

/// Takes an end's output, makes up the content, and releases streams that are complete in both
/// directions.
fn pump(conn: &mut Connection, into: &mut Vec<u8>) {
    while let Some(frame) = conn.poll_data(usize::MAX, 0, into) {
        into.resize(into.len() + frame.len, 7);
    }
    for slot in 0..conn.streams.slots().len() {
        let stream = &conn.streams.slots()[slot];
        let is_over = stream.life == super::super::super::streams::Life::Live
            && stream.recv == super::super::super::streams::Recv::Ended
            && stream.send == super::super::super::streams::Send::Ended;
        let key = StreamKey { slot: slot as u32, id: stream.id };
        if is_over {
            conn.release(key);
        }
    }
}
