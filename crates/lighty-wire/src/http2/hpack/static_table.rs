//! The static table: RFC 7541 appendix A.

use lighty_http::Known;

/// Number of entries. Indices of the dynamic table follow them.
pub(super) const STATIC_LEN: usize = STATIC.len();

/// Names and values; index 1 is the first.
#[rustfmt::skip]
pub(super) static STATIC: [(&str, &str); 61] = STATIC_FIELDS;

#[rustfmt::skip]
const STATIC_FIELDS: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The known name of each entry.
pub(super) static STATIC_KNOWN: [Option<Known>; 61] = static_known();

/// The first index with this name; 0 if there is none.
pub(super) static KNOWN_INDEX: [u8; Known::COUNT] = known_index();

const fn static_known() -> [Option<Known>; 61] {
    let mut table = [None; 61];
    let mut index = 0;
    while index < table.len() {
        let mut nth = 0;
        while nth < Known::COUNT {
            let known = Known::all()[nth];
            if is_name(known, STATIC_FIELDS[index].0) {
                table[index] = Some(known);
            }
            nth += 1;
        }
        index += 1;
    }
    table
}

const fn known_index() -> [u8; Known::COUNT] {
    let mut table = [0; Known::COUNT];
    let mut index = STATIC_LEN;
    while index > 0 {
        if let Some(known) = STATIC_KNOWN_NAMES[index - 1] {
            table[known as usize] = index as u8;
        }
        index -= 1;
    }
    table
}

const STATIC_KNOWN_NAMES: [Option<Known>; 61] = static_known();

const fn is_name(known: Known, name: &str) -> bool {
    let (known, name) = (known.as_str().as_bytes(), name.as_bytes());
    let mut at = 0;
    while at < known.len() && at < name.len() {
        if !known[at].eq_ignore_ascii_case(&name[at]) {
            return false;
        }
        at += 1;
    }
    known.len() == name.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_both_directions() {
        for (index, (name, _)) in STATIC.iter().enumerate() {
            assert_eq!(STATIC_KNOWN[index], Known::from_bytes(name.as_bytes()), "{name}");
            if let Some(known) = STATIC_KNOWN[index] {
                let first = usize::from(KNOWN_INDEX[known as usize]);
                assert!(first <= index + 1 && STATIC[first - 1].0 == *name);
            }
        }
        assert_eq!(KNOWN_INDEX[Known::Host as usize], 38);
        assert_eq!(KNOWN_INDEX[Known::Forwarded as usize], 0);
    }
}
