//! An `else` without a condition before it.

use super::{Fail, Parser};
use crate::ast::{Guard, Stmt};
use crate::diag::Diagnostic;

impl Parser<'_, '_> {
    /// Handles an `else` with nothing before it, as at the beginning of an included file. lighttpd
    /// accepts it: a condition after it stands alone, and a block without one always holds.
    pub(super) fn stray_else(&mut self, list: &mut Vec<Stmt>) {
        let text = "this `else` does not follow the closing brace of a condition, and belongs to \
                    none";
        let help = "a condition behind it stands alone, and a block without one always holds, as \
                    in lighttpd; move it behind the condition that is meant";
        self.report(Diagnostic::warning("syntax", self.span(), text).help(help));
        match self.else_arm() {
            Ok(arm) if matches!(arm.guard, Guard::Else) => list.extend(arm.body),
            Ok(arm) => match self.chain_from(arm) {
                Ok(chain) => list.push(chain),
                Err(Fail::Midway) => self.recover(list),
                Err(Fail::Border) => {}
            },
            Err(Fail::Midway) => self.recover(list),
            Err(Fail::Border) => {}
        }
    }
}
