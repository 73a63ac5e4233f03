//! Parses tokens to the tree of a file.
//!
//! After an error the parser continues at the next statement, so that one run reports all errors.
//! It recurses only for nested arrays and blocks, up to [`NESTING_MAX`] levels; deeper ones are
//! skipped without recursion.

mod stray;

use crate::ast::{Arm, AssignOp, CondExpr, Expr, Guard, Stmt, Term};
use crate::condition::Op;
use crate::diag::{Diagnostic, Diagnostics};
use crate::lex::{Lexeme, Lexer, Token, unquote};
use crate::limits::NESTING_MAX;
use crate::source::{FileId, Sources, Span, Spanned};
use crate::typographic;

/// Parses a file. Reports errors to `diagnostics` and returns the remaining statements.
pub(crate) fn parse(sources: &Sources, file: FileId, diagnostics: &mut Diagnostics) -> Vec<Stmt> {
    let source = sources.get(file);
    let slips = typographic::slips(&source.text);
    typographic::report(&slips, file).for_each(|found| diagnostics.push(found));
    let text = typographic::padded(&source.text, &slips);
    let cursor = Cursor::new(Lexer::new(&text, file), &source.text);
    let mut parser = Parser { cursor, text: &text, lossy: source.lossy, depth: 0, diagnostics };
    parser.statements(None)
}

/// An error that has been reported already, with the position of the parser.
enum Fail {
    /// In the middle of the statement. The rest must be skipped.
    Midway,
    /// At the start of the next statement.
    Border,
}

type Parsed<T> = Result<T, Fail>;

/// The parser's position, cloned to look ahead.
#[derive(Clone)]
struct Cursor<'a> {
    lexer: Lexer<'a>,
    /// The text as in the file. Some characters had to be made plain for the lexer.
    written: &'a str,
    now: Lexeme,
    /// The previous token.
    last: Span,
    /// Number of open parentheses, in which newlines are white space.
    parens: usize,
    /// True if `now` is the first token of its line.
    line_start: bool,
    /// The last string of several lines, which may lack a quote.
    long: Option<Span>,
}

impl<'a> Cursor<'a> {
    fn new(mut lexer: Lexer<'a>, written: &'a str) -> Self {
        let Lexeme { token, span } = lexer.next();
        let now = Lexeme { token, span: whole(span, written) };
        Cursor { lexer, written, now, last: now.span, parens: 0, line_start: true, long: None }
    }

    fn bump(&mut self) {
        self.last = self.now.span;
        self.line_start = self.now.token == Token::Newline;
        self.now = self.next();
        while self.parens > 0 && self.now.token == Token::Newline {
            self.line_start = true;
            self.now = self.next();
        }
    }

    fn next(&mut self) -> Lexeme {
        let Lexeme { token, span } = self.lexer.next();
        Lexeme { token, span: whole(span, self.written) }
    }
}

/// Extends a span to whole characters of `written`.
fn whole(mut span: Span, written: &str) -> Span {
    while !written.is_char_boundary(span.start as usize) {
        span.start -= 1;
    }
    while !written.is_char_boundary(span.end as usize) {
        span.end += 1;
    }
    span
}

struct Parser<'a, 'd> {
    cursor: Cursor<'a>,
    text: &'a str,
    lossy: bool,
    depth: usize,
    diagnostics: &'d mut Diagnostics,
}

impl<'a> Parser<'a, '_> {
    /// Parses statements up to the end of the file, or of the block that began at `open`.
    fn statements(&mut self, open: Option<Span>) -> Vec<Stmt> {
        let mut list = Vec::new();
        loop {
            match self.token() {
                Token::Newline => self.cursor.bump(),
                Token::Eof => {
                    if let Some(open) = open {
                        self.report(Diagnostic::error(
                            "unclosed",
                            open,
                            "this `{` is never closed",
                        ));
                    }
                    return list;
                }
                Token::RBrace => {
                    let span = self.span();
                    self.cursor.bump();
                    if open.is_some() {
                        return list;
                    }
                    let text = "this `}` closes nothing";
                    self.report(Diagnostic::error("syntax", span, text));
                }
                Token::Key if is_else(self.word()) && !self.peek().is_assignment() => {
                    self.stray_else(&mut list);
                }
                _ => match self.statement() {
                    Ok(statement) => list.push(statement),
                    Err(Fail::Midway) => self.recover(&mut list),
                    Err(Fail::Border) => {}
                },
            }
        }
    }

    fn statement(&mut self) -> Parsed<Stmt> {
        if self.token() == Token::Dollar {
            return self.chain();
        }
        if self.token() != Token::Key {
            return Err(self.unexpected("a directive, a condition or `include`"));
        }
        if self.peek().is_assignment() {
            return self.assignment();
        }
        match self.word() {
            "include" => self.include(false),
            "include_shell" => self.include(true),
            "global" => self.global(),
            "if" => self.chain(),
            word => {
                let message = format!("after {word:?} an `=` is missing");
                self.cursor.bump();
                let found = Diagnostic::error("syntax", self.span(), message);
                let help = format!("write `{word} = …`");
                Err(self.fail(found.help(help)))
            }
        }
    }

    fn assignment(&mut self) -> Parsed<Stmt> {
        let span = self.span();
        let written = &self.cursor.written[span.start as usize..span.end as usize];
        let key = Spanned::new(typographic::with_plain_dashes(written), span);
        self.check_text(self.span());
        self.cursor.bump();
        let op = match self.token() {
            Token::Append => AssignOp::Append,
            Token::Replace => AssignOp::Replace,
            _ => AssignOp::Set,
        };
        self.cursor.bump();
        self.skip_to_value();
        let value = match self.expr() {
            Ok(value) => {
                self.end_of_statement();
                Some(value)
            }
            Err(fail) => {
                if matches!(fail, Fail::Midway) {
                    self.skip_statement();
                }
                None
            }
        };
        Ok(Stmt::Assign { key, op, value })
    }

    fn include(&mut self, shell: bool) -> Parsed<Stmt> {
        let start = self.span();
        self.cursor.bump();
        self.skip_to_value();
        let expr = self.expr()?;
        let span = start.to(expr.span);
        self.end_of_statement();
        Ok(if shell {
            Stmt::IncludeShell { command: expr, span }
        } else {
            Stmt::Include { file: expr, span }
        })
    }

    fn global(&mut self) -> Parsed<Stmt> {
        self.cursor.bump();
        Ok(Stmt::Global(self.block()?))
    }

    fn chain(&mut self) -> Parsed<Stmt> {
        if self.token() == Token::Key {
            self.cursor.bump();
        }
        let first = self.arm()?;
        self.chain_from(first)
    }

    fn chain_from(&mut self, first: Arm) -> Parsed<Stmt> {
        let mut arms = vec![first];
        loop {
            let before = self.cursor.clone();
            self.skip_newlines();
            if self.token() != Token::Key || !is_else(self.word()) {
                self.cursor = before;
                return Ok(Stmt::Chain(arms));
            }
            let (span, bare) =
                (self.span(), matches!(arms.last(), Some(Arm { guard: Guard::Else, .. })));
            if bare {
                let text = "the chain ends with the `else` above";
                self.report(Diagnostic::error("syntax", span, text));
            }
            match self.else_arm() {
                Ok(arm) if !bare => arms.push(arm),
                Ok(_) => {}
                Err(Fail::Midway) => self.skip_statement(),
                Err(Fail::Border) => {}
            }
        }
    }

    /// Parses `else {`, `else $…`, `else if $…` or `elif $…`, starting at the first word.
    fn else_arm(&mut self) -> Parsed<Arm> {
        let start = self.span();
        let is_plain_else = self.word() == "else";
        self.cursor.bump();
        let with_if = self.token() == Token::Key && self.word() == "if";
        if with_if {
            self.cursor.bump();
        }
        if self.token() == Token::Dollar || !is_plain_else || with_if {
            let mut arm = self.arm()?;
            arm.span = start.to(arm.span);
            return Ok(arm);
        }
        let body = self.block()?;
        Ok(Arm { guard: Guard::Else, span: start, body })
    }

    /// Parses a condition and its block, starting at `$`.
    fn arm(&mut self) -> Parsed<Arm> {
        let start = self.span();
        let guard = match self.condition() {
            Ok(cond) => Guard::If(cond),
            Err(fail) => {
                // The body belongs to it even if the condition is wrong.
                while !matches!(self.token(), Token::LBrace | Token::Newline | Token::Eof) {
                    self.cursor.bump();
                }
                if self.token() != Token::LBrace {
                    return Err(fail);
                }
                Guard::Broken
            }
        };
        let span = start.to(self.cursor.last);
        let body = self.block()?;
        Ok(Arm { guard, span, body })
    }

    fn condition(&mut self) -> Parsed<CondExpr> {
        self.expect(Token::Dollar, "a condition such as `$HTTP[\"host\"] == \"…\"`")?;
        let object = Spanned::new(self.word().to_owned(), self.span());
        self.expect(Token::Key, "the name of what is compared: SERVER, HTTP, …")?;
        self.expect(Token::LBracket, "`[`")?;
        let name = Spanned::new(unquote(self.word()), self.span());
        if self.token() == Token::Key {
            let text = "the name in brackets needs quotes";
            let help = format!("write `${}[\"{}\"]`", object.value, name.value);
            let span = self.span();
            return Err(self.fail(Diagnostic::error("syntax", span, text).help(help)));
        }
        self.expect(Token::Str, "a name in quotes")?;
        self.expect(Token::RBracket, "`]`")?;
        self.skip_to_operator();
        let op = Spanned::new(self.operator()?, self.span());
        self.cursor.bump();
        self.skip_to_value();
        let right = self.expr()?;
        Ok(CondExpr { object, name, op, right })
    }

    fn operator(&mut self) -> Parsed<Op> {
        Ok(match self.token() {
            Token::Eq => Op::Eq,
            Token::Ne => Op::Ne,
            Token::Match => Op::Match,
            Token::NotMatch => Op::NotMatch,
            Token::Prefix => Op::Prefix,
            Token::Suffix => Op::Suffix,
            Token::Assign => {
                let found = Diagnostic::error("syntax", self.span(), "`=` does not compare");
                return Err(self.fail(found.help("write `==`")));
            }
            _ => return Err(self.unexpected("a comparison: == != =~ !~ =^ =$")),
        })
    }

    /// Parses `{ … }`, which may begin on the next line.
    fn block(&mut self) -> Parsed<Vec<Stmt>> {
        let before = self.cursor.clone();
        self.skip_newlines();
        if self.token() != Token::LBrace {
            self.cursor = before;
            return Err(self.unexpected("`{`"));
        }
        let open = self.span();
        if self.depth >= NESTING_MAX {
            return Err(self.too_deep());
        }
        self.cursor.bump();
        self.depth += 1;
        let body = self.statements(Some(open));
        self.depth -= 1;
        Ok(body)
    }

    fn expr(&mut self) -> Parsed<Expr> {
        let mut terms = vec![self.term()?];
        while self.token() == Token::Plus {
            self.cursor.bump();
            self.skip_newlines();
            terms.push(self.term()?);
        }
        let span = terms[0].span.to(self.cursor.last);
        Ok(Expr { terms, span })
    }

    fn term(&mut self) -> Parsed<Spanned<Term>> {
        let span = self.span();
        let term = match self.token() {
            Token::Str => {
                self.check_text(span);
                Term::Str(unquote(self.word()))
            }
            Token::Int => match self.word().parse() {
                Ok(number) => Term::Int(number),
                Err(_) => {
                    let found = Diagnostic::error("syntax", span, "this number is too large");
                    return Err(self.fail_after(found));
                }
            },
            Token::Key => Term::Name(self.name()?),
            Token::LParen => return self.array(),
            Token::OpenStr => {
                let text = "this string has no closing quote on its line";
                let found = Diagnostic::error("unclosed", span, text);
                let help = "before a closing quote a backslash escapes it: `\\\"`";
                let found = if self.word().ends_with("\\\"") { found.help(help) } else { found };
                return Err(self.fail_after(found));
            }
            _ => return Err(self.unexpected("a value")),
        };
        self.cursor.bump();
        Ok(Spanned::new(term, span))
    }

    fn name(&mut self) -> Parsed<String> {
        let word = self.word();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let text = format!("{word:?} is neither a number nor a name");
            let help = "numbers are plain decimal digits; text needs quotes";
            let found = Diagnostic::error("syntax", self.span(), text).help(help);
            return Err(self.fail_after(found));
        }
        Ok(word.to_owned())
    }

    fn array(&mut self) -> Parsed<Spanned<Term>> {
        let open = self.span();
        if self.depth >= NESTING_MAX {
            return Err(self.too_deep());
        }
        let outer = self.cursor.parens;
        self.depth += 1;
        self.cursor.parens += 1;
        self.cursor.bump();
        let result = self.elements(open);
        self.depth -= 1;
        self.cursor.parens = outer;
        let items = result?;
        let span = open.to(self.span());
        self.cursor.bump();
        items.map(|items| Spanned::new(Term::Array(items), span)).ok_or(Fail::Midway)
    }

    /// Parses the elements up to `)`, which is not consumed; `None` if some of them were wrong.
    #[expect(clippy::type_complexity, reason = "a name for it would be used once")]
    fn elements(&mut self, open: Span) -> Parsed<Option<Vec<(Option<Expr>, Expr)>>> {
        let (mut items, mut ok) = (Vec::new(), true);
        loop {
            match self.token() {
                Token::RParen => return Ok(ok.then_some(items)),
                Token::Eof | Token::RBrace => return Err(self.unclosed(open)),
                _ if self.at_statement() => return Err(self.unclosed(open)),
                Token::Comma => {
                    let text = "nothing stands before this comma";
                    let found = Diagnostic::warning("syntax", self.span(), text);
                    self.report(found.help("one comma between two elements is enough"));
                    self.cursor.bump();
                    continue;
                }
                _ => {}
            }
            match self.element() {
                Ok(item) => items.push(item),
                Err(Fail::Border) => return Err(Fail::Border),
                Err(Fail::Midway) => {
                    ok = false;
                    self.skip_element();
                }
            }
            match self.token() {
                Token::Comma => self.cursor.bump(),
                Token::RParen | Token::Eof | Token::RBrace => {}
                _ if self.at_statement() => {}
                _ => {
                    ok = false;
                    self.after_element();
                }
            }
        }
    }

    fn element(&mut self) -> Parsed<(Option<Expr>, Expr)> {
        let first = self.expr()?;
        if self.token() != Token::Arrow {
            return Ok((None, first));
        }
        self.cursor.bump();
        Ok((Some(first), self.expr()?))
    }

    /// Reports an element that is followed by neither `,` nor `)`.
    fn after_element(&mut self) {
        let is_value = matches!(self.token(), Token::Str | Token::Int | Token::LParen | Token::Key);
        if is_value {
            let last = self.cursor.last;
            let gap = Span { start: last.end.saturating_sub(1), ..last };
            let gap = whole(gap, self.cursor.written);
            self.report(Diagnostic::error("syntax", gap, "a comma is missing after this"));
        } else {
            if self.token() == Token::Assign {
                let found = Diagnostic::error("syntax", self.span(), "`=` inside an array");
                self.report(found.help("keys of arrays are followed by `=>`"));
            } else {
                let _ = self.unexpected("`,` or `)`");
            }
            self.skip_element();
            if self.token() == Token::Comma {
                self.cursor.bump();
            }
        }
    }

    fn unclosed(&mut self, open: Span) -> Fail {
        let text = "this `(` is never closed";
        let found = Diagnostic::error("unclosed", open, text);
        let found = self.with_long_string(found);
        let at_end = self.token() == Token::Eof;
        let next = "the next statement begins here";
        self.report(if at_end { found } else { found.note(self.span(), next) });
        Fail::Border
    }

    /// True if a new statement begins here although a parenthesis is open.
    fn at_statement(&self) -> bool {
        self.cursor.line_start && self.opens_statement()
    }

    fn opens_statement(&self) -> bool {
        match self.token() {
            Token::Key => self.peek().is_assignment(),
            Token::Dollar => true,
            _ => false,
        }
    }

    /// Skips to the next `,` or `)` of this array.
    fn skip_element(&mut self) {
        let mut open = 0usize;
        loop {
            match self.token() {
                Token::Eof | Token::RBrace => return,
                Token::Comma | Token::RParen if open == 0 => return,
                _ if self.at_statement() => return,
                Token::LParen => open += 1,
                Token::RParen => open -= 1,
                _ => {}
            }
            self.cursor.bump();
        }
    }

    /// Skips to the next statement. A block on the way is parsed, to keep braces balanced and to
    /// report its errors too.
    fn recover(&mut self, list: &mut Vec<Stmt>) {
        self.skip_statement();
        if self.token() == Token::LBrace {
            let span = self.span();
            match self.block() {
                Ok(body) => list.push(Stmt::Chain(vec![Arm { guard: Guard::Broken, span, body }])),
                Err(_) => self.skip_statement(),
            }
        }
    }

    /// Skips to the end of the line, or to a brace; arrays are skipped as a whole.
    fn skip_statement(&mut self) {
        self.cursor.parens = 0;
        loop {
            match self.token() {
                Token::Newline | Token::Eof | Token::RBrace | Token::LBrace => break,
                _ if self.cursor.parens > 0 && self.at_statement() => break,
                Token::LParen => self.cursor.parens += 1,
                Token::RParen => self.cursor.parens = self.cursor.parens.saturating_sub(1),
                _ => {}
            }
            self.cursor.bump();
        }
        self.cursor.parens = 0;
    }

    /// Reports excessive nesting once, and skips the whole construct without recursion.
    fn too_deep(&mut self) -> Fail {
        let text = format!("nested more than {NESTING_MAX} levels deep");
        self.report(Diagnostic::error("limit", self.span(), text));
        let mut open = 0usize;
        loop {
            match self.token() {
                Token::LParen | Token::LBrace => open += 1,
                Token::RParen | Token::RBrace => open = open.saturating_sub(1),
                Token::Eof => return Fail::Midway,
                _ => {}
            }
            self.cursor.bump();
            if open == 0 {
                return Fail::Midway;
            }
        }
    }

    /// Checks that the line or the block ends here, or that the next statement follows on the same
    /// line, as 1.4 allows.
    fn end_of_statement(&mut self) {
        if matches!(self.token(), Token::Newline | Token::Eof | Token::RBrace)
            || self.opens_statement()
            || self.token() == Token::Key && opens_with(self.word()) && !is_else(self.word())
        {
            return;
        }
        let _ = match (self.token(), self.word()) {
            (Token::Unknown, ";") => {
                let found = Diagnostic::error("syntax", self.span(), "`;` has no meaning here");
                self.fail(found.help("a statement ends with its line"))
            }
            _ => self.unexpected("the end of the line"),
        };
        self.skip_statement();
    }

    fn expect(&mut self, token: Token, what: &str) -> Parsed<()> {
        if self.token() != token {
            return Err(self.unexpected(what));
        }
        self.cursor.bump();
        Ok(())
    }

    fn unexpected(&mut self, wanted: &str) -> Fail {
        let text = format!("expected {wanted}, found {}", self.token().name());
        let found = Diagnostic::error("syntax", self.span(), text);
        // A path without quotes, or text in single ones.
        let is_text = self.token() == Token::Unknown && wanted == "a value";
        let help = is_text.then(|| "text needs double quotes: \"…\"".to_owned());
        let found = self.with_long_string(found.maybe_help(help));
        self.fail(found)
    }

    fn with_long_string(&self, found: Diagnostic) -> Diagnostic {
        match self.cursor.long {
            Some(span) => {
                found.note(span, "this string goes over several lines: is a quote missing?")
            }
            None => found,
        }
    }

    fn fail(&mut self, found: Diagnostic) -> Fail {
        self.report(found);
        Fail::Midway
    }

    /// Reports the current token and skips it.
    fn fail_after(&mut self, found: Diagnostic) -> Fail {
        self.report(found);
        self.cursor.bump();
        Fail::Midway
    }

    fn report(&mut self, found: Diagnostic) {
        self.diagnostics.push(found);
    }

    /// Records strings of several lines and rejects text that is not UTF-8.
    fn check_text(&mut self, span: Span) {
        let word = self.word();
        if word.contains('\n') {
            self.cursor.long = Some(span);
        }
        if self.lossy && word.contains('\u{fffd}') {
            let found = Diagnostic::error("encoding", span, "this is not valid UTF-8");
            self.report(found.help("save the file as UTF-8"));
        }
    }

    /// Skips to a value, which may begin on a later line as in 1.4. A statement is not a value.
    fn skip_to_value(&mut self) {
        self.skip_newlines_to(|parser| match parser.token() {
            Token::Str | Token::Int | Token::LParen => true,
            Token::Key => !parser.opens_statement() && !opens_with(parser.word()),
            _ => false,
        });
    }

    fn skip_to_operator(&mut self) {
        let operators =
            [Token::Eq, Token::Ne, Token::Match, Token::NotMatch, Token::Prefix, Token::Suffix];
        self.skip_newlines_to(|parser| operators.contains(&parser.token()));
    }

    /// Skips newlines if `wanted` holds after them.
    fn skip_newlines_to(&mut self, wanted: impl Fn(&Self) -> bool) {
        if self.token() == Token::Newline {
            let before = self.cursor.clone();
            self.skip_newlines();
            if !wanted(self) {
                self.cursor = before;
            }
        }
    }

    fn skip_newlines(&mut self) {
        while self.token() == Token::Newline {
            self.cursor.bump();
        }
    }

    fn token(&self) -> Token {
        self.cursor.now.token
    }

    fn span(&self) -> Span {
        self.cursor.now.span
    }

    fn word(&self) -> &'a str {
        let span = self.span();
        // Replaced characters leave padding spaces.
        self.text[span.start as usize..span.end as usize].trim_matches(' ')
    }

    fn peek(&self) -> Token {
        self.cursor.lexer.clone().next().token
    }
}

/// True for keywords that begin a statement other than an assignment.
fn opens_with(word: &str) -> bool {
    matches!(word, "include" | "include_shell" | "global" | "if") || is_else(word)
}

fn is_else(word: &str) -> bool {
    matches!(word, "else" | "elif" | "elsif" | "elseif")
}
