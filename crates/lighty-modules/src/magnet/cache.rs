//! `lighty.cache`: orders to the cache of responses.

use lighty_core::exchange::cache_orders::CacheOrders;
use lighty_core::{Exchange, Level};
use lighty_http::decimal;
use lighty_lua::{AccessError, ScriptValue};

/// Maximum bytes of a key, and of all tags.
const TEXT_BYTES_MAX: usize = 16_384;

/// Maximum lifetime in seconds.
const TTL_S_MAX: u64 = 1 << 31;

/// The order that a script has given.
pub(super) fn get<'a>(ex: &'a Exchange, name: &[u8]) -> ScriptValue<'a> {
    let Some(orders) = ex.ext::<CacheOrders>() else { return ScriptValue::Nil };
    match name {
        b"key" => ScriptValue::of(orders.key.as_deref()),
        b"ttl" => orders.ttl_s.map_or(ScriptValue::Nil, |ttl_s| ScriptValue::Int(ttl_s.into())),
        b"bypass" => ScriptValue::Bool(orders.bypasses),
        b"tags" => ScriptValue::of(Some(&*orders.tags).filter(|tags| !tags.is_empty())),
        _ => ScriptValue::Nil,
    }
}

/// Takes an order. `None` takes it back.
pub(super) fn set(ex: &mut Exchange, name: &[u8], value: Option<&[u8]>) -> Result<(), AccessError> {
    let refused = |why| AccessError::Cache(String::from_utf8_lossy(name).into(), why);
    if value.is_some_and(|value| value.len() > TEXT_BYTES_MAX) {
        return Err(refused("the value has more than 16,384 bytes"));
    }
    if name == b"purge" {
        return purge(ex, value.unwrap_or_default()).map_err(refused);
    }
    let orders = ex.ext_mut::<CacheOrders>();
    match name {
        b"key" => orders.key = value.map(Box::from),
        b"ttl" => {
            let seconds = |digits| {
                let seconds = decimal::parse(digits).filter(|seconds| *seconds <= TTL_S_MAX);
                seconds.and_then(|seconds| u32::try_from(seconds).ok())
            };
            orders.ttl_s = match value {
                Some(digits) => Some(seconds(digits).ok_or_else(|| refused("not whole seconds"))?),
                None => None,
            };
        }
        b"bypass" => orders.bypasses = value.is_some(),
        b"tags" => orders.tags = value.unwrap_or_default().to_vec(),
        _ => return Err(refused("there are key, ttl, bypass, tags and purge")),
    }
    Ok(())
}

fn purge(ex: &Exchange, order: &[u8]) -> Result<(), &'static str> {
    let mut modules = ex.generation.modules.iter();
    let done = modules.find_map(|module| module.purge(&ex.request.authority, order));
    let text = done.ok_or("mod_cache is not in use")?.map_err(|refusal| refusal.0)?;
    ex.log(Level::Notice, &format!("lighty.cache.purge: {text}"));
    Ok(())
}
