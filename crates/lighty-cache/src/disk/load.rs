//! Reading responses from the disk. For threads that may wait for it.

use std::io;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::record::{self, BodyPlace, HEADER_BYTES, Header, Record};
use super::segment::Segment;
use super::{Disk, DiskPlace, large};
use crate::object::{BodyCheck, Content, Object, StoredBody, StoredPlace};

/// Bytes that are read at once when the record is longer.
const FIRST_READ_BYTES: usize = 64 << 10;

impl Disk {
    /// Reads a response. `None` if it is not there any more, is damaged, or is of another key: it
    /// is removed then.
    pub(crate) fn load(&self, place: &DiskPlace) -> Option<Object> {
        let loaded = self.try_load(place);
        match loaded {
            Ok(Some(object)) => {
                self.counters.loaded.fetch_add(1, Ordering::Relaxed);
                self.index.touch(place.entry.hash);
                object.set_on_disk();
                return Some(object);
            }
            Ok(None) => {}
            // It has left meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.counters.read_errors.fetch_add(1, Ordering::Relaxed);
                if self.counters.read_errors.load(Ordering::Relaxed).is_power_of_two() {
                    let path = self.path.display();
                    (self.report)(&format!("cache: {path}: a response cannot be read: {error}"));
                }
                // Others pass: too many open files, for example.
                let is_lasting = matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
                );
                if !is_lasting {
                    return None;
                }
            }
        }
        self.forget_place(place);
        None
    }

    fn try_load(&self, place: &DiskPlace) -> io::Result<Option<Object>> {
        let entry = &place.entry;
        let Some(segment) = self.segment(entry.place.segment) else { return Ok(None) };
        let offset = entry.place.offset();
        let first = (entry.bytes as usize).min(FIRST_READ_BYTES);
        let mut bytes = segment.file().read_range(offset, first)?;
        let Some(header) = Header::read(&bytes) else { return Ok(self.damaged()) };
        let is_it = header.place == entry.place && header.hash == entry.hash;
        let head_end = HEADER_BYTES + header.head_bytes as usize;
        if !is_it || header.record_bytes() != u64::from(entry.bytes) {
            return Ok(self.damaged());
        }
        if bytes.len() < head_end {
            let rest = segment.file().read_range(offset + first as u64, head_end - first)?;
            bytes.extend_from_slice(&rest);
        }
        let head = &bytes[HEADER_BYTES..head_end];
        let Some(record) = Record::read(head).filter(|_| header.proves(head)) else {
            return Ok(self.damaged());
        };
        // Another key with this hash.
        if record.key != place.key || record.selecting != place.selecting {
            return Ok(None);
        }
        let content = match record.body.place {
            BodyPlace::Here => {
                let read = bytes.split_off(head_end);
                self.body_here(&segment, &header, &record, read, entry.is_verified())?
            }
            BodyPlace::Segment { segment, offset } => {
                let Some(segment) = self.segment(segment) else { return Ok(None) };
                self.body_in(&segment, offset, &record)?
            }
            BodyPlace::File { number } => self.body_file(number, &record, entry.is_verified())?,
        };
        let Some(content) = content else { return Ok(self.damaged()) };
        let is_own_file = matches!(record.body.place, BodyPlace::File { .. });
        if !entry.is_verified() && !is_own_file {
            self.index.set_verified(entry.hash, entry.place);
        }
        let place = (record.key, record.selecting);
        Ok(Some(Object::new(place, record.head, content, record.sent_at)))
    }

    fn damaged<T>(&self) -> Option<T> {
        self.counters.damaged.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// A body behind its head, of which `read` was read already.
    fn body_here(
        &self,
        segment: &Segment,
        header: &Header,
        record: &Record,
        mut read: Vec<u8>,
        is_verified: bool,
    ) -> io::Result<Option<Content>> {
        let (length, offset) = (record.body.length, header.body_offset());
        if u64::from(header.body_bytes) != length {
            return Ok(None);
        }
        let limits = self.limits();
        let is_for_memory = length <= limits.memory_object_bytes;
        if is_verified && !is_for_memory && !limits.verifies_always {
            return Ok(Some(stay(segment, offset, record)));
        }
        let rest = header.body_bytes as usize - read.len();
        read.extend(segment.file().read_range(offset + read.len() as u64, rest)?);
        if !record::proves_body(&record.body.sums, &read) {
            return Ok(None);
        }
        if is_for_memory || limits.verifies_always {
            return Ok(Some(in_memory(read)));
        }
        Ok(Some(stay(segment, offset, record)))
    }

    /// A body behind an older head.
    fn body_in(
        &self,
        segment: &Segment,
        offset: u64,
        record: &Record,
    ) -> io::Result<Option<Content>> {
        let length = record.body.length;
        let Ok(bytes) = usize::try_from(length) else { return Ok(None) };
        let body = segment.file().read_range(offset, bytes)?;
        if !record::proves_body(&record.body.sums, &body) {
            return Ok(None);
        }
        if length <= self.limits().memory_object_bytes || self.limits().verifies_always {
            return Ok(Some(in_memory(body)));
        }
        Ok(Some(stay(segment, offset, record)))
    }

    fn body_file(
        &self,
        number: u64,
        record: &Record,
        is_verified: bool,
    ) -> io::Result<Option<Content>> {
        let Some(dir) = self.dir.get() else { return Ok(None) };
        let body = self.files.open(dir, number)?;
        let length = record.body.length;
        let [sum] = *record.body.sums else { return Ok(None) };
        let stored = StoredBody::new(&body, 0, StoredPlace::File(number, sum));
        let verifies_always = self.limits().verifies_always;
        if is_verified && !verifies_always {
            return Ok(Some(Content::on_disk(stored, length)));
        }
        // Its readers compare it: reading it whole would take too long.
        let sums = large::read_sums(&body.file, length, sum)?;
        let check = BodyCheck::new(sums, verifies_always);
        Ok(Some(Content::on_disk(stored.with_check(check), length)))
    }
}

/// A body that is sent from its segment.
fn stay(segment: &Segment, offset: u64, record: &Record) -> Content {
    let place = StoredPlace::Segment(segment.number, record.body.sums.to_vec().into());
    Content::on_disk(StoredBody::new(&segment.body, offset, place), record.body.length)
}

fn in_memory(body: Vec<u8>) -> Content {
    let mut content = Content::default();
    content.push(Bytes::from(body));
    content
}
