//! The directives of `mod_auth`.

use std::sync::Arc;

use lighty_config::{
    CompileCtx, Directive, Kind as ValueKind, NeedKind, Reject, Value, parse_int_clamped,
};
use lighty_core::settings::rules::has_prefix;
use lighty_core::{Settings, module_settings};

use super::backend::{self, OutsideBackend, UserBackend};
use super::failures::{self, FailureLimit};
use super::require::{self, Rule};
use super::users::UserFileFormat;

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct AuthSettings {
    pub(super) backend: Option<UserBackend>,
    pub(super) plain_users: Arc<str>,
    pub(super) plain_groups: Arc<str>,
    pub(super) htpasswd_users: Arc<str>,
    pub(super) htdigest_users: Arc<str>,
    pub(super) rules: Arc<[Arc<Rule>]>,
    pub(super) cache_ms: u64,
    pub(super) extern_authn: bool,
    pub(super) delay: bool,
    pub(super) pending_max: usize,
    pub(super) failures: Option<FailureLimit>,
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
            failures: None,
            debug: false,
        }
    }
}
module_settings!(AuthSettings);

impl AuthSettings {
    /// The user file, if one is configured.
    pub(super) fn users(&self) -> Option<(UserFileFormat, &Arc<str>)> {
        let Some(UserBackend::File(kind)) = self.backend else { return None };
        let path = match kind {
            UserFileFormat::Plain => &self.plain_users,
            UserFileFormat::Htpasswd => &self.htpasswd_users,
            UserFileFormat::Htdigest => &self.htdigest_users,
        };
        (!path.is_empty()).then_some((kind, path))
    }

    /// The backend, if another machine or process checks passwords.
    pub(super) fn outside_backend(&self) -> Option<OutsideBackend> {
        match self.backend? {
            UserBackend::Outside(backend) => Some(backend),
            UserBackend::File(_) => None,
        }
    }

    /// The first rule for a path.
    pub(super) fn rule(&self, path: &[u8], fold_case: bool) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| has_prefix(path, &rule.prefix, fold_case))
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
             `method` is `basic`, `digest`, `bearer` ([tokens](../tokens.md)), `oidc` ([sign-in](../sign-in.md); with `provider`, \
             the name of one) or several with `|` \
             between them, or `extern`: nobody is asked for a password, and the user is the one that a client certificate names \
             (`ssl.verifyclient.username`). `realm` is the name that \
             browsers show. `require` is `valid-user`, or names of whom it takes one: `user=kim`, \
             `group=staff`, `claim:role=admin`, with `|` between them; `host=` admits no user, as in lighttpd. For \
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
            ValueKind::Choice(backend::NAMES),
            |value, _| UserBackend::parse(value),
            |s, v| own(s).backend = *v,
        ))
        .default("")
        .doc(
            "Source of users: the format of a user file, `ldap` for a directory, or `pam`; see \
             [Directories](../directories.md). Digest authentication needs `plain` or `htdigest`. \
             Changed files are read again. Invalid lines are logged with their number and \
             skipped. If the file cannot be read, every request is answered 500.",
        )
        .example("auth.backend = \"htpasswd\""),
        row(Directive::bool("auth.extern-authn", |s, on| own(s).extern_authn = on))
            .default("disable")
            .doc(
                "Accepts users authenticated by a trusted proxy (see `extforward.params`) without \
                 a password.",
            )
            .example("auth.extern-authn = \"enable\""),
    ]
}

fn files() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::string("auth.backend.plain.userfile", |s, v| own(s).plain_users = v))
            .needs(NeedKind::Read)
            .default("")
            .doc("File with lines of `name:password`, in plain text; best readable for few.")
            .example("auth.backend.plain.userfile = \"/etc/lighty/users\""),
        row(Directive::string("auth.backend.plain.groupfile", |s, v| own(s).plain_groups = v))
            .needs(NeedKind::Read)
            .default("")
            .doc("File with lines of `group: name name`, for `group=` of `auth.require`.")
            .example("auth.backend.plain.groupfile = \"/etc/lighty/groups\""),
        row(Directive::string("auth.backend.htpasswd.userfile", |s, v| {
            own(s).htpasswd_users = v;
        }))
        .needs(NeedKind::Read)
        .default("")
        .doc(
            "File made by Apache's `htpasswd`: bcrypt (`-B`, to be preferred), SHA-crypt (`-2`, \
             `-5`), `$apr1$` and `$1$` (`-m`), `{SHA}` (`-s`), and the traditional crypt (`-d`), \
             which is weak and reads eight characters; by `mkpasswd`: yescrypt (`$y$`) and \
             scrypt (`$7$`) that take up to 64 MiB of memory; by `lighty hash-password`: bcrypt \
             and Argon2 (`$argon2id$`, `$argon2i$`, up to 256 MiB and four passes over it); and \
             `{SSHA}` of LDAP directories. Plain text (`-p`) is refused.",
        )
        .example("auth.backend.htpasswd.userfile = \"/etc/lighty/htpasswd\""),
        row(Directive::string("auth.backend.htdigest.userfile", |s, v| {
            own(s).htdigest_users = v;
        }))
        .needs(NeedKind::Read)
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
            "Seconds for which a correct password is not hashed again; 0: every request hashes it. \
             Only a keyed hash is kept. A change of the file clears the cache immediately.",
        )
        .example("auth.cache = ( \"max-age\" => 60 )"),
        row(Directive::bool("auth.delay-invalid-creds", |s, on| own(s).delay = on))
            .since("lighty 0.1")
            .default("enable")
            .doc(
                "Delays the response to wrong credentials by a second, to slow down guessing \
                 (lighttpd 1.4: `server.feature-flags`).",
            )
            .example("auth.delay-invalid-creds = \"disable\""),
        row(Directive::int("auth.max-pending", 1..=65_536, |s, v| {
            own(s).pending_max = usize::try_from(v).unwrap_or(1);
        }))
        .since("lighty 0.1")
        .default("256")
        .doc(
            "Maximum number of passwords waiting to be hashed, which happens outside the event \
             loops. Clients (for IPv6: /64 networks) take turns. Passwords in `auth.cache` do not \
             wait. At the limit, the new request or the last one of the client with the most \
             waiting requests is answered 503.",
        )
        .example("auth.max-pending = 1000"),
        row(Directive::parsed("auth.failures", ValueKind::Array, failures::parse, |s, limit| {
            own(s).failures = *limit;
        }))
        .since("lighty 0.1")
        .default("()")
        .doc(
            "Bans clients (for IPv6: /64 networks) that send wrong credentials `max` times `within` \
             so many seconds (default: 600): for `ban` seconds (600), their requests for protected \
             paths get 429, and new connections are refused, as after `lighty ctl ban`, which \
             lists and ends these bans. Clients behind a trusted proxy are only refused by \
             request. `max` 0: no client is banned.",
        )
        .example("auth.failures = ( \"max\" => 5, \"within\" => 600, \"ban\" => 3600 )"),
        row(Directive::int("auth.debug", 0..=2, |s, v| own(s).debug = v > 0))
            .default("0")
            .doc("Logs each authenticated user, and the reason of each refusal.")
            .example("auth.debug = 1"),
    ]
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
