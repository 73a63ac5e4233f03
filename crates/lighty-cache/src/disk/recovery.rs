//! The index from what an earlier process has left. Requests are served meanwhile.

use std::io;
use std::sync::Arc;

use lighty_io::file::store_dir::StoreDir;

use super::footer::{Footer, Row};
use super::hash::KeyHash;
use super::index::Known;
use super::record::{BodyPlace, HEADER_BYTES, Header, Record, RecordPlace, UNIT_BYTES, padded};
use super::segment::{self, Segment};
use super::writer::Author;
use super::{Disk, large};

/// Damaged units that are passed over in search of the next record of a segment without a footer.
const DAMAGED_UNITS_MAX: u64 = 16_384;

/// Segments whose ends are read ahead at a time: a disk that seeks reads them in their order there,
/// and not one by one behind the reads of requests.
const AHEAD: usize = 64;

/// Bytes of an end. The rest of a longer footer follows in sequence.
const AHEAD_BYTES: u64 = 64 << 10;

impl Author {
    /// Reads all segments in, the newest first: older records of a key do not count.
    ///
    /// # Errors
    /// The directory cannot be read. Nothing may be written then.
    pub(super) fn recover(&mut self, dir: &StoreDir) -> io::Result<()> {
        let names = dir.names("")?;
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| segment::number(name)).collect();
        numbers.sort_unstable();
        self.next_segment = numbers.last().map_or(1, |newest| newest.saturating_add(1));
        let mut is_complete = true;
        for group in numbers.rchunks(AHEAD) {
            group.iter().rev().for_each(|number| read_ahead(dir, *number));
            for number in group.iter().rev() {
                if let Err(error) = self.recover_segment(dir, *number) {
                    let path = self.disk.path().join(segment::name(*number));
                    (self.disk.report)(&format!("cache: {}: {error}", path.display()));
                    is_complete = false;
                }
            }
        }
        if is_complete {
            self.remove_orphans(dir);
        } else {
            self.disk.keep_rules();
        }
        Ok(())
    }

    /// Removes everything that an earlier process has left.
    pub(super) fn remove_all(&mut self, dir: &StoreDir) {
        for name in dir.names("").unwrap_or_default() {
            if let Some(number) = segment::number(&name) {
                self.next_segment = self.next_segment.max(number + 1);
                let _ = dir.remove(&name);
            }
        }
        self.remove_orphans(dir);
    }

    fn recover_segment(&mut self, dir: &StoreDir, number: u32) -> io::Result<()> {
        let segment = Segment::new(number, dir.open_file(&segment::name(number))?);
        let footer = match segment.footer()? {
            Some(footer) => {
                segment.narrow_urls(&footer);
                segment.add_weight(segment.file().length()?);
                footer
            }
            None => {
                let (footer, end) = self.disk.scan(&segment)?;
                segment.add_weight(end);
                if footer.rows.is_empty() {
                    return dir.remove(&segment::name(number));
                }
                // From now on, its end is known. A full disk does not matter.
                let _ = segment.seal(&footer, end);
                segment.narrow_urls(&footer);
                footer
            }
        };
        self.disk.add_segment(&segment);
        self.disk.note_memory();
        for row in footer.rows.iter().rev() {
            let place = RecordPlace { segment: number, unit: row.unit };
            if self.disk.recover_row(row, &footer, place) && row.file != 0 {
                self.owners.entry(row.file).or_insert(place);
                segment.add_weight(row.file_bytes);
            }
        }
        Ok(())
    }

    /// Removes files that no record names, and incomplete ones.
    fn remove_orphans(&self, dir: &StoreDir) {
        for name in dir.names("part").unwrap_or_default() {
            let _ = dir.remove(&format!("part/{name}"));
        }
        for within in dir.names("large").unwrap_or_default() {
            for name in dir.names(&format!("large/{within}")).unwrap_or_default() {
                let Some(number) = large::number(&name) else { continue };
                if !self.owners.contains_key(&number) {
                    let _ = dir.remove(&large::name(number));
                }
            }
        }
    }
}

/// Has the kernel read the end of a segment ahead.
fn read_ahead(dir: &StoreDir, number: u32) {
    // An error comes again when the segment is read.
    if let Ok(file) = dir.open_file(&segment::name(number))
        && let Ok(length) = file.length()
    {
        file.will_need(length.saturating_sub(AHEAD_BYTES), AHEAD_BYTES);
    }
}

impl Disk {
    /// Puts a record into the index, unless a newer one is there. Returns true if it is there now.
    fn recover_row(&self, row: &Row, footer: &Footer, place: RecordPlace) -> bool {
        if let Some(names) = footer.names_of(row) {
            let is_known = match self.index.get(row.primary) {
                None => self.index.put_names(row.primary, names, place),
                Some(Known::Varies(known)) => *known == **names,
                Some(Known::Response(_)) => false,
            };
            if !is_known {
                return false;
            }
        }
        self.index.put_if_new(row.hash, place, row.bytes)
    }

    /// The records of a segment without a footer, and the end of the last one.
    pub(super) fn scan(&self, segment: &Arc<Segment>) -> io::Result<(Footer, u64)> {
        let length = segment.file().length()?;
        let (mut footer, mut at, mut end, mut damaged) = (Footer::default(), 0, 0, 0);
        while at + HEADER_BYTES as u64 <= length && damaged <= DAMAGED_UNITS_MAX {
            match self.scan_record(segment, at, &mut footer)? {
                Some(bytes) => {
                    at += padded(bytes);
                    end = at;
                    damaged = 0;
                }
                None => {
                    at += UNIT_BYTES;
                    damaged += 1;
                }
            }
        }
        Ok((footer, end))
    }

    /// The length of the record at an offset, if there is a whole one.
    fn scan_record(
        &self,
        segment: &Segment,
        at: u64,
        footer: &mut Footer,
    ) -> io::Result<Option<u64>> {
        let header = segment.file().read_range(at, HEADER_BYTES)?;
        let Some(header) = Header::read(&header) else { return Ok(None) };
        let Ok(unit) = u32::try_from(at / UNIT_BYTES) else { return Ok(None) };
        let is_here = header.place == RecordPlace { segment: segment.number, unit };
        let end = at.checked_add(header.record_bytes());
        if !is_here || end.is_none_or(|end| end > segment.file().length().unwrap_or(0)) {
            return Ok(None);
        }
        let head =
            segment.file().read_range(at + HEADER_BYTES as u64, header.head_bytes as usize)?;
        let Some(record) = Record::read(&head).filter(|_| header.proves(&head)) else {
            return Ok(None);
        };
        let Some(names) = footer.names_index(&record.head.names) else { return Ok(None) };
        let (file, file_bytes) = match record.body.place {
            BodyPlace::File { number } => (number, record.body.length),
            BodyPlace::Here | BodyPlace::Segment { .. } => (0, 0),
        };
        footer.rows.push(Row {
            primary: KeyHash::of(&self.seed, &record.key),
            hash: header.hash,
            url: self.url_of(&record.key),
            unit,
            bytes: u32::try_from(header.record_bytes()).unwrap_or(u32::MAX),
            names,
            file,
            file_bytes,
            sent_at: record.sent_at,
        });
        Ok(Some(header.record_bytes()))
    }
}
