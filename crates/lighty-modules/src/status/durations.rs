//! Durations of requests in all workers, with names in place of numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use lighty_core::exchange::cache_trace::CACHE_RESULTS;
use lighty_core::exchange::span::Span;
use lighty_core::machine::histogram::Histogram;
use lighty_core::machine::metrics::exemplars::Exemplars;
use lighty_core::machine::metrics::series::{
    BackendKey, CacheKey, RequestKey, SeriesFamily, SeriesName, SeriesNames, StageKey,
};
use lighty_core::machine::status_board::Report;
use lighty_http::{Method, Version};

/// Label for values without a series of their own.
const OTHER: &str = "other";

/// Labels that identify a series of whole requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestLabels {
    pub(super) route: Arc<str>,
    pub(super) method: &'static str,
    /// `None` for statuses without a series of their own.
    pub(super) status: Option<u16>,
    pub(super) version: &'static str,
    pub(super) scheme: &'static str,
}

/// The merged distributions.
#[derive(Default)]
pub(super) struct Durations {
    pub(super) requests: BTreeMap<RequestLabels, Histogram>,
    /// Recorded traces of some requests.
    pub(super) exemplars: BTreeMap<RequestLabels, Box<Exemplars>>,
    /// Keyed by the span's position in a request, its name and the route.
    pub(super) stages: BTreeMap<(usize, &'static str, Arc<str>), Histogram>,
    /// Keyed by upstream and backend.
    pub(super) backends: BTreeMap<(Arc<str>, Arc<str>), Histogram>,
    /// Requests that a cache had a part in, by route and result.
    pub(super) cached: BTreeMap<(Arc<str>, &'static str), Histogram>,
    /// Number of values recorded without a series, because the table was full.
    pub(super) others: u64,
}

impl Durations {
    pub(super) fn merged(reports: &[Report], names: &SeriesNames) -> Self {
        let mut all = Self { others: names.others(), ..Self::default() };
        let mut texts = Texts { names, known: BTreeMap::new() };
        for report in reports {
            for (key, durations) in &report.durations[SeriesFamily::Requests as usize] {
                let labels = request_labels(*key, &mut texts);
                all.requests.entry(labels).or_default().merge(durations);
            }
            for (key, some) in &report.exemplars {
                let labels = request_labels(*key, &mut texts);
                all.exemplars.entry(labels).or_default().merge(some);
            }
            for (key, durations) in &report.durations[SeriesFamily::Stages as usize] {
                let labels = stage_labels(*key, &mut texts);
                all.stages.entry(labels).or_default().merge(durations);
            }
            for (key, durations) in &report.durations[SeriesFamily::Backends as usize] {
                let labels = backend_labels(*key, &mut texts);
                all.backends.entry(labels).or_default().merge(durations);
            }
            for (key, durations) in &report.durations[SeriesFamily::Cached as usize] {
                let labels = match CacheKey::unpack(*key) {
                    Some(CacheKey { route, result }) => (texts.of(route), result),
                    None => (OTHER.into(), OTHER),
                };
                all.cached.entry(labels).or_default().merge(durations);
            }
        }
        all
    }

    /// Returns for each route the number of responses with a status of 500 or above, and the
    /// distribution of all its requests.
    pub(super) fn routes(&self) -> Vec<(Arc<str>, u64, Histogram)> {
        let mut routes = BTreeMap::<Arc<str>, (u64, Histogram)>::new();
        for (labels, durations) in &self.requests {
            let (errors, sum) = routes.entry(Arc::clone(&labels.route)).or_default();
            sum.merge(durations);
            if labels.status.is_some_and(|status| status >= 500) {
                *errors += durations.count();
            }
        }
        routes.into_iter().map(|(route, (errors, sum))| (route, errors, sum)).collect()
    }

    /// Returns for each route with a cache the number of requests by result, in the order of the
    /// results.
    pub(super) fn cached_routes(&self) -> BTreeMap<Arc<str>, Vec<(&'static str, u64)>> {
        let mut routes = BTreeMap::<Arc<str>, Vec<(&'static str, u64)>>::new();
        for ((route, result), durations) in &self.cached {
            routes.entry(Arc::clone(route)).or_default().push((result, durations.count()));
        }
        let place = |result: &str| CACHE_RESULTS.iter().position(|word| *word == result);
        for results in routes.values_mut() {
            results.sort_by_key(|(result, _)| place(result).unwrap_or(CACHE_RESULTS.len()));
        }
        routes
    }

    /// Returns each span that took time, over all routes, in the order of a request.
    pub(super) fn spans(&self) -> Vec<(&'static str, Histogram)> {
        let mut spans = BTreeMap::<(usize, &'static str), Histogram>::new();
        for ((place, name, _), durations) in &self.stages {
            spans.entry((*place, name)).or_default().merge(durations);
        }
        spans.into_iter().map(|((_, name), durations)| (name, durations)).collect()
    }
}

/// Texts of names, each allocated once.
struct Texts<'a> {
    names: &'a SeriesNames,
    known: BTreeMap<String, Arc<str>>,
}

impl Texts<'_> {
    fn of(&mut self, name: SeriesName) -> Arc<str> {
        let text = self.names.text(name);
        Arc::clone(self.known.entry(text.to_string()).or_insert(text))
    }
}

fn request_labels(key: u64, texts: &mut Texts<'_>) -> RequestLabels {
    let Some(key) = RequestKey::unpack(key) else {
        return RequestLabels {
            route: OTHER.into(),
            method: "_OTHER",
            status: None,
            version: OTHER,
            scheme: OTHER,
        };
    };
    RequestLabels {
        route: texts.of(key.route),
        method: key.method.map_or("_OTHER", Method::as_str),
        status: Some(key.status),
        version: match key.version {
            Version::Http10 => "1.0",
            Version::Http11 => "1.1",
            Version::Http2 => "2",
            Version::Http3 => "3",
        },
        scheme: if key.tls { "https" } else { "http" },
    }
}

fn stage_labels(key: u64, texts: &mut Texts<'_>) -> (usize, &'static str, Arc<str>) {
    match StageKey::unpack(key) {
        Some(key) => (key.span as usize, key.span.name(), texts.of(key.route)),
        None => (Span::COUNT, OTHER, OTHER.into()),
    }
}

fn backend_labels(key: u64, texts: &mut Texts<'_>) -> (Arc<str>, Arc<str>) {
    match BackendKey::unpack(key) {
        Some(key) => (texts.of(key.upstream), texts.of(key.backend)),
        None => (OTHER.into(), OTHER.into()),
    }
}

#[cfg(test)]
mod tests {
    use lighty_core::machine::metrics::Metrics;

    use super::*;

    #[test]
    fn workers_add_up_and_routes_have_their_errors() {
        let names = SeriesNames::default();
        let worker = |statuses: &[u16]| {
            let metrics = Metrics::default();
            let route = metrics.route(&names, "shop");
            for status in statuses {
                let (method, version) = (Some(Method::Get), Version::Http11);
                let key = RequestKey { route, method, status: *status, version, tls: false };
                metrics.request(&names, key, 1_000);
            }
            metrics.stage(&names, route, Span::Queue, 30);
            metrics.backend(&names, &"u".into(), &"b".into(), 50);
            for result in ["miss", "hit", "hit", "", "unknown"] {
                metrics.cached(&names, CacheKey { route, result }, 70);
            }
            Report { durations: metrics.snapshot(), ..Report::default() }
        };
        let reports = [worker(&[200, 200, 503]), worker(&[200])];
        let all = Durations::merged(&reports, &names);
        assert_eq!(all.requests.len(), 2);
        let routes = all.routes();
        assert_eq!((routes.len(), &*routes[0].0, routes[0].1), (1, "shop", 1));
        assert_eq!(routes[0].2.count(), 4);
        let spans = all.spans();
        assert_eq!((spans[0].0, spans[0].1.sum_us()), ("queue", 60));
        assert_eq!(all.backends.values().map(Histogram::count).sum::<u64>(), 2);
        let cached: Vec<_> = all.cached_routes().into_iter().collect();
        assert_eq!(cached, [("shop".into(), vec![("hit", 4), ("miss", 2)])]);
    }
}
