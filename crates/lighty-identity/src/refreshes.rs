//! Refreshes of sessions: requests of one browser arrive together, and a refresh token is good only
//! once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use tokio::sync::watch;

use crate::provider_requests::IssuedTokens;

/// Maximum number of refreshes that are under way or remembered.
pub(crate) const REFRESHES_MAX: usize = 4096;

/// Time for which an outcome is remembered, in milliseconds: requests with the old cookie are on
/// their way.
const REMEMBERED_MS: u64 = 30_000;

/// The outcome of a refresh.
#[derive(Clone)]
pub(crate) enum RefreshOutcome {
    Tokens(Arc<IssuedTokens>),
    /// The provider has ended the session.
    Refused,
    /// There was no response.
    Failed,
}

pub(crate) type RefreshWatch = watch::Receiver<Option<RefreshOutcome>>;

/// The refreshes of a provider's sessions.
#[derive(Default)]
pub(crate) struct Refreshes(Mutex<HashMap<String, RefreshFlight, RandomState>>);

struct RefreshFlight {
    outcome: RefreshWatch,
    began_ms: u64,
}

/// A refresh that is under way, or one that the caller has to make.
pub(crate) enum RefreshTurn {
    Follows(RefreshWatch),
    Begins(watch::Sender<Option<RefreshOutcome>>, RefreshWatch),
    /// Too many are under way.
    Full,
}

impl Refreshes {
    /// The refresh of this name.
    pub(crate) fn take_turn(&self, name: &str, now_ms: u64) -> RefreshTurn {
        let mut flights = self.flights();
        let is_kept = |flight: &RefreshFlight| {
            now_ms < flight.began_ms + REMEMBERED_MS || flight.outcome.has_changed().is_ok()
        };
        if let Some(known) = flights.get(name).filter(|known| is_kept(known)) {
            return RefreshTurn::Follows(known.outcome.clone());
        }
        if flights.len() >= REFRESHES_MAX {
            flights.retain(|_, flight| is_kept(flight));
        }
        if flights.len() >= REFRESHES_MAX {
            return RefreshTurn::Full;
        }
        let (sender, outcome) = watch::channel(None);
        let flight = RefreshFlight { outcome: outcome.clone(), began_ms: now_ms };
        flights.insert(name.to_owned(), flight);
        RefreshTurn::Begins(sender, outcome)
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<String, RefreshFlight, RandomState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_refreshes_are_one() {
        let refreshes = Refreshes::default();
        let RefreshTurn::Begins(sender, _) = refreshes.take_turn("a", 0) else { panic!("first") };
        let later = 2 * REMEMBERED_MS;
        assert!(matches!(refreshes.take_turn("a", later), RefreshTurn::Follows(_)), "under way");
        sender.send_replace(Some(RefreshOutcome::Refused));
        drop(sender);
        assert!(matches!(refreshes.take_turn("a", REMEMBERED_MS - 1), RefreshTurn::Follows(_)));
        assert!(matches!(refreshes.take_turn("a", REMEMBERED_MS), RefreshTurn::Begins(..)));
    }

    #[test]
    fn number_of_refreshes_has_a_limit() {
        let refreshes = Refreshes::default();
        let begun: Vec<_> =
            (0..REFRESHES_MAX).map(|name| refreshes.take_turn(&name.to_string(), 0)).collect();
        assert!(matches!(refreshes.take_turn("more", 1), RefreshTurn::Full));
        drop(begun);
        assert!(matches!(refreshes.take_turn("more", REMEMBERED_MS), RefreshTurn::Begins(..)));
    }
}
