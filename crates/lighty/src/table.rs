//! The table of directives.

use lighty_config::Table;
use lighty_core::Settings;
use lighty_core::settings::directives;
use lighty_server::{absent, modules};

/// Returns the table of this build.
pub(crate) fn of_build() -> Table<Settings> {
    Table::new()
        .rows(modules::directives())
        .absent(absent::directives())
        .backtracking(lighty_core::settings::backtracking::compile)
        .planned(directives::PLANNED.iter().copied())
        .instead(directives::INSTEAD.iter().copied())
        .gone(directives::GONE.iter().copied())
        .removed(directives::REMOVED.iter().copied())
}
