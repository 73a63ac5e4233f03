//! Fault injection by rules, so that tests need no broken disk.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::{FileEngine, OpenFile};

/// Operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOp {
    /// `open`.
    Open,
    /// `stat`.
    Stat,
    /// `read` and `warm`.
    Read,
}

/// Fault that replaces or precedes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this `errno`.
    Errno(i32),
    /// It returns at most this many bytes (reads only).
    Short(u64),
    /// It takes this much longer.
    Delay(Duration),
    /// It never ends.
    Never,
}

/// A rule: a fault, and the operations that it affects.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// The kind of operation affected.
    pub op: FaultOp,
    /// For opens and stats: the end of the path. Empty: all of them.
    pub path_suffix: Vec<u8>,
    /// For reads: the inode. `None`: all of them.
    pub ino: Option<u64>,
    /// Number of matching operations to leave alone first.
    pub skip: u64,
    /// Number of matching operations to affect after them.
    pub times: u64,
    /// The fault to inject.
    pub fault: Fault,
}

impl FaultRule {
    /// A rule for every operation of a kind.
    pub fn every(op: FaultOp, fault: Fault) -> FaultRule {
        FaultRule { op, path_suffix: Vec::new(), ino: None, skip: 0, times: u64::MAX, fault }
    }
}

/// Rules in order, of which the first that applies wins; or a function that draws faults for every
/// operation. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan(Rc<FaultPlanInner>);

type Draw = Box<dyn Fn() -> Option<Fault>>;

#[derive(Default)]
struct FaultPlanInner {
    rules: RefCell<Vec<(FaultRule, Cell<u64>)>>,
    draw: Option<Draw>,
    bitten: Cell<u64>,
}

impl FaultPlan {
    /// A plan of these rules.
    pub fn new(rules: impl IntoIterator<Item = FaultRule>) -> FaultPlan {
        let rules = rules.into_iter().map(|rule| (rule, Cell::new(0))).collect();
        FaultPlan(Rc::new(FaultPlanInner {
            rules: RefCell::new(rules),
            ..FaultPlanInner::default()
        }))
    }

    /// A plan that calls `draw` at every operation. The engine then does not use the kernel's
    /// caches, so that the operations do not depend on their content.
    pub fn drawn(draw: impl Fn() -> Option<Fault> + 'static) -> FaultPlan {
        FaultPlan(Rc::new(FaultPlanInner {
            draw: Some(Box::new(draw)),
            ..FaultPlanInner::default()
        }))
    }

    /// True if the faults are drawn.
    pub(super) fn is_drawn(&self) -> bool {
        self.0.draw.is_some()
    }

    /// Number of operations that a fault affected.
    pub fn bitten(&self) -> u64 {
        self.0.bitten.get()
    }

    /// True if any rule concerns this operation on this path, regardless of its counts.
    pub(super) fn concerns(&self, op: FaultOp, path: &[u8]) -> bool {
        let rules = self.0.rules.borrow();
        self.is_drawn()
            || rules.iter().any(|(rule, _)| rule.op == op && path.ends_with(&rule.path_suffix))
    }

    pub(super) fn concerns_reads_of(&self, file: &OpenFile) -> bool {
        let rules = self.0.rules.borrow();
        self.is_drawn()
            || rules.iter().any(|(rule, _)| {
                rule.op == FaultOp::Read && rule.ino.is_none_or(|ino| ino == file.meta().ino)
            })
    }

    fn bite(&self, concerns: impl Fn(&FaultRule) -> bool) -> Option<Fault> {
        if let Some(draw) = &self.0.draw {
            let drawn = draw();
            self.0.bitten.set(self.0.bitten.get() + u64::from(drawn.is_some()));
            return drawn;
        }
        for (rule, seen) in self.0.rules.borrow().iter() {
            if !concerns(rule) {
                continue;
            }
            let n = seen.get();
            seen.set(n + 1);
            if n >= rule.skip && n - rule.skip < rule.times {
                self.0.bitten.set(self.0.bitten.get() + 1);
                return Some(rule.fault);
            }
        }
        None
    }
}

/// Faults of one read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadFault {
    /// Maximum number of bytes that it may return.
    pub(super) bytes_max: Option<u64>,
    /// Time that it takes longer, once the disk has begun; without a limit if it never ends.
    pub(super) delay: Option<Duration>,
}

impl FileEngine {
    pub(super) async fn fault(&self, op: FaultOp, path: &[u8]) -> io::Result<()> {
        let Some(plan) = self.0.faults.borrow().clone() else { return Ok(()) };
        let bite = plan.bite(|rule| rule.op == op && path.ends_with(&rule.path_suffix));
        match read_fault(bite)?.delay {
            Some(Duration::MAX) => pending().await,
            Some(time) => tokio::time::sleep(time).await,
            None => {}
        }
        Ok(())
    }

    /// The fault that a rule has for a read.
    pub(super) fn read_fault(&self, file: &OpenFile) -> io::Result<ReadFault> {
        let Some(plan) = self.0.faults.borrow().clone() else { return Ok(ReadFault::default()) };
        let ino = file.meta().ino;
        let bite =
            plan.bite(|rule| rule.op == FaultOp::Read && rule.ino.is_none_or(|it| it == ino));
        read_fault(bite)
    }
}

fn read_fault(fault: Option<Fault>) -> io::Result<ReadFault> {
    let (bytes_max, delay) = match fault {
        None => (None, None),
        Some(Fault::Errno(errno)) => return Err(io::Error::from_raw_os_error(errno)),
        Some(Fault::Short(most)) => (Some(most), None),
        Some(Fault::Delay(time)) => (None, Some(time)),
        Some(Fault::Never) => (None, Some(Duration::MAX)),
    };
    Ok(ReadFault { bytes_max, delay })
}

impl fmt::Debug for FaultPlanInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("rules", &self.rules).finish_non_exhaustive()
    }
}
