//! `mod_auth_forward`: forward authentication. A service of the operator decides about each
//! request, and names its user.
//!
//! Reading order: `settings`, `rule` and `preset` (rules, and the contracts of known services) ·
//! `identity_fields` (fields that only the service may set) · `service_request` (the request to the
//! service) · `verdict` and `sign_in` (its response) · `verdict_cache` (kept verdicts, and equal
//! requests in flight). The proxy has the connections to the service.

mod identity_fields;
mod preset;
mod rule;
mod service_request;
mod settings;
mod sign_in;
mod spelling;
mod verdict;
mod verdict_cache;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::exchange::response::Maker;
use lighty_core::exchange::verified_identity::VerifiedIdentity;
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::pipeline::authorize_again;
use lighty_core::pipeline::locate::is_locating;
use lighty_core::pipeline::subrequest::{self, ServiceRequest};
use lighty_core::{Body, Exchange, Extension, Fault, FaultReport, Settings, extension_slot};
use lighty_http::{Known, Status, Version};
use lighty_io::clock::alarms::Alarm;

use identity_fields::{remove_forged, remove_identity};
use rule::ForwardRule;
use settings::{ForwardRules, ForwardSettings};
use verdict::{Allowance, Denial, Failure, ServiceVerdict};
use verdict_cache::{Flight, Landing, LookUp};

/// Value of AUTH_TYPE for a user that a service has named.
const SCHEME: &str = "Forward";

/// The module.
pub struct AuthForward;

/// Decisions about a request so far. A subrequest begins without any, because its URL is another.
#[derive(Default)]
struct Passage {
    /// The rules whose identity fields were last removed from the client's request.
    cleaned_for: Option<Arc<ForwardRules>>,
    /// Names of the fields that verdicts have set.
    set: Vec<Vec<u8>>,
    /// The rules that permit the request.
    permits: Vec<Permit>,
    /// The permit for another URL that the request names. There may be many, one after the other.
    located: Option<Permit>,
    /// The status of a refusal. The page of an error must not be had around it.
    refused: Option<Status>,
    /// A service gave no verdict.
    has_failed: bool,
}

/// A rule's permission for a URL.
struct Permit {
    rule: Arc<ForwardRule>,
    target: Vec<u8>,
}

impl Passage {
    fn permits(&self, rule: &Arc<ForwardRule>, target: &[u8]) -> bool {
        let mut all = self.permits.iter().chain(&self.located);
        all.any(|permit| Arc::ptr_eq(&permit.rule, rule) && permit.target == target)
    }
}

impl Extension for Passage {
    extension_slot!();
}

impl Module for AuthForward {
    fn name(&self) -> &'static str {
        "mod_auth_forward"
    }

    fn traits(&self) -> Traits {
        Hooks { raw_url: true, clean_url: true, authorize: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<ForwardSettings>().rules.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::directives()
    }

    /// Removes forged fields before any rule or script can see them.
    fn raw_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let rules = Arc::clone(&ex.settings.module::<ForwardSettings>().rules);
        clean(ex, &rules);
        Step::Next
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        check(ex)
    }

    fn authorize<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        check(ex)
    }
}

/// Removes the fields that only the service may set from the client's request, once for each list
/// of rules.
fn clean(ex: &mut Exchange, rules: &Arc<ForwardRules>) {
    // The response shares this with subrequests' responses.
    ex.ext_mut::<VerifiedIdentity>();
    let passage = ex.ext_mut::<Passage>();
    if passage.cleaned_for.as_ref().is_some_and(|known| Arc::ptr_eq(known, rules)) {
        return;
    }
    passage.cleaned_for = Some(Arc::clone(rules));
    let set = std::mem::take(&mut passage.set);
    let is_changed = remove_forged(&mut ex.request, rules.identity(), &set);
    ex.ext_mut::<Passage>().set = set;
    if ex.body.exists() {
        let rules = Arc::clone(rules);
        ex.body.refuse_trailers(Box::new(move |name| {
            rules.identity().any(|identity| identity.matches(name))
        }));
    }
    if is_changed {
        ex.resolve_settings();
    }
}

/// Applies the first rule that fits the path.
fn check(ex: &mut Exchange) -> Step<'_> {
    let rules = Arc::clone(&ex.settings.module::<ForwardSettings>().rules);
    clean(ex, &rules);
    let fold_case = ex.settings.core.force_lowercase_filenames;
    let Some(rule) = rules.first(&ex.request.path, fold_case) else { return Step::Next };
    if rule.service.is_none() {
        return Step::Next;
    }
    let rule = Arc::clone(rule);
    let target = service_request::judged_target(ex);
    if ex.ext::<Passage>().is_some_and(|passage| passage.permits(&rule, &target)) {
        return Step::Next;
    }
    if ex.rehearse_step(|| rule.describe()) {
        permit(ex, rule, target);
        return Step::Next;
    }
    Step::Wait(Box::pin(judge(ex, rules, rule, target)))
}

fn permit(ex: &mut Exchange, rule: Arc<ForwardRule>, target: Vec<u8>) {
    let locates = is_locating(ex);
    let passage = ex.ext_mut::<Passage>();
    let permit = Permit { rule, target };
    match locates {
        true => passage.located = Some(permit),
        false => passage.permits.push(permit),
    }
}

/// Asks the service, and acts on its verdict.
async fn judge(
    ex: &mut Exchange,
    rules: Arc<ForwardRules>,
    rule: Arc<ForwardRule>,
    target: Vec<u8>,
) -> Step<'static> {
    let passage = ex.ext_mut::<Passage>();
    if passage.has_failed {
        ex.fail_hushed(&Fault::AuthService.into());
        return Step::Answered;
    }
    if let (Some(refused), Some(_)) = (passage.refused, ex.state.error_status) {
        ex.fail_status(refused);
        return Step::Answered;
    }
    let request = service_request::build(ex, &rule, &target);
    let gone = ex.client_gone();
    let verdict = tokio::select! {
        biased;
        verdict = ask(ex, &rules, &rule, request) => verdict,
        fault = gone => {
            ex.fail(fault);
            return Step::Answered;
        }
    };
    let counters = &ex.machine.counters;
    match verdict {
        ServiceVerdict::Allowed(allowance) => {
            counters.auth_forward_allowed.add(1);
            allow(ex, rule, target, &allowance);
            proceed(ex).await
        }
        ServiceVerdict::Denied(denial) => {
            counters.auth_forward_denied.add(1);
            deny(ex, &rule, &target, *denial)
        }
        ServiceVerdict::Failed(failure) => {
            counters.auth_forward_failed.add(1);
            fail(ex, &rule, failure)
        }
    }
}

/// Returns the verdict: a kept one, that of an equal request in flight, or a new one.
async fn ask(
    ex: &Exchange,
    rules: &ForwardRules,
    rule: &ForwardRule,
    request: ServiceRequest,
) -> ServiceVerdict {
    let limit_ms = rule.timeout_ms();
    let answer = async {
        match rule.cache_ms {
            0 => ask_now(ex, rule, request).await,
            _ => ask_once(ex, rules, rule, request).await,
        }
    };
    // The runtime's own timer would cost a system call for each request.
    let verdict = Alarm::limit(&ex.machine.alarms, limit_ms, answer).await;
    verdict.unwrap_or_else(|| ServiceVerdict::failed(format!("no verdict within {limit_ms} ms")))
}

async fn ask_once(
    ex: &Exchange,
    rules: &ForwardRules,
    rule: &ForwardRule,
    request: ServiceRequest,
) -> ServiceVerdict {
    let cache = match rules.cache() {
        Ok(cache) => cache,
        Err(error) => return ServiceVerdict::failed(error.to_string()),
    };
    let key = cache.key(&rule.prefix, &request, ex.request.remote_ip());
    loop {
        let flight = match cache.look_up(key, ex.machine.clock.mono_ms()) {
            LookUp::Kept(allowance) => {
                ex.machine.counters.auth_forward_cached.add(1);
                return ServiceVerdict::Allowed(allowance);
            }
            LookUp::InFlight(flight) => flight,
            LookUp::Begins(pilot) => {
                let verdict = ask_now(ex, rule, request).await;
                pilot.land(&verdict, ex.machine.clock.mono_ms(), rule.cache_ms);
                return verdict;
            }
        };
        match Flight::landing(&flight).await {
            Landing::Shared(allowance) => {
                ex.machine.counters.auth_forward_cached.add(1);
                return ServiceVerdict::Allowed(allowance);
            }
            Landing::Unshared => return ask_now(ex, rule, request).await,
            // The client of that request has gone: one of the others asks.
            Landing::Abandoned => {}
        }
    }
}

async fn ask_now(ex: &Exchange, rule: &ForwardRule, request: ServiceRequest) -> ServiceVerdict {
    let Some(service) = &rule.service else { return ServiceVerdict::failed("no service") };
    match subrequest::ask_service(ex, service, request).await {
        Ok(mut part) => verdict::read(rule, &mut part).await,
        Err(fault) => ServiceVerdict::Failed(Failure::Logged(fault)),
    }
}

/// Lets the request pass, with the fields of the verdict.
fn allow(ex: &mut Exchange, rule: Arc<ForwardRule>, target: Vec<u8>, allowance: &Allowance) {
    remove_identity(&mut ex.request.fields, &rule.identity);
    ex.request.fields.append(&allowance.fields);
    for (name, _) in allowance.fields.iter() {
        ex.pass_own_field(name);
        let set = &mut ex.ext_mut::<Passage>().set;
        if !set.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            set.push(name.to_vec());
        }
    }
    if let Some(user) = &allowance.user {
        ex.request.remote_user.clone_from(user);
        ex.request.auth_realm = None;
        ex.environment.set(b"REMOTE_USER", user);
        ex.environment.set(b"AUTH_TYPE", SCHEME.as_bytes());
    }
    let locates = is_locating(ex);
    let identity = ex.ext_mut::<VerifiedIdentity>();
    identity.verify();
    if !locates {
        identity.add_cookies(&allowance.cookies);
    }
    permit(ex, rule, target);
}

/// Goes on under the settings that the fields of the verdict select. Modules that decide about
/// access may have decided under others.
async fn proceed(ex: &mut Exchange) -> Step<'static> {
    let before = Rc::clone(&ex.settings);
    ex.resolve_settings();
    if Rc::ptr_eq(&before, &ex.settings) || authorize_again(ex).await {
        return Step::Next;
    }
    Step::Answered
}

/// Passes a refusal on.
fn deny(ex: &mut Exchange, rule: &ForwardRule, target: &[u8], denial: Denial) -> Step<'static> {
    let Denial { status, fields, body } = denial;
    // The verdict about another URL that the request names is not a response to the client.
    if rule.passes_cookies && !is_locating(ex) {
        ex.ext_mut::<VerifiedIdentity>().add_cookies(&fields);
    }
    ex.ext_mut::<Passage>().refused = Some(status);
    end_upgrade(ex);
    if status == Status::UNAUTHORIZED
        && let Some(location) = rule.sign_in.as_ref().and_then(|page| page.location(ex, target))
    {
        ex.response.restart(Status::FOUND);
        ex.response.fields.set(Known::Location, location);
        ex.response.fields.set(Known::CacheControl, "no-store");
        ex.response.answered = true;
        return Step::Answered;
    }
    let is_replaced = status.code() >= 400 && ex.settings.core.error_intercept;
    ex.fail_status(status);
    let response = &mut ex.response;
    response.maker = Maker::Backend;
    let of_body = |known: Option<Known>, name: &[u8]| {
        known == Some(Known::ContentLength)
            || is_replaced && spelling::begins_with(name, b"content-")
    };
    for (known, name, value) in fields.iter_known() {
        if known != Some(Known::SetCookie) && !of_body(known, name) {
            response.fields.push_looked_up(known, name, value);
        }
    }
    if !response.fields.contains(Known::CacheControl) {
        response.fields.set(Known::CacheControl, "no-store");
    }
    if !is_replaced {
        // An empty body is the service's, too: no page of an error takes its place.
        response.body = Body::Memory(body);
    }
    Step::Answered
}

/// Ends the connection of a refused upgrade: its client may have sent bytes of the other protocol
/// already, which are no request.
fn end_upgrade(ex: &mut Exchange) {
    if ex.request.upgrade && ex.request.version < Version::Http2 {
        ex.response.is_last = true;
    }
}

/// Refuses the request, because there is no verdict.
fn fail(ex: &mut Exchange, rule: &ForwardRule, failure: Failure) -> Step<'static> {
    ex.ext_mut::<Passage>().has_failed = true;
    end_upgrade(ex);
    let report = match failure {
        Failure::Logged(fault) => FaultReport::new(Fault::AuthService, fault.verdict().message),
        Failure::New(detail) => FaultReport::new(Fault::AuthService, detail),
    };
    let mut report = report.about(&rule.name);
    match rule.throttle.next(ex.machine.clock.mono_ms()) {
        Some(hushed) => {
            report.add_repeats(hushed);
            ex.fail_reporting(&report);
        }
        None => ex.fail_hushed(&report),
    }
    Step::Answered
}
