//! Upstreams and their backends.

use std::collections::BTreeMap;
use std::rc::Rc;

use lighty_core::machine::histogram::STAGE_BOUNDS_US;
use lighty_core::machine::status_board::{BackendPool, BackendReport};

use crate::status::exposition::family::{Family, Labels, MetricKind};
use crate::status::facts::Facts;

/// States of a backend, exactly one of which holds.
const STATES: [&str; 5] = ["up", "probing", "down", "drained", "maintenance"];

/// A metric of a backend: name, kind, help text, value.
type BackendFigure = (&'static str, MetricKind, &'static str, fn(&BackendReport) -> f64);

const FIGURES: [BackendFigure; 6] = [
    ("lighty_backend_requests", MetricKind::Counter, "Requests sent to a backend.", |one| {
        one.requests as f64
    }),
    (
        "lighty_backend_failures",
        MetricKind::Counter,
        "Tries of requests that failed because of a backend.",
        |one| one.failed as f64,
    ),
    (
        "lighty_backend_active_requests",
        MetricKind::Gauge,
        "Requests under way at a backend.",
        |one| one.in_use.into(),
    ),
    (
        "lighty_backend_idle_connections",
        MetricKind::Gauge,
        "Idle connections to a backend.",
        |one| one.idle.into(),
    ),
    ("lighty_backend_weight", MetricKind::Gauge, "A backend's share of requests.", |one| {
        one.weight.into()
    }),
    (
        "lighty_backend_first_byte_mean_seconds",
        MetricKind::Gauge,
        "Moving average of the time until a backend's response begins.",
        |one| f64::from(one.first_byte_us) / 1e6,
    ),
];

pub(super) fn families(facts: &Facts) -> Vec<Family> {
    let pools = merged(&facts.pools);
    let mut all = upstreams(&pools);
    let mut states =
        Family::new("lighty_backend_state", MetricKind::Gauge, "1 for the state that holds.");
    let mut figures = FIGURES.map(|(name, kind, help, _)| Family::new(name, kind, help));
    for (upstream, pool) in &pools {
        for (address, backend) in &pool.backends {
            let labels: Labels =
                vec![("upstream", Rc::clone(upstream)), ("backend", Rc::clone(address))];
            for state in STATES {
                let mut labels = labels.clone();
                labels.push(("state", state.into()));
                states.add(labels, f64::from(u8::from(backend.state == state)));
            }
            for (family, (.., value)) in figures.iter_mut().zip(FIGURES) {
                family.add(labels.clone(), value(backend));
            }
        }
    }
    all.push(states);
    all.extend(figures);
    all.push(first_bytes(facts));
    all
}

/// An upstream's figures.
#[derive(Default)]
struct Pool {
    requests: u64,
    waiting: u64,
    backends: BTreeMap<Rc<str>, BackendReport>,
}

/// Merges upstreams of the same name: upstreams of a former configuration stay while they have
/// requests.
fn merged(pools: &[BackendPool]) -> BTreeMap<Rc<str>, Pool> {
    let mut all = BTreeMap::<Rc<str>, Pool>::new();
    for pool in pools {
        let sum = all.entry(Rc::from(&*pool.name)).or_default();
        sum.requests += pool.requests;
        sum.waiting += u64::from(pool.waiting);
        for backend in &pool.backends {
            let known = sum.backends.entry(Rc::from(&*backend.address));
            known.and_modify(|known| add(known, backend)).or_insert_with(|| backend.clone());
        }
    }
    all
}

fn add(sum: &mut BackendReport, other: &BackendReport) {
    sum.requests += other.requests;
    sum.failed += other.failed;
    sum.in_use += other.in_use;
    sum.idle += other.idle;
}

fn upstreams(pools: &BTreeMap<Rc<str>, Pool>) -> Vec<Family> {
    let mut requests =
        Family::new("lighty_upstream_requests", MetricKind::Counter, "Requests for an upstream.");
    let mut waiting = Family::new(
        "lighty_upstream_waiting_requests",
        MetricKind::Gauge,
        "Requests that wait for a place at a backend.",
    );
    for (upstream, pool) in pools {
        requests.add(vec![("upstream", Rc::clone(upstream))], pool.requests as f64);
        waiting.add(vec![("upstream", Rc::clone(upstream))], pool.waiting as f64);
    }
    vec![requests, waiting]
}

fn first_bytes(facts: &Facts) -> Family {
    let mut family = Family::new(
        "lighty_backend_first_byte_seconds",
        MetricKind::Histogram(&STAGE_BOUNDS_US),
        "Time from a request to the head of the backend's response.",
    );
    for ((upstream, backend), durations) in &facts.durations.backends {
        let labels = vec![("upstream", Rc::from(&**upstream)), ("backend", Rc::from(&**backend))];
        family.add_durations(labels, durations.clone());
    }
    family
}
