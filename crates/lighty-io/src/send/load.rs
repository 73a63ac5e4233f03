//! File data for protocols that frame it: loads it into memory, through the page cache, whatever
//! the network backend.

use std::io;

use lighty_buf::{Chunk, ChunkQueue};

use super::disk::Disk;
use super::socket::shrank;
use super::{File, Sender, disk};
use crate::file::OwnedBuf;

/// Bytes loaded into memory at a time.
pub const LOAD_BYTES_MAX: usize = 128 << 10;

/// Bytes loaded at a time when all pooled buffers are taken.
const SPARE_BUFFER_BYTES: usize = super::buffered::SPARE_BUFFER_BYTES;

/// State of a response's loads; empty until one was not in memory.
#[derive(Default)]
pub struct ResponseLoading(Option<Box<Disk>>);

impl Sender {
    /// Replaces the beginning of the file at the front of the queue, at most `want` bytes, by its
    /// contents. `false` if they must first be read from the disk: [`load`](Self::load).
    ///
    /// # Errors
    /// Errors of the file; `UnexpectedEof` if it has shrunk.
    pub fn try_load(
        &self,
        loading: &mut ResponseLoading,
        queue: &mut ChunkQueue<File>,
        want: usize,
    ) -> io::Result<bool> {
        let Some(Chunk::File(range)) = queue.front() else { return Ok(true) };
        let length = usize::try_from(range.length).unwrap_or(usize::MAX);
        let want = want.min(length).min(LOAD_BYTES_MAX);
        let mut buf = match self.0.buffers.take(want as u64) {
            Some(buf) => OwnedBuf::Pooled(buf),
            None => OwnedBuf::zeroed(want.min(SPARE_BUFFER_BYTES)),
        };
        let Some(read) = self.0.engine.try_read(&range.file, range.offset, &mut buf) else {
            return Ok(false);
        };
        let bytes = read?;
        if bytes == 0 {
            return Err(shrank());
        }
        self.counters().sync_read();
        if let Some(disk) = &mut loading.0 {
            self.warm_next(disk, range);
        }
        debug_assert!(bytes <= want, "{bytes} of {want}");
        queue.advance(bytes as u64);
        queue.push_front(Chunk::Memory(super::buffered::freeze(buf, bytes)));
        Ok(true)
    }

    /// Like [`try_load`](Self::try_load), from the disk. The data after it is read ahead meanwhile.
    ///
    /// # Errors
    /// As for [`try_load`](Self::try_load).
    pub async fn load(
        &self,
        loading: &mut ResponseLoading,
        queue: &mut ChunkQueue<File>,
        want: usize,
    ) -> io::Result<()> {
        let Some(range) = disk::front_file(queue) else { return Ok(()) };
        let disk = loading.0.get_or_insert_default();
        disk.turn_to(&range.file);
        let is_warm = !range.file.sendfile_may_block() && self.warm_front(disk, &range).await?;
        if is_warm && self.try_load(loading, queue, want)? {
            return Ok(());
        }
        // It does not stay in the page cache, or its residency cannot be queried.
        let disk = loading.0.get_or_insert_default();
        let want = want.min(LOAD_BYTES_MAX) as u64;
        self.fill_buffer(disk, queue, range, want).await
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use lighty_buf::FileRange;

    use super::*;
    use crate::file::{EngineChoice, EngineLimits, FileEngine, Follow};
    use crate::send::SendOptions;
    use crate::threads::pool::ThreadPool;

    #[tokio::test(flavor = "local")]
    async fn a_file_comes_in_pieces_from_memory_or_from_the_disk() {
        let directory = tempfile::tempdir().expect("a directory");
        let content: Vec<u8> = (0..300_000u32).map(|nth| (nth % 251) as u8).collect();
        std::fs::write(directory.path().join("a"), &content).expect("a file");
        let engine = FileEngine::start(EngineChoice::Threads, EngineLimits::default());
        let engine = engine.expect("an engine");
        let root = engine.open_root(directory.path()).await.expect("a root");
        let file = engine.open(&root, b"a", Follow::All, false).await.expect("a file");
        let pool = ThreadPool::global().clone();
        let sender = Sender::start(engine, pool, SendOptions::default()).expect("a sender");
        for from_disk in [false, true] {
            let mut queue = ChunkQueue::new();
            queue.push_file(FileRange { file: Rc::clone(&file), offset: 7, length: 299_993 });
            let (mut loading, mut heard) = (ResponseLoading::default(), Vec::new());
            while !queue.is_empty() {
                let is_there = !from_disk
                    && sender.try_load(&mut loading, &mut queue, 100_000).expect("readable");
                if !is_there {
                    sender.load(&mut loading, &mut queue, 100_000).await.expect("readable");
                }
                let Some(Chunk::Memory(bytes)) = queue.pop_front() else { panic!("memory") };
                assert!(bytes.len() <= 100_000);
                heard.extend_from_slice(&bytes);
            }
            assert!(heard == content[7..], "from the disk: {from_disk}");
        }
        let mut beyond = ChunkQueue::new();
        beyond.push_file(FileRange { file, offset: 300_000, length: 1 });
        let error =
            sender.try_load(&mut ResponseLoading::default(), &mut beyond, 1).expect_err("shorter");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
