//! Every event on a stream in every state of it, as a table for a server and for a client.
//!
//! The states of the two halves change where frames are read and written, so the table is made by
//! experiment: a state is reached again on a connection of its own for each event.

use std::format;
use std::string::{String, ToString as _};

use lighty_http::Fields;
use lighty_testkit::matrix::{assert_matrix, table};

use super::super::super::streams::{Life, Recv};
use super::*;
use crate::http2::RequestParts;

// The halves of a stream at a server (`Recv Send`); the client's differ in their beginning.
//
//   peer:    Head ----> Body --------> Ended        (Data, then an end of any frame)
//   driver:  Head ----> Body ----> Ending ----> Ended     (`Ending`: queued content is left)
//
// `Reset` by either side ends both halves; the slot stays until the driver releases it. A violation
// by the peer is a reset by us. `Us`, `Peer` and `End` tell how frames for a closed stream are
// judged: those in transit are dropped, those behind an end are faults.

/// An event: a frame of the peer, or a call of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Head,
    HeadEnd,
    Data,
    DataEnd,
    Trailers,
    Rst,
    SendHead,
    SendEnd,
    Queue,
    QueueEnd,
    Write,
    SendTrailers,
    Reset,
    Release,
}

const ACTS: [Act; 14] = [
    Act::Head,
    Act::HeadEnd,
    Act::Data,
    Act::DataEnd,
    Act::Trailers,
    Act::Rst,
    Act::SendHead,
    Act::SendEnd,
    Act::Queue,
    Act::QueueEnd,
    Act::Write,
    Act::SendTrailers,
    Act::Reset,
    Act::Release,
];

/// A connection with one stream.
struct Lab {
    bench: Bench,
    key: Option<StreamKey>,
}

impl Lab {
    fn server() -> Self {
        Self { bench: Bench::server(), key: None }
    }

    /// A client that has sent a request, and its content if `ends` is false follows.
    fn client(ends: bool) -> Self {
        let mut bench = Bench::client();
        let parts = RequestParts {
            method: b"POST",
            scheme: b"http",
            authority: b"a",
            path: b"/",
            protocol: None,
        };
        let key = bench.conn.open(&parts, &Fields::new(), ends).expect("a stream");
        bench.sent();
        Self { bench, key: Some(key) }
    }

    /// The state of the stream.
    fn state(&mut self) -> String {
        if self.bench.conn.is_finished() {
            return "Closed connection".to_string();
        }
        let closed_by = self.bench.conn.streams.closed_by(1);
        let Some(stream) = self.key.and_then(|key| self.bench.conn.streams.get(key)) else {
            return closed_by.map_or("Idle".to_string(), |by| format!("Released {by:?}"));
        };
        let recv = match stream.recv {
            Recv::Head => "Head",
            Recv::Body { .. } => "Body",
            Recv::Ended => "Ended",
        };
        let queued = if stream.queued > 0 { " queued" } else { "" };
        match stream.life {
            Life::Reset => format!("Reset {:?}", closed_by.expect("it is remembered")),
            _ => format!("{recv} {:?}{queued}", stream.send),
        }
    }

    /// Applies an event. Returns its effect: nothing, a refusal (`-`), or a fault.
    fn apply(&mut self, act: Act) -> String {
        let is_server = self.bench.conn.role == Role::Server;
        let head = if is_server { POST } else { &[0x88] };
        let frame = match act {
            Act::Head => raw(kind::HEADERS, flag::END_HEADERS, 1, head),
            Act::HeadEnd => raw(kind::HEADERS, END, 1, head),
            Act::Data => data(1, b"ab", false),
            Act::DataEnd => data(1, b"ab", true),
            Act::Trailers => raw(kind::HEADERS, END, 1, &block(&[("x", "y")])),
            Act::Rst => rst(1, ErrorCode::CANCEL),
            _ => return self.call(act),
        };
        let fault = self.bench.feed(&frame).err();
        for event in self.bench.events.drain(..) {
            if let Event::Request { stream, .. } = event {
                self.key = Some(stream);
            }
        }
        let reset = self.bench.sent().iter().any(|sent| sent.kind == kind::RST_STREAM);
        match fault {
            Some(fault) => format!(" {fault:?}"),
            None if reset => " RST".to_string(),
            None => String::new(),
        }
    }

    fn call(&mut self, act: Act) -> String {
        let Some(key) = self.key else { return "-".to_string() };
        let (bench, fields) = (&mut self.bench, Fields::new());
        let done = match act {
            Act::SendHead => bench.conn.send_head(key, Status::OK, &fields, false),
            Act::SendEnd => bench.conn.send_head(key, Status::OK, &fields, true),
            Act::Queue => bench.conn.queue_data(key, 5, false),
            Act::QueueEnd => bench.conn.queue_data(key, 5, true),
            Act::Write => {
                bench.data();
                Ok(())
            }
            Act::SendTrailers => bench.conn.send_trailers(key, &fields),
            Act::Reset => {
                bench.conn.reset(key, ErrorCode::CANCEL);
                Ok(())
            }
            _ => {
                bench.conn.release(key);
                Ok(())
            }
        };
        let reset = bench.sent().iter().any(|sent| sent.kind == kind::RST_STREAM);
        match done {
            Err(_) => "-".to_string(),
            Ok(()) if reset => " RST".to_string(),
            Ok(()) => String::new(),
        }
    }
}

/// The table of all states that can be reached from the one that `begin` makes.
fn explore(begin: impl Fn() -> Lab) -> String {
    let reach = |path: &[Act]| {
        let mut lab = begin();
        path.iter().for_each(|act| _ = lab.apply(*act));
        lab
    };
    let mut states = vec![(begin().state(), Vec::new())];
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(ACTS.iter().map(|act| format!("{act:?}")));
    let mut nth = 0;
    while let Some((name, path)) = states.get(nth).cloned() {
        let mut row = vec![format!("{nth} {name}")];
        for act in ACTS {
            let mut lab = reach(&path);
            let result = lab.apply(act);
            let after = lab.state();
            if result == "-" {
                assert_eq!(after, name, "{act:?} was refused");
                row.push(result);
                continue;
            }
            let number = states.iter().position(|(known, _)| *known == after);
            let number = number.unwrap_or_else(|| {
                states.push((after, [&path[..], &[act]].concat()));
                states.len() - 1
            });
            row.push(format!("{number}{result}"));
        }
        rows.push(row);
        nth += 1;
    }
    table(&rows)
}

const SERVER: &str = "
                        Head            HeadEnd         Data            DataEnd
0 Idle                  1               2               3 IdleStream    3 IdleStream
1 Body Head             5 RST           5 RST           1               2
2 Ended Head            10 RST          10 RST          10 RST          10 RST
3 Closed connection     3               3               3               3
4 Released End          3 ClosedStream  3 ClosedStream  3 ClosedStream  3 ClosedStream
5 Reset Us              5               5               5               5
6 Reset Peer            6 RST           6 RST           6 RST           6 RST
7 Body Body             5 RST           5 RST           7               11
8 Body Ended            5 RST           5 RST           8               12
9 Released Us           9               9               9               9
10 Reset End            3 ClosedStream  3 ClosedStream  3 ClosedStream  3 ClosedStream
11 Ended Body           10 RST          10 RST          10 RST          10 RST
12 Ended Ended          10 RST          10 RST          10 RST          10 RST
13 Released Peer        13 RST          13 RST          13 RST          13 RST
14 Body Body queued     5 RST           5 RST           14              16
15 Body Ending queued   5 RST           5 RST           15              17
16 Ended Body queued    10 RST          10 RST          10 RST          10 RST
17 Ended Ending queued  10 RST          10 RST          10 RST          10 RST

                        Trailers        Rst  SendHead  SendEnd  Queue  QueueEnd  Write
0 Idle                  4 RST           0    -         -        -      -         -
1 Body Head             2               6    7         8        -      -         1
2 Ended Head            10 RST          6    11        12       -      -         2
3 Closed connection     3               3    -         -        -      -         -
4 Released End          3 ClosedStream  4    -         -        -      -         -
5 Reset Us              5               5    -         -        -      -         5
6 Reset Peer            6 RST           6    -         -        -      -         6
7 Body Body             11              6    -         -        14     15        7
8 Body Ended            12              6    -         -        -      -         8
9 Released Us           9               9    -         -        -      -         9
10 Reset End            3 ClosedStream  10   -         -        -      -         10
11 Ended Body           10 RST          6    -         -        16     17        11
12 Ended Ended          10 RST          6    -         -        -      -         12
13 Released Peer        13 RST          13   -         -        -      -         13
14 Body Body queued     16              6    -         -        14     15        7
15 Body Ending queued   17              6    -         -        -      -         8
16 Ended Body queued    10 RST          6    -         -        16     17        11
17 Ended Ending queued  10 RST          6    -         -        -      -         12

                        SendTrailers  Reset   Release
0 Idle                  -             -       -
1 Body Head             -             5 RST   9 RST
2 Ended Head            -             10 RST  4 RST
3 Closed connection     -             -       -
4 Released End          -             -       -
5 Reset Us              -             5       9
6 Reset Peer            -             6       13
7 Body Body             8             5 RST   9 RST
8 Body Ended            -             5 RST   9 RST
9 Released Us           -             9       9
10 Reset End            -             10      4
11 Ended Body           12            10 RST  4 RST
12 Ended Ended          -             10 RST  4
13 Released Peer        -             13      13
14 Body Body queued     -             5 RST   9 RST
15 Body Ending queued   -             5 RST   9 RST
16 Ended Body queued    -             10 RST  4 RST
17 Ended Ending queued  -             10 RST  4 RST
";

const CLIENT: &str = "
                        Head             HeadEnd          Data             DataEnd
0 Head Body             1                2                3 RST            3 RST
1 Body Body             3 RST            3 RST            1                2
2 Ended Body            12 RST           12 RST           12 RST           12 RST
3 Reset Us              3                3                3                3
4 Reset Peer            4 RST            4 RST            4 RST            4 RST
5 Head Body queued      9                13               3 RST            3 RST
6 Head Ending queued    10               14               3 RST            3 RST
7 Head Ended            11               15               3 RST            3 RST
8 Released Us           8                8                8                8
9 Body Body queued      3 RST            3 RST            9                13
10 Body Ending queued   3 RST            3 RST            10               14
11 Body Ended           3 RST            3 RST            11               15
12 Reset End            18 ClosedStream  18 ClosedStream  18 ClosedStream  18 ClosedStream
13 Ended Body queued    12 RST           12 RST           12 RST           12 RST
14 Ended Ending queued  12 RST           12 RST           12 RST           12 RST
15 Ended Ended          12 RST           12 RST           12 RST           12 RST
16 Released End         18 ClosedStream  18 ClosedStream  18 ClosedStream  18 ClosedStream
17 Released Peer        17 RST           17 RST           17 RST           17 RST
18 Closed connection    18               18               18               18

                        Trailers         Rst  SendHead  SendEnd  Queue  QueueEnd  Write
0 Head Body             3 RST            4    -         -        5      6         0
1 Body Body             2                4    -         -        9      10        1
2 Ended Body            12 RST           4    -         -        13     14        2
3 Reset Us              3                3    -         -        -      -         3
4 Reset Peer            4 RST            4    -         -        -      -         4
5 Head Body queued      3 RST            4    -         -        5      6         0
6 Head Ending queued    3 RST            4    -         -        -      -         7
7 Head Ended            3 RST            4    -         -        -      -         7
8 Released Us           8                8    -         -        -      -         8
9 Body Body queued      13               4    -         -        9      10        1
10 Body Ending queued   14               4    -         -        -      -         11
11 Body Ended           15               4    -         -        -      -         11
12 Reset End            18 ClosedStream  12   -         -        -      -         12
13 Ended Body queued    12 RST           4    -         -        13     14        2
14 Ended Ending queued  12 RST           4    -         -        -      -         15
15 Ended Ended          12 RST           4    -         -        -      -         15
16 Released End         18 ClosedStream  16   -         -        -      -         16
17 Released Peer        17 RST           17   -         -        -      -         17
18 Closed connection    18               18   -         -        -      -         18

                        SendTrailers  Reset   Release
0 Head Body             7             3 RST   8 RST
1 Body Body             11            3 RST   8 RST
2 Ended Body            15            12 RST  16 RST
3 Reset Us              -             3       8
4 Reset Peer            -             4       17
5 Head Body queued      -             3 RST   8 RST
6 Head Ending queued    -             3 RST   8 RST
7 Head Ended            -             3 RST   8 RST
8 Released Us           -             8       8
9 Body Body queued      -             3 RST   8 RST
10 Body Ending queued   -             3 RST   8 RST
11 Body Ended           -             3 RST   8 RST
12 Reset End            -             12      16
13 Ended Body queued    -             12 RST  16 RST
14 Ended Ending queued  -             12 RST  16 RST
15 Ended Ended          -             12 RST  16
16 Released End         -             16      16
17 Released Peer        -             17      17
18 Closed connection    -             18      18
";

#[test]
fn each_event_has_a_defined_effect_on_a_stream_of_a_server() {
    assert_matrix(&explore(Lab::server), SERVER);
}

#[test]
fn each_event_has_a_defined_effect_on_a_stream_of_a_client() {
    assert_matrix(&explore(|| Lab::client(false)), CLIENT);
}
