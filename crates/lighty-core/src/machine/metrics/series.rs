//! Keys of series. Keys are numbers, so that recording compares no text.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_http::{Method, Version};

use super::host_names::HostNames;
use crate::exchange::cache_trace::CACHE_RESULTS;
use crate::exchange::span::Span;

/// Maximum series of a family. Durations of further series are recorded as [`OTHER`].
pub const SERIES_MAX: usize = 1_000;

/// The key shared by all series beyond [`SERIES_MAX`].
pub const OTHER: u64 = u64::MAX;

/// Series with the same set of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesFamily {
    /// Whole requests, by [`RequestKey`].
    Requests,
    /// Spans of requests, by [`StageKey`].
    Stages,
    /// Time until the response of a backend begins, by [`BackendKey`].
    Backends,
    /// Whole requests that a cache had a part in, by [`CacheKey`].
    Cached,
}

impl SeriesFamily {
    /// Number of families.
    pub const COUNT: usize = 4;
}

/// Number of a configured name: a route, an upstream or a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesName(u32);

impl SeriesName {
    /// The number shared by all names beyond the limit.
    pub(super) const OTHER: Self = Self(u32::MAX);

    /// True if the name has no number of its own because there are too many.
    pub fn is_other(self) -> bool {
        self == Self::OTHER
    }

    /// The number, which is below `SERIES_MAX` times [`SeriesFamily::COUNT`]; `None` for
    /// [`is_other`](Self::is_other).
    pub(super) fn index(self) -> Option<usize> {
        if self.is_other() { None } else { usize::try_from(self.0).ok() }
    }
}

/// Labels of whole requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// Name of the route that served the request.
    pub route: SeriesName,
    /// The method; `None` for an unknown one.
    pub method: Option<Method>,
    /// The response's status.
    pub status: u16,
    /// The protocol's version.
    pub version: Version,
    /// True if the request came over TLS.
    pub tls: bool,
}

impl RequestKey {
    pub(super) fn pack(self) -> u64 {
        let method = self.method.map_or(u8::MAX, |method| method as u8);
        u64::from(self.route.0)
            | u64::from(method) << 32
            | u64::from(self.status & 0xFFF) << 40
            | (self.version as u64) << 52
            | u64::from(self.tls) << 56
    }

    /// Decodes a packed key; `None` for [`OTHER`].
    pub fn unpack(key: u64) -> Option<Self> {
        if key == OTHER {
            return None;
        }
        let method = (key >> 32 & 0xFF) as u8;
        let versions = [Version::Http10, Version::Http11, Version::Http2, Version::Http3];
        Some(Self {
            route: SeriesName(key as u32),
            method: Method::all().iter().copied().find(|known| *known as u8 == method),
            status: (key >> 40 & 0xFFF) as u16,
            version: versions.into_iter().find(|one| *one as u64 == key >> 52 & 0xF)?,
            tls: key >> 56 & 1 == 1,
        })
    }
}

/// Labels of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageKey {
    /// Name of the route that served the request.
    pub route: SeriesName,
    /// The span.
    pub span: Span,
}

impl StageKey {
    pub(super) fn pack(self) -> u64 {
        u64::from(self.route.0) | (self.span as u64) << 32
    }

    /// Decodes a packed key; `None` for [`OTHER`].
    pub fn unpack(key: u64) -> Option<Self> {
        let span = Span::ALL.into_iter().find(|span| *span as u64 == key >> 32)?;
        Some(Self { route: SeriesName(key as u32), span })
    }
}

/// Labels of backend times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendKey {
    /// The upstream's name in the configuration.
    pub upstream: SeriesName,
    /// The backend's address in the configuration.
    pub backend: SeriesName,
}

impl BackendKey {
    pub(super) fn pack(self) -> u64 {
        u64::from(self.upstream.0) << 32 | u64::from(self.backend.0)
    }

    /// Decodes a packed key; `None` for [`OTHER`].
    pub fn unpack(key: u64) -> Option<Self> {
        let (upstream, backend) = (SeriesName((key >> 32) as u32), SeriesName(key as u32));
        (key != OTHER).then_some(Self { upstream, backend })
    }
}

/// Labels of requests that a cache had a part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheKey {
    /// Name of the route that served the request.
    pub route: SeriesName,
    /// One of [`CACHE_RESULTS`].
    pub result: &'static str,
}

impl CacheKey {
    /// `None` for another word.
    pub(super) fn pack(self) -> Option<u64> {
        let number = CACHE_RESULTS.iter().position(|word| *word == self.result)?;
        Some(u64::from(self.route.0) | (number as u64) << 32)
    }

    /// Decodes a packed key; `None` for [`OTHER`].
    pub fn unpack(key: u64) -> Option<Self> {
        let number = usize::try_from(key >> 32).ok()?;
        Some(Self { route: SeriesName(key as u32), result: CACHE_RESULTS.get(number)? })
    }
}

/// The names and series of a process. Clones share them. Nothing is ever removed: a series that
/// vanished and came back would look like a counter reset.
#[derive(Clone, Default)]
pub struct SeriesNames(Arc<SharedSeries>);

#[derive(Default)]
struct SharedSeries {
    names: Mutex<NumberedNames>,
    series: [Mutex<HashSet<u64>>; SeriesFamily::COUNT],
    hosts: Mutex<HostNames>,
    /// Number of times that a new series was refused.
    others: AtomicU64,
}

#[derive(Default)]
struct NumberedNames {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

impl SeriesNames {
    fn names(&self) -> MutexGuard<'_, NumberedNames> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a name. Assigns one while the limit allows.
    pub(super) fn number(&self, text: &str) -> SeriesName {
        let mut names = self.names();
        if let Some(number) = names.numbers.get(text) {
            return SeriesName(*number);
        }
        let (number, text): (_, Arc<str>) = (names.texts.len(), text.into());
        // Routes, upstreams and backends share the numbers.
        if number >= SERIES_MAX * SeriesFamily::COUNT {
            return SeriesName::OTHER;
        }
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        names.texts.push(Arc::clone(&text));
        names.numbers.insert(text, number);
        SeriesName(number)
    }

    /// A name's text.
    pub fn text(&self, name: SeriesName) -> Arc<str> {
        let text = usize::try_from(name.0).ok().and_then(|at| self.names().texts.get(at).cloned());
        text.unwrap_or_else(|| "other".into())
    }

    /// True if a series of this key exists or may be added.
    pub(super) fn admits(&self, family: SeriesFamily, key: u64) -> bool {
        let is_admitted = self.takes_in(family, key);
        if !is_admitted {
            self.0.others.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }

    /// The same, without counting a series that is refused.
    pub(super) fn takes_in(&self, family: SeriesFamily, key: u64) -> bool {
        let series = &self.0.series[family as usize];
        let mut series = series.lock().unwrap_or_else(PoisonError::into_inner);
        if !series.contains(&key) && series.len() >= SERIES_MAX {
            return false;
        }
        series.insert(key);
        true
    }

    /// The place of a host's name among [`hosts`](Self::hosts); that of
    /// [`OTHER`](super::hosts::OTHER) if there are too many names.
    pub(super) fn host_place(&self, name: &str) -> usize {
        let place = self.known_host_place(name);
        place.unwrap_or_else(|| {
            self.0.others.fetch_add(1, Ordering::Relaxed);
            0
        })
    }

    /// The same; `None` if there are too many names.
    pub(super) fn known_host_place(&self, name: &str) -> Option<usize> {
        self.host_names().place(name)
    }

    /// Names of hosts that requests were counted for.
    pub fn hosts(&self) -> Vec<Arc<str>> {
        self.host_names().names()
    }

    fn host_names(&self) -> MutexGuard<'_, HostNames> {
        self.0.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of new series recorded as [`OTHER`] because of [`SERIES_MAX`].
    pub fn others(&self) -> u64 {
        self.0.others.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_being_numbers() {
        for method in [None, Some(Method::Get), Method::all().last().copied()] {
            for version in [Version::Http10, Version::Http3] {
                let key =
                    RequestKey { route: SeriesName(7), method, status: 599, version, tls: true };
                assert_eq!(RequestKey::unpack(key.pack()), Some(key));
            }
        }
        for span in Span::ALL {
            let key = StageKey { route: SeriesName(u32::MAX), span };
            assert_eq!(StageKey::unpack(key.pack()), Some(key));
        }
        let key = BackendKey { upstream: SeriesName(1), backend: SeriesName(2) };
        assert_eq!(BackendKey::unpack(key.pack()), Some(key));
        assert_eq!(RequestKey::unpack(OTHER), None);
        assert_eq!(StageKey::unpack(OTHER), None);
        assert_eq!(BackendKey::unpack(OTHER), None);
    }

    #[test]
    fn names_have_a_limit() {
        let names = SeriesNames::default();
        let names_max = SERIES_MAX * SeriesFamily::COUNT;
        let all: Vec<_> = (0..=names_max).map(|n| names.number(&n.to_string())).collect();
        assert!(all[names_max].is_other() && !all[names_max - 1].is_other());
        assert_eq!(names.number("5"), all[5]);
        assert_eq!((&*names.text(all[5]), &*names.text(SeriesName::OTHER)), ("5", "other"));
    }
}
