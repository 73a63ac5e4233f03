//! Encoded forms of stored responses, for the module that encodes: found in the store, or made once
//! and shared by all requests that come meanwhile.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use lighty_cache::flight::Passenger;
use lighty_cache::object::Object;
use lighty_cache::store::{FormOf, JoinedForm, Pilot, ResponseStore};
use lighty_core::exchange::body::Body;
use lighty_core::exchange::encoded_forms::{EncodedForms, FormSearch};
use lighty_core::exchange::response::BodyOrigin;
use lighty_core::{Exchange, Filter, Machine};
use lighty_http::Known;

use super::answer::{OpenContent, WholeContent};
use super::body::FlightBody;
use super::cold::ColdStart;
use super::fill::bytes_of;
use super::stalls::StallChecks;

/// Uses of a stored response from which on its forms are kept.
const DUE_USES: u8 = 2;

/// A longer body is read for its checksum on a thread.
const SUMMED_AT_ONCE_BYTES: u64 = 256 << 10;

/// The forms of a stored response.
struct StoredForms {
    store: Arc<ResponseStore>,
    object: Arc<Object>,
}

/// Offers the forms of a stored response with which a request was answered.
pub(super) fn offer(ex: &mut Exchange, store: &Arc<ResponseStore>, object: &Arc<Object>) {
    let head = &object.head;
    let is_offered = ex.response.status == head.status
        && ex.request.fields.contains(Known::AcceptEncoding)
        && !head.fields.contains(Known::ContentEncoding)
        && !object.content.is_empty();
    if is_offered {
        let forms = StoredForms { store: Arc::clone(store), object: Arc::clone(object) };
        ex.response.origin = BodyOrigin::Stored(Rc::new(forms));
    }
}

impl StoredForms {
    fn form<'a>(&'a self, name: &'a [u8]) -> FormOf<'a> {
        FormOf { object: &self.object, name }
    }

    /// The body of a form, if it can be read.
    fn body(&self, ex: &Exchange, form: &Arc<Object>) -> Option<Body> {
        let Some(mut content) = OpenContent::of(&self.store, form) else {
            self.store.drop_from_memory(form);
            return None;
        };
        let length = content.length();
        Some(content.part(&ex.machine.engine, 0, length))
    }

    /// Takes the checksum of the body.
    async fn sum(&self, ex: &Exchange) {
        if self.object.unsummed_bytes() > SUMMED_AT_ONCE_BYTES {
            let object = Arc::clone(&self.object);
            // If no thread can be had, it is taken here.
            let _ = ex.machine.engine.compute(move || object.take_body_sum()).await;
        }
    }

    /// The form on the disk.
    async fn load(&self, ex: &Exchange, name: &[u8]) -> Option<Arc<Object>> {
        let place = self.store.locate_form(self.form(name))?;
        let (store, object, name) =
            (Arc::clone(&self.store), Arc::clone(&self.object), name.to_vec());
        let load = move || store.load_form(FormOf { object: &object, name: &name }, &place);
        ex.machine.engine.run_read(load).await.ok().flatten()
    }
}

impl EncodedForms for StoredForms {
    fn at_hand(&self, ex: &Exchange, name: &[u8]) -> Option<Body> {
        if self.object.unsummed_bytes() > SUMMED_AT_ONCE_BYTES {
            return None;
        }
        let form = self.store.find_form(self.form(name))?;
        let is_readable = ColdStart::of(ex, &form).is_none();
        if is_readable { self.body(ex, &form) } else { None }
    }

    fn find<'a>(&'a self, ex: &'a Exchange, name: &'a [u8]) -> FormSearch<'a> {
        Box::pin(async move {
            self.sum(ex).await;
            let form = match self.store.find_form(self.form(name)) {
                Some(form) => Some(form),
                None => self.load(ex, name).await,
            };
            let Some(form) = form else {
                let passenger = self.store.board_form(self.form(name))?;
                return Some(arriving(ex, passenger));
            };
            if let Some(start) = ColdStart::of(ex, &form)
                && !start.read(ex).await
            {
                self.store.remove_damaged(&form);
                return None;
            }
            self.body(ex, &form)
        })
    }

    fn is_due(&self) -> bool {
        self.object.recent_uses() >= DUE_USES
            && self.object.content.len() <= self.store.object_bytes_max()
    }

    fn make(
        &self,
        ex: &Exchange,
        name: &[u8],
        encoder: Box<dyn Filter>,
    ) -> Result<Body, Box<dyn Filter>> {
        let Some(plain) = self.body(ex, &self.object) else { return Err(encoder) };
        match self.store.join_form(self.form(name)) {
            None => Err(encoder),
            Some(JoinedForm::Passenger(passenger)) => Ok(arriving(ex, passenger)),
            Some(JoinedForm::Begins(pilot, passenger)) => {
                let encoded = plain.filtered(encoder, &ex.machine.engine);
                tokio::task::spawn_local(store(pilot, encoded, Rc::clone(&ex.machine)));
                Ok(arriving(ex, passenger))
            }
        }
    }
}

/// A form that is being made, as a body.
fn arriving(ex: &Exchange, passenger: Passenger) -> Body {
    let gone = Box::pin(ex.client_gone());
    Body::Stream(Box::new(FlightBody::new(passenger, None, gone)))
}

/// Stores a body, whose pieces are in memory, and gives them to all that wait for it. Dropped, the
/// pilot tells them that it has broken off.
async fn store(mut pilot: Pilot, body: Body, machine: Rc<Machine>) {
    let Body::Stream(mut body) = body else { return };
    let mut is_storable = true;
    let mut stalls = StallChecks::begin(&machine);
    loop {
        let next = poll_fn(|cx| {
            if !is_storable && pilot.poll_empty(cx).is_ready() {
                return Poll::Ready(None);
            }
            std::task::ready!(pilot.poll_room(cx));
            body.poll_next(cx).map(Some)
        });
        let Some(next) = stalls.limit(&machine, next).await else {
            stalls.check(&machine, &pilot);
            continue;
        };
        match next {
            Some(Some(Ok(chunk))) => match bytes_of(chunk) {
                Some(piece) => is_storable &= pilot.push(piece),
                None => return,
            },
            Some(None) => return pilot.land(),
            Some(Some(Err(_))) | None => return,
        }
    }
}
