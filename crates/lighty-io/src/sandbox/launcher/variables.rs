//! Variables that a program of a request may get: those of a request, as the server sets them.
//!
//! Other names, such as `LD_PRELOAD` or `PERL5OPT`, would let foreign code in the server choose the
//! code that a program runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use super::messages::LaunchRefusal;

/// Names of RFC 3875 section 4.1, and the others that the server sets itself.
const OF_REQUESTS: &[&str] = &[
    "AUTH_TYPE",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "DOCUMENT_ROOT",
    "GATEWAY_INTERFACE",
    "HTTPS",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "PATH_TRANSLATED_DIRINDEX",
    "QUERY_STRING",
    "REDIRECT_STATUS",
    "REDIRECT_URI",
    "REMOTE_ADDR",
    "REMOTE_HOST",
    "REMOTE_IDENT",
    "REMOTE_PORT",
    "REMOTE_USER",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "SCRIPT_FILENAME",
    "SCRIPT_NAME",
    "SERVER_ADDR",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SERVER_SOFTWARE",
    "SSL_CIPHER",
    "SSL_CIPHER_ALGKEYSIZE",
    "SSL_CIPHER_USEKEYSIZE",
    "SSL_PROTOCOL",
];

/// Beginnings of further names: header fields, and the certificate of the client.
const BEGINNINGS: &[&str] = &["HTTP_", "SSL_CLIENT_"];

/// A setting of programs, which no request has: the server withholds the field `Proxy`.
const PROXY: &str = "HTTP_PROXY";

/// Names of variables that the configuration sets, each with its values.
pub type ConfiguredVariables = BTreeMap<OsString, BTreeSet<OsString>>;

/// Checks the variables of the program of a request.
///
/// # Errors
/// The first variable that is not permitted.
pub(super) fn check(
    variables: &[(OsString, OsString)],
    script: &Path,
    configured: &ConfiguredVariables,
) -> Result<(), LaunchRefusal> {
    let find = |name: &str| variables.iter().find(|(known, _)| known == name);
    let path_info = find("PATH_INFO").map(|(_, value)| value.as_bytes()).unwrap_or_default();
    let has_script = find("SCRIPT_FILENAME").is_some();
    for (name, value) in variables {
        let is_permitted = match name.to_str().unwrap_or_default() {
            _ if is_inherited(name, value) || is_configured(name, value, configured) => true,
            // The program takes its code from here.
            "SCRIPT_FILENAME" => value == script.as_os_str(),
            "DOCUMENT_ROOT" => script.starts_with(Path::new(value)) && is_plain(Path::new(value)),
            // Without a script, PHP takes its code from here.
            "PATH_TRANSLATED" => has_script && is_translated(value, path_info, script),
            name => OF_REQUESTS.contains(&name) || is_of_field(name),
        };
        if !is_permitted {
            return Err(LaunchRefusal::Variable(name.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}

/// True for a path info behind a directory around the script.
fn is_translated(value: &OsStr, path_info: &[u8], script: &Path) -> bool {
    let root = value.as_bytes().strip_suffix(path_info).filter(|root| !root.is_empty());
    let is_around = root.is_some_and(|root| script.starts_with(OsStr::from_bytes(root)));
    is_around && is_plain(Path::new(value))
}

fn is_of_field(name: &str) -> bool {
    name != PROXY && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// True if the launcher has the variable, too.
fn is_inherited(name: &OsStr, value: &OsStr) -> bool {
    std::env::var_os(name).is_some_and(|own| own == value)
}

/// True if the configuration sets the variable to this value, or to each part of it: values of
/// several conditions are joined.
fn is_configured(name: &OsStr, value: &OsStr, configured: &ConfiguredVariables) -> bool {
    let Some(values) = configured.get(name) else { return false };
    if values.contains(value) {
        return true;
    }
    let text = value.to_string_lossy();
    text.split(", ").all(|part| values.contains(OsStr::new(part)))
}

/// True if no part of a path is `..`.
fn is_plain(path: &Path) -> bool {
    path.components().all(|part| part != Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(variables: &[(&str, &str)]) -> Option<String> {
        let pair = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
        let variables: Vec<_> = variables.iter().map(pair).collect();
        let values = ["/srv/trac", "/srv/x"].map(OsString::from);
        let configured = ConfiguredVariables::from([("TRAC_ENV".into(), values.into())]);
        match check(&variables, Path::new("/srv/www/a.pl"), &configured) {
            Ok(()) => None,
            Err(LaunchRefusal::Variable(name)) => Some(name),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn variables_of_requests_are_permitted() {
        let path = std::env::var("PATH").expect("PATH");
        for variables in [
            &[("QUERY_STRING", "-d a"), ("HTTP_COOKIE", "a"), ("SSL_CLIENT_S_DN_CN", "x")][..],
            &[("SCRIPT_FILENAME", "/srv/www/a.pl"), ("DOCUMENT_ROOT", "/srv/www/")],
            &[("SCRIPT_FILENAME", "/srv/www/a.pl"), ("DOCUMENT_ROOT", "/srv/www")],
            &[
                ("PATH_INFO", "/b"),
                ("SCRIPT_FILENAME", "/srv/www/a.pl"),
                ("PATH_TRANSLATED", "/srv/www/b"),
            ],
            &[("TRAC_ENV", "/srv/trac")],
            &[("TRAC_ENV", "/srv/trac, /srv/x")],
            &[("PATH", path.as_str())],
        ] {
            assert_eq!(refused(variables), None, "{variables:?}");
        }
    }

    #[test]
    fn variables_that_choose_code_are_refused() {
        for variables in [
            &[("LD_PRELOAD", "/tmp/evil.so")][..],
            &[("PATH", "/tmp")],
            &[("PERL5OPT", "-Mevil")],
            &[("PHPRC", "/tmp")],
            &[("BASH_ENV", "/tmp/evil")],
            &[("HTTP_PROXY", "evil:80")],
            &[("REDIRECT_URL", "/x")],
            &[("TRAC_ENV", "/tmp/evil")],
            &[("TRAC_ENV", "/srv/trac, /tmp/evil")],
            &[("SCRIPT_FILENAME", "/tmp/evil.pl")],
            &[("SCRIPT_FILENAME", "/srv/www/a.pl"), ("SCRIPT_FILENAME", "/tmp/evil.pl")],
            &[("DOCUMENT_ROOT", "/tmp")],
            &[("DOCUMENT_ROOT", "/srv/www/../../tmp")],
            &[("PATH_TRANSLATED", "/tmp/evil.pl"), ("SCRIPT_FILENAME", "/srv/www/a.pl")],
            &[("PATH_TRANSLATED", "/srv/www")],
            &[
                ("PATH_INFO", "/tmp/x"),
                ("SCRIPT_FILENAME", "/srv/www/a.pl"),
                ("PATH_TRANSLATED", "/tmp/x"),
            ],
            &[
                ("PATH_INFO", "/../../tmp/x"),
                ("SCRIPT_FILENAME", "/srv/www/a.pl"),
                ("PATH_TRANSLATED", "/srv/www/../../tmp/x"),
            ],
        ] {
            let found = refused(variables);
            let is_named = variables.iter().any(|(name, _)| Some(*name) == found.as_deref());
            assert!(is_named, "{variables:?}: {found:?}");
        }
    }
}
