//! The format of a log line, compiled once at load into a list of parts.

use lighty_http::Known;

use lighty_core::exchange::span::Span;
use lighty_core::log::strftime;

/// The default of `accesslog.format`: the combined format, with the host in place of the ident.
pub(super) const DEFAULT: &str = "%h %V %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\"";

/// A compiled format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogFormat {
    pub(super) parts: Vec<FormatPart>,
    /// True if a piece shows the request's duration with a resolution below a second.
    pub(super) is_timed: bool,
}

/// A piece of a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FormatPart {
    Literal(Box<[u8]>),
    /// `%h`, `%a`; with `{mask}` the host part of the address is zeroed.
    Client {
        masked: bool,
    },
    LocalAddress,
    /// `%L`: the name on the error page and in the error log (Apache's mod_log_config).
    RequestId,
    User,
    Time {
        when: When,
        show: Show,
    },
    RequestLine,
    Status,
    /// `%b` and `%B`.
    BodyBytes,
    RequestField(FieldName),
    ResponseField(FieldName),
    Cookie(Box<[u8]>),
    /// `%T` and `%D`: duration of the request in this unit.
    Elapsed(Unit),
    /// `%e`, `%n`: a variable of the request's environment.
    Environment(Box<[u8]>),
    FileName,
    Protocol,
    Method,
    LocalPort,
    RemotePort,
    ProcessId,
    Query,
    UrlPath,
    ServerName,
    Host,
    ConnectionStatus,
    BytesIn,
    BytesOut,
    Upstream(OfUpstream),
    Cache(OfCache),
    Trace(TraceItem),
    /// `%{stage-…}x`: microseconds in a stretch of the request.
    Stage(Span),
}

/// Identifiers of a request that are shared with other servers (distributed tracing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceItem {
    Request,
    Trace,
    Span,
}

/// Facts about the upstream exchange of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfUpstream {
    Address,
    Wait,
    Connect,
    Tls,
    FirstByte,
    Tries,
}

/// Facts about the cache of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfCache {
    Result,
    Age,
    Wait,
}

/// Name of a header field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldName {
    pub(super) known: Option<Known>,
    pub(super) text: Box<[u8]>,
}

/// Which end of the request a time is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Begin,
    End,
}

/// Output format of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Show {
    Pattern(Box<[u8]>),
    /// Since 1970, in this unit.
    Since(Unit),
    /// The part of the second, in this unit, with leading zeros.
    Fraction(Unit),
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

/// An error in a format, with its position.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormatError {
    /// Offset of the invalid piece in bytes.
    pub(super) at: usize,
    /// Its length in bytes.
    pub(super) length: usize,
    /// The message for the operator.
    pub(super) message: String,
}

const LETTERS: &str = "h l L u t r s b i a A B C D e f H m n o p P q T U v V x X I O %";
const X_HELP: &str = "`%{…}x` takes `upstream`, `upstream-wait`, `upstream-connect`, \
     `upstream-tls`, `upstream-first-byte`, `upstream-tries`, `cache`, `cache-age`, `cache-wait`, \
     `request-id`, `trace-id`, `span-id` or `stage-NAME`, as in `stage-queue`";
const COMMON_LOG_TIME: &str = "[%d/%b/%Y:%H:%M:%S %z]";

impl LogFormat {
    /// Compiles a format.
    pub(super) fn parse(text: &str) -> Result<LogFormat, FormatError> {
        let mut parser = Parser { text, at: 0, parts: Vec::new(), literal: Vec::new() };
        while parser.at < text.len() {
            parser.step()?;
        }
        parser.end_literal();
        let parts = parser.parts;
        let tells =
            |part: &FormatPart| matches!(part, FormatPart::Elapsed(unit) if *unit != Unit::Seconds);
        let is_timed = parts.iter().any(tells);
        Ok(LogFormat { parts, is_timed })
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    parts: Vec<FormatPart>,
    literal: Vec<u8>,
}

impl Parser<'_> {
    fn step(&mut self) -> Result<(), FormatError> {
        let byte = self.text.as_bytes()[self.at];
        if byte == b'%' {
            return self.directive();
        }
        if byte < b' ' && byte != b'\t' {
            return Err(self.error(
                self.at,
                self.at + 1,
                "a control character: a log line is one line",
            ));
        }
        self.literal.push(byte);
        self.at += 1;
        Ok(())
    }

    /// Parses `%`, an optional `<` or `>`, an optional `{argument}` and a letter. `<` and `>`
    /// select an internal request in Apache; lighty has only one.
    fn directive(&mut self) -> Result<(), FormatError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        while matches!(bytes.get(at), Some(b'<' | b'>')) {
            at += 1;
        }
        let mut argument = None;
        if bytes.get(at) == Some(&b'{') {
            let Some(length) = self.text[at..].find('}') else {
                return Err(self.error(start, self.text.len(), "`{` without its `}`"));
            };
            argument = Some((at + 1, &self.text[at + 1..at + length]));
            at += length + 1;
        }
        let Some(letter) = self.text[at..].chars().next() else {
            return Err(self.error(start, self.text.len(), "a letter is missing behind `%`"));
        };
        let end = at + letter.len_utf8();
        self.at = end;
        let part = self.part(letter, argument, start, end)?;
        match part {
            FormatPart::Literal(bytes) => self.literal.extend_from_slice(&bytes),
            part => {
                self.end_literal();
                self.parts.push(part);
            }
        }
        Ok(())
    }

    fn part(
        &self,
        letter: char,
        argument: Option<(usize, &str)>,
        start: usize,
        end: usize,
    ) -> Result<FormatPart, FormatError> {
        let text = argument.map(|(_, text)| text);
        if let Some(part) = named(letter, text.unwrap_or_default()) {
            return match text {
                Some(name) if !name.is_empty() => Ok(part),
                // As in lighttpd: without a name there is no value.
                None if matches!(letter, 'C' | 'n') => {
                    Ok(FormatPart::Literal(b"-".as_slice().into()))
                }
                _ => {
                    let message = format!("`%{letter}` needs a name: `%{{name}}{letter}`");
                    Err(self.error(start, end, &message))
                }
            };
        }
        if letter == 't' {
            return self.time(argument);
        }
        let part = match text {
            None => plain(letter),
            Some(text) => with_argument(letter, text),
        };
        // As in lighttpd: an argument of a letter that takes none has no effect.
        part.or_else(|| plain(letter)).ok_or_else(|| match text {
            _ if letter == 'x' => self.error(start, end, X_HELP),
            _ => self.error(start, end, &format!("unknown letter `{letter}`; known: {LETTERS}")),
        })
    }

    fn time(&self, argument: Option<(usize, &str)>) -> Result<FormatPart, FormatError> {
        let (at, text) = argument.unwrap_or((self.at, ""));
        let (when, pattern) = match text.split_once(':') {
            Some(("begin", rest)) => (When::Begin, rest),
            Some(("end", rest)) => (When::End, rest),
            _ => (When::End, text),
        };
        let show = match pattern {
            "" => Show::Pattern(COMMON_LOG_TIME.as_bytes().into()),
            "sec" => Show::Since(Unit::Seconds),
            "msec" => Show::Since(Unit::Millis),
            "usec" => Show::Since(Unit::Micros),
            "nsec" => Show::Since(Unit::Nanos),
            "msec_frac" => Show::Fraction(Unit::Millis),
            "usec_frac" => Show::Fraction(Unit::Micros),
            "nsec_frac" => Show::Fraction(Unit::Nanos),
            pattern => {
                let from = at + text.len() - pattern.len();
                strftime::check(pattern).map_err(|unknown| {
                    let at = from + unknown.at;
                    let message = format!("unknown time conversion `{}`", unknown.text);
                    self.error(at, at + unknown.text.len(), &message)
                })?;
                if let Some(offset) = pattern.find(|c: char| c.is_ascii_control() && c != '\t') {
                    let at = from + offset;
                    return Err(self.error(at, at + 1, "a control character in a time pattern"));
                }
                Show::Pattern(pattern.as_bytes().into())
            }
        };
        Ok(FormatPart::Time { when, show })
    }

    fn end_literal(&mut self) {
        if !self.literal.is_empty() {
            let literal = std::mem::take(&mut self.literal).into_boxed_slice();
            self.parts.push(FormatPart::Literal(literal));
        }
    }

    fn error(&self, from: usize, to: usize, message: &str) -> FormatError {
        FormatError {
            at: from,
            length: to.saturating_sub(from).max(1),
            message: message.to_owned(),
        }
    }
}

/// Compiles letters that require a name.
fn named(letter: char, name: &str) -> Option<FormatPart> {
    Some(match letter {
        'i' => FormatPart::RequestField(FieldName::new(name)),
        'o' => FormatPart::ResponseField(FieldName::new(name)),
        'C' => FormatPart::Cookie(name.as_bytes().into()),
        'e' | 'n' => FormatPart::Environment(name.as_bytes().into()),
        _ => return None,
    })
}

fn plain(letter: char) -> Option<FormatPart> {
    Some(match letter {
        '%' => FormatPart::Literal(b"%".as_slice().into()),
        'L' => FormatPart::RequestId,
        // The user name from identd, which servers no longer request.
        'l' => FormatPart::Literal(b"-".as_slice().into()),
        'h' | 'a' => FormatPart::Client { masked: false },
        'A' => FormatPart::LocalAddress,
        'u' => FormatPart::User,
        'r' => FormatPart::RequestLine,
        's' => FormatPart::Status,
        'b' | 'B' => FormatPart::BodyBytes,
        'D' => FormatPart::Elapsed(Unit::Micros),
        'T' => FormatPart::Elapsed(Unit::Seconds),
        'f' => FormatPart::FileName,
        'H' => FormatPart::Protocol,
        'm' => FormatPart::Method,
        'p' => FormatPart::LocalPort,
        'P' => FormatPart::ProcessId,
        'q' => FormatPart::Query,
        'U' => FormatPart::UrlPath,
        'v' => FormatPart::ServerName,
        'V' => FormatPart::Host,
        'X' => FormatPart::ConnectionStatus,
        'I' => FormatPart::BytesIn,
        'O' => FormatPart::BytesOut,
        _ => return None,
    })
}

fn with_argument(letter: char, argument: &str) -> Option<FormatPart> {
    Some(match (letter, argument) {
        ('h' | 'a', "mask") => FormatPart::Client { masked: true },
        ('h' | 'a', "c") => FormatPart::Client { masked: false },
        ('p', "local" | "canonical") => FormatPart::LocalPort,
        ('p', "remote") => FormatPart::RemotePort,
        ('P', "pid") => FormatPart::ProcessId,
        ('T', "s" | "sec") => FormatPart::Elapsed(Unit::Seconds),
        ('T', "ms" | "msec") => FormatPart::Elapsed(Unit::Millis),
        ('T', "us" | "usec") => FormatPart::Elapsed(Unit::Micros),
        ('T', "ns" | "nsec") => FormatPart::Elapsed(Unit::Nanos),
        ('x', "upstream") => FormatPart::Upstream(OfUpstream::Address),
        ('x', "upstream-wait") => FormatPart::Upstream(OfUpstream::Wait),
        ('x', "upstream-connect") => FormatPart::Upstream(OfUpstream::Connect),
        ('x', "upstream-tls") => FormatPart::Upstream(OfUpstream::Tls),
        ('x', "upstream-first-byte") => FormatPart::Upstream(OfUpstream::FirstByte),
        ('x', "upstream-tries") => FormatPart::Upstream(OfUpstream::Tries),
        ('x', "cache") => FormatPart::Cache(OfCache::Result),
        ('x', "cache-age") => FormatPart::Cache(OfCache::Age),
        ('x', "cache-wait") => FormatPart::Cache(OfCache::Wait),
        ('x', stage) if stage.starts_with("stage-") => {
            FormatPart::Stage(Span::of_name(&stage[6..])?)
        }
        ('x', "request-id") => FormatPart::Trace(TraceItem::Request),
        ('x', "trace-id") => FormatPart::Trace(TraceItem::Trace),
        ('x', "span-id") => FormatPart::Trace(TraceItem::Span),
        _ => return None,
    })
}

impl FieldName {
    fn new(name: &str) -> Self {
        Self { known: Known::from_bytes(name.as_bytes()), text: name.as_bytes().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<FormatPart> {
        LogFormat::parse(text).expect("a good format").parts
    }

    #[test]
    fn literals_between_directives_are_joined() {
        let expected = [
            FormatPart::Literal(b"a% - ".as_slice().into()),
            FormatPart::Status,
            FormatPart::Literal(b"\"".as_slice().into()),
        ];
        assert_eq!(parts("a%% %l %>s\""), expected);
    }

    #[test]
    fn every_letter_of_the_manual_is_known() {
        for letter in LETTERS.split(' ') {
            let with_name = matches!(letter, "i" | "o" | "C" | "e" | "n");
            let text = match letter {
                "x" => "%{upstream}x".to_owned(),
                _ if with_name => format!("%{{x}}{letter}"),
                _ => format!("%{letter}"),
            };
            assert!(LogFormat::parse(&text).is_ok(), "{text}");
        }
        assert!(LogFormat::parse(DEFAULT).is_ok());
    }

    #[test]
    fn times() {
        let show = |text: &str| match parts(text).remove(0) {
            FormatPart::Time { when, show } => (when, show),
            other => panic!("{other:?}"),
        };
        let pattern = |text: &str| Show::Pattern(text.as_bytes().into());
        assert_eq!(show("%t"), (When::End, pattern(COMMON_LOG_TIME)));
        assert_eq!(show("%{begin:}t"), (When::Begin, pattern(COMMON_LOG_TIME)));
        assert_eq!(show("%{%H:%M}t"), (When::End, pattern("%H:%M")));
        assert_eq!(show("%{begin:%H:%M}t"), (When::Begin, pattern("%H:%M")));
        assert_eq!(show("%{sec}t"), (When::End, Show::Since(Unit::Seconds)));
        assert_eq!(show("%{begin:usec}t"), (When::Begin, Show::Since(Unit::Micros)));
        assert_eq!(show("%{end:msec_frac}t"), (When::End, Show::Fraction(Unit::Millis)));
    }

    #[test]
    fn faults_are_found_where_they_stand() {
        for (text, at, length, word) in [
            ("%h %Y", 3, 2, "unknown letter `Y`"),
            ("%", 0, 1, "letter is missing"),
            ("%h %{Referer", 3, 9, "without its `}`"),
            ("%i", 0, 2, "needs a name"),
            ("%{}i", 0, 4, "needs a name"),
            ("%x", 0, 2, "takes `upstream`"),
            ("%{upstream-}x", 0, 13, "takes `upstream`"),
            ("ab %{begin:%H %Q}t", 14, 2, "unknown time conversion `%Q`"),
            ("a\nb", 1, 1, "control character"),
            ("%{a\nb}t", 3, 1, "control character"),
            ("%\u{e4}", 0, 3, "unknown letter"),
        ] {
            let error = LogFormat::parse(text).expect_err(text);
            assert_eq!((error.at, error.length), (at, length), "{text}: {error:?}");
            assert!(error.message.contains(word), "{text}: {error:?}");
        }
    }
}
