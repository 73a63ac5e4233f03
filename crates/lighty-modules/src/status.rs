//! `mod_status`: the server's status for people and programs.
//!
//! The figures cover all workers: each is queried, see [`lighty_core::machine::status_board`].

mod charts;
mod durations;
mod export;
mod exposition;
mod facts;
mod hosts;
mod page;
mod stores;
mod text;
mod units;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Config, Directive, Scope};
use lighty_core::exchange::cache_trace::CacheTrace;
use lighty_core::exchange::span::Span;
use lighty_core::exchange::upstream_trace::UpstreamTrace;
use lighty_core::machine::metrics::series::{CacheKey, RequestKey};
use lighty_core::machine::status_board::{ReportParts, StatusBoard};
use lighty_core::module::{Acts, Hooks, Module, Needs, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::settings::counted_host::CountedHost;
use lighty_core::settings::route_name::RouteName;
use lighty_core::{Exchange, Fault, Settings, module_settings};
use lighty_http::{Fields, Known, Method, Status as Code, accept};
use lighty_io::threads::{self, panics};
use tokio::sync::{Semaphore, oneshot};

use exposition::Format;
use facts::{Facts, FactsInput};

pub use export::export;
pub use hosts::note as note_hosts;

/// Pages made at the same time, each on a thread of its own.
const MAKERS_MAX: usize = 2;

/// Route of requests that no module handled.
const NO_ROUTE: &str = "none";

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct StatusSettings {
    status_url: Arc<str>,
    config_url: Arc<str>,
    statistics_url: Arc<str>,
    metrics_url: Arc<str>,
    hosts_max: usize,
    sort: bool,
}

impl Default for StatusSettings {
    fn default() -> Self {
        let none: Arc<str> = "".into();
        Self {
            status_url: none.clone(),
            config_url: none.clone(),
            statistics_url: none.clone(),
            metrics_url: none,
            hosts_max: hosts::DEFAULT,
            sort: true,
        }
    }
}
module_settings!(StatusSettings);

/// Limits the concurrent making of pages; shared by all workers.
#[derive(Clone)]
pub struct Makers(Arc<Semaphore>);

impl Default for Makers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAKERS_MAX)))
    }
}

/// The module.
pub struct Status {
    board: StatusBoard,
    makers: Makers,
    /// Wall-clock time of the server's start, in seconds.
    started_s: i64,
}

impl Status {
    /// Creates a worker's instance for a server that was started at `started_s`.
    pub fn new(board: &StatusBoard, makers: Makers, started_s: i64) -> Self {
        Self { board: board.clone(), makers, started_s }
    }
}

/// The requested page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    Page,
    Auto,
    Json,
    /// The totals within a function call, for pages of other sites.
    Script,
    Config,
    Statistics,
    Metrics(Format),
}

impl Question {
    fn wanted(self) -> ReportParts {
        let (connections, durations) = match self {
            Self::Page | Self::Json => (true, true),
            Self::Auto => (true, false),
            Self::Metrics(_) => (false, true),
            Self::Script | Self::Config | Self::Statistics => (false, false),
        };
        ReportParts { connections, durations, ..ReportParts::default() }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Page | Self::Config => page::HTML_UTF8,
            Self::Json => text::JSON,
            Self::Script => text::SCRIPT,
            Self::Auto | Self::Statistics => text::PLAIN,
            Self::Metrics(format) => format.media_type(),
        }
    }

    /// Keeps other sites from reading the page: their visitor may be a user with access to it.
    fn guard(self, fields: &mut Fields) {
        fields.set(Known::CacheControl, "no-store");
        fields.set_named(b"X-Content-Type-Options", b"nosniff");
        if self != Self::Script {
            fields.set_named(b"Cross-Origin-Resource-Policy", b"same-origin");
        }
        if self.media_type() == page::HTML_UTF8 {
            fields.push(b"Content-Security-Policy", page::POLICY.as_bytes());
        }
    }

    fn body(self, facts: &Facts) -> Vec<u8> {
        match self {
            Self::Page => page::status(facts).into(),
            Self::Config => page::config(facts).into(),
            Self::Auto => text::auto(facts).into(),
            Self::Json => text::json(facts),
            Self::Script => text::totals(facts),
            Self::Statistics => text::statistics(facts).into(),
            Self::Metrics(format) => exposition::write(facts, format),
        }
    }
}

/// A document about the server, for other ways than a URL of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusDocument {
    /// The JSON of the status page.
    Json,
    /// The same without connections.
    Totals,
    /// Metrics in Prometheus' text format.
    Metrics,
}

/// Makes a document, on a thread of its own. `None` if no thread can be had.
pub async fn document(
    board: &StatusBoard,
    started_s: i64,
    now_s: i64,
    document: StatusDocument,
) -> Option<Vec<u8>> {
    let question = match document {
        StatusDocument::Json | StatusDocument::Totals => Question::Json,
        StatusDocument::Metrics => Question::Metrics(Format::Text),
    };
    let connections = document == StatusDocument::Json;
    let (reports, workers) =
        board.ask(ReportParts { connections, durations: true, ..ReportParts::default() }).await;
    let input = FactsInput {
        reports,
        workers,
        started_s,
        now_s,
        modules: Vec::new(),
        sort: false,
        refresh_s: None,
        host: String::new(),
    };
    let (board, (done, body)) = (board.clone(), oneshot::channel());
    let make = move || {
        let made = panics::caught_in(|| question.body(&Facts::gather(input, &board)));
        let _ = done.send(made.ok());
    };
    threads::start("status", None, make).ok()?;
    body.await.ok()?
}

fn own(s: &mut Settings) -> &mut StatusSettings {
    s.module_mut()
}

fn route(s: &mut Settings) -> &mut RouteName {
    s.module_mut()
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_status").since("1.4")
}

impl Module for Status {
    fn name(&self) -> &'static str {
        "mod_status"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { clean_url: true, done: true, ..Hooks::default() },
            acts_seldom: true,
            ..Traits::default()
        }
    }

    fn needs(&self, _config: &Config<Settings>) -> Needs {
        Needs { targets: true, ..Needs::default() }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<StatusSettings>();
        let urls = [&own.status_url, &own.config_url, &own.statistics_url, &own.metrics_url];
        Hooks { clean_url: urls.iter().any(|url| !url.is_empty()), ..self.traits().hooks }
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            row(Directive::string("status.status-url", |s, v| own(s).status_url = v))
                .default("")
                .doc(
                    "Path of the status page: workers, requests, traffic, each backend (state, \
                     reason if it is down, active, waiting and failed requests), and each \
                     connection or HTTP/2 stream with its client, request and state. `?auto` \
                     returns lines for programs, `?json` (or `Accept: application/json`) JSON, and \
                     `?jsonp=NAME` a script that calls this function with the totals, without \
                     clients and backends; `?refresh=5` reloads the page every five seconds. \
                     Empty: no page. The page shows the addresses of clients: put it into a \
                     condition on `$HTTP[\"remoteip\"]`.",
                )
                .example(
                    "$HTTP[\"remoteip\"] == \"127.0.0.1\" { status.status-url = \"/server-status\" }",
                ),
            row(Directive::string("status.config-url", |s, v| own(s).config_url = v))
                .default("")
                .doc("Path of a page about the build, its modules and engines. Empty: nowhere.")
                .example("status.config-url = \"/server-config\""),
            row(Directive::string("status.statistics-url", |s, v| own(s).statistics_url = v))
                .default("")
                .doc(
                    "Path that reports counters, as sorted lines `name: value`; 204 when \
                     there are none. Empty: nowhere.",
                )
                .example("status.statistics-url = \"/server-counters\""),
            row(Directive::string("status.metrics-url", |s, v| own(s).metrics_url = v))
                .default("")
                .since("lighty 0.1")
                .doc(
                    "Path that reports metrics to Prometheus and whatever else reads its formats: \
                     text, OpenMetrics or protocol buffers with native histograms, as the field \
                     `Accept` says. See the [manual](../metrics.md). Empty: nowhere.",
                )
                .example(
                    "$HTTP[\"remoteip\"] == \"10.0.0.0/8\" { status.metrics-url = \"/metrics\" }",
                ),
            row(Directive::string("status.route", |s, v| route(s).0 = v))
                .default("")
                .since("lighty 0.1")
                .doc(
                    "Name of the requests' route in metrics, on the status page and in traces \
                     (`http_route`). Empty: the name of the module that handles the request, and \
                     no route in traces.",
                )
                .example("$HTTP[\"url\"] =^ \"/shop/\" { status.route = \"shop\" }"),
            row(Directive::int("status.hosts", 0..=hosts::MAX as i64, |s, v| {
                own(s).hosts_max = usize::try_from(v).unwrap_or(hosts::DEFAULT);
            }))
            .scope(Scope::Server)
            .default("100")
            .since("lighty 0.1")
            .doc(
                "Number of hosts that requests, errors and bytes are counted for, on the status \
                 page and in metrics. Names come from the conditions on `$HTTP[\"host\"]`, the \
                 first ones in the file; a request counts for the last condition that holds. Other \
                 hosts are counted together as `other`, whatever clients send. 0: no counts by \
                 host.",
            )
            .example("status.hosts = 500"),
            row(Directive::bool("status.enable-sort", |s, on| own(s).sort = on))
                .default("enable")
                .doc("Makes the table of connections sortable by a click on a heading.")
                .example("status.enable-sort = \"disable\""),
        ]
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(ex.settings.module::<StatusSettings>().question(ex).is_some())
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<StatusSettings>();
        if !ex.request.method.is_some_and(Method::is_get_or_head) {
            return Step::Next;
        }
        match own.question(ex) {
            Some(question) => Step::Wait(Box::pin(self.respond(ex, own.sort, question))),
            None => Step::Next,
        }
    }

    fn done(&self, ex: &Exchange) {
        let route: &str = match (&*ex.settings.module::<RouteName>().0, ex.counts_for()) {
            ("", "") => NO_ROUTE,
            ("", module) => module,
            (route, _) => route,
        };
        let (metrics, names) = (&ex.machine.metrics, self.board.names());
        let route = metrics.route(names, route);
        let key = RequestKey {
            route,
            method: ex.request.method,
            status: ex.response.status.code(),
            version: ex.request.version,
            tls: ex.request.scheme == "https",
        };
        let mut total_us = 0;
        for (span, _, took_us) in ex.stages.spans().filter(|(span, ..)| *span != Span::Delay) {
            total_us += if span.is_within_request() { u64::from(took_us) } else { 0 };
            metrics.stage(names, route, span, took_us.into());
        }
        metrics.request(names, key, total_us);
        if let Some(CacheTrace { result, .. }) = ex.ext::<CacheTrace>() {
            metrics.cached(names, CacheKey { route, result }, total_us);
        }
        if let Some(host) = &ex.settings.module::<CountedHost>().0 {
            metrics.host(names, host, key.status, ex.state.bytes_sent);
        }
        if let Some(trace) = ex.ext::<UpstreamTrace>()
            && let (Some(upstream), Some(backend)) = (&trace.upstream, &trace.address)
            && let Some(took_us) = trace.first_byte_us
        {
            metrics.backend(names, upstream, backend, took_us);
        }
    }
}

impl StatusSettings {
    fn question(&self, ex: &Exchange) -> Option<Question> {
        let is = |url: &Arc<str>| !url.is_empty() && ex.request.path == url.as_bytes();
        if is(&self.status_url) {
            let accepted = ex.request.fields.get(Known::Accept);
            return Some(match ex.request.query() {
                b"auto" => Question::Auto,
                b"json" => Question::Json,
                query if text::callback(query).is_some() => Question::Script,
                query if query.starts_with(b"jsonp") => Question::Json,
                _ if accept::prefers(accepted, text::JSON, page::HTML) => Question::Json,
                _ => Question::Page,
            });
        }
        if is(&self.config_url) {
            return Some(Question::Config);
        }
        if is(&self.metrics_url) {
            let accepted = ex.request.fields.get(Known::Accept);
            return Some(Question::Metrics(Format::preferred(accepted)));
        }
        is(&self.statistics_url).then_some(Question::Statistics)
    }
}

impl Status {
    async fn respond(&self, ex: &mut Exchange, sort: bool, question: Question) -> Step<'static> {
        ex.begin_span(Span::Handler);
        let (reports, workers) = self.board.ask(question.wanted()).await;
        let input = FactsInput {
            reports,
            workers,
            started_s: self.started_s,
            now_s: ex.machine.clock.unix_s(),
            modules: ex.generation.modules.iter().map(|module| module.name()).collect(),
            sort,
            refresh_s: refresh(ex.request.query()),
            host: String::from_utf8_lossy(&ex.request.authority).into_owned(),
        };
        let Some(body) = self.make(input, question).await else {
            ex.fail_saying(Fault::Internal, "mod_status: no thread could make the page");
            return Step::Answered;
        };
        let body = match text::callback(ex.request.query()) {
            Some(callback) if question == Question::Script => text::call(callback, &body),
            _ => body,
        };
        // As in lighttpd.
        ex.state.stands_for_error = ex.state.keeps_error_status();
        let response = &mut ex.response;
        match body.is_empty() {
            true => {
                response.restart(Code::NO_CONTENT);
                response.answered = true;
            }
            false => response.set_text(Code::OK, question.media_type(), body),
        }
        question.guard(&mut response.fields);
        Step::Answered
    }

    /// Makes the page on a thread of its own. With a thousand backends it takes milliseconds,
    /// during which the worker's other requests would wait.
    async fn make(&self, input: FactsInput, question: Question) -> Option<Vec<u8>> {
        // The semaphore is never closed.
        let place = Arc::clone(&self.makers.0).acquire_owned().await.ok()?;
        let (board, (done, body)) = (self.board.clone(), oneshot::channel());
        let make = move || {
            let made = panics::caught_in(|| question.body(&Facts::gather(input, &board)));
            drop(place);
            let _ = done.send(made.ok());
        };
        threads::start("status", None, make).ok()?;
        body.await.ok()?
    }
}

/// Parses `refresh=5` in a query.
fn refresh(query: &[u8]) -> Option<u16> {
    let found = query.split(|byte| *byte == b'&').find_map(|part| part.strip_prefix(b"refresh="));
    std::str::from_utf8(found?).ok()?.parse().ok().filter(|seconds| *seconds > 0)
}
