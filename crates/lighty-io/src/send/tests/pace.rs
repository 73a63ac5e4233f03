//! Slow, vanishing and numerous clients.

use super::bed::{
    SendTestBed, connect, for_all, joined, on_worker, pattern, queue_of, read_to_end,
};
use crate::file::{EngineChoice, Fault, FaultOp, FaultPlan, FaultRule};
use crate::send::buffered::SPARE_BUFFER_BYTES;
use crate::send::{NetworkBackend, SendOptions, TURN_PIECES_MAX};
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
fn a_reader_that_resets_hurts_no_other_client() {
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
                let bed = SendTestBed::new(EngineChoice::Threads, options).await.expect("bed");
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
            // The other end does not read, so the send cannot end, but the socket buffer fills up.
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

/// Each piece is a system call or more, however few bytes it has.
#[test]
fn many_small_files_leave_turns_to_others() {
    const FILES: usize = 1_000;
    for_all(async |bed| {
        let file = bed.file("file", 10 * FILES).await;
        let ranges: Vec<_> = (0..FILES as u64).map(|nth| (10 * nth, 10)).collect();
        let mut queue = queue_of("", &file, &ranges);
        let (stream, client) = connect(None);
        let client = read_to_end(client);
        let (progress, mut turns) = (Cell::new(0), 0);
        {
            let mut sending = Box::pin(bed.sender.send(&stream, &mut queue, u64::MAX, &progress));
            let sent = std::future::poll_fn(|cx| {
                turns += 1;
                sending.as_mut().poll(cx)
            });
            assert_eq!(sent.await.expect("sent"), 10 * FILES as u64);
        }
        drop(stream);
        assert!(joined(client).await == pattern(0, 10 * FILES), "{}", bed.sender.backend());
        let least = FILES / TURN_PIECES_MAX as usize;
        assert!(turns >= least, "{}: {turns} turns", bed.sender.backend());
    });
}

const CHUNK_BYTES: u64 = 65_536;
const THREE_CHUNKS: u64 = 3 * CHUNK_BYTES - 1;

/// Sends three chunks through buffers. Returns the number of reads of the engine, and the number of
/// bytes read.
async fn reads_for_three_chunks(
    backend: NetworkBackend,
    buffers_max: usize,
    cold: bool,
) -> [u64; 2] {
    let options = SendOptions {
        backend,
        buffers_max,
        read_chunk_bytes: CHUNK_BYTES as usize,
        ..SendOptions::default()
    };
    let bed = SendTestBed::new(EngineChoice::Threads, options).await.expect("bed");
    let file = bed.file("file", THREE_CHUNKS as usize).await;
    if cold {
        // Data covered by a rule counts as not resident, even if the rule has no effect.
        let rule = FaultRule::every(FaultOp::Read, Fault::Errno(libc::EIO));
        bed.engine.set_faults(Some(FaultPlan::new([FaultRule { times: 0, ..rule }])));
    }
    let got = bed.deliver(&mut queue_of("", &file, &[(0, THREE_CHUNKS)])).await.expect("sent");
    assert!(got == pattern(0, THREE_CHUNKS as usize), "{backend} {buffers_max}");
    let counters = bed.engine.counters();
    [counters.async_reads.get(), counters.bytes.get()]
}

/// If all buffers are taken, the disk is still read in whole chunks, each once.
#[test]
fn without_a_buffer_a_chunk_is_brought_in_whole_and_sent_in_pieces() {
    let pieces = THREE_CHUNKS.div_ceil(SPARE_BUFFER_BYTES as u64);
    let ring = NetworkBackend::IoUring;
    let cases = [
        (ring, 4, true, [3, THREE_CHUNKS]),
        (ring, 0, true, [3 + pieces, 2 * THREE_CHUNKS]),
        // In memory: the pieces are copied directly.
        (ring, 0, false, [0, THREE_CHUNKS]),
        // These backends' own reads bypass the engine.
        (NetworkBackend::GthreadAio, 4, true, [0, 0]),
        (NetworkBackend::GthreadAio, 0, true, [3, THREE_CHUNKS]),
        (NetworkBackend::GthreadAio, 0, false, [0, THREE_CHUNKS]),
        (NetworkBackend::PosixAio, 0, true, [3, THREE_CHUNKS]),
        (NetworkBackend::PosixAio, 0, false, [0, THREE_CHUNKS]),
    ];
    for (backend, buffers_max, cold, expected) in cases {
        if backend.available().is_ok() {
            let reads = on_worker(reads_for_three_chunks(backend, buffers_max, cold));
            assert_eq!(reads, expected, "{backend}, {buffers_max} buffers, cold: {cold}");
        }
    }
}
