//! Which file a backend may have sent in place of its answer: only one beneath a directory that the
//! configuration allows.

use lighty_http::uri;

/// A file as a directory and the path beneath it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Absolute, without a slash at its end.
    pub root: Vec<u8>,
    /// Without a slash at its beginning, without `.` and `..`.
    pub rel: Vec<u8>,
}

/// The place of a file that a backend names by its absolute path, percent-encoded where it wants to
/// be (as lighttpd 1.4 has it). `None`: it is beneath none of the roots.
pub fn place<'a>(named: &[u8], roots: impl IntoIterator<Item = &'a [u8]>) -> Option<Place> {
    let path = decode(named)?;
    roots.into_iter().find_map(|root| {
        let end = root.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let rel = path.strip_prefix(&root[..end])?.strip_prefix(b"/")?;
        let root = if end == 0 { b"/".to_vec() } else { root[..end].to_vec() };
        (!rel.is_empty()).then(|| Place { root, rel: rel.to_vec() })
    })
}

/// Decoded once, and in one spelling. A path that climbs is not made to fit.
fn decode(named: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(named.len());
    uri::decode_into(named, &mut decoded);
    let climbs = decoded.split(|byte| *byte == b'/').any(|segment| segment == b"..");
    if decoded.first() != Some(&b'/') || decoded.contains(&0) || climbs {
        return None;
    }
    let mut path = Vec::with_capacity(decoded.len());
    for segment in decoded.split(|byte| *byte == b'/') {
        if !segment.is_empty() && segment != b"." {
            path.push(b'/');
            path.extend_from_slice(segment);
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(named: &str, roots: &[&str]) -> Option<String> {
        let place = place(named.as_bytes(), roots.iter().map(|root| root.as_bytes()))?;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Some(format!("{}|{}", text(place.root), text(place.rel)))
    }

    #[test]
    fn files_beneath_a_root_are_found_there() {
        let of = |named: &str| found(named, &["/srv/files", "/var/cache/"]);
        assert_eq!(of("/srv/files/a/b.txt").as_deref(), Some("/srv/files|a/b.txt"));
        assert_eq!(of("/srv//files/./a%20b").as_deref(), Some("/srv/files|a b"));
        assert_eq!(of("/var/cache/x").as_deref(), Some("/var/cache|x"));
        assert_eq!(found("/etc/passwd", &["/"]).as_deref(), Some("/|etc/passwd"));
        assert_eq!(of("/srv/files/100% sure").as_deref(), Some("/srv/files|100% sure"));
    }

    #[test]
    fn everything_else_is_refused() {
        for named in [
            "",
            "/",
            "a.txt",
            "/srv/files",
            "/srv/files/",
            "/srv/files2/a",
            "/srv/files/../secret",
            "/srv/files/%2e%2e/secret",
            "/srv/files/a/../b",
            "/srv/files/a%00b",
            "/etc/passwd",
            "file:///srv/files/a",
        ] {
            assert_eq!(found(named, &["/srv/files"]), None, "{named}");
        }
        assert_eq!(found("/srv/files/a", &[]), None);
    }
}
