//! `mod_evasive` and limits per key: how much one client may ask for at a time, how often, and how
//! fast it is answered.
//!
//! Every limit has a table of its own, which all workers share; a key is an address (of IPv6 the
//! network, /64), a user, or the value of a field. Requests count from their head to the last byte
//! of their answer.

mod rate;
mod settings;
mod table;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::module::{Hooks, Module, Step};
use lighty_core::{Exchange, Fault, Settings};
use lighty_http::{Known, Status};

use settings::KeyKind;
pub use settings::LimitSettings;
use table::KeyTable;

/// Limits by what is known from the beginning: `mod_evasive`, addresses and fields.
pub struct Evasive;

/// Limits by user, who has to be known first.
pub struct EvasiveUser;

impl Module for Evasive {
    fn name(&self) -> &'static str {
        "mod_evasive"
    }

    fn hooks(&self) -> Hooks {
        Hooks { raw_url: true, ..Hooks::default() }
    }

    fn refuses_paths(&self) -> bool {
        false
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::directives()
    }

    fn raw_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // A request that begins again counts once.
        if std::mem::replace(&mut ex.counted.by_address, true) {
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
}

impl Module for EvasiveUser {
    fn name(&self) -> &'static str {
        "mod_evasive"
    }

    fn hooks(&self) -> Hooks {
        Hooks { clean_url: true, ..Hooks::default() }
    }

    fn refuses_paths(&self) -> bool {
        false
    }

    /// The same: this is the other half of it.
    fn directives() -> Vec<Directive<Settings>> {
        settings::directives()
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if ex.request.remote_user.is_empty() || std::mem::replace(&mut ex.counted.by_user, true) {
            return Step::Next;
        }
        let settings = Rc::clone(&ex.settings);
        check(ex, settings.module::<LimitSettings>(), |kind| *kind == KeyKind::User)
    }
}

/// `limit.requests`, `limit.connections` and `limit.bandwidth`, those with such keys.
fn check(ex: &mut Exchange, own: &LimitSettings, applies: fn(&KeyKind) -> bool) -> Step<'static> {
    if let Some(rate) = own.requests.as_ref().filter(|rate| applies(&rate.key)) {
        let now_us = ex.services.clock.mono_us();
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
        let now_ms = ex.services.clock.mono_ms();
        ex.key_bucket = Some(speed.table.bucket(speed.key.of(ex), now_ms));
    }
    Step::Next
}

/// Counts the request until it is over; `false` where that would be one too many.
fn enter(ex: &mut Exchange, crowd: &settings::Keyed<Arc<KeyTable>>) -> bool {
    let key = crowd.key.of(ex);
    match KeyTable::enter(&crowd.table, key) {
        Some(place) => {
            ex.until_over.push(Box::new(place));
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
    match (own.silent, &own.location) {
        (false, None) => return ex.fail(Fault::ConnectionsPerIp),
        (false, Some(_)) => ex.log_fault(Fault::ConnectionsPerIp, ""),
        (true, _) => {}
    }
    match &own.location {
        Some(location) => {
            ex.response.restart(Status::FOUND);
            ex.response.answered = true;
            ex.response.fields.set(Known::Location, location.as_bytes());
        }
        None => ex.fail_status(Status::FORBIDDEN),
    }
    ex.response.close = true;
}
