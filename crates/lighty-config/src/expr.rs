//! Expressions: variables, `+`, and arrays without repeated keys.

use std::collections::HashMap;

use crate::ast::{Expr, Term};
use crate::diag::{Diagnostic, Level};
use crate::eval::{Evaluator, Weighed, variable_name, weighed};
use crate::limits::{NESTING_MAX, VALUE_BYTES_MAX};
use crate::source::{Span, Spanned};
use crate::suggest::nearest;
use crate::value::{Item, Key, Value};

/// Number of elements from which a map is used to find keys.
const SEARCHED_MAX: usize = 8;

impl Evaluator<'_> {
    /// The value of an expression; `None` after an error, which has been reported.
    pub(crate) fn expr(&mut self, expr: &Expr, block: usize) -> Option<Spanned<Value>> {
        let mut terms = expr.terms.iter();
        let mut sum = self.term(terms.next()?, block).map(weighed);
        for term in terms {
            // Every term is computed even after an error, to report its errors too.
            let right = self.term(term, block).map(weighed);
            sum = sum.zip(right).and_then(|((left, weight), right)| self.add(left, weight, right));
        }
        sum.map(|(value, _)| Spanned::new(value.value, expr.span))
    }

    /// The text of an expression; numbers are converted.
    pub(crate) fn text(&mut self, expr: &Expr, what: &str, block: usize) -> Option<String> {
        match self.expr(expr, block)?.value {
            Value::Str(text) => Some(text),
            Value::Int(number) => Some(number.to_string()),
            Value::Array(_) => {
                let text = format!("{what} must be a string");
                self.report(Diagnostic::error("type", expr.span, text));
                None
            }
        }
    }

    fn term(&mut self, term: &Spanned<Term>, block: usize) -> Option<Spanned<Value>> {
        let value = match &term.value {
            Term::Str(text) => Value::Str(text.clone()),
            Term::Int(number) => Value::Int(*number),
            Term::Name(name) => self.variable(name, term.span, block)?,
            Term::Array(items) => self.array(items, block)?,
        };
        Some(Spanned::new(value, term.span))
    }

    fn array(&mut self, items: &[(Option<Expr>, Expr)], block: usize) -> Option<Value> {
        let mut list = Vec::with_capacity(items.len());
        let (mut ok, mut weight) = (true, 0);
        for (key, value) in items {
            let span = value.span;
            let key = key.as_ref().map(|key| self.key(key, block));
            let value = self.expr(value, block);
            // Checked while it grows: a large variable may be used many times.
            weight += value.as_ref().map_or(0, |value| value.value.weight());
            if weight > VALUE_BYTES_MAX {
                self.too_large(span);
                return None;
            }
            match (key, value) {
                (None, Some(value)) => list.push((None, value)),
                (Some(Some(key)), Some(value)) => list.push((Some(key), value)),
                _ => ok = false,
            }
        }
        let array = Value::Array(self.join(Vec::new(), list)?);
        if array.depth() > NESTING_MAX {
            let text = format!("arrays nested more than {NESTING_MAX} levels deep");
            let span = items.first().map(|(_, value)| value.span)?;
            self.report(Diagnostic::error("limit", span, text));
            return None;
        }
        ok.then_some(array)
    }

    fn key(&mut self, key: &Expr, block: usize) -> Option<Key> {
        let text = self.text(key, "a key of an array", block)?;
        Some(Key { text, span: key.span })
    }

    fn too_large(&mut self, span: Span) {
        let text = format!("the value is larger than {VALUE_BYTES_MAX} bytes");
        self.report(Diagnostic::error("limit", span, text));
    }

    fn variable(&mut self, written: &str, span: Span, block: usize) -> Option<Value> {
        let name = variable_name(written);
        if let Some(env) = name.strip_prefix("env.") {
            let value = self.loader.env(env);
            if value.is_none() {
                let text = match env {
                    "" => "`env.` needs the name of a variable behind it".to_owned(),
                    _ => format!("the environment has no variable {env}"),
                };
                self.report(Diagnostic::error("undefined", span, text));
            }
            return value.map(Value::Str);
        }
        let kept_as = (self.canonical)(&name).map_or_else(|| name.clone(), str::to_owned);
        if let Some((at, entry)) = self.find(&kept_as, block) {
            return self.blocks[at].entries[entry].value.as_ref().map(|v| v.value.clone());
        }
        match name.as_str() {
            "var.PID" => return Some(Value::Int(i64::from(self.loader.pid()))),
            "var.CWD" => {
                return Some(Value::Str(self.loader.cwd().to_string_lossy().into_owned()));
            }
            _ => {}
        }
        let found = self.undefined(written, &name, span, block);
        self.report(found);
        None
    }

    fn undefined(&mut self, written: &str, name: &str, span: Span, block: usize) -> Diagnostic {
        let found = Diagnostic::error("undefined", span, format!("{written} is not defined"));
        let is_word = matches!(
            written,
            "enable" | "disable" | "enabled" | "disabled" | "true" | "false" | "on" | "off"
        );
        if is_word {
            let switch = match written {
                "enable" | "enabled" | "true" | "on" => "enable",
                _ => "disable",
            };
            return found.help(format!("switches need quotes, like text: \"{switch}\""));
        }
        if !self.diagnostics.has_room(Level::Error) {
            return found;
        }
        let around = |&at: &usize| (at != 0).then(|| self.blocks[at].parent);
        let blocks = std::iter::successors(Some(block), around);
        let known = blocks.flat_map(|at| &self.blocks[at].entries).map(|entry| &entry.key);
        match nearest(name, known) {
            Some(near) => found.help(format!("did you mean {near}?")),
            None => found.help("variables are set earlier in the file; text needs quotes"),
        }
    }

    /// Computes `left + right`.
    pub(crate) fn add(
        &mut self,
        left: Spanned<Value>,
        left_weight: usize,
        (right, right_weight): Weighed,
    ) -> Option<Weighed> {
        let span = right.span;
        let sum = match (left.value, right.value) {
            (Value::Str(mut a), Value::Str(b)) => {
                a.push_str(&b);
                Value::Str(a)
            }
            (Value::Str(mut a), Value::Int(b)) => {
                a.push_str(&b.to_string());
                Value::Str(a)
            }
            (Value::Int(a), Value::Str(b)) => Value::Str(a.to_string() + &b),
            (Value::Int(a), Value::Int(b)) => match a.checked_add(b) {
                Some(sum) => Value::Int(sum),
                None => {
                    let found = Diagnostic::error("type", span, "the sum is too large");
                    self.report(found);
                    return None;
                }
            },
            (Value::Array(a), Value::Array(b)) => Value::Array(self.join(a, b)?),
            (a, b) => {
                let text = format!("{} cannot be added to {}", b.type_name(), a.type_name());
                let found = Diagnostic::error("type", span, text);
                let with_array = matches!((&a, &b), (Value::Array(_), _) | (_, Value::Array(_)));
                let help = "write a single element as `( \"…\" )`".to_owned();
                self.report(found.maybe_help(with_array.then_some(help)));
                return None;
            }
        };
        let weight = left_weight + right_weight;
        if weight > VALUE_BYTES_MAX {
            self.too_large(span);
            return None;
        }
        Some((Spanned::new(sum, span), weight))
    }

    /// Appends elements. A repeated key must have the same value, and is kept once.
    fn join(&mut self, mut list: Vec<Item>, more: Vec<Item>) -> Option<Vec<Item>> {
        let mut places: HashMap<String, usize> = HashMap::new();
        if more.len() < SEARCHED_MAX {
            // Building a map of a long list for each appended element costs more than searching it.
            for (key, _) in more.iter().filter(|(key, _)| key.is_some()) {
                if let Some(at) = list.iter().position(|(other, _)| other == key) {
                    places.extend(key.clone().map(|key| (key.text, at)));
                }
            }
        } else {
            let keyed = list.iter().enumerate();
            places.extend(keyed.filter_map(|(at, (key, _))| Some((key.clone()?.text, at))));
        }
        let mut ok = true;
        for (key, value) in more {
            if let Some(key) = &key {
                match places.get(&key.text) {
                    Some(&at) if list[at].1.value == value.value => continue,
                    Some(&at) => {
                        let text = format!("the key {:?} is in the array twice", key.text);
                        let found = Diagnostic::error("duplicate", value.span, text);
                        self.report(found.note(list[at].1.span, "first set here"));
                        ok = false;
                        continue;
                    }
                    None => {
                        places.insert(key.text.clone(), list.len());
                    }
                }
            }
            list.push((key, value));
        }
        ok.then_some(list)
    }
}
