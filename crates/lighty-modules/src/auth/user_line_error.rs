//! Faults of lines in files of users and groups.

/// Fault of a line in a file of users or groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UserLineError {
    #[error("not UTF-8")]
    NotUtf8,
    #[error("no colon behind the user's name")]
    NoColonAfterUser,
    #[error("no colon behind the group's name")]
    NoColonAfterGroup,
    #[error("no colon behind the realm")]
    NoColonAfterRealm,
    #[error("no user's name")]
    NoName,
    #[error("a sum that is neither of MD5 nor of SHA-256")]
    SumLength,
    #[error("a sum that is not hexadecimal")]
    SumNotHex,
    #[error("a hash that is not well-formed")]
    BrokenHash,
    #[error("a hash that takes more than 64 MiB of memory, or as much time")]
    CostlyHash,
    #[error(
        "an Argon2 hash that takes more than 256 MiB of memory, or more than four passes over it"
    )]
    CostlyArgon2,
    #[error("an extended DES hash of more than 100000 rounds")]
    CostlyDesHash,
    #[error("a kind of hash that is not supported (use `htpasswd -B`)")]
    UnknownHash,
    #[error("no hash of a supported kind: plain text is refused (use `htpasswd -B`)")]
    NoHash,
}
