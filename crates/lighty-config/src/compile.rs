//! Compiles blocks with the table: values become setters, conditions become index entries.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use crate::backtracking::Means;
use crate::block::{Block, Capture, CaptureSource, Condition, Setting};
use crate::condition::Op;
use crate::config::{Config, DefaultLine};
use crate::context::{CaptureId, CompileCtx};
use crate::diag::{Diagnostic, Diagnostics, Level};
use crate::directive::{Directive, Scope, Setter};
use crate::eval::{BlockEntry, RawBlock, RawCond};
use crate::evaluate::Conditions;
use crate::field::Field;
use crate::lift::lift;
use crate::limits::PATTERN_STEPS;
use crate::pattern::TextPattern;
use crate::reject::Reject;
use crate::source::Spanned;
use crate::table::{AbsentDirectives, Lookup, Table};
use crate::value::Value;

/// Strictness of loading.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// Unknown and not yet supported directives are errors.
    pub strict: bool,
}

pub(crate) fn compile<S: Clone + Default>(
    mut raw: Vec<RawBlock>,
    table: &Table<S>,
    options: LoadOptions,
    base: &Path,
    diagnostics: &mut Diagnostics,
) -> Option<Config<S>> {
    let on_socket = on_socket_only(&raw);
    lift(&mut raw, &on_socket, table, diagnostics);
    let (captures, on_socket) = (RecordedCaptures::default(), on_socket_only(&raw));
    let means = Means { backtracking: table.backtracking, steps: steps(&raw, table) };
    let mut compiler =
        Compiler { raw: &raw, table, options, base, diagnostics, captures, on_socket, means };
    let mut blocks = Vec::with_capacity(raw.len());
    let mut late = Vec::new();
    for id in 0..raw.len() {
        let settings = compiler.block(id, &mut late);
        blocks.push(compiler.finish(id, settings));
    }
    for (id, capture) in compiler.captures.by_block {
        blocks[id].capture = Some(capture);
    }
    let mut values: HashMap<String, Spanned<Value>> = HashMap::new();
    let globals = raw.first().map(|block| block.entries.as_slice()).unwrap_or_default();
    for entry in globals {
        values.extend(entry.value.clone().map(|value| (entry.key.clone(), value)));
    }
    let mut settings = std::mem::take(&mut blocks.first_mut()?.settings);
    settings.retain(|s: &Setting<S>| !late.iter().any(|l: &Setting<S>| l.name == s.name));
    settings.append(&mut late);
    for setting in &settings {
        values.insert(setting.name.to_owned(), setting.value.clone());
    }
    let mut merged = S::default();
    settings.iter().for_each(|setting| (setting.setter)(&mut merged));
    blocks[0].settings = settings;
    let defaults = table.iter().map(|row| DefaultLine {
        name: row.name,
        source: row.default_source(),
        prose: row.default,
    });
    let conditions = Conditions::new(blocks, compiler.captures.count);
    Some(Config::new(conditions, merged, values, defaults.collect()))
}

/// For each block: true if it, the branches before it and all enclosing blocks only test the
/// listener.
fn on_socket_only(raw: &[RawBlock]) -> Vec<bool> {
    let mut known = Vec::with_capacity(raw.len());
    for (id, block) in raw.iter().enumerate() {
        let own = block.cond.as_ref().is_none_or(|cond| cond.field == Field::Socket);
        // Preceding branches and enclosing blocks have lower numbers.
        let rest = id == 0 || known[block.prev.unwrap_or(block.parent)];
        known.push(own && rest);
    }
    known
}

/// Conditions that must record their match.
#[derive(Default)]
struct RecordedCaptures {
    by_block: HashMap<usize, Capture>,
    count: usize,
}

struct Compiler<'a, S> {
    raw: &'a [RawBlock],
    table: &'a Table<S>,
    options: LoadOptions,
    base: &'a Path,
    diagnostics: &'a mut Diagnostics,
    captures: RecordedCaptures,
    on_socket: Vec<bool>,
    means: Means,
}

/// The step limit for one match of a pattern, from the file's top level. An invalid value is
/// reported with its directive.
fn steps<S>(raw: &[RawBlock], table: &Table<S>) -> u32 {
    let entries = raw.first().map(|block| block.entries.as_slice()).unwrap_or_default();
    let is_it = |entry: &&BlockEntry| table.get(&entry.key).is_some_and(|row| row.limits_patterns);
    let written = entries.iter().find(is_it).and_then(|entry| entry.value.as_ref()?.value.as_int());
    written.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(PATTERN_STEPS)
}

impl<'a, S> Compiler<'a, S> {
    /// The settings of a block. Server-wide ones within a condition are added to `late`.
    fn block(&mut self, id: usize, late: &mut Vec<Setting<S>>) -> Vec<Setting<S>> {
        let raw = self.raw;
        let mut settings = Vec::new();
        for entry in raw[id].entries.iter().filter(|entry| !entry.key.starts_with("var.")) {
            let Some(row) = self.row(entry) else { continue };
            if !self.has_scope(id, entry, row) {
                continue;
            }
            let Some(setting) = self.setting(id, entry, row) else { continue };
            if id != 0 && row.scope == Scope::Server {
                late.retain(|other| other.name != setting.name);
                late.push(setting);
            } else {
                settings.push(setting);
            }
        }
        settings
    }

    fn finish(&self, id: usize, settings: Vec<Setting<S>>) -> Block<S> {
        let raw = &self.raw[id];
        let cond = raw.cond.as_ref().map(|cond| Condition {
            field: cond.field.clone(),
            op: cond.op,
            text: cond.text.clone(),
            matcher: cond.matcher.limited(self.means.steps),
        });
        Block {
            parent: raw.parent as u32,
            prev: raw.prev.map(|prev| prev as u32),
            cond,
            span: raw.span,
            settings,
            mark: None,
            capture: None,
        }
    }

    /// The row of an entry. Reports every other kind of name.
    fn row(&mut self, entry: &BlockEntry) -> Option<&'a Directive<S>> {
        let (table, key, span) = (self.table, &entry.key, entry.key_span);
        let lenient = if self.options.strict { Level::Error } else { Level::Warning };
        let found = match table.lookup(key) {
            Lookup::Row(row) => return Some(row),
            Lookup::Planned(module) => {
                let text = format!(
                    "{key} is a lighttpd 1.4/1.5 directive ({module}) that is not available in \
                     this version of lighty yet"
                );
                let help = table.get_instead(module).map(str::to_owned);
                Diagnostic::new(lenient, "not-yet", span, text).maybe_help(help)
            }
            Lookup::Gone(module) => {
                let text = format!("{key} belonged to {module}, which is gone");
                let help = table.get_instead(module).map(str::to_owned);
                Diagnostic::new(lenient, "gone", span, text).maybe_help(help)
            }
            Lookup::Removed(instead) => {
                let text = format!("{key} does not exist any more");
                let help = (!instead.is_empty()).then(|| format!("write {instead}"));
                Diagnostic::new(lenient, "removed", span, text).maybe_help(help)
            }
            Lookup::Absent(AbsentDirectives { part, feature, .. }) => {
                let text =
                    format!("{key}: this build has no {part}; build with the feature {feature:?}");
                Diagnostic::error("absent", span, text)
            }
            Lookup::Unknown => {
                let near = self.diagnostics.has_room(lenient).then(|| table.suggest(key)).flatten();
                let help = near.map(|near| format!("did you mean {near}?"));
                let text = format!("{key} is not a known directive and has no effect");
                Diagnostic::new(lenient, "unknown-directive", span, text).maybe_help(help)
            }
        };
        self.diagnostics.push(found);
        None
    }

    /// Reports a directive whose scope does not permit its block. `false`: it has no effect there.
    fn has_scope(&mut self, id: usize, entry: &BlockEntry, row: &Directive<S>) -> bool {
        if id == 0 {
            return true;
        }
        let (key, block) = (&entry.key, self.raw[id].span);
        let found = match row.scope {
            Scope::Any => return true,
            Scope::Socket if self.on_socket[id] => return true,
            Scope::Socket => {
                let text = format!("{key} cannot depend on this condition, and has no effect here");
                let help = "it may stand at the top level or in $SERVER[\"socket\"] == \"…\"";
                Diagnostic::warning("scope", entry.key_span, text).help(help)
            }
            Scope::Server => {
                let text = format!("{key} is server-wide: it applies whatever the condition says");
                let help = "move it to the top level; where it is set several times, the last wins";
                Diagnostic::warning("scope", entry.key_span, text).help(help)
            }
        };
        self.diagnostics.push(found.note(block, "it stands in this block"));
        row.scope != Scope::Socket
    }

    fn setting(&mut self, id: usize, entry: &BlockEntry, row: &Directive<S>) -> Option<Setting<S>> {
        let value = entry.value.clone()?;
        let setter = self.setter(id, entry, &value, row)?;
        let (name, written) = (row.name, entry.key.clone());
        Some(Setting { name, written, key_span: entry.key_span, value, setter, scope: row.scope })
    }

    fn setter(
        &mut self,
        id: usize,
        entry: &BlockEntry,
        value: &Spanned<Value>,
        row: &Directive<S>,
    ) -> Option<Setter<S>> {
        let captures =
            if value.value.any_text(&mentions_capture) { self.capture(id) } else { None };
        let fields = self.fields(id);
        let ctx = CompileCtx {
            key: &entry.key,
            span: value.span,
            base: self.base,
            block: id,
            fields: &fields,
            captures,
            means: self.means,
            findings: RefCell::default(),
        };
        if let Some(warning) = row.sets_nothing(&value.value) {
            self.reject(Level::Warning, entry, value, warning);
            return None;
        }
        let clamped = row.clamp(&value.value);
        let taken = clamped.as_ref().map_or(&value.value, |(nearest, _)| nearest);
        let result = (row.compile)(taken, &ctx);
        if let Some((_, warning)) = clamped {
            ctx.warn(warning);
        }
        for (level, finding) in ctx.findings.take() {
            self.reject(level, entry, value, finding);
        }
        result.map_err(|reject| self.reject(Level::Error, entry, value, reject)).ok()
    }

    fn reject(&mut self, level: Level, entry: &BlockEntry, value: &Spanned<Value>, reject: Reject) {
        let span = reject.span.unwrap_or(value.span);
        let text = format!("{} {}", entry.key, reject.message);
        self.diagnostics.push(Diagnostic::new(level, "value", span, text).maybe_help(reject.help));
    }

    fn fields(&self, id: usize) -> Vec<&'a Field> {
        let mut list: Vec<&Field> = Vec::new();
        let mut at = id;
        while at != 0 {
            list.extend(self.raw[at].cond.as_ref().map(|cond| &cond.field));
            at = self.raw[at].parent;
        }
        list.reverse();
        list
    }

    /// The innermost enclosing condition that provides `%0`. Makes it record its match.
    fn capture(&mut self, id: usize) -> Option<CaptureId> {
        let mut at = id;
        while at != 0 {
            if let Some(cond) = &self.raw[at].cond
                && finds(cond)
            {
                return self
                    .captures
                    .by_block
                    .get(&at)
                    .map(|known| known.id)
                    .or_else(|| self.remember(at, cond));
            }
            at = self.raw[at].parent;
        }
        None
    }

    fn remember(&mut self, at: usize, cond: &RawCond) -> Option<CaptureId> {
        let found = match cond.op {
            // Also for a pattern that is matched as a literal: `%0` still needs a value.
            Op::Match => CaptureSource::Match(TextPattern::compile(&cond.text, self.means).ok()?),
            // A network does not determine the client's address.
            Op::Eq if cond.field == Field::RemoteIp => CaptureSource::Value,
            _ => CaptureSource::Text(cond.text.as_str().into()),
        };
        let around = match found {
            CaptureSource::Match(_) => None,
            _ => self.capture(self.raw[at].parent),
        };
        let id = CaptureId(self.captures.count as u32);
        self.captures.count += 1;
        self.captures.by_block.insert(at, Capture { id, found, around });
        Some(id)
    }
}

/// True if a condition provides `%0`: a negation does not, nor does a test of the listener, which
/// is not text of the request.
fn finds(cond: &RawCond) -> bool {
    matches!(cond.op, Op::Match | Op::Eq | Op::Prefix | Op::Suffix) && cond.field != Field::Socket
}

fn mentions_capture(text: &str) -> bool {
    text.as_bytes().windows(2).any(|w| w[0] == b'%' && (w[1].is_ascii_digit() || w[1] == b'{'))
}
