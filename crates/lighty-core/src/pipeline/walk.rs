//! The order of module hooks and of the core's own work between them.
//!
//! A [`Walk`] is not a future: it returns the next step, and its caller does the waiting.

use std::rc::Rc;

use super::authorize::{self, authorize, authorize_served, settle};
use super::conditions;
use super::errors::{fill_error_page, fill_known_page, keep_error_status};
use super::look_up::{is_known, look_up, redirect_to_slash};
use super::protected_files::{self, is_protected};
use super::{
    Pass, begins_anew, conclude_head, filters_of, is_conditional, is_directory, is_filtered,
    named_file, note_handler, refuse_early, send_named, takes_on, takes_part, would_take_on,
};
use crate::exchange::Exchange;
use crate::exchange::request_state::TakenBy;
use crate::exchange::response::Maker;
use crate::exchange::stage::Stage;
use crate::fault::Fault;
use crate::module::{HOOKS, Hook, Module, ModuleList};
use crate::pipeline::phase::{ModuleSet, Phase, PhaseSet};
use crate::settings::Settings;

/// Next step of a walk.
pub(super) enum Next<'m> {
    /// A module's hook, to be called with the exchange.
    Call(Hook, &'m dyn Module),
    /// Work of the core that may have to wait.
    Core(Work),
    /// The response is complete except for its framing.
    Nothing,
}

/// Work of the core that may have to wait.
pub(super) enum Work {
    /// The core's work before a phase.
    Before(Phase),
    /// Sends the file that a handler named.
    Send(Pass),
    /// Reads the operator's page for an error.
    ErrorPage,
}

/// Decides whether a phase's modules are called.
pub(super) enum Due {
    Yes,
    No,
    /// The pass ends before the phase.
    End(Pass),
    /// Not known yet; [`Work::Before`] decides.
    Wait,
}

impl From<bool> for Due {
    fn from(is_due: bool) -> Self {
        if is_due { Due::Yes } else { Due::No }
    }
}

impl Work {
    /// Does the work. Tells whether the modules of the phase are called.
    pub(super) async fn run(self, ex: &mut Exchange) -> Due {
        match self {
            Work::Before(phase) => before(phase, ex).await,
            Work::Send(named) => Due::End(send_named(ex, named).await),
            Work::ErrorPage => {
                fill_error_page(ex).await;
                Due::Yes
            }
        }
    }
}

/// A request's way through all phases but the last: repeated passes up to [`Phase::Handle`], then
/// the phases that complete the response's head.
pub(super) struct Walk {
    /// The current phase; [`Phase::Done`] if none is left.
    phase: Phase,
    /// Index of the module that was called last.
    called: u8,
    /// The response may be an error that lacks its page.
    may_lack_page: bool,
    /// The walk began with the request rather than with a response.
    is_whole: bool,
    /// The modules that have not been called in this phase.
    left: ModuleSet,
    /// Restricts the modules of this phase to these.
    only: ModuleSet,
    /// Additional modules, called whether they take part or not.
    also: ModuleSet,
    /// End of the pass, if it has ended.
    end: Option<Pass>,
}

impl Walk {
    /// Starts with the first phase.
    pub(super) fn begin(ex: &mut Exchange) -> Self {
        Self { end: refuse_early(ex), ..Self::at(Phase::RawUrl) }
    }

    /// Continues after a pass that has ended.
    pub(super) fn after(end: Pass) -> Self {
        Self { end: Some(end), ..Self::at(Phase::Handle) }
    }

    /// Continues with filters, after the head is complete.
    pub(super) fn behind_head() -> Self {
        Self { only: ModuleSet::NONE, ..Self::at(Phase::ResponseHead) }
    }

    /// Completes a response.
    pub(super) fn completing(ex: &Exchange) -> Self {
        let requested = ex.state.requested_settings.as_ref();
        let modules = &ex.generation.modules;
        let part = |settings: Option<&Rc<Settings>>| match settings {
            Some(settings) => modules.part(Phase::ResponseHead, settings),
            None => ModuleSet::NONE,
        };
        let also = part(requested).with(part(ex.client_settings()));
        let also = also.with(part(ex.state.served_file.handled()));
        Self { may_lack_page: true, is_whole: false, also, ..Self::at(Phase::ResponseHead) }
    }

    const fn at(phase: Phase) -> Self {
        let all = ModuleSet::ALL;
        Self {
            phase,
            called: 0,
            may_lack_page: false,
            is_whole: true,
            left: all,
            only: all,
            also: ModuleSet::NONE,
            end: None,
        }
    }

    /// The next step. Uses the current settings, because the previous step may have changed them.
    #[inline]
    pub(super) fn next<'m>(&mut self, modules: &'m ModuleList, ex: &mut Exchange) -> Next<'m> {
        loop {
            if self.end.is_none() && ex.state.undecided.is_none() && !self.may_lack_page {
                let part = modules.part(self.phase, &ex.settings).and(self.only).with(self.also);
                if let Some((at, module)) = modules.first(part.and(self.left)) {
                    return self.call(at, module, ex);
                }
                if self.phase < Phase::Handle {
                    let stops = modules.stops(&ex.settings);
                    if let Some(work) = self.come_to_next_phase(stops, ex) {
                        return Next::Core(work);
                    }
                    continue;
                }
            }
            if let Some(next) = self.turn(ex) {
                return next;
            }
        }
    }

    #[inline]
    fn call<'m>(&mut self, at: usize, module: &'m dyn Module, ex: &mut Exchange) -> Next<'m> {
        if self.left == ModuleSet::ALL {
            ex.enter(Stage::Phase(self.phase));
        }
        debug_assert!(self.end.is_none() && self.phase < Phase::Done, "{:?}", self.phase);
        self.called = at as u8;
        self.left = ModuleSet::behind(at);
        if takes_on(module, self.phase) {
            // Set before the call, because the work may be cut short.
            ex.state.taken_by = TakenBy::module(at);
        }
        Next::Call(HOOKS[self.phase as usize], module)
    }

    fn come_to_next_phase(&mut self, stops: PhaseSet, ex: &mut Exchange) -> Option<Work> {
        let before = self.phase;
        self.phase = stops.next_to_handle(self.phase);
        debug_assert!(self.phase > before, "{:?} after {before:?}", self.phase);
        self.left = ModuleSet::ALL;
        match prepare(self.phase, ex) {
            Due::Yes => None,
            Due::Wait => Some(Work::Before(self.phase)),
            due => {
                self.resume(due);
                None
            }
        }
    }

    /// Continues after the last phase of a pass, after the end of a pass, and after the head.
    #[inline(never)]
    fn turn(&mut self, ex: &mut Exchange) -> Option<Next<'static>> {
        if let Some(end) = self.end.take() {
            match end {
                Pass::SendFile(_) | Pass::SendParts(_) => {
                    return Some(Next::Core(Work::Send(end)));
                }
                Pass::Answered | Pass::Restart => *self = following(&end, ex),
            }
        } else if let Some(undecided) = ex.state.undecided.take() {
            if self.phase <= Phase::Handle {
                ex.fail_undecided(&undecided);
                self.end = Some(Pass::Answered);
            }
        } else if std::mem::take(&mut self.may_lack_page) {
            if !fill_known_page(ex) {
                return Some(Next::Core(Work::ErrorPage));
            }
        } else {
            match self.phase {
                Phase::ResponseHead => self.come_to_filters(ex),
                Phase::Filter => self.come_to_end(ex),
                Phase::Done => return Some(Next::Nothing),
                _ => self.end = Some(no_response(ex)),
            }
        }
        None
    }

    /// True if this is the walk of a request, and not that of a response alone.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Ends the phase and, up to [`Phase::Handle`], the pass, after a module has responded.
    #[inline]
    pub(super) fn end(&mut self, end: Pass, modules: &ModuleList, ex: &mut Exchange) {
        if self.phase > Phase::Handle {
            self.left = ModuleSet::NONE;
            return;
        }
        debug_assert!(self.end.is_none(), "a pass ends once");
        if let Some(module) = modules.get(self.called.into()) {
            note_handler(module, &end, ex);
        }
        self.end = Some(end);
    }

    /// Records that a module has passed the request on.
    #[inline]
    pub(super) fn decline(&self, ex: &mut Exchange) {
        if self.phase <= Phase::Handle {
            ex.state.taken_by = TakenBy::NONE;
        }
    }

    /// Continues after the core's work.
    pub(super) fn resume(&mut self, due: Due) {
        debug_assert!(self.end.is_none(), "the pass is over");
        match due {
            Due::Yes | Due::Wait => {}
            Due::No => self.left = ModuleSet::NONE,
            Due::End(pass) => self.end = Some(pass),
        }
    }

    fn come_to_filters(&mut self, ex: &mut Exchange) {
        judge_own(ex);
        self.phase = Phase::Filter;
        self.left = ModuleSet::ALL;
        (self.only, self.also) = (filters_of(ex), ModuleSet::NONE);
    }

    fn come_to_end(&mut self, ex: &mut Exchange) {
        // Filters may have taken long within this turn.
        if self.left != ModuleSet::ALL {
            ex.machine.clock.refresh();
        }
        conclude_head(ex);
        self.phase = Phase::Done;
        self.only = ModuleSet::NONE;
    }
}

/// The walk after a pass has ended with a response or a restart: another pass, or the completion of
/// the response.
fn following(end: &Pass, ex: &mut Exchange) -> Walk {
    if begins_anew(ex, end) {
        return Walk::begin(ex);
    }
    named_file::join_carried(ex);
    keep_error_status(ex);
    let has_other_settings =
        ex.client_settings().is_some() || ex.state.served_file.handled().is_some();
    // Otherwise conditions wait for the hooks that may change the validators.
    let is_final = !has_other_settings && !ex.generation.modules.change_heads(&ex.settings);
    if is_final {
        judge_own(ex);
    }
    let is_plain = is_final && ex.response.status.code() < 400;
    if is_plain && !is_filtered(ex) {
        conclude_head(ex);
        return Walk { only: ModuleSet::NONE, ..Walk::at(Phase::Done) };
    }
    Walk { is_whole: true, ..Walk::completing(ex) }
}

/// Evaluates conditions of a response that the server makes itself. A backend has already evaluated
/// them against its own validators.
fn judge_own(ex: &mut Exchange) {
    if ex.response.maker == Maker::Server {
        conditions::judge(ex);
    }
}

/// Does the core's work before a phase, as far as that needs no waiting.
#[inline]
fn prepare(phase: Phase, ex: &mut Exchange) -> Due {
    match phase {
        Phase::Physical => {
            ex.set_physical();
            Due::Yes
        }
        Phase::Authorize => settle(ex).into(),
        Phase::Directory => find_known(ex),
        Phase::Found if ex.is_renamed() => Due::Wait,
        Phase::Found => refuse_protected(ex),
        Phase::Conditions => is_conditional(ex).into(),
        Phase::Withhold => Due::No,
        Phase::Handle if ex.state.served_file.authorized().is_some() => Due::Wait,
        _ => Due::Yes,
    }
}

/// Does the core's work before a phase that [`prepare`] left because it may wait.
async fn before(phase: Phase, ex: &mut Exchange) -> Due {
    let end = match phase {
        Phase::Directory => return find(ex).await,
        Phase::Found => match authorize_served(ex).await {
            None => return refuse_protected(ex),
            end => end,
        },
        _ => match ex.state.served_file.begin_handling() {
            Some(served) => authorize::handle(ex, served).await,
            None => None,
        },
    };
    end.map_or(Due::Yes, Due::End)
}

/// Looks up the physical path, if the stat cache has it.
#[inline(never)]
fn find_known(ex: &mut Exchange) -> Due {
    ex.enter(Stage::LookUp);
    ex.physical.entry = None;
    if !is_known(ex) {
        return Due::Wait;
    }
    ex.enter(Stage::Open);
    match settle(ex) && takes_part(ex, Phase::Authorize) {
        true => Due::Wait,
        false => found(ex),
    }
}

/// Looks up the physical path and checks access.
async fn find(ex: &mut Exchange) -> Due {
    let is_changed = match ex.physical.entry {
        Some(_) => true,
        None => {
            let looked_up = look_up(ex).await;
            // The pool thread may have woken the loop within the same turn.
            ex.machine.clock.refresh();
            if let Err(fault) = looked_up {
                ex.fail(fault);
                ex.state.taken_by = would_take_on(ex);
                return Due::End(Pass::Answered);
            }
            ex.enter(Stage::Open);
            settle(ex)
        }
    };
    if is_changed && let Some(end) = authorize(ex).await {
        return Due::End(end);
    }
    found(ex)
}

/// Continues with an accessible file or directory at the physical path.
fn found(ex: &mut Exchange) -> Due {
    match redirect_to_slash(ex) {
        true => Due::End(Pass::Answered),
        false => is_directory(ex).into(),
    }
}

/// Refuses a file that the server keeps for itself, under any path.
fn refuse_protected(ex: &mut Exchange) -> Due {
    if ex.physical.entry.as_ref().is_some_and(|entry| is_protected(entry.meta())) {
        ex.fail_saying(Fault::Forbidden, protected_files::REFUSAL);
        return Due::End(Pass::Answered);
    }
    Due::Yes
}

/// Fails a request that no module has answered.
fn no_response(ex: &mut Exchange) -> Pass {
    if !ex.response.answered {
        let particulars = match is_directory(ex) {
            true => "a directory that has neither an index file nor a listing here",
            false => "no handler takes this request",
        };
        ex.fail_saying(Fault::Forbidden, particulars);
    }
    Pass::Answered
}
