//! State that leaves with a process: everything that operators and clients have caused in it, for
//! the process that takes its place.

use lighty_core::log::Log;
use lighty_modules::magnet::Accounts;
use lighty_proxy::upstream::registry::Registry;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ProcessCounts;
use super::heir::CounterSource;
use crate::reload::Plan;

/// The state. Each member is a kind of its own, and may be missing.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Departure {
    /// Counters, which the new process asks for again while the old one drains.
    counts: Option<ProcessCounts>,
    /// Counters that scripts keep.
    script_counters: Vec<(String, i64)>,
}

/// Parts of a process that have such state.
pub(crate) struct DepartureParts<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) log: &'a Log,
    pub(crate) upstreams: &'a Registry,
}

impl Departure {
    /// Collects the state of this process.
    pub(crate) async fn of(parts: &DepartureParts<'_>, counters: &CounterSource) -> Self {
        let states = &parts.plan.shared.states;
        Self {
            counts: counters.read().await,
            script_counters: states.of::<Accounts>("mod_magnet").remember(),
        }
    }

    /// Reads it member by member. A malformed one is as a missing one. Returns reasons for those.
    pub(crate) fn read(value: Value) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        let Value::Object(mut members) = value else {
            return (Self::default(), vec!["it is no object".to_owned()]);
        };
        let departure = Self {
            counts: take(&mut members, "counts", &mut faults),
            script_counters: take(&mut members, "script_counters", &mut faults),
        };
        (departure, faults)
    }

    /// Continues the state in this process, which accepts nothing yet.
    pub(crate) fn continue_in(self, parts: &DepartureParts<'_>) {
        let shared = &parts.plan.shared;
        if let Some(counts) = self.counts {
            counts.continue_in(&shared.board, parts.upstreams);
        }
        shared.states.of::<Accounts>("mod_magnet").recall(self.script_counters);
    }
}

fn take<T: DeserializeOwned + Default>(
    members: &mut Map<String, Value>,
    name: &str,
    faults: &mut Vec<String>,
) -> T {
    let Some(value) = members.remove(name) else { return T::default() };
    serde_json::from_value(value).unwrap_or_else(|error| {
        faults.push(format!("{name}: {error}"));
        T::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn malformed_member_costs_no_other() {
        let (departure, faults) = Departure::read(json!({
            "counts": 7,
            "script_counters": [["a", 1]],
            "of_the_future": {},
        }));
        assert_eq!(departure.script_counters, [("a".to_owned(), 1)]);
        assert_eq!(departure.counts, None);
        assert!(faults.len() == 1 && faults[0].starts_with("counts: "), "{faults:?}");
        let (departure, faults) = Departure::read(json!([1]));
        assert_eq!((departure, faults.len()), (Departure::default(), 1));
        let (departure, faults) = Departure::read(json!({}));
        assert_eq!((departure, faults.len()), (Departure::default(), 0));
    }

    #[test]
    fn every_member_is_read() {
        let written = serde_json::to_value(Departure::default()).expect("JSON");
        let members: Vec<_> = written.as_object().expect("an object").keys().cloned().collect();
        for member in members {
            let (_, faults) = Departure::read(json!({ &member: "malformed" }));
            assert_eq!(faults.len(), 1, "{member} is not read");
        }
    }
}
