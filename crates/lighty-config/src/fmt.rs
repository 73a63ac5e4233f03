//! The formatter: one style for all configurations.
//!
//! Four spaces per level; one space around operators; `else` after the brace that it continues; an
//! array with line breaks gets one element per line, its `=>` aligned and a comma after every
//! element. Comments, their order, and single blank lines are kept. The meaning of a text never
//! changes, and formatting twice gives the same as formatting once.

use crate::diag::Diagnostics;
use crate::lex::{Lexeme, Lexer, Token};
use crate::parse::parse;
use crate::source::Sources;
use crate::typographic;

/// A longer key does not push the `=>` of its neighbours to the right.
const ALIGNED_KEY_MAX: usize = 40;

/// Formats a configuration text. A text with syntax errors is not changed: the errors are returned
/// with the [`Sources`] that they refer to.
///
/// Typographic quotes, dashes and arrows outside strings and comments become plain.
pub fn format(name: &str, text: &str) -> Result<String, (Diagnostics, Sources)> {
    let slips = typographic::slips(text);
    if slips.is_empty() {
        return format_plain(name, text);
    }
    let mended = format_plain(name, &typographic::mended(text, &slips));
    // Other errors are reported for the original text.
    mended.or_else(|_| format_plain(name, text))
}

fn format_plain(name: &str, text: &str) -> Result<String, (Diagnostics, Sources)> {
    let mut sources = Sources::default();
    let file = sources.add(name, None, text.to_owned());
    let mut findings = Diagnostics::default();
    parse(&sources, file, &mut findings);
    if findings.has_errors() {
        return Err((findings, sources));
    }
    let mut lexer = Lexer::with_comments(text, file);
    let mut tokens = Vec::new();
    loop {
        let lexeme = lexer.next();
        tokens.push(lexeme);
        if lexeme.token == Token::Eof {
            break;
        }
    }
    let mut printer = Printer { text, tokens, at: 0, lines: Vec::new(), strays: Vec::new() };
    printer.body(0);
    let mut out = printer.lines.join("\n");
    if !out.is_empty() {
        out.push('\n');
    }
    Ok(out)
}

/// Walks tokens that the parser has accepted.
struct Printer<'a> {
    text: &'a str,
    tokens: Vec<Lexeme>,
    at: usize,
    lines: Vec<String>,
    /// Comments from the middle of an expression. They are moved to the line before.
    strays: Vec<&'a str>,
}

/// An element of an array with one element per line.
#[derive(Default)]
struct Element<'a> {
    /// Lines before the element: comments, or empty for a blank line.
    before: Vec<&'a str>,
    key: Option<String>,
    value: String,
    /// Comments at the end of the element's line.
    after: Vec<&'a str>,
}

impl<'a> Printer<'a> {
    /// Formats statements up to a closing brace (not consumed) or the end.
    fn body(&mut self, depth: usize) {
        let first = self.lines.len();
        let mut newlines = 1;
        if depth > 0 {
            newlines = 0;
        }
        loop {
            match self.token() {
                Token::Eof | Token::RBrace => return,
                Token::Newline => {
                    newlines += 1;
                    self.at += 1;
                }
                Token::Comment if newlines == 0 && !self.lines.is_empty() => {
                    let comment = self.take();
                    if let Some(line) = self.lines.last_mut() {
                        line.push(' ');
                        line.push_str(comment);
                    }
                }
                token => {
                    if newlines > 1 && self.lines.len() > first {
                        self.lines.push(String::new());
                    }
                    newlines = 0;
                    if token == Token::Comment {
                        let comment = self.take();
                        self.line(depth, comment);
                    } else {
                        self.statement(depth);
                    }
                }
            }
        }
    }

    fn line(&mut self, depth: usize, text: &str) {
        self.lines.push(format!("{:width$}{text}", "", width = depth * 4));
    }

    fn statement(&mut self, depth: usize) {
        let is_block = self.token() == Token::Dollar
            || matches!(self.word(), "if" | "global") && !self.next_is_assignment();
        if is_block {
            self.chain(depth);
            return;
        }
        let word = self.take();
        let text = if matches!(word, "include" | "include_shell") && !self.at_assignment() {
            format!("{word} {}", self.expr(depth, false))
        } else {
            let op = self.take();
            format!("{word} {op} {}", self.expr(depth, false))
        };
        self.flush_strays(depth);
        self.line(depth, &text);
    }

    /// Formats a block and all its branches.
    fn chain(&mut self, depth: usize) {
        let mut prefix = "";
        loop {
            let head = self.head(depth);
            self.flush_strays(depth);
            self.line(depth, &format!("{prefix}{head} {{"));
            self.at += 1;
            self.body(depth + 1);
            self.at += 1;
            if self.skip_to_else(true) {
                prefix = "} ";
                continue;
            }
            self.line(depth, "}");
            if !self.skip_to_else(false) {
                return;
            }
            self.comments_before_else(depth);
            prefix = "";
        }
    }

    /// True if an `else` follows. Then moves to it, or to the comments before it.
    fn skip_to_else(&mut self, adjacent: bool) -> bool {
        let mut at = self.at;
        let skips = |token: Token| token == Token::Newline || !adjacent && token == Token::Comment;
        while skips(self.tokens[at].token) {
            at += 1;
        }
        let is_else = self.tokens[at].token == Token::Key
            && matches!(self.text_of(at), "else" | "elif" | "elsif" | "elseif")
            && !self.tokens[at + 1].token.is_assignment();
        if is_else && adjacent {
            self.at = at;
        }
        is_else
    }

    fn comments_before_else(&mut self, depth: usize) {
        let mut newlines = 0;
        loop {
            match self.token() {
                Token::Newline => {
                    newlines += 1;
                    self.at += 1;
                }
                Token::Comment => {
                    let comment = self.take();
                    match self.lines.last_mut() {
                        Some(line) if newlines == 0 => {
                            line.push(' ');
                            line.push_str(comment);
                        }
                        _ => self.line(depth, comment),
                    }
                }
                _ => return,
            }
        }
    }

    /// Formats the head of a block up to its brace.
    fn head(&mut self, depth: usize) -> String {
        let mut parts: Vec<String> = Vec::new();
        loop {
            match self.token() {
                Token::LBrace | Token::Eof => return parts.join(" "),
                Token::Newline => self.at += 1,
                Token::Comment => {
                    let comment = self.take();
                    self.strays.push(comment);
                }
                Token::Dollar => {
                    // `$`, object, `[`, name, `]`
                    parts.push((0..5).map(|_| self.take()).collect());
                    self.skip_blanks();
                    parts.push(self.take().to_owned());
                    parts.push(self.expr(depth, false));
                }
                _ => parts.push(self.take().to_owned()),
            }
        }
    }

    /// Formats terms joined by `+`. Inside parentheses newlines are white space.
    fn expr(&mut self, depth: usize, inside: bool) -> String {
        self.skip_blanks();
        let mut out = self.term(depth);
        loop {
            if inside {
                let before = (self.at, self.strays.len());
                self.skip_blanks();
                if self.token() != Token::Plus {
                    // Comments here are placed after the expression, not in the middle of it.
                    self.at = before.0;
                    self.strays.truncate(before.1);
                }
            }
            if self.token() != Token::Plus {
                return out;
            }
            self.at += 1;
            self.skip_blanks();
            out.push_str(" + ");
            out.push_str(&self.term(depth));
        }
    }

    fn term(&mut self, depth: usize) -> String {
        if self.token() == Token::LParen { self.array(depth) } else { self.take().to_owned() }
    }

    fn array(&mut self, depth: usize) -> String {
        let spread = self.is_spread();
        self.at += 1;
        let inner = if spread { depth + 1 } else { depth };
        let (elements, rest) = self.elements(inner);
        self.at += 1;
        if elements.is_empty() && rest.is_empty() {
            return "()".to_owned();
        }
        if spread { spread_out(&elements, &rest, depth) } else { one_line(&elements) }
    }

    /// True if the array itself has a line break or a comment, not only an inner array.
    fn is_spread(&self) -> bool {
        let mut depth = 0;
        for lexeme in &self.tokens[self.at..] {
            match lexeme.token {
                Token::LParen => depth += 1,
                Token::RParen if depth == 1 => return false,
                Token::RParen => depth -= 1,
                Token::Newline | Token::Comment if depth == 1 => return true,
                _ => {}
            }
        }
        false
    }

    /// Formats the elements up to `)`, and the comments after the last one.
    fn elements(&mut self, depth: usize) -> (Vec<Element<'a>>, Vec<&'a str>) {
        let mut list: Vec<Element<'a>> = Vec::new();
        let (mut before, mut newlines) = (Vec::new(), 0);
        loop {
            match self.token() {
                Token::RParen | Token::Eof => {
                    while before.last() == Some(&"") {
                        before.pop();
                    }
                    return (list, before);
                }
                Token::Newline => {
                    newlines += 1;
                    self.at += 1;
                    if newlines == 2 && !(list.is_empty() && before.is_empty()) {
                        before.push("");
                    }
                }
                Token::Comma => self.at += 1,
                Token::Comment => {
                    let comment = self.take();
                    match list.last_mut() {
                        Some(last) if newlines == 0 => last.after.push(comment),
                        _ => before.push(comment),
                    }
                    newlines = 0;
                    // Counts from the newline that ends the comment.
                    if self.token() == Token::Newline {
                        self.at += 1;
                        newlines = 1;
                    }
                }
                _ => {
                    let outer = std::mem::take(&mut self.strays);
                    let mut element = self.element(depth);
                    element.before = std::mem::take(&mut before);
                    element.before.append(&mut self.strays);
                    self.strays = outer;
                    list.push(element);
                    newlines = 0;
                }
            }
        }
    }

    fn element(&mut self, depth: usize) -> Element<'a> {
        let first = self.expr(depth, true);
        let before = (self.at, self.strays.len());
        self.skip_blanks();
        if self.token() != Token::Arrow {
            self.at = before.0;
            self.strays.truncate(before.1);
            return Element { value: first, ..Element::default() };
        }
        self.at += 1;
        self.skip_blanks();
        Element { key: Some(first), value: self.expr(depth, true), ..Element::default() }
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.token() {
                Token::Newline => self.at += 1,
                Token::Comment => {
                    let comment = self.take();
                    self.strays.push(comment);
                }
                _ => return,
            }
        }
    }

    fn flush_strays(&mut self, depth: usize) {
        for comment in std::mem::take(&mut self.strays) {
            self.line(depth, comment);
        }
    }

    fn next_is_assignment(&self) -> bool {
        self.tokens.get(self.at + 1).is_some_and(|next| next.token.is_assignment())
    }

    fn at_assignment(&self) -> bool {
        self.token().is_assignment()
    }

    fn token(&self) -> Token {
        self.tokens[self.at].token
    }

    fn word(&self) -> &'a str {
        self.text_of(self.at)
    }

    fn text_of(&self, at: usize) -> &'a str {
        let span = self.tokens[at].span;
        self.text[span.start as usize..span.end as usize].trim_end()
    }

    fn take(&mut self) -> &'a str {
        let word = self.word();
        if self.token() != Token::Eof {
            self.at += 1;
        }
        word
    }
}

fn one_line(elements: &[Element<'_>]) -> String {
    let element = |e: &Element<'_>| match &e.key {
        Some(key) => format!("{key} => {}", e.value),
        None => e.value.clone(),
    };
    format!("( {} )", elements.iter().map(element).collect::<Vec<_>>().join(", "))
}

fn spread_out(elements: &[Element<'_>], rest: &[&str], depth: usize) -> String {
    let indent = " ".repeat(depth * 4 + 4);
    let mut out = String::from("(\n");
    let mut from = 0;
    while from < elements.len() {
        // A blank line ends a group of aligned elements.
        let more = elements[from + 1..].iter().take_while(|e| !e.before.contains(&""));
        let to = from + 1 + more.count();
        let group = &elements[from..to];
        let widths = group.iter().filter_map(|e| e.key.as_ref()).map(|key| width(key));
        let align = widths.filter(|w| *w <= ALIGNED_KEY_MAX).max().unwrap_or(0);
        for element in group {
            push_lines(&mut out, &element.before, &indent);
            out.push_str(&indent);
            if let Some(key) = &element.key {
                let pad = align.saturating_sub(width(key));
                out.push_str(&format!("{key}{:pad$} => ", ""));
            }
            out.push_str(&element.value);
            out.push(',');
            for comment in &element.after {
                out.push(' ');
                out.push_str(comment);
            }
            out.push('\n');
        }
        from = to;
    }
    push_lines(&mut out, rest, &indent);
    out.push_str(&indent[4..]);
    out.push(')');
    out
}

fn push_lines(out: &mut String, lines: &[&str], indent: &str) {
    for line in lines {
        if !line.is_empty() {
            out.push_str(indent);
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// Width of a key in columns. A key of several lines is never aligned.
fn width(key: &str) -> usize {
    if key.contains('\n') { usize::MAX } else { key.chars().count() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::FileId;

    #[track_caller]
    fn check(text: &str, want: &str) {
        let once = format("x", text).expect("no syntax errors");
        assert_eq!(once, want);
        let twice = format("x", &once).expect("the result can be read");
        assert_eq!(twice, once, "formatting twice");
        assert_eq!(essence(text), essence(&once));
    }

    /// The parts that must not change: all tokens except line breaks and trailing commas, and
    /// separately the comments.
    fn essence(text: &str) -> (Vec<(Token, String)>, Vec<String>) {
        let mut lexer = Lexer::with_comments(text, FileId(0));
        let (mut tokens, mut comments) = (Vec::new(), Vec::new());
        loop {
            let Lexeme { token, span } = lexer.next();
            let word = text[span.start as usize..span.end as usize].to_owned();
            match token {
                Token::Eof => return (tokens, comments),
                Token::Newline => continue,
                Token::Comment => {
                    comments.push(word.trim_end().to_owned());
                    continue;
                }
                Token::RParen if tokens.last().is_some_and(|(t, _)| *t == Token::Comma) => {
                    tokens.pop();
                }
                _ => {}
            }
            tokens.push((token, word));
        }
    }

    #[test]
    fn statements_and_blocks() {
        check(
            "a=1\n\n\n\nserver.tag   =\"x\"+var.a # why\n$HTTP [\"host\"]==\"y\"{b=2}\n# end",
            "a = 1\n\nserver.tag = \"x\" + var.a # why\n$HTTP[\"host\"] == \"y\" {\n    b = 2\n}\n\
             # end\n",
        );
        check("global\n{\n\n# c\n\n}\n", "global {\n    # c\n}\n");
        check("a = # c\n\n 1\ninclude\n\"b\"", "# c\na = 1\ninclude \"b\"\n");
        check("$HTTP[\"host\"]\n== # c\n\"a\"\n{ }", "# c\n$HTTP[\"host\"] == \"a\" {\n}\n");
        check("a = 1 include \"b\"", "a = 1\ninclude \"b\"\n");
        check("include \"a\"\ninclude_shell\"b\"", "include \"a\"\ninclude_shell \"b\"\n");
        check("", "");
        check("\r\n\r\n# only\r\n", "# only\n");
    }

    #[test]
    fn branches() {
        check(
            "if $HTTP[\"url\"]=~\"^/a\" { # first\na=1 }\nelse if $HTTP[\"url\"] =^ \"/b\"\n{ }\nelse {\
             b=1 } # last\n",
            "if $HTTP[\"url\"] =~ \"^/a\" { # first\n    a = 1\n} else if $HTTP[\"url\"] =^ \"/b\" \
             {\n} else {\n    b = 1\n} # last\n",
        );
        check(
            "$HTTP[\"url\"] == \"a\" {\n} # one\n# two\nelse {\n}\n",
            "$HTTP[\"url\"] == \"a\" {\n} # one\n# two\nelse {\n}\n",
        );
    }

    #[test]
    fn arrays() {
        check("a=()\nb=(1,2,)\nc=(\"k\"=>(1))", "a = ()\nb = ( 1, 2 )\nc = ( \"k\" => ( 1 ) )\n");
        check(
            "a = ( \"x\" => 1, # one\n\n\n  \"long\" => 2,\n # own\n\"y\"\n=> (\"p\",\n\"q\")\n)",
            "a = (\n    \"x\" => 1, # one\n\n    \"long\" => 2,\n    # own\n    \"y\"    => (\n        \
             \"p\",\n        \"q\",\n    ),\n)\n",
        );
        check("a = (\n # none\n)", "a = (\n    # none\n)\n");
        check(
            "a = ( \"k\" # stray\n => 1 + # more\n 2 )",
            "a = (\n    # stray\n    # more\n    \"k\" => 1 + 2,\n)\n",
        );
    }

    #[test]
    fn a_text_with_errors_is_refused() {
        let (findings, _) = format("x", "a = \nb = (").unwrap_err();
        assert_eq!(findings.error_count(), 2);
    }

    fn blank() -> impl Strategy<Value = &'static str> {
        prop_oneof![
            6 => Just(" "), 2 => Just("\n"), 1 => Just(" # c\n"), 1 => Just("\n\n"),
            1 => Just("\n# d # e\n\n\n")
        ]
    }

    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("1".to_owned()),
            Just("\"s\"".to_owned()),
            Just("\"multi\n  line\"".to_owned()),
            Just("var.x".to_owned()),
            Just("\"a\" + 2".to_owned()),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            let element = (blank(), any::<bool>(), blank(), inner, blank(), blank());
            prop::collection::vec(element, 0..4).prop_map(|list| {
                let mut out = String::from("(");
                for (at, (a, keyed, b, value, c, d)) in list.into_iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    out.push_str(a);
                    if keyed {
                        out.push_str(&format!("\"key{}\"{b}=>{c}", "y".repeat(at)));
                    }
                    out.push_str(&value);
                    out.push_str(d);
                }
                out + ")"
            })
        })
    }

    fn statements() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            value().prop_map(|value| format!("a.b={value}")),
            Just("# own".to_owned()),
            Just("include \"x\"".to_owned()),
            Just(String::new()),
        ];
        let line = prop_oneof![Just("\n"), Just(" # end\n"), Just("\n\n\n")];
        let lines = prop::collection::vec((leaf, line), 0..4);
        let lines = lines.prop_map(|l| l.into_iter().map(|(s, e)| s + e).collect::<String>());
        lines.prop_recursive(3, 12, 2, |inner| {
            (inner.clone(), inner.clone(), blank(), any::<bool>(), inner).prop_map(
                |(first, body, gap, bare, last)| {
                    let other = if bare { "" } else { "$HTTP[\"url\"] =~ \"x\"" };
                    format!(
                        "{first}$HTTP[\"host\"]==\"h\"{gap}{{{gap}{body}}}{gap}else {other} \
                         {{\n{last}}}\n{last}"
                    )
                },
            )
        })
    }

    proptest! {
        #[test]
        fn formatting_keeps_tokens_and_comments_and_settles(text in statements()) {
            let once = format("x", &text).expect("generated text is valid");
            prop_assert_eq!(essence(&once), essence(&text), "{}", once);
            let twice = format("x", &once).expect("formatted text is valid");
            prop_assert_eq!(twice, once);
        }
    }
}
