//! A module's declarations: its phases, and its permissions for shortcuts.

use crate::pipeline::phase::Hooks;

/// Declarations of a module that hold for every request. The defaults are always correct: each
/// field but `hooks` and `last_in` permits a shortcut.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    /// Phases in which the module takes part.
    pub hooks: Hooks,
    /// Phases in which the module runs after all others, regardless of its position in the list.
    pub last_in: Hooks,
    /// [`Module::physical`](super::Module::physical) responds instead of changing the path.
    /// Resolving other URLs named by a request ([`crate::pipeline::locate`]) stops before this
    /// module.
    pub responds_to_paths: bool,
    /// The module rejects no URL that it accepts at other times under the same settings. Code that
    /// changes many files at once checks each of them, unless all modules declare this.
    pub never_refuses_paths: bool,
    /// [`Module::response_head`](super::Module::response_head) never waits. Known files are then
    /// sent without a future.
    pub head_never_waits: bool,
    /// The fast path skips the module's hooks before the file look-up, unless
    /// [`Module::acts`](super::Module::acts) says that the request concerns one.
    pub acts_seldom: bool,
    /// [`Module::clean_url`](super::Module::clean_url) keeps the settings of every request for the
    /// head of its response ([`crate::exchange::request_state::RequestState::keeps_settings`]). The
    /// fast path does that in place of the hook.
    pub keeps_settings: bool,
}

impl From<Hooks> for Traits {
    fn from(hooks: Hooks) -> Self {
        Self { hooks, ..Self::default() }
    }
}

/// A module's forecast for one of its hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acts {
    /// The hook would pass this request on.
    Never,
    /// The hook has to be called.
    Perhaps,
    /// The hook takes this request on, whether or not there is a file.
    Surely,
}

impl Acts {
    /// [`Acts::Perhaps`] if `may_act`, else [`Acts::Never`].
    #[must_use]
    pub fn perhaps_if(may_act: bool) -> Self {
        if may_act { Self::Perhaps } else { Self::Never }
    }
}
