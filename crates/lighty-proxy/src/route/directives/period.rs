//! Rows with a span of time as value.

use lighty_config::Kind;
use lighty_core::Settings;
use lighty_core::settings::Directive;

use super::of;
use super::parts::ProxyParts;
use super::values::{SECONDS_MAX, parse_period};

/// Returns a row with a span of time as value: seconds, or text with a unit.
pub(super) fn period(
    name: &'static str,
    least_ms: u64,
    set: fn(&mut ProxyParts, u64),
) -> Directive {
    let min = i64::from(least_ms > 0);
    Directive::parsed(
        name,
        Kind::Int { min, max: SECONDS_MAX },
        move |value, _| parse_period(value, least_ms),
        move |s: &mut Settings, ms| set(of(s), *ms),
    )
}
