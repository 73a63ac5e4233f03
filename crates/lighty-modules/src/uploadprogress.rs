//! `mod_uploadprogress`: reports the progress of an upload to a page that displays it.
//!
//! The uploading client gives the request an id of 32 hexadecimal digits, and polls a separate URL
//! with the same id. All workers share the table of uploads. Bytes count as they reach the server,
//! independent of the handler.

mod report;
mod table;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Directive, Scope};
use lighty_core::exchange::body::BodyMeter;
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Extension, Fault, Level, Settings, extension_slot, module_settings};
use lighty_http::{Known, Method, Status, accept};
use table::{Full, Outcome, Watch};

pub use table::Uploads;

/// The request field or query argument that carries the id of an upload.
const ID_NAME: &[u8] = b"X-Progress-ID";

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct UploadProgressSettings {
    url: Arc<str>,
    remember_s: u32,
    debug: bool,
    always_json: bool,
    uploads_max: usize,
}

impl Default for UploadProgressSettings {
    fn default() -> Self {
        Self {
            url: "".into(),
            remember_s: 60,
            debug: false,
            always_json: false,
            uploads_max: table::UPLOADS_MAX,
        }
    }
}
module_settings!(UploadProgressSettings);

/// The module.
pub struct UploadProgress {
    uploads: Uploads,
}

impl UploadProgress {
    /// Creates a worker's instance; all workers share `uploads`.
    pub fn new(uploads: Uploads) -> Self {
        Self { uploads }
    }
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_uploadprogress")
}

fn own(s: &mut Settings) -> &mut UploadProgressSettings {
    s.module_mut()
}

impl Module for UploadProgress {
    fn name(&self) -> &'static str {
        "mod_uploadprogress"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { clean_url: true, done: true, ..Hooks::default() },
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<UploadProgressSettings>().url.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        let mut rows = tracking();
        rows.extend(details());
        rows
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<UploadProgressSettings>();
        // This request is for an error page; its upload has been handled already.
        if own.url.is_empty() || ex.state.error_status.is_some() {
            return Step::Next;
        }
        let Some(id) = id_of(ex) else { return Step::Next };
        if ex.request.method.is_some_and(Method::is_get_or_head) {
            if ex.request.path != own.url.as_bytes() {
                return Step::Next;
            }
            self.report(id, own, ex);
            return Step::Answered;
        }
        if ex.body.exists() && ex.ext::<Watched>().is_none() {
            self.enter(id, own, ex);
        }
        Step::Next
    }

    fn done(&self, ex: &Exchange) {
        let own = ex.settings.module::<UploadProgressSettings>();
        let meter = ex.ext::<Watched>().and_then(|watched| watched.0.as_ref()).map(Watch::meter);
        if meter.is_none() && !may_be_refused(ex, own) {
            return;
        }
        let Some(id) = id_of(ex) else { return };
        let outcome = outcome_of(ex, meter);
        let until_ms = ex.machine.clock.mono_ms().saturating_add(u64::from(own.remember_s) * 1000);
        let mut table = self.uploads.lock();
        match meter {
            // Ignore the method: error handlers are requested by GET.
            Some(meter) => table.end(id, meter, outcome, until_ms),
            None => table.refuse(id, outcome, until_ms, own.uploads_max),
        }
        drop(table);
        if own.debug {
            ex.log(Level::Notice, &format!("upload {id:032x} has ended: {outcome:?}"));
        }
    }
}

impl UploadProgress {
    fn enter(&self, id: u128, own: &UploadProgressSettings, ex: &mut Exchange) {
        let meter = Arc::new(BodyMeter::default());
        let now_ms = ex.machine.clock.mono_ms();
        let mut table = self.uploads.lock();
        table.expire(now_ms);
        let entered = table.begin(id, &meter, ex.body.announced(), own.uploads_max);
        drop(table);
        match entered {
            Ok(()) => {
                ex.body.measure(Arc::clone(&meter));
                ex.ext_mut::<Watched>().0 = Some(Watch::of(&self.uploads, id, &meter));
                if own.debug {
                    ex.log(Level::Notice, &format!("upload {id:032x} begins"));
                }
            }
            Err(Full) => ex.log(
                Level::Info,
                "an upload goes unwatched: upload-progress.max-uploads is reached",
            ),
        }
    }

    fn report(&self, id: u128, own: &UploadProgressSettings, ex: &mut Exchange) {
        let mut table = self.uploads.lock();
        table.expire(ex.machine.clock.mono_ms());
        let state = table.state(id);
        drop(table);
        if own.debug {
            ex.log(Level::Notice, &format!("upload {id:032x}: {state:?}"));
        }
        let accepted = ex.request.fields.get(Known::Accept);
        let json = own.always_json || accept::prefers(accepted, report::JSON, report::SCRIPT);
        report::fill(&state, json, &mut ex.response);
        if !own.always_json {
            ex.response.fields.push_known(Known::Vary, "Accept");
        }
    }
}

/// The upload of a request, if it is being tracked.
#[derive(Default)]
struct Watched(Option<Watch>);

impl Extension for Watched {
    extension_slot!();
}

/// Returns true if the request may be an upload refused before it began, for example by its length.
fn may_be_refused(ex: &Exchange, own: &UploadProgressSettings) -> bool {
    let reads = ex.request.method.is_none_or(Method::is_get_or_head);
    !own.url.is_empty() && !reads && ex.response.status.code() >= 400
}

/// Returns the outcome of a finished upload.
fn outcome_of(ex: &Exchange, meter: Option<&Arc<BodyMeter>>) -> Outcome {
    let code = ex.response.status.code();
    let received = meter.map_or(0, |meter| meter.received());
    if ex.state.fault == Some(Fault::ClientGone) {
        return Outcome::Failed(Status::BAD_REQUEST.code());
    }
    if code >= 400 { Outcome::Failed(code) } else { Outcome::Done { received } }
}

/// Returns the id that a request carries as a field, or else in the query as the client sent it.
fn id_of(ex: &Exchange) -> Option<u128> {
    if let Some(value) = ex.request.fields.get_named(ID_NAME) {
        return parse_id(value);
    }
    let target = &ex.request.target_raw;
    let query = &target[target.iter().position(|byte| *byte == b'?')? + 1..];
    query.split(|byte| *byte == b'&').find_map(|argument| {
        let (name, value) = argument.split_at_checked(ID_NAME.len() + 1)?;
        let name = name.strip_suffix(b"=")?;
        name.eq_ignore_ascii_case(ID_NAME).then(|| parse_id(value))?
    })
}

/// Parses an id of exactly 32 hexadecimal digits.
fn parse_id(text: &[u8]) -> Option<u128> {
    let fits = text.len() == 32 && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| fits)?;
    u128::from_str_radix(text, 16).ok()
}

fn tracking() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::string("upload-progress.progress-url", |s, v| own(s).url = v))
            .default("")
            .since("1.5")
            .doc(
                "Path that reports the progress of uploads. Empty: off. A request with a body \
                 and an `X-Progress-ID` of exactly 32 hexadecimal digits, as a header field or as \
                 an argument of its query, is watched; a GET of this path with the same id is \
                 answered `new Object({ 'state' : 'uploading', 'received' : 131072, 'size' : \
                 600000})`, or with the state `'starting'` (no such upload yet), `'done'` (with \
                 `size`) or `'error'` (with the `status` of the response). A client that prefers \
                 `Accept: application/json` gets the same as JSON. `received` counts what has \
                 reached the server, for any handler and in any worker; `size` is 0, in JSON \
                 `null`, for an upload that comes in chunks. Without a proper id the path is as \
                 any other. Must be set for the uploads too: do not put it into a condition that \
                 only the path itself fulfils.",
            )
            .example("upload-progress.progress-url = \"/progress\""),
        row(Directive::bool("upload-progress.json", |s, on| own(s).always_json = on))
            .default("disable")
            .since("lighty 0.1")
            .doc("Report progress as JSON to every client.")
            .example("upload-progress.json = \"enable\""),
    ]
}

fn details() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::int("upload-progress.remove-timeout", 0..=i64::from(u16::MAX), |s, v| {
            own(s).remember_s = u32::try_from(v).unwrap_or(0);
        }))
        .default("60")
        .since("1.5")
        .doc("Seconds for which a completed upload is remembered.")
        .example("upload-progress.remove-timeout = 30"),
        row(Directive::int("upload-progress.max-uploads", 1..=1_000_000, |s, v| {
            own(s).uploads_max = usize::try_from(v).unwrap_or(1);
        }))
        .scope(Scope::Server)
        .default("4096")
        .since("lighty 0.1")
        .doc(
            "Maximum number of uploads in progress or remembered, in all workers together. New \
             uploads replace completed ones; at the limit an upload is served without a record.",
        )
        .example("upload-progress.max-uploads = 256"),
        row(Directive::bool("upload-progress.debug", |s, on| own(s).debug = on))
            .default("disable")
            .since("1.5")
            .doc("Log each upload, and each request for its progress, to the error log.")
            .example("upload-progress.debug = \"enable\""),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_32_hexadecimal_digits() {
        assert_eq!(parse_id(b"000000000000000000000000000000ff"), Some(255));
        assert_eq!(parse_id(b"000000000000000000000000000000FF"), Some(255));
        for bad in [
            &b""[..],
            b"0000000000000000000000000000000",
            b"000000000000000000000000000000000",
            b"0000000000000000000000000000000g",
            b"+0000000000000000000000000000000",
        ] {
            assert_eq!(parse_id(bad), None, "{bad:?}");
        }
    }
}
