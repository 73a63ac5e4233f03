//! Serves one request: checks out a connection, sends the request, retries where allowed, and
//! returns the response.

mod again;
mod bad_response;
mod client_span;
mod grpc;
pub mod local;
mod respond;
mod suspicion;
pub(crate) mod upstream_call;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use lighty_core::exchange::stage::Stage;
use lighty_core::exchange::upstream_trace::UpstreamTrace;
use lighty_core::pipeline::stored_body::{self, StoredBody};
use lighty_core::{Exchange, Fault, FaultReport, Step};
use lighty_http::{Known, Method};
use lighty_io::transport::{Idle, Stream};
use lighty_wire::http1::BodyFraming;

use crate::connect::checkout::{Checkout, CheckoutRequest, Refusal};
use crate::connect::dial::{Dial, DialFault};
use crate::connect::h2::StreamTicket;
use crate::connect::pool::{ConnPermit, Connection};
use crate::request::proxy_header;
use crate::request::replayable_body::ReplayableBody;
use crate::request::sticky;
use crate::response::internal_redirect::WantedBackend;
use crate::response::reply;
use crate::route::rules::Route;
use crate::serve::local::Local;
use crate::serve::suspicion::Suspicion;
use crate::serve::upstream_call::{CallFailure, PATIENCE_MS, UpstreamCall};
use crate::session::{Event, upgrade_protocol};
use crate::upstream::Upstream;
use crate::upstream::address::{Address, AddressId};
use crate::upstream::balance::BalanceKey;
use crate::upstream::health::passive::AddressState;
use crate::upstream::registry::Naming;
use crate::upstream::spec::Protocol;
use crate::websocket;
use lighty_core::log::Level;

/// Maximum attempts per request, whatever the number of addresses.
const TRIES_MAX: usize = 16;

/// A request that is being proxied.
struct Serving<'a> {
    ex: &'a mut Exchange,
    local: Rc<Local>,
    route: Arc<Route>,
    upstream: Arc<Upstream>,
    upload: ReplayableBody,
    tried: Vec<AddressId>,
    /// Attempts on a pooled connection that the backend had already closed.
    stale: usize,
    /// The pooled connection that was abandoned because it was silent.
    suspicion: Option<Suspicion>,
    /// Number of resends.
    repeats: u32,
    trace: UpstreamTrace,
}

/// A worker's upstreams under the request's generation.
#[derive(Clone)]
pub(crate) struct Upstreams {
    pub local: Rc<Local>,
    pub naming: Arc<Naming>,
}

/// Serves a request through a route.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn keeps its arguments twice in its future, and each request moves that"
)]
pub(crate) fn serve(
    ex: &mut Exchange,
    upstreams: Upstreams,
    route: Arc<Route>,
) -> impl Future<Output = Step<'static>> {
    async move {
        if let Some(rules) = route.websocket.clone() {
            let Upstreams { local, naming } = upstreams;
            return Box::pin(websocket::serve(ex, (local, &naming), route, rules)).await;
        }
        if route.upstream.protocol == Protocol::Raw {
            return refuse_raw(ex, &route);
        }
        let upstream = upstreams.local.upstream(&route.upstream, &upstreams.naming);
        upstream.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // An authorizer gets no body: the handler after it needs it.
        let upload = match route.is_authorizer() {
            true => ReplayableBody::none(),
            false => ReplayableBody::new(std::mem::take(&mut ex.body), route.request.trailers),
        };
        let mut serving = Serving {
            ex,
            local: upstreams.local,
            route,
            upstream,
            upload,
            tried: Vec::new(),
            stale: 0,
            suspicion: None,
            repeats: 0,
            trace: UpstreamTrace::default(),
        };
        let outcome = serving.run().await;
        if let Err(report) = &outcome {
            serving.failed_client_span(report.fault.verdict().message);
        }
        serving.leave_client_span();
        *serving.ex.ext_mut() = std::mem::take(&mut serving.trace);
        outcome.unwrap_or_else(|report| serving.fail(report))
    }
}

#[cold]
fn refuse_raw(ex: &mut Exchange, route: &Route) -> Step<'static> {
    let name = &route.upstream.name;
    let message = format!("{name} is for whole connections: it belongs into a $SERVER[\"socket\"]");
    ex.fail_saying(Fault::Internal, &message);
    Step::Answered
}

impl Serving<'_> {
    #[cold]
    fn fail(&mut self, report: FaultReport) -> Step<'static> {
        let mut report = report.about(&self.upstream.spec.name);
        let now_ms = self.local.clock.mono_ms();
        self.upstream.fault_log.fail(self.ex, &mut report, now_ms);
        if report.fault.verdict().status.is_some_and(|status| status.code() == 503) {
            let after_s = self.retry_after_s(report.fault).to_string();
            self.ex.response.fields.push_known(Known::RetryAfter, after_s);
        }
        grpc::translate(self.ex, &report);
        Step::Answered
    }

    async fn run(&mut self) -> Result<Step<'static>, FaultReport> {
        if self.needs_whole_body() {
            Box::pin(self.receive_body()).await?;
        }
        let mut call = self.local.take_call(&self.route.upstream.protocol);
        call.rewritten.take(self.ex, &self.route)?;
        call.error_kbytes_max = self.ex.settings.core.program_log_kbytes_max;
        let only = self.wanted_backend();
        loop {
            self.ex.enter(Stage::BackendQueue);
            if self.ex.stages.has(Stage::Connect) {
                self.leave_backend();
            }
            self.ex.stages.forget(Stage::RequestSent);
            let began_ms;
            // Nothing in this block stays in the future.
            let Some(mut connection) = ({
                let checkout = match self.checkout_at_once(&call, only.as_deref()) {
                    Some(checkout) => checkout,
                    None => Box::pin(self.wait_for_checkout(&call, only.as_deref())).await?,
                };
                self.ex.enter(Stage::Connect);
                self.begin_client_span(&checkout.permit().address);
                began_ms = self.local.clock.mono_ms();
                match checkout {
                    Checkout::Reused(connection) => self.if_open(connection),
                    // Connecting takes time, so the cost of an allocation does not matter.
                    Checkout::Fresh(permit) => Box::pin(self.connect(permit, began_ms)).await?,
                }
            }) else {
                self.failed_client_span("no connection");
                continue;
            };
            self.ex.enter(Stage::Connected);
            match self.ask(&mut call, &connection).await {
                Ok(sent_us) => {
                    self.ex.enter(Stage::HeadBack);
                    let after_us = self.local.clock.mono_us().saturating_sub(sent_us);
                    connection.permit.address.saw_first_byte(after_us);
                    self.trace.first_byte_us = Some(after_us);
                    self.answered_client_span(call.response.status.code());
                    self.local.note_success(&connection.permit, began_ms);
                    connection.apply_keep_alive(&call.response.fields);
                    if connection.is_reused() {
                        connection.permit.address.served_kept();
                    } else if let Some(suspicion) = self.suspicion.take() {
                        suspicion.judge_later(after_us, &self.local.clock);
                    }
                    return self.respond(call, connection);
                }
                Err(failure) => {
                    self.failed_client_span(failure.message());
                    self.keep_bad_response(&failure, &call, &connection);
                    if call.has_met_busy() {
                        self.suspect(&connection);
                    }
                    let unread = self.went_unread(&failure, &call, &connection).await;
                    self.decide(failure, unread, connection, began_ms)?;
                    let rewritten = std::mem::take(&mut call.rewritten);
                    call.clear();
                    call.rewritten = rewritten;
                }
            }
        }
    }

    /// Abandons a silent pooled connection: its process may still be busy after its last response.
    /// The next attempt opens a new one.
    #[cold]
    fn suspect(&mut self, connection: &Connection) {
        self.suspicion = Some(Suspicion::of(connection));
        self.stale = self.stale.max(1);
    }

    /// Returns true if the whole body must be received first: because the configuration requires
    /// it, or because the protocol needs the length up front and the client did not send one.
    fn needs_whole_body(&self) -> bool {
        let is_like_cgi = self.route.upstream.protocol.is_like_cgi();
        let (announced, stream) = (self.upload.announced(), self.route.request.stream);
        !self.upload.is_none() && stored_body::is_needed(self.ex, announced, stream, is_like_cgi)
    }

    async fn receive_body(&mut self) -> Result<(), FaultReport> {
        let mut body = self.upload.take_body();
        let stored = StoredBody::receive(self.ex, &mut body).await?;
        self.upload = ReplayableBody::stored(stored);
        Ok(())
    }

    /// Returns the backend that an earlier response to this request named in X-Rewrite-Backend.
    fn wanted_backend(&self) -> Option<String> {
        let wanted = self.ex.ext::<WantedBackend>().filter(|wanted| !wanted.0.is_empty())?;
        let wanted = String::from_utf8_lossy(&wanted.0);
        let is_known = self.upstream.addresses().iter().any(|a| *a.spec.text == *wanted);
        if !is_known {
            let name = &self.upstream.spec.name;
            let message =
                format!("{name}: X-Rewrite-Backend: no backend {}", wanted.escape_debug());
            self.ex.log(Level::Warning, &message);
        }
        is_known.then(|| wanted.into_owned())
    }

    /// Checks out a connection, if there is one without waiting.
    fn checkout_at_once(&mut self, call: &UpstreamCall, only: Option<&str>) -> Option<Checkout> {
        let checkout = self.local.checkout_at_once(&self.checkout_request(call, only))?;
        self.note(&checkout);
        Some(checkout)
    }

    /// Waits for a connection, and records the wait.
    async fn wait_for_checkout(
        &mut self,
        call: &UpstreamCall,
        only: Option<&str>,
    ) -> Result<Checkout, FaultReport> {
        let began_us = self.local.clock.mono_us();
        let waited = self.wait_in_backlog(call, only).await;
        let took_us = self.local.clock.mono_us().saturating_sub(began_us);
        self.trace.wait_us = self.trace.wait_us.saturating_add(took_us);
        waited.inspect(|checkout| self.note(checkout))
    }

    /// Separates the time spent at the previous backend from the time at the next one.
    #[cold]
    fn leave_backend(&mut self) {
        let has_failed = self.trace.tries > 0;
        let mut address = self.trace.address.clone();
        if !has_failed {
            // The request comes from another upstream, or a program.
            let before = std::mem::take(self.ex.ext_mut::<UpstreamTrace>());
            (address, self.trace.earlier) = (before.address, before.earlier);
        }
        self.trace.leave(address, has_failed, &self.ex.stages);
    }

    /// Records the request's backend.
    fn note(&mut self, checkout: &Checkout) {
        self.trace.tries += 1;
        self.trace.upstream.get_or_insert_with(|| Arc::clone(&self.upstream.label));
        self.trace.address = Some(Arc::clone(&checkout.permit().address.spec.text));
    }

    fn checkout_request<'c>(
        &'c self,
        call: &'c UpstreamCall,
        only: Option<&'c str>,
    ) -> CheckoutRequest<'c> {
        let key = BalanceKey {
            authority: &self.ex.request.authority,
            target: &call.rewritten.target,
            client: self.ex.request.remote_ip(),
            sticky: sticky::named(self.ex, &self.upstream.spec.balancer),
            random: self.local.random(),
        };
        CheckoutRequest {
            upstream: &self.upstream,
            key,
            class: self.route.class,
            tried: &self.tried,
            only,
            reuse: self.reuse(),
        }
    }

    /// Waits in the backlog, as long as the client waits.
    async fn wait_in_backlog(
        &self,
        call: &UpstreamCall,
        only: Option<&str>,
    ) -> Result<Checkout, FaultReport> {
        let request = self.checkout_request(call, only);
        let waited = tokio::select! {
            biased;
            waited = self.local.wait_for_checkout(&request) => waited,
            fault = self.client_gone() => {
                return Err(FaultReport::new(fault, "while it waited in the backlog"));
            }
        };
        waited.map_err(|refusal| match refusal {
            Refusal::Down => FaultReport::new(Fault::BackendsDown, self.why_down()),
            Refusal::BacklogFull => {
                let length = self.upstream.spec.backlog.length_max;
                FaultReport::new(Fault::BacklogFull, format!("{length} requests wait"))
            }
            Refusal::BacklogTimeout => {
                let wait_ms = self.upstream.spec.backlog.wait_ms;
                FaultReport::new(Fault::BacklogTimeout, format!("{wait_ms} ms"))
            }
        })
    }

    /// Resolves when the client has gone.
    async fn client_gone(&self) -> Fault {
        match &self.ex.client {
            Some(client) => std::future::poll_fn(|cx| client.borrow_mut().poll_gone(cx)).await,
            None => std::future::pending().await,
        }
    }

    fn why_down(&self) -> String {
        let addresses = self.upstream.addresses();
        match addresses.len() {
            0 => "no address is known".to_owned(),
            1 => format!("backend {}", addresses[0].spec.text),
            several => format!("none of {several} addresses"),
        }
    }

    /// Returns the value of Retry-After: the seconds until the first address may be tried again, or
    /// one second if the upstream is only busy (RFC 9110 section 10.2.3).
    fn retry_after_s(&self, fault: Fault) -> u64 {
        if fault != Fault::BackendsDown {
            return 1;
        }
        let now_ms = self.local.clock.mono_ms();
        let down_ms = |address: &Arc<Address>| match address.health.state(now_ms) {
            AddressState::Down { until_ms } => until_ms.saturating_sub(now_ms),
            AddressState::Up | AddressState::Probing => 0,
        };
        let first_ms = self.upstream.addresses().iter().map(down_ms).min().unwrap_or(0);
        first_ms.div_ceil(1000).max(1)
    }

    /// Returns a pooled connection, unless the backend is known to have closed it. For a request
    /// that cannot be resent, probes the connection first, with one system call.
    fn if_open(&mut self, connection: Connection) -> Option<Connection> {
        let now_ms = self.local.clock.mono_ms();
        let is_open =
            || !connection.may_be_closing(now_ms) && connection.stream.probe() == Idle::Quiet;
        if self.is_robust() || is_open() {
            return Some(connection);
        }
        self.stale += 1;
        None
    }

    /// Connects to a backend. Returns `None` if this address failed and another may be tried.
    async fn connect(
        &mut self,
        permit: ConnPermit,
        began_ms: u64,
    ) -> Result<Option<Connection>, FaultReport> {
        let standing = self.local.pool.stand_in_line(&permit);
        let failed = match self.dial(&permit).await {
            Ok((stream, ticket)) => {
                let now_ms = self.local.clock.mono_ms();
                standing.complete(now_ms);
                let connection = Connection::new(stream, permit, Some(standing), now_ms);
                return Ok(Some(connection.holding(ticket)));
            }
            Err(failed) => failed,
        };
        let FaultReport { fault, detail: message, .. } = failed.report();
        if failed.is_want() {
            permit.address.count_failure();
            permit.address.health.record_abandoned(began_ms);
        } else {
            self.local.note_failure(&permit, began_ms, &message);
        }
        if !self.upstream.spec.protocol.is_http() && !failed.is_want() {
            // Its processes are ending; a process with an idle connection would keep the socket
            // bound.
            permit.address.queue.end_idle();
        }
        self.give_up_address(&permit);
        if self.tried.len() < TRIES_MAX && self.may_go_on() {
            return Ok(None);
        }
        // If this failure took the last address down, report the fault that the next request will
        // get.
        let all_down = self.upstream.is_down(self.local.clock.mono_ms(), &[]);
        let fault = match fault {
            Fault::BackendRefused if all_down => Fault::BackendsDown,
            other => other,
        };
        Err(FaultReport::new(fault, format!("backend {}: {message}", permit.address.spec.text)))
    }

    /// Opens a connection, and records how long each part of it took.
    async fn dial(
        &mut self,
        permit: &ConnPermit,
    ) -> Result<(Stream, Option<StreamTicket>), DialFault> {
        let (local, address) = (&self.local, &permit.address);
        let began_us = local.clock.mono_us();
        let mut greeting = Vec::new();
        if let (Some(_), Some(version)) = (&address.tls, self.upstream.spec.proxy_protocol) {
            proxy_header::push(self.ex, version, &mut greeting);
        }
        let dial = Dial {
            target: &address.spec.target,
            tls: address.tls.as_ref(),
            greeting: &greeting,
            options: &local.connect,
            clock: &local.clock,
            tls_began_us: Cell::new(None),
        };
        let spec = &self.upstream.spec;
        let limit_ms = spec.timeouts.connect_ms;
        let opened = match spec.protocol {
            Protocol::Http2 {} => {
                let opened = local.h2.open(address, &dial, &spec.pool, limit_ms).await;
                opened.map(|(stream, ticket)| (stream, Some(ticket)))
            }
            _ => dial.open(limit_ms).await.map(|stream| (stream, None)),
        };
        let now_us = local.clock.mono_us();
        if let Some(tls_began_us) = dial.tls_began_us.get() {
            self.ex.stages.enter(Stage::BackendTls, tls_began_us);
            self.trace.tls_us = Some(now_us.saturating_sub(tls_began_us));
        }
        let connected_us = dial.tls_began_us.get().unwrap_or(now_us);
        let opened = opened?;
        self.trace.connect_us = Some(connected_us.saturating_sub(began_us));
        Ok(opened)
    }

    /// Excludes the address from further attempts. Once every address is excluded, the list is
    /// cleared if one of them is held: checkout decides when to try it again.
    fn give_up_address(&mut self, permit: &ConnPermit) {
        self.tried.push(permit.address.id);
        let addresses = self.upstream.addresses();
        if addresses.iter().all(|address| self.tried.contains(&address.id)) {
            let held = |a: &Arc<crate::upstream::address::Address>| {
                a.health.held_until(self.local.clock.mono_ms()).is_some()
            };
            if addresses.iter().any(held) {
                self.tried.clear();
            }
        }
    }

    /// Returns true if any address is left to try.
    fn may_go_on(&self) -> bool {
        let now_ms = self.local.clock.mono_ms();
        !self.upstream.is_down(now_ms, &self.tried)
    }

    /// Sends the request and reads the response head. Returns the time, in monotonic microseconds,
    /// at which the last byte before the response was sent: the time in which a client sends more
    /// of its body does not count against the backend.
    async fn ask(
        &mut self,
        call: &mut UpstreamCall,
        connection: &Connection,
    ) -> Result<u64, CallFailure> {
        let is_fastcgi = matches!(self.upstream.spec.protocol, Protocol::Fastcgi { .. });
        let may_suspect = || {
            // If most requests take as long at a backend, silence is no evidence.
            let mean_us = u64::from(connection.permit.address.first_byte_us());
            connection.stream.tells_unread() || mean_us < PATIENCE_MS * 1_000 / 2
        };
        let may_be_busy = is_fastcgi && connection.is_reused() && self.is_robust();
        call.may_meet_busy(may_be_busy && may_suspect());
        self.open(call, connection)
            .map_err(|fault| CallFailure::Backend { fault, silent: false })?;
        let exchanged = match self.upstream.is_spawned {
            true => Box::pin(self.ask_program(call, connection)).await,
            false => self.ask_opened(call, connection).await,
        };
        exchanged.map_err(|failure| match failure {
            CallFailure::Backend { mut fault, silent } if fault.fault == Fault::BackendClosed => {
                if let Some(ending) = connection.ending() {
                    fault = ending.before_head();
                } else if let Some(why) = connection.why_died() {
                    fault.detail = why.into();
                }
                CallFailure::Backend { fault, silent }
            }
            other => other,
        })
    }

    /// Sends the request to a program that the server starts. A program that exits at every start
    /// accepts no connection: the ones in its socket's queue would wait for the read timeout.
    async fn ask_program(
        &mut self,
        call: &mut UpstreamCall,
        connection: &Connection,
    ) -> Result<u64, CallFailure> {
        let address = Arc::clone(&connection.permit.address);
        tokio::select! {
            biased;
            exchanged = self.ask_opened(call, connection) => exchanged,
            () = address.broken() => {
                let fault = FaultReport::new(Fault::BackendsDown, "its program ends at every start");
                Err(CallFailure::Backend { fault, silent: true })
            }
        }
    }

    async fn ask_opened(
        &mut self,
        call: &mut UpstreamCall,
        connection: &Connection,
    ) -> Result<u64, CallFailure> {
        let mut sent_us = self.local.clock.mono_us();
        loop {
            let (client, stages) = (&self.ex.client, &mut self.ex.stages);
            let upload = &mut self.upload;
            let timeouts = &self.upstream.spec.timeouts;
            let clock = &self.local.clock;
            let event = std::future::poll_fn(|cx| {
                let before = call.written();
                let head = call.poll_head(connection, upload, client, timeouts, cx);
                if !stages.has(Stage::RequestSent) {
                    let now_us = clock.mono_us();
                    if call.written() > before {
                        sent_us = now_us;
                    }
                    if upload.is_over() && call.has_sent_all() {
                        stages.enter(Stage::RequestSent, now_us);
                    } else {
                        stages.begin_span(call.span(), now_us);
                    }
                }
                head
            })
            .await;
            self.local.log_stderr(&connection.permit, call);
            match event? {
                Event::Interim => reply::pass_interim(self.ex, call),
                Event::Stderr => tokio::task::yield_now().await,
                _ => return Ok(sent_us),
            }
        }
    }

    fn open(&self, call: &mut UpstreamCall, connection: &Connection) -> Result<(), FaultReport> {
        let backend = &connection.permit.address.spec;
        let taken = call.rewritten.take_backend(self.ex, &self.route, backend);
        taken?;
        let body = &self.upload;
        let framing = match body.announced() {
            _ if body.is_none() => BodyFraming::None,
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::Chunked,
        };
        let force_http10 =
            matches!(self.route.upstream.protocol, Protocol::Http { force_http10: true });
        let (session, rewritten, out) = call.outbox();
        // With TLS, the header was already sent before the handshake.
        if let (None, Some(version)) =
            (&connection.permit.address.tls, self.upstream.spec.proxy_protocol)
        {
            proxy_header::push(self.ex, version, out);
        }
        if self.ex.request.upgrade && !self.route.request.upgrade {
            self.ex.log_refused_upgrade("proxy-core.upgrade is off here");
        }
        let upstream_request = crate::request::upstream_request::UpstreamRequest {
            ex: self.ex,
            rewritten,
            framing,
            upgrade: self.may_upgrade(connection) && !force_http10,
            keep_alive: self.may_keep_alive(),
            force_http10,
            strict_lines: self.route.response.strict_lines,
        };
        session.open(&upstream_request, out)
    }

    /// A tunnel would cut off a request body in transit, so the upgrade of a request with a body is
    /// ignored (RFC 9110 section 7.8 permits that).
    fn may_upgrade(&self, connection: &Connection) -> bool {
        let request = &self.ex.request;
        // An h2c tunnel would carry requests past every condition and access rule.
        let is_http2 = request.fields.list_contains(Known::Upgrade, "h2c");
        let is_wanted = request.upgrade && self.route.request.upgrade && !is_http2;
        if !is_wanted {
            return false;
        }
        // The JDK's client announces a body of no bytes.
        if !self.upload.is_none() && self.upload.announced() != Some(0) {
            self.ex.log_refused_upgrade("its request has a body, which a tunnel would cut off");
            return false;
        }
        self.carries_upgrade(connection)
    }

    /// Returns true if the backend can carry the requested protocol.
    fn carries_upgrade(&self, connection: &Connection) -> bool {
        match self.route.upstream.protocol {
            Protocol::Http { .. } => true,
            Protocol::Http2 {} if !connection.takes_connect() => {
                let text = &connection.permit.address.spec.text;
                self.ex.log_refused_upgrade(&format!(
                    "backend {text} does not take extended CONNECT (RFC 8441)"
                ));
                false
            }
            // A stream carries only one protocol.
            Protocol::Http2 {} => upgrade_protocol(&self.ex.request.fields).is_some(),
            _ => false,
        }
    }

    /// Returns true if the connection may be reused. False after a GET (or another safe method)
    /// with a body: some backends expect no body there and have parsed it as the next request.
    fn may_keep_alive(&self) -> bool {
        let spec = &self.upstream.spec;
        // A Content-Length of 0 adds no byte to the backend's input.
        let has_none = self.upload.is_none() || self.upload.announced() == Some(0);
        let expects_no_body = || self.ex.request.method.is_some_and(Method::is_safe);
        spec.pool.requests_max > 0
            && spec.proxy_protocol.is_none()
            && !self.upstream.is_spawned
            && (has_none || !expects_no_body())
    }
}
