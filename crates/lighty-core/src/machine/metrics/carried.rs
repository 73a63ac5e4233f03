//! Distributions and counts of hosts, with names in place of the numbers that only one process
//! knows.

use lighty_http::{Method, Version};
use serde::{Deserialize, Serialize};

use super::Snapshot;
use super::hosts::HostCounts;
use super::series::{
    BackendKey, CacheKey, OTHER, RequestKey, SERIES_MAX, SeriesFamily, SeriesNames, StageKey,
};
use crate::exchange::cache_trace::CACHE_RESULTS;
use crate::exchange::span::Span;
use crate::machine::histogram::Histogram;
use crate::machine::metrics::hosts::HOSTS_MAX;

/// All series of a process. Labels that are absent are those of series without their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CarriedSeries {
    requests: Vec<(Option<CarriedRequest>, Histogram)>,
    stages: Vec<(Option<CarriedStage>, Histogram)>,
    backends: Vec<(Option<CarriedBackend>, Histogram)>,
    cached: Vec<(Option<CarriedResult>, Histogram)>,
    hosts: Vec<(String, HostCounts)>,
}

/// [`RequestKey`] with names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CarriedRequest {
    route: String,
    method: Option<String>,
    status: u16,
    version: String,
    tls: bool,
}

/// [`StageKey`] with names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CarriedStage {
    route: String,
    span: String,
}

/// [`BackendKey`] with names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CarriedBackend {
    upstream: String,
    backend: String,
}

/// [`CacheKey`] with names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CarriedResult {
    route: String,
    result: String,
}

impl CarriedSeries {
    /// Names the series of a process.
    pub(crate) fn of(durations: &Snapshot, hosts: &[HostCounts], names: &SeriesNames) -> Self {
        let [requests, stages, backends, cached] = durations;
        let text = |name| names.text(name).to_string();
        Self {
            requests: named(requests, |key| {
                let RequestKey { route, method, status, version, tls } = RequestKey::unpack(key)?;
                let method = method.map(|method| method.as_str().to_owned());
                let version = version.as_str().to_owned();
                Some(CarriedRequest { route: text(route), method, status, version, tls })
            }),
            stages: named(stages, |key| {
                let StageKey { route, span } = StageKey::unpack(key)?;
                Some(CarriedStage { route: text(route), span: span.name().to_owned() })
            }),
            backends: named(backends, |key| {
                let BackendKey { upstream, backend } = BackendKey::unpack(key)?;
                Some(CarriedBackend { upstream: text(upstream), backend: text(backend) })
            }),
            cached: named(cached, |key| {
                let CacheKey { route, result } = CacheKey::unpack(key)?;
                Some(CarriedResult { route: text(route), result: result.to_owned() })
            }),
            hosts: names
                .hosts()
                .iter()
                .zip(hosts)
                .map(|(name, counts)| (name.to_string(), *counts))
                .collect(),
        }
    }

    /// The same under the numbers of this process. Series with labels that it does not know are
    /// left out, and those that it has no room for become one.
    pub(crate) fn numbered(&self, names: &SeriesNames) -> (Snapshot, Vec<HostCounts>) {
        let requests = numbered(names, SeriesFamily::Requests, &self.requests, |labels| {
            let versions = [Version::Http10, Version::Http11, Version::Http2, Version::Http3];
            let version = versions.into_iter().find(|one| one.as_str() == labels.version)?;
            let method = match &labels.method {
                Some(method) => Some(Method::from_bytes(method.as_bytes())?),
                None => None,
            };
            let CarriedRequest { status, tls, .. } = *labels;
            let route = names.number(&labels.route);
            Some(RequestKey { route, method, status, version, tls }.pack())
        });
        let stages = numbered(names, SeriesFamily::Stages, &self.stages, |labels| {
            let span = Span::ALL.into_iter().find(|span| span.name() == labels.span)?;
            Some(StageKey { route: names.number(&labels.route), span }.pack())
        });
        let backends = numbered(names, SeriesFamily::Backends, &self.backends, |labels| {
            let (upstream, backend) =
                (names.number(&labels.upstream), names.number(&labels.backend));
            Some(BackendKey { upstream, backend }.pack())
        });
        let cached = numbered(names, SeriesFamily::Cached, &self.cached, |labels| {
            let result = CACHE_RESULTS.into_iter().find(|word| *word == labels.result)?;
            CacheKey { route: names.number(&labels.route), result }.pack()
        });
        let mut hosts = Vec::new();
        for (name, counts) in self.hosts.iter().take(HOSTS_MAX + 1) {
            let place = names.known_host_place(name).unwrap_or(0);
            if hosts.len() <= place {
                hosts.resize(place + 1, HostCounts::default());
            }
            hosts[place].add(counts);
        }
        ([requests, stages, backends, cached], hosts)
    }
}

fn named<L>(
    series: &[(u64, Histogram)],
    labels: impl Fn(u64) -> Option<L>,
) -> Vec<(Option<L>, Histogram)> {
    series.iter().map(|(key, durations)| (labels(*key), durations.clone())).collect()
}

fn numbered<L>(
    names: &SeriesNames,
    family: SeriesFamily,
    series: &[(Option<L>, Histogram)],
    key: impl Fn(&L) -> Option<u64>,
) -> Vec<(u64, Histogram)> {
    let mut all: Vec<(u64, Histogram)> = Vec::new();
    let plausible = series.iter().filter(|(_, durations)| durations.is_plausible());
    for (labels, durations) in plausible.take(SERIES_MAX + 1) {
        let key = match labels {
            None => OTHER,
            Some(labels) => match key(labels) {
                Some(key) if names.takes_in(family, key) => key,
                Some(_) => OTHER,
                None => continue,
            },
        };
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, sum)) => sum.merge(durations),
            None => all.push((key, durations.clone())),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::machine::metrics::Metrics;
    use crate::settings::counted_host::HostRow;

    fn recorded(names: &SeriesNames, routes: &[&str]) -> (Snapshot, Vec<HostCounts>) {
        let metrics = Metrics::default();
        let (upstream, backend): (Arc<str>, Arc<str>) = ("u".into(), "b".into());
        for route in routes {
            let name = metrics.route(names, route);
            for (method, status) in [(Some(Method::Get), 200), (None, 501)] {
                let version = Version::Http2;
                let key = RequestKey { route: name, method, status, version, tls: true };
                metrics.request(names, key, 1_000);
            }
            metrics.stage(names, name, Span::Queue, 10);
            metrics.cached(names, CacheKey { route: name, result: "coalesced" }, 30);
            metrics.backend(names, &upstream, &backend, 20);
            metrics.host(names, &HostRow::new(route), 404, 7);
        }
        (metrics.snapshot(), metrics.hosts())
    }

    fn total(series: &[(u64, Histogram)]) -> u64 {
        series.iter().map(|(_, all)| all.count()).sum()
    }

    #[test]
    fn series_have_their_names_in_another_process() {
        let (theirs, ours) = (SeriesNames::default(), SeriesNames::default());
        let (durations, hosts) = recorded(&theirs, &["a", "b"]);
        let carried = CarriedSeries::of(&durations, &hosts, &theirs);
        let text = serde_json::to_string(&carried).expect("JSON");
        let carried: CarriedSeries = serde_json::from_str(&text).expect("the same");
        // Other numbers than there.
        recorded(&ours, &["x", "b", "a"]);
        let (numbered, hosts) = carried.numbered(&ours);
        let mut routes: Vec<_> = numbered[0]
            .iter()
            .map(|(key, all)| {
                let key = RequestKey::unpack(*key).expect("a request");
                (ours.text(key.route).to_string(), key.status, all.count())
            })
            .collect();
        routes.sort();
        let row = |route: &str, status| (route.to_owned(), status, 1);
        assert_eq!(routes, [row("a", 200), row("a", 501), row("b", 200), row("b", 501)]);
        assert_eq!((total(&numbered[1]), total(&numbered[2])), (2, 2));
        let all = ours.hosts().into_iter().zip(hosts);
        let counted = all.filter(|(_, counts)| counts.requests == 1);
        assert_eq!(counted.map(|(name, _)| name.to_string()).collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn labels_of_another_version_are_left_out() {
        let text = r#"{
            "requests": [
                [{"route": "a", "method": "BREW", "status": 200, "version": "HTTP/1.1", "tls": false},
                 {"count": 1, "sum_us": 1, "first": 0, "native": [1],
                  "fixed": [0,0,0,0,0,0,0,0,0,0,0,0,0,0]}],
                [null, {"count": 2, "sum_us": 1, "first": 0, "native": [2],
                  "fixed": [0,0,0,0,0,0,0,0,0,0,0,0,0,0]}]],
            "stages": [[{"route": "a", "span": "of-the-future"},
                {"count": 1, "sum_us": 1, "first": 0, "native": [1],
                 "fixed": [0,0,0,0,0,0,0,0,0,0,0,0,0,0]}]],
            "backends": [[{"upstream": "u", "backend": "b"},
                {"count": 1, "sum_us": 1, "first": 2147483647, "native": [1],
                 "fixed": [0,0,0,0,0,0,0,0,0,0,0,0,0,0]}]],
            "of-the-future": 1
        }"#;
        let carried: CarriedSeries = serde_json::from_str(text).expect("known members");
        let (numbered, hosts) = carried.numbered(&SeriesNames::default());
        assert_eq!((numbered[0].len(), numbered[0][0].0, total(&numbered[0])), (1, OTHER, 2));
        assert!(numbered[1].is_empty() && numbered[2].is_empty() && hosts.is_empty());
    }

    #[test]
    fn series_without_room_become_one() {
        let ours = SeriesNames::default();
        let metrics = Metrics::default();
        for number in 0..SERIES_MAX {
            let route = metrics.route(&ours, &number.to_string());
            metrics.stage(&ours, route, Span::Queue, 1);
        }
        let theirs = SeriesNames::default();
        let (durations, hosts) = recorded(&theirs, &["x", "y", "7"]);
        let (numbered, _) = CarriedSeries::of(&durations, &hosts, &theirs).numbered(&ours);
        let of_other: u64 =
            numbered[1].iter().filter(|(key, _)| *key == OTHER).map(|(_, all)| all.count()).sum();
        assert_eq!((numbered[1].len(), of_other, ours.others()), (2, 2, 0));
    }
}
