//! Converts trees to blocks: reads includes, computes expressions, resolves `+=`, joins equal
//! blocks. The result is flat, in file order, and free of variables.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::ast::{Arm, AssignOp, CondExpr, Expr, Guard, Stmt};
use crate::backtracking::{Backtracking, Means};
use crate::condition::{Matcher, Op};
use crate::diag::{Diagnostic, Diagnostics, Level};
use crate::field::Field;
use crate::limits::{
    CONDITIONS_MAX, FILE_BYTES_MAX, FILES_MAX, INCLUDE_DEPTH_MAX, NESTING_MAX, PATTERN_STEPS,
    TOTAL_BYTES_MAX, VALUES_BYTES_MAX,
};
use crate::loader::{Loader, MemoryLoader};
use crate::parse::parse;
use crate::source::{FileId, Sources, Span, Spanned};
use crate::suggest::nearest;
use crate::value::{Value, quote};

/// A key and its value, in a block.
#[derive(Clone)]
pub(crate) struct BlockEntry {
    /// The key as written, with `var.` for variables.
    pub(crate) key: String,
    pub(crate) key_span: Span,
    /// `None` if the right side was invalid, which has been reported.
    pub(crate) value: Option<Spanned<Value>>,
    weight: usize,
}

/// The compiled head of a block.
#[derive(Clone, Debug)]
pub(crate) struct RawCond {
    pub(crate) field: Field,
    pub(crate) op: Op,
    pub(crate) text: String,
    pub(crate) matcher: Matcher,
}

/// A block; number 0 is the global one.
pub(crate) struct RawBlock {
    pub(crate) parent: usize,
    /// The preceding branch of its chain.
    pub(crate) prev: Option<usize>,
    /// `None`: the global block, or a bare `else`.
    pub(crate) cond: Option<RawCond>,
    pub(crate) span: Span,
    pub(crate) entries: Vec<BlockEntry>,
    by_key: HashMap<String, usize>,
}

/// Properties by which two blocks are equal and are joined.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    parent: usize,
    prev: Option<usize>,
    cond: Option<(Field, Op, String)>,
}

/// Maps a key to the name under which it is kept, so that aliases share an entry.
pub(crate) type Canonical<'a> = &'a dyn Fn(&str) -> Option<&'static str>;

pub(crate) struct Evaluator<'a> {
    pub(crate) loader: &'a dyn Loader,
    pub(crate) canonical: Canonical<'a>,
    means: Means,
    pub(crate) sources: Sources,
    pub(crate) diagnostics: Diagnostics,
    pub(crate) blocks: Vec<RawBlock>,
    /// Directory of the main file, to which includes are relative.
    pub(crate) base: PathBuf,
    identities: HashMap<Identity, usize>,
    /// The files that are being read, to detect cycles.
    stack: Vec<PathBuf>,
    total_bytes: usize,
    values_bytes: usize,
    block_depth: usize,
    include_depth: usize,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(
        loader: &'a dyn Loader,
        canonical: Canonical<'a>,
        backtracking: Option<Backtracking>,
        base: PathBuf,
    ) -> Self {
        Evaluator {
            loader,
            canonical,
            means: Means { backtracking, steps: PATTERN_STEPS },
            sources: Sources::default(),
            diagnostics: Diagnostics::default(),
            blocks: Vec::new(),
            base,
            identities: HashMap::new(),
            stack: Vec::new(),
            total_bytes: 0,
            values_bytes: 0,
            block_depth: 0,
            include_depth: 0,
        }
    }

    /// Evaluates the main text; `path` is its file, if it has one.
    pub(crate) fn main(&mut self, name: &str, path: Option<&Path>, bytes: Vec<u8>) {
        let over = bytes.len() > FILE_BYTES_MAX;
        self.total_bytes = bytes.len();
        let file = self.sources.add_bytes(name, path, if over { Vec::new() } else { bytes }, None);
        let start = Span { file, start: 0, end: 0 };
        self.blocks.push(RawBlock::new(0, None, None, start));
        if over {
            let text = format!("{name} is larger than {FILE_BYTES_MAX} bytes");
            self.report(Diagnostic::error("limit", start, text));
            return;
        }
        self.stack.extend(path.map(|path| self.loader.identity(path)));
        self.file(file, 0);
        self.stack.clear();
    }

    fn file(&mut self, file: FileId, block: usize) {
        let tree = parse(&self.sources, file, &mut self.diagnostics);
        self.warn_about_encoding(file);
        self.statements(&tree, block);
    }

    fn statements(&mut self, list: &[Stmt], block: usize) {
        for statement in list {
            match statement {
                Stmt::Assign { key, op, value } => self.assign(key, *op, value.as_ref(), block),
                Stmt::Include { file, span } => self.include(file, *span, block),
                Stmt::IncludeShell { command, span } => self.include_shell(command, *span, block),
                Stmt::Global(body) => self.statements(body, 0),
                Stmt::Chain(arms) => self.chain(arms, block),
            }
        }
    }

    fn assign(&mut self, key: &Spanned<String>, op: AssignOp, right: Option<&Expr>, block: usize) {
        let name = variable_name(&key.value);
        if name.starts_with("env.") {
            let text = format!("{name} is read only");
            self.report(Diagnostic::error("read-only", key.span, text));
            return;
        }
        let value = right.and_then(|expr| self.expr(expr, block)).map(weighed);
        let kept_as = (self.canonical)(&name).map_or_else(|| name.clone(), str::to_owned);
        let own = self.blocks[block].by_key.get(&kept_as).copied();
        let value = match (op, own) {
            (AssignOp::Set, Some(own)) => {
                if !self.is_second_spelling(own, &name, key.span, block) {
                    return;
                }
                value
            }
            (AssignOp::Append, Some(own)) => {
                // Moved, not copied: a list may grow by one element a hundred thousand times.
                let entry = &mut self.blocks[block].entries[own];
                let (left, weight) = (entry.value.take(), entry.weight);
                left.zip(value).and_then(|(left, right)| self.add(left, weight, right))
            }
            (AssignOp::Append, None) => match self.find(&kept_as, block) {
                Some((at, entry)) => {
                    let entry = &self.blocks[at].entries[entry];
                    let (left, weight) = (entry.value.clone(), entry.weight);
                    left.zip(value).and_then(|(left, right)| self.add(left, weight, right))
                }
                None => value,
            },
            _ => value,
        };
        self.store(kept_as, name, key.span, value, block);
    }

    /// Handles a second `=`: an error if it repeats the key, a warning if it uses an alias of the
    /// key.
    fn is_second_spelling(&mut self, own: usize, name: &str, span: Span, block: usize) -> bool {
        let first = &self.blocks[block].entries[own];
        let (first_key, first_span) = (first.key.clone(), first.key_span);
        if first_key == name {
            let text = format!("{name} is set a second time in the same block");
            let help = format!("`{name} := …` replaces a value, `{name} += …` appends to it");
            let found = Diagnostic::error("duplicate", span, text).help(help);
            self.report(found.note(first_span, "first set here"));
            return false;
        }
        let text = format!("{name} is another name of {first_key}; this value wins");
        let found = Diagnostic::warning("duplicate", span, text);
        self.report(found.note(first_span, "first set here"));
        true
    }

    fn store(
        &mut self,
        kept_as: String,
        key: String,
        key_span: Span,
        value: Option<Weighed>,
        block: usize,
    ) {
        let (value, weight) = value.map_or((None, 0), |(value, weight)| (Some(value), weight));
        self.values_bytes += weight;
        let over = self.values_bytes > VALUES_BYTES_MAX;
        if over {
            self.values_bytes -= weight;
            let text = format!("all values together are larger than {VALUES_BYTES_MAX} bytes");
            self.report(Diagnostic::error("limit", key_span, text));
        }
        let (value, weight) = if over { (None, 0) } else { (value, weight) };
        let entry = BlockEntry { key, key_span, value, weight };
        let block = &mut self.blocks[block];
        match block.by_key.get(&kept_as) {
            Some(&own) => {
                self.values_bytes -= block.entries[own].weight;
                block.entries[own] = entry;
            }
            None => {
                block.by_key.insert(kept_as, block.entries.len());
                block.entries.push(entry);
            }
        }
    }

    /// The nearest enclosing block that has the key, and the entry's index.
    pub(crate) fn find(&self, kept_as: &str, mut block: usize) -> Option<(usize, usize)> {
        loop {
            if let Some(&entry) = self.blocks[block].by_key.get(kept_as) {
                return Some((block, entry));
            }
            if block == 0 {
                return None;
            }
            block = self.blocks[block].parent;
        }
    }

    fn chain(&mut self, arms: &[Arm], parent: usize) {
        if self.block_depth >= NESTING_MAX {
            let text = format!("blocks nested more than {NESTING_MAX} levels deep");
            self.report(Diagnostic::error("limit", arms[0].span, text));
            return;
        }
        self.block_depth += 1;
        let mut prev = None;
        for arm in arms {
            let block = match &arm.guard {
                Guard::If(cond) => self.condition(cond, arm.span, parent, prev),
                Guard::Else => self.enter(None, arm.span, parent, prev),
                Guard::Broken => self.detached(arm.span, parent),
            };
            let Some(block) = block else { break };
            self.statements(&arm.body, block);
            prev = Some(block);
        }
        self.block_depth -= 1;
    }

    fn condition(
        &mut self,
        cond: &CondExpr,
        span: Span,
        parent: usize,
        prev: Option<usize>,
    ) -> Option<usize> {
        let field = self.field(cond);
        let text = self.text(&cond.right, "the right side of a condition", parent);
        let (Some(field), Some(text)) = (field, text) else { return self.detached(span, parent) };
        match Matcher::compile(&field, cond.op.value, &text, self.means) {
            Ok(matcher) => {
                if let Some((detail, at)) = matcher.notice(&text) {
                    let at = self.place_in(&cond.right, &text, at);
                    self.report(Diagnostic::new(Level::Note, "backtracking", at, detail));
                }
                let cond = RawCond { field, op: cond.op.value, text, matcher };
                self.enter(Some(cond), span, parent, prev)
            }
            Err(bad) => {
                let at = self.place_in(&cond.right, &text, bad.at);
                self.report(Diagnostic::error("condition", at, bad.message).maybe_help(bad.help));
                self.detached(span, parent)
            }
        }
    }

    /// Position of a part of the right side in the source, if it was written as a single string.
    fn place_in(&self, right: &Expr, text: &str, at: Option<Range<usize>>) -> Span {
        let raw = self.sources.text(right.span);
        match at {
            Some(at) if raw.len() == text.len() + 2 => {
                let start = right.span.start + 1;
                Span {
                    file: right.span.file,
                    start: start + at.start as u32,
                    end: start + at.end as u32,
                }
            }
            _ => right.span,
        }
    }

    fn field(&mut self, cond: &CondExpr) -> Option<Field> {
        let (object, name) = (&cond.object.value, &cond.name.value);
        let field = Field::parse(object, name);
        if field.is_none() {
            let known = object == "GEOIP" || Field::spellings().any(|(o, _)| o == object);
            let (span, text) = if known {
                (cond.name.span, format!("${object} has no {name:?}"))
            } else {
                (cond.object.span, format!("${object} is not something to compare"))
            };
            let written = format!("${object}[\"{name}\"]");
            let all = Field::spellings().map(|(o, n)| format!("${o}[\"{n}\"]"));
            let near = self.diagnostics.has_room(Level::Error).then(|| nearest(&written, all));
            let help = near.flatten().map(|found| format!("did you mean {found}?"));
            let general = "there are $SERVER[\"socket\"], $HTTP[\"…\"], $REQUEST_HEADER[\"…\"], \
                           $PHYSICAL[\"…\"] and $GEOIP[\"country/iso_code\"]";
            let found = Diagnostic::error("condition", span, text);
            self.report(found.help(general).maybe_help(help));
        }
        field
    }

    /// The block of this identity, created if it is new.
    fn enter(
        &mut self,
        cond: Option<RawCond>,
        span: Span,
        parent: usize,
        prev: Option<usize>,
    ) -> Option<usize> {
        let key = cond.as_ref().map(|c| (c.field.clone(), c.op, c.text.clone()));
        let identity = Identity { parent, prev, cond: key };
        if let Some(&known) = self.identities.get(&identity) {
            return Some(known);
        }
        if self.blocks.len() > CONDITIONS_MAX {
            if self.blocks.len() == CONDITIONS_MAX + 1 {
                let text = format!("more than {CONDITIONS_MAX} conditions");
                self.report(Diagnostic::error("limit", span, text));
                self.blocks.push(RawBlock::new(0, None, None, span));
            }
            return None;
        }
        self.blocks.push(RawBlock::new(parent, prev, cond, span));
        self.identities.insert(identity, self.blocks.len() - 1);
        Some(self.blocks.len() - 1)
    }

    /// Creates a block for the body of a broken condition, which is checked but never used.
    fn detached(&mut self, span: Span, parent: usize) -> Option<usize> {
        if self.blocks.len() > CONDITIONS_MAX {
            return None;
        }
        self.blocks.push(RawBlock::new(parent, None, None, span));
        Some(self.blocks.len() - 1)
    }

    fn include(&mut self, file: &Expr, span: Span, block: usize) {
        let Some(name) = self.text(file, "the name of an included file", block) else { return };
        let path = self.resolve(&name);
        if !name.contains(['*', '?', '[', '{']) {
            self.include_file(&path, span, block);
            return;
        }
        match self.loader.glob(&path.to_string_lossy()) {
            Ok(paths) => paths.iter().for_each(|path| self.include_file(path, span, block)),
            Err(error) => {
                let text = format!("cannot list {name}: {error}");
                self.report(Diagnostic::error("include", span, text));
            }
        }
    }

    /// Resolves a file name, relative to the main file's directory unless it begins with `/` or
    /// `./`.
    fn resolve(&self, name: &str) -> PathBuf {
        if name.starts_with("./") || name.starts_with("../") && self.base.as_os_str().is_empty() {
            return self.loader.cwd().join(name.trim_start_matches("./"));
        }
        self.base.join(name)
    }

    fn include_file(&mut self, path: &Path, span: Span, block: usize) {
        let identity = self.loader.identity(path);
        if self.stack.contains(&identity) {
            let text = format!("{} includes itself", path.display());
            self.report(Diagnostic::error("include", span, text));
            return;
        }
        match self.loader.read(path) {
            Ok(bytes) => {
                self.stack.push(identity);
                self.included(&path.to_string_lossy(), Some(path), bytes, span, block);
                self.stack.pop();
            }
            Err(error) => {
                let text = format!("cannot read {}: {error}", path.display());
                self.report(Diagnostic::error("include", span, text));
            }
        }
    }

    fn include_shell(&mut self, command: &Expr, span: Span, block: usize) {
        let Some(command) = self.text(command, "a command", block) else { return };
        match self.loader.shell(&command) {
            Ok(bytes) => {
                let name = format!("include_shell {}", quote(&command));
                self.included(&name, None, bytes, span, block);
            }
            Err(reason) => {
                let text = format!("the command failed: {reason}");
                self.report(Diagnostic::error("include", span, text));
            }
        }
    }

    fn included(
        &mut self,
        name: &str,
        path: Option<&Path>,
        bytes: Vec<u8>,
        span: Span,
        block: usize,
    ) {
        let excess = if bytes.len() > FILE_BYTES_MAX {
            Some(format!("{name} is larger than {FILE_BYTES_MAX} bytes"))
        } else if self.total_bytes + bytes.len() > TOTAL_BYTES_MAX {
            Some(format!("all files together are larger than {TOTAL_BYTES_MAX} bytes"))
        } else if self.sources.len() >= FILES_MAX {
            Some(format!("more than {FILES_MAX} files"))
        } else if self.include_depth >= INCLUDE_DEPTH_MAX {
            Some(format!("includes nested more than {INCLUDE_DEPTH_MAX} levels deep"))
        } else {
            None
        };
        if let Some(text) = excess {
            self.report(Diagnostic::error("limit", span, text));
            return;
        }
        self.total_bytes += bytes.len();
        let file = self.sources.add_bytes(name, path, bytes, Some(span));
        self.include_depth += 1;
        self.file(file, block);
        self.include_depth -= 1;
    }

    fn warn_about_encoding(&mut self, file: FileId) {
        let source = self.sources.get(file);
        if let Some(at) = source.lossy.then(|| source.text.find('\u{fffd}')).flatten() {
            let span = Span { file, start: at as u32, end: at as u32 + 3 };
            let text = "the file is not valid UTF-8, here for the first time";
            self.report(Diagnostic::warning("encoding", span, text));
        }
    }

    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }
}

impl RawBlock {
    fn new(parent: usize, prev: Option<usize>, cond: Option<RawCond>, span: Span) -> Self {
        RawBlock { parent, prev, cond, span, entries: Vec::new(), by_key: HashMap::new() }
    }

    /// Creates a complete block of the top level.
    pub(crate) fn at_top(cond: Option<RawCond>, span: Span, entries: Vec<BlockEntry>) -> Self {
        RawBlock { entries, ..Self::new(0, None, cond, span) }
    }
}

/// A value and its weight, which is expensive to compute.
pub(crate) type Weighed = (Spanned<Value>, usize);

pub(crate) fn weighed(value: Spanned<Value>) -> Weighed {
    let weight = value.value.weight();
    (value, weight)
}

/// The full name of a variable, which is written without a dot.
pub(crate) fn variable_name(name: &str) -> String {
    if name.contains('.') { name.to_owned() } else { format!("var.{name}") }
}

/// Parses a value in the syntax of an assignment's right side.
pub(crate) fn parse_value(source: &str) -> Result<Value, Diagnostics> {
    let loader = MemoryLoader::default();
    let mut evaluator = Evaluator::new(&loader, &|_| None, None, PathBuf::new());
    evaluator.main("value", None, format!("var.value = {source}\n").into_bytes());
    let entry = evaluator.blocks.swap_remove(0).entries.pop().and_then(|entry| entry.value);
    match entry {
        Some(value) if !evaluator.diagnostics.has_errors() => Ok(value.value),
        _ => {
            if !evaluator.diagnostics.has_errors() {
                let span = Span { file: FileId(0), start: 0, end: 0 };
                evaluator.report(Diagnostic::error("syntax", span, "expected a value"));
            }
            Err(evaluator.diagnostics)
        }
    }
}
