//! Messages of directories.

use lighty_identity::directory::messages::{MESSAGE_BYTES_MAX, message_size};

/// The size of a message: it is complete, and more bytes change nothing.
pub fn ldap_message(data: &[u8]) {
    let found = message_size(data);
    let Ok(Some(size)) = found else { return };
    assert!((2..=MESSAGE_BYTES_MAX.min(data.len())).contains(&size.bytes));
    assert!(size.elements * 2 <= size.bytes);
    assert_eq!(message_size(&data[..size.bytes]), found);
    assert_eq!(message_size(&data[..size.bytes - 1]), Ok(None));
}
