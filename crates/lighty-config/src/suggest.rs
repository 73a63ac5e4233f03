//! "Did you mean …?"

use crate::limits::CANDIDATES_MAX;

/// The candidate most similar to the written name, if it is near enough to be a typing error. Looks
/// at the first [`CANDIDATES_MAX`].
pub(crate) fn nearest(
    written: &str,
    candidates: impl Iterator<Item = impl AsRef<str>>,
) -> Option<String> {
    let near_enough = (written.len() / 3).clamp(1, 4);
    let letters = letters(written);
    candidates
        .take(CANDIDATES_MAX)
        .filter(|c| c.as_ref().len().abs_diff(written.len()) <= near_enough)
        .filter(|c| differing(letters, self::letters(c.as_ref())) <= 2 * near_enough)
        .map(|c| (strsim::osa_distance(written, c.as_ref()), c))
        .filter(|(distance, _)| *distance <= near_enough)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c.as_ref().to_owned())
}

/// The directive most similar to a wrong name: one that a typing error turns into it, or else the
/// only one of its module with all its parts (`cors.allow-origin` for `cors.origin`).
pub(crate) fn nearest_directive(written: &str, known: &[&str]) -> Option<String> {
    let module = written.rfind('.').map_or("", |dot| &written[..=dot]);
    let tail = &written[module.len()..];
    // The module's name is no evidence: `server.listen` is nothing like `server.hsts`.
    let tails = || known.iter().filter_map(|name| name.strip_prefix(module));
    if module.is_empty() || tails().next().is_none() {
        return nearest(written, known.iter());
    }
    let has_parts =
        |name: &&str| tail.split('-').all(|part| name.split('-').any(|own| own == part));
    let only = || {
        let mut longer = tails().filter(has_parts);
        longer.next().filter(|_| longer.next().is_none()).map(str::to_owned)
    };
    nearest(tail, tails()).or_else(only).map(|found| format!("{module}{found}"))
}

/// The set of bytes that occur, modulo 64. One edit adds at most one and removes at most one.
fn letters(text: &str) -> u64 {
    text.bytes().fold(0, |set, byte| set | 1 << (byte % 64))
}

fn differing(a: u64, b: u64) -> usize {
    (a ^ b).count_ones() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let names = ["server.port", "server.bind", "var.root"];
        let near = |written| nearest(written, names.iter());
        assert_eq!(near("server.prot").as_deref(), Some("server.port"));
        assert_eq!(near("sever.bind").as_deref(), Some("server.bind"));
        assert_eq!(near("mimetype.assign"), None);
        assert_eq!(near(""), None);
        assert_eq!(near(&"x".repeat(100_000)), None);
    }

    #[test]
    fn name_of_module_makes_no_directives_similar() {
        let known = [
            "cors.allow-headers",
            "cors.allow-origin",
            "cors.expose-headers",
            "server.chroot",
            "server.document-root",
            "server.hsts",
            "server.port",
        ];
        for (written, expected) in [
            ("server.prot", Some("server.port")),
            ("server.documentroot", Some("server.document-root")),
            ("sever.port", Some("server.port")),
            ("cors.origin", Some("cors.allow-origin")),
            ("cors.allow-origins", Some("cors.allow-origin")),
            ("server.root", Some("server.document-root")),
            ("server.listen", None),
            ("cors.headers", None),
            ("cors.", None),
            ("port", None),
        ] {
            assert_eq!(nearest_directive(written, &known).as_deref(), expected, "{written}");
        }
    }

    #[test]
    fn the_number_of_candidates_has_an_end() {
        let mut names = vec!["server.bind"; CANDIDATES_MAX - 1];
        names.push("server.port");
        assert_eq!(nearest("server.prot", names.iter()).as_deref(), Some("server.port"));
        names.insert(0, "server.bind");
        assert_eq!(nearest("server.prot", names.iter()), None);
    }
}
