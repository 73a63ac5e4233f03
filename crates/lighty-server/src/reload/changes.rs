//! Differences between the running configuration and the next one, object by object.

use std::fmt;

use serde::Serialize;

/// Effect of a reload on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ChangeAction {
    Add,
    Remove,
    Change,
    /// Only a new process can apply it: the reload is refused.
    RestartNeeded,
    /// An order of an operator stays in effect.
    OverrideKept,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ObjectChange {
    /// Kind of the object, such as `listener`.
    pub(crate) object: &'static str,
    pub(crate) name: String,
    pub(crate) action: ChangeAction,
    /// The property that changes, if the object stays.
    pub(crate) field: Option<String>,
    pub(crate) old: Option<String>,
    pub(crate) new: Option<String>,
}

impl ObjectChange {
    pub(super) fn add(object: &'static str, name: impl Into<String>) -> Self {
        Self::whole(object, name, ChangeAction::Add)
    }

    pub(super) fn remove(object: &'static str, name: impl Into<String>) -> Self {
        Self::whole(object, name, ChangeAction::Remove)
    }

    fn whole(object: &'static str, name: impl Into<String>, action: ChangeAction) -> Self {
        Self { object, name: name.into(), action, field: None, old: None, new: None }
    }

    pub(super) fn field(
        object: &'static str,
        name: impl Into<String>,
        field: &str,
        (old, new): (String, String),
    ) -> Self {
        Self {
            field: Some(field.to_owned()),
            old: Some(old),
            new: Some(new),
            ..Self::whole(object, name, ChangeAction::Change)
        }
    }

    pub(super) fn with_action(self, action: ChangeAction) -> Self {
        Self { action, ..self }
    }
}

/// The difference as a line for people.
impl fmt::Display for ObjectChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            ChangeAction::Add => "add",
            ChangeAction::Remove => "remove",
            ChangeAction::Change => "change",
            ChangeAction::RestartNeeded => "needs a restart:",
            ChangeAction::OverrideKept => "keep the order for",
        };
        write!(f, "{action} {} {}", self.object, self.name)?;
        match (&self.field, &self.old, &self.new) {
            (Some(field), Some(old), Some(new)) => write!(f, ": {field} {old} -> {new}"),
            (Some(field), None, Some(new)) => write!(f, ": {field} {new}"),
            (None, Some(old), Some(new)) => write!(f, ": {old} -> {new}"),
            (None, None, Some(new)) => write!(f, " = {new}"),
            _ => Ok(()),
        }
    }
}

/// Compares two lists of names. Names in both are left out.
pub(super) fn names<'a>(
    object: &'static str,
    before: &'a [String],
    after: &'a [String],
) -> impl Iterator<Item = ObjectChange> + 'a {
    let gone = before.iter().filter(|name| !after.contains(name));
    let new = after.iter().filter(|name| !before.contains(name));
    let gone = gone.map(move |name| ObjectChange::remove(object, name.as_str()));
    gone.chain(new.map(move |name| ObjectChange::add(object, name.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_read_like_orders() {
        let weight = ObjectChange::field("backend", "b:1 of u", "weight", ("1".into(), "5".into()));
        for (change, text) in [
            (ObjectChange::add("listener", "[::]:80"), "add listener [::]:80"),
            (ObjectChange::remove("log", "a.log"), "remove log a.log"),
            (weight.clone(), "change backend b:1 of u: weight 1 -> 5"),
            (
                ObjectChange { old: None, ..weight.with_action(ChangeAction::OverrideKept) },
                "keep the order for backend b:1 of u: weight 5",
            ),
        ] {
            assert_eq!(change.to_string(), text);
        }
        let (before, after) = (["a".to_owned(), "b".to_owned()], ["b".to_owned(), "c".to_owned()]);
        let found: Vec<_> = names("module", &before, &after).map(|one| one.to_string()).collect();
        assert_eq!(found, ["remove module a", "add module c"]);
    }
}
