//! Shows and changes the certificates that servers of a configuration obtain by themselves.

use std::fmt::Write;
use std::fs::File;
use std::io;
use std::sync::Arc;

pub use lighty_acme::Reason;
use lighty_acme::{CertificateOptions, OrderError, OrderProgress, Store, file_name};
use lighty_config::Config;
use lighty_core::Settings;
use lighty_io::clock::Clock;
use lighty_io::clock::local_time::LocalTime;
use lighty_io::os_text;
use lighty_io::tls::{CertificateFacts, TlsError, examine};

use lighty_server::acme;

/// Errors of commands that show or change certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The configuration has no certificate of this name.
    #[error("{0}: the configuration asks for no certificate of this name")]
    Unknown(String),
    /// The store cannot be read or written.
    #[error("{0}")]
    Store(io::Error),
    /// The certificate is not in the store.
    #[error("{0}: the store has no certificate of this name")]
    Missing(String),
    /// The options for certificates are invalid; the message names the fault.
    #[error("{0}")]
    Options(String),
    /// An authority refused or failed to do the request.
    #[error("{0}: {1}")]
    Authority(String, OrderError),
}

/// A certificate, and its files as far as they exist.
struct Known {
    file: String,
    names: String,
    facts: Result<CertificateFacts, TlsError>,
    progress: OrderProgress,
}

impl Known {
    /// Returns an error if the certificate's file exists, or may exist, and cannot be opened.
    fn check_readable(&self, store: &Store) -> Result<(), CertificateError> {
        let path = store.certificate(&self.file);
        let opened = if self.facts.is_ok() { Ok(()) } else { File::open(&path).map(drop) };
        opened.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            kind => {
                let message = format!("{}: {}", path.display(), os_text(&error));
                Err(CertificateError::Store(io::Error::new(kind, message)))
            }
        })
    }
}

/// Returns the configured certificates, then all others in the store.
fn all(config: &Config<Settings>, store: &Store) -> Vec<Known> {
    let wanted = acme::wanted(config).unwrap_or_default();
    let mut found: Vec<(String, Option<String>)> =
        wanted.iter().map(|one| (file_name(&one.names), Some(one.names.join(", ")))).collect();
    for file in store.certificates() {
        if found.iter().all(|(known, _)| *known != file) {
            found.push((file, None));
        }
    }
    let known = |(file, names): (String, Option<String>)| {
        let facts = examine(&store.certificate(&file));
        let own = || facts.as_ref().map_or_else(|_| file.clone(), |facts| facts.names.join(", "));
        let names = names.unwrap_or_else(own);
        let progress = store.progress(&file);
        Known { file, names, facts, progress }
    };
    found.into_iter().map(known).collect()
}

/// Returns a line for each certificate: its name, expiry date, issuer and faults.
///
/// # Errors
/// The store cannot be read.
pub fn list(config: &Config<Settings>) -> Result<String, CertificateError> {
    let now_s = Clock::start().unix_s();
    let mut out = String::new();
    let store = acme::store(config);
    for one in all(config, &store) {
        one.check_readable(&store)?;
        let state = match &one.facts {
            Ok(facts) if now_s >= facts.valid_s.end => "has expired".to_owned(),
            Ok(facts) => format!("until {}", date(facts.valid_s.end)),
            Err(_) if !store.certificate(&one.file).exists() => "is not there".to_owned(),
            Err(_) => "is broken".to_owned(),
        };
        let by = match one.progress.issuer.as_str() {
            "" => String::new(),
            issuer => format!(", from {issuer}"),
        };
        let why = match one.progress.error.as_str() {
            "" => String::new(),
            error => format!("; {} failures, the latest: {error}", one.progress.failures),
        };
        // Writing to a text cannot fail.
        let _ = writeln!(out, "{}: {state}{by}{why}", one.file);
    }
    Ok(out)
}

/// Returns a description of a certificate.
///
/// # Errors
/// No certificate has this name.
pub fn show(config: &Config<Settings>, name: &str) -> Result<String, CertificateError> {
    let store = acme::store(config);
    let one = all(config, &store).into_iter().find(|one| one.file == as_file(name));
    let one = one.ok_or_else(|| CertificateError::Unknown(name.to_owned()))?;
    one.check_readable(&store)?;
    let mut out = String::new();
    let mut line = |what: &str, value: &str| out += &format!("{what:<12} {value}\n");
    line("names", &one.names);
    line("file", &store.certificate(&one.file).display().to_string());
    match &one.facts {
        Ok(facts) => {
            line("signed by", &facts.issuer);
            line("valid", &format!("{} to {}", date(facts.valid_s.start), date(facts.valid_s.end)));
        }
        Err(why) => line("certificate", &why.to_string()),
    }
    if let Some(window) = &one.progress.window {
        let (from, to) = (date(window.span_s.start), date(window.span_s.end));
        line("renewal", &format!("the authority wants it between {from} and {to}"));
    }
    if !one.progress.error.is_empty() {
        line("failures", &one.progress.failures.to_string());
        line("latest", &one.progress.error);
        line("next order", &format!("not before {}", date(one.progress.not_before_s)));
    }
    Ok(out)
}

/// Requests renewal from the server that maintains the store. Returns a message for the operator.
///
/// # Errors
/// The configuration has no certificate of this name, or the store cannot be written.
pub fn renew(config: &Config<Settings>, name: &str) -> Result<String, CertificateError> {
    let wanted = acme::wanted(config).unwrap_or_default();
    let file = as_file(name);
    if wanted.iter().all(|one| file_name(&one.names) != file) {
        return Err(CertificateError::Unknown(name.to_owned()));
    }
    acme::store(config).ask_for_renewal(&file).map_err(CertificateError::Store)?;
    Ok(format!("{name}: a running server renews it within seconds, and its log says how it went"))
}

/// Has the authority revoke a certificate of the store. A configured certificate is then renewed;
/// any other is removed. Returns a message for the operator.
///
/// # Errors
/// The store has no certificate of this name, or the authority refuses.
pub fn revoke(
    config: &Config<Settings>,
    name: &str,
    reason: Reason,
) -> Result<String, CertificateError> {
    let (store, file) = (acme::store(config), as_file(name));
    if !store.certificate(&file).exists() {
        return Err(CertificateError::Missing(name.to_owned()));
    }
    let wanted = acme::wanted(config).unwrap_or_default();
    let wanted = wanted.into_iter().find(|one| file_name(&one.names) == file);
    let options = match &wanted {
        Some(wanted) => Arc::clone(&wanted.options),
        None => acme::global_options(config)
            .map_err(|why| CertificateError::Options(why.to_string()))?,
    };
    let issuer = lighty_acme::revoke(&store, &file, &options, reason)
        .map_err(|why| CertificateError::Authority(name.to_owned(), why))?;
    let then = match wanted {
        Some(_) => {
            store.ask_for_renewal(&file).map_err(CertificateError::Store)?;
            "a running server orders another one within seconds, with another key"
        }
        None => {
            lighty_acme::forget(&store, &file);
            "it is removed from the store"
        }
    };
    Ok(format!("{name}: {issuer} has revoked the certificate; {then}"))
}

/// Replaces the keys of the accounts with authorities. Returns a line for each.
///
/// # Errors
/// An authority refuses; the keys of the previous ones are replaced.
pub fn roll_over(config: &Config<Settings>) -> Result<String, CertificateError> {
    let store = acme::store(config);
    let mut all: Vec<Arc<CertificateOptions>> = Vec::new();
    all.extend(acme::wanted(config).unwrap_or_default().into_iter().map(|one| one.options));
    all.extend(acme::global_options(config).ok());
    let (mut done, mut out) = (Vec::new(), String::new());
    for options in &all {
        let kid = options.external_account.as_ref().map(|account| &account.kid);
        for issuer in &options.issuers {
            let account = (&issuer.directory, kid);
            if done.contains(&account) {
                continue;
            }
            done.push(account);
            let failed = |why| CertificateError::Authority(issuer.name.clone(), why);
            let outcome = match lighty_acme::roll_over(&store, options, issuer).map_err(failed)? {
                true => "the account has another key",
                false => "there is no account yet",
            };
            // Writing to a text cannot fail.
            let _ = writeln!(out, "{}: {outcome}", issuer.name);
        }
    }
    Ok(out)
}

/// Returns a name in the store's spelling.
fn as_file(name: &str) -> String {
    let name = lighty_acme::address(name)
        .map_or_else(|| name.to_ascii_lowercase(), |address| address.to_string());
    file_name(&[name])
}

fn date(unix_s: i64) -> String {
    let LocalTime { year, month, day, hour, minute, .. } = LocalTime::gmt_at(unix_s);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}
