//! Turns the head of the backend's response into the response to the client.

use lighty_core::pipeline::read_ahead::SpooledResponse;
use lighty_core::{Body, Fault, FaultReport, Step, UnknownLength};
use lighty_http::hop_by_hop::is_upgrade_requested;
use lighty_http::{Known, Status, incremental};

use super::Serving;
use crate::connect::pool::Connection;
use crate::request::replayable_body::ReplayableBody;
use crate::request::sticky;
use crate::response::internal_redirect::{self, InternalRedirect};
use crate::response::reply;
use crate::response::upstream_body::{BodyTransfer, UpstreamBody};
use crate::route::rules::StreamBody;
use crate::serve::upstream_call::UpstreamCall;

/// Bodies up to this size that arrived with their head are sent together with it.
const WHOLE_BYTES_MAX: usize = 16 * 1024;

impl Serving<'_> {
    /// Builds the response from a completed call.
    pub(super) fn respond(
        &mut self,
        call: Box<UpstreamCall>,
        connection: Connection,
    ) -> Result<Step<'static>, FaultReport> {
        if call.response.upgrade {
            let agreed = call.response.fields.get_all(Known::Upgrade);
            if !is_upgrade_requested(&self.ex.request.fields, agreed) {
                return Err(another_protocol(&connection));
            }
            return Ok(reply::hand_over(self.ex, call, connection, (&self.local, &self.route)));
        }
        if self.route.is_authorizer() && call.response.status == Status::OK {
            reply::take_variables(self.ex, &call.response.fields);
            let transfer = BodyTransfer { call, connection, upload: ReplayableBody::none() };
            // The body is meaningless, but reading it keeps the connection reusable.
            UpstreamBody::new(transfer, &self.local, None).discard();
            return Ok(Step::Next);
        }
        let redirect = internal_redirect::requested(&call.response, &self.route.response);
        if let Err(undecided) = reply::take_head(self.ex, &call, &self.route) {
            let transfer = BodyTransfer { call, connection, upload: ReplayableBody::none() };
            UpstreamBody::new(transfer, &self.local, None).discard();
            self.ex.fail_saying(Fault::PatternLimit, &undecided.message);
            return Ok(Step::Answered);
        }
        let is_unknown =
            self.ex.request.is_head() && self.ex.response.head_content_length.is_none();
        sticky::set_cookie(self.ex, &self.upstream.spec.balancer, &connection.permit.address);
        let mut upload = std::mem::take(&mut self.upload);
        if let Some(redirect) = redirect {
            return self.redirect_internally(redirect, upload, call, connection);
        }
        upload.forget();
        let transfer = BodyTransfer { call, connection, upload };
        let mut body = UpstreamBody::new(transfer, &self.local, self.ex.client.clone());
        if self.route.response.intercept_errors && self.ex.response.status.code() >= 400 {
            body.discard();
            reply::intercept(self.ex);
            return Ok(Step::Answered);
        }
        self.ex.response.body = match body.take_whole(WHOLE_BYTES_MAX) {
            Some(_) if is_unknown => Body::Stream(Box::new(UnknownLength)),
            Some(whole) => Body::Memory(whole),
            None => {
                let streams = incremental::is_requested(&self.ex.response.fields);
                let stream = match self.route.response.stream {
                    StreamBody::Spool if streams => StreamBody::Stream,
                    stream => stream,
                };
                SpooledResponse::body(self.ex, body, stream)
            }
        };
        self.ex.response.answered = true;
        Ok(Step::Answered)
    }

    /// Performs an internal redirect.
    fn redirect_internally(
        &mut self,
        redirect: InternalRedirect,
        mut upload: ReplayableBody,
        call: Box<UpstreamCall>,
        connection: Connection,
    ) -> Result<Step<'static>, FaultReport> {
        let backend = format!("backend {}", connection.permit.address.spec.text);
        if matches!(redirect, InternalRedirect::Rewrite(_)) && !self.route.is_authorizer() {
            // The next handler gets the same body.
            let was_sent = upload.is_over();
            self.ex.body = upload.into_body().ok_or_else(|| {
                let message = "X-Rewrite after a body that cannot be sent again";
                FaultReport::new(Fault::BackendMalformed, message).about(&backend)
            })?;
            upload = if was_sent { ReplayableBody::none() } else { ReplayableBody::default() };
        }
        let transfer = BodyTransfer { call, connection, upload };
        UpstreamBody::new(transfer, &self.local, None).discard();
        redirect.obey(self.ex, &self.route.response).map_err(|report| report.about(&backend))
    }
}

/// The client would misread the bytes that follow.
#[cold]
fn another_protocol(connection: &Connection) -> FaultReport {
    let message = "101 to another protocol than the client asked for";
    connection.permit.address.count_failure();
    let text = &connection.permit.address.spec.text;
    FaultReport::new(Fault::BackendMalformed, format!("backend {text}: {message}"))
}
