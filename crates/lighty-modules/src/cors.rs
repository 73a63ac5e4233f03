//! `mod_cors`: allows scripts of listed sites to read responses (Fetch Standard, section 3.3, "CORS
//! protocol").
//!
//! Before a request that a form could not send, a browser sends a preflight: an `OPTIONS` request
//! without credentials. This module responds to it before authentication.

mod origins;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{CompileCtx, Directive, Kind, Reject, Strings, Value, parse_strings};
use lighty_core::exchange::request_state::KeptSettings;
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Exchange, Fault, Settings, module_settings};
use lighty_http::fields::{is_token, list_items};
use lighty_http::{Fields, Known, Method, Status};

use origins::Origins;

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct CorsSettings {
    origins: Origins,
    methods: Strings,
    fields: Strings,
    exposed: Arc<str>,
    credentials: bool,
    max_age_s: i64,
    private_network: bool,
}
module_settings!(CorsSettings);

impl Default for CorsSettings {
    fn default() -> Self {
        Self {
            origins: Origins::None,
            methods: Arc::from([]),
            fields: Arc::from([]),
            exposed: "".into(),
            credentials: false,
            max_age_s: MAX_AGE_S,
            private_network: false,
        }
    }
}

/// Seconds for which a browser remembers a preflight, unless configured.
const MAX_AGE_S: i64 = 600;

/// Methods that need no permission.
const SAFELISTED: [&str; 3] = ["GET", "HEAD", "POST"];

const REQUEST_METHOD: &[u8] = b"Access-Control-Request-Method";
const REQUEST_FIELDS: &[u8] = b"Access-Control-Request-Headers";
const REQUEST_PRIVATE: &[u8] = b"Access-Control-Request-Private-Network";
const ALLOW_METHODS: &[u8] = b"Access-Control-Allow-Methods";
const ALLOW_FIELDS: &[u8] = b"Access-Control-Allow-Headers";
const ALLOW_CREDENTIALS: &[u8] = b"Access-Control-Allow-Credentials";
const ALLOW_PRIVATE: &[u8] = b"Access-Control-Allow-Private-Network";
const EXPOSE_FIELDS: &[u8] = b"Access-Control-Expose-Headers";
const MAX_AGE: &[u8] = b"Access-Control-Max-Age";

impl CorsSettings {
    /// True if every site could act with the credentials of its visitors.
    pub fn allows_all_with_credentials(&self) -> bool {
        self.origins.is_any() && self.credentials
    }

    /// True if the module sets the CORS fields of responses.
    pub fn is_active(&self) -> bool {
        !self.origins.is_none()
    }

    /// The reason for refusing a preflight; `None` if it is allowed.
    fn objection(&self, request: &Fields) -> Option<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let origin = origin(request).filter(|origin| self.origins.allow(origin));
        if origin.is_none() {
            let requested = request.get(Known::Origin).unwrap_or_default();
            return Some(format!("cors.allow-origin has no {}", text(requested)));
        }
        let method = request.get_named(REQUEST_METHOD).unwrap_or_default();
        let is_method = |allowed: &str| allowed == "*" || allowed.as_bytes() == method;
        let mut methods = self.methods.iter().map(|method| &**method).chain(SAFELISTED);
        if !is_token(method) || !methods.any(is_method) {
            return Some(format!("cors.allow-methods has no {}", text(method)));
        }
        let is_refused = |name: &&[u8]| !is_token(name) || !self.allows_field(name);
        let refused = requested_fields(request).find(is_refused)?;
        Some(format!("cors.allow-headers has no {}", text(refused)))
    }

    fn allows_field(&self, name: &[u8]) -> bool {
        let is_it = |own: &str| own == "*" || own.as_bytes().eq_ignore_ascii_case(name);
        self.fields.iter().any(|own| is_it(own))
    }
}

/// The request's origin, if it has exactly one.
fn origin(request: &Fields) -> Option<&[u8]> {
    let mut origins = request.get_all(Known::Origin);
    origins.next().filter(|_| origins.next().is_none())
}

fn requested_fields(request: &Fields) -> impl Iterator<Item = &[u8]> {
    let is_it = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(REQUEST_FIELDS);
    request.iter().filter(is_it).flat_map(|(_, value)| list_items(value))
}

/// The module.
pub struct Cors;

fn own(settings: &mut Settings) -> &mut CorsSettings {
    settings.module_mut()
}

/// A list of tokens: methods or names of fields.
fn tokens(value: &Value, _: &CompileCtx) -> Result<Strings, Reject> {
    let tokens = parse_strings(value)?;
    match tokens.iter().find(|token| !is_token(token.as_bytes())) {
        Some(other) => Err(Reject::new(format!("{other:?} is not a name: a list has one in each"))),
        None => Ok(tokens),
    }
}

fn list(
    name: &'static str,
    set: impl Fn(&mut CorsSettings, &Strings) + Copy + Send + Sync + 'static,
) -> Directive<Settings> {
    Directive::parsed(name, Kind::List, tokens, move |s, tokens| set(own(s), tokens)).default("()")
}

fn origin_row() -> Directive<Settings> {
    let parse = |value: &Value, _: &CompileCtx| Origins::parse(value);
    Directive::parsed("cors.allow-origin", Kind::List, parse, |s, origins: &Origins| {
        own(s).origins = origins.clone();
    })
    .default("()")
    .doc(
        "Origins whose scripts may read responses, each with scheme and port as browsers write \
         them: `https://app.example.com`. `https://*.example.com` means all hosts below a domain, \
         `http://localhost:*` all ports, and `*` alone every origin, without credentials. \
         Preflights are answered before users are asked for passwords; every response names \
         `Origin` in `Vary`, errors included. The fields replace those of a backend. This is no \
         access control: other clients are served as before.",
    )
    .example("cors.allow-origin = ( \"https://app.example.com\" )")
}

fn switches() -> Vec<Directive<Settings>> {
    vec![
        Directive::bool("cors.allow-credentials", |s, on| own(s).credentials = on)
            .default("disable")
            .doc(
                "Lets scripts send cookies and passwords. Not possible with `cors.allow-origin = \
                 \"*\"`: every site could act in the name of its visitors.",
            )
            .example("cors.allow-credentials = \"enable\""),
        Directive::int("cors.max-age", 0..=86_400, |s, seconds| own(s).max_age_s = seconds)
            .default("600")
            .doc("Seconds for which a browser caches the result of a preflight; 0: no caching.")
            .example("cors.max-age = 7200"),
        Directive::bool("cors.allow-private-network", |s, on| own(s).private_network = on)
            .default("disable")
            .doc(
                "Lets pages from the internet send requests to this server in a private network \
                 (`Access-Control-Allow-Private-Network`).",
            )
            .example("cors.allow-private-network = \"enable\""),
    ]
}

impl Module for Cors {
    fn name(&self) -> &'static str {
        "mod_cors"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { clean_url: true, response_head: true, ..Hooks::default() },
            acts_seldom: true,
            never_refuses_paths: true,
            head_never_waits: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<CorsSettings>().origins.is_none())
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(ex.request.method == Some(Method::Options))
    }

    fn directives() -> Vec<Directive<Settings>> {
        let mut rows = vec![
            origin_row(),
            list("cors.allow-methods", |own, methods| own.methods = Arc::clone(methods))
                .doc(
                    "Methods that scripts may use besides GET, HEAD and POST, which need no \
                     permission; `*`: all.",
                )
                .example("cors.allow-methods = ( \"PUT\", \"DELETE\" )"),
            list("cors.allow-headers", |own, fields| own.fields = Arc::clone(fields))
                .doc("Request fields that scripts may set; `*`: all, `Authorization` included.")
                .example("cors.allow-headers = ( \"Content-Type\", \"Authorization\" )"),
            list("cors.expose-headers", |own, fields| own.exposed = fields.join(", ").into())
                .doc("Response fields that scripts may read besides the usual ones.")
                .example("cors.expose-headers = ( \"X-Total-Count\" )"),
        ];
        rows.extend(switches());
        rows.into_iter().map(|row| row.module("mod_cors").since("lighty 0.1")).collect()
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // The settings of the client's URL determine the CORS fields, even after rewriting.
        ex.state.keeps_settings = ex.state.keeps_settings.max(KeptSettings::Head);
        let is_preflight = ex.request.method == Some(Method::Options)
            && ex.request.fields.contains(Known::Origin)
            && ex.request.fields.get_named(REQUEST_METHOD).is_some();
        if !is_preflight || ex.state.error_status.is_some() {
            return Step::Next;
        }
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<CorsSettings>();
        match own.objection(&ex.request.fields) {
            Some(objection) => ex.fail_saying(Fault::Forbidden, &objection),
            None => permit(ex, own),
        }
        Step::Answered
    }

    fn response_head<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // The client's URL decides, not that of an error page.
        let settings = Rc::clone(ex.client_settings().unwrap_or(&ex.settings));
        let own = settings.module::<CorsSettings>();
        if own.origins.is_none() {
            return Step::Next;
        }
        let fields = &mut ex.response.fields;
        for name in [ALLOW_CREDENTIALS, EXPOSE_FIELDS] {
            fields.remove_named(name);
        }
        let is_allowed = match (own.origins.is_any(), origin(&ex.request.fields)) {
            (true, _) => {
                fields.set(Known::AccessControlAllowOrigin, "*");
                true
            }
            (false, Some(origin)) if own.origins.allow(origin) => {
                fields.set(Known::AccessControlAllowOrigin, origin);
                true
            }
            (false, _) => {
                fields.remove(Known::AccessControlAllowOrigin);
                false
            }
        };
        if !own.origins.is_any() {
            fields.add_to_vary("Origin");
        }
        if is_allowed && own.credentials && !own.origins.is_any() {
            fields.set_named(ALLOW_CREDENTIALS, b"true");
        }
        if is_allowed && !own.exposed.is_empty() {
            fields.set_named(EXPOSE_FIELDS, own.exposed.as_bytes());
        }
        Step::Next
    }
}

/// Responds to an allowed preflight. `response_head` adds the other CORS fields.
fn permit(ex: &mut Exchange, own: &CorsSettings) {
    ex.response.restart(Status::NO_CONTENT);
    ex.response.answered = true;
    let request = &ex.request.fields;
    let response = &mut ex.response.fields;
    let method = request.get_named(REQUEST_METHOD).unwrap_or_default();
    let methods = match own.methods.iter().any(|own| &**own == "*") {
        true => method.to_vec(),
        false => {
            let all = SAFELISTED.into_iter().chain(own.methods.iter().map(|method| &**method));
            all.collect::<Vec<_>>().join(", ").into_bytes()
        }
    };
    response.set_named(ALLOW_METHODS, &methods);
    let fields: Vec<&[u8]> = requested_fields(request).collect();
    if !fields.is_empty() {
        response.set_named(ALLOW_FIELDS, &fields.join(&b", "[..]));
    }
    if own.private_network && request.get_named(REQUEST_PRIVATE) == Some(b"true") {
        response.set_named(ALLOW_PRIVATE, b"true");
    }
    response.set_named(MAX_AGE, own.max_age_s.to_string().as_bytes());
    response.add_to_vary("Access-Control-Request-Method");
    response.add_to_vary("Access-Control-Request-Headers");
}
