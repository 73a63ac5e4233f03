//! The directives of `mod_auth`.

use std::sync::Arc;

use lighty_config::{CompileCtx, Directive, Kind as ValueKind, Reject, Value, parse_int_clamped};
use lighty_core::{Settings, module_settings};

use super::require::{self, Rule};
use super::users::Kind;

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct AuthSettings {
    pub(super) backend: Option<Kind>,
    pub(super) plain_users: Arc<str>,
    pub(super) plain_groups: Arc<str>,
    pub(super) htpasswd_users: Arc<str>,
    pub(super) htdigest_users: Arc<str>,
    pub(super) rules: Arc<[Arc<Rule>]>,
    pub(super) cache_ms: u64,
    pub(super) extern_authn: bool,
    pub(super) delay: bool,
    pub(super) pending_max: usize,
    pub(super) debug: bool,
}

impl Default for AuthSettings {
    fn default() -> Self {
        let none: Arc<str> = "".into();
        Self {
            backend: None,
            plain_users: none.clone(),
            plain_groups: none.clone(),
            htpasswd_users: none.clone(),
            htdigest_users: none,
            rules: Arc::default(),
            cache_ms: 600_000,
            extern_authn: false,
            delay: true,
            pending_max: 256,
            debug: false,
        }
    }
}
module_settings!(AuthSettings);

impl AuthSettings {
    /// The user file, if one is configured.
    pub(super) fn users(&self) -> Option<(Kind, &Arc<str>)> {
        let kind = self.backend?;
        let path = match kind {
            Kind::Plain => &self.plain_users,
            Kind::Htpasswd => &self.htpasswd_users,
            Kind::Htdigest => &self.htdigest_users,
        };
        (!path.is_empty()).then_some((kind, path))
    }

    /// The first rule for a path.
    pub(super) fn rule(&self, path: &[u8], fold_case: bool) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| {
            let prefix = rule.prefix.as_bytes();
            let start = path.get(..prefix.len());
            start.is_some_and(|start| match fold_case {
                true => start.eq_ignore_ascii_case(prefix),
                false => start == prefix,
            })
        })
    }
}

fn own(s: &mut Settings) -> &mut AuthSettings {
    s.module_mut()
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_auth").since("1.4")
}

/// All rows.
pub(super) fn directives() -> Vec<Directive<Settings>> {
    let mut rows = rules();
    rows.extend(files());
    rows.extend(costs());
    rows
}

fn rules() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed("auth.require", ValueKind::Array, require::parse, |s, v| {
            own(s).rules = Arc::clone(v);
        }))
        .default("()")
        .doc(
            "Paths that are not for everybody. The first prefix that a path begins with counts. \
             `method` is `basic`, `digest` or both with `|` between them, or `extern`: nobody is \
             asked for a password, and the user is the one that a client certificate names \
             (`ssl.verifyclient.username`). `realm` is the name that \
             browsers show. `require` is `valid-user`, or names of whom it takes one: `user=kim`, \
             `group=staff`, `host=192.0.2.0/24` (where the client is), with `|` between them. For \
             digest: `algorithm` is `MD5` (as 1.5), `SHA-256` or `SHA-256|MD5`; with `userhash` \
             names do not travel in the clear; servers that share a `nonce-secret` understand each \
             other's challenges. A nonce is good for ten minutes, and each of its counts once.",
        )
        .example(
            "auth.require = ( \"/private/\" => (\n    \"method\" => \"basic\",\n    \
             \"realm\" => \"staff\",\n    \"require\" => \"valid-user\"\n) )",
        ),
        row(Directive::parsed(
            "auth.backend",
            ValueKind::Choice(&["", "plain", "htpasswd", "htdigest"]),
            |value, _| parse_backend(value),
            |s, v| own(s).backend = *v,
        ))
        .default("")
        .doc(
            "Kind of the file that users are in. Digest authentication needs `plain` or \
             `htdigest`. Files are read again when they change; what is wrong with a line is \
             logged with its number, and the line is left out. A file that cannot be read lets \
             nobody in (500).",
        )
        .example("auth.backend = \"htpasswd\""),
        row(Directive::bool("auth.extern-authn", |s, on| own(s).extern_authn = on))
            .default("disable")
            .doc(
                "Whether a user whom somebody else has authenticated (a trusted proxy, see \
                 `extforward.params`) needs no password.",
            )
            .example("auth.extern-authn = \"enable\""),
    ]
}

fn files() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::string("auth.backend.plain.userfile", |s, v| own(s).plain_users = v))
            .default("")
            .doc("File with lines of `name:password`, in plain text; best readable for few.")
            .example("auth.backend.plain.userfile = \"/etc/lighty/users\""),
        row(Directive::string("auth.backend.plain.groupfile", |s, v| own(s).plain_groups = v))
            .default("")
            .doc("File with lines of `group: name name`, for `group=` of `auth.require`.")
            .example("auth.backend.plain.groupfile = \"/etc/lighty/groups\""),
        row(Directive::string("auth.backend.htpasswd.userfile", |s, v| {
            own(s).htpasswd_users = v;
        }))
        .default("")
        .doc(
            "File made by Apache's `htpasswd`: bcrypt (`-B`, to be preferred), SHA-crypt (`-2`, \
             `-5`), `$apr1$` and `$1$` (`-m`), `{SHA}` (`-s`), and the traditional crypt (`-d`), \
             which is weak and reads eight characters; or by `mkpasswd`: yescrypt (`$y$`) and \
             scrypt (`$7$`) that take up to 64 MiB of memory. Plain text (`-p`) is refused.",
        )
        .example("auth.backend.htpasswd.userfile = \"/etc/lighty/htpasswd\""),
        row(Directive::string("auth.backend.htdigest.userfile", |s, v| {
            own(s).htdigest_users = v;
        }))
        .default("")
        .doc(
            "File made by Apache's `htdigest`: lines of `name:realm:sum`. The sum of name, realm \
             and password, with colons between them, is of MD5, or of SHA-256.",
        )
        .example("auth.backend.htdigest.userfile = \"/etc/lighty/htdigest\""),
    ]
}

fn costs() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed("auth.cache", ValueKind::Array, parse_cache, |s, ms| {
            own(s).cache_ms = *ms;
        }))
        .default("( \"max-age\" => 600 )")
        .doc(
            "How long a password that was right is not hashed again, in seconds; 0: it always is. \
             Only a keyed hash of it is kept. A change of the file ends it at once.",
        )
        .example("auth.cache = ( \"max-age\" => 60 )"),
        row(Directive::bool("auth.delay-invalid-creds", |s, on| own(s).delay = on))
            .since("lighty 0.1")
            .default("enable")
            .doc(
                "Whether wrong credentials are answered a second late, so that guessing takes \
                 long (1.4: `server.feature-flags`).",
            )
            .example("auth.delay-invalid-creds = \"disable\""),
        row(Directive::int("auth.max-pending", 1..=65_536, |s, v| {
            own(s).pending_max = usize::try_from(v).unwrap_or(1);
        }))
        .since("lighty 0.1")
        .default("256")
        .doc(
            "Passwords that may wait to be hashed, which happens beside the event loops. Clients \
             take turns (of IPv6, networks of 64 bits); what was right lately, see `auth.cache`, \
             waits for nobody. One more is answered 503, or the last one of the client that has \
             the most waiting.",
        )
        .example("auth.max-pending = 1000"),
        row(Directive::int("auth.debug", 0..=2, |s, v| own(s).debug = v > 0))
            .default("0")
            .doc("Logs who was let in, and why somebody was not.")
            .example("auth.debug = 1"),
    ]
}

fn parse_backend(value: &Value) -> Result<Option<Kind>, Reject> {
    match value.as_str() {
        Some("") => Ok(None),
        Some("plain") => Ok(Some(Kind::Plain)),
        Some("htpasswd") => Ok(Some(Kind::Htpasswd)),
        Some("htdigest") => Ok(Some(Kind::Htdigest)),
        Some("ldap" | "pam" | "gssapi" | "sasl" | "dbi" | "mysql") => {
            Err(Reject::new("is a backend that is not available yet")
                .help("there are \"plain\", \"htpasswd\" and \"htdigest\""))
        }
        _ => Err(Reject::new("must be \"plain\", \"htpasswd\" or \"htdigest\"")),
    }
}

fn parse_cache(value: &Value, ctx: &CompileCtx) -> Result<u64, Reject> {
    let help = "write `( \"max-age\" => 600 )`";
    let form = || Reject::new("must be an array of \"max-age\"").help(help);
    let mut seconds = 600;
    for (key, item) in value.as_list().ok_or_else(form)? {
        match key.as_deref() {
            Some("max-age") => {
                let warn = |warning: Reject| ctx.warn(warning.at(item.span));
                let parsed = parse_int_clamped(&item.value, &(0..=86_400), warn);
                seconds = ctx.or_skip(parsed.map_err(|r| r.at(item.span))).unwrap_or(seconds);
            }
            _ => drop(ctx.or_skip::<()>(Err(form().at(item.span)))),
        }
    }
    Ok(u64::try_from(seconds).unwrap_or(0) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_have_an_age() {
        let ctx = CompileCtx::nowhere("auth.cache");
        assert_eq!(parse_cache(&Value::Array(Vec::new()), &ctx), Ok(600_000));
        assert!(parse_cache(&Value::Int(3), &ctx).is_err());
    }
}
