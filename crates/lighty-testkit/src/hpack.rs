//! HTTP/2 field blocks (RFC 7541): an encoder without compression, and a complete decoder.

/// Appends a field as a literal that is not added to a table.
pub fn push_field(name: &str, value: &str, out: &mut Vec<u8>) {
    out.push(0);
    for text in [name, value] {
        push_length(text.len(), out);
        out.extend_from_slice(text.as_bytes());
    }
}

/// Appends an integer with a prefix of seven bits.
fn push_length(mut length: usize, out: &mut Vec<u8>) {
    if length < 127 {
        return out.push(length as u8);
    }
    out.push(127);
    length -= 127;
    while length >= 128 {
        out.push(length as u8 | 128);
        length /= 128;
    }
    out.push(length as u8);
}

/// Decodes the field blocks of one connection.
#[derive(Default)]
pub struct Decoder {
    /// The dynamic table, newest entry first.
    table: Vec<(String, String)>,
}

/// Maximum bytes of the dynamic table.
const TABLE_BYTES_MAX: usize = 4096;

impl Decoder {
    /// Decodes a whole block; fails the test if it is malformed.
    pub fn decode(&mut self, block: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let mut at = 0;
        while at < block.len() {
            let first = block[at];
            let bits = match first {
                128.. => 7,
                64..128 => 6,
                32..64 => 5,
                _ => 4,
            };
            let index = integer(block, &mut at, bits);
            match first {
                128.. => fields.push(self.entry(index)),
                32..64 => assert!(index <= TABLE_BYTES_MAX, "a table within our setting"),
                _ => {
                    let name = match index {
                        0 => string(block, &mut at),
                        index => self.entry(index).0,
                    };
                    let field = (name, string(block, &mut at));
                    if first >= 64 {
                        self.insert(field.clone());
                    }
                    fields.push(field);
                }
            }
        }
        fields
    }

    fn entry(&self, index: usize) -> (String, String) {
        if let Some(line) = STATIC.lines().nth(index - 1) {
            let (name, value) = line.split_once('|').expect("a bar");
            return (name.to_owned(), value.to_owned());
        }
        self.table[index - 62].clone()
    }

    fn insert(&mut self, field: (String, String)) {
        self.table.insert(0, field);
        let size = |table: &[(String, String)]| -> usize {
            table.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
        };
        while size(&self.table) > TABLE_BYTES_MAX {
            self.table.pop();
        }
    }
}

fn integer(block: &[u8], at: &mut usize, bits: u32) -> usize {
    let most = (1 << bits) - 1;
    let mut value = usize::from(block[*at]) & most;
    *at += 1;
    if value < most {
        return value;
    }
    let mut shift = 0;
    loop {
        let byte = block[*at];
        *at += 1;
        value += usize::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            return value;
        }
    }
}

fn string(block: &[u8], at: &mut usize) -> String {
    let is_coded = block[*at] >= 128;
    let length = integer(block, at, 7);
    let bytes = &block[*at..*at + length];
    *at += length;
    let plain = if is_coded { decoded(bytes) } else { bytes.to_vec() };
    String::from_utf8(plain).expect("text")
}

/// Decodes a Huffman-coded string. Codes of one length are consecutive, in the order of their
/// symbols.
fn decoded(bytes: &[u8]) -> Vec<u8> {
    let mut symbols: Vec<usize> = (0..CODE_BITS.len()).collect();
    symbols.sort_by_key(|&symbol| (CODE_BITS[symbol], symbol));
    let mut codes = std::collections::BTreeMap::new();
    let (mut code, mut bits) = (0u32, 0);
    for symbol in symbols {
        code <<= CODE_BITS[symbol] - bits;
        bits = CODE_BITS[symbol];
        codes.insert((bits, code), symbol);
        code += 1;
    }
    let (mut plain, mut code, mut bits) = (Vec::new(), 0u32, 0);
    for nth in 0..bytes.len() * 8 {
        code = code << 1 | u32::from(bytes[nth / 8] >> (7 - nth % 8) & 1);
        bits += 1;
        if let Some(&symbol) = codes.get(&(bits, code)) {
            plain.push(u8::try_from(symbol).expect("no end of string"));
            (code, bits) = (0, 0);
        }
    }
    assert!(bits < 8 && code == (1 << bits) - 1, "padding of ones");
    plain
}

/// Bits of each symbol's code: RFC 7541 appendix B. The code is canonical.
#[rustfmt::skip]
const CODE_BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// Names and values of the static table: RFC 7541 appendix A, one entry per line, name and value
/// separated by a bar.
const STATIC: &str = ":authority|\n\
     :method|GET\n\
     :method|POST\n\
     :path|/\n\
     :path|/index.html\n\
     :scheme|http\n\
     :scheme|https\n\
     :status|200\n\
     :status|204\n\
     :status|206\n\
     :status|304\n\
     :status|400\n\
     :status|404\n\
     :status|500\n\
     accept-charset|\n\
     accept-encoding|gzip, deflate\n\
     accept-language|\n\
     accept-ranges|\n\
     accept|\n\
     access-control-allow-origin|\n\
     age|\n\
     allow|\n\
     authorization|\n\
     cache-control|\n\
     content-disposition|\n\
     content-encoding|\n\
     content-language|\n\
     content-length|\n\
     content-location|\n\
     content-range|\n\
     content-type|\n\
     cookie|\n\
     date|\n\
     etag|\n\
     expect|\n\
     expires|\n\
     from|\n\
     host|\n\
     if-match|\n\
     if-modified-since|\n\
     if-none-match|\n\
     if-range|\n\
     if-unmodified-since|\n\
     last-modified|\n\
     link|\n\
     location|\n\
     max-forwards|\n\
     proxy-authenticate|\n\
     proxy-authorization|\n\
     range|\n\
     referer|\n\
     refresh|\n\
     retry-after|\n\
     server|\n\
     set-cookie|\n\
     strict-transport-security|\n\
     transfer-encoding|\n\
     user-agent|\n\
     vary|\n\
     via|\n\
     www-authenticate|";

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7541 appendix C.6.1.
    #[test]
    fn the_example_of_the_rfc_is_read() {
        let block = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff\
                     6e919d29ad171863c78f0b97c8e9ae82ae43d3";
        let bytes = |nth: usize| u8::from_str_radix(&block[nth * 2..nth * 2 + 2], 16);
        let block: Vec<u8> = (0..block.len() / 2).map(|nth| bytes(nth).expect("hex")).collect();
        let fields = Decoder::default().decode(&block);
        let wanted = [
            (":status", "302"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("location", "https://www.example.com"),
        ];
        assert_eq!(fields, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
