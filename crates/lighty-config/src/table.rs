//! The table of all directives, which defines all names.

use std::collections::{BTreeMap, HashMap};

use crate::backtracking::Backtracking;
use crate::context::CompileCtx;
use crate::directive::{Directive, Kind, Setter};
use crate::eval::parse_value;
use crate::reject::Reject;
use crate::suggest::nearest_directive;
use crate::value::Value;

/// Result of looking up a name.
pub enum Lookup<'a, S> {
    /// A row, by its name or an alias.
    Row(&'a Directive<S>),
    /// A known name that this version does not support, with its module.
    Planned(&'static str),
    /// A name that was removed along with this module.
    Gone(&'static str),
    /// A removed name, with its replacement.
    Removed(&'static str),
    /// A directive that this build lacks.
    Absent(AbsentDirectives),
    /// Unknown.
    Unknown,
}

/// Directives that a build lacks, because a feature of cargo is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbsentDirectives {
    /// A name, or a prefix of names that ends with a dot.
    pub names: &'static str,
    /// Name of the missing part of the server, such as `mod_webdav`.
    pub part: &'static str,
    /// The cargo feature that adds it.
    pub feature: &'static str,
}

impl AbsentDirectives {
    fn include(&self, name: &str) -> bool {
        name == self.names || self.names.ends_with('.') && name.starts_with(self.names)
    }
}

/// Rows, aliases, and other known names.
#[derive(Clone)]
pub struct Table<S> {
    rows: BTreeMap<&'static str, Directive<S>>,
    aliases: HashMap<&'static str, &'static str>,
    planned: HashMap<&'static str, &'static str>,
    gone: HashMap<&'static str, &'static str>,
    /// Alternatives to modules of planned and gone names.
    instead: HashMap<&'static str, &'static str>,
    removed: HashMap<&'static str, &'static str>,
    absent: Vec<AbsentDirectives>,
    /// Compiles patterns that cannot be matched in linear time. Without it they are rejected.
    pub(crate) backtracking: Option<Backtracking>,
    /// Names that were added twice, for [`Table::lint`].
    twice: Vec<&'static str>,
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Table {
            rows: BTreeMap::new(),
            aliases: HashMap::new(),
            planned: HashMap::new(),
            gone: HashMap::new(),
            instead: HashMap::new(),
            removed: HashMap::new(),
            absent: Vec::new(),
            backtracking: None,
            twice: Vec::new(),
        }
    }
}

impl<S> Table<S> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Table::default()
    }

    /// Sets the compiler for patterns that cannot be matched in linear time.
    pub fn backtracking(mut self, compile: Backtracking) -> Self {
        self.backtracking = Some(compile);
        self
    }

    /// Adds a row with its aliases.
    pub fn row(mut self, row: Directive<S>) -> Self {
        self.push(row);
        self
    }

    /// Adds rows.
    pub fn rows(mut self, rows: impl IntoIterator<Item = Directive<S>>) -> Self {
        rows.into_iter().for_each(|row| self.push(row));
        self
    }

    /// Adds a row with its aliases.
    pub fn push(&mut self, row: Directive<S>) {
        for name in &row.aliases {
            if self.aliases.insert(name, row.name).is_some() {
                self.twice.push(name);
            }
        }
        let name = row.name;
        if self.rows.insert(name, row).is_some() {
            self.twice.push(name);
        }
    }

    /// Adds known names that are not supported yet, each with its module. A name that also has a
    /// row is supported.
    pub fn planned(
        mut self,
        names: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        self.planned.extend(names);
        self
    }

    /// Adds alternatives to the modules of planned names.
    pub fn instead(
        mut self,
        names: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        self.instead.extend(names);
        self
    }

    /// The alternative to a planned name's module.
    pub fn get_instead(&self, module: &str) -> Option<&'static str> {
        self.instead.get(module).copied()
    }

    /// Adds names that were removed with their module, each with the module.
    pub fn gone(mut self, names: impl IntoIterator<Item = (&'static str, &'static str)>) -> Self {
        self.gone.extend(names);
        self
    }

    /// Adds names that prevent the start, each with its replacement.
    pub fn removed(
        mut self,
        names: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        self.removed.extend(names);
        self
    }

    /// Adds directives that this build lacks. Configurations that use them are rejected, because
    /// access may depend on them.
    pub fn absent(mut self, directives: impl IntoIterator<Item = AbsentDirectives>) -> Self {
        self.absent.extend(directives);
        self
    }

    /// Looks up a name.
    pub fn lookup(&self, name: &str) -> Lookup<'_, S> {
        if let Some(absent) = self.absent.iter().find(|absent| absent.include(name)) {
            return Lookup::Absent(*absent);
        }
        if let Some(row) = self.rows.get(name) {
            return Lookup::Row(row);
        }
        if let Some(row) = self.aliases.get(name).and_then(|target| self.rows.get(target)) {
            return Lookup::Row(row);
        }
        if let Some(instead) = self.removed.get(name) {
            return Lookup::Removed(instead);
        }
        if let Some(module) = self.gone.get(name) {
            return Lookup::Gone(module);
        }
        self.planned.get(name).map_or(Lookup::Unknown, |module| Lookup::Planned(module))
    }

    /// The row of a name or alias.
    pub fn get(&self, name: &str) -> Option<&Directive<S>> {
        match self.lookup(name) {
            Lookup::Row(row) => Some(row),
            _ => None,
        }
    }

    /// All rows, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Directive<S>> {
        self.rows.values()
    }

    /// Known names that are not supported yet, sorted, without names that have a row.
    pub fn iter_planned(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let sorted: BTreeMap<_, _> =
            self.planned.iter().filter(|(name, _)| self.get(name).is_none()).collect();
        sorted.into_iter().map(|(name, module)| (*name, *module))
    }

    /// The known name most similar to a wrong one.
    pub fn suggest(&self, name: &str) -> Option<String> {
        let known = self.rows.keys().chain(self.aliases.keys()).chain(self.planned.keys());
        let mut known: Vec<&str> = known.copied().collect();
        known.sort_unstable();
        known.dedup();
        nearest_directive(name, &known).or_else(|| {
            // `port` for `server.port`: right name, missing prefix.
            let tail = name.rsplit('.').next().filter(|tail| tail.len() > 3)?;
            let same = |n: &&&str| n.rsplit('.').next() == Some(tail);
            let mut found = known.iter().filter(same);
            found.next().filter(|_| found.next().is_none()).map(|n| (*n).to_owned())
        })
    }

    /// Errors in the rows themselves, for a test of the table.
    pub fn lint(&self) -> Vec<String> {
        let mut found: Vec<String> =
            self.twice.iter().map(|name| format!("{name}: defined twice")).collect();
        for alias in self.aliases.keys().filter(|alias| self.rows.contains_key(*alias)) {
            found.push(format!("{alias}: both a row and an alias"));
        }
        for row in self.rows.values() {
            let name = row.name;
            let texts = [("doc", row.doc), ("example", row.example), ("since", row.since)];
            for (what, _) in texts.iter().filter(|(_, text)| text.is_empty()) {
                found.push(format!("{name}: no {what}"));
            }
            if row.default_is_prose && row.default.is_empty() && row.kind != Kind::String {
                found.push(format!("{name}: no default"));
            }
            if !row.example.is_empty() && !row.example.contains(name) {
                found.push(format!("{name}: the example does not use it"));
            }
            if let Err(reject) = self.default_setter(row) {
                found.push(format!("{name}: the default does not compile: {}", reject.message));
            }
        }
        found.sort();
        found
    }

    /// Rows with a default that differs from `S::default()` when applied: the table and the type
    /// must agree about every default.
    pub fn lint_defaults(&self) -> Vec<String>
    where
        S: Default + PartialEq,
    {
        let differs = |row: &&Directive<S>| match self.default_setter(row) {
            Ok(Some(set)) => {
                let mut settings = S::default();
                set(&mut settings);
                settings != S::default()
            }
            _ => false,
        };
        let rows = self.rows.values().filter(differs);
        rows.map(|row| format!("{}: the default differs from the settings' own", row.name))
            .collect()
    }

    fn default_setter(&self, row: &Directive<S>) -> Result<Option<Setter<S>>, Reject> {
        let Some(source) = row.default_source() else { return Ok(None) };
        let unreadable = |_| Reject::new(format!("cannot read {source}"));
        let value: Value = parse_value(&source).map_err(unreadable)?;
        let ctx = CompileCtx::nowhere(row.name);
        (row.compile)(&value, &ctx).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct PortSettings {
        port: i64,
        on: bool,
    }

    fn port(default: &'static str) -> Directive<PortSettings> {
        Directive::int("server.port", 0..=65535, |s: &mut PortSettings, v| s.port = v)
            .default(default)
            .since("1.4")
            .doc("The port to listen on. More words.")
            .example("server.port = 80")
    }

    #[test]
    fn a_whole_row_has_nothing_to_report() {
        let table = Table::new().row(port("0"));
        assert_eq!(table.lint(), [""; 0]);
        assert_eq!(table.lint_defaults(), [""; 0]);
        assert_eq!(
            table.get("server.port").map(Directive::summary),
            Some("The port to listen on.")
        );
    }

    #[test]
    fn missing_parts_of_a_row_are_named() {
        let bare = Directive::bool("server.x", |s: &mut PortSettings, v| s.on = v);
        let table = Table::new().row(bare);
        let want = ["no default", "no doc", "no example", "no since"];
        assert_eq!(table.lint(), want.map(|what| format!("server.x: {what}")));
    }

    #[test]
    fn defaults_must_compile_and_agree_with_the_type() {
        let lint = Table::new().row(port("many")).lint();
        assert!(lint[0].contains("the default does not compile"), "{lint:?}");
        let lint = Table::new().row(port("70000")).lint();
        assert!(lint[0].contains("must be from 0 to 65535"), "{lint:?}");
        let table = Table::new().row(port("80"));
        assert_eq!(table.lint_defaults().len(), 1, "the type says 0");
    }

    #[test]
    fn names_are_unique() {
        let again = Table::new().row(port("0")).row(port("0"));
        assert_eq!(again.lint(), ["server.port: defined twice"]);
        let alias = Table::new().row(port("0").alias("server.port"));
        assert_eq!(alias.lint(), ["server.port: both a row and an alias"]);
        let other = Directive::int("server.x", 0..=1, |s: &mut PortSettings, v| s.port = v);
        let twice = Table::new().row(port("0").alias("p")).row(other.alias("p"));
        assert!(twice.lint().contains(&"p: defined twice".to_owned()));
    }

    #[test]
    fn a_planned_name_with_a_row_is_the_row() {
        let table = Table::new().planned([("server.port", "core"), ("b.c", "mod_b")]);
        assert!(matches!(table.lookup("server.port"), Lookup::Planned("core")));
        let table = table.row(port("0"));
        assert!(matches!(table.lookup("server.port"), Lookup::Row(_)));
        assert_eq!(table.iter_planned().collect::<Vec<_>>(), [("b.c", "mod_b")]);
        assert_eq!(table.suggest("port").as_deref(), Some("server.port"));
    }

    #[test]
    fn absent_directives_are_found_by_name_and_by_prefix() {
        let absent = |names| AbsentDirectives { names, part: "mod_b", feature: "b" };
        let table = Table::new().row(port("0")).absent([absent("b."), absent("server.x")]);
        for name in ["b.c", "b.", "server.x"] {
            assert!(matches!(table.lookup(name), Lookup::Absent(_)), "{name}");
        }
        for name in ["b", "bc", "server.xy", "server."] {
            assert!(matches!(table.lookup(name), Lookup::Unknown), "{name}");
        }
        assert!(matches!(table.lookup("server.port"), Lookup::Row(_)));
    }
}
