//! A request and its response on their way through the phases.

pub mod body;
pub mod cache_orders;
pub mod cache_trace;
pub mod client;
pub mod encoded_forms;
pub mod environment;
pub mod extensions;
pub mod file_part;
pub mod put_away;
pub mod request;
pub mod request_id;
pub mod request_state;
pub mod response;
pub mod send_budget;
pub mod served_file;
pub mod span;
pub mod stage;
pub mod throttle;
pub mod trace_context;
pub mod tunnel;
pub mod upstream_trace;
pub mod variables;
pub mod verified_identity;

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;
use std::panic::Location;
use std::rc::Rc;

use lighty_config::{CaptureSet, Facts, Field, Undecided};
use lighty_http::hop_by_hop::end_to_end;
use lighty_http::{Fields, Known, Status, uri, variable_name};

use crate::exchange::body::RequestBody;
use crate::exchange::client::Client;
use crate::exchange::environment::Environment;
use crate::exchange::extensions::{Extension, Extensions};
use crate::exchange::request::Request;
use crate::exchange::request_id::RequestId;
use crate::exchange::request_state::{
    FailedSettings, KeptSettings, RequestState, TakenBy, TracedRequest,
};
use crate::exchange::response::Response;
use crate::exchange::span::Span;
use crate::exchange::stage::{Stage, Stages};
use crate::fault::{Blame, Fate, Fault, FaultReport};
use crate::generation::Generation;
use crate::log::{About, ErrorLine, Level, Repeating, SourcePlace};
use crate::machine::Machine;
use crate::pipeline::physical::{Physical, directory};
use crate::settings::Settings;
use crate::settings::rules::UrlParts;

/// The state of one request, reused for later requests on any of the worker's connections.
pub struct Exchange {
    /// The request's head and the client's addresses.
    pub request: Request,
    /// The request's body, read piece by piece.
    pub body: RequestBody,
    /// The client's connection, apart from the response; `None` in a rehearsal and in tests.
    pub client: Option<Rc<RefCell<dyn Client>>>,
    /// The response so far.
    pub response: Response,
    /// The file that the request leads to, once the URL is mapped.
    pub physical: Physical,
    /// The settings that hold for the request. They are resolved again when more conditions can be
    /// decided.
    pub settings: Rc<Settings>,
    /// The configuration under which the request began and ends.
    pub generation: Rc<Generation>,
    /// The state of the worker that serves the request.
    pub machine: Rc<Machine>,
    /// Fields of a handler that delegates to a file or to another local URL. They are added to the
    /// final response if it succeeds.
    pub carried: Fields,
    /// Number of this request on its connection, starting at 1.
    pub ordinal: u32,
    /// Captures of the conditions behind `settings`: `%0` to `%9`.
    pub captures: CaptureSet,
    /// Variables for backends and logs, in insertion order.
    pub environment: Environment,
    /// Per-request data of single features.
    extensions: Extensions,
    /// The requested path, set while `request.path` names an index file. Conditions on the URL see
    /// it.
    requested_path: Vec<u8>,
    /// If not empty, the path that conditions on the URL see instead of `requested_path` or the
    /// request's.
    served_path: Vec<u8>,
    /// Fields that an error response must carry, kept while an error handler runs.
    pub(crate) owed: Fields,
    /// Bookkeeping of the request: restarts, fault, handler, progress.
    pub state: RequestState,
    /// Times at which the request reached each stage.
    pub stages: Stages,
}

impl Exchange {
    /// Resolves with the fault once the client no longer waits for the response.
    pub fn client_gone(&self) -> impl Future<Output = Fault> + use<> {
        let client = self.client.clone();
        std::future::poll_fn(move |cx| match &client {
            Some(client) => {
                let mut client = client.borrow_mut();
                client.pause_body_timer();
                client.poll_gone(cx)
            }
            None => std::task::Poll::Pending,
        })
    }

    /// Creates an empty exchange.
    pub fn new(generation: &Rc<Generation>) -> Self {
        Self {
            request: Request::default(),
            body: RequestBody::default(),
            client: None,
            response: Response::default(),
            physical: Physical::default(),
            settings: Rc::clone(&generation.global),
            generation: Rc::clone(generation),
            machine: Rc::clone(&generation.machine),
            carried: Fields::default(),
            ordinal: 0,
            captures: CaptureSet::default(),
            environment: Environment::default(),
            extensions: Extensions::default(),
            requested_path: Vec::new(),
            served_path: Vec::new(),
            owed: Fields::default(),
            state: RequestState::default(),
            stages: Stages::default(),
        }
    }

    /// Pins the configuration that the new request runs under.
    #[inline]
    pub fn pin(&mut self, generation: &Rc<Generation>) {
        if !Rc::ptr_eq(&self.generation, generation) {
            self.settings = Rc::clone(&generation.global);
            self.generation = Rc::clone(generation);
        }
    }

    /// Replaces the configuration of a request that only its end is left of, such as a tunnel: its
    /// log line and its counters belong to the new one.
    pub fn renew(&mut self, generation: &Rc<Generation>) {
        if Rc::ptr_eq(&self.generation, generation) {
            return;
        }
        // Modules have other positions in the new configuration.
        self.state.handler = self.counts_for();
        self.state.taken_by = TakenBy::NONE;
        self.pin(generation);
        self.resolve_settings();
    }

    /// Prepares for the next request.
    pub fn clear(&mut self) {
        self.request.clear();
        if self.body.exists() {
            self.body = RequestBody::default();
        }
        self.response.clear();
        self.physical.clear();
        self.carried.clear();
        self.environment.clear();
        self.extensions.reset();
        self.requested_path.clear();
        self.owed.clear();
        self.state = RequestState::default();
    }

    /// Stamps a stage with the present time.
    #[inline]
    pub fn enter(&mut self, stage: Stage) {
        self.stages.enter(stage, self.machine.clock.mono_us());
    }

    /// Begins a span that has no stage of its own. Returns the span that ends.
    #[inline]
    pub fn begin_span(&mut self, span: Span) -> Span {
        self.stages.begin_span(span, self.machine.clock.mono_us())
    }

    /// A feature's data for this request, if the feature has set any.
    #[inline]
    pub fn ext<T: Extension>(&self) -> Option<&T> {
        self.extensions.get()
    }

    /// Like [`Exchange::ext`], but mutable; creates the data if there is none.
    pub fn ext_mut<T: Extension>(&mut self) -> &mut T {
        self.extensions.get_mut()
    }

    /// The settings of the URL that the client requested, if the response may be made under others.
    pub fn client_settings(&self) -> Option<&Rc<Settings>> {
        let failed = self.ext::<FailedSettings>().and_then(|failed| failed.0.as_ref());
        failed.or(self.state.requested_settings.as_ref())
    }

    /// Takes over the feature data that a subrequest of `whole` starts with.
    pub fn inherit(&mut self, whole: &Exchange) {
        self.extensions = whole.extensions.inherited();
    }

    /// The request's id for logs and error pages, assigned on first use.
    pub fn id(&self) -> RequestId {
        let id = self.state.id.get().unwrap_or_else(|| RequestId::next(&self.machine.random));
        self.state.id.set(Some(id));
        id
    }

    /// Adopts the id of the enclosing request.
    pub(crate) fn share_id(&self, whole: &Exchange) {
        self.state.id.set(Some(whole.id()));
    }

    /// The URL's parts, for templates.
    pub fn url_parts(&self) -> UrlParts<'_> {
        let request = &self.request;
        let named = self.settings.core.server_name.as_deref().unwrap_or_default().as_bytes();
        let authority = Some(&*request.authority).filter(|host| !host.is_empty()).unwrap_or(named);
        let has_query = request.path_end < request.target.len();
        UrlParts {
            scheme: request.scheme.as_bytes(),
            authority,
            port: request.local_port,
            path: request.path_encoded(),
            query: has_query.then(|| request.query()),
        }
    }

    /// Keeps the settings that decide about the response's head, before the request restarts as
    /// another one.
    pub fn keep_requested_settings(&mut self) {
        let is_kept = self.state.keeps_settings != KeptSettings::No;
        if is_kept && self.state.requested_settings.is_none() {
            self.state.requested_settings = Some(Rc::clone(&self.settings));
        }
    }

    /// Resolves the settings again, with the conditions that can be decided by now.
    pub fn resolve_settings(&mut self) {
        if self.generation.is_settled(&self.settings) {
            return;
        }
        let keeps = self.generation.keeps_captures();
        let mut captures = keeps.then(|| std::mem::take(&mut self.captures));
        let resolved = self.generation.resolve(&*self, captures.as_mut());
        (self.settings, self.state.undecided) = resolved;
        if let Some(captures) = captures {
            self.captures = captures;
        }
    }

    /// Resolves the settings for the served file's own name: without path info, and in lower case
    /// if file names are forced to it. `None` if they equal the current ones.
    pub(crate) fn settings_as_served(&mut self) -> Option<Rc<Settings>> {
        let path = &self.request.path;
        let path = path.strip_suffix(&self.physical.path_info[..]).unwrap_or(path);
        self.served_path.extend_from_slice(path);
        if self.settings.core.force_lowercase_filenames {
            self.served_path.make_ascii_lowercase();
        }
        // Captures belong to the requested URL, as do the templates that use them.
        let (settings, undecided) = self.generation.resolve(&*self, None);
        self.state.undecided = undecided.or(self.state.undecided.take());
        self.served_path.clear();
        (!Rc::ptr_eq(&settings, &self.settings)).then_some(settings)
    }

    /// True if the served name differs from the requested one: an index file, path info removed, or
    /// forced to lower case.
    pub(crate) fn is_renamed(&self) -> bool {
        !self.requested_path.is_empty() || !self.physical.path_info.is_empty() || self.is_lowered()
    }

    /// Passes an operator-set request field to programs even if its name has characters other than
    /// letters, digits and `-`. Such a field from a client would be withheld.
    pub fn pass_own_field(&mut self, name: &[u8]) {
        if name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
            return;
        }
        if let Some(value) = self.request.fields.get_named(name) {
            let written = b"HTTP_".iter().chain(name);
            let variable: Vec<u8> = written.map(|byte| variable_name::byte(*byte)).collect();
            self.environment.set(&variable, value);
        }
    }

    /// True if file names are lower-cased but the URL is not.
    pub(crate) fn is_lowered(&self) -> bool {
        self.settings.core.force_lowercase_filenames
            && self.request.path.iter().any(u8::is_ascii_uppercase)
    }

    /// Serves an index file: `name` in the requested directory or, with a leading slash, in the
    /// document root. Conditions on the URL still see the requested path.
    pub fn take_index(&mut self, name: &str) {
        self.requested_path.clone_from(&self.request.path);
        if name.starts_with('/') {
            self.request.path.clear();
        }
        self.request.path.extend_from_slice(name.as_bytes());
    }

    /// Forgets the physical path. Until it is known again, no condition on it holds, not even `!=`.
    pub(crate) fn forget_path(&mut self) {
        self.state.path_known = false;
        self.requested_path.clear();
        self.state.served_file.forget();
    }

    /// The path that conditions on the URL see.
    fn url_path(&self) -> &[u8] {
        match (&self.served_path[..], &self.requested_path[..]) {
            (b"", b"") => &self.request.path,
            (b"", requested) => requested,
            (served, _) => served,
        }
    }

    /// Fails a request because a condition behind its settings cannot be decided.
    #[cold]
    pub(crate) fn fail_undecided(&mut self, undecided: &Undecided) {
        self.fail_saying(Fault::PatternLimit, &undecided.message);
    }

    /// Sets a new target (rewriting, error handlers): normalises it and decodes its path.
    pub fn set_target(&mut self, target: &[u8]) -> Result<(), uri::UriFault> {
        let mut normalised = std::mem::take(&mut self.request.target);
        let parse = &self.settings.server.parse;
        let split = uri::normalise(target, parse, &mut normalised)?;
        self.request.target = normalised;
        self.request.path_end = split.path(&self.request.target).len();
        self.decode_path()
    }

    /// Decodes the path of `request.target` into `request.path`.
    pub fn decode_path(&mut self) -> Result<(), uri::UriFault> {
        self.request.path.clear();
        let encoded = &self.request.target[..self.request.path_end];
        uri::decode_path(encoded, &mut self.request.path)
    }

    /// Forwards a backend's interim response (RFC 9110 section 15.2). A 100 is not forwarded:
    /// lighty sends its own when it reads the body.
    pub fn pass_interim(&self, status: Status, fields: &Fields) {
        if status != Status::CONTINUE
            && let Some(client) = &self.client
        {
            let mut passed = Fields::default();
            end_to_end(fields).for_each(|(_, name, value)| passed.push(name, value));
            client.borrow_mut().interim(status, &passed);
        }
    }

    /// Responds with a fault's status and the default error page. Logs at the fault's level.
    #[track_caller]
    pub fn fail(&mut self, fault: Fault) {
        self.fail_saying(fault, "");
    }

    /// Like [`Exchange::fail`], with details for the log.
    #[track_caller]
    pub fn fail_saying(&mut self, fault: Fault, particulars: &str) {
        self.log_fault(fault, particulars);
        self.fail_unlogged(fault);
    }

    /// Like [`Self::fail`], without a line in the error log.
    pub fn fail_unlogged(&mut self, fault: Fault) {
        let verdict = fault.verdict();
        self.state.fault = Some(fault);
        // A client that has closed its sending side still reads the response to its error.
        let is_theirs = verdict.blame == Blame::Client;
        let cut = if is_theirs { Status::BAD_REQUEST } else { Status::INTERNAL_SERVER_ERROR };
        self.fail_status(verdict.status.unwrap_or(cut));
        if fault.is_want() {
            self.response.fields.push_known(Known::RetryAfter, "1");
        }
        if verdict.fate != Fate::Keep {
            self.response.is_last = true;
        }
    }

    /// Like [`Exchange::fail`], with the report's detail for the log.
    #[track_caller]
    pub fn fail_reporting(&mut self, report: &FaultReport) {
        self.fail_saying(report.fault, &report.detail);
    }

    /// Like [`Exchange::fail_reporting`], for a fault that other requests have just logged: this
    /// one goes to the debug log only.
    #[track_caller]
    pub fn fail_hushed(&mut self, report: &FaultReport) {
        self.log_fault_at(Level::Debug, report.fault, &report.detail);
        self.fail_unlogged(report.fault);
    }

    /// In a rehearsal, records an action instead of doing it and marks the request as answered.
    /// Returns false outside a rehearsal.
    #[inline]
    pub fn rehearse(&mut self, act: impl FnOnce(&Exchange) -> String) -> bool {
        let Some(rehearsal) = &self.state.rehearsal else { return false };
        rehearsal.act(act(self));
        self.response.answered = true;
        true
    }

    /// In a rehearsal, records a step. Returns false outside a rehearsal.
    #[inline]
    pub fn rehearse_step(&self, step: impl FnOnce() -> String) -> bool {
        let Some(rehearsal) = &self.state.rehearsal else { return false };
        rehearsal.step(step());
        true
    }

    /// Logs a fault without responding.
    #[track_caller]
    pub fn log_fault(&self, fault: Fault, particulars: &str) {
        let level = match fault {
            Fault::NotFound if self.settings.core.log_file_not_found => Level::Notice,
            Fault::ReadTimeout
            | Fault::HeadTimeout
            | Fault::WriteTimeout
            | Fault::ReadRate
            | Fault::WriteRate
                if self.settings.core.log_timeouts =>
            {
                Level::Notice
            }
            _ => fault.verdict().level,
        };
        self.log_fault_at(level, fault, particulars);
    }

    #[track_caller]
    fn log_fault_at(&self, level: Level, fault: Fault, particulars: &str) {
        let verdict = fault.verdict();
        if let Some(rehearsal) = &self.state.rehearsal {
            let colon = if particulars.is_empty() { "" } else { ": " };
            rehearsal.step(format!("{}{colon}{particulars}", verdict.message));
        }
        if !self.machine.log.wants(level) && !self.is_traced() {
            return;
        }
        let message = if particulars.is_empty() {
            verdict.message.to_owned()
        } else {
            format!("{}: {particulars}", verdict.message)
        };
        self.log(level, &message);
    }

    /// True if an operator traces the request.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.machine.watch.is_on() && self.ext::<TracedRequest>().is_some_and(|traced| traced.0)
    }

    /// Logs an error-log line about this request.
    #[track_caller]
    pub fn log(&self, level: Level, message: &str) {
        self.log_at(Location::caller(), level, message, Repeating::Limited);
    }

    /// Like [`Self::log`], for lines that a directive asks for: all of them are written.
    #[track_caller]
    pub(crate) fn log_in_full(&self, level: Level, message: &str) {
        self.log_at(Location::caller(), level, message, Repeating::Free);
    }

    fn log_at(&self, place: SourcePlace, level: Level, message: &str, repeating: Repeating) {
        let log = &self.machine.log;
        let is_hushed = self.state.quiet && level < Level::Warning;
        let is_wanted = !is_hushed && log.wants_at(place, level);
        let is_traced = self.is_traced();
        if !is_wanted && !is_traced {
            return;
        }
        let path = if self.state.path_known { self.physical.path() } else { Vec::new() };
        let about = About {
            client: &self.request.peer_text,
            method: self.request.method.map_or("", |m| m.as_str()),
            target: &self.request.target_raw,
            path: &path,
            limit: "",
            id: Some(self.id()),
        };
        let now_s = self.machine.clock.unix_s();
        let repeating = if is_traced { Repeating::Free } else { repeating };
        log.add(place, repeating, &ErrorLine { level, now_s, message, about });
    }

    /// Logs, rate-limited, that a client's request for a WebSocket is refused, and the reason.
    #[cold]
    pub fn log_refused_upgrade(&self, why: &str) {
        let now_s = (self.machine.clock.mono_ms() / 1000) as u32;
        if self.request.fields.list_contains(Known::Upgrade, "websocket")
            && self.machine.refused_upgrades.is_due(now_s)
        {
            let message = format!("the client asks for a WebSocket, and {why}");
            self.log(Level::Notice, &message);
        }
    }

    /// The module that metrics count the request for: the module that took the request on, so that
    /// its failures are counted as its own, otherwise the module that responded. Empty if there is
    /// neither.
    pub fn counts_for(&self) -> &'static str {
        let taken_by = self.state.taken_by.index().and_then(|at| self.generation.modules.get(at));
        taken_by.map_or(self.state.handler, |module| module.name())
    }

    /// Responds with an error status that is the regular outcome of the request, such as 412, or a
    /// challenge. Nothing is logged or counted as a fault. The page is filled in at the end of the
    /// pipeline.
    pub fn fail_status(&mut self, status: Status) {
        self.response.restart(status);
        self.response.answered = true;
        self.state.handler = "";
    }

    /// Sets the physical path: the document root and the path beneath it.
    pub fn set_physical(&mut self) {
        if self.physical.docroot.is_empty() {
            let root = directory(self.settings.core.document_root.as_bytes());
            self.physical.docroot.extend_from_slice(root);
        }
        self.physical.rel.clear();
        let path = self.request.path.strip_prefix(b"/").unwrap_or(&self.request.path);
        self.physical.rel.extend_from_slice(path);
        if self.settings.core.force_lowercase_filenames {
            self.physical.rel.make_ascii_lowercase();
        }
        self.state.path_known = true;
    }
}

fn text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    Some(lossy(Cow::Borrowed(bytes)))
}

impl Facts for Exchange {
    fn get(&self, field: &Field) -> Option<Cow<'_, str>> {
        let request = &self.request;
        let header = |name: &[u8]| Some(lossy(request.fields.joined(name)));
        match field {
            Field::Socket => Some(Cow::Borrowed(&*request.local_socket)),
            Field::Scheme => Some(Cow::Borrowed(request.scheme)),
            Field::Url => text(self.url_path()),
            Field::Host => text(&request.authority),
            Field::Referer => header(b"referer"),
            Field::UserAgent => header(b"user-agent"),
            Field::Cookie => header(b"cookie"),
            Field::Language => header(b"accept-language"),
            Field::RemoteIp => match request.remote_ip() {
                Some(ip) => Some(Cow::Owned(ip.to_string())),
                None => Some(Cow::Borrowed(&*request.peer_text)).filter(|path| !path.is_empty()),
            },
            Field::QueryString => text(request.query()),
            Field::Method => request.method.map(|m| Cow::Borrowed(m.as_str())),
            Field::RequestHeader(name) => header(name.as_bytes()),
            Field::Place(path) => {
                let places = &self.generation.global.core.places;
                let find = |address| places.find(&self.machine.known_places, address, path);
                let found = request.remote_ip().and_then(find);
                Some(Cow::Owned(found.as_deref().unwrap_or_default().to_owned()))
            }
            Field::PhysicalPath => {
                self.state.path_known.then(|| lossy(self.physical.path().into()))
            }
            Field::PhysicalExistingPath => {
                let is_there = self.physical.entry.is_some() || self.physical.presumed;
                is_there.then(|| lossy(self.physical.path().into()))
            }
        }
    }

    fn remote_ip(&self) -> Option<IpAddr> {
        self.request.remote_ip()
    }

    fn is_listed(&self, list: &str) -> bool {
        self.request.remote_ip().is_some_and(|address| self.generation.lists(list, address))
    }
}

/// Converts to text. Valid UTF-8, checked a word at a time, skips the slower lossy conversion.
fn lossy(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        Cow::Borrowed(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(bytes),
        },
        Cow::Owned(bytes) => Cow::Owned(
            String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        ),
    }
}
