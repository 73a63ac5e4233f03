//! A connection's TLS after its handshake: plaintext on the server's side, records on the socket's
//! side.
//!
//! An idle connection holds nothing but its keys: buffers come from the thread's pool and return to
//! it as soon as they are empty, and after a [rest](Traffic::rest) the expanded keys are computed
//! again when needed. Sealed data cannot be taken back. Therefore [`Traffic::write`] counts a byte
//! as written once the socket has accepted the last byte of ciphertext that it needs, and expects
//! the caller to offer the remainder again, as with a socket.
//!
//! [`Traffic`] has methods of three kinds. Input: the caller receives into [`Traffic::room`], says
//! how much in [`Traffic::filled`], and calls [`Traffic::read`] until it wants more. Output:
//! [`Traffic::write`] and [`Traffic::flush`] pass ciphertext to a function that sends it. Commands:
//! [`Traffic::close`] seals close_notify, [`Traffic::rest`] frees memory. There are no timers. A
//! fault of the peer is returned once, its alert is sealed, and all further input is dropped.

mod cursor;
mod ends;

use std::cell::RefCell;
use std::io::{self, IoSlice};

use rustls::ProtocolVersion;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, SupportedCipherSuite};

use self::cursor::Cursor;
use self::ends::{EndEvent, ReadSide, TlsEnds, WriteSide};
use super::ramp::Ramp;
use super::record::{
    BODY_BYTES_MAX, ContentType, HEADER_BYTES, Opener, RecordFault, Sealer, record_bytes,
};

/// Maximum number of records sealed before they are written.
const BATCH_RECORDS_MAX: usize = 8;

/// Upper bound of a record's overhead in bytes.
const RECORD_OVERHEAD: usize = 64;

/// Maximum number of consecutive records without application data (rustls' own bound).
const IDLE_RECORDS_MAX: u32 = 32;

/// Maximum number of empty buffers of each kind that a thread keeps.
const SPARE_BUFFERS_MAX: usize = 8;

const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
const NO_RENEGOTIATION: u8 = 100;
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// Length of a handshake message's header (RFC 8446 section 4).
const MESSAGE_HEADER_BYTES: usize = 4;

/// Maximum bytes of an incomplete ticket. Its length field allows 64 KiB.
const TICKET_BYTES_MAX: usize = 72 << 10;

thread_local! {
    static INPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    #[allow(clippy::vec_box, reason = "they go from connection to connection in their boxes")]
    static OUTPUTS: RefCell<Vec<Box<Sealed>>> = const { RefCell::new(Vec::new()) };
}

type Pool<T> = std::thread::LocalKey<RefCell<Vec<T>>>;

fn take<T: Default>(pool: &'static Pool<T>) -> T {
    pool.with_borrow_mut(Vec::pop).unwrap_or_default()
}

fn give<T>(pool: &'static Pool<T>, buffer: T) {
    pool.with_borrow_mut(|spare| {
        if spare.len() < SPARE_BUFFERS_MAX {
            spare.push(buffer);
        }
    });
}

/// A connection's keys and the records in progress.
pub(crate) struct Traffic {
    sealer: Sealer,
    opener: Opener,
    kernel: Kernel,
    ends: TlsEnds,
    input: TlsInput,
    output: TlsOutput,
    /// Chooses the length of the next records.
    ramp: Ramp,
    /// Records without application data since the last one with some.
    idle_records: u32,
}

/// rustls' state after the handshake, by our side of it.
#[expect(clippy::large_enum_variant, reason = "most connections are accepted, and need no other")]
pub(crate) enum Kernel {
    Server(KernelConnection<ServerConnectionData>),
    /// Boxed, because most connections are accepted.
    Client(Box<ClientKernel>),
}

/// State of a client.
pub(crate) struct ClientKernel {
    connection: KernelConnection<ClientConnectionData>,
    /// Handshake messages received so far and not yet processed.
    pending: Vec<u8>,
}

impl ClientKernel {
    pub(crate) fn new(connection: KernelConnection<ClientConnectionData>) -> Self {
        Self { connection, pending: Vec::new() }
    }

    /// The next complete message, if there is one.
    fn next_message(&mut self) -> Option<Vec<u8>> {
        let header = self.pending.first_chunk::<MESSAGE_HEADER_BYTES>()?;
        let body = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
        let whole = MESSAGE_HEADER_BYTES + body;
        (self.pending.len() >= whole).then(|| self.pending.drain(..whole).collect())
    }
}

impl Kernel {
    fn protocol_version(&self) -> ProtocolVersion {
        match self {
            Self::Server(connection) => connection.protocol_version(),
            Self::Client(client) => client.connection.protocol_version(),
        }
    }

    fn suite(&self) -> SupportedCipherSuite {
        match self {
            Self::Server(connection) => connection.negotiated_cipher_suite(),
            Self::Client(client) => client.connection.negotiated_cipher_suite(),
        }
    }

    fn update_rx_secret(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Self::Server(connection) => connection.update_rx_secret(),
            Self::Client(client) => client.connection.update_rx_secret(),
        }
    }

    fn update_tx_secret(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Self::Server(connection) => connection.update_tx_secret(),
            Self::Client(client) => client.connection.update_tx_secret(),
        }
    }
}

/// Received bytes: `plain`, then records from `next` to `filled`.
#[derive(Default)]
struct TlsInput {
    bytes: Vec<u8>,
    /// Opened plaintext that has not been read yet.
    plain: std::ops::Range<usize>,
    /// Start of the next record.
    next: usize,
    /// End of the received bytes.
    filled: usize,
}

#[derive(Default)]
struct TlsOutput {
    /// Sealed records that are not completely sent, if any.
    sealed: Option<Box<Sealed>>,
    /// Bytes sent since the peer's last application data.
    sent_since_read: u64,
}

/// Records to be sent.
#[derive(Default)]
struct Sealed {
    bytes: Vec<u8>,
    sent: usize,
    /// The records in `bytes`: end, and length of the plaintext.
    records: [(u32, u16); BATCH_RECORDS_MAX + 2],
    count: usize,
    /// Plaintext bytes already reported as written.
    reported: usize,
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(usize),
    /// End of the peer's data.
    End,
    /// No complete record: more bytes must arrive.
    Wants,
}

impl Traffic {
    /// Starts with the bytes received after the handshake: `opened` is plaintext, `sealed` still
    /// encrypted.
    pub(crate) fn new(
        secrets: &rustls::ExtractedSecrets,
        kernel: Kernel,
        sealed: &[u8],
        opened: &[u8],
    ) -> Result<Self, RecordFault> {
        let is_tls13 = kernel.protocol_version() == ProtocolVersion::TLSv1_3;
        let records_max = match kernel.suite() {
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
            SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        };
        let sealer = Sealer::new((secrets.tx.0, &secrets.tx.1), is_tls13, records_max)?;
        let opener = Opener::new((secrets.rx.0, &secrets.rx.1), is_tls13)?;
        let mut input = TlsInput::default();
        if !opened.is_empty() || !sealed.is_empty() {
            input.bytes = [opened, sealed].concat();
            input.plain = 0..opened.len();
            input.next = opened.len();
            input.filled = input.bytes.len();
        }
        Ok(Self {
            sealer,
            opener,
            kernel,
            ends: TlsEnds::new(),
            input,
            output: TlsOutput::default(),
            ramp: Ramp::default(),
            idle_records: 0,
        })
    }

    /// Records that the peer's close_notify came with its last message of the handshake.
    pub(crate) fn end(&mut self) {
        self.ends.handle(EndEvent::PeerCloses);
    }

    fn is_tls13(&self) -> bool {
        self.kernel.protocol_version() == ProtocolVersion::TLSv1_3
    }

    /// Bytes sent, as ciphertext, since application data was last received.
    pub(crate) fn sent_since_read(&self) -> u64 {
        self.output.sent_since_read
    }

    /// True if this is the client's side.
    pub(crate) fn is_client(&self) -> bool {
        matches!(self.kernel, Kernel::Client(_))
    }

    /// True if the peer has sent close_notify or aborted.
    pub(crate) fn is_ended(&self) -> bool {
        self.ends.read != ReadSide::Open
    }

    /// True if an incomplete record has arrived.
    pub(crate) fn is_amid_record(&self) -> bool {
        self.input.filled > self.input.next
    }

    /// True if sealed records are not completely sent.
    pub(crate) fn has_output(&self) -> bool {
        self.output.sealed.is_some()
    }

    /// True if a read would return a result without the socket.
    pub(crate) fn has_input(&self) -> bool {
        let input = &self.input;
        self.is_ended()
            || !input.plain.is_empty()
            || record_bytes(&input.bytes[input.next..input.filled])
                .is_ok_and(|bytes| bytes.is_some_and(|bytes| bytes <= input.filled - input.next))
    }

    /// Reads received plaintext.
    ///
    /// # Errors
    /// Faults of the peer's records. The next [`write`](Self::write) or flush sends the alert about
    /// it.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Read> {
        loop {
            let input = &mut self.input;
            if !input.plain.is_empty() {
                let count = input.plain.len().min(buffer.len());
                let from = input.plain.start;
                buffer[..count].copy_from_slice(&input.bytes[from..from + count]);
                input.plain.start += count;
                input.release();
                return Ok(Read::Bytes(count));
            }
            match self.ends.read {
                ReadSide::Open => {}
                ReadSide::Aborted(alert) => {
                    self.ends.handle(EndEvent::Report);
                    return Err(given_up(alert));
                }
                ReadSide::Ended => return Ok(Read::End),
            }
            let waiting = &input.bytes[input.next..input.filled];
            let whole = match record_bytes(waiting) {
                Ok(whole) => whole.filter(|bytes| *bytes <= waiting.len()),
                Err(fault) => return Err(self.refuse(fault)),
            };
            let Some(bytes) = whole else { return Ok(Read::Wants) };
            let start = input.next;
            input.next += bytes;
            let opened = self.opener.open(&mut input.bytes[start..start + bytes]);
            let taken = opened.and_then(|opened| {
                self.take(opened.kind, start + opened.start..start + opened.end)
            });
            if let Err(fault) = taken {
                return Err(self.refuse(fault));
            }
            self.input.check();
            self.input.release();
        }
    }

    /// Free space of the input buffer, for reading from the socket.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let input = &mut self.input;
        debug_assert!(input.plain.is_empty(), "{:?} was not read", input.plain);
        if input.bytes.is_empty() {
            input.bytes = take(&INPUTS);
        }
        if input.next > 0 {
            input.bytes.copy_within(input.next..input.filled, 0);
            input.filled -= input.next;
            input.next = 0;
            input.plain = 0..0;
        }
        input.bytes.resize(HEADER_BYTES + BODY_BYTES_MAX, 0);
        // An empty buffer would look like the end of the stream.
        debug_assert!(input.filled < input.bytes.len(), "a whole record waits");
        &mut input.bytes[input.filled..]
    }

    /// Reports the number of bytes read into [`room`](Self::room); 0 returns an empty buffer.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.input.filled += bytes;
        self.input.check();
        self.input.release();
    }

    /// Processes an opened record.
    fn take(&mut self, kind: ContentType, text: std::ops::Range<usize>) -> Result<(), RecordFault> {
        debug_assert!(text.start <= text.end && text.end <= self.input.next, "{text:?}");
        if kind == ContentType::ApplicationData && !text.is_empty() {
            debug_assert!(self.input.plain.is_empty(), "{:?} was not read", self.input.plain);
            self.idle_records = 0;
            self.output.sent_since_read = 0;
            self.input.plain = text;
            return Ok(());
        }
        self.idle_records += 1;
        if self.idle_records > IDLE_RECORDS_MAX {
            return Err(RecordFault::Unexpected);
        }
        match kind {
            ContentType::ApplicationData => Ok(()),
            ContentType::Alert => self.take_alert(text),
            ContentType::Handshake if self.is_tls13() => self.take_handshake(text),
            // The peer requests renegotiation (RFC 5746); it may continue without.
            ContentType::Handshake => self.alert(WARNING, NO_RENEGOTIATION),
            ContentType::ChangeCipherSpec => Err(RecordFault::Unexpected),
        }
    }

    fn take_alert(&mut self, text: std::ops::Range<usize>) -> Result<(), RecordFault> {
        match self.input.bytes[text] {
            [_, CLOSE_NOTIFY] => {
                self.ends.handle(EndEvent::PeerCloses);
                Ok(())
            }
            [_, USER_CANCELED] => Ok(()),
            [WARNING, _] if !self.is_tls13() => Ok(()),
            [_, description] => {
                // The peer has aborted; data from it is ignored from now on.
                let reported = Some(description).filter(|_| self.is_client());
                self.ends.handle(EndEvent::PeerAborts { reported });
                Ok(())
            }
            _ => Err(RecordFault::Unexpected),
        }
    }

    /// Processes handshake messages after the handshake (RFC 8446 section 4.6): key updates and,
    /// from a server, tickets.
    fn take_handshake(&mut self, text: std::ops::Range<usize>) -> Result<(), RecordFault> {
        let text = &self.input.bytes[text];
        let Kernel::Client(client) = &mut self.kernel else {
            let message = text.try_into().map_err(|_| RecordFault::Unexpected)?;
            return self.take_key_update(message);
        };
        client.pending.extend_from_slice(text);
        while let Some(message) = client.next_message() {
            match message[..] {
                [NEW_SESSION_TICKET, _, _, _, ref ticket @ ..] => {
                    let taken = client.connection.handle_new_session_ticket(ticket);
                    taken.map_err(|_| RecordFault::Unexpected)?;
                }
                // A key update. The key changes after it, so it must be the last message of its
                // record.
                _ if client.pending.is_empty() => {
                    let message = message[..].try_into().map_err(|_| RecordFault::Unexpected)?;
                    return self.take_key_update(message);
                }
                _ => return Err(RecordFault::Unexpected),
            }
        }
        if client.pending.len() > TICKET_BYTES_MAX {
            return Err(RecordFault::Unexpected);
        }
        if client.pending.is_empty() {
            client.pending = Vec::new();
        }
        Ok(())
    }

    /// Processes the peer's change of key, and changes ours on request (RFC 8446 section 4.6.3).
    fn take_key_update(&mut self, message: [u8; 5]) -> Result<(), RecordFault> {
        let [KEY_UPDATE, 0, 0, 1, wanted @ (0 | 1)] = message else {
            return Err(RecordFault::Unexpected);
        };
        let (sequence, secrets) =
            self.kernel.update_rx_secret().map_err(|_| RecordFault::BadMac)?;
        self.opener = Opener::new((sequence, &secrets), true)?;
        if wanted == 1 { self.update_key() } else { Ok(()) }
    }

    /// Changes the key for sending.
    fn update_key(&mut self) -> Result<(), RecordFault> {
        self.seal_control(ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, 0])?;
        let spent = |_| RecordFault::KeyIsSpent;
        let (sequence, secrets) = self.kernel.update_tx_secret().map_err(spent)?;
        self.sealer = Sealer::new((sequence, &secrets), true, self.sealer.records_max())?;
        Ok(())
    }

    fn alert(&mut self, level: u8, description: u8) -> Result<(), RecordFault> {
        self.seal_control(ContentType::Alert, &[level, description])
    }

    /// Seals a record without application data. It is sent with the next write.
    fn seal_control(&mut self, kind: ContentType, text: &[u8]) -> Result<(), RecordFault> {
        if self.ends.write == WriteSide::Closed {
            return Ok(());
        }
        let sealed = self.output.begin();
        // Limits the replies to a peer that does not read them.
        if sealed.count > BATCH_RECORDS_MAX {
            return Err(RecordFault::Unexpected);
        }
        self.sealer.seal(kind, &mut sealed.bytes, |out| out.extend_from_slice(text))?;
        sealed.end_record(0);
        Ok(())
    }

    /// Ends the connection because of the peer's fault: the alert is sent with the next flush.
    fn refuse(&mut self, fault: RecordFault) -> io::Error {
        // If this fails, no alert can be sent.
        let _ = self.alert(FATAL, fault.alert());
        self.ends.handle(EndEvent::Refuse);
        io::Error::new(io::ErrorKind::InvalidData, fault.message())
    }

    /// Seals close_notify, once.
    pub(crate) fn close(&mut self) {
        // Fails without space; then the peer has not read earlier data either.
        let _ = self.alert(WARNING, CLOSE_NOTIFY);
        self.ends.handle(EndEvent::Close);
    }

    /// Chooses the length of the next records.
    pub(crate) fn ramp(&mut self) -> &mut Ramp {
        &mut self.ramp
    }

    /// Writes sealed records with `send`, then seals and writes `pieces`, as far as the socket
    /// accepts them. Returns the number of plaintext bytes of `pieces` written, including bytes of
    /// earlier calls that were not reported yet.
    ///
    /// # Errors
    /// `WouldBlock` if nothing could be written, and errors of `send`.
    pub(crate) fn write(
        &mut self,
        pieces: &[IoSlice<'_>],
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut written = 0;
        loop {
            let flushed = self.output.flush(&mut send);
            written += self.output.report();
            match flushed {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(error) => return if written > 0 { Ok(written) } else { Err(error) },
                Ok(()) => {}
            }
            let sealed = self.seal(pieces, written);
            let sealed = sealed.map_err(|fault| io::Error::other(fault.message()))?;
            if sealed == 0 {
                self.output.release();
                return Ok(written);
            }
        }
    }

    /// Seals the data after the first `skip` bytes of `pieces`, at most one batch.
    fn seal(&mut self, pieces: &[IoSlice<'_>], skip: usize) -> Result<usize, RecordFault> {
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        if skip == total {
            return Ok(0);
        }
        // Offering less than before is an error of the caller, because it is already sealed.
        if self.ends.write == WriteSide::Closed || skip > total {
            return Err(RecordFault::Unexpected);
        }
        if self.sealer.is_spent() && self.is_tls13() {
            self.update_key()?;
        }
        let mut cursor = Cursor::new(pieces, skip);
        let mut left = total - skip;
        let sealed = self.output.begin();
        // Everything before was sent and reported; only a key update may precede the data.
        debug_assert!(sealed.count <= 1 && sealed.reported == 0, "{} records", sealed.count);
        while left > 0 && sealed.count < BATCH_RECORDS_MAX {
            let bytes = left.min(self.ramp.next_bytes());
            let out = &mut sealed.bytes;
            out.reserve(bytes + RECORD_OVERHEAD);
            self.sealer.seal(ContentType::ApplicationData, out, |out| cursor.append(bytes, out))?;
            sealed.end_record(bytes);
            left -= bytes;
        }
        Ok(total - skip - left)
    }

    /// Writes sealed records.
    pub(crate) fn flush(
        &mut self,
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let output = &mut self.output;
        output.flush(&mut send)?;
        // Records with application data stay until `write` has reported them.
        if output.sealed.as_ref().is_some_and(|sealed| !sealed.holds_plain()) {
            output.report();
            output.release();
        }
        Ok(())
    }

    /// Frees everything but the keys, until the next record. For connections that are idle for
    /// long, because the next record then takes a microsecond more. Does nothing while a record is
    /// in progress.
    pub(crate) fn release_buffers(&mut self) {
        if self.input.bytes.is_empty() && self.output.sealed.is_none() {
            self.sealer.release_buffers();
            self.opener.release_buffers();
        }
    }
}

#[cfg(test)]
impl Traffic {
    /// True if nothing but the keys is held.
    pub(crate) fn is_resting(&self) -> bool {
        self.sealer.is_resting() && self.opener.is_resting()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        if !self.input.bytes.is_empty() {
            give(&INPUTS, std::mem::take(&mut self.input.bytes));
        }
        if let Some(mut sealed) = self.output.sealed.take() {
            sealed.clear();
            give(&OUTPUTS, sealed);
        }
    }
}

impl TlsInput {
    /// Checks the order of the ranges in a debug build.
    fn check(&self) {
        let Self { bytes, plain, next, filled } = self;
        debug_assert!(plain.start <= plain.end, "{plain:?}");
        debug_assert!(plain.is_empty() || plain.end <= *next, "{plain:?} {next}");
        debug_assert!(next <= filled && *filled <= bytes.len(), "{next} {filled} {}", bytes.len());
    }

    /// Returns an empty buffer to the pool.
    fn release(&mut self) {
        if self.plain.is_empty() && self.next == self.filled && !self.bytes.is_empty() {
            give(&INPUTS, std::mem::take(&mut self.bytes));
            *self = Self::default();
        }
    }
}

impl TlsOutput {
    fn begin(&mut self) -> &mut Sealed {
        self.sealed.get_or_insert_with(|| take(&OUTPUTS))
    }

    fn flush(&mut self, send: &mut impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        let Some(sealed) = &mut self.sealed else { return Ok(()) };
        while sealed.sent < sealed.bytes.len() {
            let sent = send(&sealed.bytes[sealed.sent..])?;
            sealed.sent += sent;
            debug_assert!(sealed.sent <= sealed.bytes.len(), "{sent} bytes were not offered");
            self.sent_since_read += sent as u64;
        }
        Ok(())
    }

    /// Plaintext bytes written since the last call.
    fn report(&mut self) -> usize {
        self.sealed.as_mut().map_or(0, |sealed| sealed.report())
    }

    /// Returns an empty buffer to the pool.
    fn release(&mut self) {
        if let Some(sealed) = self.sealed.take_if(|sealed| sealed.bytes.is_empty()) {
            let Sealed { sent, count, reported, .. } = *sealed;
            debug_assert_eq!((sent, count, reported), (0, 0, 0), "records of a connection");
            give(&OUTPUTS, sealed);
        }
    }
}

impl Sealed {
    fn end_record(&mut self, plain: usize) {
        debug_assert!(self.count < self.records.len(), "too many records");
        debug_assert!(plain <= usize::from(u16::MAX) && self.bytes.len() <= u32::MAX as usize);
        debug_assert!(self.sent <= self.bytes.len(), "{}", self.sent);
        self.records[self.count] = (self.bytes.len() as u32, plain as u16);
        self.count += 1;
    }

    /// True if any record has application data.
    fn holds_plain(&self) -> bool {
        self.records[..self.count].iter().any(|(_, plain)| *plain > 0)
    }

    /// See [`TlsOutput::report`]. A record's bytes count as they are sent, the last one with the
    /// tag.
    fn report(&mut self) -> usize {
        let mut plain_sent = 0;
        let mut start = 0;
        for (end, plain) in &self.records[..self.count] {
            let (end, plain) = (*end as usize, usize::from(*plain));
            if self.sent < end {
                let out = self.sent.saturating_sub(start + HEADER_BYTES + RECORD_OVERHEAD);
                plain_sent += out.min(plain.saturating_sub(1));
                break;
            }
            plain_sent += plain;
            start = end;
        }
        debug_assert!(plain_sent >= self.reported, "{plain_sent} {}", self.reported);
        let newly = plain_sent - self.reported;
        self.reported = plain_sent;
        if self.sent == self.bytes.len() {
            self.clear();
        }
        newly
    }

    fn clear(&mut self) {
        (self.sent, self.count, self.reported) = (0, 0, 0);
        self.bytes.clear();
    }
}

/// The error for a fatal alert from a server.
fn given_up(alert: u8) -> io::Error {
    let name = rustls::AlertDescription::from(alert);
    io::Error::new(io::ErrorKind::ConnectionAborted, format!("it ended TLS with {name:?}"))
}
