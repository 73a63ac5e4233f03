//! Bodies in files of their own: written while they arrive, named once they are complete.
//!
//! Behind the body, a file has the checksums of its blocks, and a checksum of these.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_io::file::store_dir::{StoreDir, StoreFile};

use super::segment::BodyFile;
use crate::sums::{BLOCK_BYTES, sum_of_sums};

/// Files that are kept open while nothing reads them.
const OPEN_MAX: usize = 256;

/// The name of a file.
pub(super) fn name(number: u64) -> String {
    format!("large/{:02x}/{number:016x}", number & 0xFF)
}

/// The number in a file's name, without its directory.
pub(super) fn number(file: &str) -> Option<u64> {
    let number = u64::from_str_radix(file, 16).ok()?;
    Some(number).filter(|number| format!("{number:016x}") == file)
}

/// The name of a file that is incomplete.
pub(super) fn part_name(number: u64) -> String {
    format!("part/{number:016x}")
}

/// A body that is being written.
#[derive(Debug)]
pub(crate) struct LargeWriter {
    pub(crate) number: u64,
    body: Arc<BodyFile>,
    written: u64,
    sums: Vec<u32>,
    /// Checksum of the incomplete last block.
    sum: u32,
}

impl LargeWriter {
    /// Creates the file.
    pub(super) fn create(dir: &StoreDir, number: u64) -> io::Result<Self> {
        let file = dir.create_new_file(&part_name(number))?;
        let body = Arc::new(BodyFile { file });
        Ok(Self { number, body, written: 0, sums: Vec::new(), sum: 0 })
    }

    /// The file.
    pub(crate) fn body(&self) -> &Arc<BodyFile> {
        &self.body
    }

    /// Bytes written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.body.file.write_all_at(bytes, self.written)?;
        self.written += bytes.len() as u64;
        let mut filled = (self.written - bytes.len() as u64) as usize % BLOCK_BYTES;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - filled));
            self.sum = crc32c::crc32c_append(self.sum, now);
            filled += now.len();
            bytes = later;
            if filled == BLOCK_BYTES {
                self.sums.push(std::mem::take(&mut self.sum));
                filled = 0;
            }
        }
        Ok(())
    }

    /// Adds the checksums, and gives the file its name. Returns also the checksums, and theirs.
    pub(super) fn finish(mut self, dir: &StoreDir) -> io::Result<(Arc<BodyFile>, Box<[u32]>, u32)> {
        if !self.written.is_multiple_of(BLOCK_BYTES as u64) {
            self.sums.push(self.sum);
        }
        let mut trailer: Vec<u8> = self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let sum = sum_of_sums(&self.sums);
        trailer.extend_from_slice(&sum.to_le_bytes());
        self.body.file.write_all_at(&trailer, self.written)?;
        dir.rename(&part_name(self.number), &name(self.number))?;
        Ok((self.body, self.sums.into(), sum))
    }
}

/// Reads the checksums of a body's blocks.
///
/// # Errors
/// The system's error, or the file is not the one that was written.
pub(super) fn read_sums(file: &StoreFile, length: u64, sum: u32) -> io::Result<Box<[u32]>> {
    let damaged = || {
        let text = "the checksums of a stored body are damaged";
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let blocks = usize::try_from(length.div_ceil(BLOCK_BYTES as u64)).map_err(|_| damaged())?;
    let trailer = blocks.checked_mul(4).and_then(|bytes| bytes.checked_add(4));
    let trailer = trailer.ok_or_else(damaged)?;
    if file.length()? != length + trailer as u64 {
        return Err(damaged());
    }
    let bytes = file.read_range(length, trailer)?;
    let (sums, last) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
    if crc32c::crc32c(sums) != sum || u32::from_le_bytes(*last) != sum {
        return Err(damaged());
    }
    let (sums, _) = sums.as_chunks::<4>();
    Ok(sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect())
}

/// The files that are open.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Mutex<HashMap<u64, Arc<BodyFile>, foldhash::fast::RandomState>>);

impl OpenFiles {
    /// Opens a file, unless it is open.
    pub(super) fn open(&self, dir: &StoreDir, number: u64) -> io::Result<Arc<BodyFile>> {
        if let Some(body) = self.lock().get(&number) {
            return Ok(Arc::clone(body));
        }
        let body = Arc::new(BodyFile { file: dir.open_file(&name(number))? });
        self.keep(number, &body);
        Ok(body)
    }

    /// Keeps a file open.
    pub(super) fn keep(&self, number: u64, body: &Arc<BodyFile>) {
        let mut open = self.lock();
        if open.len() >= OPEN_MAX {
            // Files that are being read stay open by their readers.
            let idle = open.iter().find(|(_, body)| Arc::strong_count(body) == 1);
            if let Some(number) = idle.or(open.iter().next()).map(|(number, _)| *number) {
                open.remove(&number);
            }
        }
        open.insert(number, Arc::clone(body));
    }

    /// Closes a file that is removed.
    pub(super) fn forget(&self, number: u64) {
        self.lock().remove(&number);
    }

    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<BodyFile>, foldhash::fast::RandomState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_written_in_pieces_and_prove_themselves() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = StoreDir::open(dir.path()).expect("opened");
        let content: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        let mut last = 0;
        for length in [0, 1, BLOCK_BYTES, BLOCK_BYTES + 1, content.len()] {
            let mut writer = LargeWriter::create(&dir, 7).expect("made");
            for piece in content[..length].chunks(10_007) {
                writer.append(piece).expect("written");
            }
            let (body, sums, sum) = writer.finish(&dir).expect("named");
            assert_eq!(read_sums(&body.file, length as u64, sum).expect("whole"), sums);
            assert_eq!(sums, crate::sums::block_sums([&content[..length]].into_iter()));
            assert_eq!(body.file.read_range(0, length).expect("read"), &content[..length]);
            read_sums(&body.file, length as u64 + 1, sum).expect_err("another length");
            read_sums(&body.file, length as u64, sum ^ 1).expect_err("another file");
            last = sum;
        }
        assert!(dir.names("part").expect("names").is_empty());
        let file = dir.open_file(&name(7)).expect("there");
        file.write_all_at(b"x", content.len() as u64).expect("written");
        read_sums(&file, content.len() as u64, last).expect_err("damaged");
    }

    #[test]
    fn few_files_stay_open() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = StoreDir::open(dir.path()).expect("opened");
        let files = OpenFiles::default();
        for number in 0..OPEN_MAX as u64 + 10 {
            LargeWriter::create(&dir, number).expect("made").finish(&dir).expect("named");
            files.open(&dir, number).expect("opened");
        }
        assert_eq!(files.lock().len(), OPEN_MAX);
        assert_eq!(number("0000000000000012"), Some(0x12));
        assert_eq!(number("12"), None);
    }
}
