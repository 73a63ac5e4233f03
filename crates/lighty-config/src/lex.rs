//! Converts text to tokens. Every byte belongs to a token or to white space, and the lexer never
//! fails: unknown input becomes [`Token::Unknown`].

use crate::source::{FileId, Span};

/// Kinds of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// `[A-Za-z0-9._-]+` that is not a number.
    Key,
    /// Decimal digits, with an optional minus sign.
    Int,
    /// `"…"` with its quotes. Only `\"` is an escape; line breaks are allowed inside.
    Str,
    /// A string without an end. Reaches to the end of its first line.
    OpenStr,
    /// `$`
    Dollar,
    LParen,
    RParen,
    LBrace,
    RBrace,
    LBracket,
    RBracket,
    Comma,
    /// `+`
    Plus,
    /// `=>`
    Arrow,
    /// `=`
    Assign,
    /// `+=`
    Append,
    /// `:=`
    Replace,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `=~`
    Match,
    /// `!~`
    NotMatch,
    /// `=^`
    Prefix,
    /// `=$`
    Suffix,
    Newline,
    /// `#` to the end of the line; only with [`Lexer::with_comments`].
    Comment,
    Unknown,
    Eof,
}

impl Token {
    /// The token's name for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Token::Key => "a name",
            Token::Int => "a number",
            Token::Str | Token::OpenStr => "a string",
            Token::Dollar => "`$`",
            Token::LParen => "`(`",
            Token::RParen => "`)`",
            Token::LBrace => "`{`",
            Token::RBrace => "`}`",
            Token::LBracket => "`[`",
            Token::RBracket => "`]`",
            Token::Comma => "`,`",
            Token::Plus => "`+`",
            Token::Arrow => "`=>`",
            Token::Assign => "`=`",
            Token::Append => "`+=`",
            Token::Replace => "`:=`",
            Token::Eq => "`==`",
            Token::Ne => "`!=`",
            Token::Match => "`=~`",
            Token::NotMatch => "`!~`",
            Token::Prefix => "`=^`",
            Token::Suffix => "`=$`",
            Token::Newline => "the end of the line",
            Token::Comment => "a comment",
            Token::Unknown => "a character without meaning here",
            Token::Eof => "the end of the file",
        }
    }

    /// True for an operator that makes a preceding key an assignment.
    pub(crate) fn is_assignment(self) -> bool {
        matches!(self, Token::Assign | Token::Append | Token::Replace)
    }
}

/// A token and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) span: Span,
}

#[derive(Clone)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    file: FileId,
    at: usize,
    comments: bool,
    /// Set after a string without end. No later quote can close one either (each has a backslash
    /// before it), and searching again would take quadratic time.
    no_closing_quote: bool,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str, file: FileId) -> Self {
        // Some editors put a byte order mark before the first line.
        let at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        Lexer { text, file, at, comments: false, no_closing_quote: false }
    }

    /// Also yields comments.
    pub(crate) fn with_comments(text: &'a str, file: FileId) -> Self {
        Lexer { comments: true, ..Lexer::new(text, file) }
    }

    /// The next token; [`Token::Eof`] repeatedly at the end.
    pub(crate) fn next(&mut self) -> Lexeme {
        loop {
            self.skip_blanks();
            let start = self.at;
            let token = self.scan();
            debug_assert!(self.at > start || token == Token::Eof);
            if token != Token::Comment || self.comments {
                let span = Span { file: self.file, start: start as u32, end: self.at as u32 };
                return Lexeme { token, span };
            }
        }
    }

    /// Continues at a later byte.
    pub(crate) fn go_to(&mut self, at: usize) {
        self.at = self.at.max(at);
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.rest() {
                [b' ' | b'\t' | b'\r', ..] => self.at += 1,
                // A no-break space, common in text copied from web pages.
                [0xc2, 0xa0, ..] => self.at += 2,
                _ => return,
            }
        }
    }

    fn scan(&mut self) -> Token {
        let (token, length) = match self.rest() {
            [] => (Token::Eof, 0),
            [b'\n', ..] => (Token::Newline, 1),
            [b'#', ..] => (Token::Comment, self.line_length()),
            [b'"', ..] => self.string(),
            [b'=', b'>', ..] => (Token::Arrow, 2),
            [b'=', b'=', ..] => (Token::Eq, 2),
            [b'=', b'~', ..] => (Token::Match, 2),
            [b'=', b'^', ..] => (Token::Prefix, 2),
            [b'=', b'$', ..] => (Token::Suffix, 2),
            [b'=', ..] => (Token::Assign, 1),
            [b'!', b'=', ..] => (Token::Ne, 2),
            [b'!', b'~', ..] => (Token::NotMatch, 2),
            [b'+', b'=', ..] => (Token::Append, 2),
            [b'+', ..] => (Token::Plus, 1),
            [b':', b'=', ..] => (Token::Replace, 2),
            [b'$', ..] => (Token::Dollar, 1),
            [b'(', ..] => (Token::LParen, 1),
            [b')', ..] => (Token::RParen, 1),
            [b'{', ..] => (Token::LBrace, 1),
            [b'}', ..] => (Token::RBrace, 1),
            [b'[', ..] => (Token::LBracket, 1),
            [b']', ..] => (Token::RBracket, 1),
            [b',', ..] => (Token::Comma, 1),
            [byte, ..] if is_key_byte(*byte) => self.word(),
            _ => (Token::Unknown, self.text[self.at..].chars().next().map_or(1, char::len_utf8)),
        };
        self.at += length;
        token
    }

    fn line_length(&self) -> usize {
        let rest = self.rest();
        let end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        if rest[..end].ends_with(b"\r") { end - 1 } else { end }
    }

    fn string(&mut self) -> (Token, usize) {
        let rest = self.rest();
        let (mut at, mut over_lines) = (1, false);
        while at < rest.len() && !self.no_closing_quote {
            match (rest[at], rest.get(at + 1)) {
                (b'\\', Some(b'"')) => at += 2,
                (b'"', _) if over_lines && !may_follow_string(&rest[at + 1..]) => {
                    return (Token::OpenStr, self.line_length());
                }
                (b'"', _) => return (Token::Str, at + 1),
                (byte, _) => {
                    over_lines |= byte == b'\n';
                    at += 1;
                }
            }
        }
        self.no_closing_quote = true;
        (Token::OpenStr, self.line_length())
    }

    fn word(&self) -> (Token, usize) {
        let rest = self.rest();
        let length = rest.iter().position(|&b| !is_key_byte(b)).unwrap_or(rest.len());
        let digits = rest[..length].strip_prefix(b"-").unwrap_or(&rest[..length]);
        let is_int = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        (if is_int { Token::Int } else { Token::Key }, length)
    }
}

/// True if this text may follow a string. Otherwise a string of several lines probably lacks its
/// closing quote, and the quote found began another string.
fn may_follow_string(rest: &[u8]) -> bool {
    let blank = rest.iter().position(|b| !matches!(b, b' ' | b'\t' | b'\r'));
    let next = blank.map(|at| rest[at]);
    next.is_none_or(|next| matches!(next, b'\n' | b'#' | b',' | b')' | b'=' | b'+' | b'{' | b'}'))
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// The value of a string token, quotes included in `raw`.
pub(crate) fn unquote(raw: &str) -> String {
    let inner = raw.strip_prefix('"').unwrap_or(raw);
    inner.strip_suffix('"').unwrap_or(inner).replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(Token, &str)> {
        let mut lexer = Lexer::with_comments(text, FileId(0));
        let mut list = Vec::new();
        loop {
            let lexeme = lexer.next();
            if lexeme.token == Token::Eof {
                return list;
            }
            let span = lexeme.span;
            list.push((lexeme.token, &text[span.start as usize..span.end as usize]));
        }
    }

    fn kinds(text: &str) -> Vec<Token> {
        tokens(text).into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn operators_take_the_longest_form() {
        use Token::*;
        assert_eq!(
            kinds("== != =~ !~ =^ =$ = += := => + , $"),
            [
                Eq, Ne, Match, NotMatch, Prefix, Suffix, Assign, Append, Replace, Arrow, Plus,
                Comma, Dollar
            ]
        );
        assert_eq!(kinds("a=b+=c"), [Key, Assign, Key, Append, Key]);
    }

    #[test]
    fn only_the_escaped_quote_is_an_escape() {
        let list = tokens(r#""a\"b" "\d\.\n""#);
        assert_eq!(list.len(), 2);
        assert_eq!(unquote(list[0].1), r#"a"b"#);
        assert_eq!(unquote(list[1].1), r"\d\.\n");
        assert_eq!(kinds(r#""\\""#), [Token::OpenStr], "the second backslash escapes the quote");
    }

    #[test]
    fn a_string_without_end_takes_one_line() {
        assert_eq!(
            tokens("\"ab\ncd"),
            [(Token::OpenStr, "\"ab"), (Token::Newline, "\n"), (Token::Key, "cd")]
        );
        assert_eq!(kinds("\"ab\ncd\""), [Token::Str], "with an end it may span lines");
        let list = kinds("a = \"x\nb = \"y\"");
        assert_eq!(list[2], Token::OpenStr, "the quote that was found begins another string");
        assert_eq!(list[6], Token::Str);
    }

    #[test]
    fn keys_numbers_and_comments() {
        assert_eq!(
            tokens("server.port-x_1 80 -5 1M # c"),
            [
                (Token::Key, "server.port-x_1"),
                (Token::Int, "80"),
                (Token::Int, "-5"),
                (Token::Key, "1M"),
                (Token::Comment, "# c")
            ]
        );
        assert_eq!(kinds("# c\r\n"), [Token::Comment, Token::Newline]);
        assert_eq!(kinds("-"), [Token::Key]);
    }

    #[test]
    fn no_break_spaces_and_byte_order_marks_are_white_space() {
        assert_eq!(kinds("\u{feff}a\u{a0}=\u{a0}1"), [Token::Key, Token::Assign, Token::Int]);
        assert_eq!(kinds("a ; é"), [Token::Key, Token::Unknown, Token::Unknown]);
    }
}
