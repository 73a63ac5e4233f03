//! What a script may use up: instructions, time and the attention of its thread.
//!
//! One script at a time runs on a thread, so the budget of the running one is the thread's. The
//! hook ([`lighty_io::lua_hook`]) asks [`judge`] about it.

use std::cell::RefCell;

use lighty_io::clock::Clock;
use lighty_io::lua_hook::{self, EVERY, Verdict};
use mlua::Lua;

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
    /// Instructions (`magnet.max-instructions`), counted in steps of [`EVERY`]. Work in functions
    /// that are no Lua is charged as the instructions that would take as long.
    pub instructions: u64,
    /// Bytes (`magnet.max-memory`).
    pub memory: usize,
}

/// Why a script was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its run took longer than [`Limits::time_ms`].
    Time,
    /// It executed more than [`Limits::instructions`].
    Instructions,
    /// It executed [`UNYIELDING_MAX`] instructions where it cannot be suspended.
    Unyielding,
    /// What it gave to its request and its response is more than [`Limits::memory`].
    Memory,
}

impl Stopped {
    /// The limit, as the log names it.
    pub fn limit(self) -> &'static str {
        match self {
            Stopped::Time => "magnet.max-time",
            Stopped::Instructions => "magnet.max-instructions",
            Stopped::Memory => "magnet.max-memory",
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
    stopped: Option<Stopped>,
}

thread_local! {
    static BUDGET: RefCell<Option<Budget>> = const { RefCell::new(None) };
}

/// A slice begins. `instructions` were used before.
pub(crate) fn begin(
    clock: &Clock,
    (instructions, stopped): (u64, Option<Stopped>),
    (now_us, deadline_us): (u64, u64),
    limits: &Limits,
) {
    BUDGET.set(Some(Budget {
        clock: clock.clone(),
        slice_end_us: now_us + SLICE_US,
        unyielding_end: instructions + UNYIELDING_MAX,
        deadline_us,
        instructions,
        instructions_max: limits.instructions,
        stopped,
    }));
}

/// A slice's end: the instructions used in all, and why the script was stopped, if it was.
pub(crate) fn end() -> (u64, Option<Stopped>) {
    BUDGET.take().map_or((0, None), |budget| (budget.instructions, budget.stopped))
}

/// Stops the script that runs: it raises the error that its function returns, and whoever catches
/// that learns that it was stopped.
pub(crate) fn stop_for_memory() {
    BUDGET.with_borrow_mut(|budget| {
        if let Some(budget) = budget {
            budget.stopped = budget.stopped.or(Some(Stopped::Memory));
        }
    });
}

/// Charges instructions for work outside Lua's machine, which its hook does not see. If the slice
/// is over, the hook is called when the function returns.
pub(crate) fn charge(lua: &Lua, instructions: u64) {
    let is_over = BUDGET.with_borrow_mut(|budget| {
        budget.as_mut().is_some_and(|budget| {
            budget.instructions = budget.instructions.saturating_add(instructions);
            budget.stopped.is_none() && budget.clock.precise_us() >= budget.slice_end_us
        })
    });
    if is_over {
        lua_hook::call_next(lua);
    }
}

/// Bytes of text that a function may go through without being charged.
const BYTES_FREE: usize = 4096;

/// Charges for a text that a function goes through.
pub(crate) fn charge_bytes(lua: &Lua, bytes: usize) {
    if bytes > BYTES_FREE {
        charge(lua, bytes as u64 / 4);
    }
}

/// What the hook asks.
pub(crate) fn judge(can_yield: bool, instructions: i32) -> (Verdict, i32) {
    BUDGET.with_borrow_mut(|budget| match budget {
        Some(budget) => match budget.judge(can_yield, instructions.unsigned_abs().into()) {
            Verdict::Stop => (Verdict::Stop, 1),
            other => (other, EVERY),
        },
        // The engine's own code: it loads a script.
        None => (Verdict::Continue, EVERY),
    })
}

impl Budget {
    fn judge(&mut self, can_yield: bool, instructions: u64) -> Verdict {
        let now_us = self.clock.precise_us();
        // Also while it is being stopped: what it catches may be nested deeply.
        if can_yield && now_us >= self.slice_end_us && self.stopped.is_some() {
            return Verdict::Yield;
        }
        if self.stopped.is_some() {
            return Verdict::Stop;
        }
        self.instructions += instructions;
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
            return Verdict::Yield;
        }
        Verdict::Continue
    }
}
