//! What a script may use up: instructions, time and the attention of its thread.
//!
//! One script at a time runs on a thread, so the budget of the running one is the thread's. The
//! hook ([`lighty_io::lua_hook`]) asks [`judge`] about it.

use std::cell::RefCell;

use lighty_io::clock::Clock;
use lighty_io::lua_hook::{EVERY, Verdict};

/// Microseconds that a script runs before other connections have their turn.
pub const SLICE_US: u64 = 200;

/// Instructions after which a script is stopped that cannot be suspended where it is, inside a call
/// from C: some 2 ms. Not a time, because others may have had the processor meanwhile.
pub const UNYIELDING_MAX: u64 = 500_000;

/// What a run may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Milliseconds from the run's beginning, waits included (`magnet.max-time`).
    pub time_ms: u64,
    /// Instructions (`magnet.max-instructions`), counted in steps of [`EVERY`].
    pub instructions: u64,
    /// Bytes (`magnet.max-memory`).
    pub memory: usize,
}

/// Why a script was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    Time,
    Instructions,
    /// It executed [`UNYIELDING_MAX`] instructions where it cannot be suspended.
    Unyielding,
}

impl Stopped {
    /// The limit, as the log names it.
    pub fn limit(self) -> &'static str {
        match self {
            Stopped::Time => "magnet.max-time",
            Stopped::Instructions => "magnet.max-instructions",
            Stopped::Unyielding => "500000 instructions inside a call that cannot be interrupted",
        }
    }
}

struct Budget {
    clock: Clock,
    slice_end_us: u64,
    unyielding_end: u64,
    deadline_us: u64,
    instructions: u64,
    instructions_max: u64,
    preempted: bool,
    stopped: Option<Stopped>,
}

thread_local! {
    static BUDGET: RefCell<Option<Budget>> = const { RefCell::new(None) };
}

/// A slice begins. `instructions` were used before.
pub(crate) fn begin(
    clock: &Clock,
    (instructions, stopped): (u64, Option<Stopped>),
    deadline_us: u64,
    limits: &Limits,
) {
    let now_us = clock.precise_us();
    BUDGET.set(Some(Budget {
        clock: clock.clone(),
        slice_end_us: now_us + SLICE_US,
        unyielding_end: instructions + UNYIELDING_MAX,
        deadline_us,
        instructions,
        instructions_max: limits.instructions,
        preempted: false,
        stopped,
    }));
}

/// A slice's end: the instructions used in all, and why the script was stopped, if it was.
pub(crate) fn end() -> (u64, Option<Stopped>) {
    BUDGET.take().map_or((0, None), |budget| (budget.instructions, budget.stopped))
}

/// True if the hook has just suspended a coroutine, which is thereby acknowledged.
pub(crate) fn take_preempted() -> bool {
    BUDGET.with_borrow_mut(|budget| {
        budget.as_mut().is_some_and(|budget| std::mem::take(&mut budget.preempted))
    })
}

/// Charges instructions for work outside Lua's machine. True if the slice is over.
pub(crate) fn charge(instructions: u64) -> bool {
    BUDGET.with_borrow_mut(|budget| {
        budget.as_mut().is_some_and(|budget| {
            budget.instructions += instructions;
            budget.clock.precise_us() >= budget.slice_end_us
        })
    })
}

/// What the hook asks.
pub(crate) fn judge(can_yield: bool) -> Verdict {
    BUDGET.with_borrow_mut(|budget| match budget {
        Some(budget) => budget.judge(can_yield),
        // The engine's own code: it loads a script.
        None => Verdict::Continue,
    })
}

impl Budget {
    fn judge(&mut self, can_yield: bool) -> Verdict {
        let now_us = self.clock.precise_us();
        // Also while it is being stopped: what it catches may be nested deeply.
        if can_yield && now_us >= self.slice_end_us && self.stopped.is_some() {
            self.preempted = true;
            return Verdict::Yield;
        }
        if self.stopped.is_some() {
            return Verdict::Stop;
        }
        self.instructions += EVERY as u64;
        self.stopped = if self.instructions > self.instructions_max {
            Some(Stopped::Instructions)
        } else if now_us >= self.deadline_us {
            Some(Stopped::Time)
        } else if self.instructions >= self.unyielding_end {
            // A slice is far shorter where the script can be suspended.
            Some(Stopped::Unyielding)
        } else {
            None
        };
        if self.stopped.is_some() {
            return Verdict::Stop;
        }
        if can_yield && now_us >= self.slice_end_us {
            self.preempted = true;
            return Verdict::Yield;
        }
        Verdict::Continue
    }
}
