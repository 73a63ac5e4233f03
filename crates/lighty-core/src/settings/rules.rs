//! Rules: ordered pairs of a pattern and a replacement, for `url.rewrite` and `url.redirect`. The
//! first pattern that matches wins.
//!
//! Read in this order: `pattern` (the left side), `template` (the replacement). A [`Screen`] avoids
//! trying ten thousand rules one by one.

mod pattern;
mod template;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use lighty_config::{
    CaptureId, CaptureSet, CompileCtx, Field, Reject, Screen, Undecided, Value, parse_map,
};

use crate::settings::limits;
use pattern::{Keep, Pattern};
use template::Template;

/// Values of `${url.…}` and `${qsa}`.
#[derive(Clone, Copy, Debug, Default)]
pub struct UrlParts<'a> {
    /// `http` or `https`.
    pub scheme: &'a [u8],
    /// Host, with its port if the request names one.
    pub authority: &'a [u8],
    /// Port of the listener.
    pub port: u16,
    /// Path as encoded, without the query.
    pub path: &'a [u8],
    /// Query without its `?`; `None` without a `?`.
    pub query: Option<&'a [u8]>,
}

/// Result of applying rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// No pattern matches.
    NoMatch,
    /// A pattern with an empty replacement matches: nothing changes, and later rules are skipped.
    Keep,
    /// The replacement was written.
    Replaced,
}

/// An ordered, compiled list of rules. Clones share it.
#[derive(Clone, Default)]
pub struct Rules(Arc<RuleList>);

#[derive(Default)]
struct RuleList {
    rules: Vec<Rule>,
    screen: Screen,
    /// The condition that provides `%0` to `%9`.
    condition: Option<CaptureId>,
    /// The condition's captures may come from a decoded path.
    is_decoded: bool,
}

/// Lists up to this length keep all expressions compiled, at 10 to 20 KB each. Of longer lists,
/// usually only a few rules are ever tried.
const EXPRESSIONS_KEPT_MAX: usize = 256;

struct Rule {
    pattern: Pattern,
    template: Template,
    source: Box<str>,
}

impl Rules {
    /// Compiles `( "pattern" => "replacement", … )`.
    pub fn parse(value: &Value, ctx: &CompileCtx) -> Result<Rules, Reject> {
        let pairs = parse_map(value)?;
        if pairs.len() > limits::RULES_MAX {
            return Err(Reject::new(format!("has more than {} rules", limits::RULES_MAX)));
        }
        let spans = value.as_list().unwrap_or_default();
        let keep = if pairs.len() > EXPRESSIONS_KEPT_MAX { Keep::IfLarge } else { Keep::Always };
        let mut rules = Vec::with_capacity(pairs.len());
        let mut needles = Vec::with_capacity(pairs.len());
        for ((pattern, replacement), (_, item)) in pairs.iter().zip(spans) {
            let warn = |text| ctx.warn(Reject::new(text).at(item.span));
            let (compiled, needle) = Pattern::compile(pattern, keep, item.span, ctx)?;
            let template = Template::parse(replacement, warn);
            let source = format!("{pattern:?} => {replacement:?}").into();
            rules.push(Rule { pattern: compiled, template, source });
            needles.push(needle);
        }
        let screen = Screen::build(&needles);
        let condition = ctx.captures;
        let is_path = |field: &Field| {
            matches!(field, Field::Url | Field::PhysicalPath | Field::PhysicalExistingPath)
        };
        let is_decoded = ctx.fields.iter().any(|field| is_path(field));
        Ok(Rules(Arc::new(RuleList { rules, screen, condition, is_decoded })))
    }

    /// True if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.rules.is_empty()
    }

    /// True if both are the same list, not merely equal.
    pub fn is(&self, other: &Rules) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Applies the first rule that matches `subject`, and writes the replacement to `out`, which is
    /// cleared first.
    ///
    /// # Errors
    /// If it could not be decided whether a pattern matches.
    pub fn apply(
        &self,
        subject: &[u8],
        captures: &CaptureSet,
        url: &UrlParts<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Applied, Undecided> {
        self.apply_as(false, subject, captures, url, out)
    }

    /// Like [`Rules::apply`], for a reference sent to a client (RFC 3986 section 4.1). Captures
    /// from the decoded path are encoded again, as are all other characters not allowed in a
    /// reference, except control characters.
    ///
    /// # Errors
    /// As for [`Rules::apply`].
    pub fn apply_for_client(
        &self,
        subject: &[u8],
        captures: &CaptureSet,
        url: &UrlParts<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Applied, Undecided> {
        let applied = self.apply_as(self.0.is_decoded, subject, captures, url, out);
        template::encode_unfit(out);
        applied
    }

    fn apply_as(
        &self,
        encodes_condition: bool,
        subject: &[u8],
        captures: &CaptureSet,
        url: &UrlParts<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Applied, Undecided> {
        let inner = &*self.0;
        let undecided = Cell::new(None);
        let matches = |rule: u32| {
            inner.rules[rule as usize].pattern.is_match(subject).unwrap_or_else(|why| {
                undecided.set(Some(why));
                true
            })
        };
        let found = inner.screen.first(subject, matches);
        if let Some(why) = undecided.take() {
            return Err(why);
        }
        let Some(found) = found else { return Ok(Applied::NoMatch) };
        let rule = &inner.rules[found as usize];
        if rule.template.is_empty() {
            return Ok(Applied::Keep);
        }
        let condition = inner.condition.and_then(|id| captures.get(id));
        out.clear();
        rule.pattern.with_groups(subject, rule.template.uses_groups(), |groups| {
            let sources = template::Sources { groups, condition, encodes_condition, url };
            rule.template.fill(&sources, out);
        })?;
        Ok(Applied::Replaced)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.rules.iter().map(|rule| &rule.source)).finish()
    }
}

/// True if a path begins with the prefix of a rule, where `fold_case` in any case.
pub fn has_prefix(path: &[u8], prefix: &str, fold_case: bool) -> bool {
    let prefix = prefix.as_bytes();
    path.get(..prefix.len()).is_some_and(|start| match fold_case {
        true => start.eq_ignore_ascii_case(prefix),
        false => start == prefix,
    })
}

#[cfg(test)]
mod tests;
