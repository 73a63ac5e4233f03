//! `mod_expire`: how long answers may be kept.

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{CompileCtx, Directive, Kind, Reject, Value, parse_map};
use lighty_core::module::{Hooks, Module};
use lighty_core::{Exchange, Settings, module_settings};
use lighty_http::{Known, Method, Status, date};

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub struct ExpireSettings {
    urls: Terms,
    types: Terms,
}
module_settings!(ExpireSettings);

/// Prefixes and how long what begins with them lives, in order.
type Terms = Arc<[(Box<str>, Term)]>;

/// How long something lives.
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

    fn hooks(&self) -> Hooks {
        Hooks { response_head: true, ..Hooks::default() }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<ExpireSettings>();
        self.hooks().only_if(!own.urls.is_empty() || !own.types.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::parsed("expire.url", Kind::Map, |v, _: &CompileCtx| parse_terms(v), |s: &mut Settings, terms| {
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
                 `minutes`, `seconds`. The first prefix that matches wins. Answers with status \
                 200, 206 or 304 to GET and HEAD get `Cache-Control: max-age` and `Expires`, \
                 unless they have a `Cache-Control` already.",
            )
            .example("expire.url = ( \"/images/\" => \"access plus 2 weeks\" )"),
            Directive::parsed("expire.mimetypes", Kind::Map, |v, _: &CompileCtx| parse_terms(v), |s: &mut Settings, terms| {
                s.module_mut::<ExpireSettings>().types = Arc::clone(terms);
            })
            .module("mod_expire")
            .default("()")
            .since("1.4")
            .doc(
                "As `expire.url`, by the beginning of the answer's media type (`text/*` and \
                 `text/` mean the same); asked where no URL prefix matches.",
            )
            .example("expire.mimetypes = ( \"text/css\" => \"access 1 days\", \"image/*\" => \"access 1 months\" )"),
        ]
    }

    fn response_head(&self, ex: &mut Exchange) {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<ExpireSettings>();
        if (own.urls.is_empty() && own.types.is_empty()) || !may_expire(ex) {
            return;
        }
        let media_type = ex.response.fields.get(Known::ContentType).unwrap_or_default();
        let Some(term) = find(&own.urls, &ex.request.path).or_else(|| find(&own.types, media_type))
        else {
            return;
        };
        let now = ex.services.clock.unix_s();
        let changed = ex.physical.entry.as_ref().map(|entry| entry.meta().mtime_s);
        let Some(max_age) = term.max_age(now, changed) else { return };
        let expires = date::format(now.saturating_add(max_age));
        let fields = &mut ex.response.fields;
        fields.push_known(Known::CacheControl, format!("max-age={max_age}"));
        fields.set(Known::Expires, expires);
    }
}

/// A 304 repeats what the 200 would have said: RFC 9110 section 15.4.5.
fn may_expire(ex: &Exchange) -> bool {
    let status = ex.response.status;
    matches!(status, Status::OK | Status::PARTIAL_CONTENT | Status::NOT_MODIFIED)
        && ex.request.method.is_some_and(Method::is_get_or_head)
        && !ex.response.fields.contains(Known::CacheControl)
}

fn find(terms: &Terms, text: &[u8]) -> Option<Term> {
    let found = terms.iter().find(|(prefix, _)| text.starts_with(prefix.as_bytes()));
    found.map(|(_, term)| *term)
}

impl Term {
    /// Seconds from now; `None` where the file's change is asked for and not known.
    fn max_age(self, now: i64, changed: Option<i64>) -> Option<i64> {
        let from = if self.since_change { changed? } else { now };
        Some(from.saturating_add(self.seconds).saturating_sub(now).max(0))
    }
}

/// Seconds of a term at most: what `max-age` must be understood up to (RFC 9111 section 1.2.2).
const TERM_SECONDS_MAX: i64 = 1 << 31;

fn parse_terms(value: &Value) -> Result<Terms, Reject> {
    let pairs = parse_map(value)?;
    let spans = value.as_list().unwrap_or_default();
    let term = |((prefix, text), (_, item)): (&(Arc<str>, Arc<str>), &lighty_config::Item)| {
        let prefix = prefix.strip_suffix('*').unwrap_or(prefix);
        let term = parse_term(text).map_err(|why| {
            Reject::new(format!("has {text:?}: {why}"))
                .help("write for example \"access plus 2 weeks 1 days\"")
                .at(item.span)
        })?;
        Ok((Box::from(prefix), term))
    };
    pairs.iter().zip(spans).map(term).collect()
}

fn parse_term(text: &str) -> Result<Term, &'static str> {
    let mut words = text.split_ascii_whitespace().peekable();
    let since_change = match words.next() {
        Some("access" | "now") => false,
        Some("modification") => true,
        _ => return Err("must begin with access, now or modification"),
    };
    words.next_if(|word| *word == "plus");
    if words.peek().is_none() {
        return Err("says no time");
    }
    let mut seconds = 0i64;
    while let Some(number) = words.next() {
        let number: i64 = number.parse().ok().filter(|n| *n >= 0).ok_or("has no number here")?;
        let unit = unit_seconds(words.next().unwrap_or_default())?;
        seconds =
            number.checked_mul(unit).and_then(|more| seconds.checked_add(more)).unwrap_or(i64::MAX);
    }
    if seconds > TERM_SECONDS_MAX {
        return Err("is more than 68 years");
    }
    Ok(Term { since_change, seconds })
}

fn unit_seconds(unit: &str) -> Result<i64, &'static str> {
    const DAY: i64 = 24 * 60 * 60;
    Ok(match unit.strip_suffix('s').unwrap_or(unit) {
        "year" => 365 * DAY,
        "month" => 30 * DAY,
        "week" => 7 * DAY,
        "day" => DAY,
        "hour" => 60 * 60,
        "minute" => 60,
        "second" => 1,
        _ => {
            return Err(
                "has a unit that is none of years, months, weeks, days, hours, minutes, seconds",
            );
        }
    })
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
            "access -1 days",
            "access 99999999999999999999 days",
            "access 9223372036854775807 years",
        ] {
            assert!(parse_term(bad).is_err(), "{bad}");
        }
        assert!(parse_term("access 2147483648 seconds").is_ok());
        assert!(parse_term("access 2147483649 seconds").is_err());
    }

    #[test]
    fn what_has_expired_lives_no_longer() {
        let term = Term { since_change: true, seconds: 100 };
        assert_eq!(term.max_age(1000, Some(950)), Some(50));
        assert_eq!(term.max_age(1000, Some(10)), Some(0));
        assert_eq!(term.max_age(1000, None), None);
        assert_eq!(Term { since_change: false, seconds: 7 }.max_age(1000, None), Some(7));
    }
}
