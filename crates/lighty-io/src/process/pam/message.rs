//! Messages between the server and the helper.

use std::ffi::CString;

use super::{PamError, PamVerdict};

/// Maximum bytes of a name or password; PAM's limit for answers (PAM_MAX_RESP_SIZE).
pub const FIELD_BYTES_MAX: usize = 512;

/// Maximum bytes of a request: four fields, each with its length.
pub(super) const REQUEST_BYTES_MAX: usize = 4 * (FIELD_BYTES_MAX + 2);

/// Maximum bytes of a message of PAM.
const TEXT_BYTES_MAX: usize = 200;

/// Maximum bytes of a reply.
pub(super) const REPLY_BYTES_MAX: usize = 1 + 4 + TEXT_BYTES_MAX;

/// Results of PAM (`_pam_types.h` of Linux-PAM).
pub(super) const SUCCESS: i32 = 0;
const PERM_DENIED: i32 = 6;
const AUTH_ERR: i32 = 7;
const CRED_INSUFFICIENT: i32 = 8;
const AUTHINFO_UNAVAIL: i32 = 9;
const USER_UNKNOWN: i32 = 10;
const MAXTRIES: i32 = 11;
const NEW_AUTHTOK_REQD: i32 = 12;
const ACCT_EXPIRED: i32 = 13;
const CRED_EXPIRED: i32 = 16;
const AUTHTOK_EXPIRED: i32 = 27;

/// Results that refuse a user; others tell of a fault.
const DENIALS: [i32; 9] = [
    PERM_DENIED,
    AUTH_ERR,
    CRED_INSUFFICIENT,
    USER_UNKNOWN,
    MAXTRIES,
    NEW_AUTHTOK_REQD,
    ACCT_EXPIRED,
    CRED_EXPIRED,
    AUTHTOK_EXPIRED,
];

/// A password to check.
#[derive(Clone, Copy)]
pub struct PamRequest<'a> {
    /// Name of the service: a file in `/etc/pam.d`.
    pub service: &'a [u8],
    /// Name of the user.
    pub user: &'a [u8],
    /// The password.
    pub password: &'a [u8],
    /// Address of the client.
    pub client: &'a [u8],
}

/// The fields of a request, in the helper.
pub(super) struct PamFields {
    pub(super) service: CString,
    pub(super) user: CString,
    pub(super) password: CString,
    pub(super) client: CString,
}

impl PamRequest<'_> {
    /// `None` if a field is too long, or holds a zero byte.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut message = Vec::new();
        for field in [self.service, self.user, self.password, self.client] {
            if field.len() > FIELD_BYTES_MAX || field.contains(&0) {
                return None;
            }
            message.extend((field.len() as u16).to_ne_bytes());
            message.extend(field);
        }
        Some(message)
    }
}

impl PamFields {
    /// `None` if the message is malformed.
    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let mut rest = message;
        let mut next = || {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let (field, after) = after.split_at_checked(u16::from_ne_bytes(*length).into())?;
            rest = after;
            CString::new(field).ok()
        };
        let fields = Self { service: next()?, user: next()?, password: next()?, client: next()? };
        rest.is_empty().then_some(fields)
    }
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PamReply {
    /// PAM's result, and its text.
    Result(i32, String),
    /// The library cannot be loaded.
    NoLibrary(String),
}

impl PamReply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, code, text) = match self {
            Self::Result(code, text) => (b'r', *code, text),
            Self::NoLibrary(text) => (b'l', 0, text),
        };
        let text = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
        [&[kind][..], &code.to_ne_bytes(), text].concat()
    }

    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let (kind, rest) = message.split_first()?;
        let (code, text) = rest.split_first_chunk::<4>()?;
        let text = String::from_utf8_lossy(text).into_owned();
        match kind {
            b'r' => Some(Self::Result(i32::from_ne_bytes(*code), text)),
            b'l' => Some(Self::NoLibrary(text)),
            _ => None,
        }
    }

    pub(super) fn verdict(self) -> Result<PamVerdict, PamError> {
        match self {
            Self::Result(SUCCESS, _) => Ok(PamVerdict::Accepted),
            Self::Result(code, text) if DENIALS.contains(&code) => Ok(PamVerdict::Denied(text)),
            Self::Result(AUTHINFO_UNAVAIL, text) => Err(PamError::Unavailable(text)),
            Self::Result(code, text) => Err(PamError::Broken(format!("{text} ({code})"))),
            Self::NoLibrary(text) => Err(PamError::Broken(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive_as_they_were_sent() {
        let request =
            PamRequest { service: b"http", user: b"k\xE9m", password: b"", client: b"::1" };
        let message = request.encode().expect("a message");
        let fields = PamFields::decode(&message).expect("fields");
        assert_eq!(fields.service.as_bytes(), b"http");
        assert_eq!(fields.user.as_bytes(), b"k\xE9m");
        assert_eq!((fields.password.as_bytes(), fields.client.as_bytes()), (&b""[..], &b"::1"[..]));
        for end in 0..message.len() {
            assert!(PamFields::decode(&message[..end]).is_none(), "{end}");
        }
        assert!(PamFields::decode(&[&message[..], b"x"].concat()).is_none());
    }

    #[test]
    fn fields_have_a_limit() {
        let long = vec![b'a'; FIELD_BYTES_MAX];
        let of = |field| PamRequest { service: field, user: field, password: field, client: field };
        assert_eq!(of(&long).encode().expect("a message").len(), REQUEST_BYTES_MAX);
        let longer = vec![b'a'; FIELD_BYTES_MAX + 1];
        assert!(of(&longer).encode().is_none() && of(b"a\0b").encode().is_none());
    }

    #[test]
    fn results_refuse_users_or_tell_of_faults() {
        let verdict = |code| PamReply::Result(code, "text".to_owned()).verdict();
        assert!(matches!(verdict(SUCCESS), Ok(PamVerdict::Accepted)));
        for code in DENIALS {
            assert!(matches!(verdict(code), Ok(PamVerdict::Denied(_))), "{code}");
        }
        assert!(verdict(AUTHINFO_UNAVAIL).is_err_and(|error| error.is_passing()));
        for code in [1, 2, 3, 4, 5, 14, 19, 26, 28, -1, 99] {
            assert!(verdict(code).is_err_and(|error| !error.is_passing()), "{code}");
        }
    }

    #[test]
    fn replies_arrive_as_they_were_sent() {
        for reply in [PamReply::Result(-7, "no".to_owned()), PamReply::NoLibrary(String::new())] {
            assert_eq!(PamReply::decode(&reply.encode()), Some(reply));
        }
        let long = PamReply::Result(0, "x".repeat(TEXT_BYTES_MAX + 1)).encode();
        assert_eq!(long.len(), REPLY_BYTES_MAX);
        assert!(PamReply::decode(b"").is_none() && PamReply::decode(b"x1234").is_none());
    }
}
