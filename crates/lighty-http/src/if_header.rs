//! The `If` field of WebDAV: RFC 4918 section 10.4.
//!
//! It has two functions: it is a condition (true if all states of any list hold), and it submits
//! the lock tokens that the client knows.

use alloc::vec::Vec;

/// Maximum conditions in one field: each costs a look-up of a file or a lock.
pub const CONDITIONS_MAX: usize = 64;

/// A parsed field, borrowing from the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IfHeader<'a> {
    /// The lists, one of which must hold. Either all have a resource or none.
    pub lists: Vec<IfList<'a>>,
}

/// States that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfList<'a> {
    /// The URI of the resource concerned; `None`: that of the request.
    pub resource: Option<&'a [u8]>,
    /// At least one.
    pub conditions: Vec<Condition<'a>>,
}

/// A state that must hold, or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    /// `Not`.
    pub negated: bool,
    /// The required state.
    pub state: IfState<'a>,
}

/// Required state of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfState<'a> {
    /// A lock with this token, without the angle brackets.
    Token(&'a [u8]),
    /// An entity tag, with its quotes.
    ETag(&'a [u8]),
}

/// Reason for rejecting a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfFault {
    /// A syntax error.
    Syntax,
    /// More than [`CONDITIONS_MAX`] conditions.
    TooMany,
}

impl IfFault {
    /// The message.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Syntax => "a malformed If",
            Self::TooMany => "an If of more than 64 conditions",
        }
    }
}

impl<'a> IfHeader<'a> {
    /// Parses a value.
    ///
    /// # Errors
    /// [`IfFault`].
    pub fn parse(value: &'a [u8]) -> Result<Self, IfFault> {
        let mut parser = Parser { rest: value, conditions: 0 };
        let mut lists = Vec::new();
        parser.skip_space();
        let tagged = parser.rest.first() == Some(&b'<');
        while !parser.rest.is_empty() {
            let resource = if tagged { Some(parser.coded_url()?) } else { None };
            parser.skip_space();
            lists.push(IfList { resource, conditions: parser.list()? });
            parser.skip_space();
            while tagged && parser.rest.first() == Some(&b'(') {
                lists.push(IfList { resource, conditions: parser.list()? });
                parser.skip_space();
            }
        }
        if lists.is_empty() { Err(IfFault::Syntax) } else { Ok(Self { lists }) }
    }

    /// The tokens that the client submits: the ones without `Not`.
    pub fn tokens(&self) -> impl Iterator<Item = &'a [u8]> {
        self.lists.iter().flat_map(|list| &list.conditions).filter_map(|condition| match condition
            .state
        {
            IfState::Token(token) if !condition.negated => Some(token),
            _ => None,
        })
    }
}

struct Parser<'a> {
    rest: &'a [u8],
    conditions: usize,
}

impl<'a> Parser<'a> {
    fn skip_space(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), IfFault> {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(IfFault::Syntax),
        }
    }

    /// `Coded-URL = "<" absolute-URI ">"`; for a resource also an absolute path (section 8.3).
    fn coded_url(&mut self) -> Result<&'a [u8], IfFault> {
        self.take(b'<')?;
        let end = self.rest.iter().position(|byte| *byte == b'>').ok_or(IfFault::Syntax)?;
        let (url, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        let strange = |byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b'<' | b'"');
        if url.is_empty() || url.iter().any(strange) {
            return Err(IfFault::Syntax);
        }
        Ok(url)
    }

    /// `IfList = "(" 1*Condition ")"`.
    fn list(&mut self) -> Result<Vec<Condition<'a>>, IfFault> {
        self.take(b'(')?;
        let mut conditions = Vec::new();
        loop {
            self.skip_space();
            if self.rest.first() == Some(&b')') {
                break;
            }
            self.conditions += 1;
            if self.conditions > CONDITIONS_MAX {
                return Err(IfFault::TooMany);
            }
            conditions.push(self.condition()?);
        }
        self.take(b')')?;
        if conditions.is_empty() { Err(IfFault::Syntax) } else { Ok(conditions) }
    }

    /// `Condition = ["Not"] (IfState-token | "[" entity-tag "]")`.
    fn condition(&mut self) -> Result<Condition<'a>, IfFault> {
        let negated = self.rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"not"));
        if negated {
            self.rest = &self.rest[3..];
            self.skip_space();
        }
        let state = match self.rest.first() {
            Some(b'<') => IfState::Token(self.coded_url()?),
            Some(b'[') => IfState::ETag(self.entity_tag()?),
            _ => return Err(IfFault::Syntax),
        };
        Ok(Condition { negated, state })
    }

    fn entity_tag(&mut self) -> Result<&'a [u8], IfFault> {
        self.take(b'[')?;
        self.skip_space();
        let tag = crate::etag::leading(self.rest).ok_or(IfFault::Syntax)?;
        self.rest = &self.rest[tag.len()..];
        self.skip_space();
        self.take(b']')?;
        Ok(tag)
    }
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};
    use std::vec::Vec;
    use std::{format, vec};

    use super::*;

    fn token(text: &str) -> Condition<'_> {
        Condition { negated: false, state: IfState::Token(text.as_bytes()) }
    }

    fn etag(text: &str) -> Condition<'_> {
        Condition { negated: false, state: IfState::ETag(text.as_bytes()) }
    }

    fn not(condition: Condition<'_>) -> Condition<'_> {
        Condition { negated: true, ..condition }
    }

    #[track_caller]
    fn parsed(text: &str, wanted: &[(Option<&str>, Vec<Condition<'_>>)]) {
        let found = IfHeader::parse(text.as_bytes()).expect(text);
        let lists = wanted.iter().map(|(resource, conditions)| IfList {
            resource: resource.map(str::as_bytes),
            conditions: conditions.clone(),
        });
        assert_eq!(found.lists, lists.collect::<Vec<_>>(), "{text}");
    }

    #[test]
    fn the_examples_of_the_rfc() {
        parsed(
            "(<urn:uuid:181d4fae> [\"I am an ETag\"]) ([\"I am another ETag\"])",
            &[
                (None, vec![token("urn:uuid:181d4fae"), etag("\"I am an ETag\"")]),
                (None, vec![etag("\"I am another ETag\"")]),
            ],
        );
        parsed(
            "(Not <urn:uuid:1> <urn:uuid:58>)",
            &[(None, vec![not(token("urn:uuid:1")), token("urn:uuid:58")])],
        );
        parsed(
            "(<urn:uuid:1>) (Not <DAV:no-lock>)",
            &[(None, vec![token("urn:uuid:1")]), (None, vec![not(token("DAV:no-lock"))])],
        );
        parsed(
            "</resource1> (<urn:uuid:1> [W/\"A weak ETag\"]) ([\"strong ETag\"])",
            &[
                (Some("/resource1"), vec![token("urn:uuid:1"), etag("W/\"A weak ETag\"")]),
                (Some("/resource1"), vec![etag("\"strong ETag\"")]),
            ],
        );
        parsed(
            "<http://a/specs/> (<urn:uuid:1>)<http://a/x>([\"4217\"])",
            &[
                (Some("http://a/specs/"), vec![token("urn:uuid:1")]),
                (Some("http://a/x"), vec![etag("\"4217\"")]),
            ],
        );
        parsed("</x> (not[\"4217\"])", &[(Some("/x"), vec![not(etag("\"4217\""))])]);
    }

    #[test]
    fn headers_outside_the_grammar_are_refused() {
        for text in [
            "",
            " ",
            "()",
            "(<>)",
            "(<a b>)",
            "(<a>",
            "(<a) ",
            "<a>",
            "<a> <b> (<c>)",
            "(<a>) <b> (<c>)",
            "<b> (<c>) x",
            "(Not)",
            "(Not Not <a>)",
            "([\"a])",
            "([a])",
            "(\"a\")",
            "(<a>),(<b>)",
            "x(<a>)",
        ] {
            assert_eq!(IfHeader::parse(text.as_bytes()), Err(IfFault::Syntax), "{text:?}");
        }
    }

    #[test]
    fn conditions_are_counted() {
        let of = |count: usize| format!("({}) (<b>)", "<a>".repeat(count - 1));
        let most = of(CONDITIONS_MAX);
        assert!(IfHeader::parse(most.as_bytes()).is_ok());
        let more = of(CONDITIONS_MAX + 1);
        assert_eq!(IfHeader::parse(more.as_bytes()), Err(IfFault::TooMany));
    }

    #[test]
    fn tokens_are_those_that_are_not_negated() {
        let text = "</a> (<x> Not <y>) (<z> [\"e\"]) </b> (<x>)";
        let header = IfHeader::parse(text.as_bytes()).expect("legal");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_string();
        assert_eq!(header.tokens().map(text).collect::<Vec<_>>(), ["x", "z", "x"]);
    }
}
