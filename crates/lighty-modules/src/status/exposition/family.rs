//! Metrics in Prometheus terms.

use std::rc::Rc;

use lighty_core::machine::histogram::{Histogram, REQUEST_BOUNDS_US};
use lighty_core::machine::metrics::exemplars::Exemplars;

/// MetricKind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// Never decreases, except on a restart.
    Counter,
    /// Can increase and decrease.
    Gauge,
    /// A distribution, with these bounds of its fixed buckets in microseconds.
    Histogram(&'static [u64; REQUEST_BOUNDS_US.len()]),
}

/// Metrics of one name.
#[derive(Debug)]
pub(super) struct Family {
    /// The name without the `_total` of counters.
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) help: &'static str,
    pub(super) samples: Vec<Sample>,
}

/// Names and values.
pub(super) type Labels = Vec<(&'static str, Rc<str>)>;

/// A sample with its labels.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) labels: Labels,
    pub(super) value: Value,
}

/// The value of a sample.
#[derive(Debug)]
pub(super) enum Value {
    Number(f64),
    Durations(Histogram, Option<Box<Exemplars>>),
}

impl Family {
    pub(super) fn new(name: &'static str, kind: MetricKind, help: &'static str) -> Self {
        Self { name, kind, help, samples: Vec::new() }
    }

    /// Creates a family with a single value.
    pub(super) fn single(
        name: &'static str,
        kind: MetricKind,
        help: &'static str,
        value: f64,
    ) -> Self {
        let mut family = Self::new(name, kind, help);
        family.add(Vec::new(), value);
        family
    }

    pub(super) fn add(&mut self, labels: Labels, value: f64) {
        self.samples.push(Sample { labels, value: Value::Number(value) });
    }

    pub(super) fn add_durations(&mut self, labels: Labels, durations: Histogram) {
        self.add_exemplified(labels, durations, None);
    }

    /// Adds a distribution with exemplars.
    pub(super) fn add_exemplified(
        &mut self,
        labels: Labels,
        durations: Histogram,
        exemplars: Option<Box<Exemplars>>,
    ) {
        self.samples.push(Sample { labels, value: Value::Durations(durations, exemplars) });
    }
}
