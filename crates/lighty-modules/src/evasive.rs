//! `mod_evasive` and limits per key: concurrent requests, request rate and bandwidth of a client.
//!
//! Every limit has its own table, shared by all workers; a key is an address (for IPv6 the /64
//! network), a user, or the value of a field. A request counts from its head to the last byte of
//! its response.

mod carried;
mod continued;
mod rate;
mod report;
mod settings;
mod table;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Extension, Fault, Settings, extension_slot};
use lighty_http::{Known, Status};

pub use carried::{CARRIED_KEYS_MAX, CarriedRate, recall_rates, remember_rates};
pub use continued::continue_counts;
pub use report::{LimitReport, clear, limits};
use settings::KeyKind;
pub use settings::LimitSettings;
use table::{CountedRequest, KeyTable};

/// The module.
pub struct Evasive;

impl Module for Evasive {
    fn name(&self) -> &'static str {
        "mod_evasive"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { raw_url: true, clean_url: true, ..Hooks::default() },
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::directives()
    }

    /// Applies the limits by address and field, which are known before authentication.
    fn raw_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // A restarted request counts once.
        if std::mem::replace(&mut ex.ext_mut::<Counted>().by_address, true) {
            return Step::Next;
        }
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<LimitSettings>();
        if let Some(crowd) = &own.per_ip
            && !enter(ex, crowd)
        {
            turn_away(ex, own);
            return Step::Answered;
        }
        check(ex, own, |kind| *kind != KeyKind::User)
    }

    /// Applies the limits by user, after the modules that authenticate.
    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if ex.request.remote_user.is_empty()
            || std::mem::replace(&mut ex.ext_mut::<Counted>().by_user, true)
        {
            return Step::Next;
        }
        let settings = Rc::clone(&ex.settings);
        check(ex, settings.module::<LimitSettings>(), |kind| *kind == KeyKind::User)
    }
}

/// The limits that have counted a request, so that a restart does not count it again.
#[derive(Default)]
struct Counted {
    by_address: bool,
    by_user: bool,
    /// Held until the request is over.
    here: Vec<CountedRequest>,
}

impl Extension for Counted {
    extension_slot!();

    /// A request within another is not counted again.
    fn inherited(&self) -> Option<Self> {
        Some(Self { here: Vec::new(), ..*self })
    }

    fn reset(&mut self) {
        self.here.clear();
        (self.by_address, self.by_user) = (false, false);
    }
}

/// Checks `limit.requests`, `limit.connections` and `limit.bandwidth`, if `applies` accepts their
/// kind of key.
fn check(ex: &mut Exchange, own: &LimitSettings, applies: fn(&KeyKind) -> bool) -> Step<'static> {
    if let Some(rate) = own.requests.as_ref().filter(|rate| applies(&rate.key)) {
        let now_us = ex.machine.clock.mono_us();
        if let Err(wait_us) = rate.table.take(rate.key.of(ex), now_us) {
            too_many(ex, Fault::RequestRate, wait_us.div_ceil(1_000_000));
            return Step::Answered;
        }
    }
    if let Some(crowd) = own.connections.as_ref().filter(|crowd| applies(&crowd.key))
        && !enter(ex, crowd)
    {
        too_many(ex, Fault::ConnectionsPerKey, 1);
        return Step::Answered;
    }
    if let Some(speed) = own.bandwidth.as_ref().filter(|speed| applies(&speed.key)) {
        let now_ms = ex.machine.clock.mono_ms();
        ex.state.key_bucket = Some(speed.table.bucket(speed.key.of(ex), now_ms));
    }
    Step::Next
}

/// Counts the request until it ends; `false` if it exceeds the limit.
fn enter(ex: &mut Exchange, crowd: &settings::Keyed<Arc<KeyTable>>) -> bool {
    let key = crowd.key.of(ex);
    match crowd.table.enter(key) {
        Some(place) => {
            ex.ext_mut::<Counted>().here.push(place);
            true
        }
        None => false,
    }
}

/// RFC 6585 section 4.
fn too_many(ex: &mut Exchange, fault: Fault, after_s: u64) {
    ex.fail(fault);
    ex.response.fields.set(Known::RetryAfter, after_s.max(1).to_string());
}

fn turn_away(ex: &mut Exchange, own: &LimitSettings) {
    if !own.silent {
        ex.log_fault(Fault::ConnectionsPerIp, "");
    }
    let Some(location) = &own.location else {
        return ex.fail_unlogged(Fault::ConnectionsPerIp);
    };
    ex.response.restart(Status::FOUND);
    ex.response.answered = true;
    ex.response.fields.set(Known::Location, location.as_bytes());
    ex.response.is_last = true;
}
