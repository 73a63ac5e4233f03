//! The settings of the served file, if its name has other ones than the requested URL.
//!
//! ```text
//!           begin_check             end_check              begin_handling
//! OneName --------------> Checking -----------> Authorized ---------------> Handled
//!    ^                       |                      |                          |
//!    +-----------------------+-------- forget ------+--------------------------+
//! ```
//!
//! A file has two names if the URL was rewritten, names a directory, or carries path info. Settings
//! may depend on both: `$HTTP["url"]` sees the requested URL, and access rules for the file's own
//! name must hold too.

use std::rc::Rc;

use crate::Settings;

/// Progress of a request for a file with two names.
#[derive(Debug, Default)]
pub enum ServedFile {
    /// The file has one name, or none is known yet.
    #[default]
    OneName,
    /// `Exchange::settings` are the file's while access to it is checked.
    Checking,
    /// Access was checked under these settings.
    Authorized(Rc<Settings>),
    /// The file is being handled. Modules that change the response's head consult its settings too.
    Handled(Rc<Settings>),
}

impl ServedFile {
    /// The check of access under the file's settings begins.
    pub(crate) fn begin_check(&mut self) {
        *self = Self::Checking;
    }

    /// The check has ended. Its settings are kept for the handling, also if it refused access.
    pub(crate) fn end_check(&mut self, settings: Rc<Settings>) {
        *self = Self::Authorized(settings);
    }

    /// The handling begins: returns its settings, if they differ and it has not begun before.
    pub(crate) fn begin_handling(&mut self) -> Option<Rc<Settings>> {
        let settings = self.authorized().cloned()?;
        *self = Self::Handled(Rc::clone(&settings));
        Some(settings)
    }

    /// The path is to be found anew.
    pub(crate) fn forget(&mut self) {
        *self = Self::OneName;
    }

    /// True while access under the file's settings is checked.
    pub fn is_checking(&self) -> bool {
        matches!(self, Self::Checking)
    }

    /// The settings of a file that waits to be handled.
    pub(crate) fn authorized(&self) -> Option<&Rc<Settings>> {
        match self {
            Self::Authorized(settings) => Some(settings),
            _ => None,
        }
    }

    /// The settings of a file that is being handled.
    pub fn handled(&self) -> Option<&Rc<Settings>> {
        match self {
            Self::Handled(settings) => Some(settings),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, table};

    use super::*;

    fn name(state: &ServedFile) -> &'static str {
        match state {
            ServedFile::OneName => "OneName",
            ServedFile::Checking => "Checking",
            ServedFile::Authorized(_) => "Authorized",
            ServedFile::Handled(_) => "Handled",
        }
    }

    /// An event and its name.
    type Event<'a> = (&'a str, &'a dyn Fn(&mut ServedFile));

    const MATRIX: &str = "
            begin_check  end_check   begin_handling  forget
OneName     Checking     Authorized  OneName         OneName
Checking    Checking     Authorized  Checking        OneName
Authorized  Checking     Authorized  Handled         OneName
Handled     Checking     Authorized  Handled         OneName
";

    #[test]
    fn every_event_in_every_state_leads_to_one_state() {
        let states: [fn() -> ServedFile; 4] = [
            || ServedFile::OneName,
            || ServedFile::Checking,
            || ServedFile::Authorized(Rc::default()),
            || ServedFile::Handled(Rc::default()),
        ];
        let events: [Event<'_>; 4] = [
            ("begin_check", &ServedFile::begin_check),
            ("end_check", &|file| file.end_check(Rc::default())),
            ("begin_handling", &|file| {
                let had_settings = file.authorized().is_some();
                assert_eq!(file.begin_handling().is_some(), had_settings);
            }),
            ("forget", &ServedFile::forget),
        ];
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(events.iter().map(|(event, _)| (*event).to_owned()));
        for state in states {
            let mut row = vec![name(&state()).to_owned()];
            for (_, event) in &events {
                let mut file = state();
                event(&mut file);
                let held =
                    [file.is_checking(), file.authorized().is_some(), file.handled().is_some()];
                assert!(held.iter().filter(|held| **held).count() <= 1, "{file:?}");
                row.push(name(&file).to_owned());
            }
            rows.push(row);
        }
        assert_matrix(&table(&rows), MATRIX);
    }
}
