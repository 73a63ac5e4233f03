//! Values that several directives share: arrays with known keys, numbers, texts.

use std::ops::RangeInclusive;
use std::sync::Arc;

use lighty_config::{
    CompileCtx, Key, Reject, Spanned, Value, parse_int, parse_int_clamped, parse_string,
};
pub(super) use lighty_config::{SECONDS_MAX, parse_period};

/// Largest share of a backend.
pub(super) const WEIGHT_MAX: i64 = 1000;

/// Returns the elements of an array in which all have keys.
pub(super) fn keyed<'a>(
    value: &'a Value,
    help: &str,
) -> Result<Vec<(&'a Key, &'a Spanned<Value>)>, Reject> {
    let form = |text: &str| Reject::new(text).help(help.to_owned());
    let items = value.as_list().ok_or_else(|| form("must be an array of keys and values"))?;
    items
        .iter()
        .map(|(key, item)| match key {
            Some(key) => Ok((key, item)),
            None => Err(form("has an element without a key").at(item.span)),
        })
        .collect()
}

/// Returns the error about an unknown key, with the caret at the key.
pub(super) fn unknown_key(key: &Key, known: &[&str]) -> Reject {
    let text: &str = key;
    let reject = Reject::new(format!("has an unknown key \"{text}\"")).at(key.span);
    let list = || known.iter().map(|k| format!("\"{k}\"")).collect::<Vec<_>>().join(", ");
    let near = reject.clone().did_you_mean(text, known.iter().copied());
    if near.help.is_some() { near } else { reject.help(format!("known: {}", list())) }
}

/// Reads a value within an array. Errors name its key and point at it.
pub(super) fn within<T>(
    key: &str,
    item: &Spanned<Value>,
    parse: impl FnOnce(&Value) -> Result<T, Reject>,
) -> Result<T, Reject> {
    parse(&item.value).map_err(|mut reject| {
        reject.message = format!("\"{key}\" {}", reject.message);
        reject.span = reject.span.or(Some(item.span));
        reject
    })
}

/// Reads a number in a range that fits the type.
pub(super) fn number<T: TryFrom<i64>>(
    value: &Value,
    range: RangeInclusive<i64>,
) -> Result<T, Reject> {
    let out_of_type = |_| Reject::new("is out of range");
    T::try_from(parse_int(value, &range)?).map_err(out_of_type)
}

/// Reads a number for a lighttpd key. Replaces a number out of range by the nearest one, with a
/// warning, since lighttpd accepts more.
pub(super) fn clamped<T: TryFrom<i64>>(
    key: &str,
    item: &Spanned<Value>,
    range: RangeInclusive<i64>,
    ctx: &CompileCtx,
) -> Result<T, Reject> {
    let warn = |mut warning: Reject| {
        warning.message = format!("\"{key}\" {}", warning.message);
        ctx.warn(warning.at(item.span));
    };
    let out_of_type = |_| Reject::new("is out of range");
    let parse =
        |value: &Value| T::try_from(parse_int_clamped(value, &range, warn)?).map_err(out_of_type);
    within(key, item, parse)
}

/// Reads a non-empty text without control characters.
pub(super) fn plain(value: &Value) -> Result<Arc<str>, Reject> {
    let text = parse_string(value)?;
    match text.is_empty() || text.chars().any(char::is_control) {
        true => Err(Reject::new("must be text without control characters")),
        false => Ok(text),
    }
}

/// Like [`plain`], but an empty text means none.
pub(super) fn optional(value: &Value, _: &CompileCtx) -> Result<Option<Arc<str>>, Reject> {
    match value.as_str() {
        Some("") => Ok(None),
        _ => plain(value).map(Some),
    }
}
