//! Reads the syntax tree of a source once, and collects the facts for the rules.
//!
//! Items behind `#[cfg(test)]` are left out, unless a field includes them.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use super::files::TextFile;
use super::reader::Reader;

pub(super) struct Source {
    pub(super) file: TextFile,
    pub(super) facts: Facts,
}

/// Lines count from 1.
#[derive(Default)]
pub(super) struct Facts {
    /// Functions with a body, tests included.
    pub(super) functions: Vec<Function>,
    /// Identifiers outside of `use` declarations, with the line of the first.
    pub(super) names: BTreeMap<String, usize>,
    /// Paths of two segments and more outside of `use` declarations, with the line of the first.
    pub(super) paths: BTreeMap<Vec<String>, usize>,
    pub(super) imports: Vec<Import>,
    /// Modules in files of their own.
    pub(super) children: BTreeSet<String>,
    /// Lines of glob re-exports.
    pub(super) glob_exports: Vec<usize>,
    /// Unsafe blocks and implementations, tests included.
    pub(super) unsafe_code: Vec<usize>,
    /// Signatures and aliases with a `Result<_, String>`.
    pub(super) text_errors: Vec<usize>,
    /// `select!`s that poll their branches in random order.
    pub(super) random_selects: Vec<usize>,
    /// Comparisons with the name of a feature.
    pub(super) feature_names: Vec<usize>,
    /// Lines of doc comments, tests included.
    pub(super) docs: Vec<(usize, String)>,
    /// Doc attributes with a text from another file, or with fences from a macro.
    pub(super) computed_docs: Vec<usize>,
    pub(super) forbids_unsafe: bool,
}

pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

/// Single name of a `use` declaration.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    pub(super) alias: String,
    pub(super) is_public: bool,
    pub(super) line: usize,
}

impl Source {
    pub(super) fn read(file: TextFile) -> Self {
        let tree = syn::parse_file(&file.text)
            .unwrap_or_else(|e| panic!("{}:{}: {e}", file.path, e.span().start().line));
        let mut reader = Reader::default();
        reader.visit_file(&tree);
        reader.facts.docs.sort();
        drop(tree);
        proc_macro2::extra::invalidate_current_thread_spans();
        Self { file, facts: reader.facts }
    }

    /// The module's path in its crate; the crate's root has the empty one.
    pub(super) fn module(&self) -> String {
        let below = self.file.below_src().unwrap_or_default();
        let module = below.trim_end_matches(".rs").replace('/', "::");
        if module == "lib" || module == "main" { String::new() } else { module }
    }

    pub(super) fn import(&self, alias: &str) -> Option<&Import> {
        self.facts.imports.iter().find(|import| import.alias == alias)
    }

    /// Paths in `use` declarations and elsewhere. Paths that begin with an imported name are also
    /// listed in full.
    pub(super) fn all_paths(&self) -> Vec<(Vec<String>, usize)> {
        let imports = self.facts.imports.iter().map(|import| (import.path.clone(), import.line));
        let paths = self.facts.paths.iter().map(|(path, line)| (path.clone(), *line));
        let full = self.facts.paths.iter().filter_map(|(path, line)| {
            let import = self.import(&path[0]).filter(|import| import.path[0] != path[0])?;
            Some((import.path.iter().chain(&path[1..]).cloned().collect(), *line))
        });
        imports.chain(full).chain(paths).collect()
    }
}
