//! The response to a progress request.

use lighty_core::{Response, json};
use lighty_http::{Known, Status};
use serde::Serialize;

use super::table::{Outcome, UploadState};

pub(super) const SCRIPT: &str = "text/javascript";
pub(super) const JSON: &str = "application/json";

/// Fields that forbid caching for every generation of caches. The date is in the past (lighttpd
/// 1.5, mod_uploadprogress).
pub(super) fn fill(state: &UploadState, is_json: bool, response: &mut Response) {
    let (media_type, text) = match is_json {
        true => (JSON, as_json(state)),
        false => (SCRIPT, as_script(state).into_bytes()),
    };
    response.set_text(Status::OK, media_type, text);
    let fields = &mut response.fields;
    fields.push(b"Pragma", b"no-cache");
    fields.set(Known::Expires, "Thu, 19 Nov 1981 08:52:00 GMT");
    fields
        .set(Known::CacheControl, "no-store, no-cache, must-revalidate, post-check=0, pre-check=0");
}

/// The JavaScript expression of lighttpd 1.5, to the letter.
fn as_script(state: &UploadState) -> String {
    let members = match state {
        UploadState::Starting => "'state' : 'starting' ".to_owned(),
        UploadState::Uploading { received, size } => {
            let size = size.unwrap_or(0);
            format!("'state' : 'uploading', 'received' : {received}, 'size' : {size}")
        }
        UploadState::Ended(Outcome::Done { received }) => {
            format!("'state' : 'done', 'size' : {received}")
        }
        UploadState::Ended(Outcome::Failed(status)) => {
            format!("'state' : 'error', 'status' : {status}")
        }
    };
    format!("new Object({{ {members}}})\r\n")
}

/// The state as JSON.
#[derive(Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Progress {
    Starting,
    Uploading { received: u64, size: Option<u64> },
    Done { received: u64, size: u64 },
    Error { status: u16 },
}

fn as_json(state: &UploadState) -> Vec<u8> {
    let progress = match *state {
        UploadState::Starting => Progress::Starting,
        UploadState::Uploading { received, size } => Progress::Uploading { received, size },
        UploadState::Ended(Outcome::Done { received }) => {
            Progress::Done { received, size: received }
        }
        UploadState::Ended(Outcome::Failed(status)) => Progress::Error { status },
    };
    let mut out = Vec::new();
    json::push(&progress, &mut out);
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [UploadState; 5] = [
        UploadState::Starting,
        UploadState::Uploading { received: 131_072, size: Some(600_000) },
        UploadState::Ended(Outcome::Done { received: 600_000 }),
        UploadState::Ended(Outcome::Failed(413)),
        UploadState::Uploading { received: 1, size: None },
    ];

    #[test]
    fn scripts_are_to_the_letter() {
        let texts = STATES.map(|state| as_script(&state));
        assert_eq!(
            texts,
            [
                "new Object({ 'state' : 'starting' })\r\n",
                "new Object({ 'state' : 'uploading', 'received' : 131072, 'size' : 600000})\r\n",
                "new Object({ 'state' : 'done', 'size' : 600000})\r\n",
                "new Object({ 'state' : 'error', 'status' : 413})\r\n",
                "new Object({ 'state' : 'uploading', 'received' : 1, 'size' : 0})\r\n",
            ]
        );
    }

    #[test]
    fn json_has_the_members_of_its_state() {
        let texts = STATES.map(|state| String::from_utf8(as_json(&state)).expect("UTF-8"));
        assert_eq!(
            texts,
            [
                "{\"state\":\"starting\"}\n",
                "{\"state\":\"uploading\",\"received\":131072,\"size\":600000}\n",
                "{\"state\":\"done\",\"received\":600000,\"size\":600000}\n",
                "{\"state\":\"error\",\"status\":413}\n",
                "{\"state\":\"uploading\",\"received\":1,\"size\":null}\n",
            ]
        );
    }
}
