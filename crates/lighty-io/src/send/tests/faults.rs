//! Disks that fail, stall, or return short reads.

use super::bed::{connect, for_all, for_backend, pattern, queue_of};
use crate::file::{Fault, FaultOp, FaultPlan, FaultRule};
use crate::send::NetworkBackend;
use std::cell::Cell;
use std::time::Duration;

const BYTES: usize = 1_200_000;

/// The backends that read through the file engine.
const THROUGH_ENGINE: [NetworkBackend; 2] = [NetworkBackend::Auto, NetworkBackend::IoUring];

#[test]
fn an_error_of_the_disk_is_the_error_of_the_send() {
    for backend in THROUGH_ENGINE {
        for_backend(backend, async |bed| {
            let file = bed.cold_file("file", BYTES).await;
            let rule = FaultRule::every(FaultOp::Read, Fault::Errno(libc::EIO));
            for skip in [0, 1] {
                let rule = FaultRule { skip, ..rule.clone() };
                bed.engine.set_faults(Some(FaultPlan::new([rule])));
                let error = bed.deliver(&mut queue_of("", &file, &[(0, BYTES as u64)])).await;
                assert_eq!(error.expect_err("EIO").raw_os_error(), Some(libc::EIO), "{backend}");
            }
            bed.engine.set_faults(None);
            let got = bed.deliver(&mut queue_of("", &file, &[(0, BYTES as u64)])).await;
            assert!(got.expect("sent") == pattern(0, BYTES), "{backend}");
        });
    }
}

#[test]
fn short_and_late_reads_lose_nothing() {
    for backend in THROUGH_ENGINE {
        for_backend(backend, async |bed| {
            let file = bed.cold_file("file", 60_000).await;
            for fault in [Fault::Short(999), Fault::Delay(Duration::from_millis(1))] {
                let plan = FaultPlan::new([FaultRule::every(FaultOp::Read, fault)]);
                bed.engine.set_faults(Some(plan.clone()));
                let got = bed.deliver(&mut queue_of("", &file, &[(0, 60_000)])).await;
                assert!(got.expect("sent") == pattern(0, 60_000), "{backend} {fault:?}");
                assert!(plan.bitten() > 0, "{backend} {fault:?}");
            }
        });
    }
}

#[test]
fn a_read_that_never_returns_stops_one_client_only() {
    for backend in THROUGH_ENGINE {
        for_backend(backend, async |bed| {
            let stuck = bed.cold_file("stuck", BYTES).await;
            let fine = bed.cold_file("fine", BYTES).await;
            let rule = FaultRule {
                ino: Some(stuck.meta().ino),
                ..FaultRule::every(FaultOp::Read, Fault::Never)
            };
            bed.engine.set_faults(Some(FaultPlan::new([rule])));
            let (stream, _client) = connect(None);
            let mut queue = queue_of("head", &stuck, &[(0, BYTES as u64)]);
            let progress = Cell::new(0);
            let mut sending = Box::pin(bed.sender.send(&stream, &mut queue, u64::MAX, &progress));
            tokio::select! {
                ended = &mut sending => panic!("{backend}: {ended:?}"),
                got = async { bed.deliver(&mut queue_of("", &fine, &[(0, BYTES as u64)])).await } => {
                    assert!(got.expect("sent") == pattern(0, BYTES), "{backend}");
                }
            }
            drop(sending);
            assert_eq!((progress.get(), queue.len_bytes()), (4, BYTES as u64), "{backend}");
        });
    }
}

/// Dropping a send at any moment has no effect on the next client.
#[test]
fn a_send_can_be_dropped_at_any_point() {
    for_all(async |bed| {
        let file = bed.file("file", BYTES).await;
        for polls in 0..12 {
            bed.chill(&file);
            let (stream, _client) = connect(Some(4_096));
            let mut queue = queue_of("", &file, &[(0, BYTES as u64)]);
            let progress = Cell::new(0);
            let mut sending = Box::pin(bed.sender.send(&stream, &mut queue, u64::MAX, &progress));
            for _ in 0..polls {
                tokio::select! {
                    biased;
                    ended = &mut sending => panic!("{ended:?}"),
                    () = tokio::task::yield_now() => {}
                }
            }
            drop(sending);
            assert_eq!(queue.len_bytes() + progress.get(), BYTES as u64);
        }
        let got = bed.deliver(&mut queue_of("", &file, &[(0, BYTES as u64)])).await;
        assert!(got.expect("sent") == pattern(0, BYTES), "{}", bed.sender.backend());
    });
}
