//! A recipe's page as the reader copies it: configurations, files and commands.

use super::manual;

/// Kinds of fenced blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FenceKind {
    /// A whole configuration.
    Configuration,
    /// A file; the line in front of the block names its path.
    File(String),
    /// Commands behind `$ `, and their output.
    Commands,
    /// Anything else.
    Other,
}

pub(crate) struct Block {
    pub kind: FenceKind,
    /// The number of its first line in the page.
    pub line: usize,
    pub text: String,
}

pub(crate) struct Page {
    pub blocks: Vec<Block>,
}

impl Page {
    pub(crate) fn read(name: &str) -> Self {
        let path = manual().join(format!("{name}.md"));
        let text = std::fs::read_to_string(&path).expect("a page");
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        let mut above = "";
        for (number, line) in text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => {
                    let kind = kind(language, above);
                    open = Some(Block { kind, line: number + 2, text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, None) if !line.is_empty() => above = line,
                (None, None) => {}
            }
        }
        Self { blocks }
    }
}

fn kind(language: &str, above: &str) -> FenceKind {
    let path = above.strip_prefix('`').and_then(|rest| rest.split_once('`'));
    let path = path.filter(|(path, rest)| path.starts_with('/') && rest.ends_with(':'));
    match (language, path) {
        ("lighty", _) => FenceKind::Configuration,
        ("console", _) => FenceKind::Commands,
        (_, Some((path, _))) => FenceKind::File(path.to_owned()),
        _ => FenceKind::Other,
    }
}

/// Command of a page, and its output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageStep {
    pub command: String,
    pub output: String,
}

/// Steps of a block of commands. A backslash at the end of a line continues the command.
pub(crate) fn steps(text: &str) -> Vec<PageStep> {
    let mut steps: Vec<PageStep> = Vec::new();
    for line in text.lines() {
        let last = steps.last_mut();
        match (line.strip_prefix("$ "), last) {
            (Some(command), _) => {
                steps.push(PageStep { command: command.to_owned(), output: String::new() });
            }
            (None, Some(step)) if step.command.ends_with('\\') => {
                step.command.push('\n');
                step.command.push_str(line);
            }
            (None, Some(step)) => {
                step.output.push_str(line);
                step.output.push('\n');
            }
            (None, None) => panic!("output before the first command: {line}"),
        }
    }
    steps
}

/// Returns true if an output matches the page, where `...` matches any text. Trailing white space
/// is ignored.
pub(crate) fn fits(shown: &str, output: &str) -> bool {
    let trimmed = |text: &str| {
        let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
        lines.join("\n")
    };
    let (shown, output) = (trimmed(shown), trimmed(output));
    let parts: Vec<&str> = shown.split("...").collect();
    let [first, middle @ .., last] = &parts[..] else { return shown == output };
    let Some(mut rest) = output.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn outputs_are_compared() {
    assert!(fits("200\n", "200 \r\n") && !fits("200\n", "404\n"));
    assert!(fits("a ... c ... e\n", "a b c d e\n") && !fits("a ... c\n", "a b\n"));
    assert!(fits("...\n", "") && !fits("", "x"));
    let steps = steps("$ a \\\n    b\nc\n$ d\n");
    assert_eq!(steps[0], PageStep { command: "a \\\n    b".into(), output: "c\n".into() });
    assert_eq!(steps[1], PageStep { command: "d".into(), output: String::new() });
}
