//! Sources of users: `auth.backend`.

use lighty_config::{Reject, Value};

use super::users::UserFileFormat;

/// All names of backends.
pub(super) const NAMES: &[&str] = &["", "plain", "htpasswd", "htdigest", "ldap", "pam"];

/// A source of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserBackend {
    /// A file.
    File(UserFileFormat),
    /// Another machine or process, which checks passwords itself.
    Outside(OutsideBackend),
}

/// A backend that checks passwords itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutsideBackend {
    /// A directory.
    #[cfg(feature = "identity")]
    Ldap,
    /// The modules of PAM.
    #[cfg(feature = "identity")]
    Pam,
}

impl OutsideBackend {
    /// The backend with this name, if this build has it.
    fn of_name(name: &str) -> Option<Self> {
        match name {
            #[cfg(feature = "identity")]
            "ldap" => Some(Self::Ldap),
            #[cfg(feature = "identity")]
            "pam" => Some(Self::Pam),
            _ => None,
        }
    }
}

#[cfg(feature = "identity")]
impl OutsideBackend {
    /// True if it has groups; otherwise they are in the file of groups.
    pub(super) fn has_groups(self) -> bool {
        match self {
            Self::Ldap => true,
            Self::Pam => false,
        }
    }
}

impl UserBackend {
    /// Parses the directive.
    pub(super) fn parse(value: &Value) -> Result<Option<Self>, Reject> {
        let name = value.as_str().unwrap_or_default();
        Ok(Some(match name {
            "" if value.as_str().is_some() => return Ok(None),
            "plain" => Self::File(UserFileFormat::Plain),
            "htpasswd" => Self::File(UserFileFormat::Htpasswd),
            "htdigest" => Self::File(UserFileFormat::Htdigest),
            _ => match OutsideBackend::of_name(name) {
                Some(outside) => Self::Outside(outside),
                None if NAMES.contains(&name) => {
                    return Err(Reject::new(format!("is \"{name}\", which this build lacks"))
                        .help("build with the feature \"identity\""));
                }
                None if ["gssapi", "sasl", "dbi", "mysql"].contains(&name) => {
                    return Err(Reject::new("is a backend that is not available yet").help(
                        "there are \"plain\", \"htpasswd\", \"htdigest\", \"ldap\" and \"pam\"",
                    ));
                }
                None => {
                    let text = "must be \"plain\", \"htpasswd\", \"htdigest\", \"ldap\" or \"pam\"";
                    return Err(Reject::new(text));
                }
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Result<Option<UserBackend>, Reject> {
        UserBackend::parse(&Value::Str(name.to_owned()))
    }

    #[test]
    fn every_name_has_its_backend() {
        assert_eq!(parse(""), Ok(None));
        for name in NAMES.iter().filter(|name| !name.is_empty()) {
            let is_here = cfg!(feature = "identity") || name.starts_with('h') || *name == "plain";
            assert_eq!(parse(name).is_ok(), is_here, "{name}");
        }
        assert!(parse("gssapi").is_err_and(|reject| reject.message.contains("not available")));
        assert!(parse("htpasswords").is_err() && UserBackend::parse(&Value::Int(1)).is_err());
    }
}
