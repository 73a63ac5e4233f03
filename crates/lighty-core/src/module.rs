//! The hooks through which features take part in a request.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use crate::exchange::Exchange;
use crate::exchange::file_part::FilePart;
use crate::pipeline::phase::{FastPath, ModuleSet, ORDER, Parts, Phase, PhaseSet, in_order};
use crate::settings::Settings;
use crate::settings::services::ServiceSpec;
use lighty_config::{Config, Directive};

pub use crate::pipeline::phase::Hooks;
pub use traits::{Acts, Traits};

mod traits;

/// Result of a hook.
pub enum Step<'a> {
    /// Pass the request on to the next module: it is not this module's request, or its part is
    /// done.
    Next,
    /// The response is complete: skip the remaining phases.
    Answered,
    /// The request line was changed (rewrite, error handler): restart with the new URL.
    Restart,
    /// Send the file at the exchange's physical path, whatever the method, and skip the remaining
    /// phases.
    SendFile(FileFate),
    /// Send these parts of files as the body; the response already has its head.
    SendParts(Vec<FilePart>),
    /// Wait for a disk, a backend or a script. Boxed, so that the common case keeps the
    /// connection's future small and allocates nothing.
    Wait(Pin<Box<dyn Future<Output = Step<'static>> + 'a>>),
}

impl Step<'_> {
    /// True for [`Step::Answered`]. Drops the payloads of the other variants explicitly, so that
    /// the common case has no drop glue.
    #[inline(always)]
    pub(crate) fn answers(self) -> bool {
        match self {
            Step::Answered => true,
            Step::Next | Step::Restart | Step::SendFile(_) => false,
            Step::SendParts(parts) => {
                drop(parts);
                false
            }
            Step::Wait(future) => {
                drop(future);
                false
            }
        }
    }
}

/// Fate of a file named by a handler, once it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFate {
    /// The file stays.
    Stays,
    /// The file is unlinked: it was created for this response only.
    Removed,
}

/// Features of connections that modules need.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Connections may begin with a PROXY protocol header.
    pub proxy_header: bool,
    /// The connection table records the requested targets.
    pub targets: bool,
}

/// A malformed order to remove stored responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PurgeRefusal(pub &'static str);

/// A feature: its directives, and hooks in the phases listed by [`Module::traits`].
///
/// [`crate::pipeline::phase::ORDER`] has the phases in order. Hooks of all phases except `done` may
/// wait. From `response_head` on there is a response, so a step other than [`Step::Next`] only ends
/// the phase.
pub trait Module {
    /// Name in `server.modules`, for example `mod_staticfile`.
    fn name(&self) -> &'static str;

    /// Rows of the directive table.
    fn directives() -> Vec<Directive<Settings>>
    where
        Self: Sized;

    /// The phases in which this module takes part, and the shortcuts that it permits.
    fn traits(&self) -> Traits;

    /// The subset of [`Traits::hooks`] that can have an effect under these settings, for any
    /// request. Called once per settings variant.
    fn hooks_under(&self, _settings: &Settings) -> Hooks {
        self.traits().hooks
    }

    /// Features of connections that the module needs under a configuration that includes it.
    fn needs(&self, _config: &Config<Settings>) -> Needs {
        Needs::default()
    }

    /// Predicts the effect of a hook on this request, without side effects. Requests that no hook
    /// concerns get their response without a future. Called for
    ///
    /// - [`Phase::CleanUrl`], which stands for all hooks before the file look-up, if the module
    ///   [acts seldom](Traits::acts_seldom): judged by the head of the request,
    /// - [`Phase::Remote`]: judged by the URL. After [`Acts::Surely`], rules about missing files do
    ///   not apply,
    /// - [`Phase::Handle`]: judged by the physical path,
    /// - [`Phase::Filter`]: judged by the status and fields of the response. Its head is complete,
    ///   and no filter has been applied yet.
    fn acts(&self, _phase: Phase, _ex: &Exchange) -> Acts {
        Acts::Perhaps
    }

    /// Carries out an order to remove stored responses, in the form of a query as in
    /// `tag=news&soft`, for a host unless the order names one. Returns a description. `None`: the
    /// module stores no responses.
    ///
    /// # Errors
    /// The order is malformed.
    fn purge(&self, _authority: &[u8], _order: &[u8]) -> Option<Result<String, PurgeRefusal>> {
        None
    }

    /// Called with the URL as received, before decoding.
    fn raw_url<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Called with the decoded and normalised URL.
    fn clean_url<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// May choose the document root, from which the physical path is derived next.
    fn docroot<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// May change the physical path. A module that responds here must authorize access first
    /// ([`crate::pipeline::locate::is_path_allowed`]).
    fn physical<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Decides whether the request may access its target, as far as the target is known. Called
    /// again when the settings or the name change: for the physical path, for the file found there,
    /// for an index file or path info, and by modules that respond before the look-up
    /// (`mod_webdav`). Responding denies access.
    fn authorize<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Called with the final physical path before the look-up: for modules that need no file.
    fn remote<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Called if the path is a directory.
    fn directory<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Called after the look-up and the choice of an index file, if something exists at the path.
    fn found<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Called if the request has conditions (`If-Match` and the like), before they are evaluated.
    /// Sets validators; neither waits nor responds.
    fn conditions<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Refuses every file that [`Module::handle`] would refuse to send unmodified. Modules with
    /// this hook send files or list directories. They run last when a request has two names (see
    /// [`Module::authorize`]) with separate settings, each of which may refuse it.
    fn withhold<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Responds with the file or directory at the physical path. The first module that responds
    /// wins.
    fn handle<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Sends the file in `physical.entry` that another handler named ([`Step::SendFile`]). Access
    /// has already been decided.
    fn send_file<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// May change the response's status and fields, which are set by now.
    fn response_head<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Applies a filter to the body, see [`crate::Body::filtered`], and changes the fields that
    /// depend on it (`Server` does not). The head is complete. Later modules filter the output of
    /// earlier ones.
    fn filter<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// The place that the response comes from if this module responds in a phase, and all that is
    /// done to the request on its way: for keys of caches. Requests with equal texts and equal
    /// heads are equal there. `None`: the response is not to be stored.
    fn destination(&self, _phase: Phase, _ex: &Exchange) -> Option<Arc<str>> {
        None
    }

    /// Logs and counts after the last byte or after the connection broke. Must not block.
    fn done(&self, _ex: &Exchange) {}

    /// Handles SIGHUP: reopens logs, drops caches.
    fn reopen(&self) {}
}

/// The module that has backends, as other modules see it.
pub trait Backends {
    /// Sends a request to the backend at an address: `host:port`, or `unix:/path`.
    fn send<'a>(&'a self, ex: &'a mut Exchange, address: &str) -> Step<'a>;

    /// Sends a request to a service of the settings. Its body is not sent.
    fn ask<'a>(&'a self, ex: &'a mut Exchange, service: &Arc<ServiceSpec>) -> Step<'a>;
}

/// Calls a module's hook of one phase.
pub(crate) type Hook = for<'a> fn(&'a dyn Module, &'a mut Exchange) -> Step<'a>;

macro_rules! hook {
    // A `done` hook cannot wait or change anything.
    (done) => {
        |module, ex| {
            module.done(ex);
            Step::Next
        }
    };
    ($hook:ident) => {
        |module, ex| module.$hook(ex)
    };
}

macro_rules! hooks {
    ($($(#[$about:meta])* $phase:ident: $hook:ident,)*) => {
        /// The hook of each phase, in the order of [`Phase`].
        pub(crate) const HOOKS: [Hook; ORDER.len()] = [$(hook!($hook)),*];
    };
}
in_order!(hooks);

/// The modules that a walk calls in a phase.
#[derive(Clone, Copy)]
pub(crate) struct Among {
    /// Restricts the modules that take part under the current settings to these.
    pub(crate) only: ModuleSet,
    /// Additional modules, called whether they take part or not.
    pub(crate) also: ModuleSet,
}

impl Among {
    /// All modules that take part under the current settings.
    pub(crate) const ALL: Self = Self::only(ModuleSet::ALL);

    pub(crate) const fn only(only: ModuleSet) -> Self {
        Self { only, also: ModuleSet::NONE }
    }
}

/// A worker's modules in order.
#[derive(Default)]
pub struct ModuleList {
    /// The modules in order, followed by a second entry for each that comes last in a phase.
    all: Vec<Rc<dyn Module>>,
    count: usize,
    backends: Option<Rc<dyn Backends>>,
}

impl ModuleList {
    /// Creates a list from modules in order.
    ///
    /// # Panics
    /// If there are more than 64; the list is fixed when the server is built.
    pub fn new(mut all: Vec<Rc<dyn Module>>) -> Self {
        let count = all.len();
        let is_last = |module: &&Rc<dyn Module>| module.traits().last_in != Hooks::default();
        let last: Vec<_> = all.iter().filter(is_last).cloned().collect();
        all.extend(last);
        assert!(all.len() <= u64::BITS as usize, "a module for each bit");
        Self { all, count, backends: None }
    }

    /// Adds modules behind the others.
    #[must_use]
    pub fn followed_by(self, more: &[Rc<dyn Module>]) -> Self {
        let all = self.iter().chain(more).cloned().collect();
        Self { backends: self.backends, ..Self::new(all) }
    }

    /// Adds the module to which others send requests
    /// ([`crate::pipeline::subrequest::respond_from_backend`]).
    #[must_use]
    pub fn with_backends(self, backends: Rc<dyn Backends>) -> Self {
        Self { backends: Some(backends), ..self }
    }

    /// The module that has backends, if any.
    pub(crate) fn backends(&self) -> Option<&Rc<dyn Backends>> {
        self.backends.as_ref()
    }

    /// True if some module may change the head of another module's response.
    pub fn change_heads(&self, settings: &Settings) -> bool {
        !self.part(Phase::ResponseHead, settings).is_empty()
    }

    /// Features of connections that any module needs.
    pub(crate) fn needs(&self, config: &Config<Settings>) -> Needs {
        self.iter().map(|module| module.needs(config)).fold(Needs::default(), |all, one| Needs {
            proxy_header: all.proxy_header || one.proxy_header,
            targets: all.targets || one.targets,
        })
    }

    /// Every module, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<dyn Module>> {
        self.all[..self.count].iter()
    }

    /// The modules with a hook in this phase under some settings, in order.
    pub(crate) fn ever(&self, phase: Phase) -> impl Iterator<Item = &dyn Module> {
        let modules = self.iter().map(|module| &**module);
        modules.filter(move |module| module.traits().hooks.has(phase))
    }

    /// The modules before the first one that satisfies a predicate.
    pub(crate) fn before(&self, holds: impl Fn(&dyn Module) -> bool) -> ModuleSet {
        let at = self.iter().position(|module| holds(&**module));
        at.map_or(ModuleSet::ALL, |at| ModuleSet::ALL.without(ModuleSet::from(at)))
    }

    /// The modules of a set that satisfy a predicate.
    #[inline]
    pub(crate) fn picked(&self, part: ModuleSet, picks: impl Fn(&dyn Module) -> bool) -> ModuleSet {
        let (mut rest, mut picked) = (part, ModuleSet::NONE);
        while let Some(at) = rest.take_first() {
            if picks(&*self.all[at]) {
                picked = picked.with(ModuleSet::only(at));
            }
        }
        picked
    }

    /// The modules that take part in a phase under these settings.
    #[inline]
    pub(crate) fn part(&self, phase: Phase, settings: &Settings) -> ModuleSet {
        self.parts(settings).by_phase[phase as usize]
    }

    /// The phases at which a pass has work to do.
    #[inline]
    pub(crate) fn stops(&self, settings: &Settings) -> PhaseSet {
        self.parts(settings).stops
    }

    /// The first module of a set, and its index.
    #[inline]
    pub(crate) fn first(&self, part: ModuleSet) -> Option<(usize, &dyn Module)> {
        let at = part.first()?;
        Some((at, &*self.all[at]))
    }

    /// The first module from an index on that takes part in a phase, and the index after it. Uses
    /// the current settings, because an earlier module may have changed them.
    #[inline]
    pub(crate) fn next(
        &self,
        (phase, among): (Phase, Among),
        settings: &Settings,
        from: usize,
    ) -> Option<(&dyn Module, usize)> {
        let part = self.part(phase, settings).and(among.only).with(among.also);
        let at = part.and(ModuleSet::from(from)).first()?;
        Some((&*self.all[at], at + 1))
    }

    /// The module at this index.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&dyn Module> {
        self.all.get(at).map(|module| &**module)
    }

    /// True if a module of a set satisfies a predicate.
    #[inline]
    pub(crate) fn any(&self, mut part: ModuleSet, holds: impl Fn(&dyn Module) -> bool) -> bool {
        while let Some(module) = self.take_first(&mut part) {
            if holds(module) {
                return true;
            }
        }
        false
    }

    /// True if a module of a set may act in a phase.
    #[inline]
    pub(crate) fn any_acts(&self, part: ModuleSet, phase: Phase, ex: &Exchange) -> bool {
        self.any(part, |module| module.acts(phase, ex) != Acts::Never)
    }

    /// The modules that take part in a phase and may act on this request.
    #[inline]
    pub(crate) fn willing(&self, phase: Phase, ex: &Exchange) -> ModuleSet {
        let part = self.part(phase, &ex.settings);
        self.picked(part, |module| module.acts(phase, ex) != Acts::Never)
    }

    /// True if some module that may change the head of another module's response may wait.
    #[inline]
    pub(crate) fn heads_may_wait(&self, settings: &Settings) -> bool {
        self.parts(settings).heads_may_wait
    }

    /// The fast path for known files; `None` if some module always acts on the request first.
    #[inline]
    pub(crate) fn fast_path(&self, settings: &Settings) -> Option<FastPath> {
        self.parts(settings).fast_path
    }

    #[inline]
    fn parts<'a>(&self, settings: &'a Settings) -> &'a Parts {
        settings.hook_table.0.get_or_init(|| self.assign(settings))
    }

    /// Removes the first module from the set and returns it.
    #[inline]
    pub(crate) fn take_first(&self, part: &mut ModuleSet) -> Option<&dyn Module> {
        part.take_first().map(|first| &*self.all[first])
    }

    #[cold]
    fn assign(&self, settings: &Settings) -> Parts {
        let hooks = self.all.iter().enumerate().map(|(at, module)| {
            let (hooks, last) = (module.hooks_under(settings), module.traits().last_in);
            if at < self.count { hooks.without(last) } else { hooks.and(last) }
        });
        let with = |holds: fn(Traits) -> bool| {
            self.picked(ModuleSet::below(self.all.len()), |module| holds(module.traits()))
        };
        let keepers = with(|traits| traits.keeps_settings);
        let seldom = with(|traits| traits.acts_seldom);
        let mut parts = Parts::new(hooks, keepers, seldom);
        let heads = parts.by_phase[Phase::ResponseHead as usize];
        let prompt = with(|traits| traits.head_never_waits);
        parts.heads_may_wait = !heads.without(prompt).is_empty();
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes part if the server has a name.
    struct Named(Hooks);

    impl Module for Named {
        fn name(&self) -> &'static str {
            "mod_named"
        }

        fn traits(&self) -> Traits {
            self.0.into()
        }

        fn hooks_under(&self, settings: &Settings) -> Hooks {
            self.0.only_if(settings.core.server_name.is_some())
        }

        fn directives() -> Vec<Directive<Settings>> {
            Vec::new()
        }
    }

    /// Sends files.
    struct Sender;

    impl Module for Sender {
        fn name(&self) -> &'static str {
            "mod_sender"
        }

        fn traits(&self) -> Traits {
            Hooks { handle: true, send_file: true, ..Hooks::default() }.into()
        }

        fn directives() -> Vec<Directive<Settings>> {
            Vec::new()
        }
    }

    fn named() -> Settings {
        let mut settings = Settings::default();
        settings.core.server_name = Some("a".into());
        settings
    }

    fn of(list: &ModuleList, phase: Phase, settings: &Settings) -> Vec<&'static str> {
        let mut part = list.part(phase, settings);
        std::iter::from_fn(|| list.take_first(&mut part)).map(|module| module.name()).collect()
    }

    fn list(hooks: Hooks) -> ModuleList {
        ModuleList::new(vec![Rc::new(Named(hooks)), Rc::new(Sender)])
    }

    #[test]
    fn each_phase_asks_those_that_have_something_to_do_in_their_order() {
        let list = list(Hooks { handle: true, done: true, ..Hooks::default() });
        let (bare, named) = (Settings::default(), named());
        assert_eq!(of(&list, Phase::Handle, &named), ["mod_named", "mod_sender"]);
        assert_eq!(of(&list, Phase::Done, &named), ["mod_named"]);
        assert_eq!(of(&list, Phase::Handle, &bare), ["mod_sender"]);
        assert!(list.part(Phase::Done, &bare).is_empty());
        assert!(list.part(Phase::Filter, &named).is_empty());
    }

    /// Keeps the settings for the head, and seldom does more.
    struct Keeper;

    impl Module for Keeper {
        fn name(&self) -> &'static str {
            "mod_keeper"
        }

        fn traits(&self) -> Traits {
            let hooks = Hooks { clean_url: true, response_head: true, ..Hooks::default() };
            Traits {
                hooks,
                keeps_settings: true,
                acts_seldom: true,
                head_never_waits: true,
                ..Traits::default()
            }
        }

        fn directives() -> Vec<Directive<Settings>> {
            Vec::new()
        }
    }

    #[test]
    fn keeping_settings_is_no_obstacle_to_the_fast_path() {
        let list = ModuleList::new(vec![Rc::new(Keeper), Rc::new(Sender)]);
        let (bare, named) = (Settings::default(), named());
        let path = list.fast_path(&bare).expect("nothing acts on every request");
        assert!(path.keeps_settings && path.seldom == ModuleSet::only(0));
        assert!(!list.heads_may_wait(&bare));
        let hooks = Hooks { response_head: true, ..Hooks::default() };
        let waiting =
            ModuleList::new(vec![Rc::new(Keeper), Rc::new(Named(hooks)), Rc::new(Sender)]);
        let (bare, named) = (Settings::default(), Settings::clone(&named));
        assert!(!waiting.heads_may_wait(&bare) && waiting.heads_may_wait(&named));
    }

    /// Comes last in `handle`.
    struct Last;

    impl Module for Last {
        fn name(&self) -> &'static str {
            "mod_last"
        }

        fn traits(&self) -> Traits {
            let last_in = Hooks { handle: true, ..Hooks::default() };
            Traits { hooks: Hooks { raw_url: true, ..last_in }, last_in, ..Traits::default() }
        }

        fn directives() -> Vec<Directive<Settings>> {
            Vec::new()
        }
    }

    #[test]
    fn a_module_may_come_behind_the_others_in_some_phases() {
        let other = Named(Hooks { raw_url: true, handle: true, ..Hooks::default() });
        let list = ModuleList::new(vec![Rc::new(Last), Rc::new(other)]);
        assert_eq!(of(&list, Phase::RawUrl, &named()), ["mod_last", "mod_named"]);
        assert_eq!(of(&list, Phase::Handle, &named()), ["mod_named", "mod_last"]);
        let names: Vec<_> = list.iter().map(|module| module.name()).collect();
        assert_eq!(names, ["mod_last", "mod_named"]);
    }

    #[test]
    fn settings_that_change_on_the_way_decide_who_is_next() {
        let list = ModuleList::new(vec![
            Rc::new(Sender),
            Rc::new(Named(Hooks { handle: true, ..Hooks::default() })),
            Rc::new(Sender),
        ]);
        let next = |settings: &Settings, from| {
            let all = (Phase::Handle, Among::ALL);
            list.next(all, settings, from).map(|(module, at)| (module.name(), at))
        };
        assert_eq!(next(&Settings::default(), 0), Some(("mod_sender", 1)));
        assert_eq!(next(&named(), 1), Some(("mod_named", 2)));
        assert_eq!(next(&Settings::default(), 1), Some(("mod_sender", 3)));
        assert_eq!(next(&named(), 3), None);
        assert_eq!(next(&named(), 64), None);
    }

    #[test]
    fn changed_settings_are_judged_anew() {
        let list = list(Hooks { done: true, ..Hooks::default() });
        let mut settings = named();
        assert!(!list.part(Phase::Done, &settings).is_empty());
        settings = settings.clone();
        settings.core.server_name = None;
        assert!(list.part(Phase::Done, &settings).is_empty());
    }

    #[test]
    fn a_file_goes_straight_where_nobody_else_has_a_say() {
        let fast_path =
            |hooks: Hooks, settings: &Settings| list(hooks).fast_path(settings).is_some();
        for early in [
            Hooks { raw_url: true, ..Hooks::default() },
            Hooks { clean_url: true, ..Hooks::default() },
            Hooks { docroot: true, ..Hooks::default() },
            Hooks { physical: true, ..Hooks::default() },
            Hooks { found: true, ..Hooks::default() },
        ] {
            assert!(!fast_path(early, &named()), "{early:?}");
            assert!(fast_path(early, &Settings::default()), "{early:?}");
        }
        let late = Hooks { response_head: true, filter: true, done: true, ..Hooks::default() };
        assert!(fast_path(late, &named()));
        let handles = Hooks { handle: true, ..Hooks::default() };
        assert!(fast_path(handles, &named()), "it may decline this file");
        let remote = Hooks { remote: true, ..Hooks::default() };
        assert!(fast_path(remote, &named()), "it may pass this request on");
        assert!(ModuleList::default().fast_path(&named()).is_none());
    }

    #[test]
    fn only_heads_that_a_module_may_change_are_left_open() {
        let list = list(Hooks { response_head: true, ..Hooks::default() });
        assert!(list.change_heads(&named()) && !list.change_heads(&Settings::default()));
    }

    #[test]
    fn modules_that_decline_are_left_out() {
        let list = ModuleList::new((0..3).map(|_| Rc::new(Sender) as Rc<dyn Module>).collect());
        let part = list.part(Phase::Handle, &Settings::default());
        let calls = std::cell::Cell::new(0);
        let picked = list.picked(part, |_| {
            calls.set(calls.get() + 1);
            calls.get() != 2
        });
        assert_eq!((calls.get(), picked), (3, ModuleSet::only(0).with(ModuleSet::only(2))));
    }
}
