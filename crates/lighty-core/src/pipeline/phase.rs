//! The phases of a request, and the modules that take part in each.
//!
//! The order is defined only here: all code that walks phases follows [`ORDER`].

use std::sync::OnceLock;

/// Passes every phase, in order, to a macro: its name and the hook that modules implement for it.
macro_rules! in_order {
    ($then:ident) => {
        $then! {
            /// The URL is not decoded yet.
            RawUrl: raw_url,
            /// The URL is decoded and normalised.
            CleanUrl: clean_url,
            /// May choose the document root.
            Docroot: docroot,
            /// The path beneath the document root is set and may be changed.
            Physical: physical,
            /// Decides about access. Runs again whenever the settings or the name change.
            Authorize: authorize,
            /// The path is final but not looked up.
            Remote: remote,
            /// A directory was found.
            Directory: directory,
            /// A file or directory was found, index files included.
            Found: found,
            /// The request has conditions, not yet evaluated.
            Conditions: conditions,
            /// Refuses files that the sender would refuse. Used for files with two names.
            Withhold: withhold,
            /// The first module to respond wins.
            Handle: handle,
            /// Sends a file that a handler named.
            SendFile: send_file,
            /// The response's status and fields are set and may be changed.
            ResponseHead: response_head,
            /// The head is complete; the body may be filtered.
            Filter: filter,
            /// The last byte is sent, or the connection broke.
            Done: done,
        }
    };
}
pub(crate) use in_order;

macro_rules! define {
    ($($(#[$about:meta])* $phase:ident: $hook:ident,)*) => {
        /// A phase, usable as an index.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Phase {
            $($(#[$about])* $phase,)*
        }

        /// All phases, in the order in which a request meets them.
        pub const ORDER: [Phase; [$(Phase::$phase),*].len()] = [$(Phase::$phase),*];

        /// The phases in which a module takes part. The pipeline calls only these hooks.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct Hooks {
            $(
                /// True if the module takes part in the phase of this name.
                pub $hook: bool,
            )*
        }

        impl Hooks {
            /// True if the module takes part in this phase.
            #[must_use]
            pub fn has(self, phase: Phase) -> bool {
                match phase {
                    $(Phase::$phase => self.$hook,)*
                }
            }

            /// The phases that are in both.
            #[must_use]
            pub fn and(self, other: Self) -> Self {
                Self { $($hook: self.$hook && other.$hook,)* }
            }

            /// These phases, except the ones in `other`.
            #[must_use]
            pub fn without(self, other: Self) -> Self {
                Self { $($hook: self.$hook && !other.$hook,)* }
            }
        }
    };
}
in_order!(define);

impl Hooks {
    /// These phases if `takes_part`, otherwise none.
    #[must_use]
    pub fn only_if(self, takes_part: bool) -> Self {
        if takes_part { self } else { Self::default() }
    }
}

/// A set of phases, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PhaseSet(u16);

impl PhaseSet {
    /// A set of these phases.
    pub(crate) const fn of(phases: &[Phase]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < phases.len() {
            bits |= 1 << phases[at] as u16;
            at += 1;
        }
        Self(bits)
    }

    /// The union with `others`.
    pub(crate) const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// The first phase of the set after `phase`, [`Phase::Handle`] at the latest.
    #[inline]
    pub(crate) fn next_to_handle(self, phase: Phase) -> Phase {
        let rest = self.0.wrapping_shr(phase as u32 + 1) | 1 << (ORDER.len() - 1);
        let next = phase as usize + 1 + rest.trailing_zeros() as usize;
        ORDER[next.min(Phase::Handle as usize)]
    }
}

/// A set of modules, one bit per index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleSet(u64);

impl ModuleSet {
    /// All modules.
    pub(crate) const ALL: Self = Self(u64::MAX);

    /// No module.
    pub(crate) const NONE: Self = Self(0);

    /// The set of the module at this index.
    pub(crate) fn only(index: usize) -> Self {
        Self(1 << index)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The modules not in `others`.
    pub(crate) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The union with `others`.
    pub(crate) fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// The modules in both sets.
    pub(crate) fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// The modules from this index on.
    pub(crate) fn from(index: usize) -> Self {
        Self(u64::MAX.checked_shl(index as u32).unwrap_or(0))
    }

    /// The modules before this index.
    pub(crate) fn below(index: usize) -> Self {
        Self(!Self::from(index).0)
    }

    /// The modules after this index, which must be a module's.
    #[inline]
    pub(crate) fn behind(index: usize) -> Self {
        Self(u64::MAX.wrapping_shl(index as u32) << 1)
    }

    /// The index of the first module.
    pub(crate) fn first(self) -> Option<usize> {
        (!self.is_empty()).then(|| self.0.trailing_zeros() as usize)
    }

    /// Removes the first module and returns its index.
    pub(crate) fn take_first(&mut self) -> Option<usize> {
        let first = self.first()?;
        self.0 &= self.0.wrapping_sub(1);
        Some(first)
    }
}

/// The modules that take part in each phase under a settings variant.
pub(crate) struct Parts {
    pub(crate) by_phase: [ModuleSet; ORDER.len()],
    /// The phases at which a pass has work to do.
    pub(crate) stops: PhaseSet,
    /// The fast path for known files; `None` if some module always acts on the request first.
    pub(crate) fast_path: Option<FastPath>,
    /// Some module of [`Phase::ResponseHead`] may wait.
    pub(crate) heads_may_wait: bool,
}

/// Data for sending known files without a walk through the phases, under a settings variant.
#[derive(Clone, Copy)]
pub(crate) struct FastPath {
    /// Index of the module that sends files.
    pub(crate) sender: usize,
    /// The modules that may take a request before its file is looked up.
    pub(crate) remote: ModuleSet,
    /// The modules that may handle a file before it is sent.
    pub(crate) before_sender: ModuleSet,
    /// The modules that rarely act before the file is looked up. Each is asked with
    /// [`Module::acts`](crate::Module::acts).
    pub(crate) seldom: ModuleSet,
    /// Some module takes part in [`Phase::Conditions`].
    pub(crate) meets_conditions: bool,
    /// Some module keeps the settings of the file for the response's head.
    pub(crate) keeps_settings: bool,
}

impl Parts {
    /// Builds the table from the modules' hooks, in order. The fast path keeps the settings for
    /// modules in `keepers`, and asks modules in `seldom`.
    pub(crate) fn new(
        hooks: impl Iterator<Item = Hooks>,
        keepers: ModuleSet,
        seldom: ModuleSet,
    ) -> Self {
        let mut by_phase = [ModuleSet::default(); ORDER.len()];
        for (at, hooks) in hooks.enumerate() {
            for phase in ORDER {
                by_phase[phase as usize].0 |= u64::from(hooks.has(phase)) << at;
            }
        }
        let part = |phase: Phase| by_phase[phase as usize];
        let sender = part(Phase::Handle).and(part(Phase::SendFile)).first();
        let behind = sender.map_or(ModuleSet::ALL, ModuleSet::from);
        let early = ORDER.into_iter().filter(|phase| phase.meets_known_file());
        let early = early.take_while(|phase| *phase < Phase::Handle);
        let consulted =
            early.fold(ModuleSet::NONE, |consulted, phase| consulted.with(part(phase).and(seldom)));
        let mut early = ORDER.into_iter().take_while(|phase| *phase < Phase::Handle);
        let is_fast_path =
            !early.any(|phase| phase.meets_known_file() && !part(phase).without(seldom).is_empty());
        let met = ORDER.into_iter().filter(|phase| !part(*phase).is_empty());
        let stops = met.fold(OWN, |stops, phase| stops.with(PhaseSet::of(&[phase])));
        let fast_path = sender.filter(|_| is_fast_path).map(|sender| FastPath {
            sender,
            remote: part(Phase::Remote),
            before_sender: part(Phase::Handle).without(behind),
            seldom: consulted,
            meets_conditions: !part(Phase::Conditions).is_empty(),
            keeps_settings: !keepers.is_empty(),
        });
        Self { by_phase, stops, fast_path, heads_may_wait: true }
    }
}

/// The phases before which a pass does work of its own, whatever the modules.
const OWN: PhaseSet = PhaseSet::of(&[
    Phase::Physical,
    Phase::Authorize,
    Phase::Directory,
    Phase::Found,
    Phase::Handle,
]);

impl Phase {
    /// True if a request for a known file with unchanged settings runs through this phase before it
    /// is handled. The fast path also evaluates conditions, and asks the modules that may take the
    /// request before the look-up.
    fn meets_known_file(self) -> bool {
        use Phase as P;
        !matches!(self, P::Authorize | P::Remote | P::Directory | P::Conditions | P::Withhold)
    }
}

/// The phase table of the settings that hold it, computed on first use. A clone starts empty
/// because its settings are about to be changed.
#[derive(Default)]
pub(crate) struct HookTable(pub(crate) OnceLock<Parts>);

impl Clone for HookTable {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_phases_is_walked_in_order_up_to_the_handlers() {
        let set = PhaseSet::of(&[Phase::Docroot, Phase::Remote, Phase::Filter]);
        let walked = [Phase::RawUrl, Phase::CleanUrl, Phase::Docroot, Phase::Remote];
        let next = [Phase::Docroot, Phase::Docroot, Phase::Remote, Phase::Handle];
        assert_eq!(walked.map(|phase| set.next_to_handle(phase)), next);
    }

    #[test]
    fn modules_behind_one_are_those_with_a_higher_index() {
        let all = ModuleSet::ALL;
        assert_eq!(ModuleSet::behind(0), all.without(ModuleSet::only(0)));
        assert_eq!(ModuleSet::behind(5).first(), Some(6));
        assert_eq!(ModuleSet::behind(63), ModuleSet::NONE);
    }

    #[test]
    fn each_phase_has_one_hook_and_the_place_of_its_number() {
        for (at, phase) in ORDER.into_iter().enumerate() {
            assert_eq!(phase as usize, at);
        }
        let hooks = Hooks { found: true, ..Hooks::default() };
        let had: Vec<Phase> = ORDER.into_iter().filter(|phase| hooks.has(*phase)).collect();
        assert_eq!(had, [Phase::Found]);
    }
}
