//! The hooks through which features take part in a request.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::OnceLock;

use crate::exchange::Exchange;
use crate::sendfile::FilePart;
use crate::settings::Settings;
use lighty_config::Directive;

/// A hook's result.
pub enum Step<'a> {
    /// Not this module's request, or its part is done: continue with the next module.
    Next,
    /// The response is complete: skip the remaining phases.
    Answered,
    /// The request line was changed (rewrite, error handler): restart with the new URL.
    Restart,
    /// Send the file at the exchange's physical path, whatever the method, and skip the remaining
    /// phases.
    SendFile(FileFate),
    /// Send these file parts as the body; the response already holds the head.
    SendParts(Vec<FilePart>),
    /// Something must be awaited (disk, backend, script). Boxed, so that the common case keeps the
    /// connection's future small and allocates nothing.
    Wait(Pin<Box<dyn Future<Output = Step<'static>> + 'a>>),
}

/// What happens to a file named by a handler once it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFate {
    Stays,
    /// Its name is removed; it was created for this response only.
    Removed,
}

/// The phases in which a module takes part; the pipeline calls only these.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Hooks {
    pub raw_url: bool,
    pub clean_url: bool,
    pub docroot: bool,
    pub physical: bool,
    pub authorize: bool,
    pub remote: bool,
    pub directory: bool,
    pub found: bool,
    pub conditions: bool,
    pub withhold: bool,
    pub handle: bool,
    pub send_file: bool,
    pub response_head: bool,
    pub filter: bool,
    pub done: bool,
}

impl Hooks {
    /// These phases if `takes_part`, otherwise none.
    #[must_use]
    pub fn only_if(self, takes_part: bool) -> Self {
        if takes_part { self } else { Self::default() }
    }
}

/// A feature: its directives and its work in the phases named by [`Module::hooks`].
///
/// Order of phases: `raw_url` (before the URL is decoded), `clean_url`, `docroot` (may choose the
/// document root), `physical` (may change the physical path; a module that responds here calls
/// `authorize` first), `remote` (backends that need no file), path look-up, `directory` (index files),
/// `found` (the remaining file or directory), `conditions`, `handle` (the first to respond wins),
/// `response_head`, `filter` (between the body and the client), and after the last byte `done`.
pub trait Module {
    /// Name as written in `server.modules`, for example `mod_staticfile`.
    fn name(&self) -> &'static str;

    /// Phases in which this module takes part.
    fn hooks(&self) -> Hooks;

    /// The subset in which it has work under these settings, whatever the request. Called once per
    /// settings variant.
    fn hooks_under(&self, _settings: &Settings) -> Hooks {
        self.hooks()
    }

    /// Rows of the directive table.
    fn directives() -> Vec<Directive<Settings>>
    where
        Self: Sized;

    /// True if this module may reject some URLs and accept others under the same settings. Code
    /// that changes many files at once then checks each of them.
    fn refuses_paths(&self) -> bool {
        true
    }

    fn raw_url<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }
    fn clean_url<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }
    fn docroot<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }
    fn physical<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Decides whether the request may access what it leads to, as far as that is known. Called
    /// again when the settings or the name change: for the physical path, for what is found there,
    /// for an index file or path info, and by modules that respond before the look-up
    /// (`mod_webdav`). Responding denies access.
    fn authorize<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// The physical path is final but not looked up: for modules that need no file.
    fn remote<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// The path is a directory.
    fn directory<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// The path is looked up, index files are chosen, and something exists.
    fn found<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// The request has conditions (`If-Match` and the like), not yet evaluated.
    fn conditions(&self, _ex: &mut Exchange) {}

    /// Refuses whatever [`Module::handle`] would refuse to send unmodified. Modules with this hook
    /// send files or list directories. They run last when a request has two names (see
    /// [`Module::authorize`]) with separate settings, each of which may refuse it.
    fn withhold<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    fn handle<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Sends the file in `physical.entry` named by another handler ([`Step::SendFile`]). Access has
    /// already been decided.
    fn send_file<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    fn response_head(&self, _ex: &mut Exchange) {}

    /// True if [`Module::filter`] applies to this response, judged by its status and fields alone.
    /// The head is complete, and no filter has been applied yet.
    fn may_filter(&self, _ex: &Exchange) -> bool {
        true
    }

    /// The head is complete: applies a filter to the body, see [`crate::Body::filtered`], and
    /// changes dependent fields (`Server` does not). Later modules filter the output of earlier
    /// ones.
    fn filter<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Logs and counts after the last byte or after the connection broke. Must not block.
    fn done(&self, _ex: &Exchange) {}

    /// Handles HUP: reopens logs, drops caches.
    fn reopen(&self) {}
}

/// The method that calls a module in a phase.
pub type Hook = for<'a> fn(&'a dyn Module, &'a mut Exchange) -> Step<'a>;

/// A phase, usable as an index.
#[derive(Clone, Copy)]
pub(crate) enum Phase {
    RawUrl,
    CleanUrl,
    Docroot,
    Physical,
    Authorize,
    Remote,
    Directory,
    Found,
    Conditions,
    Withhold,
    Handle,
    SendFile,
    ResponseHead,
    Filter,
    Done,
}

const PHASES: usize = Phase::Done as usize + 1;

/// The modules that take part in each phase under a settings variant.
struct Parts {
    by_phase: [ModuleSet; PHASES],
    /// Index of the module that sends files, if no other module acts on a known file.
    fast_path: Option<usize>,
}

/// A set of modules, one bit per index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleSet(u64);

impl ModuleSet {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The modules that satisfy a predicate.
    #[inline]
    pub(crate) fn filter(
        self,
        modules: &ModuleList,
        picks: impl Fn(&dyn Module) -> bool,
    ) -> ModuleSet {
        let (mut rest, mut picked) = (self, self.0);
        while let Some(at) = rest.first() {
            rest.0 &= rest.0.wrapping_sub(1);
            if !picks(&*modules.all[at]) {
                picked &= !(1 << at);
            }
        }
        ModuleSet(picked)
    }

    /// The modules not in `others`.
    pub(crate) fn without(self, others: ModuleSet) -> ModuleSet {
        ModuleSet(self.0 & !others.0)
    }

    /// The union with `others`.
    pub(crate) fn with(self, others: ModuleSet) -> ModuleSet {
        ModuleSet(self.0 | others.0)
    }

    fn first(self) -> Option<usize> {
        (!self.is_empty()).then(|| self.0.trailing_zeros() as usize)
    }
}

/// The phase table of the settings that hold it, computed on first use. A clone starts empty
/// because it is about to be changed.
#[derive(Default)]
pub(crate) struct HookTable(OnceLock<Parts>);

impl Clone for HookTable {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// A worker's modules in order.
#[derive(Default)]
pub struct ModuleList {
    all: Vec<Rc<dyn Module>>,
}

impl ModuleList {
    /// Creates a list from modules in order.
    ///
    /// # Panics
    /// If there are more than 64; the list is fixed when the server is built.
    pub fn new(all: Vec<Rc<dyn Module>>) -> Self {
        assert!(all.len() <= u64::BITS as usize, "a module for each bit");
        Self { all }
    }

    /// True if some module may change the head of another's response.
    pub fn change_heads(&self, settings: &Settings) -> bool {
        !self.part(Phase::ResponseHead, settings).is_empty()
    }

    /// Every module, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<dyn Module>> {
        self.all.iter()
    }

    /// The modules with a hook in this phase under any settings, in order.
    pub(crate) fn ever(&self, phase: Phase) -> impl Iterator<Item = &dyn Module> {
        let modules = self.all.iter().map(|module| &**module);
        modules.filter(move |module| module.hooks().by_phase()[phase as usize])
    }

    /// The modules that take part in a phase under these settings.
    #[inline]
    pub(crate) fn part(&self, phase: Phase, settings: &Settings) -> ModuleSet {
        self.parts(settings).by_phase[phase as usize]
    }

    /// The first module from an index on that takes part in a phase, and the index after it. Uses
    /// the current settings, because a module may have changed them.
    #[inline]
    pub(crate) fn next(
        &self,
        phase: Phase,
        settings: &Settings,
        from: usize,
    ) -> Option<(&dyn Module, usize)> {
        let left = u64::MAX.checked_shl(from as u32).unwrap_or(0);
        let at = ModuleSet(self.part(phase, settings).0 & left).first()?;
        Some((&*self.all[at], at + 1))
    }

    /// The module that sends a known file, if no other module acts before it.
    #[inline]
    pub(crate) fn fast_path(&self, settings: &Settings) -> Option<&dyn Module> {
        self.parts(settings).fast_path.map(|at| &*self.all[at])
    }

    #[inline]
    fn parts<'a>(&self, settings: &'a Settings) -> &'a Parts {
        settings.hook_table.0.get_or_init(|| self.assign(settings))
    }

    /// Removes the first module from the set and returns it.
    pub(crate) fn take_first(&self, part: &mut ModuleSet) -> Option<&dyn Module> {
        let first = part.first()?;
        part.0 &= part.0.wrapping_sub(1);
        Some(&*self.all[first])
    }

    #[cold]
    fn assign(&self, settings: &Settings) -> Parts {
        let mut by_phase = [ModuleSet::default(); PHASES];
        for (at, module) in self.all.iter().enumerate() {
            let hooks = module.hooks_under(settings);
            for (part, takes_part) in by_phase.iter_mut().zip(hooks.by_phase()) {
                part.0 |= u64::from(takes_part) << at;
            }
        }
        let part = |phase: Phase| by_phase[phase as usize];
        let before = [
            Phase::RawUrl,
            Phase::CleanUrl,
            Phase::Docroot,
            Phase::Physical,
            Phase::Remote,
            Phase::Found,
        ];
        let first = part(Phase::Handle).first();
        let is_fast_path = before.into_iter().all(|phase| part(phase).is_empty())
            && part(Phase::SendFile).first() == first;
        Parts { by_phase, fast_path: first.filter(|_| is_fast_path) }
    }
}

impl Hooks {
    /// In the order of [`Phase`].
    fn by_phase(self) -> [bool; PHASES] {
        [
            self.raw_url,
            self.clean_url,
            self.docroot,
            self.physical,
            self.authorize,
            self.remote,
            self.directory,
            self.found,
            self.conditions,
            self.withhold,
            self.handle,
            self.send_file,
            self.response_head,
            self.filter,
            self.done,
        ]
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

        fn hooks(&self) -> Hooks {
            self.0
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

        fn hooks(&self) -> Hooks {
            Hooks { handle: true, send_file: true, ..Hooks::default() }
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

    #[test]
    fn settings_that_change_on_the_way_decide_who_is_next() {
        let list = ModuleList::new(vec![
            Rc::new(Sender),
            Rc::new(Named(Hooks { handle: true, ..Hooks::default() })),
            Rc::new(Sender),
        ]);
        let next = |settings: &Settings, from| {
            list.next(Phase::Handle, settings, from).map(|(module, at)| (module.name(), at))
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
            Hooks { remote: true, ..Hooks::default() },
            Hooks { found: true, ..Hooks::default() },
            Hooks { handle: true, ..Hooks::default() },
        ] {
            assert!(!fast_path(early, &named()), "{early:?}");
            assert!(fast_path(early, &Settings::default()), "{early:?}");
        }
        let late = Hooks { response_head: true, filter: true, done: true, ..Hooks::default() };
        assert!(fast_path(late, &named()));
        assert!(ModuleList::default().fast_path(&named()).is_none());
    }

    #[test]
    fn only_heads_that_a_module_may_change_are_left_open() {
        let list = list(Hooks { response_head: true, ..Hooks::default() });
        assert!(list.change_heads(&named()) && !list.change_heads(&Settings::default()));
    }

    #[test]
    fn those_who_decline_are_left_out() {
        let list = ModuleList::new((0..3).map(|_| Rc::new(Sender) as Rc<dyn Module>).collect());
        let part = list.part(Phase::Handle, &Settings::default());
        let asked = std::cell::Cell::new(0);
        let picked = part.filter(&list, |_| {
            asked.set(asked.get() + 1);
            asked.get() != 2
        });
        assert_eq!((asked.get(), picked), (3, ModuleSet(0b101)));
    }
}
