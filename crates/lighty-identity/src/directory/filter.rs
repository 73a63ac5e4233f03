//! Filters with the name of a user.

use std::fmt;
use std::sync::Arc;

use ldap3::{dn_escape, ldap_escape};

use super::error::FilterError;

/// Attributes with names of entries, not of users.
const NAMES_OF_ENTRIES: [&str; 3] = ["member", "uniqueMember", "roleOccupant"];

/// `auth.backend.ldap.filter`: the way from a user's name to an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UserFilter {
    /// A filter with the user's name in place of each `?`.
    Search(Arc<str>),
    /// No search: the entry's name is `uid=`, the user's name and this text, which begins with a
    /// comma.
    Suffix(Arc<str>),
}

/// The entry of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UserEntry {
    /// This filter finds it.
    Filter(String),
    /// Its name.
    Dn(String),
}

impl UserFilter {
    /// Parses the directive. `$` means the same as `?`, as in lighttpd 1.5.
    ///
    /// # Errors
    /// It has no place for the user's name, or is no filter.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.starts_with(',') {
            return Ok(Self::Suffix(text.into()));
        }
        let template = text.replace('$', "?");
        if !template.contains('?') {
            return Err(FilterError::NoPlace);
        }
        ldap3::parse_filter(template.replace('?', "kim")).map_err(|()| FilterError::Syntax)?;
        Ok(Self::Search(template.into()))
    }

    /// The entry of a user. No name changes the form of the filter, or of the entry's name.
    pub(super) fn entry(&self, name: &str) -> UserEntry {
        match self {
            Self::Search(template) => UserEntry::Filter(template.replace('?', &ldap_escape(name))),
            Self::Suffix(suffix) => UserEntry::Dn(format!("uid={}{suffix}", dn_escape(name))),
        }
    }
}

/// A filter with the name of a host in place of each `?`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostFilter(Arc<str>);

impl HostFilter {
    /// Parses the filter.
    ///
    /// # Errors
    /// It has no place for the host's name, or is no filter.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if !text.contains('?') {
            return Err(FilterError::NoPlace);
        }
        ldap3::parse_filter(text.replace('?', "a.test")).map_err(|()| FilterError::Syntax)?;
        Ok(Self(text.into()))
    }

    /// The filter that finds a host.
    pub fn search(&self, host: &str) -> String {
        self.0.replace('?', &ldap_escape(host))
    }
}

/// As written.
impl fmt::Display for HostFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True if the attribute's values are names of entries.
pub(super) fn names_entries(attribute: &str) -> bool {
    // `member:1.2.840.113556.1.4.1941:` follows groups within groups.
    let base = attribute.split([':', ';']).next().unwrap_or_default();
    NAMES_OF_ENTRIES.iter().any(|name| name.eq_ignore_ascii_case(base))
}

/// The filter for the entry of a group with this member.
pub(super) fn membership(attribute: &str, member: &str) -> String {
    format!("({attribute}={})", ldap_escape(member))
}

/// True if the text is the name of an attribute, perhaps with a rule for comparisons.
pub(super) fn is_attribute(text: &str) -> bool {
    let is_fit =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b';');
    !text.is_empty()
        && text.bytes().all(is_fit)
        && ldap3::parse_filter(membership(text, "kim")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str, name: &str) -> String {
        match UserFilter::parse(text).expect(text).entry(name) {
            UserEntry::Filter(filter) => {
                assert!(ldap3::parse_filter(&filter).is_ok(), "{filter}");
                filter
            }
            UserEntry::Dn(dn) => dn,
        }
    }

    #[test]
    fn user_stands_at_each_place() {
        assert_eq!(filter("(uid=?)", "kim"), "(uid=kim)");
        assert_eq!(filter("(uid=$)", "kim"), "(uid=kim)");
        assert_eq!(filter("(|(uid=?)(mail=?@a.test))", "kim"), "(|(uid=kim)(mail=kim@a.test))");
        assert_eq!(filter("uid=?", "kim"), "uid=kim");
        assert_eq!(filter(",ou=people,dc=a", "kim"), "uid=kim,ou=people,dc=a");
    }

    #[test]
    fn no_name_changes_the_filter() {
        for (name, wanted) in [
            ("*", "(uid=\\2a)"),
            ("k)(uid=*", "(uid=k\\29\\28uid=\\2a)"),
            ("a\\b", "(uid=a\\5cb)"),
            ("\0", "(uid=\\00)"),
            ("?", "(uid=?)"),
            ("$", "(uid=$)"),
            ("é&|!", "(uid=é&|!)"),
        ] {
            assert_eq!(filter("(uid=?)", name), wanted);
        }
    }

    #[test]
    fn no_name_changes_the_name_of_the_entry() {
        for (name, wanted) in [
            ("kim,ou=admins", "uid=kim\\2cou\\3dadmins,dc=a"),
            ("a+cn=b", "uid=a\\2bcn\\3db,dc=a"),
            (" #a ", "uid=\\20#a\\20,dc=a"),
            ("#a", "uid=\\23a,dc=a"),
            ("a\\,b\"<>;", "uid=a\\5c\\2cb\\22\\3c\\3e\\3b,dc=a"),
            ("?$", "uid=?$,dc=a"),
        ] {
            assert_eq!(filter(",dc=a", name), wanted);
        }
    }

    #[test]
    fn filters_that_cannot_work_are_refused() {
        assert_eq!(UserFilter::parse("(uid=kim)"), Err(FilterError::NoPlace));
        assert_eq!(UserFilter::parse(""), Err(FilterError::NoPlace));
        assert_eq!(UserFilter::parse("(uid=?"), Err(FilterError::Syntax));
        assert_eq!(UserFilter::parse("(&(uid=?)x)"), Err(FilterError::Syntax));
    }

    #[test]
    fn no_host_changes_its_filter() {
        let filter = HostFilter::parse("(&(cn=?)(objectClass=device))").expect("a filter");
        assert_eq!(filter.search("a.test"), "(&(cn=a.test)(objectClass=device))");
        assert_eq!(filter.search("*)(cn=?"), "(&(cn=\\2a\\29\\28cn=?)(objectClass=device))");
        assert_eq!(HostFilter::parse("(cn=a)"), Err(FilterError::NoPlace));
        assert_eq!(HostFilter::parse("(cn=?"), Err(FilterError::Syntax));
    }

    #[test]
    fn groups_name_users_or_their_entries() {
        assert!(!names_entries("memberUid") && names_entries("Member"));
        assert!(names_entries("uniqueMember") && names_entries("member:1.2.840.113556.1.4.1941:"));
        let dn = "uid=k\\2cm (x)*,dc=a";
        assert_eq!(membership("member", dn), "(member=uid=k\\5c2cm \\28x\\29\\2a,dc=a)");
        assert!(is_attribute("memberUid") && is_attribute("member:1.2.840.113556.1.4.1941:"));
        for bad in ["", "a)(b", "a b", "member=", "*"] {
            assert!(!is_attribute(bad), "{bad}");
        }
    }
}
