//! Per-request data of single features, by type.
//!
//! Each type has a number, so a value is found without hashing. A value is created when a feature
//! first needs it and is reset, not freed, after the request: a request that does not use a feature
//! allocates nothing, nor does one that reuses the value.

use std::any::Any;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of types: one bit each.
const TYPES_MAX: usize = u64::BITS as usize;

/// A feature's data for one request.
pub trait Extension: Default + 'static {
    /// The type's number; see [`extension_slot`](crate::extension_slot).
    fn slot() -> &'static ExtensionSlot;

    /// The data that a subrequest starts with ([`crate::pipeline::subrequest`]).
    fn inherited(&self) -> Option<Self> {
        None
    }

    /// Prepares for the next request.
    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Implements [`Extension::slot`].
#[macro_export]
macro_rules! extension_slot {
    () => {
        fn slot() -> &'static $crate::exchange::extensions::ExtensionSlot {
            static SLOT: $crate::exchange::extensions::ExtensionSlot =
                $crate::exchange::extensions::ExtensionSlot::new();
            &SLOT
        }
    };
}

/// A type's number, assigned on first use.
pub struct ExtensionSlot(OnceLock<usize>);

impl ExtensionSlot {
    /// Creates a slot, for a `static` of the type.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "made by a macro alone, as a static")]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    #[inline]
    fn number(&self) -> usize {
        *self.0.get_or_init(Self::next)
    }

    /// # Panics
    /// If there are more than [`TYPES_MAX`]; the types are fixed when the server is built.
    #[cold]
    fn next() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(number < TYPES_MAX, "an extension for each bit");
        number
    }
}

/// Object-safe form of [`Extension`].
trait Held: Any {
    fn reset(&mut self);
    fn inherited(&self) -> Option<Box<dyn Held>>;
}

impl<T: Extension> Held for T {
    fn reset(&mut self) {
        Extension::reset(self);
    }

    fn inherited(&self) -> Option<Box<dyn Held>> {
        Some(Box::new(Extension::inherited(self)?))
    }
}

/// The values that features have set for one request.
#[derive(Default)]
pub struct Extensions {
    /// A bit for each value that belongs to this request; other values are left over from earlier
    /// requests.
    used: u64,
    held: Vec<Option<Box<dyn Held>>>,
}

impl Extensions {
    /// The value of a type, if a feature has set it for this request.
    #[inline]
    pub fn get<T: Extension>(&self) -> Option<&T> {
        let number = T::slot().number();
        if self.used & (1 << number) == 0 {
            return None;
        }
        let held: &dyn Any = &**self.held.get(number)?.as_ref()?;
        held.downcast_ref()
    }

    /// The value of a type, created if there is none yet.
    pub fn get_mut<T: Extension>(&mut self) -> &mut T {
        let number = T::slot().number();
        if self.held.len() <= number {
            self.held.resize_with(number + 1, || None);
        }
        self.used |= 1 << number;
        let held = self.held[number].get_or_insert_with(|| Box::new(T::default()));
        let held: &mut dyn Any = &mut **held;
        held.downcast_mut().expect("a slot holds the type of its number")
    }

    /// True if no feature has set a value for this request.
    pub(super) fn is_unused(&self) -> bool {
        self.used == 0
    }

    /// Prepares for the next request.
    #[inline]
    pub(crate) fn reset(&mut self) {
        if self.used != 0 {
            self.reset_used();
        }
    }

    fn reset_used(&mut self) {
        for number in bits(std::mem::take(&mut self.used)) {
            if let Some(held) = &mut self.held[number] {
                held.reset();
            }
        }
    }

    /// The values that a subrequest starts with.
    pub(crate) fn inherited(&self) -> Self {
        let mut part = Self::default();
        for number in bits(self.used) {
            let Some(held) = self.held[number].as_ref().and_then(|held| held.inherited()) else {
                continue;
            };
            part.held.resize_with(number + 1, || None);
            part.held[number] = Some(held);
            part.used |= 1 << number;
        }
        part
    }
}

/// The numbers of the bits that are set, in order.
fn bits(set: u64) -> impl Iterator<Item = usize> {
    let rest = std::iter::successors(Some(set), |rest| Some(rest & rest.wrapping_sub(1)));
    rest.take_while(|rest| *rest != 0).map(|rest| rest.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[derive(Default)]
    struct NameExtension(Vec<u8>);

    impl Extension for NameExtension {
        extension_slot!();

        fn reset(&mut self) {
            self.0.clear();
        }
    }

    #[derive(Clone, Default)]
    struct PermitExtension(Option<Rc<()>>);

    impl Extension for PermitExtension {
        extension_slot!();

        fn inherited(&self) -> Option<Self> {
            Some(self.clone())
        }
    }

    #[test]
    fn each_type_has_a_value_of_its_own() {
        let mut ext = Extensions::default();
        assert!(ext.get::<NameExtension>().is_none() && ext.get::<PermitExtension>().is_none());
        ext.get_mut::<NameExtension>().0.extend_from_slice(b"a");
        assert!(ext.get::<PermitExtension>().is_none());
        ext.get_mut::<PermitExtension>().0 = Some(Rc::new(()));
        assert_eq!(ext.get::<NameExtension>().expect("set").0, b"a");
        assert!(ext.get::<PermitExtension>().expect("set").0.is_some());
    }

    #[test]
    fn the_next_request_finds_nothing_but_the_memory() {
        let mut ext = Extensions::default();
        let permit = Rc::new(());
        ext.get_mut::<NameExtension>().0.extend_from_slice(b"abc");
        ext.get_mut::<PermitExtension>().0 = Some(Rc::clone(&permit));
        let memory = ext.get_mut::<NameExtension>().0.as_ptr();
        ext.reset();
        assert_eq!(Rc::strong_count(&permit), 1, "what was held is given back");
        assert!(ext.get::<NameExtension>().is_none() && ext.get::<PermitExtension>().is_none());
        let name = ext.get_mut::<NameExtension>();
        assert!(name.0.is_empty() && name.0.as_ptr() == memory);
    }

    #[test]
    fn a_request_within_begins_with_what_is_inherited() {
        let mut ext = Extensions::default();
        ext.get_mut::<NameExtension>().0.extend_from_slice(b"a");
        ext.get_mut::<PermitExtension>().0 = Some(Rc::new(()));
        let part = ext.inherited();
        assert!(part.get::<NameExtension>().is_none());
        assert!(part.get::<PermitExtension>().expect("inherited").0.is_some());
    }
}
