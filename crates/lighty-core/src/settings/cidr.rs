//! Networks: an address and a prefix length.

use std::net::IpAddr;

/// A network, `192.0.2.0/24`, or a single address. IPv4-mapped IPv6 addresses count as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u32,
}

impl Cidr {
    /// Parses an address, optionally followed by `/` and a prefix length.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address =
            address.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(address);
        let address: IpAddr = address.parse().ok()?;
        let width = width(address);
        let bits = match bits {
            None => width,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
        };
        (bits <= width).then_some(Self { address, bits })
    }

    /// True if the network contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (own, address) = (self.address, address.to_canonical());
        width(own) == width(address) && first_bits(own, self.bits) == first_bits(address, self.bits)
    }
}

/// The network of an address for a prefix length, with the other bits zero.
pub fn network(address: IpAddr, v4_bits: u32, v6_bits: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(ip) => {
            let kept = u32::MAX.checked_shl(32 - v4_bits.min(32)).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & kept).into())
        }
        IpAddr::V6(ip) => {
            let kept = u128::MAX.checked_shl(128 - v6_bits.min(128)).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & kept).into())
        }
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn first_bits(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(_) => network(address, bits, 128),
        // Not unmapped: the configuration contains a mapped address on purpose.
        IpAddr::V6(ip) => {
            let kept = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & kept).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn networks_contain_what_they_say() {
        for (net, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("192.0.2.1/32", "::ffff:192.0.2.1", "::1"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
            ("[::1]", "::1", "::2"),
            ("10.0.0.0/31", "10.0.0.1", "10.0.0.2"),
        ] {
            let net = Cidr::parse(net).expect(net);
            assert!(net.contains(ip(inside)), "{net:?} {inside}");
            assert!(!net.contains(ip(outside)), "{net:?} {outside}");
        }
        for bad in ["", "a", "1.2.3.4/33", "::/129", "1.2.3.4/", "1.2.3.4/+1", "1.2.3/8", "/8"] {
            assert_eq!(Cidr::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn neighbours_share_a_network() {
        assert_eq!(network(ip("2001:db8:1:2:3::4"), 32, 64), ip("2001:db8:1:2::"));
        assert_eq!(network(ip("::ffff:192.0.2.9"), 24, 64), ip("192.0.2.0"));
        assert_eq!(network(ip("192.0.2.9"), 0, 0), ip("0.0.0.0"));
        assert_eq!(network(ip("2001:db8::1"), 0, 0), ip("::"));
    }
}
