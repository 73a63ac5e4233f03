//! The right side of a rule: text with placeholders.
//!
//! `$0` to `$9` are the groups of the rule's own pattern, `%0` to `%9` are groups of the enclosing
//! condition. `${1}` and `%{1}` percent-encode the inserted text; `${esc:1}`, `${escnde:1}`,
//! `${escpsnde:1}`, `${noesc:1}`, `${tolower:1}`, `${toupper:1}`, `${encb64u:1}`, `${decb64u:1}`
//! select another encoding. `${url.scheme}`, `${url.authority}`, `${url.port}`, `${url.path}`,
//! `${url.query}` are parts of the URL, and `${qsa}` appends its query. `$$` and `%%` are the
//! literal signs. Source: keyvalue replacement of lighttpd 1.4.

use lighty_config::Captures;
use lighty_http::decimal;

use super::UrlParts;
use super::pattern::Groups;

/// A parsed replacement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<TemplatePiece>,
}

#[derive(Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(Box<[u8]>),
    Insert(What, How),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Group(usize),
    Condition(usize),
    Scheme,
    Authority,
    Port,
    Path,
    Query,
    /// Appends the query after `?`, or after `&` if there is a query already.
    AppendQuery,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct How {
    encoding: Option<Encoding>,
    case: Option<Case>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    None,
    /// Everything but unreserved characters.
    All,
    /// Like `All`, but already encoded text is left alone ("no double encoding").
    NoDouble,
    /// Like `NoDouble`, but keeps slashes.
    PathNoDouble,
    /// Characters not allowed in a path, `%` included.
    Path,
    ToBase64Url,
    FromBase64Url,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Lower,
    Upper,
}

const ENCODINGS: &[(&str, Encoding)] = &[
    ("esc", Encoding::All),
    ("escape", Encoding::All),
    ("escnde", Encoding::NoDouble),
    ("escpsnde", Encoding::PathNoDouble),
    ("noesc", Encoding::None),
    ("noescape", Encoding::None),
    ("encb64u", Encoding::ToBase64Url),
    ("decb64u", Encoding::FromBase64Url),
];

const PARTS: &[(&str, What)] = &[
    ("url.scheme", What::Scheme),
    ("url.authority", What::Authority),
    ("url.port", What::Port),
    ("url.path", What::Path),
    ("url.query", What::Query),
    ("qsa", What::AppendQuery),
];

/// The texts inserted into a template.
pub(super) struct Sources<'a> {
    pub(super) groups: &'a Groups<'a>,
    pub(super) condition: Option<Captures<'a>>,
    /// The condition's captures come from a decoded path and must be encoded.
    pub(super) encodes_condition: bool,
    pub(super) url: &'a UrlParts<'a>,
}

impl Template {
    /// Parses a replacement. Unknown placeholders insert nothing and are reported to `warn`.
    pub(super) fn parse(text: &str, warn: impl Fn(String)) -> Template {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((&first, after)) = rest.split_first() {
            let sign = matches!(first, b'$' | b'%');
            rest = match after {
                [b'{', inner @ ..] if sign => {
                    let end = inner.iter().position(|byte| *byte == b'}');
                    let name = String::from_utf8_lossy(&inner[..end.unwrap_or(inner.len())]);
                    match parse_braces(first, &name) {
                        Some((what, how)) => insert(&mut pieces, &mut plain, what, how),
                        None => warn(format!(
                            "has a replacement with the unknown \"{}{{{name}}}\"",
                            first as char
                        )),
                    }
                    end.map_or(&[][..], |end| &inner[end + 1..])
                }
                [digit @ b'0'..=b'9', tail @ ..] if sign => {
                    let what = group(first, usize::from(digit - b'0'));
                    insert(
                        &mut pieces,
                        &mut plain,
                        what,
                        How { encoding: Some(Encoding::None), case: None },
                    );
                    tail
                }
                [same, tail @ ..] if sign && *same == first => {
                    plain.push(first);
                    tail
                }
                _ => {
                    plain.push(first);
                    after
                }
            };
        }
        if !plain.is_empty() {
            pieces.push(TemplatePiece::Text(plain.into()));
        }
        Template { pieces }
    }

    /// True if the replacement is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// True if the template inserts a group of the pattern.
    pub(super) fn uses_groups(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, TemplatePiece::Insert(What::Group(_), _)))
    }

    /// Appends the expanded text.
    pub(super) fn fill(&self, from: &Sources<'_>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => out.extend_from_slice(text),
                TemplatePiece::Insert(what, how) => insert_into(*what, *how, from, out),
            }
        }
    }
}

fn insert(pieces: &mut Vec<TemplatePiece>, plain: &mut Vec<u8>, what: What, how: How) {
    if !plain.is_empty() {
        pieces.push(TemplatePiece::Text(std::mem::take(plain).into()));
    }
    pieces.push(TemplatePiece::Insert(what, how));
}

fn group(sign: u8, number: usize) -> What {
    if sign == b'$' { What::Group(number) } else { What::Condition(number) }
}

/// Parses the text between `{` and `}`: encodings, each followed by a colon, then the source.
fn parse_braces(sign: u8, inner: &str) -> Option<(What, How)> {
    let mut how = How::default();
    let mut rest = inner;
    while let Some((word, tail)) = rest.split_once(':') {
        match word {
            "tolower" => how.case = Some(Case::Lower),
            "toupper" => how.case = Some(Case::Upper),
            _ => how.encoding = Some(ENCODINGS.iter().find(|(name, _)| *name == word)?.1),
        }
        rest = tail;
    }
    if let Some((_, what)) = PARTS.iter().find(|(name, _)| *name == rest) {
        return Some((*what, how));
    }
    // lighttpd skips either sign here: `${esc:$1}` is `${esc:1}`.
    let rest = rest.strip_prefix(['$', '%']).unwrap_or(rest);
    let number = rest.parse::<usize>().ok().filter(|_| rest.len() <= 2)?;
    how.encoding = how.encoding.or(Some(Encoding::PathNoDouble));
    Some((group(sign, number), how))
}

fn insert_into(what: What, how: How, from: &Sources<'_>, out: &mut Vec<u8>) {
    let url = from.url;
    let text = match what {
        What::Group(n) => from.groups.get(n),
        What::Condition(n) => {
            from.condition.and_then(|captures| captures.get(n)).unwrap_or_default().as_bytes()
        }
        What::Scheme => url.scheme,
        What::Authority => url.authority,
        What::Port => return decimal::push(u64::from(url.port), out),
        What::Path => url.path,
        What::Query => url.query.unwrap_or_default(),
        What::AppendQuery => match url.query {
            None => return,
            Some(query) => {
                match out.contains(&b'?') {
                    false => out.push(b'?'),
                    true if query.is_empty() => {}
                    true => out.push(b'&'),
                }
                query
            }
        },
    };
    match (what, how.encoding) {
        (What::Condition(_), None | Some(Encoding::None)) if from.encodes_condition => {
            append(text, How { encoding: Some(Encoding::Path), ..how }, out);
        }
        _ => append(text, how, out),
    }
}

/// Percent-encodes characters that are not allowed in a reference (RFC 3986 section 2) and that
/// clients reinterpret: blanks, quotes, backslashes (which browsers take for slashes) and bytes
/// beyond ASCII. Already encoded text is kept. Control characters are kept too, so that the caller
/// can detect them.
pub(super) fn encode_unfit(reference: &mut Vec<u8>) {
    let is_unfit = |&byte: &u8| !is_of_a_reference(byte) && !byte.is_ascii_control();
    if reference.iter().any(is_unfit) {
        let text = std::mem::take(reference);
        encode(&text, reference, |byte| is_of_a_reference(byte) || byte.is_ascii_control(), true);
    }
}

/// True for characters kept in a reference: the set of RFC 3986, the percent sign, and brackets and
/// similar, which lighttpd keeps and clients read unambiguously.
fn is_of_a_reference(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\')
}

/// True for characters that are literal in a path (`pchar` and the slash), and for the brackets of
/// a host.
fn is_of_a_path(byte: u8) -> bool {
    is_of_a_reference(byte)
        && !matches!(byte, b'%' | b'?' | b'#' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}')
}

fn append(text: &[u8], how: How, out: &mut Vec<u8>) {
    let from = out.len();
    match how.encoding.unwrap_or(Encoding::None) {
        Encoding::None => out.extend_from_slice(text),
        Encoding::All => encode(text, out, |_| false, false),
        Encoding::NoDouble => encode(text, out, |_| false, true),
        Encoding::PathNoDouble => encode(text, out, |byte| byte == b'/', true),
        Encoding::Path => {
            encode(text, out, |byte| is_of_a_path(byte) || byte.is_ascii_control(), false);
        }
        Encoding::ToBase64Url => lighty_http::base64::encode_url(text, out),
        Encoding::FromBase64Url => {
            if let Some(decoded) = lighty_http::base64::decode_url(text) {
                out.extend_from_slice(&decoded);
            }
        }
    }
    if let Some(case) = how.case {
        change_case(&mut out[from..], case);
    }
}

/// Changes letters, except the hex digits of percent-encoded bytes.
fn change_case(text: &mut [u8], case: Case) {
    let mut at = 0;
    while at < text.len() {
        if is_encoded(text, at) {
            at += 3;
            continue;
        }
        match case {
            Case::Lower => text[at].make_ascii_lowercase(),
            Case::Upper => text[at].make_ascii_uppercase(),
        }
        at += 1;
    }
}

fn is_encoded(text: &[u8], at: usize) -> bool {
    let digits = text.get(at + 1..at + 3);
    text[at] == b'%' && digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// Percent-encodes all characters except unreserved ones (RFC 3986 section 2.3) and characters that
/// `also` accepts.
fn encode(text: &[u8], out: &mut Vec<u8>, also: impl Fn(u8) -> bool, keep_encoded: bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for (at, &byte) in text.iter().enumerate() {
        let unreserved = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        let encoded = keep_encoded && is_encoded(text, at);
        if unreserved || encoded || also(byte) {
            out.push(byte);
        } else {
            out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}
