//! What a script may use up: instructions, time and the attention of its thread.
//!
//! One script at a time runs on a thread, so the budget of the running one is the thread's. The
//! hook ([`lighty_io::lua_hook`]) asks [`judge`] about it.

use std::cell::{Cell, RefCell};

use lighty_io::clock::Clock;
use lighty_io::lua_hook::{self, FIRST, Interruption, Verdict};
use mlua::Lua;

/// Microseconds that a script runs before other connections have their turn.
pub const SLICE_US: u64 = 200;

/// The most instructions between two looks at the clock.
const EVERY: i32 = 1000;

/// Bytes that the operators of a script may go through between two looks at the clock: comparing
/// and joining texts takes time by their length, in one instruction. What a run has allocated
/// bounds that length.
const OPERATOR_BYTES: usize = 32 << 20;

/// The least interval that [`OPERATOR_BYTES`] leads to.
const EVERY_MIN: i32 = 8;

/// Microseconds within which an interval is lengthened, and beyond which it is shortened.
const QUICK_US: u64 = 50;
const SLOW_US: u64 = 200;

/// Work that is booked between two looks at the clock, in instructions: some 10 microseconds.
const LOOK_EVERY: u64 = 2048;

/// Instructions after which a script is stopped that cannot be suspended where it is, inside a call
/// from C: some 2 ms. Not a time, because others may have had the processor meanwhile.
pub const UNYIELDING_MAX: u64 = 500_000;

/// What a run may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Milliseconds from the run's beginning, waits included (`magnet.max-time`).
    pub time_ms: u64,
    /// Instructions (`magnet.max-instructions`). Work in functions that are no Lua is booked as the
    /// instructions that would take as long.
    pub instructions: u64,
    /// Bytes (`magnet.max-memory`) that a run may hold. It is judged when garbage was collected,
    /// for which there is room besides: see [`Room`].
    pub memory: usize,
}

/// How much of its limit a run may allocate, garbage included. Lua 5.4 collects by itself before it
/// refuses memory, so that what it refuses is what the run keeps.
const HARD_LIMITS: usize = if cfg!(feature = "luajit") { 2 } else { 1 };

/// Bytes of Lua's memory at which something happens to a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// What others hold.
    base: usize,
    /// With more than this after a collection the run is stopped.
    end: usize,
    /// With more than this garbage is collected.
    collect: usize,
    /// Lua gets no more than this.
    pub(crate) hard: usize,
}

impl Room {
    /// For a run of this limit that has `own` bytes of the `used` ones.
    pub(crate) fn new(used: usize, own: usize, limit: usize) -> Self {
        let base = used.saturating_sub(own);
        Self {
            base,
            end: base.saturating_add(limit),
            collect: base.saturating_add(limit).saturating_add(limit / 2),
            hard: base.saturating_add(limit.saturating_mul(HARD_LIMITS)),
        }
    }
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

/// What a run has used, from slice to slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Instructions, with what was booked as such.
    pub(crate) instructions: u64,
    /// Why it was stopped, if it was.
    pub(crate) stopped: Option<Stopped>,
    /// Cycles of the garbage collector that the run waits for, being beyond its memory: the one
    /// under way, and a whole one.
    cycles_left: u8,
}

/// Cycles after which all garbage of before is gone.
const CYCLES: u8 = 2;

struct Budget {
    clock: Clock,
    slice_end_us: u64,
    unyielding_end: u64,
    deadline_us: u64,
    instructions_max: u64,
    used: Used,
    room: Room,
    /// Work booked since the clock was looked at.
    booked: u64,
    /// When the hook was last called.
    judged_us: u64,
    /// Instructions to the next call of the hook.
    every: i32,
}

/// Bytes that scripts may allocate before a cycle of the garbage collector begins. By itself Lua
/// waits until its memory has doubled since the last cycle, and that may have met much that is
/// garbage now. Meanwhile strings pile up, and the table of all strings doubles in one piece:
/// 65,536 strings take 3 ms, 131,072 take 20 ms.
const GARBAGE_BYTES: usize = 2 << 20;

thread_local! {
    static BUDGET: RefCell<Option<Budget>> = const { RefCell::new(None) };
    /// Lua's memory when a cycle was begun here, or the least of it since.
    static FLOOR: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// True if a cycle is to begin.
fn is_cycle_due(used: usize) -> bool {
    let floor = FLOOR.get().min(used);
    let is_due = used - floor > GARBAGE_BYTES;
    // The collector goes on by itself, and what it frees lowers the floor.
    FLOOR.set(if is_due { used } else { floor });
    is_due
}

/// A slice begins.
pub(crate) fn begin(
    clock: &Clock,
    used: Used,
    (now_us, deadline_us): (u64, u64),
    room: Room,
    limits: &Limits,
) {
    BUDGET.set(Some(Budget {
        clock: clock.clone(),
        slice_end_us: now_us + SLICE_US,
        unyielding_end: used.instructions + UNYIELDING_MAX,
        deadline_us,
        instructions_max: limits.instructions,
        used,
        room,
        booked: 0,
        judged_us: now_us,
        every: FIRST,
    }));
}

/// A slice's end: what the run has used, and whether the hook's interval must be set anew for the
/// next one.
pub(crate) fn end() -> (Used, bool) {
    BUDGET.take().map_or((Used::default(), true), |budget| {
        (budget.used, budget.every != FIRST || budget.used.stopped.is_some())
    })
}

/// Stops the script that runs: it raises the error that its function returns, and whoever catches
/// that learns that it was stopped.
pub(crate) fn stop_for_memory() {
    BUDGET.with_borrow_mut(|budget| {
        if let Some(budget) = budget {
            budget.used.stopped = budget.used.stopped.or(Some(Stopped::Memory));
        }
    });
}

/// Books instructions for work outside Lua's machine, which its hook does not see. True if the
/// slice is over: then the hook should be called when the function returns.
pub(crate) fn book(work: u64) -> bool {
    BUDGET.with_borrow_mut(|budget| {
        let Some(budget) = budget else { return false };
        let used = &mut budget.used;
        used.instructions = used.instructions.saturating_add(work);
        budget.booked = budget.booked.saturating_add(work);
        if budget.booked < LOOK_EVERY {
            return false;
        }
        budget.booked = 0;
        used.stopped.is_none() && budget.clock.precise_us() >= budget.slice_end_us
    })
}

/// Like [`book`]; calls the hook where that says so.
pub(crate) fn charge(lua: &Lua, work: u64) {
    if book(work) {
        lua_hook::call_next(lua);
    }
}

/// Instructions that take as long as a call of a function of ours.
pub(crate) const CALL: u64 = 64;

/// Instructions that take as long as making a value of Lua's.
pub(crate) const VALUE: u64 = 32;

/// Charges for a text that a function goes through, and for the call.
pub(crate) fn charge_bytes(lua: &Lua, bytes: usize) {
    charge(lua, CALL + bytes as u64 / 4);
}

/// Decides for the hook.
pub(crate) fn judge(asked: Interruption) -> (Verdict, i32) {
    BUDGET.with_borrow_mut(|budget| match budget {
        Some(budget) => match budget.judge(asked) {
            Verdict::Stop => (Verdict::Stop, 1),
            other => (other, budget.every),
        },
        // The engine's own code: it loads a script.
        None => (Verdict::Continue, EVERY),
    })
}

impl Budget {
    fn judge(&mut self, asked: Interruption) -> Verdict {
        let now_us = self.clock.precise_us();
        let slice_is_over = asked.can_yield && now_us >= self.slice_end_us;
        // Also while it is being stopped: what it catches may be nested deeply.
        if slice_is_over && self.used.stopped.is_some() {
            return Verdict::Yield;
        }
        if self.used.stopped.is_some() {
            return Verdict::Stop;
        }
        let instructions = u64::from(asked.instructions.unsigned_abs());
        self.used.instructions = self.used.instructions.saturating_add(instructions);
        self.used.stopped = if self.used.instructions > self.instructions_max {
            Some(Stopped::Instructions)
        } else if now_us >= self.deadline_us {
            Some(Stopped::Time)
        } else if !asked.can_yield && self.used.instructions >= self.unyielding_end {
            Some(Stopped::Unyielding)
        } else {
            None
        };
        if self.used.stopped.is_some() {
            return Verdict::Stop;
        }
        if self.is_to_collect(asked) {
            return if slice_is_over { Verdict::Yield } else { Verdict::Collect };
        }
        if self.used.stopped.is_some() {
            return Verdict::Stop;
        }
        if !slice_is_over && is_cycle_due(asked.used) {
            return Verdict::Collect;
        }
        self.adapt(asked, now_us);
        if slice_is_over { Verdict::Yield } else { Verdict::Continue }
    }

    /// True while garbage must be collected before the run's memory is judged.
    fn is_to_collect(&mut self, asked: Interruption) -> bool {
        let left = &mut self.used.cycles_left;
        if asked.used <= self.room.end || (*left == 0 && asked.used <= self.room.collect) {
            *left = 0;
            return false;
        }
        if *left == 0 {
            *left = CYCLES;
        } else if asked.cycle_ended {
            *left -= 1;
            if *left == 0 {
                self.used.stopped = Some(Stopped::Memory);
            }
        }
        *left > 0
    }

    /// Looks at the clock more often where single instructions take long, or may.
    fn adapt(&mut self, asked: Interruption, now_us: u64) {
        let took_us = now_us.saturating_sub(self.judged_us);
        self.judged_us = now_us;
        if asked.instructions <= 0 {
            return;
        }
        let own = asked.used.saturating_sub(self.room.base).max(1);
        let most = i32::try_from(OPERATOR_BYTES / own).unwrap_or(EVERY).clamp(EVERY_MIN, EVERY);
        let every = self.every;
        let wanted = match took_us {
            ..QUICK_US => every.saturating_mul(2),
            QUICK_US..=SLOW_US => every,
            _ => (u64::from(every.unsigned_abs()) * QUICK_US / took_us) as i32,
        };
        self.every = wanted.clamp(1, most);
    }
}
