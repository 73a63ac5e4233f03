//! Markdown of the directives' documentation as roff, the language of manual pages.

use std::fmt::Write;

/// Escapes a text: backslashes, hyphens that readers copy, quotes, and characters that fonts lack.
/// A line of the result never begins with a control character.
#[must_use]
pub fn escape(text: &str) -> String {
    guard_lines(&characters(text))
}

fn characters(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            '…' => escaped.push_str("..."),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Keeps lines that begin with a dot from being requests. Quotes are escaped already.
fn guard_lines(roff: &str) -> String {
    let guarded = roff.replace("\n.", "\n\\&.");
    if guarded.starts_with('.') { format!("\\&{guarded}") } else { guarded }
}

/// Converts a paragraph: code spans become bold, links keep their text only.
#[must_use]
pub fn inline(markdown: &str) -> String {
    let mut roff = String::with_capacity(markdown.len() + 16);
    for (index, part) in markdown.split('`').enumerate() {
        if index % 2 == 1 {
            let _ = write!(roff, "\\fB{}\\fR", characters(&part.replace("\\|", "|")));
        } else {
            roff.push_str(&characters(&without_links(part)));
        }
    }
    guard_lines(&roff)
}

/// Replaces `[text](target)` by its text. A link's text that is a code span lies between two calls,
/// so the brackets may be in different parts.
fn without_links(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        let Some(end) = after.find(')') else { break };
        match before.rfind('[') {
            Some(open) => {
                kept.push_str(&before[..open]);
                kept.push_str(&before[open + 1..]);
            }
            None => kept.push_str(before),
        }
        rest = &after[end + 1..];
    }
    kept.push_str(rest);
    // An opening bracket at the end belongs to a link whose text is the code span behind it.
    if let Some(open) = kept.strip_suffix('[') { open.to_owned() } else { kept }
}

/// Converts blocks of Markdown: paragraphs, lists and tables.
#[must_use]
pub fn blocks(markdown: &str) -> String {
    let mut roff = String::new();
    for block in markdown.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        if block.starts_with('|') {
            table(&mut roff, block);
        } else if block.starts_with("- ") {
            for item in block.split("\n- ") {
                let item = item.strip_prefix("- ").unwrap_or(item);
                let _ = writeln!(roff, ".IP \\(bu 2\n{}", inline(item));
            }
        } else {
            let _ = writeln!(roff, ".PP\n{}", inline(block));
        }
    }
    roff
}

/// Writes the rows of a table as tagged paragraphs. Cells behind the second have their column's
/// title in front.
fn table(roff: &mut String, block: &str) {
    let mut rows = block.lines().map(cells);
    let titles = rows.next().unwrap_or_default();
    for row in rows.filter(|row| !row.iter().all(|cell| cell.starts_with("--"))) {
        let mut parts = row.iter().zip(&titles);
        let Some((tag, _)) = parts.next() else { continue };
        let _ = writeln!(roff, ".TP\n{}", inline(tag));
        let is_plain = titles.len() == 2;
        let texts =
            parts.filter(|(cell, _)| !cell.is_empty()).map(|(cell, title)| match is_plain {
                true => inline(cell),
                false => format!("{}: {}", inline(title), inline(cell)),
            });
        let _ = writeln!(roff, "{}", texts.collect::<Vec<_>>().join("\n.br\n"));
    }
}

/// Splits a row at its bars, but not at escaped ones.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    let hidden = row.replace("\\|", "\0");
    hidden.split('|').map(|cell| cell.trim().replace('\0', "\\|")).collect()
}

/// Writes an example, each line as it is.
#[must_use]
pub fn example(text: &str) -> String {
    format!(".PP\n.RS 4\n.EX\n{}\n.EE\n.RE\n", escape(text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_backslashes_are_escaped() {
        assert_eq!(escape(".so x\n'br a-b\\n"), "\\&.so x\n\\(aqbr a\\-b\\en");
        assert_eq!(inline("a `b-c` d"), "a \\fBb\\-c\\fR d");
        assert_eq!(inline("`a\\|b`"), "\\fBa|b\\fR");
    }

    #[test]
    fn links_keep_their_texts() {
        let text = "See the [manual](../x.md), [`a.b`](c.md#d).";
        assert_eq!(inline(text), "See the manual, \\fBa.b\\fR.");
        assert_eq!(inline("( [x] )"), "( [x] )");
    }

    #[test]
    fn tables_are_tagged_paragraphs() {
        let text = "Keys:\n\n| key | value |\n|---|---|\n| `a` | one |\n| `b\\|c` | two |\n\nEnd.";
        let want = ".PP\nKeys:\n.TP\n\\fBa\\fR\none\n.TP\n\\fBb|c\\fR\ntwo\n.PP\nEnd.\n";
        assert_eq!(blocks(text), want);
        let text = "| key | default | meaning |\n|---|---|---|\n| `a` | 1 | one |";
        assert_eq!(blocks(text), ".TP\n\\fBa\\fR\ndefault: 1\n.br\nmeaning: one\n");
    }
}
