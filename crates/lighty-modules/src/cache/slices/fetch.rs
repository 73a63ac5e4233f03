//! The backend's response to a request for a slice.

use std::sync::Arc;

use lighty_cache::flight::FlightHead;
use lighty_cache::key::Key;
use lighty_cache::rules::{self, FreshnessFlags, Unstorable};
use lighty_cache::store::{Joined, ResponseStore, SliceMark, SliceVersion};
use lighty_core::Level;
use lighty_http::Status;

use super::super::fill::{Fetched, Fill};
use super::super::handover::Unshared;
use super::super::slice_range::{SliceRange, Unsliceable};

/// Drops all slices of a resource, of which different versions were found. If that happens again
/// and again, backends do not agree on a version: ranges go to them for a while.
pub(super) fn drop_versions(store: &ResponseStore, key: &Key, now_ms: u64, pass_ms: u64) {
    if store.drop_slices(key, now_ms) {
        for has_credentials in [false, true] {
            store.mark_slices(key, SliceMark::Passes, has_credentials, now_ms + pass_ms);
        }
    }
}

impl Fill {
    /// Fetches a slice, and stores it if it may be stored.
    pub(super) async fn run_slice(mut self) {
        let Some(slice) = self.slice.clone() else { return };
        let Some(fetched) = self.fetch().await else { return };
        if let Some(this) = self.unless_stored(&fetched) {
            this.conclude_slice(fetched, slice).await;
        }
    }

    async fn conclude_slice(self, fetched: Fetched, slice: SliceRange) {
        let status = self.part.response.status;
        let is_error = status.code() >= 500;
        if status == Status::PARTIAL_CONTENT {
            return match self.slice_head(&fetched, &slice) {
                Ok((version, head)) => self.depart_with(&slice, &version, head).await,
                Err(reason) => self.refuse(&slice, reason),
            };
        }
        match status {
            // Without ranges, or of another version.
            Status::OK if slice.expected.is_some() => {
                self.drop_slices(&slice);
                self.pilot.retry();
            }
            _ if slice.expected.is_some() && is_error => self.pilot.fail(status.code()),
            Status::NOT_MODIFIED => self.pilot.part(),
            // It may be about the client alone, and says nothing about the stored slices.
            _ if slice.expected.is_some() => self.give_away(Unstorable::Partial),
            Status::RANGE_NOT_SATISFIABLE => self.give_away(Unstorable::Partial),
            _ if is_error => self.give_away(Unstorable::ServerError),
            _ if !self.is_for_whole(&slice) => self.give_away(Unstorable::Partial),
            _ => self.become_whole(fetched, slice).await,
        }
    }

    fn slice_head(
        &self,
        fetched: &Fetched,
        slice: &SliceRange,
    ) -> Result<(SliceVersion, FlightHead), Unsliceable> {
        let (version, length) = slice.version(&self.part)?;
        let (policy, fields) = (&self.settings.policy, &self.part.response.fields);
        let request = fetched.request(&self.part);
        let freshness = rules::storable_part(&request, fields, policy, fetched.times)
            .map_err(Unsliceable::Unstorable)?;
        let is_fresh = freshness.is_fresh(fetched.times.received_s);
        if !is_fresh || freshness.flags.contains(FreshnessFlags::NO_CACHE) {
            return Err(Unsliceable::Stale);
        }
        let mut head = self.head(fetched, freshness).map_err(Unsliceable::Unstorable)?;
        let own_tag = self.store.slices_tag(&slice.key);
        head.head.tags = head.head.tags.iter().copied().chain([own_tag]).collect();
        head.length = Some(length);
        Ok((version, head))
    }

    /// Passes a slice on, unless it is of another version than the ones before.
    async fn depart_with(self, slice: &SliceRange, version: &SliceVersion, head: FlightHead) {
        if slice.expected.as_ref().is_some_and(|expected| expected != version) {
            // If it is known, only the request is behind.
            if self.store.is_noted(&slice.key, &head.selecting, version) != Some(true) {
                self.drop_slices(slice);
            }
            return self.pilot.retry();
        }
        if !self.store.note_version(&slice.key, &head.selecting, version) {
            self.drop_slices(slice);
        }
        self.stream(head).await;
    }

    fn drop_slices(&self, slice: &SliceRange) {
        let now_ms = self.part.machine.clock.mono_ms();
        drop_versions(&self.store, &slice.key, now_ms, self.settings.pass_ms);
    }

    /// The response is no slice: the requests that wait for it go to the backend.
    fn refuse(self, slice: &SliceRange, reason: Unsliceable) {
        if self.settings.debug > 0 {
            self.part.log(Level::Notice, &format!("cache: not sliced: {reason}"));
        }
        if reason.is_lasting() {
            let until_ms = self.part.machine.clock.mono_ms() + self.settings.pass_ms;
            let (mark, has_credentials) = (SliceMark::Passes, self.has_credentials);
            self.store.mark_slices(&slice.key, mark, has_credentials, until_ms);
        }
        self.pilot.part();
    }

    /// The first request gets the response, and the others ask the backend.
    fn give_away(self, reason: Unstorable) {
        if let Some(handover) = &self.handover {
            handover.give(Unshared { part: self.part, reason: Some(reason) });
        }
        self.pilot.part();
    }

    /// True if the response would be the same to a request for the whole. An offset that a client
    /// has chosen may have led to any other one.
    fn is_for_whole(&self, slice: &SliceRange) -> bool {
        let response = &self.part.response;
        let length = response.declared_length.or_else(|| response.body.known_length());
        let has_slice = length.is_none_or(|length| length > slice.start());
        slice.start() == 0 || response.status == Status::OK && has_slice
    }

    /// The response is to a request for the whole, too.
    async fn become_whole(mut self, fetched: Fetched, slice: SliceRange) {
        let now_ms = self.part.machine.clock.mono_ms();
        if self.part.response.status == Status::OK {
            let until_ms = now_ms + self.settings.pass_ms;
            let (mark, has_credentials) = (SliceMark::IgnoresRanges, self.has_credentials);
            self.store.mark_slices(&slice.key, mark, has_credentials, until_ms);
        }
        let store = Arc::clone(&self.store);
        match store.join(&slice.key, &fetched.fields, self.has_credentials, now_ms) {
            Joined::Begins(mut pilot, passenger) => {
                pilot.succeed(&self.pilot);
                // Before the request that began the flight learns of it. If that has left, the
                // flight is kept until the others have had time to board it.
                let kept = match &self.handover {
                    Some(handover) => handover.give_whole(passenger),
                    None => Some(passenger),
                };
                std::mem::replace(&mut self.pilot, pilot).retry();
                self.slice = None;
                if kept.is_some() {
                    tokio::task::yield_now().await;
                }
                drop(kept);
                self.conclude(fetched).await;
            }
            Joined::Passenger(_) | Joined::Full | Joined::Failed(_) => self.pilot.retry(),
            Joined::Passes => self.give_away(Unstorable::Partial),
        }
    }
}
