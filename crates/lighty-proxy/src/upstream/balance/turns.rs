//! Takes turns among addresses of different weights.

use std::sync::{Mutex, PoisonError};

use super::Choice;

/// Smooth weighted round robin, as in nginx: each participant gains its weight, the richest is
/// chosen and pays the sum of all gains. Over any stretch with the same participants each gets its
/// share to within one turn per address, and never in bursts.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Credits by index. The lock is held for a few additions only.
    credits: Mutex<Vec<Credit>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Credit {
    /// The owner: an index may pass to another address after a new look-up of a name.
    name_hash: u64,
    /// Thousandths of weight; between minus and plus the sum of all weights.
    amount: i64,
}

impl Turns {
    /// Returns the index of the next choice in turn among the ones that `takes_part`; `None` if
    /// there are none.
    pub(super) fn next(
        &self,
        choices: &[Choice],
        takes_part: impl Fn(&Choice) -> bool,
    ) -> Option<usize> {
        let mut credits = self.credits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut best: Option<(usize, i64)> = None;
        let mut total = 0i64;
        for (index, choice) in choices.iter().enumerate().filter(|(_, c)| takes_part(c)) {
            let weight = i64::from(choice.weight.max(1));
            let credit = credit_of(&mut credits, choice);
            credit.amount = credit.amount.saturating_add(weight);
            total = total.saturating_add(weight);
            if best.is_none_or(|(_, richest)| credit.amount > richest) {
                best = Some((index, credit.amount));
            }
        }
        let (index, _) = best?;
        let credit = credit_of(&mut credits, &choices[index]);
        credit.amount = credit.amount.saturating_sub(total);
        Some(index)
    }
}

fn credit_of<'a>(credits: &'a mut Vec<Credit>, choice: &Choice) -> &'a mut Credit {
    let index = choice.index as usize;
    if index >= credits.len() {
        credits.resize(index + 1, Credit::default());
    }
    let credit = &mut credits[index];
    if credit.name_hash != choice.name_hash {
        *credit = Credit { name_hash: choice.name_hash, amount: 0 };
    }
    credit
}
