//! The directives `auth.backend.ldap.*`.

use std::sync::Arc;
use std::time::Duration;

use lighty_config::{
    CompileCtx, Directive, Kind, NeedKind, Reject, Value, parse_bool, parse_period, parse_string,
};
use lighty_core::Settings;
use lighty_identity::directory::{
    BindPassword, ClientPair, Directory, DirectoryAccounts, DirectoryOptions, DirectoryServer,
    TIMEOUT_DEFAULT, UserFilter,
};

/// Limits of the time for one step, in milliseconds.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 1..=60_000;

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LdapSettings {
    hostname: Arc<str>,
    base_dn: Arc<str>,
    filter: Arc<str>,
    group_attribute: Arc<str>,
    certificate: Arc<str>,
    key: Arc<str>,
    /// Without the servers and the pair, which are derived from texts.
    options: DirectoryOptions,
}

impl Default for LdapSettings {
    fn default() -> Self {
        let none: Arc<str> = "".into();
        Self {
            hostname: none.clone(),
            base_dn: none.clone(),
            filter: none.clone(),
            group_attribute: "memberUid".into(),
            certificate: none.clone(),
            key: none,
            options: DirectoryOptions::default(),
        }
    }
}

/// Settings that do not make a directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LdapFault {
    #[error("auth.backend = \"ldap\" needs auth.backend.ldap.hostname")]
    Servers,
    #[error("auth.backend = \"ldap\" needs auth.backend.ldap.filter")]
    Filter,
    #[error("auth.backend.ldap.key needs auth.backend.ldap.cert")]
    Certificate,
}

impl From<LdapFault> for std::borrow::Cow<'static, str> {
    fn from(fault: LdapFault) -> Self {
        fault.to_string().into()
    }
}

impl LdapSettings {
    /// The users.
    pub(super) fn accounts(&self) -> Result<DirectoryAccounts, LdapFault> {
        let servers = DirectoryServer::parse_list(&self.hostname);
        let servers = servers.map_err(|_| LdapFault::Servers)?;
        let filter = UserFilter::parse(&self.filter).map_err(|_| LdapFault::Filter)?;
        let pair = match (&*self.certificate, &*self.key) {
            ("", "") => None,
            ("", _) => return Err(LdapFault::Certificate),
            _ => {
                let (certificate, key) = (Arc::clone(&self.certificate), Arc::clone(&self.key));
                Some(ClientPair { certificate, key })
            }
        };
        let servers = servers.into();
        Ok(DirectoryAccounts {
            directory: Directory::new(Arc::new(DirectoryOptions {
                servers,
                pair,
                ..self.options.clone()
            })),
            base: Arc::clone(&self.base_dn),
            filter,
            group_attribute: Arc::clone(&self.group_attribute),
        })
    }

    /// Time limit for a login with its groups.
    pub(super) fn patience(&self) -> Duration {
        self.options.timeout * 2
    }

    /// The part of cache keys that stands for the directory.
    pub(super) fn source(&self) -> [&[u8]; 5] {
        [
            b"ldap",
            self.hostname.as_bytes(),
            self.base_dn.as_bytes(),
            self.filter.as_bytes(),
            self.group_attribute.as_bytes(),
        ]
    }
}

/// The way to the settings.
pub(super) type LdapOf = fn(&mut Settings) -> &mut Arc<LdapSettings>;

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_auth").since("1.4")
}

fn text(
    of: LdapOf,
    name: &'static str,
    set: impl Fn(&mut LdapSettings, Arc<str>) + Copy + Send + Sync + 'static,
) -> Directive<Settings> {
    row(Directive::string(name, move |s, v| set(Arc::make_mut(of(s)), v))).default("")
}

/// All rows.
pub(super) fn directives(of: LdapOf) -> Vec<Directive<Settings>> {
    let mut rows = users(of);
    rows.extend(connection(of));
    rows.extend(tls(of));
    rows
}

fn users(of: LdapOf) -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed(
            "auth.backend.ldap.hostname",
            Kind::String,
            |value, _| parse_hostname(value),
            move |s, v| Arc::make_mut(of(s)).hostname = Arc::clone(v),
        ))
        .needs(NeedKind::DirectoryServers)
        .alias("auth.backend.ldap.url")
        .default("")
        .doc(
            "Servers of the directory, with commas or spaces between them: `ldap://host:389` \
             (`ldap://` may be left out), `ldaps://host:636`, `ldapi://%2Frun%2Fldapi`. They are \
             tried in this order; one that fails comes last for 30 seconds. If none can be \
             reached, requests get 503 (in lighttpd 401).",
        )
        .example("auth.backend.ldap.hostname = \"ldap1.example.org, ldap2.example.org\""),
        text(of, "auth.backend.ldap.base-dn", |s, v| s.base_dn = v)
            .doc("Entry beneath which users are searched for.")
            .example("auth.backend.ldap.base-dn = \"ou=people,dc=example,dc=org\""),
        row(Directive::parsed(
            "auth.backend.ldap.filter",
            Kind::String,
            |value, _| parse_filter(value),
            move |s, v| Arc::make_mut(of(s)).filter = Arc::clone(v),
        ))
        .default("")
        .doc(
            "Filter that finds the user's entry; each `?` (or `$`) is the user's name. If more \
             than one entry matches, the login is refused. A text that begins with a comma saves \
             the search: the entry's name is `uid=`, the user's name and this text.",
        )
        .example("auth.backend.ldap.filter = \"(&(objectClass=person)(uid=?))\""),
        row(Directive::parsed(
            "auth.backend.ldap.groupmember",
            Kind::String,
            |value, _| parse_attribute(value),
            move |s, v| Arc::make_mut(of(s)).group_attribute = Arc::clone(v),
        ))
        .default("memberUid")
        .doc(
            "Attribute of a group with its members, for `group=` of `auth.require`, which is the \
             name of the group's entry. `member`, `uniqueMember` and `roleOccupant` are compared \
             with the name of the user's entry, others with the user's name.",
        )
        .example("auth.backend.ldap.groupmember = \"member\""),
        row(Directive::parsed(
            "auth.backend.ldap.allow-empty-pw",
            Kind::Bool,
            parse_empty_password,
            |_, _: &()| {},
        ))
        .default("disable")
        .doc(
            "Has no effect: an empty password is always refused, because directories accept it \
             without a check (RFC 4513 section 5.1.2).",
        )
        .example("auth.backend.ldap.allow-empty-pw = \"disable\""),
    ]
}

fn connection(of: LdapOf) -> Vec<Directive<Settings>> {
    vec![
        text(of, "auth.backend.ldap.bind-dn", |s, v| s.options.bind_dn = v)
            .doc("Name of the entry that searches. Empty: searches are anonymous.")
            .example("auth.backend.ldap.bind-dn = \"cn=web,dc=example,dc=org\""),
        text(of, "auth.backend.ldap.bind-pw", |s, v| {
            let password = if v.is_empty() { BindPassword::None } else { BindPassword::Text(v) };
            s.options.bind_password = password;
        })
        .doc("Password of `auth.backend.ldap.bind-dn`.")
        .example("auth.backend.ldap.bind-pw = \"secret\""),
        text(of, "auth.backend.ldap.bind-pw-file", |s, v| {
            let password = if v.is_empty() { BindPassword::None } else { BindPassword::File(v) };
            s.options.bind_password = password;
        })
        .since("lighty 0.1")
        .needs(NeedKind::Read)
        .doc(
            "File whose first line is the password of `auth.backend.ldap.bind-dn`, so that it is \
             not in the configuration. It is read for each connection that searches.",
        )
        .example("auth.backend.ldap.bind-pw-file = \"/etc/lighty/ldap.secret\""),
        row(Directive::parsed(
            "auth.backend.ldap.timeout",
            Kind::String,
            |value, _| parse_timeout(value),
            move |s, v| Arc::make_mut(of(s)).options.timeout = *v,
        ))
        .default("2000000")
        .doc(
            "Time limit for each step of a login: a connection, a search, a bind. A number is \
             microseconds, as in lighttpd; text may have a unit (`\"2s\"`, `\"500ms\"`). A login \
             with its groups takes twice that time at most, and is answered 503 then.",
        )
        .example("auth.backend.ldap.timeout = \"2s\""),
    ]
}

fn tls(of: LdapOf) -> Vec<Directive<Settings>> {
    vec![
        row(Directive::bool("auth.backend.ldap.starttls", move |s, on| {
            Arc::make_mut(of(s)).options.starttls = on
        }))
        .default("disable")
        .doc(
            "Encrypts `ldap://` connections before anything else is sent (StartTLS). If that \
                 fails, no password is sent. Connections to unix sockets stay as they are.",
        )
        .example("auth.backend.ldap.starttls = \"enable\""),
        text(of, "auth.backend.ldap.ca-file", |s, v| {
            s.options.ca_file = Some(v).filter(|file| !file.is_empty());
        })
        .needs(NeedKind::Read)
        .doc(
            "PEM file of the authorities that sign the servers' certificates. Empty: the system's.",
        )
        .example("auth.backend.ldap.ca-file = \"/etc/lighty/ldap-ca.pem\""),
        text(of, "auth.backend.ldap.cert", |s, v| s.certificate = v)
            .since("1.5")
            .needs(NeedKind::Read)
            .doc("PEM file of the certificate that the servers ask of their clients.")
            .example("auth.backend.ldap.cert = \"/etc/lighty/ldap-client.pem\""),
        text(of, "auth.backend.ldap.key", |s, v| s.key = v)
            .since("1.5")
            .needs(NeedKind::Read)
            .doc("PEM file of the key of `auth.backend.ldap.cert`. Empty: it is in the same file.")
            .example("auth.backend.ldap.key = \"/etc/lighty/ldap-client.key\""),
    ]
}

fn parse_hostname(value: &Value) -> Result<Arc<str>, Reject> {
    let text = parse_string(value)?;
    if !text.is_empty() {
        let parsed = DirectoryServer::parse_list(&text);
        parsed.map_err(|error| Reject::new(error.to_string()))?;
    }
    Ok(text)
}

fn parse_filter(value: &Value) -> Result<Arc<str>, Reject> {
    let text = parse_string(value)?;
    if !text.is_empty() {
        let help = "write \"(uid=?)\", or \",ou=people,dc=example,dc=org\"";
        let parsed = UserFilter::parse(&text);
        parsed.map_err(|error| Reject::new(error.to_string()).help(help))?;
    }
    Ok(text)
}

fn parse_attribute(value: &Value) -> Result<Arc<str>, Reject> {
    let text = parse_string(value)?;
    match &*text {
        "" => Ok("memberUid".into()),
        name if DirectoryAccounts::is_attribute(name) => Ok(text),
        _ => Err(Reject::new("is no name of an attribute").help("write \"member\"")),
    }
}

fn parse_empty_password(value: &Value, ctx: &CompileCtx) -> Result<(), Reject> {
    if parse_bool(value)? {
        let text = "has no effect: empty passwords are always refused";
        ctx.warn(Reject::new(text).help("a directory accepts an empty password unchecked"));
    }
    Ok(())
}

fn parse_timeout(value: &Value) -> Result<Duration, Reject> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let micros = match (value.as_int(), value.as_str()) {
        (Some(micros), _) => u64::try_from(micros).ok(),
        (None, Some(text)) if digits(text) => text.parse().ok(),
        (None, Some("")) => return Ok(TIMEOUT_DEFAULT),
        _ => parse_period(value, 1)?.checked_mul(1000),
    };
    let micros = micros.filter(|micros| TIMEOUT_MS.contains(&(micros / 1000)));
    let limits = "must be from 1ms to 60s";
    let help = "a number is microseconds: write \"2000000\" or \"2s\"";
    micros.map(Duration::from_micros).ok_or_else(|| Reject::new(limits).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(text: &str) -> Option<Duration> {
        parse_timeout(&Value::Str(text.to_owned())).ok()
    }

    #[test]
    fn time_is_in_microseconds_or_has_a_unit() {
        assert_eq!(timeout("2000000"), Some(Duration::from_secs(2)));
        assert_eq!(timeout("2s"), Some(Duration::from_secs(2)));
        assert_eq!(timeout(""), Some(TIMEOUT_DEFAULT));
        assert_eq!(parse_timeout(&Value::Int(1000)), Ok(Duration::from_millis(1)));
        assert_eq!(timeout("60000000"), Some(Duration::from_secs(60)));
        for bad in ["999", "0", "60001000", "61s", "x", "-1"] {
            assert_eq!(timeout(bad), None, "{bad}");
        }
    }

    #[test]
    fn directory_needs_servers_and_a_filter() {
        let mut settings = LdapSettings::default();
        let fault = |settings: &LdapSettings| settings.accounts().err();
        assert_eq!(fault(&settings), Some(LdapFault::Servers));
        settings.hostname = "ldaps://[::1]".into();
        assert_eq!(fault(&settings), Some(LdapFault::Filter));
        settings.filter = "(uid=?)".into();
        assert_eq!(fault(&settings), None);
        settings.key = "/key".into();
        assert_eq!(fault(&settings), Some(LdapFault::Certificate));
    }

    #[test]
    fn password_is_not_shown() {
        let mut settings = LdapSettings::default();
        settings.options.bind_password = BindPassword::Text("hush".into());
        assert!(!format!("{settings:?}").contains("hush"));
    }
}
