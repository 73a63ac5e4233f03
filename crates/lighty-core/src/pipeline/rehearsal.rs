//! A dry run of a request.
//!
//! The request walks through the phases like any other. A module that would start or change
//! something (a backend, a program, a file) records what instead.

use std::cell::RefCell;

/// What has happened to a request so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Rewrites, error handlers and refusals, in order.
    pub steps: Vec<String>,
    /// What would be started or changed to respond.
    pub act: Option<String>,
}

/// Collects the records.
#[derive(Debug, Default)]
pub struct Rehearsal(RefCell<Found>);

impl Rehearsal {
    /// What was recorded.
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
