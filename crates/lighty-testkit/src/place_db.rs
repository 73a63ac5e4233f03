//! Databases of places in MaxMind's format 2.0, for tests.

use std::net::IpAddr;

/// A value of a database.
#[derive(Clone, Debug)]
pub enum PlaceValue {
    /// Text.
    Text(&'static str),
    /// An unsigned number of 16 bits.
    U16(u16),
    /// An unsigned number of 32 bits.
    U32(u32),
    /// An unsigned number of 64 bits.
    U64(u64),
    /// An unsigned number of 128 bits.
    U128(u128),
    /// A signed number of 32 bits.
    I32(i32),
    /// A floating-point number.
    Double(f64),
    /// A truth value.
    Bool(bool),
    /// Values in order.
    Array(Vec<PlaceValue>),
    /// Values by name.
    Map(Vec<(&'static str, PlaceValue)>),
}

/// A map of names and values.
pub fn map<const N: usize>(pairs: [(&'static str, PlaceValue); N]) -> PlaceValue {
    PlaceValue::Map(pairs.into())
}

/// Branch of a node of the search tree.
#[derive(Clone, Copy)]
enum Branch {
    Nothing,
    Node(usize),
    Data(usize),
}

/// The bytes of a database with these networks, which do not overlap.
///
/// # Panics
/// A network is malformed.
pub fn place_db(networks: &[(&str, PlaceValue)]) -> Vec<u8> {
    let mut nodes = vec![[Branch::Nothing; 2]];
    let mut data = Vec::new();
    for (network, value) in networks {
        let (address, bits) = network.split_once('/').expect("a network");
        let bits: u32 = bits.parse().expect("a length");
        let (address, bits) = match address.parse().expect("an address") {
            IpAddr::V4(address) => (u128::from(address.to_bits()), bits + 96),
            IpAddr::V6(address) => (address.to_bits(), bits),
        };
        let at = data.len();
        encode(value, &mut data);
        let mut node = 0;
        for depth in 0..bits {
            let side = (address >> (127 - depth) & 1) as usize;
            if depth + 1 == bits {
                nodes[node][side] = Branch::Data(at);
                break;
            }
            node = match nodes[node][side] {
                Branch::Node(next) => next,
                _ => {
                    let next = nodes.len();
                    nodes.push([Branch::Nothing; 2]);
                    nodes[node][side] = Branch::Node(next);
                    next
                }
            };
        }
    }
    let count = nodes.len();
    let mut bytes = Vec::new();
    for branch in nodes.iter().flatten() {
        let record = match branch {
            Branch::Nothing => count,
            Branch::Node(node) => *node,
            Branch::Data(at) => count + 16 + at,
        };
        bytes.extend((record as u32).to_be_bytes());
    }
    bytes.extend([0; 16]);
    bytes.extend(data);
    bytes.extend(b"\xab\xcd\xefMaxMind.com");
    encode(&metadata(count as u32), &mut bytes);
    bytes
}

fn metadata(nodes: u32) -> PlaceValue {
    use PlaceValue::{Array, Text, U16, U32, U64};
    map([
        ("binary_format_major_version", U16(2)),
        ("binary_format_minor_version", U16(0)),
        ("build_epoch", U64(1_700_000_000)),
        ("database_type", Text("Test")),
        ("description", map([("en", Text("places of tests"))])),
        ("ip_version", U16(6)),
        ("languages", Array(vec![Text("en")])),
        ("node_count", U32(nodes)),
        ("record_size", U16(32)),
    ])
}

fn encode(value: &PlaceValue, out: &mut Vec<u8>) {
    match value {
        PlaceValue::Text(text) => {
            head(2, text.len(), out);
            out.extend(text.bytes());
        }
        PlaceValue::Double(number) => {
            head(3, 8, out);
            out.extend(number.to_be_bytes());
        }
        PlaceValue::U16(number) => {
            head(5, 2, out);
            out.extend(number.to_be_bytes());
        }
        PlaceValue::U32(number) => {
            head(6, 4, out);
            out.extend(number.to_be_bytes());
        }
        PlaceValue::U64(number) => {
            head(9, 8, out);
            out.extend(number.to_be_bytes());
        }
        PlaceValue::Map(pairs) => {
            head(7, pairs.len(), out);
            for (name, value) in pairs {
                encode(&PlaceValue::Text(name), out);
                encode(value, out);
            }
        }
        PlaceValue::I32(number) => {
            head(8, 4, out);
            out.extend(number.to_be_bytes());
        }
        PlaceValue::U128(number) => {
            head(10, 16, out);
            out.extend(number.to_be_bytes());
        }
        PlaceValue::Array(values) => {
            head(11, values.len(), out);
            values.iter().for_each(|value| encode(value, out));
        }
        PlaceValue::Bool(is_true) => head(14, usize::from(*is_true), out),
    }
}

/// Type and size; types above 7 have a byte of their own.
fn head(kind: u8, size: usize, out: &mut Vec<u8>) {
    let (small, more) = match u8::try_from(size) {
        Ok(size) if size < 29 => (size, None),
        _ => (29, Some(u8::try_from(size - 29).expect("a short value"))),
    };
    match kind {
        1..=7 => out.push(kind << 5 | small),
        _ => out.extend([small, kind - 7]),
    }
    out.extend(more);
}
