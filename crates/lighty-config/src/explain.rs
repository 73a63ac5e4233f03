//! Explains the settings of a request.
//!
//! Evaluates the blocks one by one, following the definition of the language. Tests compare the
//! indexed evaluation with it.

use std::fmt::Write as _;

use serde_json::json;

use crate::block::{Block, Setting};
use crate::config::Config;
use crate::field::Facts;
use crate::source::Sources;
use crate::value::quote;

/// The result of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionOutcome {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// Not evaluated: an enclosing block or an earlier branch decided.
    Skipped,
    /// The condition's field is not known at this point.
    Unavailable,
}

impl ConditionOutcome {
    /// The word for output.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionOutcome::True => "true",
            ConditionOutcome::False => "false",
            ConditionOutcome::Skipped => "skipped",
            ConditionOutcome::Unavailable => "unavailable",
        }
    }
}

/// A condition and its result.
#[derive(Clone, Debug)]
pub struct ConditionReport {
    /// The block's number.
    pub block: u32,
    /// Nesting depth; 0 at the top level.
    pub depth: usize,
    /// The head of the block in configuration syntax.
    pub head: String,
    /// `file:line`
    pub place: String,
    /// The condition's result.
    pub outcome: ConditionOutcome,
    /// The reason for the result.
    pub why: String,
}

/// A directive that is in effect.
#[derive(Clone, Debug)]
pub struct DirectiveReport {
    /// The directive's name.
    pub name: &'static str,
    /// The value in configuration syntax.
    pub value: String,
    /// `file:line`
    pub place: String,
    /// Replaced values, oldest first, each with its `file:line`.
    pub replaced: Vec<(String, String)>,
}

/// Explanation of the settings of a request.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// All conditions in file order.
    pub conditions: Vec<ConditionReport>,
    /// All directives in effect, sorted by name.
    pub directives: Vec<DirectiveReport>,
    /// The response: names and values, in order.
    pub response: Vec<(&'static str, String)>,
}

/// A condition evaluated for a request.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The head of the block in configuration syntax.
    pub head: String,
    /// The condition's result.
    pub outcome: ConditionOutcome,
    /// The reason for the result.
    pub why: String,
}

impl<S> Config<S> {
    /// The result of every condition for these facts, in file order.
    pub fn evaluate_all(&self, facts: &dyn Facts) -> Vec<Judgement> {
        let outcomes = self.outcomes(facts).into_iter().zip(self.blocks()).skip(1);
        outcomes
            .map(|((outcome, why), block)| Judgement { head: block.head(), outcome, why })
            .collect()
    }

    /// Explains the conditions that hold and the directives in effect.
    pub fn explain(&self, facts: &dyn Facts, sources: &Sources) -> Explanation {
        let outcomes = self.outcomes(facts);
        let place = |span| {
            let at = sources.locate(span);
            format!("{}:{}", at.name, at.line)
        };
        let report = |id: u32| {
            let block = &self.blocks()[id as usize];
            let (outcome, why) = outcomes[id as usize].clone();
            let (head, place) = (block.head(), place(block.span));
            ConditionReport { block: id, depth: self.path(id).len() - 1, head, place, outcome, why }
        };
        let conditions = (1..self.blocks().len() as u32).map(report).collect();
        let mut directives: Vec<DirectiveReport> = Vec::new();
        let active =
            self.blocks().iter().zip(&outcomes).filter(|(_, o)| o.0 == ConditionOutcome::True);
        for setting in active.flat_map(|(block, _)| &block.settings) {
            add(&mut directives, setting, place(setting.key_span));
        }
        directives.sort_by_key(|directive| directive.name);
        Explanation { conditions, directives, response: Vec::new() }
    }

    fn outcomes(&self, facts: &dyn Facts) -> Vec<(ConditionOutcome, String)> {
        let mut list = vec![(ConditionOutcome::True, String::new())];
        let mut so_far = vec![Branches::NoneApplies; self.blocks().len()];
        for (id, block) in self.blocks().iter().enumerate().skip(1) {
            let before = block.prev.map_or(Branches::NoneApplies, |prev| so_far[prev as usize]);
            let around = list[block.parent as usize].0;
            let outcome = outcome(block, around, before, facts);
            so_far[id] = before.and(outcome.0);
            list.push(outcome);
        }
        list
    }
}

/// Combined state of a block and the branches before it.
#[derive(Clone, Copy)]
enum Branches {
    NoneApplies,
    OneApplies,
    Undecided,
}

impl Branches {
    fn and(self, next: ConditionOutcome) -> Branches {
        match (self, next) {
            (Branches::OneApplies, _) | (_, ConditionOutcome::True) => Branches::OneApplies,
            (_, ConditionOutcome::Unavailable) => Branches::Undecided,
            (before, ConditionOutcome::False | ConditionOutcome::Skipped) => before,
        }
    }
}

fn outcome<S>(
    block: &Block<S>,
    around: ConditionOutcome,
    before: Branches,
    facts: &dyn Facts,
) -> (ConditionOutcome, String) {
    if around != ConditionOutcome::True {
        return (ConditionOutcome::Skipped, "the enclosing block does not apply".into());
    }
    match before {
        Branches::OneApplies => {
            return (ConditionOutcome::Skipped, "an earlier branch applies".into());
        }
        Branches::Undecided => {
            return (ConditionOutcome::Unavailable, "an earlier branch is not decided yet".into());
        }
        Branches::NoneApplies => {}
    }
    let Some(cond) = &block.cond else {
        return (ConditionOutcome::True, "no earlier branch applies".into());
    };
    let Some(value) = facts.get(&cond.field) else {
        return (ConditionOutcome::Unavailable, format!("{} is not known yet", cond.field));
    };
    let is_match = match cond.matcher.is_match(&value, facts) {
        Ok(is_match) => is_match,
        Err(undecided) => return (ConditionOutcome::Unavailable, undecided.message),
    };
    let why = format!("{} is {}", cond.field, quote(&value));
    (
        if is_match == cond.op.is_negative() {
            ConditionOutcome::False
        } else {
            ConditionOutcome::True
        },
        why,
    )
}

fn add<S>(list: &mut Vec<DirectiveReport>, setting: &Setting<S>, place: String) {
    let value = setting.value.value.to_source();
    match list.iter_mut().find(|directive| directive.name == setting.name) {
        Some(directive) => {
            let old = (std::mem::replace(&mut directive.value, value), directive.place.clone());
            directive.replaced.push(old);
            directive.place = place;
        }
        None => {
            list.push(DirectiveReport { name: setting.name, value, place, replaced: Vec::new() });
        }
    }
}

impl Explanation {
    /// Output for people.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if self.conditions.is_empty() {
            out.push_str("No conditions.\n");
        } else {
            out.push_str("Conditions\n");
        }
        for c in &self.conditions {
            let (indent, outcome) = (c.depth * 2, c.outcome.as_str());
            let _ = writeln!(out, "  {outcome:<11} {:indent$}{}  ({})", "", c.head, c.place);
            let _ = writeln!(out, "  {:<11} {:indent$}  {}", "", "", c.why);
        }
        out.push_str("\nDirectives\n");
        for d in &self.directives {
            let _ = writeln!(out, "  {} = {}  ({})", d.name, d.value, d.place);
            for (value, place) in d.replaced.iter().rev() {
                let _ = writeln!(out, "    instead of {value}  ({place})");
            }
        }
        if !self.response.is_empty() {
            out.push_str("\nAnswer\n");
        }
        for (name, value) in &self.response {
            let _ = writeln!(out, "  {name:<11} {value}");
        }
        out
    }

    /// Output for programs.
    pub fn to_json(&self) -> String {
        let conditions = self.conditions.iter().map(|c| {
            json!({
                "condition": c.head, "place": c.place, "depth": c.depth,
                "outcome": c.outcome.as_str(), "why": c.why,
            })
        });
        let directives = self.directives.iter().map(|d| {
            let replaced = d.replaced.iter().map(|(v, p)| json!({ "value": v, "place": p }));
            json!({
                "name": d.name, "value": d.value, "place": d.place,
                "replaced": replaced.collect::<Vec<_>>(),
            })
        });
        let response = self.response.iter().map(|(name, value)| json!({ *name: value }));
        json!({
            "response": response.collect::<Vec<_>>(),
            "conditions": conditions.collect::<Vec<_>>(),
            "directives": directives.collect::<Vec<_>>(),
        })
        .to_string()
    }
}
