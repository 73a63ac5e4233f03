//! Claims about a user: members of a token, or of a provider's user information.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::strict_json;

/// Largest date, in seconds since 1970: the year 9999.
const DATE_MAX_S: f64 = 253_402_300_799.0;

/// Maximum number of a provider's objects in a list.
const LIST_MAX: usize = 1000;

/// Claims with lists of names that are separated by spaces (RFC 8693 section 4.2).
const SPACED: [&str; 2] = ["scope", "scp"];

/// The claims.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Claims(Map<String, Value>);

/// A claim is not a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotDate;

impl Claims {
    /// Reads a JSON object; `None` if it is not one, is too deep, or repeats a name.
    #[must_use]
    pub fn parse(json: &[u8]) -> Option<Self> {
        strict_json::parse_object(json).map(Self)
    }

    /// Reads a JSON array of at most [`LIST_MAX`] objects; `None` if it is not one.
    pub(crate) fn parse_list(json: &[u8]) -> Option<Vec<Self>> {
        let items = strict_json::parse_array(json)?;
        if items.len() > LIST_MAX {
            return None;
        }
        let object = |item| match item {
            Value::Object(members) => Some(Self(members)),
            _ => None,
        };
        items.into_iter().map(object).collect()
    }

    /// One claim, with a list of names.
    pub(crate) fn of_names<'n>(claim: &str, names: impl Iterator<Item = Cow<'n, str>>) -> Self {
        let names = names.map(Value::from).collect();
        Self(Map::from_iter([(claim.to_owned(), Value::Array(names))]))
    }

    /// Adds other claims, which replace those of the same names.
    pub(crate) fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Removes a claim.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Removes the claims that none of these paths needs.
    pub fn keep_only(&mut self, paths: &[&str]) {
        let is_needed = |name: &String| {
            let begins = |path: &str| path.split('.').next() == Some(name);
            paths.iter().any(|path| *path == name || begins(path))
        };
        self.0.retain(|name, _| is_needed(name));
    }

    /// Removes claims about the token instead of its user.
    pub fn remove_protocol(&mut self) {
        const OF_TOKEN: [&str; 13] = [
            "iss",
            "aud",
            "exp",
            "nbf",
            "iat",
            "jti",
            "nonce",
            "azp",
            "at_hash",
            "c_hash",
            "s_hash",
            "auth_time",
            "typ",
        ];
        OF_TOKEN.iter().for_each(|name| drop(self.0.remove(*name)));
    }

    /// The value of a claim. `path` is its name, or names of nested objects with dots between them,
    /// such as `realm_access.roles`.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&Value> {
        if let Some(value) = self.0.get(path) {
            return Some(value);
        }
        let (first, rest) = path.split_once('.')?;
        rest.split('.').try_fold(self.0.get(first)?, |value, name| value.get(name))
    }

    /// A claim that is a text.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.find(path)?.as_str()
    }

    /// A claim that is a text, a number, or true or false, as a text.
    pub(crate) fn simple_text(&self, path: &str) -> Option<Cow<'_, str>> {
        self.find(path).and_then(simple)
    }

    /// The members of a claim that is a list of texts, or a single text.
    pub fn texts(&self, path: &str) -> impl Iterator<Item = &str> {
        let value = self.find(path);
        let listed = value.and_then(Value::as_array).map_or(&[][..], |items| items);
        let single = value.and_then(Value::as_str);
        single.into_iter().chain(listed.iter().filter_map(Value::as_str))
    }

    /// True if a claim has this value, or a list with it.
    #[must_use]
    pub fn has(&self, path: &str, wanted: &str) -> bool {
        let Some(value) = self.find(path) else { return false };
        if let (Some(listed), true) = (value.as_str(), SPACED.contains(&path)) {
            return listed.split(' ').any(|one| one == wanted);
        }
        match value {
            Value::Array(items) => {
                items.iter().any(|item| simple(item).is_some_and(|it| it == wanted))
            }
            other => simple(other).is_some_and(|it| it == wanted),
        }
    }

    /// The text of a claim for a header field or a variable. Members of lists have commas between
    /// them; members with a comma are left out, because a reader would take them for several.
    /// `None` for objects, and for text that no field can carry.
    #[must_use]
    pub fn field_value(&self, path: &str) -> Option<String> {
        let text = match self.find(path)? {
            Value::Array(items) => {
                let texts = items.iter().filter_map(simple).filter(|text| !text.contains(','));
                texts.filter(|text| is_clean(text)).collect::<Vec<_>>().join(",")
            }
            other => simple(other)?.into_owned(),
        };
        is_clean(&text).then(|| text.trim_ascii().to_owned())
    }

    /// Whole seconds since 1970 of a claim; `None` if it is missing.
    pub(crate) fn date_s(&self, name: &str) -> Result<Option<i64>, NotDate> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if (0.0..=DATE_MAX_S).contains(&number) => Ok(Some(number as i64)),
            _ => Err(NotDate),
        }
    }
}

fn simple(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(is_true) => Some(if *is_true { "true" } else { "false" }.into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// True if a header field can carry the text.
fn is_clean(text: &str) -> bool {
    !text.bytes().any(|byte| byte.is_ascii_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        let text = r#"{
            "sub": "kim", "n": 7, "on": true, "none": null, "scope": "read write",
            "roles": ["admin", "a,b", 3, "x\r\ny"], "bad": "a\r\nX-Admin: 1",
            "realm_access": {"roles": ["user"]}, "https://a.example/r": "dotted",
            "title": "read write", "exp": 1.9, "nbf": "1", "iat": -1, "empty": []
        }"#;
        Claims::parse(text.as_bytes()).expect("an object")
    }

    #[test]
    fn values_and_lists_are_compared() {
        let claims = claims();
        for (path, value) in [
            ("sub", "kim"),
            ("n", "7"),
            ("on", "true"),
            ("scope", "write"),
            ("roles", "admin"),
            ("roles", "3"),
            ("realm_access.roles", "user"),
            ("https://a.example/r", "dotted"),
        ] {
            assert!(claims.has(path, value), "{path}={value}");
        }
        for (path, value) in [
            ("sub", "ki"),
            ("none", "null"),
            ("none", ""),
            ("scope", "read write"),
            ("scope", "rea"),
            ("title", "read"),
            ("roles", "adm"),
            ("realm_access", "user"),
            ("realm_access.roles.x", "user"),
            ("missing", ""),
        ] {
            assert!(!claims.has(path, value), "{path}={value}");
        }
    }

    #[test]
    fn values_of_fields_are_clean() {
        let claims = claims();
        let value = |path| claims.field_value(path);
        assert_eq!(value("roles").as_deref(), Some("admin,3"));
        assert_eq!(value("sub").as_deref(), Some("kim"));
        assert_eq!(value("empty").as_deref(), Some(""));
        for path in ["bad", "realm_access", "none", "missing"] {
            assert_eq!(value(path), None, "{path}");
        }
    }

    #[test]
    fn dates_are_numbers() {
        let claims = claims();
        assert_eq!(claims.date_s("exp"), Ok(Some(1)));
        assert_eq!(claims.date_s("missing"), Ok(None));
        for name in ["nbf", "iat", "none", "roles"] {
            assert_eq!(claims.date_s(name), Err(NotDate), "{name}");
        }
    }
}
