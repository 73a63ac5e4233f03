//! Digest credentials: RFC 7616.

use std::borrow::Cow;
use std::fmt::Write;

use lighty_http::quoted;
use md5::{Digest, Md5};
use sha2::Sha256;

use super::credentials_error::CredentialsError;

/// The hash algorithm of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    pub(super) fn of_name(name: &str) -> Option<Self> {
        match () {
            () if name.eq_ignore_ascii_case("MD5") => Some(Self::Md5),
            () if name.eq_ignore_ascii_case("SHA-256") => Some(Self::Sha256),
            () => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
        }
    }

    pub(super) fn is_sha256(self) -> bool {
        self == Self::Sha256
    }
}

/// The hash of the parts joined by colons, in hexadecimal.
pub(super) fn hex_digest(algorithm: Algorithm, parts: &[&[u8]]) -> String {
    match algorithm {
        Algorithm::Md5 => hex(&join::<Md5>(parts)),
        Algorithm::Sha256 => hex(&join::<Sha256>(parts)),
    }
}

fn join<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
    let mut sum = D::new();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            sum.update(b":");
        }
        sum.update(part);
    }
    sum.finalize().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The parameters of a response, quotes and escapes removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DigestCredentials {
    pub(super) username: Vec<u8>,
    /// True if `username` is a hash.
    pub(super) userhash: bool,
    pub(super) realm: Vec<u8>,
    pub(super) nonce: Vec<u8>,
    pub(super) uri: Vec<u8>,
    pub(super) response: String,
    pub(super) cnonce: Vec<u8>,
    /// The nonce count as sent, which is part of the hash input.
    pub(super) nc: Vec<u8>,
    pub(super) count: u64,
    pub(super) algorithm: Algorithm,
    /// `-sess`: HA1 is per session.
    pub(super) session: bool,
    pub(super) opaque: Option<Vec<u8>>,
}

/// Treatment of invalid credentials, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The parameters do not match the challenge (clients of RFC 2069, for example). The client
    /// gets a new challenge.
    Unfit(CredentialsError),
    /// A parameter is missing, duplicate or malformed: 400.
    Malformed(CredentialsError),
}

impl From<CredentialsError> for Flaw {
    fn from(error: CredentialsError) -> Self {
        Self::Malformed(error)
    }
}

impl DigestCredentials {
    /// Parses the parameters after `Digest`.
    ///
    /// # Errors
    /// The flaw in the parameters.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Flaw> {
        let given = Parameters::parse(text)?;
        if given.0.is_empty() {
            return Err(Flaw::Unfit(CredentialsError::NoParameters));
        }
        let (algorithm, session) = given.algorithm()?;
        if given.get(b"qop").is_none() && given.get(b"response").is_some() {
            return Err(Flaw::Unfit(CredentialsError::NoQop));
        }
        let nc = given.need(b"nc")?.into_owned();
        let count = Some(&nc).filter(|nc| nc.len() == 8).and_then(|nc| hexadecimal(nc));
        let (username, userhash) = given.username()?;
        if given.need(b"qop")?.as_ref() != b"auth" {
            return Err(CredentialsError::OtherQop.into());
        }
        let response = given.need(b"response")?;
        Ok(Self {
            username,
            userhash,
            realm: given.need(b"realm")?.into_owned(),
            nonce: given.need(b"nonce")?.into_owned(),
            uri: given.need(b"uri")?.into_owned(),
            response: String::from_utf8_lossy(&response).to_ascii_lowercase(),
            cnonce: given.need(b"cnonce")?.into_owned(),
            count: count.ok_or(CredentialsError::BrokenCount)?,
            nc,
            algorithm,
            session,
            opaque: given.find(b"opaque").map(Cow::into_owned),
        })
    }

    /// The expected response for this HA1: RFC 7616 section 3.4.1.
    pub(super) fn expected(&self, ha1: &str, method: &[u8]) -> String {
        let hash = |parts: &[&[u8]]| hex_digest(self.algorithm, parts);
        let session = self.session.then(|| hash(&[ha1.as_bytes(), &self.nonce, &self.cnonce]));
        let ha1 = session.as_deref().unwrap_or(ha1);
        let ha2 = hash(&[method, &self.uri]);
        let (nonce, nc, cnonce) = (&*self.nonce, &*self.nc, &*self.cnonce);
        hash(&[ha1.as_bytes(), nonce, nc, cnonce, b"auth", ha2.as_bytes()])
    }
}

/// Names and values of the parameters in the order of the field.
struct Parameters<'a>(Vec<(&'a [u8], ParameterValue<'a>)>);

#[derive(Clone, Copy)]
struct ParameterValue<'a> {
    inner: &'a [u8],
    quoted: bool,
}

impl ParameterValue<'_> {
    fn text(&self) -> Cow<'_, [u8]> {
        if self.quoted { quoted::unescape(self.inner) } else { Cow::Borrowed(self.inner) }
    }
}

impl<'a> Parameters<'a> {
    /// `#auth-param`: RFC 9110 section 11.2.
    fn parse(text: &'a [u8]) -> Result<Self, CredentialsError> {
        let mut all: Vec<(&[u8], ParameterValue<'_>)> = Vec::with_capacity(12);
        let mut rest = text;
        loop {
            let skip = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b',')).count();
            rest = &rest[skip..];
            if rest.is_empty() {
                return Ok(Self(all));
            }
            let equals = rest
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or(CredentialsError::BrokenParameter)?;
            let name = rest[..equals].trim_ascii_end();
            if name.is_empty() || !name.iter().all(|byte| is_name(*byte)) {
                return Err(CredentialsError::BrokenParameter);
            }
            let (value, behind) = split_value(rest[equals + 1..].trim_ascii_start())?;
            if all.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                return Err(CredentialsError::DuplicateParameter);
            }
            all.push((name, value));
            rest = behind.trim_ascii_start();
            if !matches!(rest.first(), None | Some(b',')) {
                return Err(CredentialsError::BrokenParameter);
            }
        }
    }

    fn get(&self, name: &[u8]) -> Option<&ParameterValue<'a>> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn find(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.get(name).map(ParameterValue::text)
    }

    fn need(&self, name: &[u8]) -> Result<Cow<'_, [u8]>, CredentialsError> {
        self.find(name).ok_or(CredentialsError::MissingParameter)
    }

    fn algorithm(&self) -> Result<(Algorithm, bool), Flaw> {
        let Some(name) = self.find(b"algorithm") else { return Ok((Algorithm::Md5, false)) };
        let name = String::from_utf8_lossy(&name);
        let end = name.len().saturating_sub("-sess".len());
        let tail = name.get(end..).filter(|tail| tail.eq_ignore_ascii_case("-sess"));
        let plain = tail.and(name.get(..end)).unwrap_or(&name);
        let algorithm =
            Algorithm::of_name(plain).ok_or(Flaw::Unfit(CredentialsError::AlgorithmNotOffered))?;
        Ok((algorithm, tail.is_some()))
    }

    /// RFC 7616 section 3.4: `username`, or `username*` in the form of RFC 8187.
    fn username(&self) -> Result<(Vec<u8>, bool), CredentialsError> {
        let hashed = self.find(b"userhash").is_some_and(|v| v.eq_ignore_ascii_case(b"true"));
        match (self.find(b"username"), self.find(b"username*")) {
            (Some(name), None) => Ok((name.into_owned(), hashed)),
            (None, Some(_)) if hashed => Err(CredentialsError::HashedExtendedName),
            (None, Some(name)) => {
                let name = decode_extended(&name).ok_or(CredentialsError::BrokenExtendedName)?;
                Ok((name, false))
            }
            _ => Err(CredentialsError::NotOneName),
        }
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'*' | b'-' | b'_')
}

fn split_value(text: &[u8]) -> Result<(ParameterValue<'_>, &[u8]), CredentialsError> {
    if let Some(string) = text.strip_prefix(b"\"") {
        let (inner, behind) = quoted::split(string).ok_or(CredentialsError::OpenQuote)?;
        return Ok((ParameterValue { inner, quoted: true }, behind));
    }
    let end = text.iter().position(|byte| matches!(byte, b',' | b' ' | b'\t' | b'"'));
    let (inner, behind) = text.split_at(end.unwrap_or(text.len()));
    if inner.is_empty() {
        return Err(CredentialsError::BrokenParameter);
    }
    Ok((ParameterValue { inner, quoted: false }, behind))
}

fn decode_extended(text: &[u8]) -> Option<Vec<u8>> {
    let (charset, rest) = text.split_at_checked("UTF-8'".len())?;
    charset.eq_ignore_ascii_case(b"UTF-8'").then_some(())?;
    let language = rest.iter().position(|byte| *byte == b'\'')?;
    let mut name = Vec::new();
    let mut rest = &rest[language + 1..];
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'%' {
            name.push(*byte);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        name.push(hexadecimal(digits)?.try_into().ok()?);
        rest = behind;
    }
    std::str::from_utf8(&name).is_ok().then_some(name)
}

/// Digits only: no sign.
fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let all = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    all.then(|| u64::from_str_radix(text, 16).ok())?
}

/// Makes a quoted string (RFC 9110 section 5.6.4).
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
    out
}

/// True if a response with this `uri` is for this target (RFC 7616 section 3.4.6). A client that
/// sends the absolute form may have signed the path alone.
pub(super) fn is_made_for(uri: &[u8], target: &[u8]) -> bool {
    uri == target || path_of_absolute(target) == Some(uri)
}

/// Path and query of `http://host/path?query`.
fn path_of_absolute(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return None;
    }
    let authority = target.windows(3).position(|part| part == b"://")? + 3;
    let path = target[authority..].iter().position(|byte| *byte == b'/')?;
    Some(&target[authority + path..])
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
