//! `auth.require`: access rules and their schemes.

use std::sync::Arc;

use lighty_config::{CompileCtx, Key, Reject, Spanned, Value, parse_bool, parse_string};

use super::digest::Algorithm;
use super::users::Groups;

/// The rule for one path prefix.
#[derive(Clone)]
pub(super) struct Rule {
    /// The path prefix.
    pub(super) prefix: Arc<str>,
    pub(super) realm: Arc<str>,
    pub(super) basic: bool,
    /// Tokens are accepted.
    pub(super) bearer: bool,
    /// Browsers are led to a provider that signs their users in.
    pub(super) oidc: bool,
    /// Name of the provider; `None`: the first one.
    pub(super) provider: Option<Arc<str>>,
    /// Offered algorithms, in this order; empty: no digest.
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) userhash: bool,
    pub(super) nonce_secret: Arc<str>,
    require: Vec<Require>,
}

/// A requirement. The authenticated user must satisfy at least one of a rule's requirements.
#[derive(Clone, Debug)]
enum Require {
    ValidUser,
    User(Arc<str>),
    Group(Arc<str>),
    /// A claim of a token has a value.
    Claim {
        claim: Arc<str>,
        value: Arc<str>,
    },
    /// `host=`: no user satisfies it. It has no effect in lighttpd; treating it as a permission
    /// would admit users that the rule does not name.
    Host,
}

/// Omits the secret.
impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule")
            .field("prefix", &self.prefix)
            .field("realm", &self.realm)
            .field("basic", &self.basic)
            .field("bearer", &self.bearer)
            .field("oidc", &self.oidc)
            .field("provider", &self.provider)
            .field("algorithms", &self.algorithms)
            .field("userhash", &self.userhash)
            .field("has_nonce_secret", &!self.nonce_secret.is_empty())
            .field("require", &self.require)
            .finish()
    }
}

impl Rule {
    /// True if the authenticated user may pass.
    pub(super) fn admits(&self, name: &[u8], groups: Option<&Groups>) -> bool {
        let is_in_group = |group: &str| groups.is_some_and(|groups| groups.contains(group, name));
        self.admits_attested(name, &is_in_group, &|_, _| false)
    }

    /// True if a user with these groups and claims may pass.
    pub(super) fn admits_attested(
        &self,
        name: &[u8],
        is_in_group: &dyn Fn(&str) -> bool,
        has_claim: &dyn Fn(&str, &str) -> bool,
    ) -> bool {
        self.require.iter().any(|require| match require {
            Require::ValidUser => true,
            Require::User(user) => user.as_bytes() == name,
            Require::Group(group) => is_in_group(group),
            Require::Claim { claim, value } => has_claim(claim, value),
            Require::Host => false,
        })
    }

    /// True if the rule requests no password: a client certificate identifies the user, if
    /// anything does.
    pub(super) fn is_extern(&self) -> bool {
        !self.basic && !self.bearer && !self.oidc && self.algorithms.is_empty()
    }

    /// The groups that the rule mentions.
    #[cfg(feature = "identity")]
    pub(super) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.require.iter().filter_map(|require| match require {
            Require::Group(group) => Some(group),
            Require::ValidUser | Require::User(_) | Require::Claim { .. } | Require::Host => None,
        })
    }

    /// True if the rule mentions groups.
    pub(super) fn needs_groups(&self) -> bool {
        self.require.iter().any(|require| matches!(require, Require::Group(_)))
    }
}

const FORM: &str = "write `( \"/prefix\" => ( \"method\" => \"basic\", \"realm\" => \"name\", \
                    \"require\" => \"valid-user\" ) )`";

const KEYS: &[&str] =
    &["method", "realm", "require", "provider", "algorithm", "userhash", "nonce-secret"];

/// Parses the directive.
pub(super) fn parse(value: &Value, ctx: &CompileCtx) -> Result<Arc<[Arc<Rule>]>, Reject> {
    let items = value.as_list().ok_or_else(|| Reject::new("must be an array").help(FORM))?;
    items
        .iter()
        .map(|(key, item)| match key {
            Some(key) => parse_rule(key, item, ctx).map(Arc::new).map_err(|mut reject| {
                reject.span = reject.span.or(Some(item.span));
                reject
            }),
            None => Err(Reject::new("has an element without a path").help(FORM).at(item.span)),
        })
        .collect()
}

fn parse_rule(prefix: &Key, item: &Spanned<Value>, ctx: &CompileCtx) -> Result<Rule, Reject> {
    let list = item.value.as_list().ok_or_else(|| Reject::new("needs an array").help(FORM))?;
    let mut rule = Rule {
        prefix: (**prefix).into(),
        realm: "".into(),
        basic: false,
        bearer: false,
        oidc: false,
        provider: None,
        algorithms: Vec::new(),
        userhash: false,
        nonce_secret: "".into(),
        require: Vec::new(),
    };
    let mut methods = None;
    for (key, value) in list {
        let Some(key) = key else {
            return Err(Reject::new("has an element without a key").help(FORM).at(value.span));
        };
        let at = |reject: Reject| reject.at(value.span);
        match &**key {
            "method" => methods = Some(parse_methods(&value.value).map_err(at)?),
            "realm" => rule.realm = parse_realm(&value.value).map_err(at)?,
            "provider" => rule.provider = Some(parse_string(&value.value).map_err(at)?),
            "require" => rule.require = parse_require(&value.value, ctx).map_err(at)?,
            "algorithm" => rule.algorithms = parse_algorithms(&value.value).map_err(at)?,
            "userhash" => rule.userhash = parse_bool(&value.value).map_err(at)?,
            "nonce-secret" => rule.nonce_secret = parse_string(&value.value).map_err(at)?,
            other => {
                let reject = Reject::new(format!("has an unknown key \"{other}\"")).at(key.span);
                return Err(reject.did_you_mean(other, KEYS.iter().copied()));
            }
        }
    }
    let has_realm = list.iter().any(|(key, _)| key.as_deref() == Some("realm"));
    complete(rule, methods, has_realm)
}

fn complete(mut rule: Rule, methods: Option<Methods>, has_realm: bool) -> Result<Rule, Reject> {
    let Methods { basic, digest, bearer, oidc } = methods.unwrap_or_default();
    (rule.basic, rule.bearer, rule.oidc) = (basic, bearer, oidc);
    let missing = match () {
        () if methods.is_none() => Some("method"),
        () if !has_realm => Some("realm"),
        () if rule.require.is_empty() => Some("require"),
        () => None,
    };
    if let Some(key) = missing {
        return Err(Reject::new(format!("needs \"{key}\"")).help(FORM));
    }
    match digest {
        true if rule.algorithms.is_empty() => rule.algorithms.push(Algorithm::Md5),
        true => {}
        false => rule.algorithms.clear(),
    }
    Ok(rule)
}

/// Methods of a rule; none for "extern".
#[derive(Clone, Copy, Default)]
struct Methods {
    basic: bool,
    digest: bool,
    bearer: bool,
    oidc: bool,
}

fn parse_methods(value: &Value) -> Result<Methods, Reject> {
    let text = parse_string(value)?;
    let mut methods = Methods::default();
    if text.trim() == "extern" {
        return Ok(methods);
    }
    for word in text.split('|') {
        match word.trim() {
            "basic" => methods.basic = true,
            "digest" => methods.digest = true,
            "bearer" if cfg!(feature = "identity") => methods.bearer = true,
            "oidc" if cfg!(feature = "identity") => methods.oidc = true,
            "bearer" | "oidc" => {
                let text =
                    "needs a part that this build lacks; build with the feature \"identity\"";
                return Err(Reject::new(text));
            }
            _ => {
                let text = "\"method\" is \"basic\", \"digest\", \"bearer\", \"oidc\", several with `|` \
                            between them, or \"extern\"";
                return Err(Reject::new(text));
            }
        }
    }
    Ok(methods)
}

fn parse_realm(value: &Value) -> Result<Arc<str>, Reject> {
    let realm = parse_string(value)?;
    if realm.chars().any(char::is_control) {
        return Err(Reject::new("\"realm\" must be text without control characters"));
    }
    Ok(realm)
}

fn parse_algorithms(value: &Value) -> Result<Vec<Algorithm>, Reject> {
    let mut algorithms = Vec::new();
    for name in parse_string(value)?.split('|') {
        let help = "write \"MD5\", \"SHA-256\" or \"SHA-256|MD5\"";
        let algorithm = Algorithm::of_name(name.trim()).ok_or_else(|| {
            Reject::new(format!("has an unknown algorithm \"{name}\"")).help(help)
        })?;
        if !algorithms.contains(&algorithm) {
            algorithms.push(algorithm);
        }
    }
    // RFC 7616 section 3.7: the server's preferred algorithm comes first.
    algorithms.sort_by_key(|algorithm| !algorithm.is_sha256());
    Ok(algorithms)
}

fn parse_require(value: &Value, ctx: &CompileCtx) -> Result<Vec<Require>, Reject> {
    let text = parse_string(value)?;
    text.split('|').map(|word| parse_requirement(word.trim(), ctx)).collect()
}

fn parse_requirement(word: &str, ctx: &CompileCtx) -> Result<Require, Reject> {
    if let Some(condition) = word.strip_prefix("claim:") {
        return match condition.split_once('=') {
            Some((claim, value)) if !claim.is_empty() && !value.is_empty() => {
                Ok(Require::Claim { claim: claim.into(), value: value.into() })
            }
            _ => Err(Reject::new(format!("cannot require \"{word}\""))
                .help("write \"claim:role=admin\"")),
        };
    }
    match word.split_once('=') {
        None if word == "valid-user" => Ok(Require::ValidUser),
        Some(("user", name)) if !name.is_empty() => Ok(Require::User(name.into())),
        Some(("group", name)) if !name.is_empty() => Ok(Require::Group(name.into())),
        Some(("host", address)) if !address.is_empty() => {
            let text = format!("has \"{word}\", which admits no user");
            let help = format!(
                "to admit certain addresses alone, add `$HTTP[\"remote-ip\"] != \"{address}\" {{ \
                 url.access-deny = ( \"\" ) }}`"
            );
            ctx.warn(Reject::new(text).help(help));
            Ok(Require::Host)
        }
        _ => Err(Reject::new(format!("cannot require \"{word}\"")).help(
            "write \"valid-user\", \"user=kim|user=lee\", \"group=staff\" or \"claim:role=admin\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(require: &str) -> Rule {
        Rule {
            prefix: "/".into(),
            realm: "r".into(),
            basic: true,
            bearer: false,
            oidc: false,
            provider: None,
            algorithms: Vec::new(),
            userhash: false,
            nonce_secret: "hush".into(),
            require: required(require).expect(require),
        }
    }

    fn required(text: &str) -> Result<Vec<Require>, Reject> {
        parse_require(&Value::Str(text.to_owned()), &CompileCtx::nowhere("auth.require"))
    }

    #[test]
    fn one_requirement_is_enough() {
        let (groups, _) = Groups::parse(b"staff: lee");
        let admits = |text, name: &[u8]| rule(text).admits(name, Some(&groups));
        assert!(admits("valid-user", b"anybody"));
        assert!(admits("user=kim|user=lee", b"lee") && !admits("user=kim", b"lee"));
        assert!(admits("group=staff", b"lee") && !admits("group=staff", b"kim"));
        assert!(admits("group=staff|user=kim", b"kim"));
        assert!(rule("user=a|group=b").needs_groups() && !rule("user=a").needs_groups());
    }

    #[test]
    fn host_alone_admits_no_user() {
        for host in ["::/0", "0.0.0.0/0", "192.0.2.7", "name.example", "1.2.3.4/33", "*"] {
            let admits = |text: &str, name| rule(text).admits(name, None);
            assert!(!admits(&format!("host={host}"), b"kim"), "{host}");
            assert!(admits(&format!("host={host}|user=kim"), b"kim"), "{host}");
            assert!(!admits(&format!("user=lee|host={host}"), b"kim"), "{host}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert!(!format!("{:?}", rule("valid-user")).contains("hush"));
    }

    #[test]
    fn invalid_requirements_are_refused() {
        for bad in
            ["", "valid-users", "user=", "group", "host", "host=", "claim:", "claim:a", "claim:=b"]
        {
            assert!(required(bad).is_err(), "{bad}");
        }
    }
}
