//! Patterns of `include`: `*`, `?`, `[a-z]`, `[!a]` and `{a,b}`, each within one path component.

use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of alternatives that braces may expand to.
const BRACE_ALTERNATIVES_MAX: usize = 1024;

/// The existing paths that match a pattern, sorted within each alternative of its braces, like a
/// shell. A directory that cannot be listed is an error, unless it does not exist.
pub(crate) fn expand(pattern: &str) -> io::Result<Vec<PathBuf>> {
    let mut list = Vec::new();
    for pattern in braces(pattern)? {
        let mut found = vec![PathBuf::from(if pattern.starts_with('/') { "/" } else { "" })];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            found = step(found, part)?;
        }
        found.sort();
        list.append(&mut found);
    }
    Ok(list)
}

fn step(bases: Vec<PathBuf>, part: &str) -> io::Result<Vec<PathBuf>> {
    if !part.contains(['*', '?', '[']) {
        let joined = bases.into_iter().map(|base| base.join(part));
        return Ok(joined.filter(|path| path.symlink_metadata().is_ok()).collect());
    }
    let mut found = Vec::new();
    for base in bases {
        let directory = if base.as_os_str().is_empty() { Path::new(".") } else { &base };
        let entries = match directory.read_dir() {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let name = entry?.file_name();
            let text = name.to_string_lossy();
            let hidden = text.starts_with('.') && !part.starts_with('.');
            if !hidden && matches(part.as_bytes(), text.as_bytes()) {
                found.push(base.join(&name));
            }
        }
    }
    Ok(found)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// True if a name matches. Only backtracks to the last `*`, so the time is at most quadratic.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some(_) => {
                if let Some(length) = one(&pattern[p..], name[n]) {
                    p += length;
                    n += 1;
                    continue;
                }
            }
            None => {}
        }
        let Some((after, from)) = star else { return false };
        star = Some((after, from + 1));
        (p, n) = (after, from + 1);
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// The length of a pattern's first element, if it matches a byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => match class(rest, byte) {
            Some((is_match, length)) => is_match.then_some(length + 1),
            None => (byte == b'[').then_some(1),
        },
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// Matches `a-z]`, the text after the bracket: the result, and its length. `None` if it is not
/// closed.
fn class(text: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negative = matches!(text.first(), Some(b'!' | b'^'));
    let start = usize::from(negative);
    let close = text.iter().skip(start + 1).position(|&b| b == b']')? + start + 1;
    let (mut set, mut found) = (&text[start..close], false);
    while let Some((&low, rest)) = set.split_first() {
        match rest {
            [b'-', high, rest @ ..] => {
                found |= (low..=*high).contains(&byte);
                set = rest;
            }
            _ => {
                found |= low == byte;
                set = rest;
            }
        }
    }
    Some((found != negative, close + 1))
}

/// Expands `a{b,c}d` to `abd` and `acd`, also for nested braces.
fn braces(pattern: &str) -> io::Result<Vec<String>> {
    let mut done = Vec::new();
    let mut todo = vec![pattern.to_owned()];
    while let Some(pattern) = todo.pop() {
        let Some((open, parts, close)) = first_braces(&pattern) else {
            done.push(pattern);
            continue;
        };
        for part in parts.iter().rev() {
            todo.push(format!("{}{part}{}", &pattern[..open], &pattern[close..]));
        }
        if todo.len() + done.len() > BRACE_ALTERNATIVES_MAX {
            let text = format!("more than {BRACE_ALTERNATIVES_MAX} alternatives in braces");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    }
    Ok(done)
}

/// The first pair of braces: start, alternatives, end.
fn first_braces(pattern: &str) -> Option<(usize, Vec<&str>, usize)> {
    let open = pattern.find('{')?;
    let (mut depth, mut from, mut parts) = (0, open + 1, Vec::new());
    for (at, byte) in pattern.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b',' if depth == 1 => {
                parts.push(&pattern[from..at]);
                from = at + 1;
            }
            b'}' if depth == 1 => {
                parts.push(&pattern[from..at]);
                return Some((open, parts, at + 1));
            }
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, name: &str) -> bool {
        matches(pattern.as_bytes(), name.as_bytes())
    }

    #[test]
    fn names_match_patterns() {
        assert!(is_match("*.conf", "a.conf"));
        assert!(is_match("*.conf", ".conf"));
        assert!(!is_match("*.conf", "a.conf~"));
        assert!(is_match("[0-9]?-*", "05-auth"));
        assert!(!is_match("[!0-9]*", "05-auth"));
        assert!(is_match("[]x]", "]"));
        assert!(is_match("a[b", "a[b"));
        assert!(is_match("*a*b*", "xxaxxbxx"));
        assert!(!is_match("*a*b", "ba"));
        assert!(!is_match(&"a*".repeat(30), &"b".repeat(10_000)));
    }

    #[test]
    fn braces_are_alternatives() {
        assert_eq!(braces("a{b,c{d,e}}f").unwrap(), ["abf", "acdf", "acef"]);
        assert_eq!(braces("a{b").unwrap(), ["a{b"]);
        assert!(braces(&"{a,b}".repeat(10)).is_ok(), "1024 alternatives");
        assert!(braces(&"{a,b}".repeat(11)).is_err());
    }

    #[test]
    fn files_are_found_in_order() {
        let root = std::env::temp_dir().join(format!("lighty-glob-{}", std::process::id()));
        std::fs::create_dir_all(root.join("conf.d")).unwrap();
        for name in ["b.conf", "a.conf", ".hidden.conf", "c.txt"] {
            std::fs::write(root.join("conf.d").join(name), "").unwrap();
        }
        let found = expand(&format!("{}/conf.*/*.conf", root.display())).unwrap();
        let absent = expand(&format!("{}/none/*.conf", root.display())).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [root.join("conf.d/a.conf"), root.join("conf.d/b.conf")]);
        assert!(absent.is_empty());
    }
}
