//! `mod_acme`: obtains certificates by ACME. This file has the directives and the responses to
//! HTTP challenges; orders are in `lighty-acme`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lighty_acme::{CertificateSpecError, ChallengeKind, Issuer, Store, public_host, public_name};
use lighty_config::{
    CompileCtx, Kind, NeedKind, Pairs, Reject, Scope, Value, parse_map, parse_string, parse_strings,
};
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::pipeline::protected_files;
use lighty_core::settings::Directive;
use lighty_core::settings::tls::TlsSettings;
use lighty_core::{Exchange, Settings, module_settings};
use lighty_http::{Method, Status};
use lighty_io::tls::KeyType;

/// Directory of the certificate store in packages.
const STORE: &str = "/var/lib/lighty/acme";

/// Default maximum number of names that get a certificate on demand.
const ON_DEMAND_NAMES_MAX: usize = 1_000;

/// URL prefix of HTTP challenges (RFC 8555 section 8.3).
const PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// Maximum length of a token. Authorities use 43 bytes.
const TOKEN_BYTES_MAX: usize = 128;

/// Maximum length of a key authorization: a token and 43 bytes.
const ANSWER_BYTES_MAX: usize = 512;

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// `acme.activate`.
    pub is_active: bool,
    /// `acme.names`; empty: the name of the condition.
    pub names: Arc<[String]>,
    /// `acme.contact`.
    pub contact: Arc<[Arc<str>]>,
    /// `acme.issuers`.
    pub issuers: Arc<[Issuer]>,
    /// `acme.rehearsals`.
    pub rehearsals: Pairs,
    /// `acme.eab-kid`.
    pub eab_kid: Option<Arc<str>>,
    /// `acme.eab-hmac-file`.
    pub eab_hmac_file: Option<Arc<str>>,
    /// `acme.profile`.
    pub profile: Option<Arc<str>>,
    /// `acme.key-type`.
    pub key_type: KeyType,
    /// `acme.challenge`.
    pub challenge: ChallengeKind,
    /// `acme.dns-hook`.
    pub dns_hook: Option<Arc<str>>,
    /// `acme.dns-hook-headers`.
    pub dns_hook_fields: Pairs,
    /// `acme.on-demand-ask`; of the process.
    pub on_demand_ask: Option<Arc<str>>,
    /// `acme.on-demand-names`; of the process.
    pub on_demand_names: Arc<[String]>,
    /// `acme.on-demand-max-names`; of the process.
    pub on_demand_names_max: usize,
    /// `acme.store`; of the process.
    pub store: Arc<str>,
    /// `acme.ca-file`.
    pub ca_file: Option<Arc<str>>,
}

impl Default for AcmeSettings {
    fn default() -> Self {
        Self {
            is_active: false,
            names: Arc::default(),
            contact: Arc::default(),
            issuers: Issuer::parse("letsencrypt").into_iter().collect(),
            rehearsals: Pairs::default(),
            eab_kid: None,
            eab_hmac_file: None,
            profile: None,
            key_type: KeyType::default(),
            challenge: ChallengeKind::default(),
            dns_hook: None,
            dns_hook_fields: Pairs::default(),
            on_demand_ask: None,
            on_demand_names: Arc::default(),
            on_demand_names_max: ON_DEMAND_NAMES_MAX,
            store: STORE.into(),
            ca_file: None,
        }
    }
}
module_settings!(AcmeSettings);

impl AcmeSettings {
    /// True if certificates may be obtained for names that appear in no condition.
    pub fn is_on_demand(&self) -> bool {
        self.on_demand_ask.is_some() || !self.on_demand_names.is_empty()
    }

    /// The directory in which certificates are kept.
    pub fn store(&self) -> Store {
        Store::new(Path::new(&*self.store))
    }
}

/// The module.
pub struct Acme;

impl Module for Acme {
    fn name(&self) -> &'static str {
        "mod_acme"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { raw_url: true, ..Hooks::default() },
            acts_seldom: true,
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(token(ex.request.path_encoded()).is_some())
    }

    fn directives() -> Vec<Directive> {
        let mut rows = names();
        rows.extend(authorities());
        rows.extend(proofs());
        rows.extend(on_demand());
        rows.into_iter().map(|row| row.module("mod_acme").since("lighty 0.1")).collect()
    }

    /// Responds to an HTTP challenge if its token is in the store. Other ACME clients may keep
    /// their tokens in the document root, so unknown tokens go to the next module.
    fn raw_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let is_read = ex.request.method.is_some_and(Method::is_get_or_head);
        let Some(token) = token(ex.request.path_encoded()).filter(|_| is_read) else {
            return Step::Next;
        };
        let store = ex.settings.module::<AcmeSettings>().store();
        let path: PathBuf = store.http_challenges().join(token);
        Step::Wait(Box::pin(async move {
            let reading =
                ex.machine.engine.read_front(path, ANSWER_BYTES_MAX, protected_files::admit);
            let Ok(answer) = reading.await else { return Step::Next };
            ex.response.restart(Status::OK);
            ex.response.answered = true;
            ex.response.set_text(Status::OK, "application/octet-stream", answer);
            Step::Answered
        }))
    }
}

/// Returns the challenge token in a path.
fn token(path: &[u8]) -> Option<&str> {
    let token = path.strip_prefix(PREFIX)?;
    let is_sound = token.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
    let is_long_enough = (1..=TOKEN_BYTES_MAX).contains(&token.len());
    std::str::from_utf8(token).ok().filter(|_| is_sound && is_long_enough)
}

fn own(settings: &mut Settings) -> &mut AcmeSettings {
    settings.module_mut()
}

fn names() -> Vec<Directive> {
    vec![
        Directive::bool("acme.activate", |s, on| {
            own(s).is_active = on;
            s.module_mut::<TlsSettings>().is_managed = on;
        })
        .needs(NeedKind::Addresses)
        .default("disable")
        .doc(
            "Obtains and renews the certificate automatically (ACME). In `$HTTP[\"host\"] == \
             \"…\"` it is for that name; at the top level it is for the name of each such \
             condition and for `acme.names`. Until the certificate is issued, a self-signed one is \
             used. An `ssl.pemfile` in a nested condition takes precedence. See the \
             [manual](../certificates.md).",
        )
        .example("$HTTP[\"host\"] == \"www.example.org\" { acme.activate = \"enable\" }"),
        Directive::parsed("acme.names", Kind::List, parse_hosts, |s, names: &Arc<[String]>| {
            own(s).names = Arc::clone(names);
        })
        .default("()")
        .doc(
            "Names of one certificate, where the condition does not say them; the first one names \
             its file. `*.example.org` stands for every name directly beneath, and needs \
             `dns-01` or `dns-persist-01`. An IP address may stand for a name, with an authority \
             that signs for addresses.",
        )
        .example("acme.names = ( \"example.org\", \"www.example.org\" )"),
        Directive::string("acme.store", |s, path| own(s).store = path)
            .needs(NeedKind::Written)
            .scope(Scope::Server)
            .default(STORE)
            .doc(
                "Directory for certificates, keys and accounts, readable only by the server's \
                 user. Processes and machines may share it: one of them orders a certificate, each \
                 can answer the authority, and all use it.",
            )
            .example("acme.store = \"/srv/shared/acme\""),
        Directive::choice("acme.key-type", KeyType::NAMES, |s, at| {
            own(s).key_type = KeyType::ALL[at]
        })
        .default("p256")
        .doc("Kind of the private keys that are made.")
        .example("acme.key-type = \"rsa2048\""),
    ]
}

fn authorities() -> Vec<Directive> {
    let text = |name, set: fn(&mut AcmeSettings) -> &mut Option<Arc<str>>| {
        Directive::parsed(
            name,
            Kind::String,
            |value, _| parse_string(value),
            move |s, text: &Arc<str>| {
                *set(own(s)) = Some(Arc::clone(text)).filter(|text| !text.is_empty());
            },
        )
        .default_prose("none")
    };
    vec![
        Directive::parsed(
            "acme.issuers",
            Kind::List,
            parse_issuers,
            |s, issuers: &Arc<[Issuer]>| {
                own(s).issuers = Arc::clone(issuers);
            },
        )
        .default("( \"letsencrypt\" )")
        .doc(
            "Authorities in order of preference: `letsencrypt`, `letsencrypt-staging`, `zerossl`, \
             `google`, or the URL of a directory (RFC 8555). Ordering a certificate accepts the \
             authority's terms of service.",
        )
        .example("acme.issuers = ( \"letsencrypt\", \"https://ca.example.net/directory\" )"),
        Directive::parsed("acme.rehearsals", Kind::Map, parse_rehearsals, |s, pairs: &Pairs| {
            own(s).rehearsals = Pairs::clone(pairs);
        })
        .default("()")
        .doc(
            "Directories in which orders are rehearsed after a failure, by issuer; both are \
             written as in `acme.issuers`. `letsencrypt` and `google` have one by default, which \
             an empty text takes away.",
        )
        .example(
            "acme.issuers = ( \"https://ca.example.net/directory\" )\n\
             acme.rehearsals = ( \"https://ca.example.net/directory\" => \
             \"https://ca-test.example.net/directory\" )",
        ),
        Directive::strings("acme.contact", |s, list| own(s).contact = list)
            .default("()")
            .doc("Addresses of mail that authorities may write to.")
            .example("acme.contact = ( \"admin@example.org\" )"),
        text("acme.profile", |own| &mut own.profile)
            .doc("Kind of certificate, by the authority's own word.")
            .example("acme.profile = \"shortlived\""),
        text("acme.eab-kid", |own| &mut own.eab_kid)
            .doc(
                "Identifier of a key that the authority has given out, to which the account is \
                 bound; `acme.eab-hmac-file` has the key.",
            )
            .example("acme.eab-kid = \"kid-1\""),
        text("acme.eab-hmac-file", |own| &mut own.eab_hmac_file)
            .needs(NeedKind::Read)
            .doc("File of the key of `acme.eab-kid`, in base64 as authorities show it.")
            .example("acme.eab-hmac-file = \"/etc/lighty/eab.key\""),
        text("acme.ca-file", |own| &mut own.ca_file)
            .needs(NeedKind::Read)
            .default_prose("the authorities that the system trusts")
            .doc("File of the authorities that vouch for the issuers' own servers, in PEM.")
            .example("acme.ca-file = \"/etc/lighty/private-ca.pem\""),
    ]
}

fn proofs() -> Vec<Directive> {
    vec![
        Directive::choice("acme.challenge", ChallengeKind::NAMES, |s, at| {
            own(s).challenge = ChallengeKind::ALL[at];
        })
        .default("http-01")
        .doc(
            "Proof of control over the names: `http-01` by a response on port 80, `tls-alpn-01` by \
             a handshake on port 443, `dns-01` by a record that `acme.dns-hook` sets, \
             `dns-persist-01` by a record that you set once.",
        )
        .example("acme.challenge = \"dns-01\""),
        Directive::parsed("acme.dns-hook", Kind::String, parse_hook, |s, hook: &Arc<str>| {
            own(s).dns_hook = Some(Arc::clone(hook)).filter(|hook| !hook.is_empty());
        })
        .needs(NeedKind::ProgramOrAddress)
        .default_prose("none")
        .doc(
            "Program or service that sets and removes TXT records in DNS. A program is called with \
             `present` or `cleanup`, the record's name and its value, and exits with 0 once the \
             record is visible. A service, given by its URL, gets `{\"fqdn\": NAME, \"value\": \
             VALUE}` at `URL/present` and `URL/cleanup`, and answers with a 2xx status.",
        )
        .example("acme.dns-hook = \"/usr/local/bin/dns-record\""),
        Directive::parsed("acme.dns-hook-headers", Kind::Map, parse_fields, |s, fields: &Pairs| {
            own(s).dns_hook_fields = Pairs::clone(fields);
        })
        .default("()")
        .doc("Fields of the requests to the server of `acme.dns-hook`, such as a password.")
        .example("acme.dns-hook-headers = ( \"Authorization\" => \"Bearer abc\" )"),
    ]
}

fn on_demand() -> Vec<Directive> {
    let rows = vec![
        Directive::parsed("acme.on-demand-ask", Kind::String, parse_ask, |s, url: &Arc<str>| {
            own(s).on_demand_ask = Some(Arc::clone(url)).filter(|url| !url.is_empty());
        })
        .needs(NeedKind::Addresses)
        .default("")
        .doc(
            "URL of a service that decides whether a name gets a certificate on demand, when the \
             first client connects to it. The request has the query `?domain=NAME&address=CLIENT`; \
             a 2xx response admits the name. Names in `acme.on-demand-names` and in conditions \
             need no request. Empty: no service.",
        )
        .example("acme.activate = \"enable\"\nacme.on-demand-ask = \"http://127.0.0.1:9000/may-have-certificate\""),
        Directive::parsed("acme.on-demand-names", Kind::List, parse_names, |s, names| {
            own(s).on_demand_names = Arc::clone(names);
        })
        .default("()")
        .doc(
            "Names that get a certificate when a client wants it. `*.example.org` admits every \
             name directly beneath, each with a certificate of its own.",
        )
        .example("acme.activate = \"enable\"\nacme.on-demand-names = ( \"*.customers.example.org\" )"),
        Directive::int("acme.on-demand-max-names", 1..=1_000_000, |s, most| {
            own(s).on_demand_names_max = usize::try_from(most).unwrap_or(ON_DEMAND_NAMES_MAX);
        })
        .default("1000")
        .doc("Most names that have certificates on demand, or wait for one.")
        .example(
            "acme.activate = \"enable\"\nacme.on-demand-names = ( \"*.customers.example.org\" )\n\
             acme.on-demand-max-names = 10000",
        ),
    ];
    rows.into_iter().map(|row| row.scope(Scope::Server)).collect()
}

fn parse_ask(value: &Value, _: &CompileCtx) -> Result<Arc<str>, Reject> {
    let text = parse_string(value)?;
    match text.is_empty() || lighty_fetch::parse_url(&text).is_some() {
        true => Ok(text),
        false => Err(Reject::new("is no URL that can be asked")
            .help("write `\"http://127.0.0.1:9000/may-have-certificate\"`")),
    }
}

fn parse_hook(value: &Value, _: &CompileCtx) -> Result<Arc<str>, Reject> {
    let text = parse_string(value)?;
    match text.contains("://") && lighty_fetch::parse_url(&text).is_none() {
        true => Err(Reject::new("is no URL that can be asked")
            .help("write `\"https://dns.example.net/hook\"`, or the path of a program")),
        false => Ok(text),
    }
}

fn parse_fields(value: &Value, _: &CompileCtx) -> Result<Pairs, Reject> {
    let fields = parse_map(value)?;
    match fields.iter().find(|(name, text)| !lighty_fetch::is_field(name, text)) {
        Some((name, _)) => Err(Reject::new(format!("\"{name}\" is no field with a value"))),
        None => Ok(fields),
    }
}

fn parse_names(value: &Value, _: &CompileCtx) -> Result<Arc<[String]>, Reject> {
    parse_each(value, public_name)
}

/// Parses host names and IP addresses.
fn parse_hosts(value: &Value, _: &CompileCtx) -> Result<Arc<[String]>, Reject> {
    parse_each(value, public_host)
}

fn parse_each(
    value: &Value,
    parse: fn(&str) -> Result<String, CertificateSpecError>,
) -> Result<Arc<[String]>, Reject> {
    let names = parse_strings(value)?;
    let mut unique = Vec::new();
    for name in names.iter() {
        let name = parse(name).map_err(|why| Reject::new(format!("has {why}")))?;
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    Ok(unique.into())
}

fn parse_issuers(value: &Value, _: &CompileCtx) -> Result<Arc<[Issuer]>, Reject> {
    let texts = parse_strings(value)?;
    let issuers: Result<Arc<[Issuer]>, CertificateSpecError> =
        texts.iter().map(|text| Issuer::parse(text)).collect();
    match issuers {
        Ok(none) if none.is_empty() => Err(Reject::new("names no issuer")),
        Ok(issuers) => Ok(issuers),
        Err(why) => Err(unusable_issuer(why)),
    }
}

fn unusable_issuer(why: CertificateSpecError) -> Reject {
    Reject::new(format!("has an issuer that cannot be asked: {why}"))
}

fn parse_rehearsals(value: &Value, _: &CompileCtx) -> Result<Pairs, Reject> {
    let pairs = parse_map(value)?;
    let directories = pairs.iter().map(|(_, directory)| directory).filter(|text| !text.is_empty());
    let texts = pairs.iter().map(|(issuer, _)| issuer).chain(directories);
    for text in texts {
        Issuer::parse(text).map_err(unusable_issuer)?;
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::token;

    #[test]
    fn tokens_are_names_of_files_and_nothing_else() {
        let of = |text: &str| token(text.as_bytes()).map(str::to_owned);
        assert_eq!(of("/.well-known/acme-challenge/a-_Z9").as_deref(), Some("a-_Z9"));
        let long = format!("/.well-known/acme-challenge/{}", "a".repeat(129));
        for none in [
            "/.well-known/acme-challenge/",
            "/.well-known/acme-challenge/..",
            "/.well-known/acme-challenge/a/b",
            "/.well-known/acme-challenge/a%2fb",
            "/.well-known/acme-challenge",
            "/x/.well-known/acme-challenge/a",
            &long,
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
