//! Evaluates the condition of an `if`.
//!
//! ```text
//! or      = and *( "||" and )
//! and     = compare *( "&&" compare )
//! compare = unary [ ( "=" | "==" | "!=" | "<" | "<=" | ">" | ">=" ) unary ]
//! unary   = *"!" ( "(" or ")" / text )
//! text    = 1*( word | $name | ${name} | 'quoted' | "quoted" )
//! ```
//!
//! Texts are compared byte by byte, as in lighttpd 1.4; a text by itself is true unless it is
//! empty. Pieces of a text with white space between them are joined by one space.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

/// Maximum nesting of parentheses and negations.
pub const DEPTH_MAX: usize = 32;

/// Error of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadExpression {
    /// A syntax error at this byte.
    Syntax(usize),
    /// It is nested deeper than [`DEPTH_MAX`].
    Depth,
}

impl fmt::Display for BadExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(at) => write!(f, "the expression is wrong at byte {at}"),
            Self::Depth => write!(f, "the expression is nested deeper than {DEPTH_MAX}"),
        }
    }
}

/// Evaluates an expression. `look_up` appends a variable's value, if there is such a variable.
///
/// # Errors
/// The first error in the expression, also in a part that does not affect the result.
pub fn holds(text: &[u8], look_up: &dyn Fn(&[u8], &mut Vec<u8>)) -> Result<bool, BadExpression> {
    let mut reader = ExpressionReader { text, at: 0, depth: 0, look_up };
    if reader.peek().is_none() {
        return Ok(false);
    }
    let value = reader.or()?.is_true();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.wrong()),
    }
}

#[derive(Debug)]
enum ExpressionValue {
    Text(Vec<u8>),
    Truth(bool),
}

impl ExpressionValue {
    fn is_true(&self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty(),
            Self::Truth(truth) => *truth,
        }
    }

    /// Compares texts by their bytes, anything else by its truth value.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(one), Self::Text(two)) => one.cmp(two),
            _ => self.is_true().cmp(&other.is_true()),
        }
    }
}

type Judge = fn(Ordering) -> bool;

/// Longer operators first.
const OPERATORS: [(&[u8], Judge); 7] = [
    (b"==", Ordering::is_eq),
    (b"!=", Ordering::is_ne),
    (b"<=", Ordering::is_le),
    (b">=", Ordering::is_ge),
    (b"=", Ordering::is_eq),
    (b"<", Ordering::is_lt),
    (b">", Ordering::is_gt),
];

struct ExpressionReader<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    look_up: &'a dyn Fn(&[u8], &mut Vec<u8>),
}

impl ExpressionReader<'_> {
    fn or(&mut self) -> Result<ExpressionValue, BadExpression> {
        let mut value = self.and()?;
        while self.take(b"||") {
            let right = self.and()?;
            value = ExpressionValue::Truth(value.is_true() || right.is_true());
        }
        Ok(value)
    }

    fn and(&mut self) -> Result<ExpressionValue, BadExpression> {
        let mut value = self.compare()?;
        while self.take(b"&&") {
            let right = self.compare()?;
            value = ExpressionValue::Truth(value.is_true() && right.is_true());
        }
        Ok(value)
    }

    fn compare(&mut self) -> Result<ExpressionValue, BadExpression> {
        let left = self.unary()?;
        for (sign, judge) in OPERATORS {
            if self.take(sign) {
                let right = self.unary()?;
                return Ok(ExpressionValue::Truth(judge(left.compare(&right))));
            }
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<ExpressionValue, BadExpression> {
        match self.peek() {
            Some(b'!') => {
                self.at += 1;
                let value = self.nested(Self::unary)?;
                Ok(ExpressionValue::Truth(!value.is_true()))
            }
            Some(b'(') => {
                self.at += 1;
                let value = self.nested(Self::or)?;
                if self.take(b")") { Ok(value) } else { Err(self.wrong()) }
            }
            _ => self.joined(),
        }
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<ExpressionValue, BadExpression>,
    ) -> Result<ExpressionValue, BadExpression> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(BadExpression::Depth);
        }
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// Parses consecutive pieces of text.
    fn joined(&mut self) -> Result<ExpressionValue, BadExpression> {
        let mut text = Vec::new();
        let mut is_first = true;
        loop {
            let before = self.at;
            match self.peek() {
                Some(byte) if !b"()!=<>&|".contains(&byte) => {
                    if !is_first && self.at > before {
                        text.push(b' ');
                    }
                    self.piece(byte, &mut text)?;
                    is_first = false;
                }
                _ if is_first => return Err(self.wrong()),
                _ => return Ok(ExpressionValue::Text(text)),
            }
        }
    }

    fn piece(&mut self, byte: u8, out: &mut Vec<u8>) -> Result<(), BadExpression> {
        match byte {
            b'\'' | b'"' => self.quoted(byte, out),
            b'$' => self.variable(out),
            _ => {
                let is_end =
                    |byte: &u8| byte.is_ascii_whitespace() || b"()!=<>&|'\"$".contains(byte);
                let rest = &self.text[self.at..];
                let end = rest.iter().position(is_end).unwrap_or(rest.len());
                out.extend_from_slice(&rest[..end]);
                self.at += end;
                Ok(())
            }
        }
    }

    /// Parses a quoted text. A backslash makes the next byte literal.
    fn quoted(&mut self, quote: u8, out: &mut Vec<u8>) -> Result<(), BadExpression> {
        let opened_at = self.at;
        let mut bytes = self.text[self.at + 1..].iter();
        while let Some(&byte) = bytes.next() {
            match byte {
                b'\\' => out.extend(bytes.next()),
                byte if byte == quote => {
                    self.at = self.text.len() - bytes.as_slice().len();
                    return Ok(());
                }
                byte => out.push(byte),
            }
        }
        Err(BadExpression::Syntax(opened_at))
    }

    fn variable(&mut self, out: &mut Vec<u8>) -> Result<(), BadExpression> {
        let rest = &self.text[self.at + 1..];
        let name = match rest.strip_prefix(b"{") {
            Some(braced) => {
                let end = braced.iter().position(|byte| *byte == b'}');
                let end = end.ok_or(BadExpression::Syntax(self.at))?;
                self.at += end + 3;
                &braced[..end]
            }
            None => {
                let is_end = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_';
                let end = rest.iter().position(is_end).unwrap_or(rest.len());
                self.at += end + 1;
                &rest[..end]
            }
        };
        if name.is_empty() {
            return Err(self.wrong());
        }
        (self.look_up)(name, out);
        Ok(())
    }

    /// The next byte other than white space.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_ascii_start().len();
        self.text.get(self.at).copied()
    }

    fn take(&mut self, sign: &[u8]) -> bool {
        self.peek();
        let found = self.text[self.at..].starts_with(sign);
        if found {
            self.at += sign.len();
        }
        found
    }

    fn wrong(&self) -> BadExpression {
        BadExpression::Syntax(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Result<bool, BadExpression> {
        holds(text.as_bytes(), &|name, out| match name {
            b"x" => out.extend_from_slice(b"v"),
            b"two" => out.extend_from_slice(b"a b"),
            _ => {}
        })
    }

    #[test]
    fn true_expressions_are_judged_true() {
        for text in [
            "a",
            "0",
            "$x",
            "a = a",
            "a == a",
            "a != b",
            "a<b",
            "b > a && a <= a && a >= a",
            "10 < 9",
            "$x = ${x}",
            "$x = v",
            "$x = \"v\"",
            "a$x.b = 'av.b'",
            "'a b' = a   b",
            "$two = 'a b'",
            "'$x' != v",
            "'it\\'s' = \"it's\"",
            "a = b || c = c && 1",
            "!($x = '')",
            "!$nope",
            "!!a",
            "$nope = ''",
            "$x && (a = b || ($x = v && !($nope)))",
            "(a = b) = (c = d)",
            "Mozilla/4.0 = Mozilla/4.0",
        ] {
            assert_eq!(judged(text), Ok(true), "{text}");
        }
    }

    #[test]
    fn false_expressions_are_judged_false() {
        for text in
            ["", "  ", "$nope", "''", "!a", "!a = b", "a = b", "a && ''", "'' || ''", "b < a"]
        {
            assert_eq!(judged(text), Ok(false), "{text}");
        }
    }

    #[test]
    fn malformed_expressions_are_refused_at_their_place() {
        for (text, at) in [
            ("(", 1),
            ("(a", 2),
            (")", 0),
            ("a)", 1),
            ("a = ", 4),
            ("= a", 0),
            ("a = b = c", 6),
            ("a & b", 2),
            ("a | b", 2),
            ("a ||", 4),
            ("'a", 0),
            ("${x", 0),
            ("$", 1),
            ("${}", 3),
            ("a !b", 2),
        ] {
            assert_eq!(judged(text), Err(BadExpression::Syntax(at)), "{text}");
        }
    }

    #[test]
    fn expressions_are_nested_n_deep_at_most() {
        let of = |depth: usize| std::format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(judged(&of(DEPTH_MAX)), Ok(true));
        assert_eq!(judged(&of(DEPTH_MAX + 1)), Err(BadExpression::Depth));
        assert_eq!(judged(&"!".repeat(DEPTH_MAX + 1)), Err(BadExpression::Depth));
    }
}
