//! Encoded forms of stored responses: in place of encoding a response at each request.

use std::rc::Rc;

use lighty_core::exchange::encoded_forms::EncodedForms;
use lighty_core::module::Step;
use lighty_core::{Body, Exchange, Settings};

use super::coding::{AcceptedCodings, Coding};
use super::compress_filter::CompressFilter;
use super::settings::DeflateSettings;
use super::{Deflate, first_coding, note, plan, set_fields};

impl Deflate {
    /// Sends the form of a stored response. If there is none, it is made, or the response is
    /// encoded for this request alone.
    pub(super) fn respond_with_form<'a>(
        &'a self,
        ex: &'a mut Exchange,
        settings: &Rc<Settings>,
        wanted: AcceptedCodings,
        forms: Rc<dyn EncodedForms>,
    ) -> Step<'a> {
        let own = settings.module::<DeflateSettings>();
        let Some(coding) = first_coding(ex, &wanted) else { return Step::Next };
        let form = own.params.form(coding);
        if let Some(body) = forms.at_hand(ex, &form) {
            give(ex, own, coding, body);
            return Step::Next;
        }
        let settings = Rc::clone(settings);
        Step::Wait(Box::pin(async move {
            let own = settings.module::<DeflateSettings>();
            let found = match forms.find(ex, &form).await {
                Some(found) => Some(found),
                None => self.make(ex, own, coding, &*forms, &form),
            };
            // A HEAD response has the length of the form, so one that is being made is of no use.
            match found.filter(|body| !ex.request.is_head() || body.known_length().is_some()) {
                Some(body) => give(ex, own, coding, body),
                None => self.encode(ex, own, &wanted, None),
            }
            Step::Next
        }))
    }

    /// Has the form made, unless it is for few requests, or load or memory forbids it.
    fn make(
        &self,
        ex: &Exchange,
        own: &DeflateSettings,
        coding: Coding,
        forms: &dyn EncodedForms,
        form: &[u8],
    ) -> Option<Body> {
        if ex.request.is_head() || !forms.is_due() || self.is_loaded(ex, own) {
            return None;
        }
        let plan = plan(ex, own, coding, self.lend(ex, own, coding).ok()?).ok()?;
        let encoder = CompressFilter::new(plan, &ex.machine.engine);
        forms.make(ex, form, Box::new(encoder)).ok()
    }
}

/// Sends an encoded body.
fn give(ex: &mut Exchange, own: &DeflateSettings, coding: Coding, body: Body) {
    set_fields(ex, coding);
    if ex.request.is_head() {
        ex.response.head_content_length = body.known_length();
        ex.response.body = Body::Empty;
    } else {
        ex.response.body = body;
    }
    note(ex, own, coding, "stored");
}
