//! Faults of the credentials in `Authorization`.

/// Fault of a request's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CredentialsError {
    #[error("more than one Authorization")]
    SeveralFields,
    #[cfg_attr(not(feature = "identity"), expect(dead_code, reason = "tokens are absent"))]
    #[error("more than one token")]
    SeveralTokens,
    #[error("no Base64")]
    NotBase64,
    #[error("no colon behind the user's name")]
    NoColon,
    #[error("a control character")]
    ControlCharacter,
    #[error("no parameters")]
    NoParameters,
    #[error("no qop")]
    NoQop,
    #[error("qop is not auth")]
    OtherQop,
    #[error("an algorithm that was not offered")]
    AlgorithmNotOffered,
    #[error("the realm is not that of the request")]
    OtherRealm,
    #[error("nc is not eight hexadecimal digits")]
    BrokenCount,
    #[error("a parameter is not well-formed")]
    BrokenParameter,
    #[error("a parameter occurs twice")]
    DuplicateParameter,
    #[error("a parameter is missing")]
    MissingParameter,
    #[error("a quote is not closed")]
    OpenQuote,
    #[error("username* and userhash exclude each other")]
    HashedExtendedName,
    #[error("username* is not UTF-8''...")]
    BrokenExtendedName,
    #[error("not one username")]
    NotOneName,
}
