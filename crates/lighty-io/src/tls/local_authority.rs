//! A user's own certificate authority for sites on this machine. No other machine has to trust it.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

use crate::clock::Clock;
use crate::clock::local_time::LocalTime;

use super::tls_error::TlsError;

const DAY_S: i64 = 86_400;

/// Validity of the authority's certificate in days.
const AUTHORITY_DAYS: i64 = 3_650;

/// Validity of issued certificates in days: longer than an unconfigured server runs.
const LEAF_DAYS: i64 = 397;

/// The authority's name, which browsers show to their users.
const NAME: &str = "lighty local authority";

/// An authority that keeps its key in a directory.
pub struct LocalAuthority {
    directory: PathBuf,
    key: KeyPair,
}

impl LocalAuthority {
    /// Opens the authority in a directory, or creates it.
    ///
    /// # Errors
    /// A message: the directory cannot be written, or its files cannot be read.
    pub fn open(directory: &Path) -> Result<Self, TlsError> {
        let at = |error: io::Error| format!("{}: {error}", directory.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(at)?;
        let key_file = directory.join("ca.key");
        let key = match fs::read_to_string(&key_file) {
            Ok(text) => KeyPair::from_pem(&text)
                .map_err(|error| format!("{}: {error}", key_file.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = KeyPair::generate().map_err(|error| error.to_string())?;
                write_private(&key_file, &key.serialize_pem())?;
                key
            }
            Err(error) => return Err(format!("{}: {error}", key_file.display()).into()),
        };
        let authority = Self { directory: directory.to_owned(), key };
        if !authority.certificate().exists() {
            let own = authority.params().self_signed(&authority.key);
            let own = own.map_err(|error| error.to_string())?;
            write_private(&authority.certificate(), &own.pem())?;
        }
        Ok(authority)
    }

    /// The authority's certificate, for clients to trust.
    pub fn certificate(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// Signs a certificate for these names and addresses, and writes it with its key.
    ///
    /// # Errors
    /// A message: a name is invalid, or the file cannot be written.
    pub fn issue(&self, names: &[String]) -> Result<PathBuf, TlsError> {
        let message = |error: rcgen::Error| error.to_string();
        let key = KeyPair::generate().map_err(message)?;
        let mut params = CertificateParams::new(names).map_err(message)?;
        params.distinguished_name = named(names.first().map_or("localhost", |name| name));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        limit(&mut params, LEAF_DAYS);
        let own = self.params();
        let leaf =
            params.signed_by(&key, &Issuer::from_params(&own, &self.key)).map_err(message)?;
        let file = self.directory.join("localhost.pem");
        write_private(&file, &format!("{}{}", leaf.pem(), key.serialize_pem()))?;
        Ok(file)
    }

    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        limit(&mut params, AUTHORITY_DAYS);
        params
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Sets the validity from yesterday on, for clocks that are slow.
fn limit(params: &mut CertificateParams, days: i64) {
    let now_s = Clock::start().unix_s();
    let date = |unix_s| {
        let day = LocalTime::gmt_at(unix_s);
        rcgen::date_time_ymd(day.year, day.month, day.day)
    };
    params.not_before = date(now_s - DAY_S);
    params.not_after = date(now_s + days * DAY_S);
}

/// Writes a temporary file and renames it, so that no other process reads a part of it.
fn write_private(file: &Path, text: &str) -> Result<(), TlsError> {
    let beside = file.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut new = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        new.write_all(text.as_bytes())?;
        fs::rename(&beside, file)
    };
    write().map_err(|error: io::Error| format!("{}: {error}", file.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_kept_and_its_key_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("tempdir");
        let directory = dir.path().join("a/b");
        let first = LocalAuthority::open(&directory).expect("a new one");
        let ca = fs::read(first.certificate()).expect("its certificate");
        let leaf = first.issue(&["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("signed");
        for file in [directory.join("ca.key"), leaf.clone()] {
            let mode = fs::metadata(&file).expect("metadata").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
        let again = LocalAuthority::open(&directory).expect("the same");
        assert_eq!(fs::read(again.certificate()).expect("its certificate"), ca);
        let before = fs::read(&leaf).expect("a leaf");
        again.issue(&["localhost".to_owned()]).expect("signed");
        assert_ne!(fs::read(&leaf).expect("a leaf"), before);
        assert!(again.issue(&["ä".to_owned()]).is_err());
        fs::write(directory.join("ca.key"), "no key").expect("written");
        assert!(LocalAuthority::open(&directory).is_err());
    }
}
