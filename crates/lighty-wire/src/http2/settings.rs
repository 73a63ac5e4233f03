//! Settings: RFC 9113 section 6.5, RFC 8441 section 3, RFC 9218 section 2.1.

use alloc::vec::Vec;

use super::fault::ConnFault;
use super::frame::{FRAME_BYTES_MAX, WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX};
use super::hpack::TABLE_BYTES_INITIAL;

/// Identifiers of settings.
pub(super) mod id {
    pub(in crate::http2) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(in crate::http2) const ENABLE_PUSH: u16 = 0x2;
    pub(in crate::http2) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(in crate::http2) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(in crate::http2) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(in crate::http2) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    pub(in crate::http2) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    pub(in crate::http2) const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// The peer's settings, with the defaults of the RFCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Bytes of the table for our field blocks.
    pub table_bytes: u32,
    /// Streams that we may open. Before the first settings, a guess that few peers reject.
    pub streams_max: u32,
    /// Initial window of streams.
    pub window_bytes: u32,
    /// Maximum payload that it accepts.
    pub frame_bytes_max: u32,
    /// Maximum bytes of fields that it accepts, if announced.
    pub field_bytes_max: Option<u32>,
    /// True if it accepts extended CONNECT.
    pub connect_protocol: bool,
    /// True if it ignores the priorities of RFC 7540; `None` before it has announced that.
    pub no_rfc7540_priorities: Option<bool>,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            table_bytes: TABLE_BYTES_INITIAL as u32,
            streams_max: 100,
            window_bytes: WINDOW_BYTES_INITIAL,
            frame_bytes_max: FRAME_BYTES_MAX as u32,
            field_bytes_max: None,
            connect_protocol: false,
            no_rfc7540_priorities: None,
        }
    }
}

impl PeerSettings {
    /// Applies one setting; unknown ones are ignored.
    ///
    /// # Errors
    /// [`ConnFault`] for a value that the setting may not have.
    pub(super) fn apply(&mut self, id: u16, value: u32) -> Result<(), ConnFault> {
        match (id, value) {
            (id::HEADER_TABLE_SIZE, _) => self.table_bytes = value,
            (id::ENABLE_PUSH, 0 | 1) => {}
            (id::MAX_CONCURRENT_STREAMS, _) => self.streams_max = value,
            (id::INITIAL_WINDOW_SIZE, 0..=WINDOW_BYTES_MAX) => self.window_bytes = value,
            (id::INITIAL_WINDOW_SIZE, _) => return Err(ConnFault::WindowSetting),
            (id::MAX_FRAME_SIZE, 0x4000..=0xFF_FFFF) => self.frame_bytes_max = value,
            (id::MAX_HEADER_LIST_SIZE, _) => self.field_bytes_max = Some(value),
            (id::ENABLE_CONNECT_PROTOCOL, 1) => self.connect_protocol = true,
            // RFC 8441 section 3: it must not be withdrawn.
            (id::ENABLE_CONNECT_PROTOCOL, 0) if !self.connect_protocol => {}
            (id::NO_RFC7540_PRIORITIES, 0 | 1)
                if self.no_rfc7540_priorities.is_none_or(|earlier| earlier == (value == 1)) =>
            {
                self.no_rfc7540_priorities = Some(value == 1);
            }
            (
                id::ENABLE_PUSH
                | id::MAX_FRAME_SIZE
                | id::ENABLE_CONNECT_PROTOCOL
                | id::NO_RFC7540_PRIORITIES,
                _,
            ) => return Err(ConnFault::SettingValue),
            _ => {}
        }
        Ok(())
    }
}

/// Appends a setting.
pub(super) fn push(id: u16, value: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&value.to_be_bytes());
}

/// The settings of a payload. The payload's length must be a multiple of six.
pub(super) fn entries(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    debug_assert!(payload.len().is_multiple_of(6), "{}", payload.len());
    payload
        .as_chunks::<6>()
        .0
        .iter()
        .map(|&[a, b, c, d, e, f]| (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_on_each_side_of_what_is_allowed() {
        let max = WINDOW_BYTES_MAX;
        for (id, value, allowed) in [
            (id::HEADER_TABLE_SIZE, u32::MAX, true),
            (id::ENABLE_PUSH, 1, true),
            (id::ENABLE_PUSH, 2, false),
            (id::INITIAL_WINDOW_SIZE, max, true),
            (id::INITIAL_WINDOW_SIZE, max + 1, false),
            (id::MAX_FRAME_SIZE, 16_383, false),
            (id::MAX_FRAME_SIZE, 16_384, true),
            (id::MAX_FRAME_SIZE, (1 << 24) - 1, true),
            (id::MAX_FRAME_SIZE, 1 << 24, false),
            (id::ENABLE_CONNECT_PROTOCOL, 1, true),
            (id::ENABLE_CONNECT_PROTOCOL, 2, false),
            (id::NO_RFC7540_PRIORITIES, 1, true),
            (id::NO_RFC7540_PRIORITIES, 2, false),
            (0x99, 7, true),
        ] {
            let result = PeerSettings::default().apply(id, value);
            assert_eq!(result.is_ok(), allowed, "{id} = {value}");
        }
    }

    #[test]
    fn permanent_settings_cannot_be_taken_back() {
        let mut settings = PeerSettings::default();
        assert_eq!(settings.apply(id::ENABLE_CONNECT_PROTOCOL, 0), Ok(()));
        assert_eq!(settings.apply(id::ENABLE_CONNECT_PROTOCOL, 1), Ok(()));
        assert_eq!(settings.apply(id::ENABLE_CONNECT_PROTOCOL, 0), Err(ConnFault::SettingValue));
        assert_eq!(settings.apply(id::NO_RFC7540_PRIORITIES, 1), Ok(()));
        assert_eq!(settings.apply(id::NO_RFC7540_PRIORITIES, 1), Ok(()));
        assert_eq!(settings.apply(id::NO_RFC7540_PRIORITIES, 0), Err(ConnFault::SettingValue));
    }
}
