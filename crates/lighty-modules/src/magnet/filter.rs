//! Scripts as filters of streamed bodies.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_core::exchange::response::BodyOrigin;
use lighty_core::{BodyChunk, Exchange, Fault, FaultReport, Filter, Source, Step};
use lighty_http::{Known, Status};
use lighty_io::clock::Clock;
use lighty_lua::budget::SLICE_US;
use lighty_lua::{EngineRun, RunInput, RunLimits, RunProgress};

use super::drive::{fail_response, fault_of};
use super::request::MagnetRequest;
use super::script_changes::ScriptChanges;
use super::scripts::{ScriptError, UsedResources};
use super::settings::MagnetSettings;
use super::{Magnet, Stage, attributes, calls};

/// Runs a script over a response body.
struct ScriptFilter {
    magnet: Rc<Magnet>,
    run: EngineRun,
    limits: RunLimits,
    path: Arc<str>,
    /// The request as the script sees it; `None` while a call uses it.
    lent: Option<Box<Exchange>>,
    state: ScriptFilterState,
    /// The script was notified of the end of the body.
    knows_end: bool,
    used: UsedResources,
    clock: Clock,
}

type Performing = Pin<Box<dyn Future<Output = (Box<Exchange>, RunInput)>>>;

enum ScriptFilterState {
    /// The script continues with this input.
    Resume(RunInput),
    /// The script waits for a piece of the body.
    Wants,
    /// The script waits for a call or for its turn.
    Performs(Performing),
    Ended,
}

impl Magnet {
    /// Adds the scripts as filters to the response's body.
    pub(super) fn filter_body<'a>(self: &'a Rc<Self>, ex: &'a mut Exchange) -> Step<'a> {
        // Restores the field for later filters, which may encode the body.
        if let Some(changes) = ex.ext::<ScriptChanges>()
            && changes.accept_encoding.is_some()
            && let Some(codings) = ex.ext_mut::<ScriptChanges>().accept_encoding.take()
        {
            ex.request.fields.set(Known::AcceptEncoding, codings);
        }
        if !is_filtered(ex) {
            return Step::Next;
        }
        Step::Wait(Box::pin(async move {
            let list = Arc::clone(&ex.settings.module::<MagnetSettings>().response_content);
            for path in list.iter() {
                let fault = match self.add_filter(ex, path).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(report)) => report.fault,
                    Err(error) => {
                        self.log_failure(ex, path, &error.to_string());
                        Fault::ScriptFailed
                    }
                };
                // The original body is not sent, because the script was meant to change it.
                fail_response(ex, fault);
                break;
            }
            Step::Next
        }))
    }

    /// Adds a script as a filter. The inner error is an error of the script, already logged.
    async fn add_filter(
        self: &Rc<Self>,
        ex: &mut Exchange,
        path: &Arc<str>,
    ) -> Result<Result<(), FaultReport>, ScriptError> {
        let engine = self.engine(ex).ok_or(ScriptError::NoState)?;
        let machine = Rc::clone(&ex.machine);
        let script = self.scripts.get(&machine, engine, path).await?;
        let run = engine.start_filter(&script).map_err(ScriptError::Start)?;
        let mut filter = ScriptFilter {
            magnet: Rc::clone(self),
            run,
            limits: ex.settings.module::<MagnetSettings>().limits(),
            path: Arc::clone(path),
            lent: Some(Box::new(copy(ex))),
            state: ScriptFilterState::Resume(RunInput::Go),
            knows_end: false,
            used: UsedResources { failed: false, instructions: 0, time_us: 0, memory: 0 },
            clock: machine.clock.clone(),
        };
        if let Err(report) = filter.begin().await {
            return Ok(Err(report));
        }
        let response = &mut ex.response;
        let body = std::mem::take(&mut response.body);
        response.body = body.filtered(Box::new(filter), &machine.engine);
        for name in [Known::ETag, Known::AcceptRanges, Known::ContentLength] {
            response.fields.remove(name);
        }
        (response.declared_length, response.head_content_length) = (None, None);
        response.origin = BodyOrigin::Other;
        Ok(Ok(()))
    }
}

/// Requests the complete, unencoded body if scripts filter it. Scripts do not filter partial or
/// encoded bodies, so otherwise a client could get the original body by requesting a range.
pub(super) fn ask_for_whole(ex: &mut Exchange) {
    if ex.settings.module::<MagnetSettings>().response_content.is_empty() {
        return;
    }
    let fields = &mut ex.request.fields;
    fields.remove(Known::Range);
    fields.remove(Known::IfRange);
    if fields.contains(Known::AcceptEncoding) {
        let codings = fields.joined(b"Accept-Encoding").into_owned();
        fields.remove(Known::AcceptEncoding);
        ex.ext_mut::<ScriptChanges>().accept_encoding.get_or_insert(codings);
    }
}

/// True if scripts filter the body: it exists, is complete and is not encoded. HEAD is treated like
/// GET, because its fields must be the same.
fn is_filtered(ex: &Exchange) -> bool {
    let response = &ex.response;
    !response.body_is_default()
        && response.status != Status::PARTIAL_CONTENT
        && response.tunnel.is_none()
        && !response.fields.contains(Known::ContentEncoding)
}

/// Copies the request for the filter, because the connection owns the exchange later.
fn copy(ex: &Exchange) -> Exchange {
    let mut copy = Exchange::new(&ex.generation);
    copy.settings = Rc::clone(&ex.settings);
    let (from, to) = (&ex.request, &mut copy.request);
    to.method = from.method;
    to.version = from.version;
    to.scheme = from.scheme;
    to.target_raw.clone_from(&from.target_raw);
    to.target.clone_from(&from.target);
    to.path_end = from.path_end;
    to.path.clone_from(&from.path);
    to.authority.clone_from(&from.authority);
    to.fields = from.fields.clone();
    to.peer = from.peer;
    to.peer_text = Rc::clone(&from.peer_text);
    to.local_socket = Rc::clone(&from.local_socket);
    to.local_port = from.local_port;
    copy.response.status = ex.response.status;
    copy.response.fields = ex.response.fields.clone();
    copy.environment = ex.environment.clone();
    copy.physical.lead_to(ex.physical.docroot.clone());
    copy.physical.site.clone_from(&ex.physical.site);
    copy.physical.rel.clone_from(&ex.physical.rel);
    copy.physical.path_info.clone_from(&ex.physical.path_info);
    // Includes the nesting depth of the request: a filter may request the URL that it filters.
    copy.inherit(ex);
    attributes::keep_client_facts(ex, &mut copy);
    copy
}

impl ScriptFilter {
    /// Resumes the script; `Some` contains the bytes that it emitted.
    fn go_on(&mut self, input: RunInput) -> Result<Option<Bytes>, FaultReport> {
        let engine = self.magnet.engine.get().and_then(Option::as_ref);
        let (Some(engine), Some(mut lent)) = (engine, self.lent.take()) else {
            return Err(FaultReport::new(Fault::Internal, "a filter without its script"));
        };
        if let RunInput::Piece(piece) = &input {
            self.knows_end = piece.is_none();
            self.used.add(engine, &self.run);
            // The limits apply to each piece, because a body may be long and its client slow.
            engine.renew(&mut self.run);
        }
        let (stage, server) = (Stage::ResponseStart, &self.magnet.server);
        let mut request = MagnetRequest { ex: &mut lent, stage, server };
        match engine.resume(&mut self.run, &mut request, input, &self.limits) {
            RunProgress::Piece(out) => {
                self.lent = Some(lent);
                self.state = if self.knows_end {
                    ScriptFilterState::Ended
                } else {
                    ScriptFilterState::Wants
                };
                Ok(out.map(Bytes::from))
            }
            RunProgress::Done(_) => {
                self.state = ScriptFilterState::Ended;
                self.lent = Some(lent);
                Ok(None)
            }
            RunProgress::Preempted => {
                self.perform(async move {
                    tokio::task::yield_now().await;
                    (lent, RunInput::Go)
                });
                Ok(None)
            }
            RunProgress::Wait(call) => {
                let left = Duration::from_micros(engine.time_left_us(&self.run, &self.limits));
                let magnet = Rc::clone(&self.magnet);
                self.perform(async move {
                    let performing = calls::perform_within(left, &magnet, &mut lent, call);
                    let (reply, _) = performing.await;
                    (lent, RunInput::Reply(reply))
                });
                Ok(None)
            }
            RunProgress::Failed(failure) => {
                self.used.failed = true;
                let limit = failure.limit.map_or(String::new(), |limit| format!("{limit}: "));
                self.magnet.log_failure(&lent, &self.path, &format!("{limit}{}", failure.text));
                Err(FaultReport::new(fault_of(&failure), self.path.to_string()))
            }
        }
    }

    /// Runs the script until it reads the body, while the response can still be changed.
    async fn begin(&mut self) -> Result<(), FaultReport> {
        let mut turn = FilterTurn::new(&self.clock);
        loop {
            if turn.is_over(&self.clock) {
                tokio::task::yield_now().await;
                turn = FilterTurn::new(&self.clock);
            }
            match std::mem::replace(&mut self.state, ScriptFilterState::Wants) {
                ScriptFilterState::Resume(input) => {
                    self.go_on(input)?;
                }
                ScriptFilterState::Performs(performing) => {
                    let (lent, input) = performing.await;
                    self.lent = Some(lent);
                    self.state = ScriptFilterState::Resume(input);
                }
                state @ (ScriptFilterState::Wants | ScriptFilterState::Ended) => {
                    self.state = state;
                    return Ok(());
                }
            }
        }
    }

    fn perform(&mut self, what: impl Future<Output = (Box<Exchange>, RunInput)> + 'static) {
        self.state = ScriptFilterState::Performs(Box::pin(what));
    }
}

/// Time slice of a filter that waits for neither the body nor a call.
struct FilterTurn {
    ends_us: u64,
}

impl FilterTurn {
    fn new(clock: &Clock) -> Self {
        Self { ends_us: clock.precise_us() + SLICE_US }
    }

    fn is_over(&self, clock: &Clock) -> bool {
        clock.precise_us() >= self.ends_us
    }
}

/// Records the resource usage of the run, also if the client disconnects before the body's end.
impl Drop for ScriptFilter {
    fn drop(&mut self) {
        if let Some(engine) = self.magnet.engine.get().and_then(Option::as_ref) {
            self.used.add(engine, &self.run);
        }
        let used = &self.used;
        let account = &self.run.script().account;
        account.add(used.failed, used.instructions, used.time_us, used.memory);
    }
}

impl Filter for ScriptFilter {
    fn poll_next(&mut self, source: &mut Source, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        let turn = FilterTurn::new(&self.clock);
        loop {
            if turn.is_over(&self.clock) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let input = match std::mem::replace(&mut self.state, ScriptFilterState::Wants) {
                ScriptFilterState::Ended => {
                    self.state = ScriptFilterState::Ended;
                    return Poll::Ready(None);
                }
                ScriptFilterState::Resume(input) => input,
                ScriptFilterState::Performs(mut performing) => match performing.as_mut().poll(cx) {
                    Poll::Pending => {
                        self.state = ScriptFilterState::Performs(performing);
                        return Poll::Pending;
                    }
                    Poll::Ready((lent, input)) => {
                        self.lent = Some(lent);
                        input
                    }
                },
                ScriptFilterState::Wants => match ready!(source.poll_bytes(cx)) {
                    Some(Ok(bytes)) => RunInput::Piece(Some(bytes.to_vec())),
                    Some(Err(report)) => {
                        self.state = ScriptFilterState::Ended;
                        return Poll::Ready(Some(Err(report)));
                    }
                    None => RunInput::Piece(None),
                },
            };
            match self.go_on(input) {
                Ok(Some(out)) if !out.is_empty() => {
                    return Poll::Ready(Some(Ok(Chunk::Memory(out))));
                }
                Ok(_) => {}
                Err(report) => {
                    self.state = ScriptFilterState::Ended;
                    return Poll::Ready(Some(Err(report)));
                }
            }
        }
    }

    fn needs_bytes(&self) -> bool {
        true
    }
}
