//! The service's response, and its meaning.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_core::{Body, Exchange, Fault};
use lighty_http::fields::list_items;
use lighty_http::{Fields, Known, Status, decimal};

use super::preset::Preset;
use super::rule::ForwardRule;

/// A service's verdict about a request.
pub(super) enum ServiceVerdict {
    /// The request may pass.
    Allowed(Arc<Allowance>),
    /// The response for the client.
    Denied(Box<Denial>),
    /// There is no verdict: the request must not pass.
    Failed(Failure),
}

/// A permission.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// Fields that tell of the user.
    pub(super) fields: Fields,
    /// Set-Cookie fields for the final response.
    pub(super) cookies: Fields,
    /// The user's name.
    pub(super) user: Option<Vec<u8>>,
    /// The service has begun or renewed a session: the permission is for one client only.
    pub(super) sets_cookies: bool,
    /// Milliseconds for which the service lets it be kept; `None`: it does not say.
    pub(super) fresh_ms: Option<u64>,
}

/// A refusal: a response for the client.
pub(super) struct Denial {
    pub(super) status: Status,
    pub(super) fields: Fields,
    pub(super) body: Bytes,
}

/// The reason why there is no verdict.
pub(super) enum Failure {
    /// A fault of the request to the service, which is in the log already.
    Logged(Fault),
    New(Cow<'static, str>),
}

/// Meaning of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Allows,
    Denies,
    None,
}

impl ServiceVerdict {
    /// A failure that is not in the log.
    pub(super) fn failed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Failed(Failure::New(detail.into()))
    }
}

impl Meaning {
    /// A 304 would need conditions, which the service does not get, and 305 and 306 are obsolete.
    fn of(status: Status, preset: &Preset) -> Self {
        match status.code() {
            200 => Self::Allows,
            201..=299 if !preset.only_200 => Self::Allows,
            304..=306 => Self::None,
            300..=499 => Self::Denies,
            _ => Self::None,
        }
    }
}

/// Reads the whole response.
pub(super) async fn read(rule: &ForwardRule, part: &mut Exchange) -> ServiceVerdict {
    let status = part.response.status;
    let meaning = Meaning::of(status, rule.preset);
    if meaning == Meaning::None {
        return ServiceVerdict::failed(format!("it responds with status {}", status.code()));
    }
    let body = match whole(std::mem::take(&mut part.response.body), rule.body_bytes_max).await {
        Ok(body) => body,
        Err(why) => return ServiceVerdict::failed(why),
    };
    let fields = std::mem::take(&mut part.response.fields);
    match meaning {
        Meaning::Allows => allowed(rule, &fields),
        _ => ServiceVerdict::Denied(Box::new(Denial { status, fields, body })),
    }
}

fn allowed(rule: &ForwardRule, fields: &Fields) -> ServiceVerdict {
    let mut allowance = Allowance { fresh_ms: fresh_ms(fields), ..Allowance::default() };
    for (known, name, value) in fields.iter_known() {
        if rule.identity.iter().any(|identity| identity.matches(name)) {
            allowance.fields.push_looked_up(known, name, value);
        } else if known == Some(Known::SetCookie) {
            allowance.sets_cookies = true;
            if rule.passes_cookies {
                allowance.cookies.push_known(Known::SetCookie, value);
            }
        }
    }
    if let Some(user_field) = &rule.user_field {
        let is_user = |name: &[u8]| name.eq_ignore_ascii_case(user_field.as_bytes());
        let mut users = fields.iter().filter(|(name, _)| is_user(name)).map(|(_, value)| value);
        allowance.user = users.next().filter(|user| !user.is_empty()).map(<[u8]>::to_vec);
        if users.next().is_some() {
            return ServiceVerdict::failed(format!("it sends several fields {user_field}"));
        }
    }
    ServiceVerdict::Allowed(Arc::new(allowance))
}

/// Milliseconds for which `Cache-Control` lets a permission be kept.
fn fresh_ms(fields: &Fields) -> Option<u64> {
    let mut fresh_ms: Option<u64> = None;
    for directive in fields.get_all(Known::CacheControl).flat_map(list_items) {
        let (name, value) = match directive.iter().position(|byte| *byte == b'=') {
            Some(at) => (&directive[..at], directive.get(at + 1..).unwrap_or_default()),
            None => (directive, &b""[..]),
        };
        let own_ms = match &*name.to_ascii_lowercase() {
            b"no-store" | b"no-cache" => 0,
            b"max-age" => decimal::parse(value).map_or(0, |seconds| seconds.saturating_mul(1000)),
            _ => continue,
        };
        fresh_ms = Some(fresh_ms.map_or(own_ms, |before_ms| before_ms.min(own_ms)));
    }
    fresh_ms
}

/// Reads a body of at most `bytes_max`.
async fn whole(body: Body, bytes_max: usize) -> Result<Bytes, Cow<'static, str>> {
    let too_large = || format!("its response has more than {bytes_max} bytes, max-response").into();
    let mut stream = match body {
        Body::Empty => return Ok(Bytes::new()),
        Body::Memory(bytes) if bytes.len() <= bytes_max => return Ok(bytes),
        Body::Stream(stream) => stream,
        _ => return Err(too_large()),
    };
    if stream.known_length().is_some_and(|length| length > bytes_max as u64) {
        return Err(too_large());
    }
    let mut all = Vec::new();
    loop {
        match std::future::poll_fn(|cx| stream.poll_next(cx)).await {
            Some(Ok(Chunk::Memory(bytes))) => all.extend_from_slice(&bytes),
            Some(Ok(Chunk::File(_))) => {}
            Some(Err(report)) => return Err(report.to_string().into()),
            None => return Ok(all.into()),
        }
        if all.len() > bytes_max {
            return Err(too_large());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use lighty_testkit::matrix::{assert_matrix, table};

    #[test]
    fn each_status_has_a_meaning() {
        let strict = Preset { only_200: true, ..super::super::preset::PLAIN };
        let mut rows = vec![["status", "usual", "envoy"].map(str::to_owned).to_vec()];
        for code in [
            200, 201, 202, 204, 206, 299, 300, 302, 303, 304, 305, 307, 308, 399, 400, 401, 403,
            404, 407, 429, 499, 500, 502, 503, 599,
        ] {
            let status = Status::new(code).expect("a status");
            let usual = Meaning::of(status, &super::super::preset::PLAIN);
            let envoy = Meaning::of(status, &strict);
            rows.push(vec![code.to_string(), format!("{usual:?}"), format!("{envoy:?}")]);
        }
        assert_matrix(&table(&rows), MEANINGS);
    }

    const MEANINGS: &str = "
status  usual   envoy
200     Allows  Allows
201     Allows  None
202     Allows  None
204     Allows  None
206     Allows  None
299     Allows  None
300     Denies  Denies
302     Denies  Denies
303     Denies  Denies
304     None    None
305     None    None
307     Denies  Denies
308     Denies  Denies
399     Denies  Denies
400     Denies  Denies
401     Denies  Denies
403     Denies  Denies
404     Denies  Denies
407     Denies  Denies
429     Denies  Denies
499     Denies  Denies
500     None    None
502     None    None
503     None    None
599     None    None
";

    #[test]
    fn permissions_are_kept_no_longer_than_the_service_lets() {
        for (cache_control, expected_ms) in [
            ("", None),
            ("private", None),
            ("max-age=5", Some(5000)),
            ("Max-Age=5, max-age=3", Some(3000)),
            ("no-store", Some(0)),
            ("max-age=9, no-cache", Some(0)),
            ("max-age=x", Some(0)),
            ("max-age=", Some(0)),
        ] {
            let mut fields = Fields::default();
            fields.push_known(Known::CacheControl, cache_control);
            assert_eq!(fresh_ms(&fields), expected_ms, "{cache_control}");
        }
    }
}
