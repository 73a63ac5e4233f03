//! Distributions of a worker's request durations. Series are named by the configuration, never by
//! text from a client.
//!
//! Each worker records into its own cells; a reader (see [`status_board`](super::status_board))
//! merges the snapshots of all workers. The names of series are shared by the process, so that
//! workers agree on them and their number is limited.

pub mod carried;
pub mod exemplars;
pub mod history;
mod host_names;
pub mod hosts;
pub mod series;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::exchange::span::Span;
use crate::machine::histogram::{Histogram, REQUEST_BOUNDS_US, STAGE_BOUNDS_US};
use crate::machine::metrics::exemplars::{Exemplar, Exemplars};
use crate::machine::metrics::history::{History, Second};
use crate::machine::metrics::hosts::HostCounts;
use crate::machine::metrics::series::{
    BackendKey, CacheKey, OTHER, RequestKey, SeriesFamily, SeriesName, SeriesNames, StageKey,
};

/// A copy of a worker's distributions, one list of keys and values for each [`SeriesFamily`].
pub type Snapshot = [Vec<(u64, Histogram)>; SeriesFamily::COUNT];

/// The series of a family.
#[derive(Default)]
struct Recorded {
    series: Vec<(u64, Histogram)>,
    /// Index in `series` by key.
    places: HashMap<u64, usize, foldhash::fast::RandomState>,
    /// Most recently used key and its index.
    latest: Option<(u64, usize)>,
    /// Exemplar to attach to the next recorded request.
    expected: Option<Exemplar>,
    /// Exemplars, by the index of their series.
    exemplars: BTreeMap<usize, Box<Exemplars>>,
}

/// Cache of recently used backend series, keyed by the names' `Arc` pointers instead of their text.
/// A pointer can change while the name does not; the series is then cached twice, which is
/// harmless.
#[derive(Default)]
struct LatestBackends {
    /// Upstream, backend and series index; at most [`Self::MAX`].
    known: Vec<(Arc<str>, Arc<str>, usize)>,
    /// Index of the entry that is replaced next.
    oldest: usize,
}

impl LatestBackends {
    const MAX: usize = 16;

    fn place(&self, upstream: &Arc<str>, backend: &Arc<str>) -> Option<usize> {
        let is_it = |(one, other, _): &&(Arc<str>, Arc<str>, usize)| {
            Arc::ptr_eq(other, backend) && Arc::ptr_eq(one, upstream)
        };
        self.known.iter().find(is_it).map(|(_, _, place)| *place)
    }

    #[cold]
    fn push(&mut self, upstream: &Arc<str>, backend: &Arc<str>, place: usize) {
        let entry = (Arc::clone(upstream), Arc::clone(backend), place);
        if self.known.len() < Self::MAX {
            self.known.push(entry);
        } else {
            self.known[self.oldest] = entry;
            self.oldest = (self.oldest + 1) % Self::MAX;
        }
    }
}

/// Series index of each span; `None` until first used.
type StagePlaces = [Option<u32>; Span::COUNT];

/// A worker's distributions.
#[derive(Default)]
pub struct Metrics {
    families: [RefCell<Recorded>; SeriesFamily::COUNT],
    /// Cache of the numbers in [`SeriesNames`].
    names: RefCell<HashMap<Box<str>, SeriesName, foldhash::fast::RandomState>>,
    /// Series indices of each route's spans, by the route's number.
    stage_places: RefCell<Vec<StagePlaces>>,
    /// Most recently used route.
    latest_route: RefCell<(Box<str>, Option<SeriesName>)>,
    latest_backends: RefCell<LatestBackends>,
    /// Counts of hosts by place, see [`SeriesNames::hosts`].
    hosts: RefCell<Vec<HostCounts>>,
    /// Requests of the current second.
    recent: RefCell<Histogram>,
    recent_errors: Cell<u64>,
    recent_client_errors: Cell<u64>,
    history: RefCell<History>,
    /// True once something was recorded.
    is_on: Cell<bool>,
}

impl Metrics {
    /// The number of a route's name, cached.
    #[inline]
    pub fn route(&self, names: &SeriesNames, text: &str) -> SeriesName {
        if let (latest, Some(name)) = &*self.latest_route.borrow()
            && **latest == *text
        {
            return *name;
        }
        let name = self.name(names, text);
        *self.latest_route.borrow_mut() = (text.into(), Some(name));
        name
    }

    /// The number of a name, cached.
    fn name(&self, names: &SeriesNames, text: &str) -> SeriesName {
        if let Some(name) = self.names.borrow().get(text) {
            return *name;
        }
        let name = names.number(text);
        if !name.is_other() {
            self.names.borrow_mut().insert(text.into(), name);
        }
        name
    }

    /// Records a request and its duration.
    #[inline]
    pub fn request(&self, names: &SeriesNames, key: RequestKey, took_us: u64) {
        self.is_on.set(true);
        let mut requests = self.families[SeriesFamily::Requests as usize].borrow_mut();
        let place = requests.place(names, SeriesFamily::Requests, key.pack());
        requests.series[place].1.record(took_us, &REQUEST_BOUNDS_US);
        self.recent.borrow_mut().record_native(took_us);
        if key.status >= 500 {
            self.recent_errors.set(self.recent_errors.get() + 1);
        } else if key.status >= 400 {
            self.recent_client_errors.set(self.recent_client_errors.get() + 1);
        }
    }

    /// Attaches an exemplar to the next recorded request. Clears `latest`, because exemplars are
    /// stored on the slow path that searches for a series: requests without a trace then pay
    /// nothing.
    pub fn exemplify(&self, with: Exemplar) {
        if self.is_on.get() {
            let mut requests = self.families[SeriesFamily::Requests as usize].borrow_mut();
            (requests.latest, requests.expected) = (None, Some(with));
        }
    }

    /// Records a request's time in a span.
    #[inline]
    pub fn stage(&self, names: &SeriesNames, route: SeriesName, span: Span, took_us: u64) {
        let mut stages = self.families[SeriesFamily::Stages as usize].borrow_mut();
        let known = route.index().and_then(|route| {
            self.stage_places.borrow().get(route).and_then(|places| places[span as usize])
        });
        let place = match known {
            Some(place) => place as usize,
            None => self.stage_place(&mut stages, names, route, span),
        };
        stages.series[place].1.record(took_us, &STAGE_BOUNDS_US);
    }

    /// Finds a span's series and caches its index.
    #[cold]
    fn stage_place(
        &self,
        stages: &mut Recorded,
        names: &SeriesNames,
        route: SeriesName,
        span: Span,
    ) -> usize {
        let place = stages.place(names, SeriesFamily::Stages, StageKey { route, span }.pack());
        if let (Some(route), Ok(found)) = (route.index(), u32::try_from(place)) {
            let mut all = self.stage_places.borrow_mut();
            if all.len() <= route {
                all.resize(route + 1, [None; Span::COUNT]);
            }
            all[route][span as usize] = Some(found);
        }
        place
    }

    /// Records the time until a backend's response began.
    pub fn backend(
        &self,
        names: &SeriesNames,
        upstream: &Arc<str>,
        backend: &Arc<str>,
        took_us: u64,
    ) {
        let mut backends = self.families[SeriesFamily::Backends as usize].borrow_mut();
        let place = self.latest_backends.borrow().place(upstream, backend);
        let place = place.unwrap_or_else(|| {
            let key = BackendKey {
                upstream: self.name(names, upstream),
                backend: self.name(names, backend),
            };
            let place = backends.place(names, SeriesFamily::Backends, key.pack());
            self.latest_backends.borrow_mut().push(upstream, backend, place);
            place
        });
        backends.series[place].1.record(took_us, &STAGE_BOUNDS_US);
    }

    /// Records a request that a cache had a part in, and its duration.
    pub fn cached(&self, names: &SeriesNames, key: CacheKey, took_us: u64) {
        let Some(key) = key.pack() else { return };
        let mut cached = self.families[SeriesFamily::Cached as usize].borrow_mut();
        let place = cached.place(names, SeriesFamily::Cached, key);
        cached.series[place].1.record(took_us, &REQUEST_BOUNDS_US);
    }

    /// Appends the second that ends to the history. Called once a second.
    pub fn note_second(&self, at_s: i64, open: u64, bytes_out: u64) {
        if !self.is_on.get() {
            return;
        }
        let mut recent = self.recent.borrow_mut();
        let second = Second {
            at_s,
            requests: recent.count(),
            errors: self.recent_errors.take(),
            client_errors: self.recent_client_errors.take(),
            bytes_out,
            open,
            p50_us: recent.quantile_us(0.5),
            p99_us: recent.quantile_us(0.99),
        };
        recent.clear();
        self.history.borrow_mut().push(second);
    }

    /// Copies of everything recorded so far.
    pub fn snapshot(&self) -> Snapshot {
        std::array::from_fn(|family| self.families[family].borrow().series.clone())
    }

    /// Exemplars of whole requests, by the key of their series.
    pub fn exemplars(&self) -> Vec<(u64, Box<Exemplars>)> {
        let requests = self.families[SeriesFamily::Requests as usize].borrow();
        let all = requests.exemplars.iter();
        all.map(|(place, some)| (requests.series[*place].0, some.clone())).collect()
    }

    /// The last minutes.
    pub fn history(&self) -> Vec<Second> {
        self.history.borrow().seconds()
    }
}

impl Recorded {
    #[inline]
    fn place(&mut self, names: &SeriesNames, family: SeriesFamily, key: u64) -> usize {
        match self.latest {
            Some((latest, place)) if latest == key => place,
            _ => self.search(names, family, key),
        }
    }

    fn search(&mut self, names: &SeriesNames, family: SeriesFamily, key: u64) -> usize {
        let known = self.places.get(&key).copied();
        let place = known.unwrap_or_else(|| self.add(names, family, key));
        self.latest = Some((key, place));
        if let Some(one) = self.expected.take() {
            self.exemplars.entry(place).or_default().note(one);
        }
        place
    }

    #[cold]
    fn add(&mut self, names: &SeriesNames, family: SeriesFamily, key: u64) -> usize {
        if !names.admits(family, key) {
            let other = self.places.get(&OTHER).copied();
            return other.unwrap_or_else(|| self.push(OTHER));
        }
        self.push(key)
    }

    fn push(&mut self, key: u64) -> usize {
        self.series.push((key, Histogram::default()));
        self.places.insert(key, self.series.len() - 1);
        self.series.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use lighty_http::{Method, Version};

    use super::*;
    use crate::machine::metrics::series::SERIES_MAX;

    fn key(route: SeriesName, status: u16) -> RequestKey {
        RequestKey { route, method: Some(Method::Get), status, version: Version::Http2, tls: true }
    }

    #[test]
    fn an_example_is_of_the_request_that_comes_next() {
        let (names, metrics) = (SeriesNames::default(), Metrics::default());
        let exemplar = |trace_id| Exemplar { trace_id, took_us: 10, unix_us: 1 };
        metrics.exemplify(exemplar(1));
        let route = metrics.route(&names, "a");
        for status in [200, 404, 404] {
            metrics.request(&names, key(route, status), 10);
        }
        assert_eq!(metrics.exemplars(), [], "nobody wanted metrics before");
        metrics.exemplify(exemplar(2));
        metrics.request(&names, key(route, 404), 10);
        metrics.request(&names, key(route, 200), 10);
        let all = metrics.exemplars();
        assert_eq!(all.len(), 1);
        assert_eq!(RequestKey::unpack(all[0].0).map(|key| key.status), Some(404));
        assert_eq!(all[0].1.of(0), Some(&exemplar(2)));
    }

    #[test]
    fn series_of_workers_have_the_same_keys() {
        let names = SeriesNames::default();
        let (one, two) = (Metrics::default(), Metrics::default());
        for (worker, routes) in [(&one, ["a", "b", "a"]), (&two, ["b", "b", "a"])] {
            for route in routes {
                let route = worker.route(&names, route);
                worker.request(&names, key(route, 200), 1_000);
                worker.stage(&names, route, Span::Queue, 10);
            }
        }
        let counts = |worker: &Metrics| {
            let series = &worker.snapshot()[SeriesFamily::Requests as usize];
            let route = |key: u64| names.text(RequestKey::unpack(key).expect("a request").route);
            let mut all: Vec<_> =
                series.iter().map(|(key, all)| (route(*key), all.count())).collect();
            all.sort();
            all.into_iter().map(|(route, count)| format!("{route}={count}")).collect::<Vec<_>>()
        };
        assert_eq!(counts(&one), ["a=2", "b=1"]);
        assert_eq!(counts(&two), ["a=1", "b=2"]);
        assert_eq!(names.others(), 0);
    }

    #[test]
    fn stretches_of_routes_are_told_apart_in_any_order() {
        let (names, metrics) = (SeriesNames::default(), Metrics::default());
        for turn in 1..=3 {
            for text in ["a", "b", "c"] {
                let route = metrics.route(&names, text);
                metrics.stage(&names, route, Span::Queue, turn);
                metrics.stage(&names, route, Span::Head, turn * 1_000);
            }
        }
        // A name without a number, as a worker may record it.
        metrics.stage(&names, SeriesName::OTHER, Span::Head, 7);
        let series = &metrics.snapshot()[SeriesFamily::Stages as usize];
        let sums: HashMap<_, _> = series.iter().map(|(key, all)| (*key, all.sum_us())).collect();
        assert_eq!((series.len(), sums.len()), (7, 7));
        for text in ["a", "b", "c"] {
            let route = metrics.route(&names, text);
            let sum = |span| sums[&StageKey { route, span }.pack()];
            assert_eq!((sum(Span::Queue), sum(Span::Head)), (6, 6_000), "{text}");
        }
    }

    #[test]
    fn backends_are_told_apart_however_many_there_are() {
        let (names, metrics) = (SeriesNames::default(), Metrics::default());
        let upstream: [Arc<str>; 2] = ["u".into(), "v".into()];
        let backends: Vec<Arc<str>> =
            (0..LatestBackends::MAX + 1).map(|number| format!("b{number}").into()).collect();
        for turn in 1..=3 {
            for backend in &backends {
                upstream.iter().for_each(|one| metrics.backend(&names, one, backend, turn));
            }
        }
        // The same names at other addresses, as after a reload.
        metrics.backend(&names, &"u".into(), &"b0".into(), 4);
        assert_eq!(metrics.latest_backends.borrow().known.len(), LatestBackends::MAX);
        let series = &metrics.snapshot()[SeriesFamily::Backends as usize];
        assert_eq!(series.len(), 2 * backends.len());
        for (key, all) in series {
            let key = BackendKey::unpack(*key).expect("a backend");
            let is_first = (&*names.text(key.upstream), &*names.text(key.backend)) == ("u", "b0");
            assert_eq!(all.sum_us(), if is_first { 10 } else { 6 });
        }
    }

    #[test]
    fn series_beyond_the_limit_share_one_series() {
        let names = SeriesNames::default();
        let metrics = Metrics::default();
        for number in 0..SERIES_MAX + 500 {
            let route = metrics.route(&names, &format!("route {number}"));
            metrics.request(&names, key(route, 200), 1);
            metrics.backend(&names, &"u".into(), &"b".into(), 1);
        }
        let snapshot = metrics.snapshot();
        let requests = &snapshot[SeriesFamily::Requests as usize];
        assert!(requests.len() <= SERIES_MAX + 1, "{}", requests.len());
        let total: u64 = requests.iter().map(|(_, all)| all.count()).sum();
        assert_eq!(total, SERIES_MAX as u64 + 500);
        assert!(names.others() >= 1);
    }

    #[test]
    fn seconds_are_noted_once_something_was_recorded() {
        let (names, metrics) = (SeriesNames::default(), Metrics::default());
        metrics.note_second(1, 3, 4);
        assert!(metrics.history().is_empty());
        let route = metrics.route(&names, "a");
        metrics.request(&names, key(route, 503), 1_000);
        metrics.request(&names, key(route, 200), 1_000);
        metrics.note_second(2, 3, 4);
        metrics.note_second(3, 3, 4);
        let history = metrics.history();
        assert_eq!(history.len(), 2);
        assert_eq!((history[0].requests, history[0].errors), (2, 1));
        assert!((900..1_100).contains(&history[0].p99_us), "{}", history[0].p99_us);
        assert_eq!((history[1].requests, history[1].errors, history[1].p99_us), (0, 0, 0));
    }
}
