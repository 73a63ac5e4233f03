//! What would be done for a request, found out without doing it.
//!
//! A request with a rehearsal walks through the phases like any other. A module that would start or
//! change something (a backend, a program, a file) says what in place of that.

use std::cell::RefCell;

/// What became of a request so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Rewritings, error handlers, refusals, in their order.
    pub steps: Vec<String>,
    /// What would be started or changed to answer.
    pub act: Option<String>,
}

/// Where that is noted.
#[derive(Debug, Default)]
pub struct Rehearsal(RefCell<Found>);

impl Rehearsal {
    /// What was noted.
    pub fn found(&self) -> Found {
        self.0.borrow().clone()
    }

    pub(crate) fn step(&self, words: String) {
        self.0.borrow_mut().steps.push(words);
    }

    pub(crate) fn act(&self, words: String) {
        self.0.borrow_mut().act = Some(words);
    }
}
