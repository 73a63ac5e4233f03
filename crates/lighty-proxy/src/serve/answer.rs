//! From the head of a backend's answer to what the client is given.

use std::sync::Arc;

use lighty_core::read_ahead::SpooledAnswer;
use lighty_core::{Body, Fault, Step, Untold};
use lighty_http::hop_by_hop::is_upgrade_asked_for;
use lighty_http::{Known, Status};

use super::{Failure, Serving};
use crate::courier::Courier;
use crate::download::{Carriage, Download};
use crate::pool::Connection;
use crate::turn::{self, Turn};
use crate::upload::Upload;
use crate::{reply, sticky};

/// Bodies up to this size that came with their head leave with it in one call.
const WHOLE_BYTES_MAX: usize = 16 * 1024;

impl Serving<'_> {
    /// Turns what the courier brought into the answer.
    pub(super) fn answer(
        &mut self,
        courier: Box<Courier>,
        connection: Connection,
    ) -> Result<Step<'static>, Failure> {
        if courier.answer.upgrade {
            let agreed = courier.answer.fields.get_all(Known::Upgrade);
            if !is_upgrade_asked_for(&self.ex.request.fields, agreed) {
                return Err(another_protocol(&connection));
            }
            return Ok(reply::hand_over(self.ex, courier, connection, &self.local));
        }
        if self.route.is_authorizer() && courier.answer.status == Status::OK {
            reply::take_variables(self.ex, &courier.answer.fields);
            let carriage = Carriage { courier, connection, upload: Upload::none() };
            // What comes behind the head means nothing; read, it leaves the connection usable.
            Download::new(carriage, &self.local, None).discard();
            return Ok(Step::Next);
        }
        let turn = turn::asked(&courier.answer, &self.route.response);
        if let Err(undecided) = reply::take_head(self.ex, &courier, &self.route) {
            let carriage = Carriage { courier, connection, upload: Upload::none() };
            Download::new(carriage, &self.local, None).discard();
            self.ex.fail_saying(Fault::PatternLimit, &undecided.words);
            return Ok(Step::Answered);
        }
        let untold = self.ex.request.is_head() && self.ex.response.described_length.is_none();
        sticky::tell(self.ex, &self.upstream.spec.balancer, &connection.place.address);
        let mut upload = std::mem::take(&mut self.upload);
        if let Some(turn) = turn {
            return self.take_turn(turn, upload, courier, connection);
        }
        upload.forget();
        let carriage = Carriage { courier, connection, upload };
        let mut download = Download::new(carriage, &self.local, self.ex.link.clone());
        if self.route.response.intercept_errors && self.ex.response.status.code() >= 400 {
            download.discard();
            reply::intercept(self.ex);
            return Ok(Step::Answered);
        }
        self.ex.response.body = match download.take_whole(WHOLE_BYTES_MAX) {
            Some(_) if untold => Body::Stream(Box::new(Untold)),
            Some(whole) => Body::Memory(whole),
            None => SpooledAnswer::body(self.ex, download, self.route.response.stream),
        };
        self.ex.response.answered = true;
        Ok(Step::Answered)
    }

    /// Does what the answer asks for in its own place.
    fn take_turn(
        &mut self,
        turn: Turn,
        mut upload: Upload,
        courier: Box<Courier>,
        connection: Connection,
    ) -> Result<Step<'static>, Failure> {
        let text = Arc::clone(&connection.place.address.spec.text);
        let failure = |fault, words| Failure { fault, words: format!("backend {text}: {words}") };
        if matches!(turn, Turn::Rewrite(_)) && !self.route.is_authorizer() {
            // Whoever comes next is sent what this one was.
            let was_sent = upload.is_over();
            self.ex.body = upload.into_body().ok_or_else(|| {
                let words = "X-Rewrite after a body that cannot be sent again".to_owned();
                failure(Fault::BackendMalformed, words)
            })?;
            upload = if was_sent { Upload::none() } else { Upload::default() };
        }
        let carriage = Carriage { courier, connection, upload };
        Download::new(carriage, &self.local, None).discard();
        turn.obey(self.ex, &self.route.response).map_err(|(fault, words)| failure(fault, words))
    }
}

/// What follows would not be what the client takes it for.
#[cold]
fn another_protocol(connection: &Connection) -> Failure {
    let words = "101 to another protocol than the client asked for";
    let text = &connection.place.address.spec.text;
    Failure { fault: Fault::BackendMalformed, words: format!("backend {text}: {words}") }
}
