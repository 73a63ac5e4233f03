//! Directives of a response, from `Cache-Control` or a targeted field (RFC 9213), and of a request.

use lighty_http::cache_control::{
    self, CacheDirective, DirectiveArgument, SECONDS_MAX, directives,
};
use lighty_http::fields::{is_token, list_items};
use lighty_http::structured::{self, BareItem};
use lighty_http::{Fields, Known};

use super::Policy;

/// Directives of a response that concern a shared cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseDirectives {
    pub(super) is_public: bool,
    pub(super) no_store: bool,
    /// `no-cache` without field names.
    pub(super) no_cache: bool,
    /// `private` without field names.
    pub(super) is_private: bool,
    pub(super) must_revalidate: bool,
    pub(super) proxy_revalidate: bool,
    pub(super) must_understand: bool,
    pub(super) is_immutable: bool,
    pub(super) max_age_s: Option<u32>,
    pub(super) s_maxage_s: Option<u32>,
    pub(super) stale_while_revalidate_s: Option<u32>,
    pub(super) stale_if_error_s: Option<u32>,
    /// Names in `private="..."` and `no-cache="..."`.
    pub(super) unstored: Vec<Box<[u8]>>,
    /// True if a targeted field is in effect, so that `Expires` and `Pragma` are not.
    pub(super) is_targeted: bool,
}

impl ResponseDirectives {
    /// Reads the first valid targeted field, otherwise `Cache-Control`.
    pub(super) fn of(response: &Fields, policy: &Policy) -> Self {
        let mut targeted = policy.targets.iter().map(|name| Self::targeted(response, name));
        targeted.find_map(|found| found).unwrap_or_else(|| Self::untargeted(response))
    }

    /// `Pragma: no-cache` has no meaning in a response, but old origins send it in place of
    /// `Cache-Control`.
    fn untargeted(response: &Fields) -> Self {
        let mut found = Self::default();
        if !response.contains(Known::CacheControl) {
            found.no_cache = has_pragma(response);
        }
        for directive in response.get_all(Known::CacheControl).flat_map(directives) {
            found.add(directive);
        }
        found
    }

    fn add(&mut self, directive: CacheDirective<'_>) {
        let argument = directive.argument;
        // A malformed lifetime counts as 0.
        let seconds = || argument.seconds().unwrap_or(0);
        let Some(known) = DirectiveName::of(directive.name) else { return };
        let seconds = if known.has_seconds() { seconds() } else { 0 };
        match argument.field_names() {
            Some(names) if known.may_name_fields() => self.unstored.extend(names.map(Box::from)),
            _ => self.set(known, seconds),
        }
    }

    /// Of conflicting values the smallest counts.
    fn set(&mut self, name: DirectiveName, seconds: u32) {
        let lower = |old: &mut Option<u32>| {
            *old = Some(old.map_or(seconds, |old| old.min(seconds)));
        };
        match name {
            DirectiveName::Public => self.is_public = true,
            DirectiveName::NoStore => self.no_store = true,
            DirectiveName::NoCache => self.no_cache = true,
            DirectiveName::Private => self.is_private = true,
            DirectiveName::MustRevalidate => self.must_revalidate = true,
            DirectiveName::ProxyRevalidate => self.proxy_revalidate = true,
            DirectiveName::MustUnderstand => self.must_understand = true,
            DirectiveName::Immutable => self.is_immutable = true,
            DirectiveName::MaxAge => lower(&mut self.max_age_s),
            DirectiveName::SMaxage => lower(&mut self.s_maxage_s),
            DirectiveName::StaleWhileRevalidate => lower(&mut self.stale_while_revalidate_s),
            DirectiveName::StaleIfError => lower(&mut self.stale_if_error_s),
        }
    }

    /// Reads a targeted field. `None` if it is absent, empty or malformed, or if a known directive
    /// has a value of another type: the next field then counts.
    fn targeted(response: &Fields, name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("surrogate-control") {
            return Self::surrogate(response);
        }
        let combined = structured::combine(all_named(response, name.as_bytes()));
        let members = structured::dictionary(&combined).ok()?;
        if members.is_empty() {
            return None;
        }
        let mut found = Self { is_targeted: true, ..Self::default() };
        for (key, member) in &members {
            let Some(known) = DirectiveName::of(key) else { continue };
            match member.item()? {
                BareItem::Integer(seconds) if known.has_seconds() => {
                    let seconds = (*seconds).clamp(0, i64::from(SECONDS_MAX));
                    found.set(known, u32::try_from(seconds).ok()?);
                }
                BareItem::Boolean(is_set) if !known.has_seconds() => {
                    if *is_set {
                        found.set(known, 0);
                    }
                }
                BareItem::String(names) if known.may_name_fields() => {
                    let is_list = list_items(names).next().is_some();
                    if is_list && list_items(names).all(is_token) {
                        found.unstored.extend(list_items(names).map(Box::from));
                    } else {
                        found.set(known, 0);
                    }
                }
                _ => return None,
            }
        }
        Some(found)
    }

    /// Reads `Surrogate-Control`, whose syntax is that of `Cache-Control`. `max-age=60+30` is a
    /// lifetime and a time for which the response may be stale.
    fn surrogate(response: &Fields) -> Option<Self> {
        let mut found = Self { is_targeted: true, ..Self::default() };
        let mut is_present = false;
        for directive in all_named(response, b"surrogate-control").flat_map(directives) {
            is_present = true;
            match extended_lifetime(&directive) {
                Some((fresh_s, stale_s)) => {
                    found.set(DirectiveName::MaxAge, fresh_s);
                    found.set(DirectiveName::StaleWhileRevalidate, stale_s);
                    found.set(DirectiveName::StaleIfError, stale_s);
                }
                None => found.add(directive),
            }
        }
        Some(found).filter(|_| is_present)
    }

    /// True if the response must not be served stale: RFC 9111 section 4.2.4.
    pub(super) const fn forbid_stale(&self) -> bool {
        self.must_revalidate || self.proxy_revalidate || self.s_maxage_s.is_some() || self.no_cache
    }

    /// True if the response to a request with credentials may be stored: RFC 9111 section 3.5.
    pub(super) const fn allow_authorized(&self) -> bool {
        self.is_public || self.must_revalidate || self.s_maxage_s.is_some()
    }
}

/// The two times of `max-age=60+30`.
fn extended_lifetime(directive: &CacheDirective<'_>) -> Option<(u32, u32)> {
    let (DirectiveArgument::Token(text), true) = (directive.argument, directive.is("max-age"))
    else {
        return None;
    };
    let at = text.iter().position(|byte| *byte == b'+')?;
    Some((cache_control::seconds(&text[..at])?, cache_control::seconds(&text[at + 1..])?))
}

fn has_pragma(fields: &Fields) -> bool {
    fields.get_all(Known::Pragma).flat_map(directives).any(|pragma| pragma.is("no-cache"))
}

/// All values of a field by its name, in any case.
pub(super) fn all_named<'a>(
    fields: &'a Fields,
    name: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let is_named = move |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name);
    fields.iter().filter(is_named).map(|(_, value)| value)
}

/// Directives of a response that the rules obey.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DirectiveName {
    Public,
    NoStore,
    NoCache,
    Private,
    MustRevalidate,
    ProxyRevalidate,
    MustUnderstand,
    Immutable,
    MaxAge,
    SMaxage,
    StaleWhileRevalidate,
    StaleIfError,
}

impl DirectiveName {
    fn of(name: &[u8]) -> Option<Self> {
        const NAMES: [(&str, DirectiveName); 12] = [
            ("public", DirectiveName::Public),
            ("no-store", DirectiveName::NoStore),
            ("no-cache", DirectiveName::NoCache),
            ("private", DirectiveName::Private),
            ("must-revalidate", DirectiveName::MustRevalidate),
            ("proxy-revalidate", DirectiveName::ProxyRevalidate),
            ("must-understand", DirectiveName::MustUnderstand),
            ("immutable", DirectiveName::Immutable),
            ("max-age", DirectiveName::MaxAge),
            ("s-maxage", DirectiveName::SMaxage),
            ("stale-while-revalidate", DirectiveName::StaleWhileRevalidate),
            ("stale-if-error", DirectiveName::StaleIfError),
        ];
        let is_named = |row: &&(&str, Self)| name.eq_ignore_ascii_case(row.0.as_bytes());
        NAMES.iter().find(is_named).map(|row| row.1)
    }

    const fn has_seconds(self) -> bool {
        matches!(
            self,
            Self::MaxAge | Self::SMaxage | Self::StaleWhileRevalidate | Self::StaleIfError
        )
    }

    const fn may_name_fields(self) -> bool {
        matches!(self, Self::NoCache | Self::Private)
    }
}

/// Directives of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestLimits {
    pub(super) no_cache: bool,
    pub(super) no_store: bool,
    pub(super) only_if_cached: bool,
    pub(super) max_age_s: Option<u32>,
    pub(super) min_fresh_s: Option<u32>,
    /// Without an argument, [`SECONDS_MAX`].
    pub(super) max_stale_s: Option<u32>,
}

impl RequestLimits {
    /// `Pragma: no-cache` counts only without `Cache-Control`.
    pub(super) fn of(request: &Fields) -> Self {
        let mut limits = Self::default();
        if !request.contains(Known::CacheControl) {
            limits.no_cache = has_pragma(request);
            return limits;
        }
        for directive in request.get_all(Known::CacheControl).flat_map(directives) {
            limits.add(directive);
        }
        limits
    }

    /// Of conflicting values the strictest counts; a malformed one is as strict as possible.
    fn add(&mut self, directive: CacheDirective<'_>) {
        let argument = directive.argument;
        if directive.is("no-cache") {
            self.no_cache = true;
        } else if directive.is("no-store") {
            self.no_store = true;
        } else if directive.is("only-if-cached") {
            self.only_if_cached = true;
        } else if directive.is("max-age") {
            let seconds = argument.seconds().unwrap_or(0);
            self.max_age_s = Some(self.max_age_s.map_or(seconds, |old| old.min(seconds)));
        } else if directive.is("min-fresh") {
            let seconds = argument.seconds().unwrap_or(SECONDS_MAX);
            self.min_fresh_s = Some(self.min_fresh_s.map_or(seconds, |old| old.max(seconds)));
        } else if directive.is("max-stale") {
            let all = argument == DirectiveArgument::Absent;
            let seconds = if all { SECONDS_MAX } else { argument.seconds().unwrap_or(0) };
            self.max_stale_s = Some(self.max_stale_s.map_or(seconds, |old| old.min(seconds)));
        }
    }
}
