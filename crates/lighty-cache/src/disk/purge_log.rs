//! The log of purge rules, which hold for what is on the disk after a restart, too.
//!
//! Each rule has its length, a checksum, and [`PurgeEntry::write`]. A damaged rule, and everything
//! behind it, is ignored.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use lighty_io::file::store_dir::StoreDir;

use super::codec::{Reader, Writer};
use super::{Disk, DiskState};
use crate::purge::{PurgeEntry, PurgeKind, PurgeTarget};
use crate::store::ResponseStore;

/// Name of the log.
const NAME: &str = "purges";

/// Bytes of a log that are read.
const LOG_BYTES_MAX: u64 = 64 << 20;

impl PurgeEntry {
    /// The rule as it is in the log.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::default();
        writer.u8(match self.kind {
            PurgeKind::Hard => 0,
            PurgeKind::Soft => 1,
        });
        writer.u64(self.moment);
        match &self.target {
            PurgeTarget::All => writer.u8(0),
            PurgeTarget::Named(name) => {
                writer.u8(1);
                writer.u64(*name);
            }
            PurgeTarget::Prefix(host, path) => {
                writer.u8(2);
                writer.string(host);
                writer.string(path);
            }
        }
        let mut framed = Writer::default();
        framed.count(writer.0.len());
        framed.u32(crc32c::crc32c(&writer.0));
        framed.bytes(&writer.0);
        out.extend_from_slice(&framed.0);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let kind = match reader.u8()? {
            0 => PurgeKind::Hard,
            1 => PurgeKind::Soft,
            _ => return None,
        };
        let moment = reader.u64()?;
        let target = match reader.u8()? {
            0 => PurgeTarget::All,
            1 => PurgeTarget::Named(reader.u64()?),
            2 => PurgeTarget::Prefix(reader.string()?.into(), reader.string()?.into()),
            _ => return None,
        };
        Some(Self { kind, moment, target }).filter(|_| reader.0.is_empty())
    }
}

/// The rules of a log, and the bytes that they take in it.
pub(super) fn parse(log: &[u8]) -> (Vec<PurgeEntry>, usize) {
    let (mut entries, mut reader) = (Vec::new(), Reader(log));
    loop {
        let before = log.len() - reader.0.len();
        let mut entry = || {
            let (length, sum) = (reader.u32()? as usize, reader.u32()?);
            let (bytes, rest) = reader.0.split_at_checked(length)?;
            reader.0 = rest;
            PurgeEntry::read(bytes).filter(|_| crc32c::crc32c(bytes) == sum)
        };
        match entry() {
            Some(entry) => entries.push(entry),
            None => return (entries, before),
        }
    }
}

impl Disk {
    /// Has the rules of the log count. Returns the bytes of the log; `None` if it cannot be read.
    pub(super) fn read_purges(&self, dir: &StoreDir, store: &ResponseStore) -> Option<u64> {
        let log = match dir.contents(NAME, LOG_BYTES_MAX) {
            Ok(log) => log.unwrap_or_default(),
            Err(error) => {
                (self.report)(&format!("cache: {}: {NAME}: {error}", self.path().display()));
                return None;
            }
        };
        let (entries, bytes) = parse(&log);
        store.merge_purges(&entries);
        Some(bytes as u64)
    }

    /// Appends rules at an offset. Returns the end.
    pub(super) fn append_purges(&self, dir: &StoreDir, rules: &[u8], at: u64) -> io::Result<u64> {
        let file = match dir.open_file(NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => dir.create_file(NAME)?,
            file => file?,
        };
        file.write_all_at(rules, at)?;
        Ok(at + rules.len() as u64)
    }

    /// Writes a log with the rules that hold now. Returns its length.
    pub(super) fn rewrite_purges(&self, dir: &StoreDir, store: &ResponseStore) -> io::Result<u64> {
        let mut log = Vec::new();
        store.purge_entries().iter().for_each(|entry| entry.write(&mut log));
        dir.replace(NAME, &log)?;
        Ok(log.len() as u64)
    }

    /// Segments are left that could not be read or removed. A later start may read them in: until
    /// then, all rules stay.
    pub(super) fn keep_rules(&self) {
        self.keeps_rules.store(true, Ordering::Relaxed);
    }

    /// A moment that no request of a response on the disk, or on the way there, was sent before.
    pub(crate) fn oldest_moment(&self) -> u64 {
        let is_known = !matches!(self.state(), DiskState::Waiting | DiskState::Recovering);
        if !is_known || self.keeps_rules.load(Ordering::Relaxed) {
            return 0;
        }
        // In the order in which responses go from one to the next.
        let queued = self.queue().oldest_moment();
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.values().fold(queued, |oldest, segment| oldest.min(segment.oldest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_up_to_the_first_damaged_one() {
        let target = |number: u64| match number % 3 {
            0 => PurgeTarget::All,
            1 => PurgeTarget::Named(number),
            _ => PurgeTarget::Prefix(b"host".as_slice().into(), b"/a".as_slice().into()),
        };
        let kind = |number| if number % 2 == 0 { PurgeKind::Hard } else { PurgeKind::Soft };
        let entry =
            |number| PurgeEntry { kind: kind(number), moment: number, target: target(number) };
        let entries: Vec<_> = (0..9).map(entry).collect();
        let mut log = Vec::new();
        let mut ends = vec![0];
        for entry in &entries {
            entry.write(&mut log);
            ends.push(log.len());
        }
        assert_eq!(parse(&log), (entries.clone(), log.len()));
        for at in 0..log.len() {
            let mut damaged = log.clone();
            damaged[at] ^= 0x40;
            let whole = ends.iter().filter(|end| **end <= at).count() - 1;
            let (found, bytes) = parse(&damaged);
            assert_eq!((&*found, bytes), (&entries[..whole], ends[whole]), "{at}");
            assert_eq!(parse(&log[..at]).0.len(), whole);
        }
    }
}
