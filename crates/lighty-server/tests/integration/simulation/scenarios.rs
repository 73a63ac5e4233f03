//! Scenarios that random runs have found, each as a test of its own.

use std::rc::Rc;
use std::time::Duration;

use lighty_http::Fields;
use lighty_io::log_writer::LogHandle;
use lighty_io::simulated;
use lighty_io::transport::memory::{self, MemoryEnd};
use lighty_io::transport::{Peer, Stream};
use lighty_server::simulated::Simulated;
use lighty_wire::http2::{Connection, Limits, RequestParts, StreamKey};
use tokio::time::sleep;

use super::Site;
use super::h2_end::{H2End, News};
use super::run::{in_paused_time, start};
use super::sim::{Sim, now_ms};
use super::site::{CLEAR_PORT, FILES, TLS_PORT, tls_client};
use super::wire::Wire;
use super::world::Machine;

/// Runs a scenario with a server that takes `connections_max` connections.
fn scenario(connections_max: usize, play: impl AsyncFnOnce(Rc<Simulated>, Rc<Sim>)) {
    let site = Site::new();
    let sim = Sim::calm(site.path());
    in_paused_time(async {
        let _inside = simulated::enter(Machine::new(&sim));
        let server = start(&sim, &LogHandle::in_memory(), connections_max);
        play(server, Rc::clone(&sim)).await;
    });
    assert_eq!(sim.take_wrong(), Vec::<String>::new());
}

/// Connects a client in clear text, with a response buffer of `room` bytes.
fn connect(server: &Rc<Simulated>, room: usize) -> MemoryEnd {
    connect_to(server, room, CLEAR_PORT)
}

fn connect_to(server: &Rc<Simulated>, room: usize, port: u16) -> MemoryEnd {
    let address = ([10, 0, 2, 1], 40_000).into();
    let (ours, theirs) = memory::pair(([10, 0, 0, 1], port).into(), address, room);
    let server = Rc::clone(server);
    tokio::task::spawn_local(async move {
        server.accept(Stream::from_memory(ours), Peer::Inet(address), port).await;
    });
    theirs
}

#[test]
fn a_refused_client_that_reads_nothing_does_not_stay() {
    scenario(10, async |server, _sim| {
        let client = connect(&server, 100);
        client.write_all(b"\x01 garbage\r\n\r\n").await.expect("written");
        sleep(Duration::from_secs(30)).await;
        assert_eq!(server.worker.conns.open(), 0);
        assert_eq!(server.worker.machine.counters.cut.get(), 1);
        drop(client);
    });
}

/// Connects a client of HTTP/2 with this window for each stream.
fn connect_h2(server: &Rc<Simulated>, room: usize, window_bytes: u32) -> H2End {
    let limits = Limits {
        stream_window_bytes: window_bytes,
        stream_window_bytes_max: window_bytes,
        conn_window_bytes: 65_535,
        ..Limits::default()
    };
    H2End::new(Connection::client(limits, now_ms()), Wire::plain(connect(server, room)))
}

/// Requests the file of this number.
fn request(end: &mut H2End, index: usize) -> StreamKey {
    let path = format!("/s/{index}");
    let parts = RequestParts {
        method: b"GET",
        scheme: b"http",
        authority: b"simulated",
        path: path.as_bytes(),
        protocol: None,
    };
    end.machine.open(&parts, &Fields::new(), true).expect("a stream")
}

/// Requests files on one connection of HTTP/2, which takes 4 KB in a second. Returns the number of
/// bytes received of each.
async fn read_slowly(server: &Rc<Simulated>, files: &[usize], window_bytes: u32) -> Vec<usize> {
    let mut end = connect_h2(server, 300, window_bytes);
    let keys: Vec<_> = files.iter().map(|index| request(&mut end, *index)).collect();
    let mut received = vec![0; files.len()];
    let mut left = files.len();
    while left > 0 && end.ended.is_none() {
        for news in end.turn(Duration::from_secs(1), false).await.expect("frames") {
            match news {
                News::Data { key, bytes, ends } => {
                    let nth = keys.iter().position(|known| *known == key).expect("a stream");
                    received[nth] += bytes.len();
                    end.machine.credit(key, bytes.len());
                    left -= usize::from(ends);
                }
                News::Reset { code, .. } => {
                    panic!("reset with {}, after {received:?}", code.name())
                }
                _ => {}
            }
        }
        sleep(Duration::from_millis(70)).await;
    }
    received
}

/// `server.max-write-idle` is 6 seconds. Streams are sent one after the other, and each waits for
/// much longer while the client takes the bytes of the others, or those already written.
#[test]
fn streams_of_a_slow_connection_are_not_timed_out_while_others_are_sent() {
    for (files, window_bytes) in [(&[5, 4][..], 65_535), (&[5, 5, 5], 16_000), (&[6], 300_000)] {
        scenario(10, async |server, _sim| {
            let received = read_slowly(&server, files, window_bytes).await;
            let lengths: Vec<_> = files.iter().map(|index| FILES[*index] as usize).collect();
            assert_eq!(received, lengths, "windows of {window_bytes} bytes");
            assert_eq!(server.worker.machine.counters.cut.get(), 0);
        });
    }
}

/// Time in which others are sent is no excuse for a client that opens no window.
#[test]
fn stream_without_a_window_is_timed_out_beside_others() {
    scenario(10, async |server, _sim| {
        let mut end = connect_h2(&server, 300, 20_000);
        let (kept, starved) = (request(&mut end, 6), request(&mut end, 5));
        let begun_ms = now_ms();
        let cut_ms = 'cut: loop {
            for news in end.turn(Duration::from_secs(1), false).await.expect("frames") {
                match news {
                    News::Data { key, bytes, .. } if key == kept => {
                        end.machine.credit(key, bytes.len());
                    }
                    News::Reset { key, .. } => {
                        assert_eq!(key, starved);
                        break 'cut now_ms() - begun_ms;
                    }
                    _ => {}
                }
            }
            sleep(Duration::from_millis(20)).await;
        };
        assert!((6_000..16_000).contains(&cut_ms), "{cut_ms} ms");
    });
}

/// The first response uses the connection's window up while the second one, of one byte, waits for
/// its turn: it is complete, and needs a window that a half-closed client cannot open.
#[test]
fn half_closed_client_without_a_window_does_not_stay() {
    for taken_bytes in [2_000, 18_000, 34_000, 50_000] {
        scenario(10, async |server, _sim| {
            let mut end = connect_h2(&server, 300, 300_000);
            request(&mut end, 6);
            let mut received = 0;
            while received < taken_bytes {
                for news in end.turn(Duration::from_secs(1), false).await.expect("frames") {
                    if let News::Data { bytes, .. } = news {
                        received += bytes.len();
                    }
                }
            }
            request(&mut end, 1);
            end.turn(Duration::from_millis(10), true).await.expect("frames");
            end.wire.shutdown_write().await;
            let limit_ms = now_ms() + 30_000;
            while end.ended.is_none() && now_ms() < limit_ms {
                end.turn(Duration::from_secs(1), false).await.expect("frames");
            }
            assert!(end.ended.is_some(), "still open, after {taken_bytes} bytes");
        });
    }
}

/// The response and its record's overhead fill the connection's buffer to its last bytes.
#[test]
fn response_that_fills_the_connection_is_followed_by_close_notify() {
    for room in (200..400).step_by(10) {
        scenario(10, async |server, sim| {
            let end = connect_to(&server, room, TLS_PORT);
            let wire = Wire::secure(end, &tls_client(&sim.root, &[]));
            let request = b"GET /s/2 HTTP/1.0\r\nHost: simulated\r\n\r\n";
            wire.write_all(request).await.expect("written");
            let (mut piece, mut count) = ([0; 1_000], 1);
            while count > 0 {
                // The server writes what there is room for.
                sleep(Duration::from_millis(10)).await;
                count = wire.read(&mut piece).await.expect("no reset");
            }
            assert!(!wire.is_truncated(), "room for {room} bytes");
        });
    }
}
