//! `gthread-aio`: one `pread` is one job of the thread pool.

use std::os::fd::AsFd;

use super::copy::read_at;
use super::disk::ReadResult;
use super::{File, Sender};
use crate::file::OwnedBuf;
use crate::pool::Lane;

impl Sender {
    /// Reads in the pool. The job holds the file's descriptor, so that a connection that goes
    /// away leaves nothing behind that could be mistaken for another file.
    pub(super) async fn read_in_pool(
        &self,
        file: &File,
        offset: u64,
        mut buf: OwnedBuf,
    ) -> ReadResult {
        let fd = file.share_fd();
        let job = move || {
            let result = read_at(fd.as_fd(), offset, &mut buf);
            (buf, result)
        };
        match self.0.pool.run_while_wanted(read_lane(file), job).await {
            Ok(done) => done,
            Err(error) => (OwnedBuf::Heap(Vec::new()), Err(error)),
        }
    }
}

/// A stalled remote file system must not take the threads of the local ones.
pub(super) fn read_lane(file: &File) -> Lane {
    if file.sendfile_may_block() { Lane::ReadRemote } else { Lane::Read }
}
