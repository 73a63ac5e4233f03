//! Server-side includes: the language of pages with `<!--#command attribute="value" -->`.
//!
//! The language is that of lighttpd 1.4 and Apache's mod_include. [`scan`] splits a page into text
//! and commands while it is read, [`command`] parses a command, [`expression`] evaluates the
//! condition of an `if`. Executing commands is up to the caller.

pub mod command;
pub mod expression;
pub mod scan;

pub use command::{CommandName, Malformed, SsiCommand};
pub use expression::{BadExpression, holds};
pub use scan::{PagePiece, Scanner};

/// Maximum bytes between `<!--#` and `-->`; anything longer is text. Real commands have under 200.
pub const COMMAND_BYTES_MAX: usize = 8192;
