//! The Content-Security-Policy of a listing: only the page's own scripts and styles may run.
//!
//! Uploaders choose file names. The names are escaped; if escaping ever fails, the policy still
//! blocks injected scripts. The built-in style and script are allowed by their hash, which is
//! computed at compile time and so cannot go stale.

/// Base64 of SHA-256 of the built-in style and script, for `'sha256-…'`.
pub(super) const STYLE_HASH: [u8; 44] = base64(&sha256(super::page::STYLE.as_bytes()));
pub(super) const SCRIPT_HASH: [u8; 44] = base64(&sha256(super::page::SCRIPT.as_bytes()));

/// The source of a page's style or script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin<'a> {
    /// Built in.
    Own,
    /// `dir-listing.external-css`, `-js`.
    External(&'a str),
}

impl<'a> Origin<'a> {
    /// `External` if a URL is set, otherwise `Own`.
    pub(super) fn of(url: Option<&'a str>) -> Self {
        url.map_or(Origin::Own, Origin::External)
    }
}

/// The policy. `raw_html`: the operator's own HTML stands in the page and may style itself.
/// `uploads`: its script sends files to this server.
pub(super) fn policy(
    style: Origin<'_>,
    script: Origin<'_>,
    raw_html: bool,
    uploads: bool,
) -> String {
    let mut style_src = source(style, &STYLE_HASH);
    if raw_html {
        // A hash would switch 'unsafe-inline' off.
        style_src = match style {
            Origin::Own => "'unsafe-inline'".to_owned(),
            Origin::External(_) => format!("{style_src} 'unsafe-inline'"),
        };
    }
    format!(
        "default-src 'none'; style-src {style_src}; script-src {}; img-src 'self' data:; \
         font-src 'self'; base-uri 'none'; form-action 'none'{}",
        source(script, &SCRIPT_HASH),
        if uploads { "; connect-src 'self'" } else { "" },
    )
}

fn source(origin: Origin<'_>, hash: &[u8; 44]) -> String {
    match origin {
        Origin::Own => format!("'sha256-{}'", String::from_utf8_lossy(hash)),
        Origin::External(url) => match server_of(url) {
            Some(server) => server.to_owned(),
            None => "'self'".to_owned(),
        },
    }
}

/// `https://cdn.example` of `https://cdn.example/a.css`; `None` for a path on this server.
fn server_of(url: &str) -> Option<&str> {
    let start = url.strip_prefix("//").map(|_| 2).or_else(|| url.find("://").map(|at| at + 3))?;
    let length = url[start..].find(['/', '?', '#']).unwrap_or(url.len() - start);
    let server =
        if url.starts_with("//") { &url[2..start + length] } else { &url[..start + length] };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-/[]".contains(&byte);
    server.bytes().all(plain).then_some(server)
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const fn base64(hash: &[u8; 32]) -> [u8; 44] {
    let mut out = [b'='; 44];
    let mut bit = 0;
    while bit < 256 {
        let byte = hash[bit / 8] as u32;
        let next = if bit / 8 + 1 < 32 { hash[bit / 8 + 1] as u32 } else { 0 };
        let window = (byte << 8 | next) >> (10 - bit % 8);
        out[bit / 6] = BASE64[(window & 63) as usize];
        bit += 6;
    }
    out
}

/// FIPS 180-4, sections 5 and 6.2.
const fn sha256(text: &[u8]) -> [u8; 32] {
    let mut state: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    let blocks = (text.len() + 9).div_ceil(64);
    let mut block = 0;
    while block < blocks {
        state = compress(&state, &padded_block(text, block, blocks));
        block += 1;
    }
    let mut out = [0; 32];
    let mut at = 0;
    while at < 32 {
        out[at] = state[at / 4].to_be_bytes()[at % 4];
        at += 1;
    }
    out
}

const fn padded_block(text: &[u8], block: usize, blocks: usize) -> [u8; 64] {
    let mut out = [0; 64];
    let mut at = 0;
    while at < 64 {
        let from = block * 64 + at;
        if from < text.len() {
            out[at] = text[from];
        } else if from == text.len() {
            out[at] = 0x80;
        }
        at += 1;
    }
    if block + 1 == blocks {
        let bits = (text.len() as u64 * 8).to_be_bytes();
        let mut at = 0;
        while at < 8 {
            out[56 + at] = bits[at];
            at += 1;
        }
    }
    out
}

const fn compress(state: &[u32; 8], block: &[u8; 64]) -> [u32; 8] {
    let mut w = [0u32; 64];
    let mut t = 0;
    while t < 64 {
        w[t] = if t < 16 {
            u32::from_be_bytes([block[4 * t], block[4 * t + 1], block[4 * t + 2], block[4 * t + 3]])
        } else {
            let (a, b) = (w[t - 15], w[t - 2]);
            let small0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
            let small1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
            w[t - 16].wrapping_add(small0).wrapping_add(w[t - 7]).wrapping_add(small1)
        };
        t += 1;
    }
    let mut s = *state;
    let mut t = 0;
    while t < 64 {
        let big1 = s[4].rotate_right(6) ^ s[4].rotate_right(11) ^ s[4].rotate_right(25);
        let choice = (s[4] & s[5]) ^ (!s[4] & s[6]);
        let t1 = s[7].wrapping_add(big1).wrapping_add(choice).wrapping_add(K[t]).wrapping_add(w[t]);
        let big0 = s[0].rotate_right(2) ^ s[0].rotate_right(13) ^ s[0].rotate_right(22);
        let majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        let t2 = big0.wrapping_add(majority);
        s = [t1.wrapping_add(t2), s[0], s[1], s[2], s[3].wrapping_add(t1), s[4], s[5], s[6]];
        t += 1;
    }
    let mut at = 0;
    while at < 8 {
        s[at] = s[at].wrapping_add(state[at]);
        at += 1;
    }
    s
}

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
const K: [u32; 64] = cube_root_bits();

const fn cube_root_bits() -> [u32; 64] {
    let mut out = [0; 64];
    let (mut found, mut number) = (0, 2u128);
    while found < 64 {
        if is_prime(number) {
            // floor(cbrt(n) * 2^32): the largest r with r^3 <= n * 2^96; its low half is wanted.
            let (mut low, mut high) = (0u128, 1 << 36);
            while low + 1 < high {
                let middle = (low + high) / 2;
                if middle * middle * middle <= number << 96 { low = middle } else { high = middle }
            }
            out[found] = low as u32;
            found += 1;
        }
        number += 1;
    }
    out
}

const fn is_prime(number: u128) -> bool {
    let mut divisor = 2;
    while divisor * divisor <= number {
        if number.is_multiple_of(divisor) {
            return false;
        }
        divisor += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> String {
        sha256(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn hashes_of_the_standard() {
        assert_eq!(K[0], 0x428a_2f98);
        assert_eq!(K[63], 0xc671_78f2);
        assert_eq!(hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(
            hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        );
        assert_eq!(&base64(&sha256(b"")), b"47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    #[test]
    fn external_sources_are_named_by_their_server() {
        for (url, expected) in [
            ("/style.css", "'self'"),
            ("style.css", "'self'"),
            ("https://cdn.example:8443/a.css?x", "https://cdn.example:8443"),
            ("//cdn.example/a.css", "cdn.example"),
            ("https://a;script-src *", "'self'"),
        ] {
            assert_eq!(source(Origin::External(url), &STYLE_HASH), expected, "{url}");
        }
    }

    #[test]
    fn raw_html_may_style_itself_but_run_nothing() {
        let policy = policy(Origin::Own, Origin::Own, true, false);
        assert!(policy.contains("style-src 'unsafe-inline';"), "{policy}");
        assert!(policy.contains("script-src 'sha256-"), "{policy}");
        assert!(!policy.contains("script-src 'unsafe-inline'"), "{policy}");
    }
}
