//! Reasons against a reload.

/// All reasons against a reload, as they are printed. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// One reason on each line, after the warnings.
    pub text: String,
    /// The way out.
    pub kind: RefusalKind,
}

/// Kind of a refusal, for callers that act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The configuration, or something that it needs, has to be changed first.
    Configuration,
    /// Only the sandbox of the running process lacks rights: a new process can have them.
    Sandbox,
}

impl RefusalKind {
    /// Its name in the responses of the control socket.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Sandbox => SANDBOX,
        }
    }
}

/// Name of [`RefusalKind::Sandbox`] in the responses of the control socket.
pub const SANDBOX: &str = "sandbox";

impl Refusal {
    /// A refusal for reasons of the configuration.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: RefusalKind::Configuration }
    }

    /// A refusal of a configuration of which the sandbox has refused a file or a command.
    pub fn by_sandbox(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: RefusalKind::Sandbox }
    }

    /// The same with other text.
    pub(super) fn map(self, change: impl FnOnce(String) -> String) -> Self {
        Self { text: change(self.text), ..self }
    }
}

/// Reasons that are collected while a configuration is opened.
#[derive(Default)]
pub(super) struct Reasons {
    /// Rights that the sandbox of the process lacks.
    pub(super) sandbox: Vec<String>,
    /// Files that cannot be opened. The sandbox may be the reason.
    pub(super) files: Vec<String>,
    pub(super) others: Vec<String>,
}

impl Reasons {
    /// Returns the refusal, if there is any reason for one.
    pub(super) fn refusal(self) -> Option<Refusal> {
        let Self { sandbox, files, others } = self;
        // A new process opens the files too, so the upgrade fails if the sandbox is not to blame.
        let kind = match !sandbox.is_empty() && others.is_empty() {
            true => RefusalKind::Sandbox,
            false => RefusalKind::Configuration,
        };
        let all = [others, sandbox, files].concat();
        (!all.is_empty()).then(|| Refusal { text: all.join("\n"), kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_of_the_sandbox_unless_something_else_is_in_the_way() {
        let reasons = |sandbox: &[&str], files: &[&str], others: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let reasons =
                Reasons { sandbox: owned(sandbox), files: owned(files), others: owned(others) };
            reasons.refusal().map(|refusal| (refusal.text, refusal.kind))
        };
        use RefusalKind::{Configuration, Sandbox};
        assert_eq!(reasons(&[], &[], &[]), None);
        assert_eq!(reasons(&["s"], &[], &[]), Some(("s".to_owned(), Sandbox)));
        assert_eq!(reasons(&["s"], &["f"], &[]), Some(("s\nf".to_owned(), Sandbox)));
        assert_eq!(reasons(&["s"], &["f"], &["o"]), Some(("o\ns\nf".to_owned(), Configuration)));
        assert_eq!(reasons(&[], &["f"], &[]), Some(("f".to_owned(), Configuration)));
    }
}
