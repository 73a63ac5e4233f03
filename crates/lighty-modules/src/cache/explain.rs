//! The cache's lines in `lighty explain`: the store, the key, and the fate of typical responses.

use lighty_cache::rules::{self, Exchanged, Freshness, Unstorable};
use lighty_cache::store::ResponseStore;
use lighty_core::Exchange;
use lighty_core::pipeline::branch::destination;
use lighty_core::pipeline::phase::Phase;
use lighty_http::{Fields, Known, Status};

use super::settings::CacheSettings;
use super::{bypass_reason, request_facts, request_key, slices};

/// A response as an example.
struct SampleResponse {
    name: &'static str,
    status: Status,
    fields: &'static [(Known, &'static str)],
}

const LIFETIME: (Known, &str) = (Known::CacheControl, "max-age=60");

const SAMPLES: [SampleResponse; 4] = [
    SampleResponse { name: "200 with max-age=60", status: Status::OK, fields: &[LIFETIME] },
    SampleResponse { name: "200 without a lifetime", status: Status::OK, fields: &[] },
    SampleResponse { name: "404 without a lifetime", status: Status::NOT_FOUND, fields: &[] },
    SampleResponse {
        name: "200 with max-age=60 and Set-Cookie",
        status: Status::OK,
        fields: &[LIFETIME, (Known::SetCookie, "a=1")],
    },
];

/// Records the lines. Requests that no backend or program responds to have none.
pub(super) fn explain(ex: &Exchange, own: &CacheSettings, store: &ResponseStore, phase: Phase) {
    let Some(destination) = destination(phase, ex) else { return };
    let step = |text: String| {
        ex.rehearse_step(|| format!("cache: {text}"));
    };
    step(format!("store \"{}\"", own.store));
    if let Some(reason) = bypass_reason(ex, own) {
        return step(format!("the request goes past it: {reason}"));
    }
    step(format!("key {}", described_key(ex, own, &destination)));
    if own.slice_bytes > 0 {
        let text = match slices::slice_bytes(own, store) {
            Some(bytes) => format!("ranges in slices of {bytes} bytes"),
            None => "no slices: max-object-size of the store is below cache.slice-size".to_owned(),
        };
        step(text);
    }
    for sample in &SAMPLES {
        step(format!("{} is {}", sample.name, fate(ex, own, sample)));
    }
}

fn described_key(ex: &Exchange, own: &CacheSettings, destination: &str) -> String {
    let request = &ex.request;
    let target = request_key::target(own, ex);
    let mut text = format!(
        "{}://{}{} at {}",
        request.scheme,
        request.authority.escape_ascii(),
        target.escape_ascii(),
        destination.escape_default(),
    );
    let names = |kind: &str, names: &[Box<[u8]>]| -> Vec<String> {
        names.iter().map(|name| format!("{kind}:{}", name.escape_ascii())).collect()
    };
    let mut extras = names("header", &own.key.fields);
    extras.extend(names("cookie", &own.key.cookies));
    extras.extend(own.key.user.then(|| "user".to_owned()));
    if !extras.is_empty() {
        text += &format!(", with {}", extras.join(", "));
    }
    text
}

fn fate(ex: &Exchange, own: &CacheSettings, sample: &SampleResponse) -> String {
    let mut fields = Fields::new();
    for (name, value) in sample.fields {
        fields.push_known(*name, value);
    }
    let now_s = ex.machine.clock.unix_s();
    let times = Exchanged { sent_s: now_s, received_s: now_s };
    match rules::storable(&request_facts(ex), sample.status, &fields, &own.policy, times) {
        Ok(freshness) => stored(&freshness),
        Err(reason) => not_stored(reason),
    }
}

fn not_stored(reason: Unstorable) -> String {
    format!("not stored: {reason}")
}

fn stored(freshness: &Freshness) -> String {
    let mut text = format!("stored for {} s", freshness.lifetime_s);
    let stale = [
        (freshness.stale_while_revalidate_s, "while it is fetched anew"),
        (freshness.stale_if_error_s, "if the backend fails"),
    ];
    for (seconds, when) in stale {
        if seconds > 0 {
            text += &format!(", and {seconds} s longer {when}");
        }
    }
    text
}
