//! `mod_ssi`: server-side includes, commands in a page that insert other content into it.
//!
//! A page is read through the file engine and parsed while it is read; its long runs of text and
//! the files that it includes are sent as file ranges. An included URL is a subrequest
//! ([`lighty_core::pipeline::subrequest`]). The response is assembled before its first byte is
//! sent, so that its length is known and HEAD matches GET; the memory that it holds and the number
//! of its commands are limited.
//!
//! Reading order: `settings`, this file, `page` (text and conditions), `command` (commands),
//! `include` (files and URLs), `program` (`exec`), `page_context` (variables), `shared` (state
//! shared by the pages of one response), `output`.

mod command;
mod include;
mod output;
mod page;
mod page_context;
mod program;
mod settings;
mod shared;

use std::cell::RefCell;
use std::rc::Rc;

use lighty_config::Directive;
use lighty_core::machine::permits::Permits;
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Body, Client, Exchange, Fault, Settings};
use lighty_http::conditional::{PreconditionOutcome, Validators};
use lighty_http::{Known, Method, Status, date};
use lighty_io::file::FileKind;
use lighty_io::stat_cache::CacheEntry;

use output::PageOutput;
use page::{Base, SsiPage};
use page_context::PageContext;
use settings::SsiSettings;
use shared::{Fatal, PageState, Within};

/// The module.
pub struct Ssi {
    permits: Permits,
}

impl Ssi {
    /// Creates a worker's instance; all workers share `permits`.
    pub fn new(permits: Permits) -> Self {
        Self { permits }
    }
}

impl Module for Ssi {
    fn name(&self) -> &'static str {
        "mod_ssi"
    }

    fn traits(&self) -> Traits {
        Hooks { handle: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::rows()
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(ex.settings.module::<SsiSettings>().is_page(&ex.physical.rel))
    }

    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<SsiSettings>();
        let Some(entry) = ex.physical.entry.clone() else { return Step::Next };
        if entry.meta().kind != FileKind::File || !own.is_page(&ex.physical.rel) {
            return Step::Next;
        }
        let outer = ex.ext::<Within>().and_then(|within| within.outer.clone());
        match &outer {
            // Pages are included unparsed.
            Some(_) if own.recursion_max == 0 => return Step::Next,
            // `fsize` and `flastmod` need only the file's size or time.
            Some(shared) if shared.only_looks() => {
                ex.response.answered = true;
                return Step::Answered;
            }
            _ => {}
        }
        if !is_allowed(ex) {
            return Step::Answered;
        }
        if ex.rehearse(|_| "puts a page together (server-side includes)".to_owned()) {
            return Step::Answered;
        }
        Step::Wait(Box::pin(serve(ex, settings, entry, outer, self.permits.clone())))
    }
}

/// Returns true if the method is allowed on pages; otherwise responds to the request.
fn is_allowed(ex: &mut Exchange) -> bool {
    const ALLOWED: &str = "OPTIONS, GET, HEAD, POST";
    match ex.request.method {
        Some(Method::Get | Method::Head | Method::Post) => return true,
        _ if ex.state.error_status.is_some() => return true,
        Some(Method::Options) => {
            ex.response.status = Status::OK;
            ex.response.answered = true;
        }
        _ => ex.fail(Fault::MethodNotAllowed),
    }
    ex.response.fields.push_known(Known::Allow, ALLOWED);
    false
}

async fn serve(
    ex: &mut Exchange,
    settings: Rc<Settings>,
    entry: Rc<CacheEntry>,
    outer: Option<Rc<PageState>>,
    permits: Permits,
) -> Step<'static> {
    let own = settings.module::<SsiSettings>();
    let is_part = outer.is_some();
    let shared = outer.unwrap_or_else(|| Rc::new(PageState::of(ex, &entry, own.limits)));
    let Some(_depth) = shared.enter(own.recursion_max) else {
        ex.fail_saying(Fault::PageLimit, &format!("ssi.recursion-max = {}", own.recursion_max));
        return Step::Answered;
    };
    // An included part has no client of its own: the outer page watches the client.
    let client = ex.client.clone().filter(|_| !is_part);
    let made = tokio::select! {
        // Polled before the included parts, which notice the disconnect too and would report it as
        // an error of their own.
        biased;
        fault = gone(client) => Err(Fatal { fault, message: "while its page was made".into() }),
        made = make(ex, own, &entry, &shared, permits) => made,
    };
    match made {
        Ok(body) => {
            ex.ext_mut::<Within>().is_page = true;
            respond(ex, own, &shared, body, is_part);
        }
        Err(fatal) => {
            if fatal.fault == Fault::PageLimit {
                shared.fail();
            }
            ex.fail_saying(fatal.fault, &fatal.message);
        }
    }
    Step::Answered
}

/// Resolves when the client disconnects.
async fn gone(client: Option<Rc<RefCell<dyn Client>>>) -> Fault {
    match client {
        Some(client) => std::future::poll_fn(|cx| client.borrow_mut().poll_gone(cx)).await,
        None => std::future::pending().await,
    }
}

async fn make(
    ex: &Exchange,
    own: &SsiSettings,
    entry: &Rc<CacheEntry>,
    shared: &Rc<PageState>,
    permits: Permits,
) -> Result<Body, Fatal> {
    let context = PageContext::new(ex, own, shared, permits);
    let mut output = PageOutput::new(shared);
    SsiPage::new(&context, &mut output, Base::of(ex), entry).run().await?;
    Ok(output.into_body())
}

/// Sets the response from the finished page.
fn respond(ex: &mut Exchange, own: &SsiSettings, shared: &PageState, body: Body, is_part: bool) {
    let response = &mut ex.response;
    response.answered = true;
    response.fields.push_known(Known::ContentType, own.content_type.as_bytes());
    if own.conditional_requests && !is_part && ex.state.error_status.is_none() {
        match validate(ex, shared) {
            PreconditionOutcome::Proceed { .. } => {}
            PreconditionOutcome::NotModified => {
                ex.response.status = Status::NOT_MODIFIED;
                ex.response.length_unsent = body.known_length();
                return;
            }
            PreconditionOutcome::PreconditionFailed => {
                return ex.fail_status(Status::PRECONDITION_FAILED);
            }
        }
    }
    ex.response.body = body;
}

/// Sets `Last-Modified` to the newest file of the response and evaluates the request's conditions.
fn validate(ex: &mut Exchange, shared: &PageState) -> PreconditionOutcome {
    let (modified_s, tag) = shared.validators();
    let now = ex.machine.clock.unix_s();
    let fields = &mut ex.response.fields;
    if !fields.contains(Known::ETag) {
        fields.push_known(Known::ETag, &tag);
    }
    if !fields.contains(Known::LastModified) {
        // RFC 9110 section 8.8.2.1: not later than the response itself.
        fields.push_known(Known::LastModified, date::format(modified_s.min(now)));
    }
    let nothing = Validators { now, ..Validators::default() };
    lighty_core::pipeline::conditions::evaluate(ex, nothing)
}
