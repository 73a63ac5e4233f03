//! Text from others, for output on a terminal.

/// Replaces characters that would control the terminal or change the direction of text: clients or
/// files may contain them.
pub(crate) fn plain(text: &str) -> String {
    // Directional marks and overrides (Unicode 16, annex 9), and line separators.
    let turns = |one| {
        matches!(one, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|one| if one.is_control() || turns(one) { '?' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_replaced() {
        assert_eq!(plain("a\u{1b}[2J\u{7}\u{9b}b\n"), "a?[2J??b?");
        assert_eq!(plain("x\u{202e}txt\u{2066}"), "x?txt?");
        assert_eq!(plain("häuser 宽"), "häuser 宽");
    }
}
