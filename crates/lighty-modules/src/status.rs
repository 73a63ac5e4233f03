//! `mod_status`: the server's status, for people and for programs.
//!
//! The figures cover all workers: each is queried, see [`lighty_core::machine::status_board`].

mod page;
mod text;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Config, Directive};
use lighty_core::machine::status_board::{BackendPool, Report, StatusBoard};
use lighty_core::module::{Hooks, Module, Needs, Step};
use lighty_core::{Exchange, Settings, module_settings};
use lighty_http::{Known, Method, Status as Code, accept};

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct StatusSettings {
    status_url: Arc<str>,
    config_url: Arc<str>,
    statistics_url: Arc<str>,
    sort: bool,
}

impl Default for StatusSettings {
    fn default() -> Self {
        let none: Arc<str> = "".into();
        Self {
            status_url: none.clone(),
            config_url: none.clone(),
            statistics_url: none,
            sort: true,
        }
    }
}
module_settings!(StatusSettings);

/// The module.
pub struct Status {
    board: StatusBoard,
    /// Wall-clock seconds when the server was started.
    started_s: i64,
}

impl Status {
    /// For a worker of a server that was started at `started_s`.
    pub fn new(board: &StatusBoard, started_s: i64) -> Self {
        Self { board: board.clone(), started_s }
    }
}

/// The requested page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    Page,
    Auto,
    Json,
    Config,
    Statistics,
}

/// What the workers said, and what is known besides.
struct Facts {
    reports: Vec<Report>,
    workers: usize,
    figures: Vec<(String, String)>,
    pools: Vec<BackendPool>,
    started_s: i64,
    now_s: i64,
    version: &'static str,
    modules: Vec<&'static str>,
    sort: bool,
    refresh_s: Option<u16>,
    host: String,
}

impl Facts {
    fn uptime_s(&self) -> u64 {
        u64::try_from(self.now_s - self.started_s).unwrap_or(0)
    }

    fn sum(&self, of: impl Fn(&Report) -> u64) -> u64 {
        self.reports.iter().map(of).fold(0, u64::saturating_add)
    }

    fn idle(&self) -> u64 {
        self.sum(Report::idle)
    }

    fn busy(&self) -> u64 {
        self.sum(|report| report.open().saturating_sub(report.idle()))
    }

    /// Of a sum over the latest seconds, so much in one of them.
    fn recent(&self, of: impl Fn(&Report) -> u64) -> u64 {
        self.reports.iter().map(|report| of(report) / report.pace.seconds.max(1)).sum()
    }

    /// Of a sum since the start, so much in one second.
    fn mean(&self, of: impl Fn(&Report) -> u64) -> u64 {
        self.sum(of) / self.uptime_s().max(1)
    }
}

fn own(s: &mut Settings) -> &mut StatusSettings {
    s.module_mut()
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_status").since("1.4")
}

impl Module for Status {
    fn name(&self) -> &'static str {
        "mod_status"
    }

    fn hooks(&self) -> Hooks {
        Hooks { clean_url: true, ..Hooks::default() }
    }

    fn needs(&self, _config: &Config<Settings>) -> Needs {
        Needs { targets: true, ..Needs::default() }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<StatusSettings>();
        let urls = [&own.status_url, &own.config_url, &own.statistics_url];
        self.hooks().only_if(urls.iter().any(|url| !url.is_empty()))
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            row(Directive::string("status.status-url", |s, v| own(s).status_url = v))
                .default("")
                .doc(
                    "Path of a page with what the server is doing: workers, requests, traffic, \
                     each backend (its state and why it is down, requests under way, waiting and \
                     failed), and each connection with its client, its request and what it waits \
                     for. With \
                     `?auto` it answers lines for programs, with `?json` (or for whoever prefers \
                     `Accept: application/json`) JSON; `?refresh=5` makes the page load itself \
                     again every five seconds. Empty: nowhere. Everybody who may ask sees the \
                     addresses of others: put it into a condition on `$HTTP[\"remoteip\"]`.",
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
            row(Directive::bool("status.enable-sort", |s, on| own(s).sort = on))
                .default("enable")
                .doc("Whether the connections on the page can be sorted by a click on a heading.")
                .example("status.enable-sort = \"disable\""),
        ]
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<StatusSettings>();
        if !ex.request.method.is_some_and(Method::is_get_or_head) {
            return Step::Next;
        }
        match own.question(ex) {
            Some(question) => {
                let (board, started_s, sort) = (self.board.clone(), self.started_s, own.sort);
                Step::Wait(Box::pin(respond(ex, board, started_s, sort, question)))
            }
            None => Step::Next,
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
                _ if accept::prefers(accepted, text::JSON, page::HTML) => Question::Json,
                _ => Question::Page,
            });
        }
        if is(&self.config_url) {
            return Some(Question::Config);
        }
        is(&self.statistics_url).then_some(Question::Statistics)
    }
}

async fn respond(
    ex: &mut Exchange,
    board: StatusBoard,
    started_s: i64,
    sort: bool,
    question: Question,
) -> Step<'static> {
    let (reports, workers) = board.ask().await;
    let facts = Facts {
        figures: board.figures(&reports),
        pools: board.pools(),
        reports,
        workers,
        started_s,
        now_s: ex.machine.clock.unix_s(),
        version: env!("CARGO_PKG_VERSION"),
        modules: ex.generation.modules.iter().map(|module| module.name()).collect(),
        sort,
        refresh_s: refresh(ex.request.query()),
        host: String::from_utf8_lossy(&ex.request.authority).into_owned(),
    };
    let (media_type, body) = match question {
        Question::Page => (page::HTML_UTF8, page::status(&facts)),
        Question::Config => (page::HTML_UTF8, page::config(&facts)),
        Question::Auto => (text::PLAIN, text::auto(&facts)),
        Question::Json => (text::JSON, text::json(&facts)),
        Question::Statistics => (text::PLAIN, text::statistics(&facts)),
    };
    let response = &mut ex.response;
    if body.is_empty() {
        response.restart(Code::NO_CONTENT);
        response.answered = true;
        return Step::Answered;
    }
    response.set_text(Code::OK, media_type, body);
    response.fields.set(Known::CacheControl, "no-store");
    if media_type == page::HTML_UTF8 {
        response.fields.push(b"Content-Security-Policy", page::POLICY.as_bytes());
    }
    Step::Answered
}

/// `refresh=5` in a query.
fn refresh(query: &[u8]) -> Option<u16> {
    let found = query.split(|byte| *byte == b'&').find_map(|part| part.strip_prefix(b"refresh="));
    std::str::from_utf8(found?).ok()?.parse().ok().filter(|seconds| *seconds > 0)
}
