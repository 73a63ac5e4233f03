//! Logins and groups of users.

use std::sync::Arc;

use lighty_io::clock::deadline::Deadline;
use lighty_io::entropy::random_bytes;

use super::error::DirectoryError;
use super::filter::{self, UserEntry, UserFilter};
use super::{Directory, DirectorySearch};

/// The users of a directory.
pub struct DirectoryAccounts {
    /// The directory.
    pub directory: Directory,
    /// Name of the entry beneath which users are searched for.
    pub base: Arc<str>,
    /// The filter that finds a user.
    pub filter: UserFilter,
    /// The attribute with the members of a group.
    pub group_attribute: Arc<str>,
}

/// The result of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// The password is right.
    Right {
        /// The name of the user's entry.
        dn: Arc<str>,
    },
    /// The user does not exist, or the password is wrong.
    Wrong,
    /// More than one entry matches, so that no user is meant.
    Ambiguous,
}

impl DirectoryAccounts {
    /// Checks a user's password.
    ///
    /// An empty password is always wrong: a directory accepts it without a check (RFC 4513 section
    /// 5.1.2). An unknown user takes a bind, too, so that names cannot be guessed by time.
    ///
    /// # Errors
    /// The directory gives no answer.
    pub async fn login(
        &self,
        name: &[u8],
        password: &[u8],
        deadline: Deadline,
    ) -> Result<Login, DirectoryError> {
        // Names and passwords of directories are UTF-8 (RFC 4513 section 5.1.3).
        let (Ok(name), Ok(password)) = (std::str::from_utf8(name), std::str::from_utf8(password))
        else {
            return Ok(Login::Wrong);
        };
        if name.is_empty() || password.is_empty() {
            return Ok(Login::Wrong);
        }
        let otherwise = match self.find(name, deadline).await? {
            FoundUser::One(dn) => {
                let is_right = self.directory.verify(dn.clone(), password.to_owned(), deadline);
                return Ok(match is_right.await? {
                    true => Login::Right { dn: dn.into() },
                    false => Login::Wrong,
                });
            }
            FoundUser::None => Login::Wrong,
            FoundUser::Several => Login::Ambiguous,
        };
        self.bind_in_vain(deadline).await?;
        Ok(otherwise)
    }

    /// True if the user is a member of a group: an entry at or beneath `group` has the user among
    /// its members. `dn` is the name of the user's entry, if it is known.
    ///
    /// # Errors
    /// The directory gives no answer.
    pub async fn is_member(
        &self,
        name: &[u8],
        dn: Option<&str>,
        group: &Arc<str>,
        deadline: Deadline,
    ) -> Result<bool, DirectoryError> {
        let Ok(name) = std::str::from_utf8(name) else { return Ok(false) };
        let attribute = &*self.group_attribute;
        let filter = if !filter::names_entries(attribute) {
            filter::membership(attribute, name)
        } else if let Some(dn) = dn {
            filter::membership(attribute, dn)
        } else {
            match self.find(name, deadline).await? {
                FoundUser::One(dn) => filter::membership(attribute, &dn),
                FoundUser::None | FoundUser::Several => return Ok(false),
            }
        };
        let base = Arc::clone(group);
        let search = DirectorySearch { base, filter, attribute: None, entries_max: 1 };
        let found = self.directory.search(search, deadline).await?;
        Ok(!found.entries.is_empty())
    }

    /// True if the text can be the attribute of members.
    pub fn is_attribute(text: &str) -> bool {
        filter::is_attribute(text)
    }

    async fn find(&self, name: &str, deadline: Deadline) -> Result<FoundUser, DirectoryError> {
        let filter = match self.filter.entry(name) {
            UserEntry::Dn(dn) => return Ok(FoundUser::One(dn)),
            UserEntry::Filter(filter) => filter,
        };
        let base = Arc::clone(&self.base);
        // Two, because more than one is none.
        let search = DirectorySearch { base, filter, attribute: None, entries_max: 2 };
        let mut found = self.directory.search(search, deadline).await?;
        if found.is_without_base {
            let server = self.directory.options().servers.first().map(ToString::to_string);
            let reason = format!("the base \"{}\" does not exist or may not be read", self.base);
            return Err(DirectoryError::Refused { server: server.unwrap_or_default(), reason });
        }
        Ok(match found.entries.pop() {
            None => FoundUser::None,
            // The name of the directory's root would make the bind anonymous.
            Some(entry) if entry.dn.is_empty() => FoundUser::None,
            Some(_) if found.has_more || !found.entries.is_empty() => FoundUser::Several,
            Some(entry) => FoundUser::One(entry.dn),
        })
    }

    /// Binds as an entry that does not exist.
    async fn bind_in_vain(&self, deadline: Deadline) -> Result<(), DirectoryError> {
        let random = u128::from_ne_bytes(random_bytes().map_err(DirectoryError::Thread)?);
        let dn = match &*self.base {
            "" => format!("cn={random:032x}"),
            base => format!("cn={random:032x},{base}"),
        };
        // The directory need not learn the password of a user that it does not know.
        self.directory.verify(dn, format!("{random:032x}"), deadline).await.map(drop)
    }
}

/// The entries of a user's name.
enum FoundUser {
    None,
    One(String),
    Several,
}
