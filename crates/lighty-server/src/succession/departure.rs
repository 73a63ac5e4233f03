//! State that leaves with a process: everything that operators and clients have caused in it, for
//! the process that takes its place.

use std::net::IpAddr;

use lighty_core::log::levels::{LogModule, OrderedModuleLevel};
use lighty_core::log::{Level, Log};
use lighty_core::machine::bans::Ban;
use lighty_core::machine::request_watch::{TRACES_MAX, TraceFilter};
use lighty_core::machine::status_board::{ReportParts, StatusBoard, WorkerOrder};
use lighty_io::clock::Clock;
use lighty_modules::evasive::{self, CarriedRate};
use lighty_modules::health::{Readiness, Unready};
use lighty_modules::magnet::Accounts;
use lighty_modules::maintenance::ClosedRoutes;
use lighty_proxy::upstream::registry::Registry;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ProcessCounts;
use super::heir::CounterSource;
use crate::reload::Plan;

/// Maximum closed routes that are taken.
const CLOSED_ROUTES_MAX: usize = 1_000;

/// The state. Each member is a kind of its own, and may be missing.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Departure {
    /// Counters, which the new process asks for again while the old one drains.
    counts: Option<ProcessCounts>,
    /// Counters that scripts keep.
    script_counters: Vec<(String, i64)>,
    /// Bans by network.
    bans: Vec<(IpAddr, Ban)>,
    /// Rates of clients.
    rates: Vec<CarriedRate>,
    /// The ordered level of the error log.
    log_level: Option<OrderedLevel>,
    log_levels: Vec<OrderedModule>,
    traces: Vec<TraceFilter>,
    /// Routes that are closed, and their pages.
    closed_routes: Vec<(String, Option<String>)>,
    /// An operator has taken the server out of the rotation of load balancers.
    is_drained: bool,
}

/// An ordered level of the error log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OrderedLevel {
    level: String,
    /// Wall-clock second at which the configured one takes its place.
    until_s: i64,
}

impl OrderedLevel {
    /// The order, if it is not over and this version knows the level.
    fn order(&self, now_s: i64) -> Option<(Level, i64)> {
        let level = Level::of_name(&self.level)?;
        (self.until_s > now_s).then_some((level, self.until_s))
    }
}

/// An ordered level of one module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OrderedModule {
    module: String,
    #[serde(flatten)]
    level: OrderedLevel,
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
        let Plan { shared, config, .. } = parts.plan;
        let (states, clock) = (&shared.states, Clock::start());
        let level =
            |level: Level, until_s| OrderedLevel { level: level.name().to_owned(), until_s };
        let module = |one: OrderedModuleLevel| OrderedModule {
            module: one.module.name().to_owned(),
            level: level(one.level, one.until_s),
        };
        let (common, until_s) = parts.log.level();
        let ordered = parts.log.levels().ordered_modules();
        Self {
            counts: counters.read().await,
            script_counters: states.of::<Accounts>("mod_magnet").remember(),
            bans: shared.board.bans().list(clock.unix_s()),
            rates: evasive::remember_rates(config, clock.mono_us()),
            log_level: until_s.map(|until_s| level(common, until_s)),
            log_levels: ordered.into_iter().map(module).collect(),
            traces: traces(&shared.board).await,
            closed_routes: states.of::<ClosedRoutes>("mod_maintenance").remember(),
            is_drained: states.of::<Readiness>("mod_health").has(Unready::Drained),
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
            bans: take(&mut members, "bans", &mut faults),
            rates: take(&mut members, "rates", &mut faults),
            log_level: take(&mut members, "log_level", &mut faults),
            log_levels: take(&mut members, "log_levels", &mut faults),
            traces: take(&mut members, "traces", &mut faults),
            closed_routes: take(&mut members, "closed_routes", &mut faults),
            is_drained: take(&mut members, "is_drained", &mut faults),
        };
        (departure, faults)
    }

    /// Continues the state in this process, which accepts nothing yet.
    pub(crate) async fn continue_in(self, parts: &DepartureParts<'_>) {
        let Plan { shared, config, .. } = parts.plan;
        let (clock, states) = (Clock::start(), &shared.states);
        let now_s = clock.unix_s();
        if let Some(counts) = self.counts {
            counts.continue_in(&shared.board, parts.upstreams);
        }
        states.of::<Accounts>("mod_magnet").recall(self.script_counters);
        for (client, ban) in self.bans.into_iter().filter(|(_, ban)| ban.until_s > now_s) {
            shared.board.bans().add(client, ban, now_s);
        }
        evasive::recall_rates(config, self.rates, clock.mono_us());
        if let Some(order) = self.log_level.and_then(|ordered| ordered.order(now_s)) {
            parts.log.order_level(Some(order));
        }
        for OrderedModule { module, level } in self.log_levels {
            if let (Some(module), Some(order)) = (LogModule::of_name(&module), level.order(now_s)) {
                parts.log.levels().order_module(module, Some(order));
            }
        }
        for trace in self.traces.into_iter().filter(|trace| trace.until_s > now_s).take(TRACES_MAX)
        {
            shared.board.order(&WorkerOrder::Trace(Some(trace))).await;
        }
        let closed: ClosedRoutes = states.of("mod_maintenance");
        for (route, page) in self.closed_routes.into_iter().take(CLOSED_ROUTES_MAX) {
            closed.close(&route, page);
        }
        if self.is_drained {
            states.of::<Readiness>("mod_health").set(Unready::Drained, true);
        }
    }
}

/// The traces of all workers. One that was started later may have fewer.
async fn traces(board: &StatusBoard) -> Vec<TraceFilter> {
    let mut all = Vec::new();
    for trace in board.ask(ReportParts::default()).await.0.into_iter().flat_map(|one| one.traces) {
        if !all.contains(&trace) {
            all.push(trace);
        }
    }
    all
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
