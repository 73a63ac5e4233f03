//! Decides whether a failed request is resent, and which pooled connections it may use.

use std::sync::Arc;

use lighty_core::exchange::send_budget::SendBudget;
use lighty_core::{Blame, CallEnd, Fault, FaultReport, HealthEffect};
use lighty_http::Method;

use super::{Serving, TRIES_MAX};
use crate::connect::checkout::Reuse;
use crate::connect::pool::{ConnPermit, Connection};
use crate::serve::upstream_call::{CallFailure, UpstreamCall};
use crate::upstream::spec::Protocol;

/// Limit on resends after a backend closed its connection without a response. A restarting backend
/// is handled by reconnecting; a request that crashes the backend must not crash it more often than
/// this.
const REPEATS_MAX: u32 = 2;

/// Limit on resends to a backend that refuses streams.
const REFUSALS_MAX: usize = 4;

impl Serving<'_> {
    /// Returns the pooled connections that may carry this request.
    pub(super) fn reuse(&self) -> Reuse {
        // The backend may have closed a pooled connection, which would waste the last request.
        let is_at_last = self.ex.ext::<SendBudget>().is_some_and(SendBudget::is_at_last);
        if self.upstream.spec.proxy_protocol.is_some() || self.stale >= 2 || is_at_last {
            return Reuse::None;
        }
        if self.is_robust() {
            return Reuse::Any;
        }
        match self.upstream.spec.protocol {
            // The process behind a kept connection may still be busy after its response, and
            // nothing shows it before the request is sent.
            Protocol::Fastcgi { .. } => Reuse::Place,
            _ => Reuse::Recent,
        }
    }

    /// True if the request can be resent when its connection closes, whatever the backend has read.
    pub(super) fn is_robust(&self) -> bool {
        self.may_repeat() && self.upload.is_sure_to_rewind()
    }

    /// True if the backend has certainly read nothing of the request.
    pub(super) async fn went_unread(
        &self,
        failure: &CallFailure,
        call: &UpstreamCall,
        connection: &Connection,
    ) -> bool {
        let is_broken = connection.permit.address.is_broken();
        if !call.has_sent() || connection.is_refused() || is_broken {
            return true;
        }
        let is_silent = matches!(failure, CallFailure::Backend { silent: true, .. });
        let matters = is_silent && !self.may_repeat() && self.upload.can_rewind();
        matters && Box::pin(call.went_unread(&connection.stream)).await
    }

    /// Decides between a retry and giving up.
    pub(super) fn decide(
        &mut self,
        failure: CallFailure,
        unread: bool,
        connection: Connection,
        began_ms: u64,
    ) -> Result<(), FaultReport> {
        let (fault, silent) = match failure {
            CallFailure::Backend { fault, silent } => (fault, silent),
            CallFailure::Body(fault) => {
                connection.permit.address.health.record_abandoned(began_ms);
                return Err(FaultReport::new(Fault::of_body(fault), "request body"));
            }
            CallFailure::Gone(fault) => {
                connection.permit.address.health.record_abandoned(began_ms);
                return Err(FaultReport::new(fault, "while the backend worked"));
            }
        };
        let verdict = fault.fault.verdict();
        let ended = verdict.call == CallEnd::Ended;
        if ended {
            connection.permit.address.saw_close(self.local.clock.mono_ms());
        }
        let is_refused = connection.is_refused() && self.stale < REFUSALS_MAX;
        let stale = ended && silent && (connection.is_reused() || is_refused);
        if stale {
            self.stale += 1;
            if connection.requests == 2 && !self.upstream.spec.protocol.is_http() {
                connection.permit.address.lost_kept(self.local.clock.mono_ms());
            }
        } else if speaks_against(&connection.permit, fault.fault, began_ms) {
            self.local.note_failure(&connection.permit, began_ms, &fault.detail);
        } else {
            // A failure without meaning for the address's health still counts as a failure.
            let address = &connection.permit.address;
            if verdict.blame == Blame::Backend {
                address.count_failure();
            }
            address.health.record_abandoned(began_ms);
        }
        if !unread {
            self.ex.ext_mut::<SendBudget>().spend();
        }
        let is_spent = self.ex.ext::<SendBudget>().is_some_and(SendBudget::is_spent);
        let may = (unread || self.may_repeat()) && self.upload.can_rewind() && !is_spent;
        let again = may
            && match verdict.call {
                CallEnd::Rejected => self.try_elsewhere(&connection.permit),
                CallEnd::Ended => self.try_again(stale, &connection.permit),
                CallEnd::Fails | CallEnd::Unsent => false,
            };
        if again {
            self.upload.rewind();
            return Ok(());
        }
        let text = Arc::clone(&connection.permit.address.spec.text);
        if verdict.call == CallEnd::Unsent && self.may_keep_alive() {
            self.local.pool.give(connection, self.local.clock.mono_ms());
        }
        Err(FaultReport::new(fault.fault, format!("backend {text}: {}", fault.detail)))
    }

    /// Prepares a retry on another address after a rejection. Returns false if all were tried.
    fn try_elsewhere(&mut self, permit: &ConnPermit) -> bool {
        self.tried.push(permit.address.id);
        self.tried.len() < TRIES_MAX && self.may_go_on()
    }

    /// Prepares a resend. Returns false if the limit is reached.
    fn try_again(&mut self, stale: bool, permit: &ConnPermit) -> bool {
        if stale {
            return true;
        }
        self.repeats += 1;
        self.tried.push(permit.address.id);
        if !self.may_go_on() {
            // All others have failed it already, or there are none.
            self.tried.clear();
        }
        self.repeats <= REPEATS_MAX && self.may_go_on()
    }

    /// RFC 9110 section 9.2.2: only idempotent methods are resent.
    fn may_repeat(&self) -> bool {
        self.ex.request.method.is_some_and(Method::is_idempotent)
    }
}

/// Returns true if a fault of a request that began at `began_ms` counts against its address. If a
/// slow address, or one that breaks off, has served another request meanwhile, the fault lies with
/// this request: one bad URL must not take a backend down for everyone. And with a single address,
/// taking it down gains nothing.
fn speaks_against(permit: &ConnPermit, fault: Fault, began_ms: u64) -> bool {
    fault.verdict().health == HealthEffect::Worse
        && permit.upstream.addresses().len() > 1
        && !permit.address.has_responded_since(began_ms)
}
