//! Credentials of a request, as they were sent.

use lighty_core::Exchange;
use lighty_http::{Known, base64};

use super::credentials_error::CredentialsError;
use super::digest::{DigestCredentials, Flaw};
use super::require::Rule;

/// The client's credentials.
pub(super) enum Claim {
    None,
    Basic {
        name: Vec<u8>,
        password: Vec<u8>,
    },
    Digest(Box<DigestCredentials>),
    /// Credentials that can never be valid: challenged again.
    Unfit(CredentialsError),
    Malformed(CredentialsError),
}

/// The request's credentials, of the kinds that the rule accepts.
pub(super) fn claim(ex: &Exchange, rule: &Rule) -> Claim {
    let mut lines = ex.request.fields.get_all(Known::Authorization);
    let Some(line) = lines.next() else { return Claim::None };
    if lines.next().is_some() {
        return Claim::Malformed(CredentialsError::SeveralFields);
    }
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (scheme, rest) = line.split_at(end);
    if rule.basic && scheme.eq_ignore_ascii_case(b"basic") {
        return claim_basic(rest.trim_ascii());
    }
    if !rule.algorithms.is_empty() && scheme.eq_ignore_ascii_case(b"digest") {
        return match DigestCredentials::parse(rest.trim_ascii()) {
            Ok(credentials) if !rule.algorithms.contains(&credentials.algorithm) => {
                Claim::Unfit(CredentialsError::AlgorithmNotOffered)
            }
            Ok(credentials) => Claim::Digest(Box::new(credentials)),
            Err(Flaw::Unfit(error)) => Claim::Unfit(error),
            Err(Flaw::Malformed(error)) => Claim::Malformed(error),
        };
    }
    Claim::None
}

/// RFC 7617 section 2.
fn claim_basic(text: &[u8]) -> Claim {
    if text.is_empty() {
        return Claim::None;
    }
    let Some(pair) = base64::decode(text) else {
        return Claim::Malformed(CredentialsError::NotBase64);
    };
    let Some(colon) = pair.iter().position(|byte| *byte == b':') else {
        return Claim::Malformed(CredentialsError::NoColon);
    };
    let (name, password) = (pair[..colon].to_vec(), pair[colon + 1..].to_vec());
    if pair.iter().any(u8::is_ascii_control) {
        return Claim::Unfit(CredentialsError::ControlCharacter);
    }
    Claim::Basic { name, password }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials_have_a_form() {
        let claim = |text: &str| claim_basic(text.as_bytes());
        let Claim::Basic { name, password } = claim("QWxhZGRpbjpvcGVuOnNlc2FtZQ==") else {
            panic!("it is well-formed");
        };
        assert_eq!((&name[..], &password[..]), (&b"Aladdin"[..], &b"open:sesame"[..]));
        assert!(matches!(claim("YTpiCg=="), Claim::Unfit(_)), "a line break");
        assert!(matches!(claim(""), Claim::None));
        // No colon, no Base64.
        for bad in ["QWxhZGRpbg==", "QWxh Z", "!"] {
            assert!(matches!(claim(bad), Claim::Malformed(_)), "{bad}");
        }
    }
}
