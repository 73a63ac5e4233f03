//! Panics: logged, counted, and contained.
//!
//! A panic is a bug. It only affects the caller whose work failed: `Drop` releases the task's
//! resources, and a task that others depend on is restarted.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// Maximum bytes of a panic's message in the log. It may quote a client's input.
pub const MESSAGE_BYTES_MAX: usize = 1024;

/// Pause before a task is restarted after a panic.
pub const RESTART_PAUSE: Duration = Duration::from_millis(100);

thread_local! {
    /// Location and message of the latest panic of this thread.
    static LATEST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the location and message of a panic until it is caught on this thread.
pub(super) fn remember(text: String) {
    // A thread that is ending keeps none: nothing catches the panic any more.
    let _ = LATEST.try_with(|latest| latest.replace(text));
}

/// Location and message of a panic.
pub(super) fn describe(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    format!("{place}: {}", bounded(message(info.payload())))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Escapes and truncates a message, so that it cannot forge a line of the log, or fill it.
fn bounded(message: &str) -> String {
    let mut text = String::new();
    for letter in message.chars() {
        if text.len() >= MESSAGE_BYTES_MAX {
            text.push('…');
            break;
        }
        match letter.is_control() {
            true => text.extend(letter.escape_default()),
            false => text.push(letter),
        }
    }
    text
}

/// A future that returns panics as errors.
pub struct Catch<F>(F);

/// Location and message of a caught panic.
#[derive(Debug)]
pub struct Panicked(pub String);

/// Catches a future's panics. Data that it shares with others must stay consistent or be repaired.
pub fn catch<F: Future>(future: F) -> Catch<F> {
    Catch(future)
}

impl<F: Future> Future for Catch<F> {
    type Output = Result<F::Output, Panicked>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the only field is pinned with the whole: nothing moves it out, and there is no
        // `Drop` that could.
        let future = unsafe { self.map_unchecked_mut(|catch| &mut catch.0) };
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(payload) => Poll::Ready(Err(caught(payload))),
        }
    }
}

/// Catches the panics of a function.
///
/// # Errors
/// The panic of `body`.
pub fn caught_in<T>(body: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(body)).map_err(caught)
}

#[cold]
fn caught(payload: Box<dyn Any + Send>) -> Panicked {
    let known = LATEST.with(RefCell::take);
    // Without our panic hook only the message is known.
    let text = if known.is_empty() { bounded(message(&*payload)) } else { known };
    // A payload that panics in its destructor is leaked.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
    Panicked(text)
}

/// Number of places with pending drills, so that [`point`] costs one load without any.
static DRILLS: AtomicUsize = AtomicUsize::new(0);

static DRILLED: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());

/// A place where a test can make the server panic, see [`drill`].
#[inline]
pub fn point(place: &str) {
    if DRILLS.load(Ordering::Relaxed) > 0 {
        panic_if_drilled(place);
    }
}

#[cold]
fn panic_if_drilled(place: &str) {
    let mut drilled = DRILLED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(at) = drilled.iter().position(|(known, _)| known == place) else { return };
    drilled[at].1 -= 1;
    if drilled[at].1 == 0 {
        drilled.remove(at);
        DRILLS.fetch_sub(1, Ordering::Relaxed);
    }
    drop(drilled);
    panic!("as a drill wants it: {place}");
}

/// Makes the next `times` calls of a [`point`] panic. For tests that run the server in their own
/// process: neither a configuration nor a client can reach this.
pub fn drill(place: &str, times: u32) {
    if times > 0 {
        let mut drilled = DRILLED.lock().unwrap_or_else(PoisonError::into_inner);
        drilled.push((place.to_owned(), times));
        DRILLS.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A static, so that the compiler cannot evaluate the assertion.
    static COUNT: u64 = 0;

    #[tokio::test]
    async fn a_panic_is_an_outcome_and_what_does_not_panic_is_too() {
        assert_eq!(catch(async { 7 }).await.expect("no panic"), 7);
        let bad = async { assert!(COUNT > 99, "as the test wants it\r\n2026 [error] forged") };
        let Panicked(text) = catch(bad).await.expect_err("a panic");
        assert!(text.contains("as the test wants it\\r\\n2026"), "{text}");
        let Panicked(text) = caught_in(|| assert!(COUNT > 99, "{}", 5)).expect_err("a panic");
        assert!(text.contains('5'), "{text}");
    }

    #[test]
    fn a_message_is_kept_up_to_a_limit() {
        assert_eq!(bounded(&"x".repeat(MESSAGE_BYTES_MAX)).len(), MESSAGE_BYTES_MAX);
        let long = bounded(&"x".repeat(MESSAGE_BYTES_MAX + 1));
        assert_eq!(long.trim_end_matches('…').len(), MESSAGE_BYTES_MAX);
        assert!(long.ends_with('…'));
    }
}
