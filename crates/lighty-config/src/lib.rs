//! The configuration language of lighttpd 1.4 and 1.5, parsed and resolved when it is loaded.
//!
//! Loading a file produces a list of all its errors, or a [`Config`]: typed settings, each parsed
//! by the row of the [`Table`] for its name, and conditions compiled so that a request finds its
//! settings with a few hash look-ups. After loading, no names are compared, no text is parsed and
//! no arrays are merged.
//!
//! [`load`] reads the text of a [`Main`] by the rows of a table. `tests/integration/usage.rs` is a
//! minimal example: one row, one file, and the resulting setting.
//!
//! The crate knows no directive by name (the caller's table does), touches no files, clock or
//! environment (a [`Loader`] does; [`FsLoader`] is opt-in), and never guesses: it reports unknown
//! input with its position and a suggestion, and continues.
//!
//! Reading order: `source` and `diag` (positions and diagnostics), `lex`, `typographic`
//! (typographic characters in place of plain ones), `ast`, `parse` (text to tree), `value`, `eval`
//! and `expr` (tree to blocks), `directive` and `table` (the known names), `pattern`, `condition`,
//! `compile` (blocks to setters), `config`, `screen` and `evaluate` (per request), `snapshot`,
//! `explain`, `fmt`. Every limit is in `limits`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ast;
mod backtracking;
mod block;
mod compile;
mod condition;
mod config;
mod context;
mod diag;
mod directive;
mod eval;
mod evaluate;
mod explain;
mod expr;
mod field;
mod fmt;
mod fs_loader;
mod glob;
mod lex;
mod lift;
pub mod limits;
mod load;
mod loader;
mod need;
mod parse;
mod pattern;
mod period;
mod reject;
mod screen;
mod size;
mod snapshot;
mod source;
mod suggest;
mod table;
mod typographic;
mod value;

pub use backtracking::{Backtracker, Backtracking, GivenUp, GroupSpan};
pub use block::{Block, Condition, Setting};
pub use compile::LoadOptions;
pub use condition::Op;
pub use config::{Config, ListenSocket};
pub use context::{CaptureId, CompileCtx};
pub use diag::{Diagnostic, Diagnostics, Level, Style};
pub use directive::{
    Compile, Directive, Kind, Pairs, Scope, Setter, Strings, parse_bool, parse_choice, parse_int,
    parse_int_clamped, parse_map, parse_string, parse_strings, parse_switch,
};
pub use evaluate::{Active, CaptureSet, Captures};
pub use explain::{ConditionOutcome, ConditionReport, DirectiveReport, Explanation, Judgement};
pub use field::{Facts, Field, is_place};
pub use fmt::format;
pub use fs_loader::{
    Explain, FsLoader, end_commands, explain_errors, has_run_commands, refuse_commands,
    sandbox_refusals,
};
pub use load::{Main, load};
pub use loader::{Loader, MemoryLoader};
pub use need::{Need, NeedKind};
pub use pattern::{Bounded, BytePattern, Groups, Undecided, linear_syntax};
pub use period::{SECONDS_MAX, parse_period};
pub use reject::Reject;
pub use screen::{Screen, required_text};
pub use size::parse_size;
pub use snapshot::SnapshotCache;
pub use source::{FileId, Location, Source, Sources, Span, Spanned};
pub use table::{AbsentDirectives, Lookup, Table};
pub use value::{Item, Key, Value};
