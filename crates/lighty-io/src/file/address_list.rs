//! Files that list addresses and networks, one on each line.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use super::followed::{Followed, FollowedContents};

/// Maximum length of a file, in bytes.
pub const LIST_BYTES_MAX: u64 = 64 << 20;

/// Addresses and networks, as ranges that neither overlap nor touch, in ascending order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AddressList {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

/// The file with this path, which is not read yet.
pub fn at(path: &Path) -> Arc<Followed<AddressList>> {
    Followed::at(path, LIST_BYTES_MAX, AddressList::parse)
}

impl AddressList {
    /// Parses a file: an address or a network on each line; `#` and `;` begin comments.
    ///
    /// # Errors
    /// `InvalidData`, with the number of the line that holds something else.
    pub fn parse(bytes: Vec<u8>) -> io::Result<Self> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.split(|byte| matches!(byte, b'#' | b';')).next().unwrap_or_default();
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            match str::from_utf8(line).ok().and_then(range) {
                Some(AddressRange::V4(first, last)) => v4.push((first, last)),
                Some(AddressRange::V6(first, last)) => v6.push((first, last)),
                None => {
                    let shown = String::from_utf8_lossy(&line[..line.len().min(60)]);
                    let text = format!("line {number}: {shown:?} is no address and no network");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
            }
        }
        let v4 = joined(v4, |last: u32| last.saturating_add(1));
        let v6 = joined(v6, |last: u128| last.saturating_add(1));
        Ok(Self { v4, v6 })
    }

    /// True if the list has this address, or a network around it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => is_within(&self.v4, address.to_bits()),
            IpAddr::V6(address) => is_within(&self.v6, address.to_bits()),
        }
    }
}

impl FollowedContents for AddressList {
    const KIND: &'static str = "addresses";

    /// Networks, those that touch counted as one.
    fn entries(&self) -> u64 {
        (self.v4.len() + self.v6.len()) as u64
    }
}

/// First and last address of a network.
enum AddressRange {
    V4(u32, u32),
    V6(u128, u128),
}

fn range(text: &str) -> Option<AddressRange> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
            (address, Some(bits.parse::<u32>().ok()?))
        }
        Some(_) => return None,
        None => (text, None),
    };
    let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']'));
    match bare.unwrap_or(address).parse::<IpAddr>().ok()? {
        IpAddr::V4(address) => v4(address, bits.unwrap_or(32)),
        // Clients have canonical addresses, so a network of mapped addresses is one of IPv4.
        IpAddr::V6(address) => match (address.to_ipv4_mapped(), bits.unwrap_or(128)) {
            (Some(address), bits @ 96..=128) => v4(address, bits - 96),
            (_, bits) => v6(address, bits),
        },
    }
}

fn v4(address: Ipv4Addr, bits: u32) -> Option<AddressRange> {
    let host = u32::MAX.checked_shr(bits).unwrap_or(0);
    let first = address.to_bits() & !host;
    (bits <= 32).then_some(AddressRange::V4(first, first | host))
}

fn v6(address: Ipv6Addr, bits: u32) -> Option<AddressRange> {
    let host = u128::MAX.checked_shr(bits).unwrap_or(0);
    let first = address.to_bits() & !host;
    (bits <= 128).then_some(AddressRange::V6(first, first | host))
}

/// The same addresses in as few ranges as possible, in ascending order.
fn joined<T: Ord + Copy>(mut ranges: Vec<(T, T)>, next: fn(T) -> T) -> Box<[(T, T)]> {
    ranges.sort_unstable();
    let mut joined: Vec<(T, T)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if first <= next(before.1) => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined.into()
}

fn is_within<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let at = ranges.partition_point(|(first, _)| *first <= address);
    at.checked_sub(1).is_some_and(|at| address <= ranges[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> AddressList {
        AddressList::parse(text.as_bytes().to_vec()).expect(text)
    }

    #[test]
    fn lists_hold_their_addresses_and_networks() {
        let list = list(
            "\u{feff}# office\n192.0.2.7\r\n 198.51.100.0/25 ; DROP 7\n\n2001:db8::/32 # lab\n\
             ::ffff:203.0.113.8/125\n10.1.2.3/8\n[::1]",
        );
        for (address, is_in) in [
            ("192.0.2.7", true),
            ("192.0.2.6", false),
            ("192.0.2.8", false),
            ("198.51.99.255", false),
            ("198.51.100.0", true),
            ("198.51.100.127", true),
            ("198.51.100.128", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("203.0.113.8", true),
            ("::ffff:203.0.113.15", true),
            ("203.0.113.16", false),
            ("10.255.0.1", true),
            ("::1", true),
            ("::2", false),
        ] {
            assert_eq!(list.contains(address.parse().expect(address)), is_in, "{address}");
        }
    }

    #[test]
    fn ranges_are_joined() {
        let list = list("10.0.0.0/9\n10.128.0.0/9\n10.3.0.0/16\n12.0.0.0/8\n::/0\n::5");
        assert_eq!(list.v4.len(), 2);
        assert_eq!(&*list.v6, [(0, u128::MAX)]);
        assert_eq!(self::list("0.0.0.0/0\n255.255.255.255").v4.len(), 1);
        assert_eq!(self::list(""), AddressList::default());
    }

    #[test]
    fn other_lines_are_refused_with_their_number() {
        for line in [
            "192.0.2.0/33",
            "192.0.2.0/+8",
            "::/129",
            "a",
            "192.0.2",
            "192.0.2.1 192.0.2.2",
            "/8",
            "1.2.3.4/",
        ] {
            let text = format!("::1\n{line}\n");
            let error = AddressList::parse(text.into_bytes()).expect_err(line).to_string();
            assert!(error.starts_with("line 2: "), "{line}: {error}");
        }
        let error = AddressList::parse(b"\xff".to_vec()).expect_err("no text").to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
