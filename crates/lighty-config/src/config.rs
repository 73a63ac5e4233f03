//! A loaded configuration: immutable, compiled, shared by all workers.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use crate::block::{Block, Setting};
use crate::condition::{Matcher, Op};
use crate::directive::Setter;
use crate::evaluate::{Active, Conditions};
use crate::field::{Facts, Field};
use crate::source::{Sources, Span, Spanned};
use crate::value::Value;

/// The default of a directive, for [`Config::dump`].
pub(crate) struct DefaultLine {
    pub(crate) name: &'static str,
    pub(crate) source: Option<String>,
    pub(crate) prose: &'static str,
}

/// A `$SERVER["socket"] == "…"`, which opens a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSocket {
    /// The address as written: `:80`, `127.0.0.1:80`, `[::1]:80`, `/run/x.socket`.
    pub text: String,
    /// Position of the condition.
    pub span: Span,
}

/// A loaded configuration.
pub struct Config<S> {
    conditions: Conditions<S>,
    /// Names of listeners by their text in the configuration, if the two differ.
    sockets: HashMap<String, String>,
    global: S,
    values: HashMap<String, Spanned<Value>>,
    /// Names of the rows that any block sets.
    set: HashSet<&'static str>,
    defaults: Vec<DefaultLine>,
    /// Names and lines of its sources, if they are kept.
    places: Option<Sources>,
}

impl<S: Clone> Config<S> {
    /// The settings of a request: defaults, then the global block, then every active block in file
    /// order. A later value replaces an earlier one as a whole.
    pub fn settings(&self, active: &Active) -> S {
        let mut settings = self.global.clone();
        for block in active.iter() {
            if let Some(block) = self.conditions.blocks.get(block as usize) {
                block.settings.iter().for_each(|setting| (setting.setter)(&mut settings));
                block.mark.iter().for_each(|mark| mark(&mut settings));
            }
        }
        settings
    }
}

impl<S> Config<S> {
    pub(crate) fn new(
        conditions: Conditions<S>,
        global: S,
        values: HashMap<String, Spanned<Value>>,
        defaults: Vec<DefaultLine>,
    ) -> Self {
        let settings = conditions.blocks.iter().flat_map(|block| &block.settings);
        let set = settings.map(|setting| setting.name).collect();
        Config { conditions, sockets: HashMap::new(), global, values, set, defaults, places: None }
    }

    /// Keeps the names and the lines of the sources, without their texts.
    pub fn keep_places(&mut self, sources: &Sources) {
        self.places = Some(sources.without_texts());
    }

    /// The sources without texts, if they were kept.
    pub fn places(&self) -> Option<&Sources> {
        self.places.as_ref()
    }

    /// Finds the active blocks. Conditions on an unknown field do not apply; evaluate again when
    /// more fields are known.
    #[inline]
    pub fn evaluate(&self, facts: &dyn Facts, out: &mut Active) {
        self.conditions.evaluate(facts, out);
    }

    /// The settings outside all conditions, and server-wide ones.
    pub fn global(&self) -> &S {
        &self.global
    }

    /// All blocks in file order; the first is the global one.
    pub fn blocks(&self) -> &[Block<S>] {
        &self.conditions.blocks
    }

    /// The global value of a directive (by its row's name) or of a variable.
    pub fn value(&self, name: &str) -> Option<&Spanned<Value>> {
        self.values.get(name)
    }

    /// True if any block sets a directive (by its row's name). Unlike a search through all blocks,
    /// it does not delay an event loop that begins with a configuration of ten thousand hosts.
    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    /// Every value that a block assigns to a directive (by its row's name), in file order.
    pub fn assigned<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Spanned<Value>> {
        let settings = self.conditions.blocks.iter().flat_map(|block| &block.settings);
        settings.filter(move |setting| setting.name == name).map(|setting| &setting.value)
    }

    /// Every address that a `$SERVER["socket"] == "…"` opens, without duplicates, in file order.
    pub fn listen_sockets(&self) -> Vec<ListenSocket> {
        self.sockets_compared_by(Op::Eq)
    }

    /// The addresses in `$SERVER["socket"] != "…"`, which open no listener.
    pub fn avoided_sockets(&self) -> Vec<ListenSocket> {
        self.sockets_compared_by(Op::Ne)
    }

    fn sockets_compared_by(&self, op: Op) -> Vec<ListenSocket> {
        let (mut list, mut known) = (Vec::new(), HashSet::new());
        for block in &self.conditions.blocks {
            if let Some(cond) = &block.cond
                && cond.field == Field::Socket
                && cond.op == op
                && known.insert(cond.text.as_str())
            {
                list.push(ListenSocket { text: cond.text.clone(), span: block.span });
            }
        }
        list
    }

    /// Makes comparisons with a listener use its name (`0.0.0.0:80`, `127.0.0.1:80`) instead of the
    /// text in the configuration (`:80`, `localhost:80`): different spellings of one address are
    /// the same listener. `names` maps texts to names.
    pub fn name_sockets(&mut self, names: HashMap<String, String>) {
        let mut renamed = false;
        for cond in self.conditions.blocks.iter_mut().filter_map(|block| block.cond.as_mut()) {
            if cond.field == Field::Socket
                && matches!(cond.op, Op::Eq | Op::Ne)
                && let Some(name) = names.get(&cond.text)
            {
                renamed |= *name != cond.text;
                cond.matcher = Matcher::Exact(name.clone());
            }
        }
        // Skipped if possible: slow with tens of thousands of conditions.
        if renamed {
            self.conditions.rebuild_index();
        }
        self.sockets = names;
    }

    /// The name of the listener that the configuration writes as `written`.
    pub fn socket_name<'a>(&'a self, written: &'a str) -> &'a str {
        self.sockets.get(written).map_or(written, String::as_str)
    }

    /// Has a block change the settings besides its own values, for instance to note that its
    /// condition holds. The change follows these values; that of block 0 is one of the global
    /// settings. Of two changes of one block the later holds.
    pub fn mark(&mut self, block: u32, change: Setter<S>) {
        match self.conditions.blocks.get_mut(block as usize) {
            Some(_) if block == 0 => change(&mut self.global),
            Some(block) => block.mark = Some(change),
            None => {}
        }
    }

    /// True if any condition uses this field; all request headers count as one.
    pub fn uses(&self, field: &Field) -> bool {
        let slot = field.slot();
        self.conditions
            .blocks
            .iter()
            .filter_map(|b| b.cond.as_ref())
            .any(|c| c.field.slot() == slot)
    }

    /// Paths of the files with addresses that conditions name, each once.
    pub fn address_lists(&self) -> Vec<&str> {
        let conds = self.conditions.blocks.iter().filter_map(|block| block.cond.as_ref());
        let mut paths: Vec<&str> = conds.filter_map(|cond| cond.matcher.list()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// True if any value uses a condition's captures (`%0` to `%9`).
    pub fn keeps_captures(&self) -> bool {
        self.conditions.capture_count > 0
    }

    /// The effective configuration in configuration syntax: the global values with defaults marked,
    /// then all non-empty blocks. Loading it gives the same configuration.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        let set: HashMap<&str, &Setting<S>> = self.conditions.blocks[0]
            .settings
            .iter()
            .map(|setting| (setting.name, setting))
            .collect();
        for default in &self.defaults {
            let name = default.name;
            let _ = match (set.get(name), &default.source) {
                (Some(setting), _) => {
                    writeln!(out, "{name} = {}", setting.value.value.to_source())
                }
                (None, Some(source)) => writeln!(out, "{name} = {source} # default"),
                (None, None) if default.prose.is_empty() => writeln!(out, "# {name}: not set"),
                (None, None) => writeln!(out, "# {name}: {} (default)", default.prose),
            };
        }
        BlockWriter { config: self, out: &mut out, open: Vec::new(), closed: None }.write();
        out
    }

    /// The blocks enclosing a block, outermost first, and the block itself, without the global one.
    pub(crate) fn path(&self, id: u32) -> Vec<u32> {
        let mut path = vec![id];
        while let Some(&last) = path.last() {
            match self.conditions.blocks[last as usize].parent {
                0 => break,
                parent => path.push(parent),
            }
        }
        path.reverse();
        path
    }

    /// A block and the branches before it, first branch first, starting after `written`.
    fn branches_after(&self, written: Option<u32>, id: u32) -> Vec<u32> {
        let mut list = vec![id];
        let mut at = id;
        while let Some(prev) =
            self.conditions.blocks[at as usize].prev.filter(|prev| Some(*prev) != written)
        {
            list.push(prev);
            at = prev;
        }
        list.reverse();
        list
    }
}

/// Writes blocks in file order. If a block cannot be written inside the open ones, its enclosing
/// blocks are written again: loading joins equal blocks.
struct BlockWriter<'a, S> {
    config: &'a Config<S>,
    out: &'a mut String,
    open: Vec<u32>,
    /// The block that was closed last, if nothing was written after it.
    closed: Option<u32>,
}

impl<S> BlockWriter<'_, S> {
    fn write(&mut self) {
        for id in 1..self.config.conditions.blocks.len() as u32 {
            let path = self.config.path(id);
            let common = path.iter().zip(&self.open).take_while(|(a, b)| a == b).count();
            self.close_to(common);
            path[common..].iter().for_each(|&id| self.open(id));
            for setting in &self.config.conditions.blocks[id as usize].settings {
                let value = setting.value.value.to_source();
                self.line(&format!("{} = {value}", setting.name));
            }
        }
        self.close_to(0);
    }

    fn close_to(&mut self, depth: usize) {
        while self.open.len() > depth {
            let id = self.open.pop();
            self.line("}");
            self.closed = id;
        }
    }

    fn open(&mut self, id: u32) {
        // Continues the closed block's chain, if the block belongs to it and nothing was written in
        // between.
        for branch in self.config.branches_after(self.closed, id) {
            self.line(&format!("{} {{", self.config.conditions.blocks[branch as usize].head()));
            if branch != id {
                self.line("}");
            }
        }
        self.open.push(id);
    }

    fn line(&mut self, text: &str) {
        let depth = self.open.len();
        let _ = writeln!(self.out, "{:width$}{text}", "", width = depth * 4);
        self.closed = None;
    }
}
