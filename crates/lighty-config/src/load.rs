//! Loads a file into a [`Config`]: the entry point of the crate.

use std::path::Path;

use crate::compile::{LoadOptions, compile};
use crate::config::Config;
use crate::diag::{Diagnostic, Diagnostics};
use crate::eval::Evaluator;
use crate::loader::Loader;
use crate::source::{Sources, Span};
use crate::table::{Lookup, Table};

/// Source of the main configuration.
#[derive(Clone, Debug)]
pub enum Main<'a> {
    /// A file.
    File(&'a Path),
    /// A text (standard input, a command line), with a name for messages. Includes are relative to
    /// the current directory.
    Text {
        /// The name.
        name: &'a str,
        /// The text.
        text: &'a [u8],
    },
}

/// Loads a configuration. Returns a [`Config`] exactly if there were no errors. One run reports all
/// errors of the text in the [`Diagnostics`].
pub fn load<S: Clone + Default>(
    loader: &dyn Loader,
    main: &Main<'_>,
    table: &Table<S>,
    options: LoadOptions,
) -> (Option<Config<S>>, Diagnostics, Sources) {
    let canonical = |name: &str| match table.lookup(name) {
        Lookup::Row(row) => Some(row.name),
        _ => None,
    };
    let base = match main {
        Main::File(path) => path.parent().unwrap_or(Path::new("")).to_path_buf(),
        Main::Text { .. } => loader.cwd(),
    };
    let mut evaluator = Evaluator::new(loader, &canonical, table.backtracking, base);
    match main {
        Main::Text { name, text } => evaluator.main(name, None, text.to_vec()),
        Main::File(path) => match loader.read(path) {
            Ok(bytes) => evaluator.main(&path.to_string_lossy(), Some(path), bytes),
            Err(error) => return unreadable(path, &error),
        },
    }
    let Evaluator { sources, mut diagnostics, blocks, base, .. } = evaluator;
    let config = compile(blocks, table, options, &base, &mut diagnostics);
    diagnostics.sort();
    (config.filter(|_| !diagnostics.has_errors()), diagnostics, sources)
}

fn unreadable<S>(path: &Path, error: &std::io::Error) -> (Option<Config<S>>, Diagnostics, Sources) {
    let mut sources = Sources::default();
    let file = sources.add(&path.to_string_lossy(), Some(path), String::new());
    let mut diagnostics = Diagnostics::default();
    let text = format!("cannot read the configuration: {error}");
    let span = Span { file, start: 0, end: 0 };
    diagnostics.push(Diagnostic { span: Some(span), ..Diagnostic::error("read", span, text) });
    (None, diagnostics, sources)
}
