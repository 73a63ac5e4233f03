//! Moves a listener's directives out of other conditions, as lighttpd does: a connection has its
//! listener before there is a request to test.

use crate::condition::Op;
use crate::diag::{Diagnostic, Diagnostics};
use crate::directive::Scope;
use crate::eval::{BlockEntry, RawBlock};
use crate::field::Field;
use crate::table::Table;

/// Moves the listener's own entries of each `$SERVER["socket"] == "…"` inside another condition to
/// a block of the top level, and copies the entries that its handshakes need. `on_socket` is true
/// for blocks that only test the listener.
pub(crate) fn lift<S>(
    raw: &mut Vec<RawBlock>,
    on_socket: &[bool],
    table: &Table<S>,
    diagnostics: &mut Diagnostics,
) {
    let is_own =
        |entry: &BlockEntry| table.get(&entry.key).is_some_and(|row| row.scope == Scope::Socket);
    let is_needed =
        |entry: &&BlockEntry| table.get(&entry.key).is_some_and(|row| row.for_handshakes);
    for id in 1..raw.len() {
        if !names_listener(&raw[id]) || !raw[id].entries.iter().any(is_own) || on_socket[id] {
            continue;
        }
        let (own, rest): (Vec<_>, Vec<_>) = raw[id].entries.drain(..).partition(is_own);
        let lifted = own.iter().chain(rest.iter().filter(is_needed)).cloned().collect();
        raw[id].entries = rest;
        let (cond, span) = (raw[id].cond.clone(), raw[id].span);
        let listener = cond.as_ref().map(|cond| cond.text.clone()).unwrap_or_default();
        for entry in own {
            let text = format!(
                "{} belongs to the listener {listener}, whatever the conditions around it say",
                entry.key
            );
            let help = "write $SERVER[\"socket\"] at the top level, and conditions inside of it";
            diagnostics.push(Diagnostic::warning("scope", entry.key_span, text).help(help));
        }
        raw.push(RawBlock::at_top(cond, span, lifted));
    }
}

fn names_listener(block: &RawBlock) -> bool {
    let is_equal = block.cond.as_ref().is_some_and(|c| c.field == Field::Socket && c.op == Op::Eq);
    is_equal && block.prev.is_none()
}
