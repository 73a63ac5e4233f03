//! Values: strings, numbers, and arrays that are lists, maps or both.

use std::fmt::Write as _;

use std::ops::Deref;

use crate::source::{Span, Spanned};

/// The value of an assignment after expressions have been computed.
#[derive(Clone, Debug)]
pub enum Value {
    /// `"text"`
    Str(String),
    /// `42`
    Int(i64),
    /// `( "a", "k" => "v" )`: order is kept, keys are unique.
    Array(Vec<Item>),
}

/// An element of an array, with its key if it has one.
pub type Item = (Option<Key>, Spanned<Value>);

/// The key of an element, with its position.
#[derive(Clone, Debug)]
pub struct Key {
    /// The text.
    pub text: String,
    /// The position.
    pub span: Span,
}

impl Deref for Key {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

/// Ignores positions.
impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.text == other.text
    }
}

impl PartialEq for Value {
    /// Ignores positions.
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Str(a), Value::Str(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::Array(a), Value::Array(b)) => {
                let same = |(x, y): (&Item, &Item)| x.0 == y.0 && x.1.value == y.1.value;
                a.len() == b.len() && a.iter().zip(b).all(same)
            }
            _ => false,
        }
    }
}

impl Value {
    /// The string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The number. A string of digits counts, as in 1.5.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Str(text) => parse_digits(text),
            Value::Array(_) => None,
        }
    }

    /// The switch: `"enable"` and `"disable"` (1.5), also `"enabled"`, `"disabled"`, `"true"`,
    /// `"false"`, `1` and `0` (1.4), ignoring case.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Str(text) => match text.to_ascii_lowercase().as_str() {
                "enable" | "enabled" | "true" | "1" => Some(true),
                "disable" | "disabled" | "false" | "0" => Some(false),
                _ => None,
            },
            Value::Int(1) => Some(true),
            Value::Int(0) => Some(false),
            _ => None,
        }
    }

    /// The elements, with or without keys.
    pub fn as_list(&self) -> Option<&[Item]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Keys and values of an array in which every element has a key.
    pub fn as_pairs(&self) -> Option<Vec<(&str, &Spanned<Value>)>> {
        let items = self.as_list()?;
        items.iter().map(|(key, value)| Some((key.as_deref()?, value))).collect()
    }

    /// The value of a key of an array.
    pub fn get(&self, key: &str) -> Option<&Spanned<Value>> {
        let found = self.as_list()?.iter().find(|(k, _)| k.as_deref() == Some(key))?;
        Some(&found.1)
    }

    /// The type's name, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Str(_) => "a string",
            Value::Int(_) => "a number",
            Value::Array(_) => "an array",
        }
    }

    /// The value in configuration syntax, on one line.
    pub fn to_source(&self) -> String {
        let mut out = String::new();
        self.write_source(&mut out);
        out
    }

    fn write_source(&self, out: &mut String) {
        match self {
            Value::Str(text) => out.push_str(&quote(text)),
            Value::Int(number) => {
                let _ = write!(out, "{number}");
            }
            Value::Array(items) if items.is_empty() => out.push_str("()"),
            Value::Array(items) => {
                for (at, (key, value)) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "( " } else { ", " });
                    if let Some(key) = key {
                        let _ = write!(out, "{} => ", quote(key));
                    }
                    value.value.write_source(out);
                }
                out.push_str(" )");
            }
        }
    }

    /// Approximate bytes: all text, and an overhead for every element.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Value::Str(text) => text.len(),
            Value::Int(_) => 8,
            Value::Array(items) => items
                .iter()
                .map(|(key, v)| 48 + key.as_ref().map_or(0, |key| key.len()) + v.value.weight())
                .sum(),
        }
    }

    /// Nesting depth of arrays.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Value::Array(items) => {
                1 + items.iter().map(|(_, v)| v.value.depth()).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// True if any text in it (except keys) satisfies the test.
    pub(crate) fn any_text(&self, test: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Value::Str(text) => test(text),
            Value::Int(_) => false,
            Value::Array(items) => items.iter().any(|(_, v)| v.value.any_text(test)),
        }
    }

    /// The value as JSON: strings, numbers, lists; an array with only keys is an object, other
    /// arrays with keys are lists of `[key, value]`.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Value::Str(text) => Json::from(text.as_str()),
            Value::Int(number) => Json::from(*number),
            Value::Array(items) if items.iter().all(|(key, _)| key.is_none()) => {
                items.iter().map(|(_, v)| v.value.to_json()).collect()
            }
            Value::Array(items) => match self.as_pairs() {
                Some(pairs) => Json::Object(
                    pairs.into_iter().map(|(k, v)| (k.to_owned(), v.value.to_json())).collect(),
                ),
                None => items
                    .iter()
                    .map(|(k, v)| Json::from(vec![Json::from(k.as_deref()), v.value.to_json()]))
                    .collect(),
            },
        }
    }
}

/// A string in configuration syntax: in quotes, with `\"` for a quote.
pub(crate) fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\\\""))
}

fn parse_digits(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if all { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> Value {
        Value::Str(s.into())
    }

    #[test]
    fn switches_of_both_dialects() {
        for yes in ["enable", "enabled", "true", "1"] {
            assert_eq!(text(yes).as_bool(), Some(true), "{yes}");
        }
        for no in ["disable", "disabled", "false", "0"] {
            assert_eq!(text(no).as_bool(), Some(false), "{no}");
        }
        assert_eq!(Value::Int(1).as_bool(), Some(true));
        assert_eq!(Value::Int(0).as_bool(), Some(false));
        assert_eq!(Value::Int(2).as_bool(), None);
        assert_eq!(text("on").as_bool(), None);
        assert_eq!(text("Enable").as_bool(), Some(true));
        assert_eq!(text("yes").as_bool(), None);
    }

    #[test]
    fn numbers_may_be_strings_of_digits() {
        assert_eq!(text("80").as_int(), Some(80));
        assert_eq!(text("-1").as_int(), Some(-1));
        for bad in ["", "-", "+1", "8k", " 8", "99999999999999999999"] {
            assert_eq!(text(bad).as_int(), None, "{bad:?}");
        }
    }

    #[test]
    fn a_value_is_written_as_it_is_read() {
        assert_eq!(text(r#"a"b\d"#).to_source(), r#""a\"b\d""#);
        assert_eq!(Value::Array(vec![]).to_source(), "()");
    }
}
