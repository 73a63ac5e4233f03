//! Configuration of the rules.

use lighty_http::Status;

const DAY_S: u32 = 86_400;

/// Values of the directives `cache.valid`, `cache.override`, `cache.heuristic(-max)`,
/// `cache.max-age`, `cache.stale-*`, `cache.targets`, `cache.set-cookie` and
/// `cache.request-directives`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Lifetimes of responses that name none.
    pub valid: Vec<ValidRow>,
    /// A lifetime that counts in place of all that the response says; 0 forbids storing.
    pub ordered_s: Option<u32>,
    /// Ignore `Cache-Control`, `Expires` and targeted fields of responses with a row in `valid`.
    pub overrides: bool,
    /// Heuristic lifetime in percent of the time since `Last-Modified`.
    pub heuristic_percent: u8,
    /// Limit of the heuristic lifetime in seconds.
    pub heuristic_max_s: u32,
    /// Limit of every lifetime in seconds.
    pub max_age_s: u32,
    /// `stale-while-revalidate` of responses that do not name one.
    pub stale_while_revalidate_s: u32,
    /// `stale-if-error` of responses that do not name one.
    pub stale_if_error_s: u32,
    /// Names of targeted fields (RFC 9213) in order of precedence.
    pub targets: Vec<Box<str>>,
    /// Treatment of responses with `Set-Cookie`.
    pub set_cookie: SetCookie,
    /// Treatment of directives in requests.
    pub request_directives: RequestDirectives,
}

/// A row of `cache.valid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidRow {
    /// The status; `None` means any without a row of its own.
    pub status: Option<u16>,
    /// The lifetime; 0 forbids storing.
    pub seconds: u32,
}

/// `cache.set-cookie`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// Do not store such responses.
    #[default]
    Pass,
    /// Store them with the field.
    Store,
    /// Store them without the field.
    Strip,
}

/// `cache.request-directives`: RFC 9111 section 5.2.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestDirectives {
    /// Obey only `no-store` and `only-if-cached`.
    #[default]
    Ignore,
    /// Also validate for clients that reload.
    Revalidate,
    /// Obey all.
    Honor,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            valid: Vec::new(),
            ordered_s: None,
            overrides: false,
            heuristic_percent: 10,
            heuristic_max_s: DAY_S,
            max_age_s: 365 * DAY_S,
            stale_while_revalidate_s: 0,
            stale_if_error_s: 0,
            targets: vec!["CDN-Cache-Control".into()],
            set_cookie: SetCookie::Pass,
            request_directives: RequestDirectives::Ignore,
        }
    }
}

/// Errors that a client can provoke for a resource of others. A row for any status does not cover
/// them.
const PROVOKED: [Status; 13] = [
    Status::BAD_REQUEST,
    Status::METHOD_NOT_ALLOWED,
    Status::REQUEST_TIMEOUT,
    Status::LENGTH_REQUIRED,
    Status::CONTENT_TOO_LARGE,
    Status::URI_TOO_LONG,
    Status::EXPECTATION_FAILED,
    Status::MISDIRECTED_REQUEST,
    Status::UPGRADE_REQUIRED,
    Status::TOO_MANY_REQUESTS,
    Status::REQUEST_HEADER_FIELDS_TOO_LARGE,
    Status::NOT_IMPLEMENTED,
    Status::HTTP_VERSION_NOT_SUPPORTED,
];

impl Policy {
    /// The lifetime that `cache.valid` gives to a status.
    #[must_use]
    pub fn configured_lifetime_s(&self, status: Status) -> Option<u32> {
        let row = |wanted: Option<u16>| self.valid.iter().find(|row| row.status == wanted);
        let any = || if PROVOKED.contains(&status) { None } else { row(None) };
        row(Some(status.code())).or_else(any).map(|row| row.seconds)
    }
}
