//! A value that a caller lends, for the duration of a call, to functions that C calls in between.
//!
//! C passes such functions no argument of ours. Without a loan, the value would have to be moved to
//! a place where they find it, and back.

use std::cell::Cell;
use std::ptr::NonNull;

/// A type that may borrow from its owner, for each lifetime.
pub trait Lend: 'static {
    /// The type.
    type Of<'a>;
}

/// Holds the pointer by which the functions find the value.
pub struct Loan<L: Lend>(Cell<Option<NonNull<L::Of<'static>>>>);

impl<L: Lend> Default for Loan<L> {
    fn default() -> Self {
        Self(Cell::new(None))
    }
}

/// Restores a pointer on drop, also while a panic unwinds.
struct Restore<'a, T> {
    place: &'a Cell<Option<NonNull<T>>>,
    value: Option<NonNull<T>>,
}

impl<T> Drop for Restore<'_, T> {
    fn drop(&mut self) {
        self.place.set(self.value);
    }
}

impl<L: Lend> Loan<L> {
    /// Runs `work`; meanwhile [`Loan::with`] finds the value.
    pub fn lend<T>(&self, value: &mut L::Of<'_>, work: impl FnOnce() -> T) -> T {
        let lent = NonNull::from(value).cast();
        let _restore = Restore { place: &self.0, value: self.0.replace(Some(lent)) };
        work()
    }

    /// Runs `work` with the value; `None` if none is lent, or if another `with` is using it.
    pub fn with<T>(&self, work: impl for<'a> FnOnce(&mut L::Of<'a>) -> T) -> Option<T> {
        let lent = self.0.take()?;
        let _restore = Restore { place: &self.0, value: Some(lent) };
        // SAFETY: the pointer comes from a call of `lend`, which has not returned and has lent its
        // own reference; the cell is empty while another `with` uses it. `work` cannot keep the
        // borrow, because it accepts any lifetime, and `Of` has the same layout for all of them.
        let value = unsafe { lent.cast::<L::Of<'_>>().as_mut() };
        Some(work(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct LentName<'a>(&'a mut String);

    struct LendName;

    impl Lend for LendName {
        type Of<'a> = LentName<'a>;
    }

    #[test]
    fn value_is_found_while_it_is_lent_and_by_one_at_a_time() {
        let loan = Loan::<LendName>::default();
        assert!(loan.with(|_| ()).is_none());
        let mut text = String::from("a");
        let met = loan.lend(&mut LentName(&mut text), || {
            loan.with(|name| {
                name.0.push('b');
                loan.with(|_| ()).is_none()
            })
        });
        assert_eq!(met, Some(true));
        assert!(loan.with(|_| ()).is_none());
        assert_eq!(text, "ab");
    }

    #[test]
    fn inner_loan_hides_the_outer_one_until_it_ends() {
        let loan = Loan::<LendName>::default();
        let (mut outer, mut inner) = (String::from("outer"), String::from("inner"));
        let seen = || loan.with(|name| name.0.clone());
        loan.lend(&mut LentName(&mut outer), || {
            assert_eq!(loan.lend(&mut LentName(&mut inner), seen).as_deref(), Some("inner"));
            assert_eq!(seen().as_deref(), Some("outer"));
        });
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            loan.lend(&mut LentName(&mut outer), || panic!("as a test does"));
        }));
        assert!(broken.is_err() && seen().is_none());
    }
}
