//! `mod_cgi`: starts a program for each request, which reads its body and writes the response (RFC
//! 3875).
//!
//! Both directions stream: the program reads the body as the client sends it, and the client reads
//! the response as the program writes it. If the client disconnects, its program is ended; none is
//! left behind.
//!
//! Reading order: `settings`, this file (the request and the response head), `program` (the
//! command and its environment), `child_guard` (end of programs), `talk` (bytes both ways),
//! `output` (the response body).

mod child_guard;
mod output;
mod program;
mod program_input;
mod settings;
mod talk;
mod tunnelled;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::exchange::request_state::Rewriting;
use lighty_core::exchange::response::Maker;
use lighty_core::exchange::span::Span;
use lighty_core::exchange::stage::Stage;
use lighty_core::exchange::variables::split_path;
use lighty_core::machine::permits::Permits;
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline;
use lighty_core::pipeline::phase::Phase;
use lighty_core::pipeline::read_ahead::SpooledResponse;
use lighty_core::pipeline::sendfile;
use lighty_core::pipeline::stored_body::{self, StoredBody};
use lighty_core::settings::limits::INTERIM_MAX;
use lighty_core::{Body, Exchange, Fault, FaultReport, Settings, UnknownLength};
use lighty_http::fields::list_items;
use lighty_http::hop_by_hop::is_upgrade_requested;
use lighty_http::{Fields, Known, Method, Status};
use lighty_io::file::FileKind;
use lighty_io::process::spawn::{Channel, NotStarted};
use lighty_wire::cgi::{CgiFault, CgiHead, HeadLimits, parse_head};
use lighty_wire::http1::Head;

use child_guard::ChildGuard;
use output::ProgramBody;
use settings::CgiSettings;
use talk::{CgiError, Talk};

/// The module.
pub struct Cgi {
    permits: Permits,
}

impl Cgi {
    /// Creates a worker's instance; all workers share `permits`.
    pub fn new(permits: Permits) -> Self {
        Self { permits }
    }
}

impl Module for Cgi {
    fn name(&self) -> &'static str {
        "mod_cgi"
    }

    fn traits(&self) -> Traits {
        Hooks { handle: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<CgiSettings>().runs_nothing())
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::rows()
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(ex.settings.module::<CgiSettings>().interpreter(&ex.physical).is_some())
    }

    fn destination(&self, _phase: Phase, ex: &Exchange) -> Option<Arc<str>> {
        Some(String::from_utf8_lossy(&ex.physical.path()).into())
    }

    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<CgiSettings>();
        if own.runs_nothing() {
            return Step::Next;
        }
        let Some(entry) = &ex.physical.entry else { return Step::Next };
        let meta = entry.meta();
        let may_run = !own.execute_x_only || meta.mode & 0o111 != 0;
        if meta.kind != FileKind::File || !may_run {
            return Step::Next;
        }
        match own.interpreter(&ex.physical) {
            Some(interpreter) => {
                if ex.rehearse(|ex| described(ex, interpreter)) {
                    return Step::Answered;
                }
                let interpreter = interpreter.to_owned();
                Step::Wait(Box::pin(serve(ex, self.permits.clone(), settings, interpreter)))
            }
            None => Step::Next,
        }
    }
}

/// Describes the command that would run, for `lighty explain`.
fn described(ex: &Exchange, interpreter: &str) -> String {
    let path = ex.physical.path();
    let gap = if interpreter.is_empty() { "" } else { " " };
    format!("runs {interpreter}{gap}{}", String::from_utf8_lossy(&path))
}

async fn serve(
    ex: &mut Exchange,
    permits: Permits,
    settings: Rc<Settings>,
    interpreter: String,
) -> Step<'static> {
    let own = settings.module::<CgiSettings>();
    match respond(ex, &permits, own, &interpreter).await {
        Ok(step) => step,
        Err(report) => {
            ex.fail_reporting(&report);
            if report.fault == Fault::ProgramsMax {
                ex.response.fields.push_known(Known::RetryAfter, "1");
            }
            Step::Answered
        }
    }
}

async fn respond(
    ex: &mut Exchange,
    permits: &Permits,
    own: &CgiSettings,
    interpreter: &str,
) -> Result<Step<'static>, FaultReport> {
    let upgrade = own.upgrade && ex.request.upgrade;
    if ex.request.upgrade && !upgrade {
        ex.log_refused_upgrade("cgi.upgrade is off here");
    }
    ex.response.maker = Maker::Program;
    if !ex.request.upgrade {
        receive_body(ex).await?;
    }
    ex.enter(Stage::Connect);
    let (guard, channel) = start(ex, permits, own, interpreter, upgrade).await?;
    ex.enter(Stage::Connected);
    let mut talk = Talk::new(ex, channel, guard, own.limits);
    let mut head = CgiHead::new();
    read_head(ex, &mut talk, &mut head).await?;
    ex.enter(Stage::HeadBack);
    if head.status == Status::SWITCHING_PROTOCOLS && upgrade {
        return hand_over(ex, talk, head);
    }
    talk.stays();
    if head.status == Status::SWITCHING_PROTOCOLS {
        return Err(FaultReport::new(Fault::BackendMalformed, "101 without having been asked"));
    }
    let is_local = own.local_redir && head.is_local_redirect && talk.pending().is_empty();
    if is_local && !leads_back(ex, &head) {
        return redirect(ex, talk, &head);
    }
    if own.x_sendfile
        && let Some(named) = sendfile::requested_file(&head.fields)
    {
        return send_file(ex, talk, head, own, &named);
    }
    Ok(take(ex, talk, head))
}

/// Receives the whole body first if the program needs its length (RFC 3875 section 4.1.2), or if
/// processes must not wait for slow clients (`server.stream-request-body`).
async fn receive_body(ex: &mut Exchange) -> Result<(), FaultReport> {
    let stream = ex.settings.core.stream_request_body;
    if ex.body.exists() && stored_body::is_needed(ex, ex.body.announced(), stream, true) {
        let mut body = std::mem::take(&mut ex.body);
        ex.body = StoredBody::receive(ex, &mut body).await?.into_body();
    }
    Ok(())
}

/// Starts the program. If no descriptor is free, waits briefly for one, as requests for files do.
async fn start(
    ex: &Exchange,
    permits: &Permits,
    own: &CgiSettings,
    interpreter: &str,
    upgrade: bool,
) -> Result<(ChildGuard, Channel), FaultReport> {
    let since_ms = ex.machine.clock.mono_ms();
    loop {
        let permit = permits.try_acquire(1, own.processes_max as u64).ok_or_else(|| {
            FaultReport::new(Fault::ProgramsMax, format!("{} programs run", own.processes_max))
        })?;
        let program = program::describe(ex, interpreter, upgrade);
        match ChildGuard::start(program, permit, own, ex, upgrade).await {
            Err(error) if Fault::of_file_error(&error) == Fault::DescriptorsExhausted => {
                ex.machine.await_descriptor(since_ms, error).await.map_err(failed)?;
            }
            started => return started.map_err(failed),
        }
    }
}

/// Returns the report for a program that did not start.
fn failed(error: std::io::Error) -> FaultReport {
    let fault = match error.kind() {
        std::io::ErrorKind::PermissionDenied => Fault::Forbidden,
        _ if Fault::of_file_error(&error).is_want() => Fault::of_file_error(&error),
        _ => Fault::ProgramFailed,
    };
    let not_started = error.get_ref().and_then(|inner| inner.downcast_ref::<NotStarted>());
    let detail = match not_started {
        // The message of the fault has the remaining details.
        Some(NotStarted { path, error }) if fault == Fault::ProgramFailed => {
            format!("{}: {error}", path.display())
        }
        _ => error.to_string(),
    };
    FaultReport::new(fault, detail)
}

/// Forwards the request body until the response head is complete, and interim responses.
async fn read_head(
    ex: &mut Exchange,
    talk: &mut Talk,
    head: &mut CgiHead,
) -> Result<(), FaultReport> {
    // An earlier program of this request may have received the whole body.
    ex.stages.forget(Stage::RequestSent);
    let limits = HeadLimits::default();
    let mut interim = 0;
    loop {
        let more = std::future::poll_fn(|cx| {
            let more = talk.poll_more(cx);
            follow(ex, talk);
            more
        });
        let count = more.await.map_err(|error| failure(&error))?;
        if count == 0 {
            let message = "the program ended without the head of a response";
            talk.complete();
            return Err(FaultReport::new(Fault::BackendMalformed, message));
        }
        while let Head::Complete { consumed } =
            parse_head(talk.pending(), &limits, head).map_err(malformed)?
        {
            talk.consume(consumed);
            if !head.is_interim() {
                return Ok(());
            }
            interim += 1;
            if interim > INTERIM_MAX {
                let message = format!("more than {INTERIM_MAX} interim responses");
                return Err(FaultReport::new(Fault::BackendMalformed, message));
            }
            ex.pass_interim(head.status, &head.fields);
        }
    }
}

/// Records whether sending the request body waits for the client or for the program.
fn follow(ex: &mut Exchange, talk: &Talk) {
    if ex.stages.has(Stage::RequestSent) {
        return;
    }
    if !talk.takes_body() {
        ex.enter(Stage::RequestSent);
    } else if talk.waits_for_client() {
        ex.begin_span(Span::RequestBody);
    } else {
        ex.begin_span(Span::Send);
    }
}

fn malformed(fault: CgiFault) -> FaultReport {
    FaultReport::new(Fault::BackendMalformed, fault.message())
}

fn failure(error: &CgiError) -> FaultReport {
    // Nothing was sent yet, so the client can get an error.
    let fault = match error.fault() {
        Fault::BackendCut => Fault::BackendMalformed,
        fault => fault,
    };
    FaultReport::new(fault, error.to_string())
}

/// True if a redirect leads to the program's own path, also with a path info or query. To avoid an
/// internal loop, such a redirect goes to the client, as in lighttpd.
fn leads_back(ex: &Exchange, head: &CgiHead) -> bool {
    let (own, _) = split_path(ex);
    let location = head.fields.get(Known::Location).unwrap_or_default();
    let behind = location.strip_prefix(own);
    behind.is_some_and(|behind| matches!(behind.first(), None | Some(b'/' | b'?')))
}

/// Local redirect (RFC 3875 section 6.2.2): the server responds with another of its paths.
fn redirect(ex: &mut Exchange, talk: Talk, head: &CgiHead) -> Result<Step<'static>, FaultReport> {
    let target = head.fields.get(Known::Location).unwrap_or_default().to_vec();
    ex.set_target(&target).map_err(|_| {
        FaultReport::new(Fault::BackendMalformed, "a local Location that is no path of a URL")
    })?;
    // The URL differs from the rewritten one, so the rewrite rules apply again.
    ex.state.rewriting = Rewriting::default();
    if ex.request.method != Some(Method::Head) {
        ex.request.method = Some(Method::Get);
    }
    talk.read_to_nowhere();
    Ok(Step::Restart)
}

/// Sends a file in place of the program's output (X-Sendfile).
fn send_file(
    ex: &mut Exchange,
    talk: Talk,
    mut head: CgiHead,
    own: &CgiSettings,
    named: &sendfile::RequestedFile,
) -> Result<Step<'static>, FaultReport> {
    talk.read_to_nowhere();
    ex.response.status = head.status;
    ex.response.take_fields(&mut head.fields);
    sendfile::send(ex, &own.x_sendfile_docroot, named)
}

/// Turns the program's output into the response.
fn take(ex: &mut Exchange, talk: Talk, mut head: CgiHead) -> Step<'static> {
    if head.status == Status::UPGRADE_REQUIRED
        && let Some(protocols) = head.upgrade.take()
    {
        // RFC 9110 section 15.5.22: a 426 response must have the Upgrade field.
        head.fields.push_known(Known::Upgrade, protocols);
    }
    if head.status.code() >= 400 && ex.settings.core.error_intercept {
        talk.read_to_nowhere();
        ex.fail_status(head.status);
        pipeline::keep_owed(&head.fields, &mut ex.response.fields);
        return Step::Answered;
    }
    let bodiless = matches!(head.status, Status::NO_CONTENT | Status::NOT_MODIFIED);
    let response = &mut ex.response;
    response.status = head.status;
    response.take_fields(&mut head.fields);
    sendfile::take_out(&mut response.fields);
    response.answered = true;
    if ex.request.is_head() || bodiless {
        response.head_content_length = head.content_length;
        if !bodiless && head.content_length.is_none() {
            response.body = Body::Stream(Box::new(UnknownLength));
        }
        talk.read_to_nowhere();
    } else {
        let output = ProgramBody::new(talk, &head);
        let stream = ex.settings.core.stream_response_body;
        ex.response.body = SpooledResponse::body(ex, output, stream);
    }
    Step::Answered
}

/// Starts the tunnel after the program accepted an upgrade.
fn hand_over(
    ex: &mut Exchange,
    talk: Talk,
    mut head: CgiHead,
) -> Result<Step<'static>, FaultReport> {
    let protocol = agreed_protocol(&ex.request.fields, &head).ok_or_else(|| {
        let message = "101 to another protocol than the client asked for";
        FaultReport::new(Fault::BackendMalformed, message)
    })?;
    let response = &mut ex.response;
    response.status = Status::SWITCHING_PROTOCOLS;
    std::mem::swap(&mut response.fields, &mut head.fields);
    response.fields.push_known(Known::Upgrade, protocol);
    response.tunnel = talk.into_tunnel().map(|joined| Box::new(joined) as _);
    response.answered = true;
    Ok(Step::Answered)
}

/// The protocol after an upgrade. A program that names none accepts the only one requested.
fn agreed_protocol(request_fields: &Fields, head: &CgiHead) -> Option<Vec<u8>> {
    if let Some(agreed) = &head.upgrade {
        let is_requested = is_upgrade_requested(request_fields, std::iter::once(&**agreed));
        return is_requested.then(|| agreed.clone());
    }
    let mut offers = request_fields.get_all(Known::Upgrade).flat_map(list_items);
    let only = offers.next()?;
    offers.next().is_none().then(|| only.to_vec())
}
