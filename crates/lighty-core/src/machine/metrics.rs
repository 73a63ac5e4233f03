//! How long a worker's requests took: distributions by what the configuration names, never by what
//! a client wrote.
//!
//! A worker records in cells of its own; who asks for them (see
//! [`status_board`](super::status_board)) merges those of all workers. The names of series are the
//! process's, so that workers agree on them and their number has a limit.

pub mod history;
pub mod series;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::exchange::span::Span;
use crate::machine::histogram::{Histogram, REQUEST_BOUNDS_US, STAGE_BOUNDS_US};
use crate::machine::metrics::history::{History, Second};
use crate::machine::metrics::series::{
    BackendKey, Family, Name, OTHER, RequestKey, SeriesNames, StageKey,
};

/// A copy of a worker's distributions, one list of keys and values for each [`Family`].
pub type Snapshot = [Vec<(u64, Histogram)>; Family::COUNT];

/// The series of a family.
#[derive(Default)]
struct Recorded {
    series: Vec<(u64, Histogram)>,
    /// Where the series of a key is.
    places: HashMap<u64, usize, foldhash::fast::RandomState>,
    /// The key and the place that were wanted last.
    latest: Option<(u64, usize)>,
}

/// A worker's distributions.
#[derive(Default)]
pub struct Metrics {
    families: [RefCell<Recorded>; Family::COUNT],
    /// Numbers of names, as [`SeriesNames`] has them.
    names: RefCell<HashMap<Box<str>, Name, foldhash::fast::RandomState>>,
    /// The route that was wanted last.
    latest_route: RefCell<(Box<str>, Option<Name>)>,
    /// Requests of the present second.
    recent: RefCell<Histogram>,
    recent_errors: Cell<u64>,
    history: RefCell<History>,
    /// Something was recorded.
    is_on: Cell<bool>,
}

impl Metrics {
    /// The number of a route's name.
    #[inline]
    pub fn route(&self, names: &SeriesNames, text: &str) -> Name {
        if let (latest, Some(name)) = &*self.latest_route.borrow()
            && **latest == *text
        {
            return *name;
        }
        let name = self.name(names, text);
        *self.latest_route.borrow_mut() = (text.into(), Some(name));
        name
    }

    /// The number of a name.
    fn name(&self, names: &SeriesNames, text: &str) -> Name {
        if let Some(name) = self.names.borrow().get(text) {
            return *name;
        }
        let name = names.number(text);
        if !name.is_other() {
            self.names.borrow_mut().insert(text.into(), name);
        }
        name
    }

    /// A request is over after so many microseconds.
    #[inline]
    pub fn request(&self, names: &SeriesNames, key: RequestKey, took_us: u64) {
        self.is_on.set(true);
        self.record(names, Family::Requests, key.pack(), took_us);
        self.recent.borrow_mut().record_native(took_us);
        if key.status >= 500 {
            self.recent_errors.set(self.recent_errors.get() + 1);
        }
    }

    /// A request was so long in a stretch.
    #[inline]
    pub fn stage(&self, names: &SeriesNames, route: Name, span: Span, took_us: u64) {
        self.record(names, Family::Stages, StageKey { route, span }.pack(), took_us);
    }

    /// A backend took so long until its response began.
    pub fn backend(&self, names: &SeriesNames, upstream: &str, backend: &str, took_us: u64) {
        let (upstream, backend) = (self.name(names, upstream), self.name(names, backend));
        self.record(names, Family::Backends, BackendKey { upstream, backend }.pack(), took_us);
    }

    #[inline]
    fn record(&self, names: &SeriesNames, family: Family, key: u64, took_us: u64) {
        let mut recorded = self.families[family as usize].borrow_mut();
        let place = match recorded.latest {
            Some((latest, place)) if latest == key => place,
            _ => recorded.place(names, family, key),
        };
        let bounds_us =
            if family == Family::Requests { &REQUEST_BOUNDS_US } else { &STAGE_BOUNDS_US };
        recorded.series[place].1.record(took_us, bounds_us);
    }

    /// Notes what the second that ends was like. Called once a second.
    pub fn note_second(&self, at_s: i64, open: u64, bytes_out: u64) {
        if !self.is_on.get() {
            return;
        }
        let mut recent = self.recent.borrow_mut();
        let second = Second {
            at_s,
            requests: recent.count(),
            errors: self.recent_errors.take(),
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

    /// The last minutes.
    pub fn history(&self) -> Vec<Second> {
        self.history.borrow().seconds()
    }
}

impl Recorded {
    fn place(&mut self, names: &SeriesNames, family: Family, key: u64) -> usize {
        let known = self.places.get(&key).copied();
        let place = known.unwrap_or_else(|| self.add(names, family, key));
        self.latest = Some((key, place));
        place
    }

    #[cold]
    fn add(&mut self, names: &SeriesNames, family: Family, key: u64) -> usize {
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

    fn key(route: Name, status: u16) -> RequestKey {
        RequestKey { route, method: Some(Method::Get), status, version: Version::Http2, tls: true }
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
            let series = &worker.snapshot()[Family::Requests as usize];
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
    fn there_are_only_so_many_series_and_the_others_are_one() {
        let names = SeriesNames::default();
        let metrics = Metrics::default();
        for number in 0..SERIES_MAX + 500 {
            let route = metrics.route(&names, &format!("route {number}"));
            metrics.request(&names, key(route, 200), 1);
            metrics.backend(&names, "u", "b", 1);
        }
        let snapshot = metrics.snapshot();
        let requests = &snapshot[Family::Requests as usize];
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
