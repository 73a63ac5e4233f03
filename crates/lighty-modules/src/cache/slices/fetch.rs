//! The backend's response to a request for a slice.

use std::sync::Arc;

use lighty_cache::flight::{FetchFailure, FlightHead};
use lighty_cache::key::Key;
use lighty_cache::rules::{self, FreshnessFlags, Unstorable, Vary};
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
                if !self.is_behind(&fetched, &slice) {
                    self.drop_slices(&slice);
                }
                self.pilot.retry();
            }
            _ if slice.expected.is_some() && is_error => {
                self.pilot.fail(FetchFailure { status: status.code(), fault: None });
            }
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

    /// Stores a slice, and passes it on. If it shows a change, the slices of the version before are
    /// dropped; readers find the change themselves.
    async fn depart_with(mut self, slice: &SliceRange, version: &SliceVersion, head: FlightHead) {
        let is_noted = self.store.is_noted(&slice.key, &head.selecting, version);
        if is_noted == Some(false) && self.pilot.is_behind_drop(&slice.key) {
            // The slices that were fetched since then are newer.
            return self.stream(head).await;
        }
        let is_expected = slice.expected.as_ref().is_none_or(|expected| expected == version);
        if is_noted == Some(false) || is_noted.is_none() && !is_expected {
            self.drop_slices(slice);
        }
        self.store.note_version(&slice.key, &head.selecting, version);
        self.pilot.outlive_drop(&slice.key, &head.head.tags);
        if !slice.has_whole(version) {
            self.pilot.set_sliced();
        }
        self.stream(head).await;
    }

    /// True if the request for a slice is of a version that is known not to be the last one: it
    /// says nothing about the slices of that.
    fn is_behind(&self, fetched: &Fetched, slice: &SliceRange) -> bool {
        if self.pilot.is_behind_drop(&slice.key) {
            return true;
        }
        let Vary::Names(names) = rules::selecting_names(&self.part.response.fields) else {
            return false;
        };
        let selecting = rules::selecting_key(&names, &fetched.fields);
        let is_noted = |version| self.store.is_noted(&slice.key, &selecting, version);
        slice.expected.as_ref().and_then(is_noted) == Some(false)
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
            Joined::Passes | Joined::Crowded => self.give_away(Unstorable::Partial),
        }
    }
}
