//! Hashes of the balancers, written out so that they are equal on every machine.
//!
//! FNV-1a (64 bits) over the bytes, then the finaliser of SplitMix64, which spreads FNV's low bits
//! over all of them. The hashes do not resist an attacker who wants many URLs to hit one backend;
//! `bounded-hash` limits the damage.

use std::net::IpAddr;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the hash of an address's name for [`Choice::name_hash`](super::Choice::name_hash).
pub(crate) fn name_hash(name: &[u8]) -> u64 {
    mix(fnv(FNV_OFFSET, name))
}

/// Returns the hash of a URL. The authority counts without regard to case (RFC 9110, section
/// 4.2.3).
pub(super) fn url_hash(authority: &[u8], target: &[u8]) -> u64 {
    let lower = authority.iter().map(u8::to_ascii_lowercase);
    let host = lower.fold(FNV_OFFSET, fnv_step);
    // A separator byte that neither part can contain.
    mix(fnv(fnv_step(host, 0), target))
}

/// Returns the hash of a client. An IPv6 address counts by its network (64 bits), since hosts
/// change the rest as they like (RFC 8981); a mapped IPv4 address counts as the IPv4 address.
pub(super) fn client_hash(client: IpAddr) -> u64 {
    let bits = match client.to_canonical() {
        IpAddr::V4(v4) => fnv(FNV_OFFSET, &v4.octets()),
        IpAddr::V6(v6) => fnv(FNV_OFFSET, &v6.octets()[..8]),
    };
    mix(bits)
}

/// Returns the draw of a key and an address: uniform over all numbers, different for each pair.
pub(super) fn pair(key: u64, name_hash: u64) -> u64 {
    mix(key ^ mix(name_hash))
}

fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().copied().fold(start, fnv_step)
}

fn fnv_step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
}

/// SplitMix64's finaliser (Steele, Lea, Flood, 2014; variant 13 of Stafford).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_are_those_of_every_other_machine() {
        // FNV-1a's own vectors, from its authors' list.
        assert_eq!(fnv(FNV_OFFSET, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(FNV_OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(FNV_OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
        // SplitMix64 from seed 0: its first two outputs.
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn a_host_has_no_case_and_the_parts_do_not_run_together() {
        assert_eq!(url_hash(b"Example.ORG", b"/a"), url_hash(b"example.org", b"/a"));
        assert_ne!(url_hash(b"example.org", b"/a"), url_hash(b"example.org", b"/A"));
        assert_ne!(url_hash(b"a", b"b/"), url_hash(b"ab", b"/"));
    }

    #[test]
    fn a_client_is_known_by_its_network() {
        let hash = |text: &str| client_hash(text.parse().expect("an address"));
        assert_eq!(hash("2001:db8:1:2::3"), hash("2001:db8:1:2:ffff::9"));
        assert_ne!(hash("2001:db8:1:2::3"), hash("2001:db8:1:3::3"));
        assert_eq!(hash("::ffff:192.0.2.1"), hash("192.0.2.1"));
        assert_ne!(hash("192.0.2.1"), hash("192.0.2.2"));
    }
}
