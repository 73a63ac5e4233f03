//! Dry run of a request.
//!
//! The request walks through the phases like any other. A module that would start or change
//! something (a backend, a program, a file) records that action instead.

use std::cell::RefCell;

/// Records of a dry run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Rewrites, error handlers and refusals, in order.
    pub steps: Vec<String>,
    /// The backend, program or change that would make the response.
    pub act: Option<String>,
}

/// Collects the records.
#[derive(Debug, Default)]
pub struct Rehearsal(RefCell<Found>);

impl Rehearsal {
    /// A copy of the records.
    pub fn found(&self) -> Found {
        self.0.borrow().clone()
    }

    pub(crate) fn step(&self, text: String) {
        self.0.borrow_mut().steps.push(text);
    }

    pub(crate) fn act(&self, text: String) {
        self.0.borrow_mut().act = Some(text);
    }
}
