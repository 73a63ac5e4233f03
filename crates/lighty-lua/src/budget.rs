//! Limits of a script's run: instructions, time, memory, and time slices of its thread.
//!
//! One script at a time runs on a thread, so the running script's budget is stored per thread. The
//! hook ([`lighty_io::lua_hook`]) calls `judge` about it.

use std::cell::{Cell, RefCell};

use lighty_io::clock::Clock;
use lighty_io::lua_hook::{self, FIRST, HookVerdict, Interruption};
use mlua::Lua;

/// Microseconds that a script runs before other connections get a turn.
pub const SLICE_US: u64 = 200;

/// Maximum instructions between two clock readings.
const EVERY: i32 = 1000;

/// Bytes that a script's operators may process between two clock readings: comparing and joining
/// texts takes time proportional to their length, in one instruction. The memory of a run limits
/// that length.
const OPERATOR_BYTES: usize = 32 << 20;

/// Minimum interval that results from [`OPERATOR_BYTES`].
const EVERY_MIN: i32 = 8;

/// An interval shorter than this is lengthened, one longer than [`SLOW_US`] is shortened; in
/// microseconds.
const QUICK_US: u64 = 50;
const SLOW_US: u64 = 200;

/// Charged work between two clock readings, in instructions: about 10 microseconds.
const LOOK_EVERY: u64 = 2048;

/// Maximum instructions of a script where it cannot be suspended, inside a call from C: about 2 ms.
/// Not a time, because other processes may have used the processor meanwhile.
pub const UNYIELDING_MAX: u64 = 500_000;

/// Limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// Milliseconds from the run's beginning, waits included (`magnet.max-time`).
    pub time_ms: u64,
    /// Instructions (`magnet.max-instructions`). Work outside Lua is charged as the number of
    /// instructions that would take as long.
    pub instructions: u64,
    /// Bytes (`magnet.max-memory`) that a run may hold. Checked after garbage was collected;
    /// `Room` adds space for garbage.
    pub memory: usize,
}

/// Multiple of the memory limit that a run may allocate, garbage included. Lua 5.4 collects garbage
/// by itself before an allocation fails, so a failure means that the run holds too much.
const HARD_LIMITS: usize = if cfg!(feature = "luajit") { 2 } else { 1 };

/// Sizes of Lua's memory at which a run is stopped or garbage collected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Memory of everything except this run.
    base: usize,
    /// If more is in use after a collection, the run is stopped.
    end: usize,
    /// If more is in use, garbage is collected.
    collect: usize,
    /// Maximum size of Lua's memory.
    pub(crate) hard: usize,
}

impl Room {
    /// For a run with this limit that owns `own` bytes of the `used` ones.
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

/// Reason for stopping a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its run took longer than [`RunLimits::time_ms`].
    Time,
    /// It executed more than [`RunLimits::instructions`].
    Instructions,
    /// It executed [`UNYIELDING_MAX`] instructions where it cannot be suspended.
    Unyielding,
    /// Its data, in Lua or in the request and the response, exceeds [`RunLimits::memory`].
    Memory,
}

impl Stopped {
    /// The limit's name in the log.
    pub fn limit(self) -> &'static str {
        match self {
            Stopped::Time => "magnet.max-time",
            Stopped::Instructions => "magnet.max-instructions",
            Stopped::Memory => "magnet.max-memory",
            Stopped::Unyielding => "500000 instructions inside a call that cannot be interrupted",
        }
    }
}

/// Resource usage of a run, carried from slice to slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Instructions, charged work included.
    pub(crate) instructions: u64,
    /// The reason for stopping it, if it was stopped.
    pub(crate) stopped: Option<Stopped>,
    /// Remaining cycles of the garbage collector before a run that exceeds its memory is stopped:
    /// the current one, and a complete one.
    cycles_left: u8,
}

/// Number of cycles after which all earlier garbage is freed.
const CYCLES: u8 = 2;

struct Budget {
    clock: Clock,
    slice_end_us: u64,
    unyielding_end: u64,
    deadline_us: u64,
    instructions_max: u64,
    used: Used,
    room: Room,
    /// Work charged since the last clock reading.
    booked: u64,
    /// Time of the last call of the hook.
    judged_us: u64,
    /// Instructions until the next call of the hook.
    every: i32,
}

/// Bytes that scripts may allocate before a cycle of the garbage collector is started. By itself
/// Lua waits until its memory has doubled since the last cycle, which may have found much memory in
/// use that is garbage now. Meanwhile strings accumulate, and the table of all strings doubles in
/// one step: 65,536 strings take 3 ms, 131,072 take 20 ms.
const GARBAGE_BYTES: usize = 2 << 20;

thread_local! {
    static BUDGET: RefCell<Option<Budget>> = const { RefCell::new(None) };
    /// Lua's memory at the last start of a cycle, or its minimum since then.
    static FLOOR: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// True if a cycle must be started.
fn is_cycle_due(used: usize) -> bool {
    let floor = FLOOR.get().min(used);
    let is_due = used - floor > GARBAGE_BYTES;
    // The collector continues by itself, and freed memory lowers the floor.
    FLOOR.set(if is_due { used } else { floor });
    is_due
}

/// Starts a slice.
pub(crate) fn begin(
    clock: &Clock,
    used: Used,
    (now_us, deadline_us): (u64, u64),
    room: Room,
    limits: &RunLimits,
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

/// Ends a slice. Returns the usage of the run, and whether the hook's interval must be reset for
/// the next slice.
pub(crate) fn end() -> (Used, bool) {
    BUDGET.take().map_or((Used::default(), true), |budget| {
        (budget.used, budget.every != FIRST || budget.used.stopped.is_some())
    })
}

/// Marks the running script as stopped. Its function then returns an error, and code that catches
/// errors checks this mark.
pub(crate) fn stop_for_memory() {
    BUDGET.with_borrow_mut(|budget| {
        if let Some(budget) = budget {
            budget.used.stopped = budget.used.stopped.or(Some(Stopped::Memory));
        }
    });
}

/// Charges instructions for work outside Lua, which the hook does not count. True if the slice is
/// over: then the hook should be called when the function returns.
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

/// Like [`book`]; also requests a call of the hook if the slice is over.
pub(crate) fn charge(lua: &Lua, work: u64) {
    if book(work) {
        lua_hook::call_next(lua);
    }
}

/// Cost of a call of a Rust function, in instructions.
pub(crate) const CALL: u64 = 64;

/// Cost of creating a Lua value, in instructions.
pub(crate) const VALUE: u64 = 32;

/// Charges for a call that processes a text of this length.
pub(crate) fn charge_bytes(lua: &Lua, bytes: usize) {
    charge(lua, CALL + bytes as u64 / 4);
}

/// Decides about the running script, for the hook.
pub(crate) fn judge(interruption: Interruption) -> (HookVerdict, i32) {
    BUDGET.with_borrow_mut(|budget| match budget {
        Some(budget) => match budget.judge(interruption) {
            HookVerdict::Stop => (HookVerdict::Stop, 1),
            other => (other, budget.every),
        },
        // The engine's own code, which loads a script.
        None => (HookVerdict::Continue, EVERY),
    })
}

impl Budget {
    fn judge(&mut self, interruption: Interruption) -> HookVerdict {
        let now_us = self.clock.precise_us();
        let slice_is_over = interruption.can_yield && now_us >= self.slice_end_us;
        // Also while it is being stopped, because error handlers may be nested deeply.
        if slice_is_over && self.used.stopped.is_some() {
            return HookVerdict::Yield;
        }
        if self.used.stopped.is_some() {
            return HookVerdict::Stop;
        }
        let instructions = u64::from(interruption.instructions.unsigned_abs());
        self.used.instructions = self.used.instructions.saturating_add(instructions);
        self.used.stopped = if self.used.instructions > self.instructions_max {
            Some(Stopped::Instructions)
        } else if now_us >= self.deadline_us {
            Some(Stopped::Time)
        } else if !interruption.can_yield && self.used.instructions >= self.unyielding_end {
            Some(Stopped::Unyielding)
        } else {
            None
        };
        if self.used.stopped.is_some() {
            return HookVerdict::Stop;
        }
        if self.is_to_collect(interruption) {
            return if slice_is_over { HookVerdict::Yield } else { HookVerdict::Collect };
        }
        if self.used.stopped.is_some() {
            return HookVerdict::Stop;
        }
        if !slice_is_over && is_cycle_due(interruption.used) {
            return HookVerdict::Collect;
        }
        self.adapt(interruption, now_us);
        if slice_is_over { HookVerdict::Yield } else { HookVerdict::Continue }
    }

    /// True while garbage must be collected before the run's memory can be checked.
    fn is_to_collect(&mut self, interruption: Interruption) -> bool {
        let left = &mut self.used.cycles_left;
        if interruption.used <= self.room.end
            || (*left == 0 && interruption.used <= self.room.collect)
        {
            *left = 0;
            return false;
        }
        if *left == 0 {
            *left = CYCLES;
        } else if interruption.cycle_ended {
            *left -= 1;
            if *left == 0 {
                self.used.stopped = Some(Stopped::Memory);
            }
        }
        *left > 0
    }

    /// Reads the clock more often if instructions take long, or may.
    fn adapt(&mut self, interruption: Interruption, now_us: u64) {
        let took_us = now_us.saturating_sub(self.judged_us);
        self.judged_us = now_us;
        if interruption.instructions <= 0 {
            return;
        }
        let own = interruption.used.saturating_sub(self.room.base).max(1);
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
