//! The way of a request through rules and store, as the server goes it, with one request at a time
//! and a simulated clock.

use std::sync::Arc;

use bytes::Bytes;
use lighty_cache::flight::FlightHead;
use lighty_cache::key::{Key, KeyWriter};
use lighty_cache::object::{Object, StoredHead};
use lighty_cache::purge::KeyPlaces;
use lighty_cache::rules::{
    self, CacheRequest, Exchanged, Freshness, Policy, Reuse, Vary, selecting_key, selecting_names,
};
use lighty_cache::store::{Joined, Limits, Pilot, ResponseStore};
use lighty_http::{Fields, Known, Method, Status};

pub(crate) const HOST: &[u8] = b"a.example";

/// A store of so many bytes.
pub(crate) fn store(memory: u64, variants: usize) -> Arc<ResponseStore> {
    let limits = Limits { memory, object_bytes: 1 << 20, disk_from_bytes: u64::MAX, variants };
    ResponseStore::new(limits, KeyPlaces { host: 0, target: 1 }, [1; 16])
}

/// The key of a URL.
pub(crate) fn key(target: &[u8]) -> Key {
    KeyWriter::default().part(HOST).part(target).finish()
}

/// The source of a response to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The store had this body.
    Stored(Vec<u8>),
    /// The store had this body, and it is stale.
    Stale(Vec<u8>),
    /// The backend said that this body is still valid.
    Validated(Vec<u8>),
    /// The backend gave a new one.
    Fetched,
}

/// A client's request, and the backend's response in case that it is asked.
pub(crate) struct Ask<'a> {
    pub(crate) target: &'a [u8],
    pub(crate) fields: &'a Fields,
    pub(crate) response: &'a Fields,
    pub(crate) body: &'a [u8],
    /// The backend answers a condition with 304.
    pub(crate) is_unchanged: bool,
    pub(crate) now_s: i64,
}

impl Ask<'_> {
    fn request(&self) -> CacheRequest<'_> {
        CacheRequest {
            method: Some(Method::Get),
            fields: self.fields,
            is_identified: false,
            has_body: false,
            has_query: false,
        }
    }

    fn times(&self) -> Exchanged {
        Exchanged { sent_s: self.now_s, received_s: self.now_s }
    }

    /// Serves the request. `meanwhile` runs while the backend is asked.
    pub(crate) fn serve(
        &self,
        store: &Arc<ResponseStore>,
        policy: &Policy,
        meanwhile: impl FnOnce(),
    ) -> Outcome {
        let key = key(self.target);
        let found = store.find(&key, self.fields);
        if let Some(object) = &found {
            let mut freshness = object.head.freshness;
            if object.is_purged_softly() {
                freshness = freshness.expired(self.now_s);
            }
            let body = object.content.pieces().concat();
            match rules::reuse(&freshness, &self.request(), policy, self.now_s) {
                Reuse::Fresh => return Outcome::Stored(body),
                Reuse::Stale { .. } => return Outcome::Stale(body),
                _ => {}
            }
        }
        let Joined::Begins(pilot, _passenger) = store.join(&key, self.fields, false, 0) else {
            panic!("a flight is still under way");
        };
        meanwhile();
        let condition = found.filter(|object| object.head.fields.contains(Known::ETag));
        match condition.filter(|_| self.is_unchanged) {
            Some(stored) => self.renew(store, policy, pilot, &stored),
            None => {
                self.fetch(policy, pilot);
                Outcome::Fetched
            }
        }
    }

    fn renew(
        &self,
        store: &ResponseStore,
        policy: &Policy,
        pilot: Pilot,
        stored: &Arc<Object>,
    ) -> Outcome {
        let body = stored.content.pieces().concat();
        let mut fields = stored.head.fields.clone();
        rules::update(&mut fields, self.response, policy, self.now_s);
        let (request, status) = (self.request(), stored.head.status);
        match rules::refresh(&request, status, &fields, self.response, policy, self.times()) {
            Ok(freshness) => {
                pilot.renew(stored, StoredHead { fields, freshness, ..stored.head.clone() });
            }
            Err(reason) => {
                if reason.scope() == rules::StorabilityScope::Key {
                    store.remove(stored);
                }
                pilot.land_as(stored);
            }
        }
        Outcome::Validated(body)
    }

    fn fetch(&self, policy: &Policy, mut pilot: Pilot) {
        let stored =
            rules::storable(&self.request(), Status::OK, self.response, policy, self.times());
        let Vary::Names(names) = selecting_names(self.response) else { return pilot.part() };
        match stored {
            Ok(freshness) => {
                pilot.depart(self.head(policy, freshness, names));
                pilot.push(Bytes::copy_from_slice(self.body));
                pilot.land();
            }
            Err(_) => pilot.part(),
        }
    }

    fn head(&self, policy: &Policy, freshness: Freshness, names: Vec<Box<[u8]>>) -> FlightHead {
        let mut fields = rules::stored_fields(Status::OK, self.response, policy);
        if !fields.contains(Known::Date) {
            fields.set(Known::Date, lighty_http::date::format(self.now_s));
        }
        let selecting = selecting_key(&names, self.fields).into();
        let (status, names, tags) = (Status::OK, names.into(), Box::default());
        let head = StoredHead { status, fields, freshness, names, tags, language: None };
        FlightHead { head, selecting, length: None }
    }
}
