//! TLS for a server without a configuration: a certificate of this user's own authority.

use std::path::{Path, PathBuf};

use lighty_io::tls::{LocalAuthority, TlsError};

/// Files in PEM.
pub struct LocalTls {
    /// Certificate and key of the site.
    pub pair: PathBuf,
    /// The authority's certificate, which clients have to trust.
    pub authority: PathBuf,
}

/// Makes a certificate for this machine's own names and `host`, the listening address.
///
/// # Errors
/// No directory for the authority can be found or used; the message names the fault.
pub fn prepare(host: &str) -> Result<LocalTls, TlsError> {
    let authority = LocalAuthority::open(&directory()?)?;
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let host = host.trim_matches(['[', ']']);
    let is_every = matches!(host, "" | "*" | "0.0.0.0" | "::") || host.starts_with('/');
    if !is_every && names.iter().all(|name| name != host) {
        names.push(host.to_owned());
    }
    let pair = authority.issue(&names)?;
    Ok(LocalTls { pair, authority: authority.certificate() })
}

/// Returns the directory of publicly signed certificates for this user's servers.
///
/// # Errors
/// No directory can be found.
pub fn store() -> Result<PathBuf, TlsError> {
    Ok(directory()?.join("acme"))
}

/// Returns the directory of this user's program data (XDG Base Directory Specification).
fn directory() -> Result<PathBuf, TlsError> {
    let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = named("XDG_DATA_HOME").or_else(|| Some(named("HOME")?.join(".local/share")));
    let data = data.ok_or("neither XDG_DATA_HOME nor HOME names a directory for the authority")?;
    Ok(data.join(Path::new("lighty")))
}
