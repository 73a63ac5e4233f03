//! Parses the XML of a request into a small tree. Document types are rejected, so that nothing in a
//! document can expand.
//!
//! Namespaces are resolved. A property's element can be written again as it came, with the
//! declarations it needs from its context, so that it means the same anywhere (RFC 4918 section
//! 4.4).

use std::ops::Range;
use std::rc::Rc;

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// Maximum number of elements in a document.
pub(super) const ELEMENTS_MAX: usize = 4096;
/// Maximum nesting depth of elements.
pub(super) const DEPTH_MAX: usize = 64;
/// Maximum number of attributes of an element, and of namespace prefixes in scope.
pub(super) const ATTRIBUTES_MAX: usize = 32;
/// Maximum length of a namespace name, in bytes: it is written again for each name in it.
pub(super) const NAMESPACE_BYTES_MAX: usize = 512;

/// The WebDAV namespace.
pub(super) const DAV: &str = "DAV:";

const XML: &str = "http://www.w3.org/XML/1998/namespace";

/// A parsed document.
#[derive(Debug)]
pub(super) struct XmlDocument {
    text: String,
    pub(super) root: Element,
}

/// An element.
#[derive(Debug)]
pub(super) struct Element {
    /// The namespace; empty if there is none.
    pub(super) ns: Rc<str>,
    /// The name without its prefix.
    pub(super) name: String,
    pub(super) children: Vec<Element>,
    /// The text directly in the element, references resolved.
    pub(super) text: String,
    qname: String,
    /// Attributes as written, without namespace declarations.
    attributes: String,
    scope: Scope,
    lang: Option<Rc<str>>,
    inner: Range<usize>,
}

type Scope = Rc<Vec<(Rc<str>, Rc<str>)>>;

/// The reason for which a document is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum XmlError {
    #[error("not UTF-8")]
    NotUtf8,
    #[error("not UTF-16")]
    NotUtf16,
    #[error("a character that XML does not have")]
    Character,
    #[error("not well-formed")]
    NotWellFormed,
    #[error("a processing instruction")]
    ProcessingInstruction,
    #[error("a document type")]
    DocumentType,
    #[error("an element that does not end")]
    OpenElement,
    #[error("no element")]
    NoElement,
    #[error("a second root element")]
    SecondRoot,
    #[error("an end tag without a start tag")]
    EndTag,
    #[error("text outside of the root element")]
    TextOutside,
    #[error("]]> in text")]
    CdataEnd,
    #[error("an unknown entity")]
    Entity,
    #[error("a malformed attribute")]
    Attribute,
    #[error("an attribute twice")]
    AttributeTwice,
    #[error("a malformed name")]
    Name,
    #[error("a prefix that is not declared")]
    UndeclaredPrefix,
    #[error("a prefix for no namespace")]
    PrefixWithoutNamespace,
    #[error("a declaration of xml or xmlns")]
    ReservedPrefix,
    #[error("more than {ELEMENTS_MAX} elements")]
    Elements,
    #[error("elements too deep within each other")]
    Depth,
    #[error("an element with more than {ATTRIBUTES_MAX} attributes")]
    Attributes,
    #[error("more than {ATTRIBUTES_MAX} prefixes of namespaces")]
    Prefixes,
    #[error("a namespace with a name of more than {NAMESPACE_BYTES_MAX} bytes")]
    NamespaceBytes,
}

impl Element {
    /// Returns true if this is the WebDAV element of that name.
    pub(super) fn is_dav(&self, name: &str) -> bool {
        &*self.ns == DAV && self.name == name
    }

    /// Returns the WebDAV child element of this name.
    pub(super) fn dav_child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.is_dav(name))
    }
}

impl XmlDocument {
    /// Parses a document in UTF-8, or in UTF-16 with a byte order mark.
    ///
    /// # Errors
    /// The syntax error or the exceeded limit.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, XmlError> {
        let text = decode(bytes)?;
        if !text.chars().all(is_char) {
            return Err(XmlError::Character);
        }
        let root = Builder::new(&text).build()?;
        Ok(Self { text, root })
    }

    /// Returns the source text between an element's tags.
    pub(super) fn inner(&self, element: &Element) -> &str {
        &self.text[element.inner.clone()]
    }

    /// Returns the element as it came, with the namespaces and the language inherited from its
    /// context.
    pub(super) fn standalone(&self, element: &Element) -> String {
        let mut out = format!("<{}", element.qname);
        for (prefix, uri) in &*element.scope {
            let colon = if prefix.is_empty() { "" } else { ":" };
            push(&mut out, &[" xmlns", colon, prefix, "=\""]);
            push_escaped(uri, &mut out);
            out.push('"');
        }
        if let Some(lang) = &element.lang {
            push(&mut out, &[" xml:lang=\""]);
            push_escaped(lang, &mut out);
            out.push('"');
        }
        let inner = self.inner(element);
        match inner {
            "" => push(&mut out, &[&element.attributes, "/>"]),
            _ => push(&mut out, &[&element.attributes, ">", inner, "</", &element.qname, ">"]),
        }
        out
    }
}

fn push(out: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| out.push_str(part));
}

fn push_escaped(text: &str, out: &mut String) {
    let mut escaped = Vec::new();
    lighty_http::xml::escape(text.as_bytes(), &mut escaped);
    out.push_str(&String::from_utf8_lossy(&escaped));
}

fn decode(bytes: &[u8]) -> Result<String, XmlError> {
    let wide = |bytes: &[u8], join: fn([u8; 2]) -> u16| {
        let pairs = bytes.chunks_exact(2);
        let whole = pairs.remainder().is_empty();
        let units: Vec<u16> = pairs.map(|pair| join([pair[0], pair[1]])).collect();
        String::from_utf16(&units).ok().filter(|_| whole).ok_or(XmlError::NotUtf16)
    };
    match bytes {
        [0xFF, 0xFE, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => {
            String::from_utf8(rest.to_vec()).map_err(|_| XmlError::NotUtf8)
        }
        _ => String::from_utf8(bytes.to_vec()).map_err(|_| XmlError::NotUtf8),
    }
}

/// Returns true for a `Char` (XML 1.0 section 2.2).
fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..)
}

struct Builder<'t> {
    reader: Reader<&'t [u8]>,
    /// Open elements, the innermost last.
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
    begun: bool,
}

impl<'t> Builder<'t> {
    fn new(text: &'t str) -> Self {
        let mut reader = Reader::from_str(text);
        reader.config_mut().check_comments = true;
        Self { reader, open: Vec::new(), root: None, elements: 0, begun: false }
    }

    fn build(mut self) -> Result<Element, XmlError> {
        loop {
            let before = self.position();
            let event = self.reader.read_event().map_err(|_| XmlError::NotWellFormed)?;
            let first = !std::mem::replace(&mut self.begun, true);
            match event {
                Event::Start(tag) => self.start(&tag)?,
                Event::Empty(tag) => {
                    self.start(&tag)?;
                    let end = self.position();
                    self.end(end)?;
                }
                Event::End(_) => self.end(before)?,
                Event::Text(text) => self.text(&text.into_inner(), true)?,
                Event::CData(text) => self.text(&text.into_inner(), false)?,
                Event::GeneralRef(reference) => self.reference(&reference)?,
                Event::Comment(_) => {}
                Event::Decl(_) if first => {}
                Event::Decl(_) | Event::PI(_) => return Err(XmlError::ProcessingInstruction),
                Event::DocType(_) => return Err(XmlError::DocumentType),
                Event::Eof => break,
            }
        }
        if !self.open.is_empty() {
            return Err(XmlError::OpenElement);
        }
        self.root.ok_or(XmlError::NoElement)
    }

    fn position(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX)
    }

    fn start(&mut self, tag: &BytesStart<'_>) -> Result<(), XmlError> {
        self.elements += 1;
        if self.elements > ELEMENTS_MAX {
            return Err(XmlError::Elements);
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(XmlError::Depth);
        }
        if self.open.is_empty() && self.root.is_some() {
            return Err(XmlError::SecondRoot);
        }
        let around = self.open.last();
        let scope = around.map(|element| Rc::clone(&element.scope)).unwrap_or_default();
        let lang = around.and_then(|element| element.lang.clone());
        let attributes = Attributes::read(tag, scope, lang)?;
        let qname = tag.name();
        let (prefix, name) = split(qname.as_ref())?;
        let ns = attributes.resolve(prefix)?;
        let start = self.position();
        self.open.push(Element {
            ns,
            name: name.to_owned(),
            children: Vec::new(),
            text: String::new(),
            qname: qname.as_ref().to_owned(),
            attributes: attributes.others,
            scope: attributes.scope,
            lang: attributes.lang,
            inner: start..start,
        });
        Ok(())
    }

    fn end(&mut self, inner_end: usize) -> Result<(), XmlError> {
        let mut element = self.open.pop().ok_or(XmlError::EndTag)?;
        element.inner.end = inner_end.max(element.inner.start);
        match self.open.last_mut() {
            Some(around) => around.children.push(element),
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn text(&mut self, text: &str, is_markup: bool) -> Result<(), XmlError> {
        if is_markup && text.contains("]]>") {
            return Err(XmlError::CdataEnd);
        }
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if is_markup && text.trim_ascii().is_empty() => {}
            None => return Err(XmlError::TextOutside),
        }
        Ok(())
    }

    /// Resolves a character reference or one of the five predefined entities.
    fn reference(&mut self, reference: &BytesRef<'_>) -> Result<(), XmlError> {
        let name: &str = reference;
        let text = quick_xml::escape::unescape(&format!("&{name};"))
            .map_err(|_| XmlError::Entity)?
            .into_owned();
        if !text.chars().all(is_char) {
            return Err(XmlError::Character);
        }
        self.text(&text, false)
    }
}

/// The attributes of a start tag.
struct Attributes {
    scope: Scope,
    lang: Option<Rc<str>>,
    others: String,
}

impl Attributes {
    fn read(tag: &BytesStart<'_>, scope: Scope, lang: Option<Rc<str>>) -> Result<Self, XmlError> {
        let mut read = Self { scope, lang, others: String::new() };
        let mut prefixed = Vec::new();
        for (count, attribute) in tag.attributes().enumerate() {
            if count >= ATTRIBUTES_MAX {
                return Err(XmlError::Attributes);
            }
            let attribute = attribute.map_err(|_| XmlError::Attribute)?;
            let raw: &str = &attribute.value;
            let value = quick_xml::escape::unescape(raw).map_err(|_| XmlError::Entity)?;
            if raw.contains('<') || !value.chars().all(is_char) {
                return Err(XmlError::Attribute);
            }
            match split(attribute.key.as_ref())? {
                (None, "xmlns") => read.declare("", &value)?,
                (Some("xmlns"), prefix) if !value.is_empty() => read.declare(prefix, &value)?,
                (Some("xmlns"), _) => return Err(XmlError::PrefixWithoutNamespace),
                (Some("xml"), "lang") => read.lang = Some(Rc::from(&*value)),
                (prefix, name) => {
                    prefixed.extend(prefix.map(|prefix| (prefix.to_owned(), name.to_owned())));
                    let quote = if raw.contains('"') { "'" } else { "\"" };
                    let key: &str = attribute.key.as_ref();
                    push(&mut read.others, &[" ", key, "=", quote, raw, quote]);
                }
            }
        }
        read.check(&prefixed)?;
        Ok(read)
    }

    fn declare(&mut self, prefix: &str, uri: &str) -> Result<(), XmlError> {
        if prefix == "xml" || prefix == "xmlns" || uri == XML {
            return Err(XmlError::ReservedPrefix);
        }
        if uri.len() > NAMESPACE_BYTES_MAX {
            return Err(XmlError::NamespaceBytes);
        }
        let scope = Rc::make_mut(&mut self.scope);
        scope.retain(|(known, _)| **known != *prefix);
        if !uri.is_empty() {
            scope.push((prefix.into(), uri.into()));
        }
        if scope.len() > ATTRIBUTES_MAX { Err(XmlError::Prefixes) } else { Ok(()) }
    }

    fn resolve(&self, prefix: Option<&str>) -> Result<Rc<str>, XmlError> {
        if prefix == Some("xml") {
            return Ok(XML.into());
        }
        let known = self.scope.iter().find(|(known, _)| **known == *prefix.unwrap_or_default());
        match known {
            Some((_, uri)) => Ok(Rc::clone(uri)),
            None if prefix.is_none() => Ok("".into()),
            None => Err(XmlError::UndeclaredPrefix),
        }
    }

    /// Checks that prefixes are declared and attributes are unique (Namespaces in XML, section
    /// 6.3).
    fn check(&self, prefixed: &[(String, String)]) -> Result<(), XmlError> {
        let mut seen = Vec::new();
        for (prefix, name) in prefixed {
            let both = (self.resolve(Some(prefix))?, name);
            if seen.contains(&both) {
                return Err(XmlError::AttributeTwice);
            }
            seen.push(both);
        }
        Ok(())
    }
}

/// Splits a qualified name into prefix and name.
fn split(qname: &str) -> Result<(Option<&str>, &str), XmlError> {
    let (prefix, name) = match qname.split_once(':') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, qname),
    };
    match is_name(name) && prefix.is_none_or(is_name) {
        true => Ok((prefix, name)),
        false => Err(XmlError::Name),
    }
}

/// Returns true for a name without a colon (Namespaces in XML, section 3).
fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || is_name_char_beyond_ascii(c);
    let other = |c: char| first(c) || c.is_ascii_digit() || matches!(c, '-' | '.' | '\u{B7}');
    let other = |c: char| other(c) || matches!(c, '\u{300}'..='\u{36F}' | '\u{203F}' | '\u{2040}');
    let mut chars = name.chars();
    chars.next().is_some_and(first) && chars.all(other)
}

/// XML 1.0 section 2.3, `NameStartChar`.
fn is_name_char_beyond_ascii(c: char) -> bool {
    matches!(c,
        '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}' | '\u{370}'..='\u{37D}'
        | '\u{37F}'..='\u{1FFF}' | '\u{200C}' | '\u{200D}' | '\u{2070}'..='\u{218F}'
        | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}'
        | '\u{FDF0}'..='\u{FFFD}' | '\u{10000}'..='\u{EFFFF}')
}
