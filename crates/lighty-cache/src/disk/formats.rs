//! The formats on the disk, for fuzzers: any bytes are read, and what is read is written alike.

use super::footer::{Footer, TAIL_BYTES, Tail};
use super::purge_log;
use super::record::{HEADER_BYTES, Header, Record};

/// Reads bytes as a record: header, head and body. Returns true if it proves itself.
///
/// # Panics
/// A record that proves itself is written in another way than it was read.
pub fn read_record(bytes: &[u8]) -> bool {
    let Some(header) = Header::read(bytes) else { return false };
    let behind = &bytes[HEADER_BYTES..];
    let Some(head) = behind.get(..header.head_bytes as usize) else { return false };
    let proves = header.proves(head);
    // Without the checksum, too: what a head promises must not matter.
    let Some(record) = Record::read(head) else { return false };
    let mut out = Vec::new();
    let no_body = std::iter::empty();
    if proves && record.write(&mut out, header.hash, header.place, no_body).is_some() {
        let again = Header::read(&out).is_some_and(|again| again.hash == header.hash);
        assert!(again, "a record that was read is written as one");
    }
    proves
}

/// Reads bytes as a footer with its tail. Returns true if it proves itself.
///
/// # Panics
/// A footer that proves itself is written in another way than it was read.
pub fn read_footer(bytes: &[u8]) -> bool {
    let length = bytes.len() as u64;
    let Some((content, tail)) = bytes.split_last_chunk::<TAIL_BYTES>() else { return false };
    let Some(tail) = Tail::read(*tail, length) else { return false };
    let offset = usize::try_from(tail.offset).unwrap_or(usize::MAX);
    let Some(content) = content.get(offset..) else { return false };
    let Some(footer) = Footer::read(&tail, content) else { return false };
    for row in &footer.rows {
        let _ = footer.names_of(row);
    }
    assert_eq!(Footer::read(&tail, content), Some(footer));
    true
}

/// Reads bytes as a log of purge rules. Returns the number of bytes that are rules.
pub fn read_purges(bytes: &[u8]) -> usize {
    let (_, read) = purge_log::parse(bytes);
    assert!(read <= bytes.len());
    read
}

/// A record, a footer and a log of purge rules, from which fuzzers can begin.
#[cfg(test)]
pub(super) fn samples() -> [Vec<u8>; 3] {
    use super::footer::Row;
    use super::hash::KeyHash;
    use super::record::{BodyPlace, BodySums, RecordPlace};
    use crate::key::KeyWriter;
    use crate::object::StoredHead;
    use crate::purge::{PurgeEntry, PurgeKind, PurgeTarget};
    use crate::sums::block_sums;

    let key = KeyWriter::default().part(b"host").part(b"/a").finish();
    let hash = KeyHash::of(&[1; 16], &key);
    let mut head = StoredHead::empty();
    head.fields.push(b"Content-Type", b"text/html");
    head.names = [Box::from(&b"accept-encoding"[..])].into();
    head.tags = [7].into();
    let body = &b"body"[..];
    let sums = block_sums([body].into_iter());
    let body_sums = BodySums { place: BodyPlace::Here, length: 4, sums };
    let selecting = Box::from(&b"gzip"[..]);
    let record = Record { key, selecting, head, sent_at: 3, body: body_sums };
    let mut bytes = Vec::new();
    let place = RecordPlace { segment: 1, unit: 0 };
    record.write(&mut bytes, hash, place, [body].into_iter());

    let mut footer = Footer::default();
    let names = footer.names_index(&[Box::from(&b"accept-encoding"[..])]).unwrap_or(0);
    let (primary, url) = (hash, 5);
    footer.rows.push(Row {
        primary,
        hash,
        url,
        unit: 0,
        bytes: 300,
        names,
        file: 0,
        file_bytes: 0,
        sent_at: 3,
    });

    let mut log = Vec::new();
    let target = PurgeTarget::Prefix(b"host"[..].into(), b"/a"[..].into());
    PurgeEntry { kind: PurgeKind::Soft, moment: 9, target }.write(&mut log);
    [bytes, footer.write(0), log]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_whole_and_no_changed_byte_is() {
        let [record, footer, log] = samples();
        assert!(read_record(&record) && read_footer(&footer));
        assert_eq!(read_purges(&log), log.len());
        let head_end = record.len() - 64;
        for at in 0..footer.len() {
            let mut changed = footer.clone();
            changed[at] ^= 1;
            assert!(!read_footer(&changed), "footer {at}");
        }
        for at in 0..head_end {
            let mut changed = record.clone();
            changed[at] ^= 1;
            assert!(!read_record(&changed), "record {at}");
        }
    }
}
