//! Files that change while they are sent.

use super::bed::{connect, for_all, joined, pattern, queue_of, read_to_end};
use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};

const BYTES: usize = 4 << 20;
const BEFORE: u64 = 700_000;

#[test]
fn a_file_that_shrinks_ends_the_response_and_is_not_padded() {
    for_all(async |bed| {
        for shrunk in [2_000_123, BEFORE, 0] {
            let file = bed.cold_file("file", BYTES).await;
            let mut queue = queue_of("", &file, &[(0, BYTES as u64)]);
            let (stream, client) = connect(None);
            let client = read_to_end(client);
            let progress = Cell::new(0);
            bed.sender.send(&stream, &mut queue, BEFORE, &progress).await.expect("so far");
            let other = OpenOptions::new().write(true).open(bed.path("file")).expect("open");
            other.set_len(shrunk).expect("truncate");
            let sent = bed.sender.send(&stream, &mut queue, u64::MAX, &progress).await;
            let what = format!("{} to {shrunk}", bed.sender.backend());
            let error = sent.expect_err(&what);
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{what}: {error}");
            drop(stream);
            let got = joined(client).await;
            assert_eq!(got.len() as u64, progress.get(), "{what}");
            // Data read ahead before the truncation may still be sent.
            assert!(got.len() as u64 >= shrunk.min(BEFORE) && got.len() < BYTES, "{what}");
            assert!(got == pattern(0, got.len()), "{what}: other bytes");
        }
    });
}

#[test]
fn of_a_file_that_grows_only_what_was_announced_is_sent() {
    for_all(async |bed| {
        let file = bed.cold_file("file", 10_001).await;
        let mut other = OpenOptions::new().append(true).open(bed.path("file")).expect("open");
        other.write_all(&[b'x'; 100_000]).expect("append");
        let got = bed.deliver(&mut queue_of("", &file, &[(0, 10_001)])).await.expect("sent");
        assert!(got == pattern(0, 10_001), "{}", bed.sender.backend());
    });
}

#[test]
fn a_file_that_is_replaced_is_sent_as_it_was() {
    for_all(async |bed| {
        let file = bed.cold_file("file", BYTES).await;
        let mut queue = queue_of("", &file, &[(0, BYTES as u64)]);
        let (stream, client) = connect(None);
        let client = read_to_end(client);
        let progress = Cell::new(0);
        bed.sender.send(&stream, &mut queue, BEFORE, &progress).await.expect("so far");
        std::fs::write(bed.path("new"), vec![b'n'; BYTES]).expect("write");
        std::fs::rename(bed.path("new"), bed.path("file")).expect("rename");
        bed.sender.send(&stream, &mut queue, u64::MAX, &progress).await.expect("the rest");
        drop(stream);
        assert!(joined(client).await == pattern(0, BYTES), "{}", bed.sender.backend());
    });
}
