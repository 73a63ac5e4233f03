//! JSON with a limited depth and without repeated names. Two readers of an object with a repeated
//! name may see different values (RFC 8725 section 2.6).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Maximum depth of arrays and objects in tokens and key sets.
pub(crate) const DEPTH_MAX: usize = 8;

/// Parses an object. Returns `None` if it is not one, is deeper than [`DEPTH_MAX`], or repeats a
/// name.
pub(crate) fn parse_object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match parse(bytes)? {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// Like [`parse_object`], for an array.
pub(crate) fn parse_array(bytes: &[u8]) -> Option<Vec<Value>> {
    match parse(bytes)? {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn parse(bytes: &[u8]) -> Option<Value> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = StrictValue { depth_left: DEPTH_MAX }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(value)
}

#[derive(Clone, Copy)]
struct StrictValue {
    depth_left: usize,
}

impl StrictValue {
    fn inner<E: Error>(self) -> Result<Self, E> {
        let depth_left = self.depth_left.checked_sub(1);
        depth_left.map(|depth_left| Self { depth_left }).ok_or_else(|| E::custom("too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for StrictValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("no number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(inner)?;
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("a name is repeated"));
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_lenient_parser() {
        let text = r#"{"a":[1,-2,1.5,null,true,"x\n"],"b":{"c":{}},"":18446744073709551615}"#;
        let lenient: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(parse_object(text.as_bytes()).map(Value::Object), Some(lenient));
    }

    #[test]
    fn objects_stay_within_limits() {
        let nested =
            |depth: usize| format!("{}{}", "{\"a\":".repeat(depth - 1), "{") + &"}".repeat(depth);
        assert!(parse_object(nested(DEPTH_MAX).as_bytes()).is_some());
        assert!(parse_object(nested(DEPTH_MAX + 1).as_bytes()).is_none());
        assert!(parse_object(format!("{{\"a\":{}", "[".repeat(4000)).as_bytes()).is_none());
        for bad in [
            "",
            "1",
            "[]",
            "{} x",
            "{\"a\":1,\"a\":1}",
            "{\"b\":{\"a\":1,\"\\u0061\":2}}",
            "{\"a\":1e999}",
        ] {
            assert!(parse_object(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
