//! Stores of the cache.

use std::rc::Rc;

use lighty_core::exchange::cache_trace::CACHE_RESULTS;

use crate::status::exposition::family::{Family, MetricKind};
use crate::status::facts::Facts;
use crate::status::stores::stores;

/// A metric of a store: its name, its kind, its help text, and the figure.
type StoreRow = (&'static str, MetricKind, &'static str, &'static str);

const ROWS: [StoreRow; 11] = [
    (
        "lighty_cache_saved_bytes",
        MetricKind::Counter,
        "Bytes of stored bodies that were served.",
        "saved-bytes",
    ),
    (
        "lighty_cache_encoded_hits",
        MetricKind::Counter,
        "Responses served in a form that was encoded before.",
        "encoded-hits",
    ),
    ("lighty_cache_fetches", MetricKind::Counter, "Fetches for the store.", "fetches"),
    ("lighty_cache_stored", MetricKind::Counter, "Responses stored.", "stored"),
    (
        "lighty_cache_evictions",
        MetricKind::Counter,
        "Responses that left for lack of room.",
        "evicted",
    ),
    ("lighty_cache_purged", MetricKind::Counter, "Stored responses found purged.", "dropped"),
    ("lighty_cache_objects", MetricKind::Gauge, "Stored responses.", "objects"),
    ("lighty_cache_bytes", MetricKind::Gauge, "Memory of stored responses.", "bytes"),
    ("lighty_cache_flights", MetricKind::Gauge, "Fetches under way.", "flights"),
    (
        "lighty_cache_waiting_requests",
        MetricKind::Gauge,
        "Requests that wait for a fetch.",
        "waiting",
    ),
    ("lighty_cache_purge_rules", MetricKind::Gauge, "Purge rules.", "purge-rules"),
];

pub(super) fn families(facts: &Facts) -> Vec<Family> {
    let mut results = Family::new(
        "lighty_cache_requests",
        MetricKind::Counter,
        "Requests by the part that the cache had in the response.",
    );
    let mut families = ROWS.map(|(name, kind, help, _)| Family::new(name, kind, help));
    for (name, store) in stores(&facts.figures) {
        let name: Rc<str> = name.into();
        for result in CACHE_RESULTS {
            let labels = vec![("store", Rc::clone(&name)), ("result", result.into())];
            results.add(labels, store.of(result) as f64);
        }
        for (family, (.., figure)) in families.iter_mut().zip(ROWS) {
            family.add(vec![("store", Rc::clone(&name))], store.of(figure) as f64);
        }
    }
    let mut all = vec![results];
    all.extend(families);
    all
}
