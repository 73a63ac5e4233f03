//! The directive `auth.forward`.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lighty_config::{
    CompileCtx, Directive, Key, Kind, NeedKind, Pairs, Reject, Spanned, Strings, Value, parse_int,
    parse_map, parse_period, parse_size, parse_string, parse_strings, parse_switch,
};
use lighty_core::settings::rules::has_prefix;
use lighty_core::settings::services::{ServiceList, ServiceSpec};
use lighty_core::{Settings, module_settings};
use lighty_http::fields::is_token;
use lighty_http::variable_name::is_alias;
use lighty_io::entropy::random_bytes;

use super::identity_fields::IdentityName;
use super::preset::{NO_PRESET, Preset};
use super::rule::{FailureThrottle, ForwardRule};
use super::sign_in::SignIn;
use super::verdict_cache::VerdictCache;

/// Time for a verdict, in milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 5000;

/// Limits of the time for a verdict, in milliseconds.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=60_000;

/// Longest time for which a permission is kept, in seconds.
const CACHE_S_MAX: i64 = 60;

/// Limits of the response, in bytes.
const BODY_BYTES: std::ops::RangeInclusive<u64> = 1024..=1024 * 1024;

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub(super) struct ForwardSettings {
    pub(super) rules: Arc<ForwardRules>,
}
module_settings!(ForwardSettings);

/// The rules of one value of the directive.
#[derive(Default)]
pub(super) struct ForwardRules {
    rules: Vec<Arc<ForwardRule>>,
    cache: OnceLock<VerdictCache>,
}

/// Omits the values of fields for the service, which may be secret.
impl fmt::Debug for ForwardRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.rules.iter().map(|rule| (&rule.prefix, &rule.service, &rule.identity));
        f.debug_list().entries(names).finish()
    }
}

impl ForwardRules {
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The first rule for a path.
    pub(super) fn first(&self, path: &[u8], fold_case: bool) -> Option<&Arc<ForwardRule>> {
        self.rules.iter().find(|rule| has_prefix(path, &rule.prefix, fold_case))
    }

    /// Names of the fields that the services of all rules set, or could set.
    pub(super) fn identity(&self) -> impl Iterator<Item = &IdentityName> {
        self.rules.iter().flat_map(|rule| rule.identity.iter().chain(&rule.identity_of_preset))
    }

    /// The kept permissions.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub(super) fn cache(&self) -> std::io::Result<&VerdictCache> {
        if let Some(cache) = self.cache.get() {
            return Ok(cache);
        }
        let secret = random_bytes()?;
        Ok(self.cache.get_or_init(|| VerdictCache::new(secret)))
    }
}

fn own(s: &mut Settings) -> &mut ForwardSettings {
    s.module_mut()
}

/// The row.
pub(super) fn directives() -> Vec<Directive<Settings>> {
    vec![
        Directive::parsed("auth.forward", Kind::Array, parse, |s: &mut Settings, rules| {
            own(s).rules = Arc::clone(rules);
            let services = rules.rules.iter().filter_map(|rule| rule.service.clone());
            s.module_mut::<ServiceList>().0 = services.collect();
        })
        .module("mod_auth_forward")
        .since("lighty 0.1")
        .needs_at("url", NeedKind::Url)
        .needs_at("backend", NeedKind::Nothing)
        .needs_at("ca-file", NeedKind::Read)
        .default("()")
        .doc(
            "Paths about which a service decides (forward authentication); see [Forward \
             authentication](../forward-auth.md). The first prefix that a path begins with counts. \
             `url` is the service's endpoint, `http://` or `https://`; `backend` is its address if \
             that is another one, such as `unix:/run/auth.sock`, or a list. `preset` is \
             `authelia`, `authentik`, `oauth2-proxy`, `tailscale`, `envoy` or `nginx`. A 2xx \
             permits the request, a 3xx or 4xx is passed on to the client, everything else is 503. \
             `response-headers` are the fields of a permission that the request gets; the client's \
             own are removed in every spelling. `user-header` is the one with the user's name. \
             `ca-file` has the authorities that vouch for an \
             `https://` service, in place of those of `proxy-core.tls-ca-file`. \
             `request-headers` are the client's fields that the service gets (all), `set-headers` \
             further ones. `set-cookie` passes the service's cookies on (enable). `sign-in` is the \
             page to which browsers are redirected in place of a 401; `{url}` and `{uri}` are the \
             requested URL, and its path and query. `timeout` is the time for a verdict (\"5s\"), \
             `max-response` the size of the service's response (\"64K\"), `cache` the seconds for \
             which a permission is kept (0 to 60). With `exempt`, the service is not asked.",
        )
        .example(
            "auth.forward = ( \"/\" => (\n    \"url\" => \"http://127.0.0.1:9091\",\n    \
             \"preset\" => \"authelia\"\n) )",
        ),
    ]
}

const FORM: &str = "write `( \"/prefix\" => ( \"url\" => \"http://127.0.0.1:9091\", \"preset\" => \"authelia\" ) )`";

const KEYS: [&str; 14] = [
    "url",
    "backend",
    "ca-file",
    "preset",
    "request-headers",
    "set-headers",
    "response-headers",
    "user-header",
    "set-cookie",
    "sign-in",
    "timeout",
    "max-response",
    "cache",
    "exempt",
];

/// Values of a rule as written.
struct RuleDraft {
    url: Option<ServiceUrl>,
    backends: Vec<Arc<str>>,
    ca_file: Option<Arc<str>>,
    preset: &'static Preset,
    request_fields: Option<Strings>,
    set_fields: Pairs,
    identity: Option<Vec<IdentityName>>,
    user_field: Option<Arc<str>>,
    passes_cookies: bool,
    sign_in: Option<Arc<str>>,
    timeout_ms: u64,
    body_bytes_max: u64,
    cache_ms: u64,
    is_exempt: bool,
}

impl Default for RuleDraft {
    fn default() -> Self {
        Self {
            url: None,
            backends: Vec::new(),
            ca_file: None,
            preset: &NO_PRESET,
            request_fields: None,
            set_fields: Arc::from([]),
            identity: None,
            user_field: None,
            passes_cookies: true,
            sign_in: None,
            timeout_ms: DEFAULT_TIMEOUT_MS,
            body_bytes_max: 64 * 1024,
            cache_ms: 0,
            is_exempt: false,
        }
    }
}

/// The URL of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServiceUrl {
    is_https: bool,
    authority: Arc<str>,
    /// Path and query; empty if there is none.
    target: Arc<str>,
}

fn parse(value: &Value, ctx: &CompileCtx) -> Result<Arc<ForwardRules>, Reject> {
    let items = value.as_list().ok_or_else(|| Reject::new("must be an array").help(FORM))?;
    let mut rules = ForwardRules::default();
    for (key, item) in items {
        let Some(prefix) = key else {
            return Err(Reject::new("has an element without a path").help(FORM).at(item.span));
        };
        let rule = parse_rule(prefix, item, ctx).map_err(|mut reject| {
            reject.span = reject.span.or(Some(item.span));
            reject
        })?;
        rules.rules.push(Arc::new(rule));
    }
    Ok(Arc::new(rules))
}

fn parse_rule(
    prefix: &Key,
    item: &Spanned<Value>,
    ctx: &CompileCtx,
) -> Result<ForwardRule, Reject> {
    let list = item.value.as_list().ok_or_else(|| Reject::new("needs an array").help(FORM))?;
    let mut draft = RuleDraft::default();
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
    draft.complete(prefix)
}

fn take(draft: &mut RuleDraft, key: &Key, value: &Value, ctx: &CompileCtx) -> Result<(), Reject> {
    match &*key.text {
        "url" => draft.url = Some(parse_url(&parse_string(value)?)?),
        "backend" => draft.backends = parse_strings(value)?.to_vec(),
        "ca-file" => draft.ca_file = Some(parse_string(value)?),
        "preset" => {
            let word = parse_string(value)?;
            draft.preset = Preset::of_word(&word).ok_or_else(|| {
                let known: Vec<_> = Preset::names().collect();
                let reject = Reject::new(format!("does not know \"{word}\""))
                    .did_you_mean(&word, Preset::names());
                match reject.help.is_some() {
                    true => reject,
                    false => reject.help(format!("known: {}", known.join(", "))),
                }
            })?;
        }
        "request-headers" => draft.request_fields = Some(parse_names(value)?),
        "set-headers" => draft.set_fields = parse_set_fields(value)?,
        "response-headers" => {
            draft.identity = Some(parse_identities(parse_strings(value)?.iter().map(|n| &**n))?);
        }
        "user-header" => draft.user_field = Some(one_name(value)?),
        "set-cookie" => draft.passes_cookies = parse_switch(value, ctx)?,
        "sign-in" => draft.sign_in = Some(parse_string(value)?),
        "timeout" => {
            draft.timeout_ms = parse_period(value, 0)?;
            if !TIMEOUT_MS.contains(&draft.timeout_ms) {
                return Err(Reject::new("must be from 100ms to 60s"));
            }
        }
        "max-response" => draft.body_bytes_max = parse_size(value, &BODY_BYTES)?,
        "cache" => {
            draft.cache_ms = parse_int(value, &(0..=CACHE_S_MAX))?.unsigned_abs() * 1000;
        }
        "exempt" => draft.is_exempt = parse_switch(value, ctx)?,
        other => {
            let reject = Reject::new(format!("has an unknown key \"{other}\"")).at(key.span);
            return Err(reject.did_you_mean(other, KEYS));
        }
    }
    Ok(())
}

impl RuleDraft {
    fn complete(self, prefix: &Key) -> Result<ForwardRule, Reject> {
        let (preset, service) = (self.preset, self.service());
        if self.is_exempt != (self.url.is_none() && self.backends.is_empty()) {
            return Err(match self.is_exempt {
                true => Reject::new("has \"exempt\" and a service")
                    .help("an exempt path needs nothing else"),
                false => Reject::new("needs \"url\" or \"backend\"").help(FORM),
            });
        }
        if self.ca_file.is_some() && !self.url.as_ref().is_some_and(|url| url.is_https) {
            return Err(Reject::new("has \"ca-file\", but no \"url\" of https"));
        }
        let of_preset = parse_identities(preset.identity.iter().copied())?;
        let identity = self.identity.unwrap_or_else(|| of_preset.clone());
        let user_field = user_field(self.user_field, preset, &identity)?;
        let sign_in = self.sign_in.as_deref().unwrap_or(preset.sign_in);
        let sign_in = match sign_in {
            "" => None,
            text => Some(SignIn::parse(text).ok_or_else(|| {
                Reject::new(format!("has \"sign-in\" => \"{text}\", which is no page")).help(
                    "write a path or a URL; {url} and {uri} in it are the requested URL, encoded",
                )
            })?),
        };
        let preset_fields = || preset.request.iter().map(|name| Arc::from(*name)).collect();
        let target = match self.url.as_ref().map_or("", |url| &*url.target) {
            "" => preset.path.into(),
            own => own.into(),
        };
        Ok(ForwardRule {
            name: service.as_ref().map_or("auth.forward".into(), |s| Arc::clone(&s.name)),
            prefix: (**prefix).into(),
            service,
            preset,
            target,
            authority: self.url.as_ref().map(|url| Arc::clone(&url.authority)),
            request_fields: self.request_fields.unwrap_or_else(preset_fields),
            set_fields: self.set_fields,
            identity,
            identity_of_preset: of_preset,
            user_field,
            passes_cookies: self.passes_cookies,
            sign_in,
            body_bytes_max: usize::try_from(self.body_bytes_max).unwrap_or(usize::MAX),
            cache_ms: self.cache_ms,
            throttle: FailureThrottle::default(),
        })
    }

    /// The service's name in logs and figures. Services that differ have different names.
    fn service_name(&self, addresses: &str) -> String {
        let mut name = match &self.url {
            Some(url) if url.is_https => format!("auth.forward https://{}", url.authority),
            Some(url) => format!("auth.forward http://{}", url.authority),
            None => format!("auth.forward {addresses}"),
        };
        if self.url.is_some() && !self.backends.is_empty() {
            name.push_str(&format!(" at {addresses}"));
        }
        if let Some(file) = &self.ca_file {
            name.push_str(&format!(" with {file}"));
        }
        if self.timeout_ms != DEFAULT_TIMEOUT_MS {
            name.push_str(&format!(" within {} ms", self.timeout_ms));
        }
        name
    }

    fn service(&self) -> Option<Arc<ServiceSpec>> {
        if self.is_exempt {
            return None;
        }
        let is_https = self.url.as_ref().is_some_and(|url| url.is_https);
        let scheme = if is_https { "https://" } else { "" };
        let addresses: Vec<Arc<str>> = match &*self.backends {
            [] => self.url.iter().map(|url| Arc::clone(&url.authority)).collect(),
            backends => backends.to_vec(),
        };
        let name = self.service_name(&addresses.join(" "));
        let host = self.url.as_ref().map(|url| host_of(&url.authority));
        Some(Arc::new(ServiceSpec {
            name: name.into(),
            addresses: addresses.iter().map(|at| format!("{scheme}{at}").into()).collect(),
            server_name: host.filter(|_| is_https && !self.backends.is_empty()).map(Arc::from),
            ca_file: self.ca_file.clone(),
            timeout_ms: self.timeout_ms,
        }))
    }
}

/// Returns the field with the user's name. A client could choose the name that programs see if it
/// were none of the fields that are removed.
fn user_field(
    own: Option<Arc<str>>,
    preset: &Preset,
    identity: &[IdentityName],
) -> Result<Option<Arc<str>>, Reject> {
    let is_removed = |name: &str| identity.iter().any(|one| one.matches(name.as_bytes()));
    match own {
        Some(own) if is_removed(&own) => Ok(Some(own)),
        Some(own) => Err(Reject::new(format!(
            "has \"user-header\" => \"{own}\", which is not among its \"response-headers\""
        ))),
        None => Ok(Some(preset.user).filter(|user| is_removed(user)).map(Arc::from)),
    }
}

/// The host of an authority, without its port.
fn host_of(authority: &str) -> &str {
    let end = match authority.strip_prefix('[') {
        Some(rest) => return rest.split(']').next().unwrap_or_default(),
        None => authority.find(':').unwrap_or(authority.len()),
    };
    &authority[..end]
}

fn parse_url(text: &str) -> Result<ServiceUrl, Reject> {
    let wrong = |why: &str| {
        Reject::new(format!("has \"{text}\", {why}")).help("write \"http://127.0.0.1:9091/path\"")
    };
    let (is_https, rest) = match text.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        _ => return Err(wrong("which is no URL of http or https")),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    if authority.is_empty() || authority.contains('@') {
        return Err(wrong("which needs a host, without a user"));
    }
    let is_clean = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !is_clean(authority) || !is_clean(target) {
        return Err(wrong("which has characters that a URL cannot have"));
    }
    let target = if target.starts_with('?') { format!("/{target}") } else { target.to_owned() };
    Ok(ServiceUrl { is_https, authority: authority.into(), target: target.into() })
}

/// Fields of a message's framing and routing, which no service may set.
const NEVER_SET: [&str; 10] = [
    "Host",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Upgrade",
    "TE",
    "Trailer",
    "Expect",
    "Keep-Alive",
    "Set-Cookie",
];

const ONLY_OURS: &str = "no service may set that field";

fn check_name(name: &str) -> Result<(), Reject> {
    if !is_token(name.as_bytes()) {
        return Err(Reject::new(format!("has \"{name}\", which is no name of a field")));
    }
    if NEVER_SET.iter().any(|never| is_alias(never.as_bytes(), name.as_bytes())) {
        return Err(Reject::new(format!("has \"{name}\": {ONLY_OURS}")));
    }
    Ok(())
}

fn parse_identities<'n>(names: impl Iterator<Item = &'n str>) -> Result<Vec<IdentityName>, Reject> {
    names.map(parse_identity).collect()
}

/// Reads a name of a field, or the beginning of several before `*`.
fn parse_identity(name: &str) -> Result<IdentityName, Reject> {
    let (text, is_beginning) = match name.strip_suffix('*') {
        Some(beginning) => (beginning, true),
        None => (name, false),
    };
    // A few letters would remove fields that have nothing to do with the service.
    if is_beginning && text.len() < 3 {
        return Err(Reject::new(format!(
            "has \"{name}\": at least three letters stand before `*`"
        )));
    }
    if text.contains('*') {
        return Err(Reject::new(format!("has \"{name}\": `*` stands at the end only")));
    }
    check_name(text)?;
    let identity = IdentityName { text: text.as_bytes().into(), is_beginning };
    match NEVER_SET.iter().find(|never| identity.matches(never.as_bytes())) {
        Some(never) => {
            Err(Reject::new(format!("has \"{name}\", which names {never}, too: {ONLY_OURS}")))
        }
        None => Ok(identity),
    }
}

fn parse_names(value: &Value) -> Result<Strings, Reject> {
    let names = parse_strings(value)?;
    if names.is_empty() {
        return Err(Reject::new("is empty: leave it out, and the service gets all fields"));
    }
    match names.iter().find(|name| !is_token(name.as_bytes())) {
        Some(name) => Err(Reject::new(format!("has \"{name}\", which is no name of a field"))),
        None => Ok(names),
    }
}

fn one_name(value: &Value) -> Result<Arc<str>, Reject> {
    let name = parse_string(value)?;
    check_name(&name)?;
    Ok(name)
}

fn parse_set_fields(value: &Value) -> Result<Pairs, Reject> {
    let pairs = parse_map(value)?;
    for (name, text) in pairs.iter() {
        check_name(name)?;
        if text.chars().any(|c| c.is_control() && c != '\t') {
            return Err(Reject::new(format!("has a value of \"{name}\" with control characters")));
        }
    }
    Ok(pairs)
}
