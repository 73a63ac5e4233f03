//! Paths of the file system as text.

/// Appends a path with `.`, `..` and empty segments resolved; `..` never leads above its beginning.
///
/// As in lighttpd: a path whose beginning was removed begins with `/`, one that ends in `.` or `..`
/// ends in `/`, and a relative path without such segments stays relative.
pub fn simplify(path: &[u8], out: &mut Vec<u8>) -> bool {
    let begin = out.len();
    let path = match path {
        [b'.'] | [b'.', b'.'] => return true,
        [b'.', rest @ ..] if rest.first() == Some(&b'/') => rest,
        [b'.', b'.', rest @ ..] if rest.first() == Some(&b'/') => rest,
        _ => path,
    };
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    // The text before the first slash, possibly empty: the only name without a slash before it.
    if let Some(first) = segments.next() {
        out.extend_from_slice(first);
    }
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"" | b"." => {}
            b".." => {
                let slash = out[begin..].iter().rposition(|byte| *byte == b'/');
                out.truncate(begin + slash.unwrap_or(0));
            }
            name => {
                out.push(b'/');
                out.extend_from_slice(name);
                continue;
            }
        }
        if is_last {
            out.push(b'/');
        }
    }
    true
}
