//! The directives `auth.backend.jwt.*`.

use std::path::Path;
use std::sync::Arc;

use lighty_config::{
    CompileCtx, Directive, Kind as ValueKind, NeedKind, Reject, Value, parse_map, parse_string,
    parse_strings,
};
use lighty_core::{Settings, module_settings};
use lighty_http::fields::is_token;
use lighty_http::variable_name::is_alias;
use lighty_identity::key_source::KeySource;
use lighty_identity::remote_keys::RemoteKeys;
use lighty_identity::signature_algorithm::SignatureAlgorithm;
use lighty_identity::token_policy::TokenPolicy;

use super::claim_fields::{ClaimField, ClaimFieldLists, ClaimFields};
use super::token_source::TokenSource;

pub(super) const JWKS: &str = "auth.backend.jwt.jwks";
pub(super) const CA_FILE: &str = "auth.backend.jwt.ca-file";
pub(super) const SECRET_FILE: &str = "auth.backend.jwt.secret-file";

/// Settings of tokens.
#[derive(Clone, Debug)]
pub(super) struct VouchedSettings {
    jwks: Option<JwksLocation>,
    /// The keys at `jwks`, with the authorities in `ca_file`.
    jwks_source: Option<Arc<KeySource>>,
    ca_file: Option<Arc<str>>,
    secret: Option<Arc<KeySource>>,
    pub(super) policy: Arc<TokenPolicy>,
    pub(super) source: TokenSource,
    pub(super) user_claim: Arc<str>,
    pub(super) fields: ClaimFields,
    pub(super) forwards_token: bool,
}

impl Default for VouchedSettings {
    fn default() -> Self {
        Self {
            jwks: None,
            jwks_source: None,
            ca_file: None,
            secret: None,
            policy: Arc::default(),
            source: TokenSource::default(),
            user_claim: "sub".into(),
            fields: Arc::default(),
            forwards_token: false,
        }
    }
}

module_settings!(VouchedSettings);

/// The location of a key set.
#[derive(Clone, Debug)]
enum JwksLocation {
    File(Arc<KeySource>),
    Url(Arc<str>),
}

impl VouchedSettings {
    /// Combines the location and the authorities, which two directives set in any order.
    fn locate_jwks(&mut self) {
        self.jwks_source = match &self.jwks {
            None => None,
            Some(JwksLocation::File(source)) => Some(Arc::clone(source)),
            // The parser has checked the URL.
            Some(JwksLocation::Url(url)) => {
                KeySource::url(url, self.ca_file.as_deref().map(Path::new)).ok().map(Arc::new)
            }
        };
    }

    /// The keys for tokens. A key set excludes a secret: tokens that were signed with its public
    /// keys as a secret must never be verified.
    pub(super) fn keys(&self) -> Option<&Arc<KeySource>> {
        self.jwks_source.as_ref().or(self.secret.as_ref())
    }

    /// True if there are a key set and a secret.
    pub(super) fn has_idle_secret(&self) -> bool {
        self.jwks.is_some() && self.secret.is_some()
    }

    /// True if every token of the issuer's keys is accepted, whoever it was made for.
    pub(super) fn is_unbound(&self) -> bool {
        self.keys().is_some() && self.policy.issuers.is_empty() && self.policy.audiences.is_empty()
    }

    /// Describes the conditions on a token, for `lighty explain`.
    pub(super) fn describe(&self) -> String {
        let keys = self.keys().map_or_else(|| "no keys".to_owned(), |keys| keys.name());
        let list = |name: &str, values: &[String]| match values {
            [] => String::new(),
            values => format!(", {name} {}", values.join(" or ")),
        };
        let policy = &self.policy;
        format!(
            "a token is verified with {keys}{}{}{}",
            list("issuer", &policy.issuers),
            list("audience", &policy.audiences),
            list("type", &policy.types),
        )
    }
}

fn own(s: &mut Settings) -> &mut VouchedSettings {
    s.module_mut()
}

fn policy(s: &mut Settings) -> &mut TokenPolicy {
    Arc::make_mut(&mut own(s).policy)
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_auth").since("lighty 0.1")
}

/// The rows.
pub(super) fn directives() -> Vec<Directive<Settings>> {
    let mut rows = keys();
    rows.extend(conditions());
    rows.extend(results());
    rows
}

fn keys() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed(JWKS, ValueKind::String, parse_jwks, |s, keys| {
            own(s).jwks.clone_from(keys);
            own(s).locate_jwks();
        }))
        .needs(NeedKind::ReadOrUrl)
        .default("")
        .doc(
            "Keys that verify tokens (`\"method\" => \"bearer\"` of `auth.require`): a JSON Web Key \
             Set in a file, which is read again when it changes, or at an `https` URL. See \
             [Tokens](../tokens.md).",
        )
        .example("auth.backend.jwt.jwks = \"https://issuer.example/.well-known/jwks.json\""),
        row(Directive::string(CA_FILE, |s, file| {
            own(s).ca_file = Some(file).filter(|file| !file.is_empty());
            own(s).locate_jwks();
        }))
        .needs(NeedKind::Read)
        .default("")
        .doc(
            "PEM file with the authorities that vouch for the server of `auth.backend.jwt.jwks`, in \
             place of the system's.",
        )
        .example(
            "auth.backend.jwt.jwks = \"https://issuer.example/.well-known/jwks.json\"\n\
             auth.backend.jwt.ca-file = \"/etc/lighty/private-ca.pem\"",
        ),
        row(Directive::parsed(SECRET_FILE, ValueKind::String, parse_secret, |s, secret| {
            own(s).secret = secret.clone();
        }))
        .needs(NeedKind::Read)
        .default("")
        .doc(
            "File with a secret of at least 32 bytes for tokens signed with HS256, HS384 or HS512. \
             A line break at its end does not belong to it. Has no effect beside \
             `auth.backend.jwt.jwks`.",
        )
        .example("auth.backend.jwt.secret-file = \"/etc/lighty/token-secret\""),
        row(Directive::parsed(
            "auth.backend.jwt.algorithms",
            ValueKind::List,
            |value, _| parse_algorithms(value),
            |s, algorithms| policy(s).algorithms.clone_from(algorithms),
        ))
        .default("()")
        .doc(
            "Algorithms of tokens: `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, \
             `ES384`, `EdDSA`; with a secret `HS256`, `HS384`, `HS512`. The default are all that \
             the keys fit. `none` is never accepted.",
        )
        .example("auth.backend.jwt.algorithms = ( \"ES256\" )"),
    ]
}

fn conditions() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::strings("auth.backend.jwt.issuer", |s, v| {
            policy(s).issuers = texts(&v);
        }))
        .needs(NeedKind::Nothing)
        .default("()")
        .doc("Issuers whose tokens are accepted: the exact value of `iss`.")
        .example("auth.backend.jwt.issuer = ( \"https://issuer.example\" )"),
        row(Directive::strings("auth.backend.jwt.audience", |s, v| {
            policy(s).audiences = texts(&v);
        }))
        .needs(NeedKind::Nothing)
        .default("()")
        .doc("Audiences, of which `aud` of a token must name one.")
        .example("auth.backend.jwt.audience = ( \"https://api.example\" )"),
        row(Directive::int("auth.backend.jwt.leeway", 0..=300, |s, v| {
            policy(s).leeway_s = u32::try_from(v).unwrap_or(0);
        }))
        .default("60")
        .doc("Seconds by which the clock of the issuer may differ, for `exp`, `nbf` and `iat`.")
        .example("auth.backend.jwt.leeway = 10"),
        row(Directive::strings("auth.backend.jwt.type", |s, v| policy(s).types = texts(&v)))
            .default("()")
            .doc(
                "Accepted values of `typ` in the header of tokens, such as `at+jwt` (RFC 9068); by \
                 default any.",
            )
            .example("auth.backend.jwt.type = ( \"at+jwt\" )"),
    ]
}

fn results() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed(
            "auth.backend.jwt.source",
            ValueKind::String,
            |value, _| TokenSource::parse(&parse_string(value)?),
            |s, source| own(s).source = source.clone(),
        ))
        .default("authorization")
        .doc(
            "Place of the token: `authorization` (`Authorization: Bearer`), `header:NAME`, or \
             `cookie:NAME`.",
        )
        .example("auth.backend.jwt.source = \"cookie:token\""),
        row(Directive::parsed(
            "auth.backend.jwt.user-claim",
            ValueKind::String,
            |value, _| parse_claim(&parse_string(value)?),
            |s, claim| own(s).user_claim = Arc::clone(claim),
        ))
        .default("sub")
        .doc("Claim with the user's name, for `REMOTE_USER`, logs, and `user=` of `auth.require`.")
        .example("auth.backend.jwt.user-claim = \"preferred_username\""),
        row(Directive::parsed(
            "auth.backend.jwt.claims",
            ValueKind::Map,
            |value, _| parse_fields(value),
            |s: &mut Settings, fields| {
                own(s).fields = Arc::clone(fields);
                s.module_mut::<ClaimFieldLists>().of_tokens = Arc::clone(fields);
            },
        ))
        .default("()")
        .doc(
            "Request fields with the values of claims. The client's own fields of these names are \
             removed in every spelling. Members of lists have commas between them.",
        )
        .example(
            "auth.backend.jwt.claims = ( \"X-Email\" => \"email\", \"X-Roles\" => \
             \"realm_access.roles\" )",
        ),
        row(Directive::bool("auth.backend.jwt.forward", |s, on| own(s).forwards_token = on))
            .default("disable")
            .doc("Leaves the token in the request to backends and programs.")
            .example("auth.backend.jwt.forward = \"enable\""),
    ]
}

fn texts(values: &[Arc<str>]) -> Vec<String> {
    values.iter().map(|value| value.to_string()).collect()
}

fn parse_jwks(value: &Value, _: &CompileCtx) -> Result<Option<JwksLocation>, Reject> {
    let text = parse_string(value)?;
    match &*text {
        "" => Ok(None),
        url if url.contains("://") => {
            RemoteKeys::check(url).map_err(|error| {
                Reject::new(format!("= \"{url}\": {error}")).help("write \"https://…\", or a path")
            })?;
            Ok(Some(JwksLocation::Url(Arc::clone(&text))))
        }
        path => Ok(Some(JwksLocation::File(Arc::new(KeySource::file(Path::new(path)))))),
    }
}

fn parse_secret(value: &Value, _: &CompileCtx) -> Result<Option<Arc<KeySource>>, Reject> {
    let path = parse_string(value)?;
    Ok((!path.is_empty()).then(|| Arc::new(KeySource::secret_file(Path::new(&*path)))))
}

fn parse_algorithms(value: &Value) -> Result<Vec<SignatureAlgorithm>, Reject> {
    let names = parse_strings(value)?;
    let of_name = |name: &Arc<str>| {
        SignatureAlgorithm::of_name(name).ok_or_else(|| {
            let reject = Reject::new(format!("has an unknown algorithm \"{name}\""));
            reject.did_you_mean(name, SignatureAlgorithm::all().map(SignatureAlgorithm::name))
        })
    };
    names.iter().map(of_name).collect()
}

/// Reads the name of a claim, or names with dots between them.
pub(super) fn parse_claim(name: &str) -> Result<Arc<str>, Reject> {
    match name.is_empty() || name.chars().any(char::is_control) {
        true => Err(Reject::new(format!("has \"{name}\", which is no name of a claim"))),
        false => Ok(name.into()),
    }
}

/// Fields of a message's framing and routing, and credentials, which no claim may set.
const NEVER_SET: [&str; 13] = [
    "Host",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Upgrade",
    "TE",
    "Trailer",
    "Expect",
    "Keep-Alive",
    "Cookie",
    "Authorization",
    "Proxy-Authorization",
    "Set-Cookie",
];

/// Reads names of fields and claims.
pub(super) fn parse_fields(value: &Value) -> Result<ClaimFields, Reject> {
    let pairs = parse_map(value)?;
    let one = |(field, claim): &(Arc<str>, Arc<str>)| {
        if !is_token(field.as_bytes()) {
            return Err(Reject::new(format!("has \"{field}\", which is no name of a field")));
        }
        if NEVER_SET.iter().any(|never| is_alias(never.as_bytes(), field.as_bytes())) {
            return Err(Reject::new(format!("has \"{field}\": no claim may set that field")));
        }
        Ok(ClaimField { field: Arc::clone(field), claim: parse_claim(claim)? })
    };
    pairs.iter().map(one).collect()
}
