//! Tokens of requests: in `Authorization`, another field, or a cookie.

use std::sync::Arc;

use lighty_config::Reject;
use lighty_http::fields::is_token;
use lighty_http::{Fields, Known};

use super::claim_fields::remove_in_every_spelling;
use crate::auth::credentials_error::CredentialsError;

/// The place of a request's token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum TokenSource {
    /// `Authorization: Bearer` (RFC 6750 section 2.1).
    #[default]
    Authorization,
    /// A field with nothing but the token.
    Field(Arc<str>),
    /// A cookie.
    Cookie(Arc<str>),
}

impl TokenSource {
    /// Reads `authorization`, `header:NAME` or `cookie:NAME`.
    pub(super) fn parse(text: &str) -> Result<Self, Reject> {
        let is_name = |name: &&str| is_token(name.as_bytes());
        match text.split_once(':') {
            None if text.eq_ignore_ascii_case("authorization") => Ok(Self::Authorization),
            Some(("header", name)) if is_name(&name) => {
                match name.eq_ignore_ascii_case("authorization") {
                    true => Ok(Self::Authorization),
                    false => Ok(Self::Field(name.into())),
                }
            }
            Some(("cookie", name)) if is_name(&name) => Ok(Self::Cookie(name.into())),
            _ => Err(Reject::new("must be \"authorization\", \"header:NAME\" or \"cookie:NAME\"")),
        }
    }

    /// The token; `None` if the request has none.
    pub(super) fn find<'f>(
        &self,
        fields: &'f Fields,
    ) -> Result<Option<&'f [u8]>, CredentialsError> {
        match self {
            Self::Authorization => {
                let line = single(fields.get_all(Known::Authorization))?;
                Ok(line.and_then(bearer))
            }
            Self::Field(name) => {
                let named =
                    fields.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()));
                let line = single(named.map(|(_, value)| value))?;
                Ok(line.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()))
            }
            Self::Cookie(name) => {
                let line = single(cookies(fields).filter(|(own, _)| *own == name.as_bytes()))?;
                Ok(line.map(|(_, value)| value).filter(|value| !value.is_empty()))
            }
        }
    }

    /// Removes the token, so that no handler gets it.
    pub(super) fn remove(&self, fields: &mut Fields) {
        match self {
            Self::Authorization => drop(fields.remove(Known::Authorization)),
            Self::Field(name) => remove_in_every_spelling(fields, name.as_bytes()),
            Self::Cookie(name) => remove_cookies(fields, |own| own == name.as_bytes()),
        }
    }
}

/// The only line; an error if there are several.
fn single<T>(mut lines: impl Iterator<Item = T>) -> Result<Option<T>, CredentialsError> {
    let first = lines.next();
    match lines.next() {
        None => Ok(first),
        Some(_) => Err(CredentialsError::SeveralTokens),
    }
}

fn bearer(line: &[u8]) -> Option<&[u8]> {
    let end = line.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = line.split_at(end);
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii())
}

/// Names and values of the cookies (RFC 6265 section 4.2.1).
pub(super) fn cookies(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> {
    let pairs = fields.get_all(Known::Cookie).flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        Some((pair[..at].trim_ascii(), pair[at + 1..].trim_ascii()))
    })
}

/// Removes cookies by their names.
pub(super) fn remove_cookies(fields: &mut Fields, is_removed: impl Fn(&[u8]) -> bool) {
    if !cookies(fields).any(|(name, _)| is_removed(name)) {
        return;
    }
    let pairs = fields.get_all(Known::Cookie).flat_map(|line| line.split(|byte| *byte == b';'));
    let name = |pair: &[u8]| {
        let end = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        pair[..end].trim_ascii().to_vec()
    };
    let kept: Vec<&[u8]> = pairs
        .map(<[u8]>::trim_ascii)
        .filter(|pair| !pair.is_empty() && !is_removed(&name(pair)))
        .collect();
    let kept = kept.join(&b"; "[..]);
    match kept.is_empty() {
        true => drop(fields.remove(Known::Cookie)),
        false => fields.set(Known::Cookie, kept),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        fields
    }

    #[test]
    fn tokens_have_one_place() {
        let find = |source: &str, lines: &[(&str, &str)]| {
            let found = TokenSource::parse(source)
                .expect(source)
                .find(&fields(lines))
                .map(|token| token.map(|token| String::from_utf8(token.to_vec()).expect("ASCII")));
            found.map(Option::unwrap_or_default)
        };
        let several = Err(CredentialsError::SeveralTokens);
        for (source, lines, token) in [
            ("authorization", &[("Authorization", "Bearer a.b.c")][..], Ok("a.b.c".to_owned())),
            ("header:Authorization", &[("authorization", "bEARER  a ")], Ok("a".to_owned())),
            ("authorization", &[("Authorization", "Basic a")], Ok(String::new())),
            ("authorization", &[("Authorization", "Bearer")], Ok(String::new())),
            (
                "authorization",
                &[("Authorization", "Basic a"), ("Authorization", "Bearer b")],
                several.clone(),
            ),
            (
                "header:X-Token",
                &[("x-token", "a"), ("Authorization", "Bearer b")],
                Ok("a".to_owned()),
            ),
            ("header:X-Token", &[("X-Token", "a"), ("x-token", "a")], several.clone()),
            ("cookie:t", &[("Cookie", "a=1; t=x.y; b=2")], Ok("x.y".to_owned())),
            ("cookie:t", &[("Cookie", "T=1; tt=2")], Ok(String::new())),
            ("cookie:t", &[("Cookie", "t=1"), ("Cookie", "t=2")], several.clone()),
        ] {
            assert_eq!(find(source, lines), token, "{source} {lines:?}");
        }
        for bad in ["", "query:t", "cookie:", "header:a b", "cookie:a=b"] {
            assert!(TokenSource::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn other_cookies_stay() {
        let mut all = fields(&[("Cookie", "a=1; t=x;b=2"), ("cookie", "t=y; c")]);
        TokenSource::Cookie("t".into()).remove(&mut all);
        assert_eq!(all.get_all(Known::Cookie).collect::<Vec<_>>(), [b"a=1; b=2; c"]);
        let mut only = fields(&[("Cookie", "t=x")]);
        TokenSource::Cookie("t".into()).remove(&mut only);
        assert!(!only.contains(Known::Cookie));
        let mut spelled = fields(&[("X-Token", "a"), ("x_token", "b"), ("X-Other", "c")]);
        TokenSource::Field("X-Token".into()).remove(&mut spelled);
        assert_eq!(spelled.len(), 1);
    }
}
