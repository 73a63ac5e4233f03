//! The output of a page.

use std::rc::Rc;

use bytes::Bytes;
use lighty_buf::{Chunk, ChunkQueue, FileRange, QUEUE_BYTES_MAX};
use lighty_core::Body;
use lighty_io::file::OpenFile;

use super::shared::{Fatal, PageState};

/// Maximum length of a run of text that is copied from the page. A file range of its own would cost
/// a system call.
const COPIED_BYTES_MAX: usize = 16 * 1024;

/// The response so far.
pub(super) struct PageOutput {
    queue: ChunkQueue<Rc<OpenFile>>,
    /// Bytes after the end of the queue.
    tail: Vec<u8>,
    run: Option<TextRun>,
    shared: Rc<PageState>,
}

/// Text of a page since its last command.
struct TextRun {
    file: Rc<OpenFile>,
    offset: u64,
    length: u64,
    /// The whole run, while it is short.
    copy: Vec<u8>,
}

impl PageOutput {
    pub(super) fn new(shared: &Rc<PageState>) -> Self {
        let shared = Rc::clone(shared);
        Self { queue: ChunkQueue::new(), tail: Vec::new(), run: None, shared }
    }

    /// Adds bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Fatal> {
        self.end_run()?;
        self.shared.charge(bytes.len())?;
        self.tail.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds text of a page, found at `offset` of its file.
    pub(super) fn push_text(&mut self, file: &Rc<OpenFile>, offset: u64, text: &[u8]) {
        let run = self.run.get_or_insert_with(|| TextRun {
            file: Rc::clone(file),
            offset,
            length: 0,
            copy: Vec::new(),
        });
        run.length += text.len() as u64;
        if run.length <= COPIED_BYTES_MAX as u64 {
            run.copy.extend_from_slice(text);
        }
    }

    /// Ends a run at the next command or the end of the page.
    pub(super) fn end_run(&mut self) -> Result<(), Fatal> {
        let Some(run) = self.run.take() else { return Ok(()) };
        if run.length <= COPIED_BYTES_MAX as u64 {
            return self.push(&run.copy);
        }
        self.push_file(&run.file, run.offset, run.length)
    }

    /// Adds a part of a file.
    pub(super) fn push_file(
        &mut self,
        file: &Rc<OpenFile>,
        offset: u64,
        length: u64,
    ) -> Result<(), Fatal> {
        self.end_run()?;
        self.end_tail();
        if !self.queue.has_room_for(length) {
            let message = format!("a response of more than {QUEUE_BYTES_MAX} bytes");
            return Err(Fatal::limit(message));
        }
        self.queue.push_file(FileRange { file: Rc::clone(file), offset, length });
        Ok(())
    }

    /// Adds bytes in memory; charges them to the memory limit if `is_new`.
    pub(super) fn push_shared(&mut self, bytes: Bytes, is_new: bool) -> Result<(), Fatal> {
        self.end_run()?;
        if is_new {
            self.shared.charge(bytes.len())?;
        }
        if bytes.len() <= COPIED_BYTES_MAX {
            self.tail.extend_from_slice(&bytes);
        } else {
            self.end_tail();
            self.queue.push_bytes(bytes);
        }
        Ok(())
    }

    /// Adds a chunk of any kind.
    pub(super) fn push_chunk(
        &mut self,
        chunk: Chunk<Rc<OpenFile>>,
        is_new: bool,
    ) -> Result<(), Fatal> {
        match chunk {
            Chunk::Memory(bytes) => self.push_shared(bytes, is_new),
            Chunk::File(range) => self.push_file(&range.file, range.offset, range.length),
        }
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.queue.push_bytes(std::mem::take(&mut self.tail).into());
        }
    }

    /// Returns the response's body. Every run must have ended.
    pub(super) fn into_body(mut self) -> Body {
        if self.queue.is_empty() {
            return match self.tail.is_empty() {
                true => Body::Empty,
                false => Body::Memory(self.tail.into()),
            };
        }
        self.end_tail();
        Body::Chunks(self.queue)
    }
}
