//! `mod_expire`: sets the lifetime of responses in caches.

use std::sync::Arc;

use lighty_config::{CompileCtx, Directive, Kind, Reject, Value, parse_map};
use lighty_core::module::{Hooks, Module, Traits};
use lighty_core::{Exchange, Settings, Step, module_settings};
use lighty_http::{Known, Method, Status, date, decimal};

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub struct ExpireSettings {
    urls: Terms,
    types: Terms,
}
module_settings!(ExpireSettings);

impl ExpireSettings {
    fn is_empty(&self) -> bool {
        self.urls.is_empty() && self.types.is_empty()
    }

    /// Returns the lifetime of the response, if these settings specify one.
    fn term(&self, ex: &Exchange) -> Option<Term> {
        let media_type = ex.response.fields.get(Known::ContentType).unwrap_or_default();
        find(&self.urls, &ex.request.path).or_else(|| find(&self.types, media_type))
    }
}

/// Prefixes of paths or media types with their lifetimes. The first match counts.
type Terms = Arc<[(Box<str>, Term)]>;

/// Lifetime of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    /// Counted from the file's last change, not from the request.
    since_change: bool,
    seconds: i64,
}

/// The module.
pub struct Expire;

impl Module for Expire {
    fn name(&self) -> &'static str {
        "mod_expire"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { response_head: true, ..Hooks::default() },
            head_never_waits: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<ExpireSettings>().is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::parsed("expire.url", Kind::Map, parse_terms, |s: &mut Settings, terms| {
                s.module_mut::<ExpireSettings>().urls = Arc::clone(terms);
            })
            .module("mod_expire")
            .default("()")
            .since("1.4")
            .doc(
                "URL prefixes and how long caches may keep what is beneath them: `access plus 2 \
                 weeks`, `modification 1 months 3 days`. `access` (or `now`) counts from the \
                 request, `modification` from the file's last change; `plus` may be left out; \
                 units are `years` (365 days), `months` (30 days), `weeks`, `days`, `hours`, \
                 `minutes` or `min`, `seconds` or `sec`, with a space before them or not: \
                 `access plus 2min30sec`. The first prefix that matches wins. Answers with status \
                 200, 206 or 304 to GET and HEAD get `Cache-Control: max-age` and `Expires`, \
                 unless they have a `Cache-Control` already.",
            )
            .example("expire.url = ( \"/images/\" => \"access plus 2 weeks\" )"),
            Directive::parsed("expire.mimetypes", Kind::Map, parse_terms, |s: &mut Settings, terms| {
                s.module_mut::<ExpireSettings>().types = Arc::clone(terms);
            })
            .module("mod_expire")
            .default("()")
            .since("1.4")
            .doc(
                "As `expire.url`, by the beginning of the response's media type (`text/*` and \
                 `text/` mean the same); asked where no URL prefix matches.",
            )
            .example("expire.mimetypes = ( \"text/css\" => \"access 1 days\", \"image/*\" => \"access 1 months\" )"),
        ]
    }

    fn response_head<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let requested = ex.settings.module::<ExpireSettings>();
        let served = ex.state.served_file.handled().map(|s| s.module::<ExpireSettings>());
        if (requested.is_empty() && served.is_none_or(ExpireSettings::is_empty)) || !may_expire(ex)
        {
            return Step::Next;
        }
        let Some(term) = requested.term(ex).or_else(|| served?.term(ex)) else { return Step::Next };
        let now = ex.machine.clock.unix_s();
        // A modification time in the future counts as now.
        let changed = ex.physical.entry.as_ref().map(|entry| entry.meta().mtime_s.min(now));
        let Some(max_age) = term.max_age(now, changed) else { return Step::Next };
        let expires = date::format(now.saturating_add(max_age));
        let fields = &mut ex.response.fields;
        let mut cache_control = b"max-age=".to_vec();
        decimal::push(max_age.unsigned_abs(), &mut cache_control);
        fields.push_known(Known::CacheControl, cache_control);
        fields.set(Known::Expires, expires);
        Step::Next
    }
}

/// True if the response may get a lifetime. A 304 repeats the fields of the 200 (RFC 9110 section
/// 15.4.5). The client's method counts, because an error handler may run with another one.
fn may_expire(ex: &Exchange) -> bool {
    let status = ex.response.status;
    let method = ex.state.error_handler.map_or(ex.request.method, |handler| handler.method);
    matches!(status, Status::OK | Status::PARTIAL_CONTENT | Status::NOT_MODIFIED)
        && method.is_some_and(Method::is_get_or_head)
        && !ex.response.fields.contains(Known::CacheControl)
}

fn find(terms: &Terms, text: &[u8]) -> Option<Term> {
    let found = terms.iter().find(|(prefix, _)| text.starts_with(prefix.as_bytes()));
    found.map(|(_, term)| *term)
}

impl Term {
    /// Seconds from now. `None` if the term counts from the file's last change and that is unknown.
    fn max_age(self, now: i64, changed: Option<i64>) -> Option<i64> {
        let from = if self.since_change { changed? } else { now };
        Some(from.saturating_add(self.seconds).saturating_sub(now).max(0))
    }
}

/// Maximum lifetime in seconds: recipients may treat a larger `max-age` as 2^31 (RFC 9111 section
/// 1.2.2).
const TERM_SECONDS_MAX: i64 = 1 << 31;

fn parse_terms(value: &Value, ctx: &CompileCtx) -> Result<Terms, Reject> {
    let pairs = parse_map(value)?;
    let spans = value.as_list().unwrap_or_default();
    let term = |((prefix, text), (_, item)): (&(Arc<str>, Arc<str>), &lighty_config::Item)| {
        let prefix = prefix.strip_suffix('*').unwrap_or(prefix);
        let term = parse_term(text).map_err(|bad| bad.reject(text).at(item.span))?;
        let seconds = term.seconds.clamp(0, TERM_SECONDS_MAX);
        if seconds != term.seconds {
            let message = if seconds == 0 { "less than no time" } else { "more than 68 years" };
            let used =
                format!("has {text:?}: is {message}, in place of which {seconds} s are used");
            ctx.warn(Reject::new(used).at(item.span));
        }
        Ok((Box::from(prefix), Term { seconds, ..term }))
    };
    pairs.iter().zip(spans).map(term).collect()
}

/// An error in a term.
#[derive(Debug, PartialEq, Eq)]
enum BadTerm<'a> {
    Says(&'static str),
    Unit(&'a str),
}

impl BadTerm<'_> {
    fn reject(&self, text: &str) -> Reject {
        let example = "write for example \"access plus 2 weeks 1 days\"";
        match self {
            Self::Says(why) => Reject::new(format!("has {text:?}: {why}")).help(example),
            Self::Unit(unit) => {
                let known = "has a unit that is none of years, months, weeks, days, hours, \
                             minutes (min), seconds (sec)";
                let reject = Reject::new(format!("has {text:?}: {known}")).help(example);
                match SHORT.iter().find(|(short, _)| *short == unit.to_ascii_lowercase()) {
                    Some((_, unit)) => reject.help(format!("did you mean \"{unit}\"?")),
                    None => reject.did_you_mean(unit, UNITS.iter().map(|(name, _)| *name)),
                }
            }
        }
    }
}

fn parse_term(text: &str) -> Result<Term, BadTerm<'_>> {
    let (first, rest) = split_word(text, |c| c.is_ascii_alphabetic());
    let since_change = match first {
        "access" | "now" => false,
        "modification" => true,
        _ => return Err(BadTerm::Says("must begin with access, now or modification")),
    };
    let mut rest = match split_word(rest, |c| c.is_ascii_alphabetic()) {
        ("plus", rest) => rest,
        _ => rest,
    };
    if rest.trim_ascii().is_empty() {
        return Err(BadTerm::Says("says no time"));
    }
    let mut seconds = 0i64;
    while !rest.trim_ascii().is_empty() {
        let (digits, behind) = split_word(rest, |c| c.is_ascii_digit() || c == '-');
        let number: i64 = digits.parse().map_err(|_| BadTerm::Says("has no number here"))?;
        let (unit, behind) =
            split_word(behind, |c| !c.is_ascii_digit() && !c.is_ascii_whitespace());
        let unit = unit_seconds(unit).ok_or(BadTerm::Unit(unit))?;
        rest = behind;
        seconds =
            number.checked_mul(unit).and_then(|more| seconds.checked_add(more)).unwrap_or(i64::MAX);
    }
    Ok(Term { since_change, seconds })
}

/// Splits a text after its first letters or digits.
fn split_word(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    let text = text.trim_ascii_start();
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// Seconds in a day.
const DAY: i64 = 24 * 60 * 60;

/// Units and their seconds, with or without a final `s`.
const UNITS: &[(&str, i64)] = &[
    ("years", 365 * DAY),
    ("months", 30 * DAY),
    ("weeks", 7 * DAY),
    ("days", DAY),
    ("hours", 60 * 60),
    ("minutes", 60),
    ("min", 60),
    ("seconds", 1),
    ("sec", 1),
];

/// Unsupported short forms and the units to suggest instead.
const SHORT: &[(&str, &str)] = &[
    ("y", "years"),
    ("yr", "years"),
    ("mo", "months"),
    ("w", "weeks"),
    ("d", "days"),
    ("h", "hours"),
    ("hr", "hours"),
    ("hrs", "hours"),
    ("m", "minutes"),
    ("s", "seconds"),
];

fn unit_seconds(unit: &str) -> Option<i64> {
    let one = |unit: &str| unit.strip_suffix('s').unwrap_or(unit).to_owned();
    UNITS.iter().find(|(name, _)| one(name) == one(unit)).map(|(_, seconds)| *seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_both_dialects() {
        let of = |text| parse_term(text).map(|term| (term.since_change, term.seconds));
        assert_eq!(of("access plus 2 weeks"), Ok((false, 1_209_600)));
        assert_eq!(of("now 1 day 1 hours 1 minute 1 seconds"), Ok((false, 90_061)));
        assert_eq!(of("modification  plus 1 months"), Ok((true, 2_592_000)));
        assert_eq!(of("access 1 years"), Ok((false, 31_536_000)));
        assert_eq!(of("access 0 seconds"), Ok((false, 0)));
        assert_eq!(of("access plus 2 min"), Ok((false, 120)));
        assert_eq!(of("access plus 2min1sec"), Ok((false, 121)));
        assert_eq!(of("access plus 1hour 2 mins 3secs"), Ok((false, 3_723)));
    }

    #[test]
    fn broken_terms_are_refused() {
        for bad in [
            "",
            "access",
            "access plus",
            "2 weeks",
            "access 2",
            "access weeks 2",
            "access 1 eons",
            "access 1 s",
            "access 1",
            "access 1 2 days",
            "accessplus 1 days",
            "access 1days,2hours",
            "access 1,5 days",
            "access \u{a0}1 days",
            "access - days",
            "access 99999999999999999999 days",
        ] {
            assert!(parse_term(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_slip_in_a_unit_gets_a_suggestion() {
        let help = |text| parse_term(text).map_err(|bad| bad.reject(text).help).expect_err(text);
        for (text, unit) in [
            ("access plus 2 mintues", "minutes"),
            ("access plus 2 h", "hours"),
            ("access plus 2 m", "minutes"),
            ("access plus 2 Hours", "hours"),
            ("access plus 2 secnods", "seconds"),
        ] {
            assert_eq!(help(text), Some(format!("did you mean \"{unit}\"?")), "{text}");
        }
        assert!(help("access plus 1 fortnights").is_some_and(|help| help.contains("for example")));
    }

    #[test]
    fn expired_response_has_a_max_age_of_zero() {
        let term = Term { since_change: true, seconds: 100 };
        assert_eq!(term.max_age(1000, Some(950)), Some(50));
        assert_eq!(term.max_age(1000, Some(10)), Some(0));
        assert_eq!(term.max_age(1000, None), None);
        assert_eq!(Term { since_change: false, seconds: 7 }.max_age(1000, None), Some(7));
    }
}
