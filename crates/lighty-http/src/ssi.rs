//! Server-side includes: the language of pages with `<!--#command attribute="value" -->`.
//!
//! As lighttpd 1.4 and Apache's mod_include have it. [`scan`] cuts a page into text and commands
//! while it is read, [`command`] takes a command apart, [`expression`] says whether the condition
//! of an `if` holds. What commands do is not known here.

pub mod command;
pub mod expression;
pub mod scan;

pub use command::{Command, Malformed, Name};
pub use expression::{BadExpression, holds};
pub use scan::{Piece, Scanner};

/// Bytes between `<!--#` and `-->` at most: what is longer is text. Commands that people write
/// have under 200.
pub const COMMAND_BYTES_MAX: usize = 8192;
