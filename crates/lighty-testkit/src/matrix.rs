//! The transitions of a state machine as a text: every event in every state that can be reached.

use std::fmt::Debug;

/// Width of a line of the table, in bytes: a snapshot stands in a source file.
const LINE_BYTES: usize = 96;

/// Renders a table with a row for each state that can be reached from `start`, and a column for
/// each event. A cell has the number of the next state and the action, or `-` if `next` rejects the
/// event. An action of the variant `Nothing` is left out.
pub fn matrix<S, E, A>(start: S, events: &[E], next: impl Fn(S, E) -> Option<(S, A)>) -> String
where
    S: Copy + PartialEq + Debug,
    E: Copy + Debug,
    A: Debug,
{
    let mut states = vec![start];
    let mut header = vec![String::new()];
    header.extend(events.iter().map(|event| format!("{event:?}")));
    let mut rows = vec![header];
    let mut nth = 0;
    while let Some(&state) = states.get(nth) {
        let mut row = vec![format!("{nth} {state:?}")];
        for &event in events {
            row.push(match next(state, event) {
                None => "-".to_owned(),
                Some((to, action)) => {
                    let number = states.iter().position(|known| *known == to);
                    let number = number.unwrap_or_else(|| {
                        states.push(to);
                        states.len() - 1
                    });
                    match format!("{action:?}").as_str() {
                        "Nothing" => number.to_string(),
                        action => format!("{number} {action}"),
                    }
                }
            });
        }
        rows.push(row);
        nth += 1;
    }
    table(&rows)
}

/// Joins cells to lines with aligned columns; the first row is the header. Columns that exceed the
/// width of a line form another table, which repeats the states.
pub fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let columns = rows[0].len();
    let (mut text, mut from) = (String::new(), 1);
    while from < columns {
        let (mut to, mut line) = (from, width(0));
        while to < columns && (to == from || line + 2 + width(to) <= LINE_BYTES) {
            line += 2 + width(to);
            to += 1;
        }
        if from > 1 {
            text.push('\n');
        }
        for row in rows {
            let cell = |column: usize| format!("{:width$}", row[column], width = width(column));
            let cells: Vec<_> = std::iter::once(0).chain(from..to).map(cell).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        from = to;
    }
    text
}

/// Fails unless the table of [`matrix`] is the expected one; blank lines around it do not count.
///
/// # Panics
/// The tables differ. The message has the actual one, to be compared and pasted.
#[track_caller]
pub fn assert_matrix(actual: &str, expected: &str) {
    assert!(actual.trim() == expected.trim(), "the transitions have changed:\n{actual}");
}

/// Tries every event in every state of a machine without actions, and fails unless the table is the
/// expected one.
///
/// # Panics
/// As [`assert_matrix`].
#[track_caller]
pub fn assert_next_states<S, E>(
    start: S,
    events: &[E],
    next: impl Fn(S, E) -> Option<S>,
    expected: &str,
) where
    S: Copy + PartialEq + Debug,
    E: Copy + Debug,
{
    #[derive(Debug)]
    struct Nothing;
    let next = |state, event| next(state, event).map(|next| (next, Nothing));
    assert_matrix(&matrix(start, events, next), expected);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Door {
        Open,
        Closed,
        Locked,
    }

    #[derive(Clone, Copy, Debug)]
    enum Hand {
        Push,
        Turn,
    }

    #[derive(Debug)]
    enum Sound {
        Nothing,
        Click,
    }

    fn next(door: Door, hand: Hand) -> Option<(Door, Sound)> {
        match (door, hand) {
            (Door::Open, Hand::Push) => Some((Door::Closed, Sound::Nothing)),
            (Door::Closed, Hand::Push) => Some((Door::Open, Sound::Nothing)),
            (Door::Closed, Hand::Turn) => Some((Door::Locked, Sound::Click)),
            (Door::Locked, Hand::Turn) => Some((Door::Closed, Sound::Click)),
            _ => None,
        }
    }

    #[test]
    fn every_event_is_tried_in_every_state() {
        let expected = "
          Push  Turn
0 Open    1     -
1 Closed  0     2 Click
2 Locked  -     1 Click
";
        assert_matrix(&matrix(Door::Open, &[Hand::Push, Hand::Turn], next), expected);
    }
}
