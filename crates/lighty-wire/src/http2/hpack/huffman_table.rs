//! The Huffman code of RFC 7541 appendix B.
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols. The
//! table therefore only contains the lengths, and the codes are computed at compile time.

/// The symbol that ends a string. It must not occur within one.
pub(super) const EOS: usize = 256;

/// Bits of the code of each byte, and of [`EOS`].
pub(super) static LENGTHS: [u8; 257] = LENGTHS_OF_SYMBOLS;

#[rustfmt::skip]
const LENGTHS_OF_SYMBOLS: [u8; 257] = [
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

/// The longest code.
pub(super) const CODE_BITS_MAX: usize = 30;

/// Bits of the first decoding step, which cover all of printable ASCII except nine characters.
pub(super) const FAST_BITS: usize = 10;

/// The code of each symbol, in its lowest bits.
pub(super) static CODES: [u32; 257] = CANON.codes;

/// Symbol and code length for each index; a length of 0 if the code is longer.
pub(super) static FAST: [(u8, u8); 1 << FAST_BITS] = fast();

/// For each length: the first code, and its symbol's position in [`SORTED`].
pub(super) static FIRSTS: [(u32, u16); CODE_BITS_MAX + 2] = CANON.firsts;

/// The symbols in the order of their codes.
pub(super) static SORTED: [u16; 257] = CANON.sorted;

struct Canon {
    codes: [u32; 257],
    firsts: [(u32, u16); CODE_BITS_MAX + 2],
    sorted: [u16; 257],
}

const CANON: Canon = canon();

const fn canon() -> Canon {
    let mut canon =
        Canon { codes: [0; 257], firsts: [(0, 0); CODE_BITS_MAX + 2], sorted: [0; 257] };
    let (mut code, mut place, mut bits) = (0u32, 0u16, 0);
    while bits <= CODE_BITS_MAX {
        code <<= 1;
        canon.firsts[bits] = (code, place);
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS_OF_SYMBOLS[symbol] as usize == bits {
                canon.codes[symbol] = code;
                canon.sorted[place as usize] = symbol as u16;
                code += 1;
                place += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    canon.firsts[CODE_BITS_MAX + 1] = (code << 1, place);
    canon
}

const fn fast() -> [(u8, u8); 1 << FAST_BITS] {
    let mut table = [(0, 0); 1 << FAST_BITS];
    let mut symbol = 0;
    while symbol < 256 {
        let bits = LENGTHS_OF_SYMBOLS[symbol] as usize;
        if bits <= FAST_BITS {
            let first = (CANON.codes[symbol] as usize) << (FAST_BITS - bits);
            let mut rest = 0;
            while rest < 1 << (FAST_BITS - bits) {
                table[first + rest] = (symbol as u8, bits as u8);
                rest += 1;
            }
        }
        symbol += 1;
    }
    table
}
