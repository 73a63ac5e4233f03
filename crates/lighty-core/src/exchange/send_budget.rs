//! A limit of the requests that backends receive for one exchange.

use crate::exchange::extensions::Extension;
use crate::extension_slot;

/// The requests that may still be sent to backends; without a limit unless set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendBudget {
    left: Option<u32>,
}

impl SendBudget {
    /// A budget of so many requests.
    #[must_use]
    pub fn of(requests: u32) -> Self {
        Self { left: Some(requests) }
    }

    /// True if at most one more request may be sent.
    #[must_use]
    pub fn is_at_last(&self) -> bool {
        self.left.is_some_and(|left| left <= 1)
    }

    /// Counts a request that a backend may have read.
    pub fn spend(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    /// True if no further request may be sent.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.left == Some(0)
    }
}

impl Extension for SendBudget {
    extension_slot!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_ends_with_its_last_request() {
        let mut budget = SendBudget::of(2);
        assert!(!budget.is_at_last());
        budget.spend();
        assert!(budget.is_at_last() && !budget.is_spent());
        budget.spend();
        budget.spend();
        assert!(budget.is_spent());
        let mut unlimited = SendBudget::default();
        unlimited.spend();
        assert!(!unlimited.is_at_last() && !unlimited.is_spent());
    }
}
