//! Data of a received response, and the check against expectations.

use std::io;

use super::options::Expected;
use super::tally::LoadFailure;

/// Initial value of checksums, and their factor (FNV-1a).
pub(super) const SUM_START: u64 = 0xCBF2_9CE4_8422_2325;
const SUM_FACTOR: u64 = 0x0100_0000_01B3;

/// Data of a received response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) status: u16,
    /// Bytes of the body; `bytes` includes the head.
    pub(super) body_bytes: u64,
    pub(super) bytes: u64,
    /// Checksum of the body, if requested.
    pub(super) checksum: u64,
    /// Arrival of the first byte, in microseconds of the clock.
    pub(super) first_byte_us: u64,
    /// The connection can be reused.
    pub(super) keeps: bool,
}

pub(super) fn sum(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(SUM_FACTOR))
}

pub(super) fn would_block(error: io::Error) -> io::Result<usize> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) }
}

pub(super) fn failure(error: &io::Error) -> LoadFailure {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => LoadFailure::Reset,
        io::ErrorKind::UnexpectedEof => LoadFailure::Short,
        _ => LoadFailure::Closed,
    }
}

/// The violated expectation, if any. `first` has length and checksum of the first response for the
/// URL.
pub(super) fn judge(
    received: &Received,
    expected: &Expected,
    first: &mut Option<(u64, u64)>,
) -> Option<LoadFailure> {
    let status = received.status;
    let is_expected = expected.status.map_or((200..400).contains(&status), |one| one == status);
    if !is_expected {
        return Some(LoadFailure::Status);
    }
    let (length, checksum) = (received.body_bytes, received.checksum);
    if expected.length.is_some_and(|wanted| wanted != length) {
        return Some(LoadFailure::Length);
    }
    let (first_length, first_checksum) = *first.get_or_insert((length, checksum));
    if (expected.same || expected.checksum) && first_length != length {
        return Some(LoadFailure::Length);
    }
    (expected.checksum && first_checksum != checksum).then_some(LoadFailure::Checksum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_judged_by_what_is_expected() {
        let received = Received { status: 200, body_bytes: 5, checksum: 7, ..Received::default() };
        let any = Expected::default();
        assert_eq!(judge(&received, &any, &mut None), None);
        assert_eq!(
            judge(&Received { status: 404, ..received }, &any, &mut None),
            Some(LoadFailure::Status)
        );
        let wants = Expected { status: Some(404), ..any.clone() };
        assert_eq!(judge(&received, &wants, &mut None), Some(LoadFailure::Status));
        let long = Expected { length: Some(6), ..any.clone() };
        assert_eq!(judge(&received, &long, &mut None), Some(LoadFailure::Length));
        let same = Expected { same: true, ..any.clone() };
        assert_eq!(judge(&received, &same, &mut Some((4, 7))), Some(LoadFailure::Length));
        let content = Expected { checksum: true, ..any };
        assert_eq!(judge(&received, &content, &mut Some((5, 8))), Some(LoadFailure::Checksum));
        assert_eq!(sum(SUM_START, b"a"), 0xAF63_DC4C_8601_EC8C);
    }
}
