//! `gthread-aio`: each `pread` is a job in the thread pool.

use std::os::fd::AsFd;

use super::copy::read_at;
use super::disk::ReadResult;
use super::{File, Sender};
use crate::clock::Stopwatch;
use crate::file::OwnedBuf;
use crate::threads::pool::Lane;

impl Sender {
    /// Reads in the pool. The job holds the file's descriptor, so it cannot end up with another
    /// file if the connection closes.
    pub(super) async fn read_in_pool(
        &self,
        file: &File,
        offset: u64,
        mut buf: OwnedBuf,
    ) -> ReadResult {
        let fd = file.share_fd();
        let since = Stopwatch::start();
        let job = move || {
            let queued_us = since.us();
            let result = read_at(fd.as_fd(), offset, &mut buf);
            (queued_us, (buf, result))
        };
        match self.0.pool.run_while_wanted(read_lane(file), job).await {
            Ok((queued_us, done)) => {
                self.counters().waited_for_thread(queued_us);
                done
            }
            Err(error) => (OwnedBuf::Heap(Vec::new()), Err(error)),
        }
    }
}

/// Separate lanes, so that a stalled remote file system does not occupy the threads for local ones.
pub(super) fn read_lane(file: &File) -> Lane {
    if file.sendfile_may_block() { Lane::ReadRemote } else { Lane::Read }
}
