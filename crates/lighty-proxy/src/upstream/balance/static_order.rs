//! `static`: the first that is up, in the order written.

use super::{BalanceKey, Balancer, BalancerRow, Choice};

pub(super) const ENTRY: BalancerRow = BalancerRow {
    names: &["static"],
    doc: "the first that is up, in the order written",
    create: |_| Box::new(StaticOrder),
};

/// Fail-over order.
#[derive(Debug)]
pub(super) struct StaticOrder;

impl Balancer for StaticOrder {
    fn pick(&self, choices: &[Choice], _key: &BalanceKey<'_>) -> usize {
        let first = choices.iter().enumerate().min_by_key(|(_, choice)| choice.index);
        first.map_or(0, |(index, _)| index)
    }
}
