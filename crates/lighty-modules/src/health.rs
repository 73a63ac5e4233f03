//! `mod_health`: URLs by which load balancers and orchestrators see whether the server lives, and
//! whether it wants new clients.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lighty_config::{CompileCtx, Directive, Kind, Reject, Value, parse_string};
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Exchange, Settings, json, module_settings};
use lighty_http::{Known, Method, Status as Code, accept};
use serde::Serialize;

const JSON: &str = "application/json";
const PLAIN: &str = "text/plain";

/// Reason why the server is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// A worker has not started yet.
    Starting,
    /// A graceful stop has begun.
    Stopping,
    /// `lighty ctl drain-self on`.
    Drained,
}

impl Unready {
    const ALL: [Self; 3] = [Self::Starting, Self::Stopping, Self::Drained];

    /// The reason's name in responses.
    fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Stopping => "stopping",
            Self::Drained => "drained",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Readiness of the process. Clones share it; the main thread changes it, workers read it. Ready by
/// default.
#[derive(Clone, Default)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// Adds or removes a reason against readiness.
    pub fn set(&self, reason: Unready, holds: bool) {
        match holds {
            true => self.0.fetch_or(reason.bit(), Ordering::Relaxed),
            false => self.0.fetch_and(!reason.bit(), Ordering::Relaxed),
        };
    }

    /// True if a reason holds.
    pub fn has(&self, reason: Unready) -> bool {
        self.0.load(Ordering::Relaxed) & reason.bit() != 0
    }

    /// Names of the reasons why the server is not ready; none if it is.
    pub fn objections(&self) -> Vec<&'static str> {
        let bits = self.0.load(Ordering::Relaxed);
        let holding = Unready::ALL.into_iter().filter(|reason| bits & reason.bit() != 0);
        holding.map(Unready::name).collect()
    }
}

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct HealthSettings {
    /// Empty: none.
    live_url: Arc<str>,
    /// Empty: none.
    ready_url: Arc<str>,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self { live_url: "".into(), ready_url: "".into() }
    }
}
module_settings!(HealthSettings);

impl HealthSettings {
    fn probe(&self, path: &[u8]) -> Option<Probe> {
        let is = |url: &str| !url.is_empty() && path == url.as_bytes();
        if is(&self.live_url) {
            return Some(Probe::Live);
        }
        is(&self.ready_url).then_some(Probe::Ready)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    Live,
    Ready,
}

/// The module.
pub struct Health(Readiness);

impl Health {
    /// Creates a worker's instance.
    pub fn new(readiness: Readiness) -> Self {
        Self(readiness)
    }
}

fn own(settings: &mut Settings) -> &mut HealthSettings {
    settings.module_mut()
}

fn url_row(
    name: &'static str,
    set: impl Fn(&mut HealthSettings, Arc<str>) + Copy + Send + Sync + 'static,
) -> Directive<Settings> {
    let set = move |s: &mut Settings, url: &Arc<str>| set(own(s), Arc::clone(url));
    Directive::parsed(name, Kind::String, parse_path, set).default("")
}

fn parse_path(value: &Value, _: &CompileCtx) -> Result<Arc<str>, Reject> {
    let path = parse_string(value)?;
    if path.is_empty() || path.starts_with('/') {
        return Ok(path);
    }
    Err(Reject::new("must be a path that begins with a slash").help(format!("write \"/{path}\"")))
}

impl Module for Health {
    fn name(&self) -> &'static str {
        "mod_health"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { clean_url: true, ..Hooks::default() },
            acts_seldom: true,
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<HealthSettings>();
        self.traits().hooks.only_if(!own.live_url.is_empty() || !own.ready_url.is_empty())
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        let own = ex.settings.module::<HealthSettings>();
        Acts::perhaps_if(own.probe(&ex.request.path).is_some())
    }

    fn directives() -> Vec<Directive<Settings>> {
        let rows = vec![
            url_row("health.live-url", |own, url| own.live_url = url)
                .doc(
                    "Path that is answered with 200 by each worker that turns: a probe for \
                     liveness. It stays so during a graceful stop. Empty: none.",
                )
                .example("health.live-url = \"/livez\""),
            url_row("health.ready-url", |own, url| own.ready_url = url)
                .doc(
                    "Path that is answered with 200 if the server wants new clients, and with 503 \
                     until all workers have started, from a graceful stop on, and after `lighty \
                     ctl drain-self on`. The body names the reason; it is JSON where `Accept` \
                     prefers that or the query is `json`. Both paths are answered before \
                     redirections, access rules and passwords. Empty: none.",
                )
                .example("health.ready-url = \"/readyz\""),
        ];
        rows.into_iter().map(|row| row.module("mod_health").since("lighty 0.1")).collect()
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let probe = settings.module::<HealthSettings>().probe(&ex.request.path);
        let is_get = ex.request.method.is_some_and(Method::is_get_or_head);
        let Some(probe) = probe.filter(|_| is_get) else { return Step::Next };
        let objections = match probe {
            Probe::Live => Vec::new(),
            Probe::Ready => self.0.objections(),
        };
        let accepted = ex.request.fields.get(Known::Accept);
        let is_json = ex.request.query() == b"json" || accept::prefers(accepted, JSON, PLAIN);
        let (media_type, body) = match is_json {
            true => (JSON, json_body(probe, &objections)),
            false => (PLAIN, plain_body(&objections)),
        };
        let status = if objections.is_empty() { Code::OK } else { Code::SERVICE_UNAVAILABLE };
        ex.response.set_text(status, media_type, body);
        ex.response.fields.set(Known::CacheControl, "no-store");
        Step::Answered
    }
}

fn plain_body(objections: &[&str]) -> Vec<u8> {
    match objections.is_empty() {
        true => b"ok\n".to_vec(),
        false => format!("not ready: {}\n", objections.join(", ")).into_bytes(),
    }
}

#[derive(Serialize)]
struct HealthView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reasons: &'a [&'a str],
}

fn json_body(probe: Probe, objections: &[&str]) -> Vec<u8> {
    let is_ready = objections.is_empty();
    let view = HealthView {
        live: (probe == Probe::Live).then_some(true),
        ready: (probe == Probe::Ready).then_some(is_ready),
        reasons: objections,
    };
    let mut body = Vec::new();
    json::push(&view, &mut body);
    body.push(b'\n');
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_alone_is_enough() {
        let readiness = Readiness::default();
        assert_eq!(readiness.objections(), [""; 0]);
        for reason in Unready::ALL {
            readiness.set(reason, true);
            assert_eq!(readiness.clone().objections(), [reason.name()]);
            readiness.set(reason, false);
        }
        Unready::ALL.iter().for_each(|reason| readiness.set(*reason, true));
        assert_eq!(readiness.objections(), ["starting", "stopping", "drained"]);
    }

    #[test]
    fn bodies_name_the_reasons() {
        let text = |body: Vec<u8>| String::from_utf8(body).expect("UTF-8");
        assert_eq!(text(plain_body(&[])), "ok\n");
        assert_eq!(text(plain_body(&["a", "b"])), "not ready: a, b\n");
        assert_eq!(text(json_body(Probe::Live, &[])), "{\"live\":true}\n");
        assert_eq!(text(json_body(Probe::Ready, &[])), "{\"ready\":true}\n");
        let view = "{\"ready\":false,\"reasons\":[\"drained\"]}\n";
        assert_eq!(text(json_body(Probe::Ready, &["drained"])), view);
    }
}
