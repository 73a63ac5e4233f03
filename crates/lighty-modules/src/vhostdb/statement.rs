//! SQL with the host as a bound parameter.

/// Replaces each `?` in a statement of lighttpd, which pastes the host there, by a parameter. A
/// place within quotes becomes a part of a concatenation, so that the text of the host is never
/// parsed as SQL.
pub(super) fn with_parameter(sql: &str) -> Option<String> {
    let mut out = String::new();
    let mut places = 0;
    let mut rest = sql;
    while let Some(at) = rest.find(['?', '\'']) {
        out.push_str(&rest[..at]);
        let mark = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        if mark == b'?' {
            out.push_str("?1");
            places += 1;
            continue;
        }
        let end = end_of_literal(rest)?;
        let (literal, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        places += literal.matches('?').count();
        match literal {
            "?" => out.push_str("?1"),
            literal if literal.contains('?') => {
                out.push_str("('");
                out.push_str(&literal.replace('?', "' || ?1 || '"));
                out.push_str("')");
            }
            literal => {
                out.push('\'');
                out.push_str(literal);
                out.push('\'');
            }
        }
    }
    out.push_str(rest);
    (places > 0).then_some(out)
}

/// The place of the quote that ends a literal; two quotes are one in its text.
fn end_of_literal(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == b'\'')?;
        if bytes.get(at + 1) != Some(&b'\'') {
            return Some(at);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_a_parameter_wherever_it_stands() {
        for (sql, wanted) in [
            ("SELECT r FROM v WHERE h = ?", "SELECT r FROM v WHERE h = ?1"),
            ("SELECT r FROM v WHERE h='?'", "SELECT r FROM v WHERE h=?1"),
            (
                "SELECT r FROM v WHERE h LIKE '%.?'",
                "SELECT r FROM v WHERE h LIKE ('%.' || ?1 || '')",
            ),
            ("SELECT '/srv/?/' FROM v", "SELECT ('/srv/' || ?1 || '/') FROM v"),
            ("SELECT 'it''s' || ? FROM v", "SELECT 'it''s' || ?1 FROM v"),
            ("SELECT '', '?', '?'", "SELECT '', ?1, ?1"),
            ("SELECT 'é', ?", "SELECT 'é', ?1"),
        ] {
            assert_eq!(with_parameter(sql).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn statements_without_a_host_are_refused() {
        for bad in ["", "SELECT 1", "SELECT 'a", "SELECT '?", "SELECT 'a''"] {
            assert_eq!(with_parameter(bad), None, "{bad}");
        }
    }
}
