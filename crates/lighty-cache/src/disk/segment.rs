//! Segments: files of records, written from the front to the back and then sealed.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;
use lighty_io::file::store_dir::StoreFile;

use super::footer::{Footer, Row, TAIL_BYTES, Tail};

/// Bits of a filter for each URL.
const FILTER_BITS: usize = 24;

/// Bits that each URL sets.
const FILTER_PROBES: u64 = 8;

/// A file with bodies, open for reading.
#[derive(Debug)]
pub struct BodyFile {
    /// The file.
    pub file: StoreFile,
}

/// A segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) body: Arc<BodyFile>,
    urls: RwLock<UrlSet>,
    /// Bytes on the disk of it and of the files that its records name.
    weight: AtomicU64,
    /// No request of its records was sent before this moment.
    oldest: AtomicU64,
}

/// The URLs of a segment's records; may say yes to others.
#[derive(Debug)]
enum UrlSet {
    Exact(HashSet<u64, RandomState>),
    Filter(Box<[u64]>),
}

/// The name of a segment's file.
pub(super) fn name(number: u32) -> String {
    format!("segment-{number:08}")
}

/// The number in a segment's name.
pub(super) fn number(file: &str) -> Option<u32> {
    let number = file.strip_prefix("segment-")?.parse().ok()?;
    Some(number).filter(|number| name(*number) == file)
}

impl Segment {
    pub(super) fn new(number: u32, file: StoreFile) -> Arc<Self> {
        Arc::new(Self {
            number,
            body: Arc::new(BodyFile { file }),
            urls: RwLock::new(UrlSet::Exact(HashSet::default())),
            weight: AtomicU64::new(0),
            oldest: AtomicU64::new(u64::MAX),
        })
    }

    pub(super) fn file(&self) -> &StoreFile {
        &self.body.file
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    pub(super) fn add_weight(&self, bytes: u64) {
        self.weight.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn lose_weight(&self, bytes: u64) {
        self.weight.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A moment that no request of its records was sent before.
    pub(super) fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Relaxed)
    }

    /// Notes the URL and the moment of a record.
    pub(super) fn add_row(&self, row: &Row) {
        self.oldest.fetch_min(row.sent_at, Ordering::Relaxed);
        let mut urls = self.urls.write().unwrap_or_else(PoisonError::into_inner);
        if let UrlSet::Exact(urls) = &mut *urls {
            urls.insert(row.url);
        }
    }

    /// Keeps a filter in place of the URLs themselves.
    pub(super) fn narrow_urls(&self, footer: &Footer) {
        let slots = (footer.rows.len() * FILTER_BITS).div_ceil(64).max(1);
        let mut filter = vec![0_u64; slots];
        for row in &footer.rows {
            self.oldest.fetch_min(row.sent_at, Ordering::Relaxed);
            for (slot, bit) in probes(row.url, slots) {
                filter[slot] |= bit;
            }
        }
        *self.urls.write().unwrap_or_else(PoisonError::into_inner) = UrlSet::Filter(filter.into());
    }

    /// True if a record may have this URL.
    pub(super) fn may_have(&self, url: u64) -> bool {
        match &*self.urls.read().unwrap_or_else(PoisonError::into_inner) {
            UrlSet::Exact(urls) => urls.contains(&url),
            UrlSet::Filter(filter) => {
                probes(url, filter.len()).all(|(slot, bit)| filter[slot] & bit != 0)
            }
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let urls = match &*self.urls.read().unwrap_or_else(PoisonError::into_inner) {
            UrlSet::Exact(urls) => urls.capacity() * (size_of::<u64>() + 1) * 8 / 7,
            UrlSet::Filter(filter) => filter.len() * size_of::<u64>(),
        };
        (urls + size_of::<Self>()) as u64
    }

    /// Writes the footer behind `end`, and gives the rest of the file's space back.
    pub(super) fn seal(&self, footer: &Footer, end: u64) -> io::Result<()> {
        let bytes = footer.write(end);
        self.file().write_all_at(&bytes, end)?;
        self.file().truncate(end + bytes.len() as u64)?;
        self.narrow_urls(footer);
        self.add_weight(bytes.len() as u64);
        Ok(())
    }

    /// The footer of a sealed segment; `None` if it is not sealed, or its footer is damaged.
    pub(super) fn footer(&self) -> io::Result<Option<Footer>> {
        let length = self.file().length()?;
        let Some(at) = length.checked_sub(TAIL_BYTES as u64) else { return Ok(None) };
        let mut bytes = [0; TAIL_BYTES];
        if self.file().read_at(&mut bytes, at)? < TAIL_BYTES {
            return Ok(None);
        }
        let Some(tail) = Tail::read(bytes, length) else { return Ok(None) };
        let Ok(footer_bytes) = usize::try_from(tail.bytes) else { return Ok(None) };
        let bytes = self.file().read_range(tail.offset, footer_bytes)?;
        Ok(Footer::read(&tail, &bytes))
    }
}

/// Places and bits of a URL in a filter.
fn probes(url: u64, slots: usize) -> impl Iterator<Item = (usize, u64)> {
    let (step, bits) = ((url >> 32) | 1, slots as u64 * 64);
    (0..FILTER_PROBES).map(move |probe| {
        let at = url.wrapping_add(probe.wrapping_mul(step)) % bits;
        ((at / 64) as usize, 1 << (at % 64))
    })
}

#[cfg(test)]
mod tests {
    use lighty_io::file::store_dir::StoreDir;

    use super::super::hash::KeyHash;
    use super::*;

    fn row(number: u64) -> Row {
        let hash = KeyHash::from_bytes([number as u8; 12]);
        let url = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (file, file_bytes, sent_at) = (0, 0, 1_000 + number);
        Row { primary: hash, hash, url, unit: 0, bytes: 64, names: 0, file, file_bytes, sent_at }
    }

    #[test]
    fn sealed_segments_know_their_urls_and_few_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = StoreDir::open(dir.path()).expect("opened");
        let segment = Segment::new(3, dir.create_file(&name(3)).expect("made"));
        let footer = Footer { rows: (0..1_000).map(row).collect(), names: Vec::new() };
        footer.rows.iter().for_each(|row| segment.add_row(row));
        assert!(!segment.may_have(row(1_001).url));
        assert_eq!(segment.footer().expect("read"), None);
        segment.file().preallocate(1 << 20).expect("room");
        segment.seal(&footer, 640).expect("sealed");
        assert!(footer.rows.iter().all(|row| segment.may_have(row.url)));
        let others = (1_000..11_000).filter(|number| segment.may_have(row(*number).url)).count();
        assert!(others < 10, "{others} of 10,000");
        assert_eq!(segment.footer().expect("read").as_ref(), Some(&footer));
        assert_eq!(segment.file().length().expect("a length"), 640 + footer.bytes());
        let again = Segment::new(3, dir.open_file(&name(3)).expect("opened"));
        again.narrow_urls(&again.footer().expect("read").expect("a footer"));
        assert_eq!((segment.oldest(), again.oldest()), (1_000, 1_000));
    }

    #[test]
    fn names_have_numbers() {
        assert_eq!(number(&name(12)), Some(12));
        for other in ["segment-", "segment-1", "segment-0000000x", "segment-00000001.part", "lock"]
        {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
