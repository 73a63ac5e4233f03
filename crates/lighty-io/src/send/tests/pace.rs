//! Clients that are slow, that leave, and that are many.

use super::bed::{Bed, connect, for_all, joined, on_worker, pattern, queue_of, read_to_end};
use crate::file::EngineChoice;
use crate::send::{NetworkBackend, SendOptions};
use std::cell::Cell;
use std::io::Read;

#[test]
fn a_slow_reader_gets_every_byte() {
    const BYTES: usize = 1_500_000;
    for_all(async |bed| {
        let file = bed.cold_file("file", BYTES).await;
        let mut queue = queue_of("head", &file, &[(0, BYTES as u64)]);
        let (stream, mut client) = connect(Some(2_048));
        let client = std::thread::spawn(move || {
            let (mut got, mut bit) = (Vec::new(), [0; 1_000]);
            loop {
                match client.read(&mut bit).expect("read") {
                    0 => return got,
                    bytes => got.extend_from_slice(&bit[..bytes]),
                }
            }
        });
        let progress = Cell::new(0);
        bed.sender.send(&stream, &mut queue, u64::MAX, &progress).await.expect("sent");
        drop(stream);
        let got = joined(client).await;
        assert!(got[4..] == *pattern(0, BYTES), "{}", bed.sender.backend());
    });
}

#[test]
fn a_reader_that_resets_hurts_nobody_else() {
    const BYTES: usize = 8 << 20;
    for_all(async |bed| {
        let file = bed.cold_file("file", BYTES).await;
        let mut queue = queue_of("", &file, &[(0, BYTES as u64)]);
        let (stream, mut client) = connect(Some(4_096));
        let leaver = std::thread::spawn(move || {
            client.read_exact(&mut [0; 10_000]).expect("read");
            let reset = Some(std::time::Duration::ZERO);
            socket2::SockRef::from(&client).set_linger(reset).expect("SO_LINGER");
        });
        let progress = Cell::new(0);
        let error = bed.sender.send(&stream, &mut queue, u64::MAX, &progress).await;
        let error = error.expect_err("reset").kind();
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        assert!(matches!(error, BrokenPipe | ConnectionReset), "{error}");
        leaver.join().expect("leaver");
        let got = bed.deliver(&mut queue_of("", &file, &[(0, 9_000)])).await.expect("sent");
        assert!(got == pattern(0, 9_000), "{}", bed.sender.backend());
    });
}

/// More clients than buffers, request slots or threads.
#[test]
fn many_clients_share_little() {
    const BYTES: usize = 300_001;
    for backend in NetworkBackend::ALL {
        if backend.available().is_err() {
            continue;
        }
        for buffers_max in [0, 1, 2] {
            let options =
                SendOptions { backend, buffers_max, aio_requests_max: 1, read_chunk_bytes: 65_536 };
            on_worker(async {
                let bed = Bed::new(EngineChoice::Threads, options).await.expect("bed");
                let file = bed.cold_file("file", BYTES).await;
                let send = async || {
                    let mut queue = queue_of("", &file, &[(0, BYTES as u64)]);
                    bed.deliver(&mut queue).await.expect("sent")
                };
                let got = tokio::join!(send(), send(), send(), send(), send());
                for got in [got.0, got.1, got.2, got.3, got.4] {
                    assert!(got == pattern(0, BYTES), "{backend} {buffers_max}");
                }
            });
        }
    }
}

#[test]
fn progress_is_seen_while_sending() {
    for_all(async |bed| {
        if bed.sender.backend() == NetworkBackend::GthreadSendfile {
            // A thread may go on sending after the drop below.
            return;
        }
        let file = bed.file("file", 4 << 20).await;
        let mut queue = queue_of("", &file, &[(0, 4 << 20)]);
        let (stream, mut client) = connect(Some(4_096));
        let progress = Cell::new(0);
        let seen = {
            let mut sending = Box::pin(bed.sender.send(&stream, &mut queue, u64::MAX, &progress));
            // Nobody reads yet, so it cannot end; but what fits into the socket goes.
            loop {
                tokio::select! {
                    biased;
                    ended = &mut sending => panic!("{ended:?}"),
                    () = tokio::task::yield_now() => {}
                }
                if progress.get() > 0 {
                    break progress.get();
                }
            }
        };
        assert_eq!(queue.len_bytes(), (4 << 20) - seen, "the queue tells the same");
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; seen as usize];
            client.read_exact(&mut got).expect("read");
            (client, got)
        });
        let (client, got) = joined(reader).await;
        assert!(got == pattern(0, seen as usize));
        let rest = read_to_end(client);
        bed.sender.send(&stream, &mut queue, u64::MAX, &progress).await.expect("the rest");
        drop(stream);
        let rest = joined(rest).await;
        assert_eq!(rest.len() as u64, (4 << 20) - seen, "{}", bed.sender.backend());
        assert!(rest == pattern(seen, rest.len()), "{}", bed.sender.backend());
    });
}
