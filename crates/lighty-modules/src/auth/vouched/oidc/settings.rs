//! The directives `auth.backend.oidc*`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lighty_config::{
    CompileCtx, Directive, Key, Kind as ValueKind, NeedKind, Reject, Spanned, Value, parse_choice,
    parse_period, parse_string, parse_strings, parse_switch,
};
use lighty_core::{Settings, module_settings};
use lighty_identity::ended_file::EndedFile;
use lighty_identity::local_target::is_local;
use lighty_identity::provider::Provider;
use lighty_identity::provider_spec::{
    DiscoveredUrls, GroupList, ProviderKind, ProviderSpec, is_secure_url,
};
use lighty_identity::sealing::{KEY_FILE_BYTES_MAX, SealingKeys};
use lighty_identity::session::SESSION_S_MAX;
use lighty_io::file::followed::Followed;

use crate::auth::ProviderProbe;
use crate::auth::vouched::claim_fields::{ClaimFieldLists, ClaimFields};
use crate::auth::vouched::settings::{parse_claim, parse_fields};

pub(in crate::auth::vouched) const PROVIDERS: &str = "auth.backend.oidc";
pub(in crate::auth::vouched) const KEY_FILE: &str = "auth.backend.oidc.key-file";
pub(in crate::auth::vouched) const ENDED_FILE: &str = "auth.backend.oidc.ended-file";

/// Path beneath which the endpoints of providers are.
const PATH: &str = "/.lighty/oidc/";

/// Limits of a session's duration, in seconds.
const SESSION_S: std::ops::RangeInclusive<u64> = 60..=SESSION_S_MAX as u64;

/// Settings of providers.
#[derive(Clone, Debug)]
pub(in crate::auth::vouched) struct OidcSettings {
    pub(in crate::auth::vouched) providers: Arc<[Arc<SignInProvider>]>,
    pub(super) path: Arc<str>,
    key_file: Option<SealingKeyFile>,
    pub(super) ended_file: Option<EndedFile>,
}
module_settings!(OidcSettings);

#[derive(Clone)]
struct SealingKeyFile(Arc<Followed<SealingKeys>>);

impl std::fmt::Debug for SealingKeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SealingKeyFile").field(&self.0.path()).finish()
    }
}

impl Default for OidcSettings {
    fn default() -> Self {
        Self { providers: Arc::default(), path: PATH.into(), key_file: None, ended_file: None }
    }
}

/// A provider, and the use of its claims.
pub(in crate::auth) struct SignInProvider {
    pub(super) provider: Arc<Provider>,
    pub(super) fields: ClaimFields,
    pub(super) user_claim: Arc<str>,
    pub(super) groups_claim: Arc<str>,
    pub(super) session_s: i64,
    pub(super) after_logout: Arc<str>,
    /// Beginnings of the names of its cookies, without TLS and with it.
    cookie_names: [String; 2],
}

impl std::fmt::Debug for SignInProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SignInProvider").field(self.provider.spec()).finish()
    }
}

impl SignInProvider {
    pub(super) fn name(&self) -> &str {
        &self.provider.spec().name
    }

    /// The beginning of the names of its cookies. Browsers accept `__Host-` from the host itself
    /// over TLS alone.
    pub(super) fn cookie_name(&self, is_secure: bool) -> &str {
        &self.cookie_names[usize::from(is_secure)]
    }
}

impl OidcSettings {
    /// The provider of a rule: the one that it names, or the first.
    pub(in crate::auth::vouched) fn provider(
        &self,
        name: Option<&str>,
    ) -> Option<&Arc<SignInProvider>> {
        match name {
            None => self.providers.first(),
            Some(name) => self.providers.iter().find(|one| one.provider.spec().name == name),
        }
    }

    /// Checks that the providers can be reached, by name.
    pub(in crate::auth::vouched) fn probes(&self) -> Vec<(String, ProviderProbe)> {
        let probe = |one: &Arc<SignInProvider>| {
            let provider = Arc::clone(&one.provider);
            let probe = move || provider.probe().map_err(io::Error::other);
            (one.name().to_owned(), Box::new(probe) as ProviderProbe)
        };
        self.providers.iter().map(probe).collect()
    }

    /// The keys for cookies: of the file, or one of this process.
    ///
    /// # Errors
    /// The file has not been read, or the kernel has no random bytes.
    pub(super) fn keys(&self) -> io::Result<Arc<SealingKeys>> {
        static OWN: OnceLock<Arc<SealingKeys>> = OnceLock::new();
        if let Some(SealingKeyFile(file)) = &self.key_file {
            return file.contents().ok_or_else(|| io::Error::other("it has not been read"));
        }
        if let Some(own) = OWN.get() {
            return Ok(Arc::clone(own));
        }
        let own = Arc::new(SealingKeys::random()?);
        Ok(Arc::clone(OWN.get_or_init(|| own)))
    }
}

/// The file of keys at a path.
pub(in crate::auth::vouched) fn key_file(path: &str) -> Arc<Followed<SealingKeys>> {
    let parse = |bytes: Vec<u8>| SealingKeys::parse(&bytes).map_err(io::Error::other);
    Followed::at(Path::new(path), KEY_FILE_BYTES_MAX, parse)
}

fn own(s: &mut Settings) -> &mut OidcSettings {
    s.module_mut()
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_auth").since("lighty 0.1")
}

/// The rows.
pub(in crate::auth::vouched) fn directives() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed(PROVIDERS, ValueKind::Array, parse, |s: &mut Settings, providers| {
            own(s).providers = Arc::clone(providers);
            let fields = providers.iter().map(|provider| Arc::clone(&provider.fields));
            s.module_mut::<ClaimFieldLists>().of_providers = fields.collect();
        }))
        .needs_at("issuer", NeedKind::Url)
        .needs_at("token-url", NeedKind::Url)
        .needs_at("userinfo-url", NeedKind::Url)
        .needs_at("groups-url", NeedKind::Url)
        .needs_at("client-secret-file", NeedKind::Read)
        .needs_at("ca-file", NeedKind::Read)
        .default("()")
        .doc(
            "Providers that sign users in (`\"method\" => \"oidc\"` of `auth.require`), by name; \
             see [Sign-in](../sign-in.md). `issuer` is the provider's URL, `client-id` and \
             `client-secret-file` are those of the application there. `type` is `oidc`, `github` \
             or `oauth2`; the last one needs `authorization-url`, `token-url` and `userinfo-url`. \
             `scopes` are the requested ones (\"openid profile email\"), `userinfo` asks for \
             further claims (disable), `user-claim` names the user (`sub`), `groups-claim` the \
             groups (`groups`), `groups-url` is a list of groups that the provider has elsewhere, and \
             `groups-member` the member with their names (`name`, for GitHub `login`), `claims` are \
             request fields with the values of claims, as in \
             `auth.backend.jwt.claims`. `session` is the time after which a user must sign in again \
             (\"8h\"), `after-logout` the path for users who have signed out (`/`). `ca-file` has \
             the authorities that vouch for the provider, in place of the system's.",
        )
        .example(
            "auth.backend.oidc = ( \"corp\" => (\n    \"issuer\" => \
             \"https://auth.example.org/realms/main\",\n    \"client-id\" => \"site\",\n    \
             \"client-secret-file\" => \"/etc/lighty/oidc-secret\"\n) )",
        ),
        row(Directive::parsed(
            "auth.backend.oidc.path",
            ValueKind::String,
            |value, _| parse_path(value),
            |s, path| own(s).path = Arc::clone(path),
        ))
        .default("/.lighty/oidc/")
        .doc(
            "Path beneath which providers lead back: `PATH/NAME/callback` is the redirect URI of \
             the provider with that name. `logout`, `login` and `backchannel` are beside it.",
        )
        .example("auth.backend.oidc.path = \"/auth/\""),
        row(Directive::parsed(KEY_FILE, ValueKind::String, parse_key_file, |s, file| {
            own(s).key_file.clone_from(file);
        }))
        .needs(NeedKind::Read)
        .default("")
        .doc(
            "File with keys for the cookies of sessions, a line of at least 32 characters each. \
             The first one seals, all of them open; the file is read again when it changes. \
             Servers behind one name share it. Without it, sessions end with the process.",
        )
        .example("auth.backend.oidc.key-file = \"/etc/lighty/session-keys\""),
        row(Directive::parsed(ENDED_FILE, ValueKind::String, parse_ended_file, |s, file| {
            own(s).ended_file.clone_from(file);
        }))
        .needs(NeedKind::WrittenFile)
        .default("")
        .doc(
            "File with the sessions that users and providers have ended before their time, which \
             the server makes. With `auth.backend.oidc.key-file` sessions outlive the process; \
             without this file, so do those that have ended. It has at most 4 MiB: beyond that, \
             old entries end all sessions of their time.",
        )
        .example("auth.backend.oidc.ended-file = \"/var/lib/lighty/ended-sessions\""),
    ]
}

fn parse_path(value: &Value) -> Result<Arc<str>, Reject> {
    let path = parse_string(value)?;
    let is_path = is_local(path.as_bytes()) && path.ends_with('/') && path.len() > 1;
    match is_path && !path.contains(['?', '#', '%']) {
        true => Ok(path),
        false => Err(Reject::new("must be a path that begins and ends with a slash")),
    }
}

fn parse_key_file(value: &Value, _: &CompileCtx) -> Result<Option<SealingKeyFile>, Reject> {
    let path = parse_string(value)?;
    Ok((!path.is_empty()).then(|| SealingKeyFile(key_file(&path))))
}

fn parse_ended_file(value: &Value, _: &CompileCtx) -> Result<Option<EndedFile>, Reject> {
    let path = parse_string(value)?;
    Ok((!path.is_empty()).then(|| EndedFile::at(Path::new(&*path))))
}

const FORM: &str = "write `( \"name\" => ( \"issuer\" => \"https://…\", \"client-id\" => \"…\", \
                    \"client-secret-file\" => \"/…\" ) )`";

const KEYS: [&str; 19] = [
    "type",
    "issuer",
    "client-id",
    "client-secret-file",
    "ca-file",
    "scopes",
    "authorization-url",
    "token-url",
    "userinfo-url",
    "end-session-url",
    "userinfo",
    "user-claim",
    "groups-claim",
    "groups-url",
    "groups-member",
    "claims",
    "session",
    "after-logout",
    "secret-in-form",
];

/// Types of providers.
const TYPES: [&str; 3] = ["oidc", "github", "oauth2"];

/// Values of a provider as written.
struct ProviderDraft {
    kind: usize,
    issuer: Arc<str>,
    client_id: Arc<str>,
    secret_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    scopes: Option<String>,
    urls: DiscoveredUrls,
    asks_userinfo: bool,
    user_claim: Option<Arc<str>>,
    groups_claim: Arc<str>,
    groups_url: Option<String>,
    groups_member: Option<Arc<str>>,
    fields: ClaimFields,
    session_s: u64,
    after_logout: Arc<str>,
}

impl Default for ProviderDraft {
    fn default() -> Self {
        Self {
            kind: 0,
            issuer: "".into(),
            client_id: "".into(),
            secret_file: None,
            ca_file: None,
            scopes: None,
            urls: DiscoveredUrls::default(),
            asks_userinfo: false,
            user_claim: None,
            groups_claim: "groups".into(),
            groups_url: None,
            groups_member: None,
            fields: Arc::default(),
            session_s: 8 * 3600,
            after_logout: "/".into(),
        }
    }
}

fn parse(value: &Value, ctx: &CompileCtx) -> Result<Arc<[Arc<SignInProvider>]>, Reject> {
    let items = value.as_list().ok_or_else(|| Reject::new("must be an array").help(FORM))?;
    let mut providers: Vec<Arc<SignInProvider>> = Vec::new();
    for (key, item) in items {
        let Some(name) = key else {
            return Err(Reject::new("has a provider without a name").help(FORM).at(item.span));
        };
        let provider = parse_provider(name, item, ctx).map_err(|mut reject| {
            reject.span = reject.span.or(Some(item.span));
            reject
        })?;
        providers.push(Arc::new(provider));
    }
    Ok(providers.into())
}

fn parse_provider(
    name: &Key,
    item: &Spanned<Value>,
    ctx: &CompileCtx,
) -> Result<SignInProvider, Reject> {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > 32 || !name.bytes().all(is_name) {
        let text =
            format!("has the provider \"{}\": names are up to 32 of a-z, 0-9 and -", &**name);
        return Err(Reject::new(text).at(name.span));
    }
    let list = item.value.as_list().ok_or_else(|| Reject::new("needs an array").help(FORM))?;
    let mut draft = ProviderDraft::default();
    for (key, value) in list {
        let Some(key) = key else {
            return Err(Reject::new("has an element without a key").help(FORM).at(value.span));
        };
        take(&mut draft, key, &value.value, ctx).map_err(|mut reject| {
            if reject.span.is_none() {
                reject.message = format!("\"{}\" {}", key.text, reject.message);
                reject.span = Some(value.span);
            }
            reject
        })?;
    }
    draft.complete(name)
}

fn take(
    draft: &mut ProviderDraft,
    key: &Key,
    value: &Value,
    ctx: &CompileCtx,
) -> Result<(), Reject> {
    match &*key.text {
        "type" => draft.kind = parse_choice(value, &TYPES)?,
        "issuer" => draft.issuer = parse_string(value)?,
        "client-id" => draft.client_id = parse_string(value)?,
        "client-secret-file" => draft.secret_file = Some(PathBuf::from(&*parse_string(value)?)),
        "ca-file" => draft.ca_file = Some(PathBuf::from(&*parse_string(value)?)),
        "scopes" => draft.scopes = Some(parse_strings(value)?.join(" ")),
        "authorization-url" => draft.urls.authorization = parse_url(value)?,
        "token-url" => draft.urls.token = parse_url(value)?,
        "userinfo-url" => draft.urls.userinfo = Some(parse_url(value)?),
        "end-session-url" => draft.urls.end_session = Some(parse_url(value)?),
        "secret-in-form" => draft.urls.posts_secret = parse_switch(value, ctx)?,
        "userinfo" => draft.asks_userinfo = parse_switch(value, ctx)?,
        "user-claim" => draft.user_claim = Some(parse_claim(&parse_string(value)?)?),
        "groups-claim" => draft.groups_claim = parse_claim(&parse_string(value)?)?,
        "groups-url" => draft.groups_url = Some(parse_url(value)?),
        "groups-member" => draft.groups_member = Some(parse_claim(&parse_string(value)?)?),
        "claims" => draft.fields = parse_fields(value)?,
        "session" => {
            draft.session_s = parse_period(value, 0)? / 1000;
            if !SESSION_S.contains(&draft.session_s) {
                return Err(Reject::new("must be from 1min to 30d"));
            }
        }
        "after-logout" => {
            draft.after_logout = parse_string(value)?;
            if !is_local(draft.after_logout.as_bytes()) {
                return Err(Reject::new("must be a path of this site"));
            }
        }
        other => {
            let reject = Reject::new(format!("has an unknown key \"{other}\"")).at(key.span);
            return Err(reject.did_you_mean(other, KEYS));
        }
    }
    Ok(())
}

fn parse_url(value: &Value) -> Result<String, Reject> {
    let url = parse_string(value)?;
    match is_secure_url(&url) {
        true => Ok(url.to_string()),
        false => Err(Reject::new("must be a URL of https; http is for this machine only")),
    }
}

impl ProviderDraft {
    fn complete(mut self, name: &Key) -> Result<SignInProvider, Reject> {
        let is_openid = self.kind == 0;
        let is_github = self.kind == 1;
        if is_github {
            let or = |own: &mut String, default: &str| {
                if own.is_empty() {
                    default.clone_into(own);
                }
            };
            or(&mut self.urls.authorization, "https://github.com/login/oauth/authorize");
            or(&mut self.urls.token, "https://github.com/login/oauth/access_token");
            self.urls.userinfo.get_or_insert_with(|| "https://api.github.com/user".to_owned());
            self.urls.posts_secret = true;
        }
        let has_urls = !self.urls.authorization.is_empty()
            && !self.urls.token.is_empty()
            && self.urls.userinfo.is_some();
        let lacks = match () {
            () if self.client_id.is_empty() => Some("client-id"),
            () if is_openid && self.issuer.is_empty() => Some("issuer"),
            () if !is_openid && !has_urls => {
                Some("authorization-url\", \"token-url\" and \"userinfo-url")
            }
            () => None,
        };
        if let Some(lacks) = lacks {
            return Err(Reject::new(format!("needs \"{lacks}\"")).help(FORM));
        }
        if is_openid && !is_secure_url(&self.issuer) {
            let text = format!("has the issuer \"{}\": https is needed", self.issuer);
            return Err(Reject::new(text).help("http is for this machine only"));
        }
        let scopes = match (self.kind, &self.groups_url) {
            (0, _) => "openid profile email",
            (1, None) => "read:user",
            // Without the second one, GitHub lists public memberships alone.
            (1, Some(_)) => "read:user read:org",
            _ => "",
        };
        let user_claim = if is_github { "login" } else { "sub" };
        let user_claim = self.user_claim.take().unwrap_or_else(|| user_claim.into());
        let groups = self.group_list(is_github, &user_claim)?;
        let kind = if is_openid { ProviderKind::OpenId } else { ProviderKind::OAuth2 };
        let spec = ProviderSpec {
            name: (**name).to_owned(),
            kind,
            issuer: if is_openid { self.issuer.to_string() } else { String::new() },
            urls: self.urls,
            client_id: self.client_id.to_string(),
            secret_file: self.secret_file,
            ca_file: self.ca_file,
            scopes: self.scopes.unwrap_or_else(|| scopes.to_owned()),
            asks_userinfo: self.asks_userinfo || !is_openid,
            groups,
        };
        Ok(SignInProvider {
            provider: Provider::of(spec),
            fields: self.fields,
            user_claim,
            groups_claim: self.groups_claim,
            session_s: i64::try_from(self.session_s).unwrap_or(0),
            after_logout: self.after_logout,
            cookie_names: ["", "__Host-"].map(|prefix| format!("{prefix}lighty-{}", &**name)),
        })
    }

    fn group_list(
        &mut self,
        is_github: bool,
        user_claim: &str,
    ) -> Result<Option<GroupList>, Reject> {
        let Some(url) = self.groups_url.take() else {
            return match self.groups_member {
                Some(_) => Err(Reject::new("has \"groups-member\" without \"groups-url\"")),
                None => Ok(None),
            };
        };
        let is_taken = |claim: &str| matches!(claim, "sub" | "sid") || claim == user_claim;
        if self.groups_claim.contains('.') || is_taken(&self.groups_claim) {
            let text = "needs another \"groups-claim\" for the list of \"groups-url\"";
            let help = "it is a name without a dot, and not sub, sid or the user's claim";
            return Err(Reject::new(text).help(help));
        }
        let member = self.groups_member.take();
        let member = member.unwrap_or_else(|| if is_github { "login" } else { "name" }.into());
        Ok(Some(GroupList {
            url,
            member: member.to_string(),
            claim: self.groups_claim.to_string(),
        }))
    }
}
