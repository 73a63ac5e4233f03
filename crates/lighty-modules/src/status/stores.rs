//! Figures of the cache's stores, taken from the statistics `cache.STORE.FIGURE`.

use std::collections::BTreeMap;

use lighty_core::exchange::cache_trace::CACHE_RESULTS;

/// Number of stores with a row of their own. Further ones are summed up as `other`.
const STORES_MAX: usize = 64;

/// Results of requests that the store answered.
const SERVED: [&str; 4] = ["hit", "stale", "updating", "revalidated"];

/// Figures of a store by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StoreFigures(BTreeMap<String, u64>);

impl StoreFigures {
    /// The figure, 0 if it is unknown.
    pub(super) fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Requests with any result.
    pub(super) fn requests(&self) -> u64 {
        CACHE_RESULTS.iter().map(|result| self.of(result)).sum()
    }

    /// Requests that the store answered.
    pub(super) fn served(&self) -> u64 {
        SERVED.iter().map(|result| self.of(result)).sum()
    }
}

/// All stores, sorted by name.
pub(super) fn stores(figures: &[(String, String)]) -> BTreeMap<&str, StoreFigures> {
    let mut stores = BTreeMap::<&str, StoreFigures>::new();
    for (name, value) in figures {
        let Some(rest) = name.strip_prefix("cache.") else { continue };
        // The name of a store may have dots.
        let (Some((store, figure)), Ok(value)) = (rest.rsplit_once('.'), value.parse::<u64>())
        else {
            continue;
        };
        let is_known = stores.contains_key(store) || stores.len() < STORES_MAX;
        let store = if is_known { store } else { "other" };
        *stores.entry(store).or_default().0.entry(figure.to_owned()).or_default() += value;
    }
    stores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_belong_to_stores() {
        let figures = [
            ("cache.a.b.hit", "3"),
            ("cache.a.b.miss", "1"),
            ("cache.pages.hit", "x"),
            ("server.requests", "9"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let stores = stores(&figures);
        assert_eq!(stores.len(), 1);
        let store = &stores["a.b"];
        assert_eq!((store.of("hit"), store.served(), store.requests()), (3, 3, 4));
    }

    #[test]
    fn stores_beyond_the_limit_are_summed_up() {
        let figure = |number: usize| (format!("cache.{number:03}.hit"), "1".to_owned());
        let count = |count: usize| {
            let figures: Vec<_> = (0..count).map(figure).collect();
            let stores = stores(&figures);
            (stores.len(), stores.get("other").map(|store| store.of("hit")))
        };
        assert_eq!(count(STORES_MAX), (STORES_MAX, None));
        assert_eq!(count(STORES_MAX + 2), (STORES_MAX + 1, Some(2)));
    }
}
