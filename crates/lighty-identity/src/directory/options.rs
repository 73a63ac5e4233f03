//! Options of a directory.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lighty_io::file::small_file::SmallFile;
use lighty_io::tls::PairFiles;

use super::error::ServerFailure;
use super::server::DirectoryServer;

/// Default time limit for each step.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// Maximum length of the file with a password, in bytes.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// Options of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DirectoryOptions {
    /// The servers, in the order of preference.
    pub servers: Arc<[DirectoryServer]>,
    /// Name of the user that searches; empty: anonymous.
    pub bind_dn: Arc<str>,
    /// The password of that user.
    pub bind_password: BindPassword,
    /// StartTLS before anything else, on `ldap` connections.
    pub starttls: bool,
    /// PEM file of the trusted authorities; `None`: the system's.
    pub ca_file: Option<Arc<str>>,
    /// The client's certificate.
    pub pair: Option<ClientPair>,
    /// Time limit for each step: a connection, a search, a bind.
    pub timeout: Duration,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self {
            servers: Arc::new([]),
            bind_dn: "".into(),
            bind_password: BindPassword::default(),
            starttls: false,
            ca_file: None,
            pair: None,
            timeout: TIMEOUT_DEFAULT,
        }
    }
}

/// Files of a client certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientPair {
    /// The certificate, then its chain.
    pub certificate: Arc<str>,
    /// The key; empty: it is in the certificate's file.
    pub key: Arc<str>,
}

impl ClientPair {
    pub(super) fn files(&self) -> PairFiles {
        let key = Some(Arc::clone(&self.key)).filter(|key| !key.is_empty());
        PairFiles { chain: Arc::clone(&self.certificate), key }
    }
}

/// A password.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub enum BindPassword {
    /// There is none.
    #[default]
    None,
    /// The password itself.
    Text(Arc<str>),
    /// A file with the password in its first line, which is read for each connection.
    File(Arc<str>),
}

/// Omits the password.
impl fmt::Debug for BindPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Text(_) => f.write_str("Text"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl BindPassword {
    /// The password. Reads its file, and blocks.
    pub(super) fn read(&self) -> Result<String, ServerFailure> {
        let path = match self {
            Self::None => return Ok(String::new()),
            Self::Text(text) => return Ok(text.to_string()),
            Self::File(path) => path,
        };
        let read = SmallFile::open(Path::new(&**path));
        let bytes = read.and_then(|file| file.read(PASSWORD_BYTES_MAX));
        let bytes = bytes.map_err(|error| ServerFailure::Refused(format!("{path}: {error}")))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| ServerFailure::Refused(format!("{path}: the password is not UTF-8")))?;
        let line = text.lines().next().unwrap_or_default();
        if line.is_empty() {
            return Err(ServerFailure::Refused(format!("{path}: it holds no password")));
        }
        Ok(line.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_read_from_its_file_and_never_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("password");
        let password = BindPassword::File(path.to_str().expect("text").into());
        assert!(password.read().is_err(), "no file");
        std::fs::write(&path, "hush \r\nmore\n").expect("written");
        assert_eq!(password.read().expect("a password"), "hush ");
        std::fs::write(&path, "\n").expect("written");
        assert!(password.read().is_err(), "an empty password would not be one");
        let long = usize::try_from(PASSWORD_BYTES_MAX).expect("a size");
        std::fs::write(&path, "x".repeat(long)).expect("written");
        assert_eq!(password.read().expect("the longest").len(), long);
        std::fs::write(&path, "x".repeat(long + 1)).expect("written");
        assert!(password.read().is_err(), "too long");
        let text = BindPassword::Text("hush".into());
        assert!(!format!("{text:?}").contains("hush"));
        assert_eq!(text.read().expect("a password"), "hush");
    }
}
