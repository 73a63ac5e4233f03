//! Tables of vectors. Comments in them name cases of http-cache-tests.

mod conditions;
mod fill;
mod groups;
mod invalidation;
mod lifetimes;
mod properties;
mod queries;
mod reference;
mod reusing;
mod status_field;
mod storing;
mod updating;
mod vary;

use lighty_http::{Fields, Method, Status};

use super::{CacheRequest, Exchanged, Freshness, Policy, Unstorable, storable};

/// 29 November 2026.
const NOW: i64 = 1_795_942_800;

const TIMES: Exchanged = Exchanged { sent_s: NOW, received_s: NOW };

/// Fields from lines of `Name: value`.
fn fields(lines: &[&str]) -> Fields {
    let mut fields = Fields::new();
    for line in lines {
        let (name, value) = line.split_once(':').expect("a colon");
        fields.push(name.as_bytes(), value.trim().as_bytes());
    }
    fields
}

fn lines(fields: &Fields) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect()
}

fn get(fields: &Fields) -> CacheRequest<'_> {
    CacheRequest {
        method: Some(Method::Get),
        fields,
        is_identified: false,
        has_body: false,
        has_query: false,
    }
}

fn status(code: u16) -> Status {
    Status::new(code).expect("three digits")
}

/// A date relative to [`NOW`].
fn date(offset_s: i64) -> String {
    String::from_utf8(lighty_http::date::format(NOW + offset_s).to_vec()).expect("ASCII")
}

fn store_with(
    request: &[&str],
    code: u16,
    response: &[&str],
    policy: &Policy,
) -> Result<Freshness, Unstorable> {
    let request = fields(request);
    storable(&get(&request), status(code), &fields(response), policy, TIMES)
}

fn store(code: u16, response: &[&str]) -> Result<Freshness, Unstorable> {
    store_with(&[], code, response, &Policy::default())
}
