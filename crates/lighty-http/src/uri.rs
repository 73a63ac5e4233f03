//! Request targets: their four forms, normalisation, decoding, encoding.
//!
//! There are two steps. [`normalise`] converts the client's target to one canonical spelling, still
//! percent-encoded, which conditions, rewrites and logs use. [`decode_path`] converts its path to
//! the bytes of a file name. Regardless of the options of the first step, the result begins with
//! `/`, has no `.` or `..` segment, no empty segment, and no NUL.

use alloc::vec::Vec;

use memchr::{memchr, memchr_iter, memrchr};

/// `server.http-parseopts`: strictness of parsing requests and normalising their targets.
///
/// Field names are the keys of the directive with `_` for `-`. The `url_*` options after
/// `url_normalize` act only when it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseOpts {
    /// Refuse a bare LF as line end in the head. (Control bytes in it are refused always.)
    pub header_strict: bool,
    /// Refuse hosts that are neither names nor addresses.
    pub host_strict: bool,
    /// Lower-case hosts, drop the final dot and the default port, canonicalise IPv6 literals.
    pub host_normalize: bool,
    /// Accept GET and HEAD with content.
    pub method_get_body: bool,
    /// Refuse POST with neither a length nor chunks.
    pub post_needs_length: bool,
    /// Normalise percent-encoding: upper-case digits, and required escapes.
    pub url_normalize: bool,
    /// Decode unreserved characters (always done unless `url_normalize_required` does more).
    pub url_normalize_unreserved: bool,
    /// Decode every character that need not be encoded at its place.
    pub url_normalize_required: bool,
    /// Refuse control bytes, raw or encoded, in path and query.
    pub url_ctrls_reject: bool,
    /// Treat `\` in the path as `/`.
    pub url_path_backslash_trans: bool,
    /// Decode `%2F` in the path.
    pub url_path_2f_decode: bool,
    /// Refuse `%2F` in the path.
    pub url_path_2f_reject: bool,
    /// Resolve `.`, `..` and `//` in the path.
    pub url_path_dotseg_remove: bool,
    /// Refuse `.`, `..` and `//` in the path.
    pub url_path_dotseg_reject: bool,
    /// Write `%20` in the query as `+`.
    pub url_query_20_plus: bool,
    /// Refuse bytes that cannot occur in UTF-8 (C0, C1, F5 to FF).
    pub url_invalid_utf8_reject: bool,
}

impl Default for ParseOpts {
    /// The defaults of lighttpd 1.4.69, which also refuses bytes that are impossible in UTF-8.
    fn default() -> Self {
        Self {
            header_strict: true,
            host_strict: true,
            host_normalize: true,
            method_get_body: false,
            post_needs_length: false,
            url_normalize: true,
            url_normalize_unreserved: true,
            url_normalize_required: false,
            url_ctrls_reject: true,
            url_path_backslash_trans: false,
            url_path_2f_decode: true,
            url_path_2f_reject: false,
            url_path_dotseg_remove: true,
            url_path_dotseg_reject: false,
            url_query_20_plus: false,
            url_invalid_utf8_reject: true,
        }
    }
}

impl ParseOpts {
    /// True if a target may have a path segment of these bytes, percent-encoded by
    /// [`encode_component`]. A file with any other name has no URL.
    #[must_use]
    pub fn accepts_segment(&self, name: &[u8]) -> bool {
        !self.url_normalize || name.iter().all(|&byte| self.refusal(byte).is_none())
    }

    /// Reason for refusing a byte that is encoded, anywhere in a target.
    fn refusal(&self, byte: u8) -> Option<UriFault> {
        if self.url_ctrls_reject && byte.is_ascii_control() {
            return Some(UriFault::Control);
        }
        let never_utf8 = matches!(byte, 0xC0 | 0xC1 | 0xF5..);
        (self.url_invalid_utf8_reject && never_utf8).then_some(UriFault::InvalidUtf8)
    }
}

crate::fault_table! {
    /// Reason for refusing a target; always the client's fault, always 400.
    UriFault {
        Form = "target-form", "the request target has none of the four legal forms";
        Scheme = "target-scheme", "the scheme of the request target is not http or https";
        Authority = "target-authority",
            "the request target has no host or carries user information";
        Control = "target-control", "a control character in the request target";
        EncodedSlash = "target-encoded-slash", "an encoded slash in the path";
        DotSegment = "target-dot-segment", "a dot segment in the path";
        InvalidUtf8 = "target-utf8", "a byte in the request target that UTF-8 never has";
        Nul = "target-nul", "a NUL in the path";
    }
}

/// Form of a request target: RFC 9112 section 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// `/path?query`.
    Origin(&'a [u8]),
    /// `http://authority/path?query`; the path may be empty.
    Absolute {
        /// True if the scheme is `https`.
        secure: bool,
        /// Host and port as written.
        authority: &'a [u8],
        /// Path and query as written, perhaps empty.
        rest: &'a [u8],
    },
    /// `host:port`, with CONNECT only.
    Authority(&'a [u8]),
    /// `*`, with OPTIONS only.
    Asterisk,
}

/// Distinguishes the four forms. The caller checks that `*` fits the method.
///
/// # Errors
/// [`UriFault::Form`], [`UriFault::Scheme`], [`UriFault::Authority`].
pub fn split_target(target: &[u8], is_connect: bool) -> Result<Form<'_>, UriFault> {
    match target {
        [] => Err(UriFault::Form),
        _ if is_connect => Ok(Form::Authority(target)),
        [b'/', ..] => Ok(Form::Origin(target)),
        b"*" => Ok(Form::Asterisk),
        _ => split_absolute(target),
    }
}

fn split_absolute(target: &[u8]) -> Result<Form<'_>, UriFault> {
    let colon = memchr(b':', target).ok_or(UriFault::Form)?;
    let (scheme, rest) = target.split_at(colon);
    let after = rest.strip_prefix(b"://").ok_or(UriFault::Form)?;
    let secure = scheme.eq_ignore_ascii_case(b"https");
    if !secure && !scheme.eq_ignore_ascii_case(b"http") {
        return Err(UriFault::Scheme);
    }
    let end = after.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let (authority, rest) = after.split_at(end.unwrap_or(after.len()));
    if authority.is_empty() || authority.contains(&b'@') {
        return Err(UriFault::Authority);
    }
    Ok(Form::Absolute { secure, authority, rest })
}

/// Positions of path and query in the buffer filled by [`normalise`].
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct RequestTarget {
    path_len: u32,
    has_query: bool,
    plain: bool,
}

/// Compares the positions only, not `plain`.
impl PartialEq for RequestTarget {
    fn eq(&self, other: &Self) -> bool {
        (self.path_len, self.has_query) == (other.path_len, other.has_query)
    }
}

impl RequestTarget {
    /// Finds path and query in a normalised target.
    #[must_use]
    pub fn of(target: &[u8]) -> Self {
        // Targets are short, so a loop is faster than starting a vector search.
        let mark = target.iter().position(|&byte| byte == b'?');
        Self::new(mark.unwrap_or(target.len()), mark.is_some())
    }

    /// The path, percent-encoded, with its leading slash.
    #[must_use]
    pub fn path(self, target: &[u8]) -> &[u8] {
        &target[..self.path_len as usize]
    }

    /// The part after the `?`; `Some` and empty after a `?` at the end.
    #[must_use]
    pub fn query(self, target: &[u8]) -> Option<&[u8]> {
        self.has_query.then(|| &target[self.path_len as usize + 1..])
    }

    /// True if the path is known to need no decoding: no escapes, no dot segments.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.plain
    }

    fn new(path_len: usize, has_query: bool) -> Self {
        let path_len = u32::try_from(path_len).expect("a target of less than 4 GiB");
        Self { path_len, has_query, plain: false }
    }
}

/// Writes the canonical spelling of path and query into `out` (emptied first).
///
/// Removes a fragment, and adds a missing leading slash. Idempotent.
///
/// # Errors
/// The option that refuses the target.
pub fn normalise(
    raw: &[u8],
    opts: &ParseOpts,
    out: &mut Vec<u8>,
) -> Result<RequestTarget, UriFault> {
    out.clear();
    if let Some(target) = plain(raw) {
        out.extend_from_slice(raw);
        return Ok(target);
    }
    if raw.first() != Some(&b'/') {
        out.push(b'/');
    }
    if !opts.url_normalize {
        out.extend_from_slice(&raw[..memchr(b'#', raw).unwrap_or(raw.len())]);
        return Ok(RequestTarget::of(out));
    }
    let query_at = recode(raw, opts, out)?;
    let target = RequestTarget::new(query_at.unwrap_or(out.len()), query_at.is_some());
    resolve_dot_segments(target, opts, out)
}

/// Path and query of a target that needs no changes under any options; `None` for any other.
fn plain(raw: &[u8]) -> Option<RequestTarget> {
    if raw.first() != Some(&b'/') {
        return None;
    }
    let mut at = 1;
    let path_len = loop {
        let Some(&byte) = raw.get(at) else { break at };
        match LOOK[byte as usize] {
            NOTHING => {}
            QUERY => break at,
            SEGMENT if raw[at - 1] != b'/' => {}
            _ => return None,
        }
        at += 1;
    };
    let query = raw.get(path_len + 1..).unwrap_or_default();
    if query.iter().any(|&byte| must_encode(byte)) {
        return None;
    }
    Some(RequestTarget { plain: true, ..RequestTarget::new(path_len, path_len < raw.len()) })
}

/// Meaning of each byte for [`plain`].
static LOOK: [u8; 256] = {
    let mut table = [NOTHING; 256];
    let mut byte = 0;
    while byte < 256 {
        if MUST_ENCODE[byte] {
            table[byte] = ENCODE;
        }
        byte += 1;
    }
    table[b'/' as usize] = SEGMENT;
    table[b'.' as usize] = SEGMENT;
    table[b'?' as usize] = QUERY;
    table
};

const NOTHING: u8 = 0;
/// After a slash, the path must be simplified.
const SEGMENT: u8 = 1;
const QUERY: u8 = 2;
const ENCODE: u8 = 3;

/// Recodes percent-encoding in one pass: appends to `out` and returns the position of the `?` in
/// it.
fn recode(raw: &[u8], opts: &ParseOpts, out: &mut Vec<u8>) -> Result<Option<usize>, UriFault> {
    let mut query_at = None;
    let mut rest = raw;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match *first {
            b'#' => break,
            b'?' => {
                query_at = query_at.or(Some(out.len()));
                out.push(b'?');
            }
            b'\\' if opts.url_path_backslash_trans && query_at.is_none() => out.push(b'/'),
            b'%' => {
                let byte = match escape_at(rest) {
                    Some(byte) => {
                        rest = &rest[2..];
                        byte
                    }
                    None => b'%',
                };
                recode_escape(byte, opts, query_at.is_some(), out)?;
            }
            byte if must_encode(byte) => recode_escape(byte, opts, query_at.is_some(), out)?,
            byte => out.push(byte),
        }
    }
    Ok(query_at)
}

/// Writes a byte that was encoded, or must be encoded.
fn recode_escape(
    byte: u8,
    opts: &ParseOpts,
    in_query: bool,
    out: &mut Vec<u8>,
) -> Result<(), UriFault> {
    if let Some(fault) = opts.refusal(byte) {
        return Err(fault);
    }
    match byte {
        b'/' if !in_query && opts.url_path_2f_reject => return Err(UriFault::EncodedSlash),
        b'/' if !in_query && opts.url_path_2f_decode => out.push(b'/'),
        b' ' if in_query && opts.url_query_20_plus => out.push(b'+'),
        _ if stays_encoded(byte, opts, in_query) => push_encoded(byte, out),
        _ => out.push(byte),
    }
    Ok(())
}

fn stays_encoded(byte: u8, opts: &ParseOpts, in_query: bool) -> bool {
    if !opts.url_normalize_required {
        return !is_unreserved(byte);
    }
    let delimiter = match in_query {
        true => matches!(byte, b'&' | b'=' | b';' | b'+'),
        false => matches!(byte, b'/' | b'?'),
    };
    // A decoded `\` could be read as a slash later; must_encode keeps it encoded.
    must_encode(byte) || delimiter
}

fn resolve_dot_segments(
    target: RequestTarget,
    opts: &ParseOpts,
    out: &mut Vec<u8>,
) -> Result<RequestTarget, UriFault> {
    if !opts.url_path_dotseg_remove && !opts.url_path_dotseg_reject {
        return Ok(target);
    }
    let old_len = target.path_len as usize;
    let new_len = simplify(&mut out[..old_len]);
    if new_len == old_len {
        return Ok(target);
    }
    if opts.url_path_dotseg_reject {
        return Err(UriFault::DotSegment);
    }
    out.drain(new_len..old_len);
    Ok(RequestTarget::new(new_len, target.has_query))
}

/// Decodes a percent-encoded path into the bytes of a file name below the document root.
///
/// `out` is emptied first. Malformed escapes stay unchanged.
///
/// # Errors
/// [`UriFault::Nul`]: the operating system does not accept such a name.
pub fn decode_path(path: &[u8], out: &mut Vec<u8>) -> Result<(), UriFault> {
    out.clear();
    if plain(path).is_some() {
        out.extend_from_slice(path);
        return Ok(());
    }
    if path.first() != Some(&b'/') {
        out.push(b'/');
    }
    decode_into(path, out);
    if memchr(0, out).is_some() {
        return Err(UriFault::Nul);
    }
    let len = simplify(out);
    out.truncate(len);
    Ok(())
}

/// Appends `text` with its escapes decoded; malformed escapes stay unchanged.
pub fn decode_into(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        match escape_at(rest) {
            Some(byte) => {
                out.push(byte);
                rest = &rest[2..];
            }
            None => out.push(b'%'),
        }
    }
    out.extend_from_slice(rest);
}

/// `name=value` pairs of a query, still encoded; a pair without `=` has no value.
pub fn query_pairs(query: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        match memchr(b'=', pair) {
            Some(at) => (&pair[..at], Some(&pair[at + 1..])),
            None => (pair, None),
        }
    })
}

/// Resolves `.`, `..` and `//` within a path that begins with `/`, in place. Returns the new
/// length, which is shorter exactly if anything was resolved.
fn simplify(path: &mut [u8]) -> usize {
    debug_assert_eq!(path.first(), Some(&b'/'));
    if !has_dot_segment(path) {
        return path.len();
    }
    let (mut read, mut written) = (0, 0);
    while read < path.len() {
        let start = read + 1;
        let end = memchr(b'/', &path[start..]).map_or(path.len(), |len| start + len);
        let is_last = end == path.len();
        match &path[start..end] {
            b"" | b"." => {}
            b".." => written = memrchr(b'/', &path[..written]).unwrap_or(0),
            _ => {
                path.copy_within(read..end, written);
                written += end - read;
                read = end;
                continue;
            }
        }
        if is_last {
            path[written] = b'/';
            written += 1;
        }
        read = end;
    }
    written
}

fn has_dot_segment(path: &[u8]) -> bool {
    memchr_iter(b'/', path).any(|at| matches!(path.get(at + 1), Some(b'/' | b'.')))
}

/// Appends a path for a `Location` or a link, with everything percent-encoded except unreserved
/// characters and characters that are harmless in a path, in HTML and in a relative reference.
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    encode(path, out, |byte| {
        is_unreserved(byte)
            || matches!(byte, b'/' | b'!' | b'$' | b'(' | b')' | b'*' | b'+')
            || matches!(byte, b',' | b'=' | b'@')
    });
}

/// Appends one path segment or query part: everything but unreserved characters is encoded.
pub fn encode_component(text: &[u8], out: &mut Vec<u8>) {
    encode(text, out, is_unreserved);
}

fn encode(text: &[u8], out: &mut Vec<u8>, keep: impl Fn(u8) -> bool) {
    for &byte in text {
        if keep(byte) { out.push(byte) } else { push_encoded(byte, out) }
    }
}

fn push_encoded(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// Decodes two hexadecimal digits (after a `%`).
fn escape_at(rest: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*rest.get(at)?).to_digit(16).map(|value| value as u8);
    Some(digit(0)? << 4 | digit(1)?)
}

/// Unreserved characters: RFC 3986 section 2.3.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// True for bytes that must not occur raw in a target; includes `%` and `#`, which need special
/// handling.
const fn must_encode(byte: u8) -> bool {
    MUST_ENCODE[byte as usize]
}

static MUST_ENCODE: [bool; 256] = {
    let mut table = [true; 256];
    let mut byte = 0x21;
    while byte < 0x7F {
        table[byte as usize] = matches!(byte, b'"' | b'#' | b'%' | b'<' | b'>' | b'[' | b'\\')
            || matches!(byte, b']' | b'^' | b'`' | b'{' | b'|' | b'}');
        byte += 1;
    }
    table
};

#[cfg(test)]
#[path = "uri_tests.rs"]
mod tests;
