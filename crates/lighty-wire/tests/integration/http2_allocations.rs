//! A warm request over HTTP/2 allocates nothing.

#[path = "../../../lighty-testkit/shared/counting.rs"]
mod counting;

use lighty_http::{Fields, Known, Status};
use lighty_wire::http2::{Connection, Event, Limits, RequestParts};

const STREAMS: usize = 16;

/// Sixteen requests, half of them with content, and their responses; both ends.
fn round(client: &mut Connection, server: &mut Connection, wires: &mut [Vec<u8>; 2], nth: usize) {
    let [up, down] = wires;
    up.clear();
    down.clear();
    let (mut fields, mut response) = (Fields::new(), Fields::new());
    fields.push_known(Known::UserAgent, "a program");
    response.push_known(Known::ContentType, "text/html");
    let value = [b'a' + (nth % 7) as u8; 20];
    response.push_known(Known::ETag, value);
    for stream in 0..STREAMS {
        let parts = RequestParts {
            method: if stream % 2 == 0 { b"GET" } else { b"POST" },
            scheme: b"http",
            authority: b"a.example",
            path: b"/some/path",
            protocol: None,
        };
        let ends = stream % 2 == 0;
        let key = client.open(&parts, &fields, ends).expect("a stream");
        if !ends {
            client.queue_data(key, 500, true).expect("content");
        }
    }
    while let Some(frame) = client.poll_data(usize::MAX, 0, up) {
        up.resize(up.len() + frame.len, 7);
    }
    let own = counting::own_allocations();
    let mut at = 0;
    loop {
        let handled = server.handle_input(&up[at..], 0).expect("no fault");
        at += handled.consumed;
        match handled.event {
            None => break,
            Some(Event::Request { stream, .. }) => {
                server.send_head(stream, Status::OK, &response, false).expect("a head");
                server.queue_data(stream, 44, true).expect("content");
            }
            Some(Event::Data { stream, len, .. }) => server.credit(stream, len),
            Some(other) => panic!("{other:?}"),
        }
    }
    while let Some(frame) = server.poll_data(usize::MAX, 0, down) {
        down.resize(down.len() + frame.len, 7);
        server.release(frame.stream);
    }
    let allocated = counting::own_allocations() - own;
    assert!(nth < 50 || allocated == 0, "round {nth}: {allocated} allocations");
    let mut at = 0;
    loop {
        let handled = client.handle_input(&down[at..], 0).expect("no fault");
        at += handled.consumed;
        match handled.event {
            None => break,
            Some(Event::Data { stream, len, ends, .. }) => {
                client.credit(stream, len);
                if ends {
                    client.release(stream);
                }
            }
            Some(_) => {}
        }
    }
}

#[test]
fn a_warm_round_allocates_nothing() {
    let limits = Limits { requests_max: 0, ..Limits::default() };
    let mut client = Connection::client(limits, 0);
    let mut server = Connection::server(limits, 0);
    let mut wires = [Vec::with_capacity(1 << 16), Vec::with_capacity(1 << 16)];
    for nth in 0..500 {
        round(&mut client, &mut server, &mut wires, nth);
    }
}
