//! Messages of directories.

use lighty_identity::directory::messages::{MESSAGE_BYTES_MAX, message_length};

/// The length of a message: what is accepted is complete, and more bytes change nothing.
pub fn ldap_message(data: &[u8]) {
    let found = message_length(data);
    let Ok(Some(length)) = found else { return };
    assert!((2..=MESSAGE_BYTES_MAX.min(data.len())).contains(&length));
    assert_eq!(message_length(&data[..length]), found);
    assert_eq!(message_length(&data[..length - 1]), Ok(None));
}
