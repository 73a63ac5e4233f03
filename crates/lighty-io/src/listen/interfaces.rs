//! Addresses of this machine's interfaces under which other machines reach it.
//!
//! They are read from `/proc`, which requires neither a socket nor privileges. Without `/proc` the
//! list is empty.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of bytes read of a table: a router has very many routes.
const TABLE_BYTES_MAX: usize = 1 << 20;

/// Addresses of all interfaces, except loopback and link-local addresses, IPv4 first.
pub fn network_addresses() -> Vec<IpAddr> {
    let table = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (table("/proc/net/fib_trie"), table("/proc/net/if_inet6"));
    let v4 = ipv4_of_trie(front(&v4)).into_iter().map(IpAddr::V4);
    v4.chain(ipv6_of_table(front(&v6)).into_iter().map(IpAddr::V6)).collect()
}

fn front(table: &str) -> &str {
    table.get(..TABLE_BYTES_MAX).unwrap_or(table)
}

/// Each local address is in a line of its own before `/32 host LOCAL`.
fn ipv4_of_trie(table: &str) -> Vec<Ipv4Addr> {
    let (mut found, mut latest) = (Vec::new(), None);
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            latest = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = latest.take()
        {
            let is_known = address.is_loopback() || found.contains(&address);
            found.extend((!is_known).then_some(address));
        }
    }
    found
}

/// Each line begins with 32 digits; the fourth column is the scope, `00` for global addresses.
fn ipv6_of_table(table: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_global = columns.get(3) == Some(&"00");
        let bits = u128::from_str_radix(columns.first()?, 16).ok()?;
        is_global.then(|| Ipv6Addr::from(bits))
    };
    table.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_ipv4_addresses_are_read_once() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.0.2.7\n        /32 host LOCAL\n     \
                     |-- 192.0.2.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        \
                     /32 host LOCAL\nLocal:\n     |-- 192.0.2.7\n        /32 host LOCAL\n";
        assert_eq!(ipv4_of_trie(table), [Ipv4Addr::new(192, 0, 2, 7)]);
        assert_eq!(ipv4_of_trie("/32 host LOCAL\n|-- x\n"), [Ipv4Addr::LOCALHOST; 0]);
    }

    #[test]
    fn global_ipv6_addresses_are_read() {
        let table = "20010db8000000000000000000000007 02 40 00 80     eth0\n\
                     fe800000000000000000000000000007 02 40 20 80     eth0\n\
                     00000000000000000000000000000001 01 80 10 80       lo\nx\n";
        let expected: Ipv6Addr = "2001:db8::7".parse().expect("an address");
        assert_eq!(ipv6_of_table(table), [expected]);
    }
}
