//! Spellings of fields' names. A program reads a field from a variable in which every character but
//! letters and digits is `_`, and some servers fold `_` and `-`, so all spellings count as one.

use lighty_http::variable_name::is_alias;

/// True if a field's name begins with a text, in any spelling.
pub(super) fn begins_with(name: &[u8], beginning: &[u8]) -> bool {
    name.get(..beginning.len()).is_some_and(|start| is_alias(start, beginning))
}
