//! Sizes and ranges, cold and warm.

use super::bed::{SendTestBed, connect, for_all, for_backend, joined, pattern, queue_of};
use crate::send::{NetworkBackend, SendState};
use std::cell::Cell;
use std::io::Read;

const SIZES: [usize; 8] = [0, 1, 4_095, 4_096, 4_097, 102_400, 1_048_577, 10_485_760];

#[test]
fn every_backend_sends_every_size_cold_and_warm() {
    for_all(async |bed| {
        for bytes in SIZES {
            let file = bed.cold_file("file", bytes).await;
            for temperature in ["cold", "warm"] {
                let mut queue = queue_of("head\n", &file, &[(0, bytes as u64)]);
                queue.push_bytes(bytes::Bytes::from_static(b"\ntail"));
                let got = bed.deliver(&mut queue).await.expect("sent");
                let what = format!("{} {bytes} {temperature}", bed.sender.backend());
                assert_eq!(got.len(), bytes + 10, "{what}");
                assert!(got.starts_with(b"head\n") && got.ends_with(b"\ntail"), "{what}");
                assert!(got[5..5 + bytes] == *pattern(0, bytes), "{what}: other bytes");
            }
        }
        let counters = bed.sender.counters();
        let all: usize = SIZES.iter().map(|bytes| 2 * (bytes + 10)).sum();
        assert_eq!(counters.bytes.get(), all as u64);
    });
}

#[test]
fn unaligned_ranges_in_any_order() {
    const BYTES: usize = 3 << 20;
    let last = BYTES as u64 - 1;
    let ranges = [
        (1, 1),
        (4_095, 2),
        (4_097, 100_003),
        (last, 1),
        (524_287, 2),
        (524_289, 1_572_865),
        (0, 1),
        (last - 5_000, 5_001),
    ];
    for_all(async |bed| {
        let file = bed.cold_file("file", BYTES).await;
        let mut queue = queue_of("", &file, &ranges);
        let got = bed.deliver(&mut queue).await.expect("sent");
        let mut expected: Vec<u8> = Vec::new();
        for (offset, length) in ranges {
            expected.extend(pattern(offset, length as usize));
        }
        assert!(got == expected, "{}", bed.sender.backend());
    });
}

#[test]
fn several_files_in_one_queue() {
    for_all(async |bed| {
        let first = bed.cold_file("first", 700_001).await;
        let second = bed.cold_file("second", 5_000).await;
        let mut queue = queue_of("a", &first, &[(0, 700_001)]);
        queue.append(&mut queue_of("b", &second, &[(0, 5_000)]));
        queue.append(&mut queue_of("c", &first, &[(699_990, 11)]));
        let got = bed.deliver(&mut queue).await.expect("sent");
        let expected =
            [&b"a"[..], pattern(0, 700_001), b"b", pattern(0, 5_000), b"c", pattern(699_990, 11)];
        assert!(got == expected.concat(), "{}", bed.sender.backend());
    });
}

const SPARSE_BYTES: u64 = 5 << 30;

fn make_sparse(bed: &SendTestBed) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(bed.path("sparse")).expect("create");
    file.set_len(SPARSE_BYTES).expect("set_len");
    file.write_all_at(b"first", 0).expect("write");
    file.write_all_at(b"last", SPARSE_BYTES - 4).expect("write");
}

#[test]
fn both_ends_of_five_sparse_gigabytes() {
    const MIB: u64 = 1 << 20;
    for_all(async |bed| {
        make_sparse(&bed);
        let file = bed.open("sparse").await;
        let mut queue = queue_of("", &file, &[(0, MIB), (SPARSE_BYTES - MIB, MIB)]);
        let got = bed.deliver(&mut queue).await.expect("sent");
        assert_eq!(got.len() as u64, 2 * MIB);
        assert!(got.starts_with(b"first") && got.ends_with(b"last"));
        assert_eq!(got.iter().filter(|byte| **byte != 0).count(), 9);
    });
}

#[test]
fn five_gigabytes_in_one_piece() {
    for_backend(NetworkBackend::Auto, async |bed| {
        // The ring reads the same way; once is enough for so much.
        if bed.engine.report().name != "threads" {
            return;
        }
        make_sparse(&bed);
        let file = bed.open("sparse").await;
        let mut queue = queue_of("", &file, &[(0, SPARSE_BYTES)]);
        let (stream, mut client) = connect(None);
        let client = std::thread::spawn(move || {
            let (mut count, mut buffer) = (0_u64, vec![0; 1 << 20]);
            loop {
                match client.read(&mut buffer).expect("read") {
                    0 => return count,
                    bytes => count += bytes as u64,
                }
            }
        });
        let progress = Cell::new(0);
        let sent = bed.sender.send(&stream, &mut queue, u64::MAX, &progress).await;
        assert_eq!(sent.expect("sent"), SPARSE_BYTES);
        drop(stream);
        assert_eq!(joined(client).await, SPARSE_BYTES);
    });
}

#[test]
fn a_budget_is_kept_to_the_byte() {
    for_all(async |bed| {
        let file = bed.cold_file("file", 2_000_000).await;
        let mut queue = queue_of("0123456789", &file, &[(0, 2_000_000)]);
        let (stream, client) = connect(None);
        let client = super::bed::read_to_end(client);
        let mut sent = 0;
        for budget in [0, 1, 9, 1, 4_096, 600_000, 524_289] {
            let progress = Cell::new(0);
            let now = bed.sender.send(&stream, &mut queue, budget, &progress).await;
            assert_eq!((now.expect("sent"), progress.get()), (budget, budget));
            sent += budget;
            assert_eq!(queue.len_bytes(), 2_000_010 - sent);
        }
        let progress = Cell::new(0);
        bed.sender.send(&stream, &mut queue, u64::MAX, &progress).await.expect("rest");
        drop(stream);
        let got = joined(client).await;
        assert!(got[10..] == *pattern(0, 2_000_000), "{}", bed.sender.backend());
    });
}

#[test]
fn one_turn_has_an_end_and_cold_data_are_not_waited_for() {
    for_backend(NetworkBackend::Auto, async |bed| {
        let (stream, client) = connect(None);
        let _client = super::bed::read_to_end(client);
        stream.writable().await.expect("writable");
        let file = bed.file("file", 3 << 20).await;
        let mut queue = queue_of("head", &file, &[(0, 100)]);
        let sent = bed.sender.try_send(&stream, &mut queue, 103).expect("sent");
        assert_eq!((sent.bytes, sent.state), (103, SendState::Spent));
        let sent = bed.sender.try_send(&stream, &mut queue, 104).expect("sent");
        assert_eq!((sent.bytes, sent.state), (1, SendState::Done));
        assert_eq!(bed.sender.try_send(&stream, &mut queue, 1).expect("sent").bytes, 0);

        bed.chill(&file);
        if bed.engine.resident(&file, 0, 1) == crate::file::Resident::Yes {
            return eprintln!("this file system has nothing but memory");
        }
        let mut queue = queue_of("head", &file, &[(0, 3 << 20)]);
        let sent = bed.sender.try_send(&stream, &mut queue, u64::MAX).expect("sent");
        assert_eq!((sent.bytes, sent.state), (4, SendState::NeedsDisk));
        assert_eq!(bed.sender.counters().async_reads.get(), 0);
        let progress = Cell::new(0);
        bed.sender.send(&stream, &mut queue, u64::MAX, &progress).await.expect("sent");
        let counters = bed.sender.counters();
        assert!(counters.async_reads.get() > 0 && counters.read_wait_us.get() > 0);
        assert_eq!(counters.sendfile_bytes.get(), (3 << 20) + 100, "no byte was copied");
    });
}
