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
    fn the_number_of_candidates_has_an_end() {
        let mut names = vec!["server.bind"; CANDIDATES_MAX - 1];
        names.push("server.port");
        assert_eq!(nearest("server.prot", names.iter()).as_deref(), Some("server.port"));
        names.insert(0, "server.bind");
        assert_eq!(nearest("server.prot", names.iter()), None);
    }
}
