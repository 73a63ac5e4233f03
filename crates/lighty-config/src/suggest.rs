//! "Did you mean …?"

/// The candidate most like what was written, if one is near enough to be a slip.
pub(crate) fn nearest(
    written: &str,
    candidates: impl Iterator<Item = impl AsRef<str>>,
) -> Option<String> {
    let near_enough = (written.len() / 3).clamp(1, 4);
    candidates
        .filter(|c| c.as_ref().len().abs_diff(written.len()) <= near_enough)
        .map(|c| (strsim::damerau_levenshtein(written, c.as_ref()), c))
        .filter(|(distance, _)| *distance <= near_enough)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c.as_ref().to_owned())
}

#[cfg(test)]
mod tests {
    use super::nearest;

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
}
