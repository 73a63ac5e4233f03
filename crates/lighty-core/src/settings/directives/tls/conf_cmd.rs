//! `ssl.openssl.ssl-conf-cmd`: commands that lighttpd passes to OpenSSL's `SSL_CONF_cmd`.

use std::fmt;

use lighty_config::{CompileCtx, Reject, Spanned, Value, parse_string};
use lighty_io::tls::TlsError;

use crate::settings::tls::ConfCmd;

pub(super) const DOC: &str = "Versions, suites and options, in OpenSSL's words:\n\
    \n\
    | key | value |\n\
    |---|---|\n\
    | `MinProtocol`, `MaxProtocol` | `TLSv1.2`, `TLSv1.3`, or `None` for no bound; older ones are the same as `TLSv1.2` for the least, and an error for the most |\n\
    | `Protocol` | a list: `-ALL, TLSv1.3`, `ALL, -TLSv1.2` |\n\
    | `CipherString` | suites of TLS 1.2, all with ECDHE and AES-GCM or ChaCha20-Poly1305 |\n\
    | `Ciphersuites` | suites of TLS 1.3 |\n\
    | `Groups`, `Curves` | `X25519MLKEM768`, `SecP256r1MLKEM768`, `X25519`, `P-256`, `P-384`; others are left out |\n\
    | `Options` | a list of `ServerPreference`, `PrioritizeChaCha`, `SessionTicket`; `-` before one switches it off. Others have no effect |\n\
    | `DHParameters`, `SecurityLevel` | without effect |\n\
    \n\
    By default TLS 1.2 and 1.3 are spoken, as the client prefers, and sessions may be resumed by \
    tickets.";

type ConfCmdPair<'a> = (&'a str, &'a Spanned<Value>);

pub(super) fn parse(value: &Value, ctx: &CompileCtx) -> Result<ConfCmd, Reject> {
    let pairs =
        value.as_pairs().ok_or_else(|| Reject::new("must be an array of keys and values"))?;
    let mut conf = ConfCmd::default();
    let (mut min, mut max) = (Version::Tls12, Version::Tls13);
    for (key, item) in pairs {
        let text = parse_string(&item.value).map_err(|reject| reject.at(item.span))?;
        let reject = |why: &str| Reject::new(format!("has \"{key}\": {why}")).at(item.span);
        let no_suites = |error: TlsError| reject(&error.to_string());
        let no_version = |error: VersionError| reject(&error.to_string());
        match &*key.to_ascii_lowercase() {
            "minprotocol" => min = least(&text, (key, item), ctx)?,
            "maxprotocol" => max = most(&text).map_err(no_version)?,
            "protocol" => protocols(&text, &mut conf).map_err(no_version)?,
            "cipherstring" => conf.ciphers.set_tls12(&text).map_err(no_suites)?,
            "curves" | "groups" if text.eq_ignore_ascii_case("auto") => {}
            name @ ("ciphersuites" | "curves" | "groups") => {
                let missing = match name {
                    "ciphersuites" => conf.ciphers.set_tls13(&text),
                    _ => conf.ciphers.set_groups(&text),
                };
                let missing = missing.map_err(no_suites)?;
                if !missing.is_empty() {
                    let left_out = format!("left out, lighty lacks them: {}", missing.join(", "));
                    ctx.note(reject(&left_out));
                }
            }
            "options" => options(&text, (key, item), &mut conf, ctx),
            "dhparameters" | "securitylevel" => ctx.note(reject("it has no effect")),
            _ => {
                let known = ["MinProtocol", "MaxProtocol", "Protocol", "CipherString"];
                let others = ["Ciphersuites", "Groups", "Curves", "Options", "DHParameters"];
                let unknown = reject("it is unknown and has no effect");
                ctx.warn(unknown.did_you_mean(key, known.into_iter().chain(others)));
            }
        }
    }
    conf.tls12 &= min <= Version::Tls12;
    conf.tls13 &= max >= Version::Tls13;
    match conf.tls12 || conf.tls13 {
        true => Ok(conf),
        false => Err(Reject::new("leaves no protocol: TLS 1.2 and 1.3 are what there is")),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    /// TLS 1.1 and older.
    Old,
    Tls12,
    Tls13,
}

fn version(text: &str) -> Option<Version> {
    match &*text.trim().to_ascii_lowercase() {
        "ssl3" | "sslv3" | "tlsv1" | "tlsv1.0" | "tlsv1.1" => Some(Version::Old),
        "tlsv1.2" => Some(Version::Tls12),
        "tlsv1.3" => Some(Version::Tls13),
        _ => None,
    }
}

/// Reason why a protocol version cannot be chosen.
enum VersionError {
    Unknown(String),
    TooOld(String),
    /// Too old, given as the maximum version.
    TooOldAsMost(String),
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => {
                write!(f, "\"{text}\" is no version; TLSv1.2 and TLSv1.3 are what there is")
            }
            Self::TooOld(text) => write!(f, "{text} cannot be had"),
            Self::TooOldAsMost(text) => {
                write!(f, "{text} cannot be had; TLS 1.2 is the oldest protocol")
            }
        }
    }
}

fn least(text: &str, (key, item): ConfCmdPair<'_>, ctx: &CompileCtx) -> Result<Version, Reject> {
    let at = |why: String| Reject::new(format!("has \"{key}\": {why}")).at(item.span);
    match version(text) {
        _ if text.eq_ignore_ascii_case("none") => Ok(Version::Tls12),
        Some(Version::Old) => {
            let text = format!("{text} cannot be had; TLS 1.2 is the oldest protocol here");
            ctx.warn(at(text));
            Ok(Version::Tls12)
        }
        Some(version) => Ok(version),
        None => Err(at(VersionError::Unknown(text.to_owned()).to_string())),
    }
}

fn most(text: &str) -> Result<Version, VersionError> {
    match version(text) {
        _ if text.eq_ignore_ascii_case("none") => Ok(Version::Tls13),
        Some(Version::Old) => Err(VersionError::TooOldAsMost(text.to_owned())),
        Some(version) => Ok(version),
        None => Err(VersionError::Unknown(text.to_owned())),
    }
}

/// Parses a list that enables or disables versions.
fn protocols(text: &str, conf: &mut ConfCmd) -> Result<(), VersionError> {
    for word in text.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty()) {
        let (on, name) = match word.strip_prefix('-') {
            Some(name) => (false, name),
            None => (true, word.strip_prefix('+').unwrap_or(word)),
        };
        if name.eq_ignore_ascii_case("all") {
            (conf.tls12, conf.tls13) = (on, on);
            continue;
        }
        match version(name) {
            Some(Version::Tls12) => conf.tls12 = on,
            Some(Version::Tls13) => conf.tls13 = on,
            Some(Version::Old) if on => return Err(VersionError::TooOld(name.to_owned())),
            Some(Version::Old) => {}
            None if name.eq_ignore_ascii_case("sslv2") && !on => {}
            None => return Err(VersionError::Unknown(name.to_owned())),
        }
    }
    Ok(())
}

fn options(text: &str, (key, item): ConfCmdPair<'_>, conf: &mut ConfCmd, ctx: &CompileCtx) {
    for word in text.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty()) {
        let (on, name) = match word.strip_prefix('-') {
            Some(name) => (false, name),
            None => (true, word.strip_prefix('+').unwrap_or(word)),
        };
        match &*name.to_ascii_lowercase() {
            "serverpreference" => conf.prefers_own_order = on,
            // Clients list first the suite that their hardware runs faster.
            "prioritizechacha" => conf.prefers_own_order &= !on,
            "sessionticket" => conf.tickets = on,
            // Options that always hold, or that cannot be supported.
            "all"
            | "compression"
            | "emptyfragments"
            | "bugs"
            | "dhsingle"
            | "ecdhsingle"
            | "ktls"
            | "norenegotiation"
            | "norresumptiononrenegotiation"
            | "unsafelegacyrenegotiation"
            | "unsafelegacyserverconnect"
            | "encryptthenmac"
            | "allownodheaker"
            | "middleboxcompat"
            | "antireplay"
            | "extendedmastersecret"
            | "canames"
            | "ignoreunexpectedeof" => {}
            _ => {
                let why = format!("has \"{key}\" with \"{name}\", which has no effect");
                ctx.warn(Reject::new(why).at(item.span));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_config::Key;

    use super::*;

    fn parsed(pairs: &[(&str, &str)]) -> Result<ConfCmd, Reject> {
        let span = CompileCtx::nowhere("").span;
        let item = |(key, text): &(&str, &str)| {
            let key = Key { text: (*key).to_owned(), span };
            (Some(key), Spanned { value: Value::Str((*text).to_owned()), span })
        };
        let value = Value::Array(pairs.iter().map(item).collect());
        parse(&value, &CompileCtx::nowhere("ssl.openssl.ssl-conf-cmd"))
    }

    #[test]
    fn versions_are_bounded() {
        let spoken = |pairs: &[(&str, &str)]| parsed(pairs).map(|conf| (conf.tls12, conf.tls13));
        let cases: [(&[(&str, &str)], _); 8] = [
            (&[], (true, true)),
            (&[("MinProtocol", "TLSv1.3")], (false, true)),
            (&[("MinProtocol", "TLSv1")], (true, true)),
            (&[("MaxProtocol", "TLSv1.2")], (true, false)),
            (&[("Protocol", "-ALL, TLSv1.2")], (true, false)),
            (&[("Ciphersuites", "TLS_AES_128_GCM_SHA256:TLS_AES_128_CCM_SHA256")], (true, true)),
            (&[("Protocol", "ALL, -TLSv1.2, -TLSv1.1")], (false, true)),
            (&[("Curves", "auto")], (true, true)),
        ];
        for (pairs, wanted) in cases {
            assert_eq!(spoken(pairs), Ok(wanted), "{pairs:?}");
        }
        let wrong: [&[(&str, &str)]; 7] = [
            &[("MaxProtocol", "TLSv1.1")],
            &[("MinProtocol", "TLSv2")],
            &[("Protocol", "-ALL")],
            &[("MinProtocol", "TLSv1.3"), ("MaxProtocol", "TLSv1.2")],
            &[("CipherString", "RC4")],
            &[("Ciphersuites", "TLS_NULL")],
            &[("Groups", "X448")],
        ];
        for pairs in wrong {
            assert!(parsed(pairs).is_err(), "{pairs:?}");
        }
    }

    #[test]
    fn options_are_switched() {
        let conf = parsed(&[("Options", "-SessionTicket, +ServerPreference, KTLS")]);
        let conf = conf.expect("options");
        assert!(conf.prefers_own_order && !conf.tickets);
    }
}
