//! Panics: told to the error log, counted, and survived by what others depend on.
//!
//! A panic is a bug. It costs whoever asked for what could not be done, and nobody else: what a
//! task holds is given back by `Drop`, and a task that others depend on begins again.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::log_writer;

/// Bytes of a panic's message that are told. It may quote what a client sent.
pub const MESSAGE_BYTES_MAX: usize = 1024;

/// Panics that are told of in one second; all are counted.
pub const REPORTED_PER_SECOND_MAX: u64 = 20;

/// How long a task rests after a panic before it begins again.
pub const REST: Duration = Duration::from_millis(100);

static COUNT: AtomicU64 = AtomicU64::new(0);

/// The second, and how many were told of in it.
static TOLD: Mutex<(i64, u64)> = Mutex::new((0, 0));

thread_local! {
    /// The words of the latest panic of this thread.
    static LATEST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on each panic is a line of `tell`, which must not panic and must not wait. Standard
/// error hears of it too where a backtrace is asked for (`RUST_BACKTRACE`).
pub fn report_to(tell: impl Fn(&str) + Send + Sync + 'static) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        COUNT.fetch_add(1, Ordering::Relaxed);
        let words = words(info);
        if may_be_reported(Clock::start().unix_s()) {
            let name = std::thread::current().name().unwrap_or("?").to_owned();
            tell(&format!("thread '{name}' panicked at {words}"));
        }
        // Not while the thread ends: then nobody asks any more.
        let _ = LATEST.try_with(|latest| latest.replace(words));
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|wish| wish != "0") {
            before(info);
        }
    }));
}

/// Panics since [`report_to`].
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

fn may_be_reported(now_s: i64) -> bool {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.0 != now_s {
        *told = (now_s, 0);
    }
    told.1 += 1;
    told.1 <= REPORTED_PER_SECOND_MAX
}

fn words(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    format!("{place}: {}", bounded(message(info.payload())))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// No message forges a line of the log, or fills it.
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

/// A future whose panics are outcomes.
pub struct Catch<F>(F);

/// What a future panicked with: place and message.
#[derive(Debug)]
pub struct Panicked(pub String);

/// Catches what the future panics with. What it shares with others has to be whole, or made whole.
pub fn catch<F: Future>(future: F) -> Catch<F> {
    Catch(future)
}

impl<F: Future> Future for Catch<F> {
    type Output = Result<F::Output, Panicked>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the only field is pinned with the whole: nothing moves it out, and there is
        // no `Drop` that could.
        let future = unsafe { self.map_unchecked_mut(|catch| &mut catch.0) };
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(payload) => Poll::Ready(Err(caught(payload))),
        }
    }
}

/// The same for what does not wait.
///
/// # Errors
/// What `body` panicked with.
pub fn caught_in<T>(body: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(body)).map_err(caught)
}

#[cold]
fn caught(payload: Box<dyn Any + Send>) -> Panicked {
    let known = LATEST.with(RefCell::take);
    // Without a hook of ours only the message is known.
    let words = if known.is_empty() { bounded(message(&*payload)) } else { known };
    // What cannot even be dropped is left behind.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
    Panicked(words)
}

/// Spawns a task of this thread that others depend on: where it panics, it begins again.
pub fn keep<F>(name: &'static str, mut begin: impl FnMut() -> F + 'static) -> JoinHandle<()>
where
    F: Future<Output = ()> + 'static,
{
    tokio::task::spawn_local(async move {
        while let Err(panicked) = catch(begin()).await {
            rest(name, &panicked).await;
        }
    })
}

/// Says that a task begins again, and lets a while go by before it does.
pub async fn rest(name: &str, Panicked(words): &Panicked) {
    log_writer::report(&format!("task \"{name}\" begins again after a panic at {words}"));
    tokio::time::sleep(REST).await;
}

/// How many places have panics to come, so that nobody else has to look at them.
static DRILLS: AtomicUsize = AtomicUsize::new(0);

static DRILLED: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());

/// A place at which a test of the server lets it panic, see [`drill`].
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

/// The next `times` passers of a [`point`] panic. For tests that run the server in their own
/// process: nothing that a configuration or a client says leads here.
pub fn drill(place: &str, times: u32) {
    if times > 0 {
        let mut drilled = DRILLED.lock().unwrap_or_else(PoisonError::into_inner);
        drilled.push((place.to_owned(), times));
        DRILLS.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_outcome_and_what_does_not_panic_is_too() {
        assert_eq!(catch(async { 7 }).await.expect("no panic"), 7);
        let bad = async { assert!(count() > 99, "as the test wants it\r\n2026 [error] forged") };
        let Panicked(words) = catch(bad).await.expect_err("a panic");
        assert!(words.contains("as the test wants it\\r\\n2026"), "{words}");
        let Panicked(words) = caught_in(|| assert!(count() > 99, "{}", 5)).expect_err("a panic");
        assert!(words.contains('5'), "{words}");
    }

    #[test]
    fn a_message_is_told_up_to_a_limit() {
        assert_eq!(bounded(&"x".repeat(MESSAGE_BYTES_MAX)).len(), MESSAGE_BYTES_MAX);
        let long = bounded(&"x".repeat(MESSAGE_BYTES_MAX + 1));
        assert_eq!(long.trim_end_matches('…').len(), MESSAGE_BYTES_MAX);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn in_one_second_so_many_are_told_and_no_more() {
        let told = (0..REPORTED_PER_SECOND_MAX + 5).filter(|_| may_be_reported(-7)).count();
        assert_eq!(told as u64, REPORTED_PER_SECOND_MAX);
        assert!(may_be_reported(-6));
    }

    #[tokio::test(flavor = "local")]
    async fn a_task_that_is_kept_begins_again_until_it_ends_well() {
        let begun = Rc::new(Cell::new(0));
        let count = Rc::clone(&begun);
        let task = keep("tester", move || {
            let count = Rc::clone(&count);
            async move {
                count.set(count.get() + 1);
                assert!(count.get() >= 3, "as the test wants it");
            }
        });
        task.await.expect("it ended");
        assert_eq!(begun.get(), 3);
    }
}
