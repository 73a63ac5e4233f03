//! A ZIP archive of a directory, made while it is sent (APPNOTE.TXT 6.3.10).
//!
//! Files are stored, not compressed: most large downloads are compressed already.
//! Sizes and checksums follow each file in a data descriptor, so that nothing is read twice.
//! Entries above 4 GiB, and archives above that, use ZIP64.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Crc;
use lighty_buf::Chunk;
use lighty_core::machine::Machine;
use lighty_core::{BodyChunk, BodyStream, Settings};
use lighty_http::date;
use lighty_io::file::{OpenFile, OwnedBuf, Root};

use super::is_shown_meta;

/// Read size in bytes.
const READ_BYTES: usize = 64 * 1024;

/// Marks that refer to a ZIP64 field, for values beyond 32 or 16 bits.
const U32_FULL: u64 = 0xffff_ffff;
const U16_FULL: u64 = 0xffff;

/// Version 4.5: ZIP64.
const VERSION: u16 = 45;

/// Sizes follow the content; names are UTF-8.
const DESCRIPTOR_FOLLOWS: u16 = 1 << 3;
const IS_UTF8: u16 = 1 << 11;

/// A file or directory of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Its name in the archive; that of a directory ends in `/`.
    pub(super) name: Vec<u8>,
    /// Its path beneath the document root.
    pub(super) rel: Vec<u8>,
    pub(super) size: u64,
    pub(super) mtime_s: i64,
}

impl Member {
    fn is_directory(&self) -> bool {
        self.name.ends_with(b"/")
    }
}

/// The structure around the content.
#[derive(Default)]
struct Writer {
    /// The central directory, which ends the archive.
    central: Vec<u8>,
    entries: u64,
    /// Bytes written so far.
    position: u64,
    /// Offset of the current entry.
    began: u64,
}

impl Writer {
    fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(bytes);
        self.position += bytes.len() as u64;
    }

    /// The local header of an entry.
    fn begin(&mut self, member: &Member, out: &mut Vec<u8>) {
        self.began = self.position;
        let is_large = member.size >= U32_FULL;
        let mut head = b"PK\x03\x04".to_vec();
        push_common(member, &mut head);
        // Checksum and sizes are in the descriptor.
        head.extend_from_slice(&[0; 4]);
        let size = if is_large { U32_FULL as u32 } else { 0 };
        head.extend_from_slice(&size.to_le_bytes());
        head.extend_from_slice(&size.to_le_bytes());
        push_u16(member.name.len() as u64, &mut head);
        push_u16(if is_large { 20 } else { 0 }, &mut head);
        head.extend_from_slice(&member.name);
        if is_large {
            head.extend_from_slice(&[1, 0, 16, 0]);
            head.extend_from_slice(&[0; 16]);
        }
        self.put(&head, out);
    }

    /// Appends the data descriptor of an entry after its content, and records the entry in the
    /// central directory.
    fn end(&mut self, member: &Member, crc: u32, out: &mut Vec<u8>) {
        let is_large = member.size >= U32_FULL;
        let mut tail = b"PK\x07\x08".to_vec();
        tail.extend_from_slice(&crc.to_le_bytes());
        for _ in 0..2 {
            match is_large {
                true => tail.extend_from_slice(&member.size.to_le_bytes()),
                false => push_u32(member.size, &mut tail),
            }
        }
        self.put(&tail, out);
        self.entries += 1;
        let mut extra = Vec::new();
        if is_large {
            extra.extend_from_slice(&member.size.to_le_bytes());
            extra.extend_from_slice(&member.size.to_le_bytes());
        }
        if self.began >= U32_FULL {
            extra.extend_from_slice(&self.began.to_le_bytes());
        }
        let central = &mut self.central;
        central.extend_from_slice(b"PK\x01\x02");
        // Made by a Unix: the mode is in the external attributes.
        central.extend_from_slice(&((3 << 8) | VERSION).to_le_bytes());
        push_common(member, central);
        central.extend_from_slice(&crc.to_le_bytes());
        push_u32(member.size, central);
        push_u32(member.size, central);
        push_u16(member.name.len() as u64, central);
        push_u16(if extra.is_empty() { 0 } else { extra.len() as u64 + 4 }, central);
        // Comment, disk, internal attributes.
        central.extend_from_slice(&[0; 6]);
        let mode: u32 = if member.is_directory() { 0o040_755 } else { 0o100_644 };
        central.extend_from_slice(&(mode << 16).to_le_bytes());
        push_u32(self.began, central);
        central.extend_from_slice(&member.name);
        if !extra.is_empty() {
            central.extend_from_slice(&[1, 0]);
            push_u16(extra.len() as u64, central);
            central.extend_from_slice(&extra);
        }
    }

    /// Appends the central directory and the end records.
    fn finish(&mut self, out: &mut Vec<u8>) {
        let (start, size) = (self.position, self.central.len() as u64);
        out.append(&mut self.central);
        if start >= U32_FULL || size >= U32_FULL || self.entries >= U16_FULL {
            out.extend_from_slice(b"PK\x06\x06");
            out.extend_from_slice(&44_u64.to_le_bytes());
            out.extend_from_slice(&VERSION.to_le_bytes());
            out.extend_from_slice(&VERSION.to_le_bytes());
            out.extend_from_slice(&[0; 8]);
            for value in [self.entries, self.entries, size, start] {
                out.extend_from_slice(&value.to_le_bytes());
            }
            out.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            out.extend_from_slice(&(start + size).to_le_bytes());
            out.extend_from_slice(&1_u32.to_le_bytes());
        }
        out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        push_u16(self.entries, out);
        push_u16(self.entries, out);
        push_u32(size, out);
        push_u32(start, out);
        out.extend_from_slice(&[0; 2]);
    }
}

fn push_u16(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value.min(U16_FULL) as u16).to_le_bytes());
}

fn push_u32(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value.min(U32_FULL) as u32).to_le_bytes());
}

/// Fields of both headers: version, flags, method, time.
fn push_common(member: &Member, out: &mut Vec<u8>) {
    let utf8 = if std::str::from_utf8(&member.name).is_ok() { IS_UTF8 } else { 0 };
    let (date, time) = dos_time(member.mtime_s);
    for value in [VERSION, DESCRIPTOR_FOLLOWS | utf8, 0, time, date] {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Date and time as MS-DOS has them, in UTC: from 1980 to 2107, in steps of two seconds.
fn dos_time(unix_s: i64) -> (u16, u16) {
    let stamp = date::iso8601(unix_s);
    let digits = |from: usize, to: usize| {
        stamp[from..to].iter().fold(0_u16, |sum, digit| sum * 10 + u16::from(digit - b'0'))
    };
    let year = digits(0, 4);
    if year < 1980 {
        return (1 << 5 | 1, 0);
    }
    let date = (year - 1980).min(127) << 9 | digits(5, 7) << 5 | digits(8, 10);
    (date, digits(11, 13) << 11 | digits(14, 16) << 5 | (digits(17, 19) / 2))
}

/// A file that is being sent.
struct Sending {
    member: Member,
    file: Rc<OpenFile>,
    sent: u64,
    crc: Crc,
}

/// State of an archive between two pieces.
struct Maker {
    machine: Rc<Machine>,
    settings: Rc<Settings>,
    root: Rc<Root>,
    members: VecDeque<Member>,
    sending: Option<Sending>,
    writer: Writer,
    is_finished: bool,
}

impl Maker {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut out = Vec::new();
        while out.len() < READ_BYTES && !self.is_finished {
            match self.sending.take() {
                Some(sending) => self.send(sending, &mut out).await?,
                None => match self.members.pop_front() {
                    Some(member) => self.begin(member, &mut out).await?,
                    None => {
                        self.writer.finish(&mut out);
                        self.is_finished = true;
                    }
                },
            }
        }
        Ok((!out.is_empty()).then_some(out))
    }

    /// Begins an entry. Files that were removed or are refused by now are left out.
    async fn begin(&mut self, mut member: Member, out: &mut Vec<u8>) -> io::Result<()> {
        if member.is_directory() {
            self.writer.begin(&member, out);
            self.writer.end(&member, 0, out);
            return Ok(());
        }
        let core = &self.settings.core;
        let noatime = self.settings.server.use_noatime;
        let engine = &self.machine.engine;
        let opened = engine.open(&self.root, &member.rel, core.follow_symlink, noatime).await;
        let Ok(file) = opened else { return Ok(()) };
        if !is_shown_meta(file.meta()) {
            return Ok(());
        }
        (member.size, member.mtime_s) = (file.meta().size, file.meta().mtime_s);
        self.writer.begin(&member, out);
        self.sending = Some(Sending { member, file, sent: 0, crc: Crc::new() });
        Ok(())
    }

    async fn send(&mut self, mut sending: Sending, out: &mut Vec<u8>) -> io::Result<()> {
        let left = sending.member.size - sending.sent;
        if left == 0 {
            self.writer.end(&sending.member, sending.crc.sum(), out);
            return Ok(());
        }
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(READ_BYTES);
        let engine = &self.machine.engine;
        let (buf, count) = engine.read(&sending.file, sending.sent, OwnedBuf::zeroed(wanted)).await;
        let count = count?;
        if count == 0 {
            // The file became shorter. The error shows the client that the archive is incomplete.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        sending.crc.update(&buf[..count]);
        self.writer.put(&buf[..count], out);
        sending.sent += count as u64;
        self.sending = Some(sending);
        Ok(())
    }
}

type Piece = io::Result<Option<Vec<u8>>>;

/// The body of an archive.
pub(super) struct Archive(ArchiveState);

enum ArchiveState {
    Idle(Box<Maker>),
    Busy(Pin<Box<dyn Future<Output = (Box<Maker>, Piece)>>>),
    Ended,
}

impl Archive {
    pub(super) fn new(
        machine: Rc<Machine>,
        settings: Rc<Settings>,
        root: Rc<Root>,
        members: VecDeque<Member>,
    ) -> Self {
        let (sending, writer) = (None, Writer::default());
        let maker = Maker { machine, settings, root, members, sending, writer, is_finished: false };
        Self(ArchiveState::Idle(Box::new(maker)))
    }
}

impl BodyStream for Archive {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        loop {
            match std::mem::replace(&mut self.0, ArchiveState::Ended) {
                ArchiveState::Ended => return Poll::Ready(None),
                ArchiveState::Idle(mut maker) => {
                    self.0 = ArchiveState::Busy(Box::pin(async move {
                        // Reads of cached files never wait, so yield to other connections.
                        tokio::task::yield_now().await;
                        let piece = maker.next().await;
                        (maker, piece)
                    }));
                }
                ArchiveState::Busy(mut making) => match making.as_mut().poll(cx) {
                    Poll::Pending => {
                        self.0 = ArchiveState::Busy(making);
                        return Poll::Pending;
                    }
                    Poll::Ready((maker, Ok(Some(piece)))) => {
                        self.0 = ArchiveState::Idle(maker);
                        return Poll::Ready(Some(Ok(Chunk::Memory(Bytes::from(piece)))));
                    }
                    Poll::Ready((_, Ok(None))) => return Poll::Ready(None),
                    Poll::Ready((_, Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                },
            }
        }
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, size: u64) -> Member {
        Member { name: name.into(), rel: Vec::new(), size, mtime_s: 784_111_777 }
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    #[test]
    fn times_are_those_of_dos() {
        // 1994-11-06T08:49:37Z
        assert_eq!(dos_time(784_111_777), (14 << 9 | 11 << 5 | 6, 8 << 11 | 49 << 5 | 18));
        assert_eq!(dos_time(0), (1 << 5 | 1, 0));
        assert_eq!(dos_time(i64::MAX).0 >> 9, 127);
    }

    #[test]
    fn small_archives_have_no_zip64_fields() {
        let (mut writer, mut out) = (Writer::default(), Vec::new());
        let file = member("a/b.txt", 5);
        writer.begin(&file, &mut out);
        writer.put(b"hello", &mut out);
        writer.end(&file, 0x3610_a686, &mut out);
        writer.finish(&mut out);
        assert_eq!(out.len(), 30 + 7 + 5 + 16 + 46 + 7 + 22);
        assert!(!out.windows(4).any(|four| four == b"PK\x06\x06"));
    }

    #[test]
    fn large_entries_and_offsets_use_zip64() {
        let (mut writer, mut out) = (Writer::default(), Vec::new());
        let (large, behind) = (member("large", 5 << 30), member("behind", 1));
        writer.begin(&large, &mut out);
        assert_eq!(out.len(), 30 + 5 + 20);
        writer.position += large.size;
        writer.end(&large, 1, &mut out);
        let behind_at = writer.position;
        writer.begin(&behind, &mut out);
        writer.position += 1;
        writer.end(&behind, 2, &mut out);
        let central = writer.central.clone();
        let (start, size) = (writer.position, central.len() as u64);
        writer.finish(&mut out);
        assert_eq!(u64_at(&central, 46 + 5 + 4), 5 << 30);
        assert_eq!(u64_at(&central, central.len() - 8), behind_at);
        let end = out.windows(4).rposition(|four| four == b"PK\x06\x06").expect("a ZIP64 end");
        assert_eq!((u64_at(&out, end + 40), u64_at(&out, end + 48)), (size, start));
    }
}
