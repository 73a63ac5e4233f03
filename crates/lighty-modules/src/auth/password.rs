//! Stored passwords: plain text, or hashes of `htpasswd` and `crypt(3)`.

use std::io;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use lighty_http::base64;
use md5::Digest;
use sha1::Sha1;

use super::user_line_error::UserLineError;
use super::{argon2_hash, des_crypt, md5_crypt, sha_crypt, yescrypt_hash};

/// Maximum password length in bytes: hashing time grows with the length, and a client may send
/// thousands. A longer password is wrong.
pub(super) const PASSWORD_BYTES_MAX: usize = 512;

/// The stored form of a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Password {
    Plain(Box<[u8]>),
    /// `$apr1$` and `$1$`.
    Md5Crypt(Box<str>),
    /// `$5$` and `$6$`.
    ShaCrypt(Box<str>),
    /// `$2a$`, `$2b$`, `$2y$`.
    Bcrypt(Box<str>),
    /// `$y$` and `$7$`.
    Yescrypt(Box<str>),
    /// The traditional crypt(3), without a prefix, and its extended form, `_`.
    DesCrypt(Box<str>),
    /// `$argon2id$` and `$argon2i$`.
    Argon2(Box<str>),
    /// `{SHA}`, and `{SSHA}` with a salt behind the password.
    Sha1 {
        sum: [u8; SHA1_BYTES],
        salt: Box<[u8]>,
    },
}

const SHA1_BYTES: usize = 20;

/// Maximum salt of `{SSHA}`, in bytes. OpenLDAP makes 4 to 16.
const SSHA_SALT_MAX: usize = 64;

impl Password {
    /// Parses the part after the name in an htpasswd file.
    ///
    /// # Errors
    /// The form is unsupported or malformed, or the hash takes too long to check.
    pub(super) fn parse(text: &str) -> Result<Self, UserLineError> {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        if begins(&["$apr1$", "$1$"]) {
            return keep(md5_crypt::is_well_formed(text), Self::Md5Crypt(text.into()));
        }
        if begins(&["$5$", "$6$"]) {
            return keep(sha_crypt::is_well_formed(text), Self::ShaCrypt(text.into()));
        }
        if begins(&["$2a$", "$2b$", "$2y$"]) {
            return keep(is_bcrypt(text), Self::Bcrypt(text.into()));
        }
        if begins(&["$y$", "$7$"]) {
            if yescrypt_hash::is_well_formed(text) && !yescrypt_hash::is_affordable(text) {
                return Err(UserLineError::CostlyHash);
            }
            return keep(yescrypt_hash::is_well_formed(text), Self::Yescrypt(text.into()));
        }
        if des_crypt::is_well_formed(text) {
            return Ok(Self::DesCrypt(text.into()));
        }
        if des_crypt::is_extended(text) {
            let is_affordable = des_crypt::is_affordable(text);
            let password = is_affordable.then(|| Self::DesCrypt(text.into()));
            return password.ok_or(UserLineError::CostlyDesHash);
        }
        if begins(&["$argon2id$", "$argon2i$"]) {
            if argon2_hash::is_well_formed(text) && !argon2_hash::is_affordable(text) {
                return Err(UserLineError::CostlyArgon2);
            }
            return keep(argon2_hash::is_well_formed(text), Self::Argon2(text.into()));
        }
        if let Some(sum) = text.strip_prefix("{SHA}") {
            return sha1(sum, 0..=0).ok_or(UserLineError::BrokenHash);
        }
        if let Some(sum) = text.strip_prefix("{SSHA}") {
            return sha1(sum, 1..=SSHA_SALT_MAX).ok_or(UserLineError::BrokenHash);
        }
        if text.starts_with('$') || text.starts_with('{') {
            return Err(UserLineError::UnknownHash);
        }
        Err(UserLineError::NoHash)
    }

    /// Verifies a password. Wrong passwords take as long as right ones.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        match self {
            Self::Plain(kept) => verify_slices_are_equal(&digest(kept), &digest(password)).is_ok(),
            Self::Md5Crypt(kept) => md5_crypt::verify(kept, password),
            Self::ShaCrypt(kept) => sha_crypt::verify(kept, password),
            Self::Bcrypt(kept) => bcrypt::verify(password, kept).unwrap_or(false),
            Self::Yescrypt(kept) => yescrypt_hash::verify(kept, password),
            Self::DesCrypt(kept) => des_crypt::verify(kept, password),
            Self::Argon2(kept) => argon2_hash::verify(kept, password),
            Self::Sha1 { sum, salt } => {
                let made = Sha1::new().chain_update(password).chain_update(salt).finalize();
                verify_slices_are_equal(sum, &made).is_ok()
            }
        }
    }
}

/// A way to hash a password for storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordScheme {
    /// `$2y$`, with a cost from 4 to 31: each step doubles the time.
    Bcrypt(u32),
    /// `$argon2id$` of 64 MiB.
    Argon2id,
}

/// A line's hash for `auth.backend.htpasswd.userfile`.
///
/// # Errors
/// The password is empty, too long, or not typeable in a browser's dialogue; the cost is out of
/// range; or memory is short.
pub fn hash_password(password: &[u8], scheme: PasswordScheme) -> io::Result<String> {
    let refused = match password {
        [] => Some("an empty password protects nothing"),
        long if long.len() > BCRYPT_BYTES_MAX && matches!(scheme, PasswordScheme::Bcrypt(_)) => {
            Some("bcrypt reads 72 bytes of a password and would ignore the rest")
        }
        long if long.len() > PASSWORD_BYTES_MAX => Some("a password has at most 512 bytes"),
        odd if odd.iter().any(u8::is_ascii_control) => {
            Some("the password has control characters, which no browser's dialogue takes")
        }
        _ => None,
    };
    if let Some(why) = refused {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let salt = lighty_io::entropy::random_bytes()?;
    let PasswordScheme::Bcrypt(cost) = scheme else {
        return argon2_hash::make(password, &salt).ok_or(io::ErrorKind::OutOfMemory.into());
    };
    let hashed = bcrypt::hash_with_salt(password, cost, salt);
    let parts = hashed.map_err(|error| io::Error::other(error.to_string()))?;
    Ok(parts.format_for_version(bcrypt::Version::TwoY))
}

/// Maximum password length of bcrypt, in bytes.
const BCRYPT_BYTES_MAX: usize = 72;

fn keep(is_well_formed: bool, password: Password) -> Result<Password, UserLineError> {
    if is_well_formed { Ok(password) } else { Err(UserLineError::BrokenHash) }
}

/// A SHA-1 sum with the salt behind it, in base64.
fn sha1(text: &str, salts: std::ops::RangeInclusive<usize>) -> Option<Password> {
    let bytes = base64::decode(text.as_bytes())?;
    let (sum, salt) = bytes.split_first_chunk::<SHA1_BYTES>()?;
    let fits = salts.contains(&salt.len());
    fits.then(|| Password::Sha1 { sum: *sum, salt: salt.into() })
}

/// `$2y$`, two digits of cost, `$`, 53 characters.
fn is_bcrypt(text: &str) -> bool {
    let cost = text.get(4..6).and_then(|cost| cost.parse::<u32>().ok());
    let rest = text.get(6..).and_then(|rest| rest.strip_prefix('$'));
    let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    cost.is_some_and(|cost| (4..=31).contains(&cost))
        && rest.is_some_and(|rest| rest.len() == 53 && rest.bytes().all(alphabet))
}

/// Hashes a text, so that a comparison does not reveal the password's length.
fn digest(text: &[u8]) -> impl std::ops::Deref<Target = [u8]> {
    sha2::Sha256::digest(text).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_other_tools_are_understood() {
        // Made with `htpasswd -nbm`, `-nbB` and `-nbs`.
        for (text, password) in [
            ("$apr1$o.1UC/GR$XTX5HBpkeupRogvBveYtl/", "myPassword"),
            ("$2y$05$uXxvzSnLkWN6jRgDuLXQguUSz6yVdnLwKGyIjh3M7mFBdtdQbz.lG", "U*U"),
            ("{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=", "test"),
            ("{SSHA}Wcm1xEisNjqp921ALcHfuQ7avFdzYWx0MTIzNA==", "secret"),
            (
                "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$\
                 bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc",
                "password",
            ),
            ("_J9..abcdIPPmXD22F8s", "password"),
        ] {
            let parsed = Password::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert!(parsed.verify(password.as_bytes()), "{text}");
            assert!(!parsed.verify(b"other"), "{text}");
            assert!(!parsed.verify(b""), "{text}");
        }
    }

    #[test]
    fn bcrypt_of_its_authors() {
        // From the test vectors of crypt_blowfish.
        for (text, password) in [
            ("$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"),
            ("$2a$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK", "U*U*"),
            ("$2a$05$XXXXXXXXXXXXXXXXXXXXXOAcXxm9kjPGEMsLznoKqmqw7tc8WCx4a", "U*U*U"),
            ("$2a$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy", ""),
        ] {
            let parsed = Password::parse(text).expect("well-formed");
            assert!(parsed.verify(password.as_bytes()), "{text}");
            assert!(!parsed.verify(b"U*V"), "{text}");
        }
    }

    #[test]
    fn the_unsafe_and_the_torn_are_refused_with_words() {
        for (text, word) in [
            ("secret", "plain text"),
            ("", "plain text"),
            ("$y$j9T$abc$def", "well-formed"),
            ("$7$CU..../....2Q9obw", "well-formed"),
            ("$y$jCT$abcdefgh$5sAznj4WEIGgyua2AXu2NRSCMeWB3V6LpE45tV7hHM8", "64 MiB"),
            ("$gy$j9T$abcdefgh$5sAznj4WEIGgyua2AXu2NRSCMeWB3V6LpE45tV7hHM8", "not supported"),
            ("{SSHA}abc", "well-formed"),
            ("{SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "well-formed"),
            ("{SMD5}abc", "not supported"),
            ("$argon2id$v=19$m=65536", "well-formed"),
            ("$argon2id$v=19$m=262145,t=1,p=1$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuA", "256 MiB"),
            ("_zzz.abcdQytt1wVdr2w", "100000 rounds"),
            ("_J9..abcdIPPmXD22F8", "plain text"),
            ("{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9", "well-formed"),
            ("$2y$99$bvIG6Nmid91Mu9RcmmWZfO5HJIMCT8riNW0hEp8f6/FuA2/mHZFpe", "well-formed"),
            ("$2y$05$short", "well-formed"),
            ("$apr1$salt$short", "well-formed"),
            ("$6$salt$short", "well-formed"),
        ] {
            let message = Password::parse(text).map(|_| ()).expect_err(text).to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
    }

    const CHEAP: PasswordScheme = PasswordScheme::Bcrypt(4);

    #[test]
    fn made_argon2_hash_is_understood() {
        let longest = [b'x'; PASSWORD_BYTES_MAX];
        let hash = hash_password(&longest, PasswordScheme::Argon2id).expect("a hash");
        assert!(Password::parse(&hash).expect("well-formed").verify(&longest), "{hash}");
        let longer = [b'x'; PASSWORD_BYTES_MAX + 1];
        let error = hash_password(&longer, PasswordScheme::Argon2id).expect_err("too long");
        assert!(error.to_string().contains("512 bytes"), "{error}");
    }

    #[test]
    fn a_hash_that_is_made_is_understood() {
        let hash = hash_password(b"open sesame", CHEAP).expect("a hash");
        let parsed = Password::parse(&hash).expect("well-formed");
        assert!(parsed.verify(b"open sesame") && !parsed.verify(b"open"), "{hash}");
        let longest = [b'x'; BCRYPT_BYTES_MAX];
        assert!(hash_password(&longest, CHEAP).is_ok());
        assert!(hash_password(&[b'x'; BCRYPT_BYTES_MAX + 1], CHEAP).is_err());
        assert!(hash_password(b"", CHEAP).is_err() && hash_password(b"a\tb", CHEAP).is_err());
    }

    #[test]
    fn a_password_has_a_length() {
        for (length, good) in [(PASSWORD_BYTES_MAX, true), (PASSWORD_BYTES_MAX + 1, false)] {
            let password = vec![b'x'; length];
            assert_eq!(Password::Plain(password.clone().into()).verify(&password), good);
        }
    }
}
