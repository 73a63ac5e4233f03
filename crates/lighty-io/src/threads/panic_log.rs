//! Logs and counts panics, with a backtrace for the first one of each place.

use std::backtrace::Backtrace;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::panics;
use crate::clock::Clock;

/// Maximum number of panics logged per second; all are counted.
pub const REPORTED_PER_SECOND_MAX: u64 = 20;

/// Maximum number of frames of a backtrace in the log.
pub const FRAMES_MAX: usize = 64;

/// Maximum number of characters of a frame: names of generic types may fill pages.
const FRAME_CHARS_MAX: usize = 300;

/// Maximum number of places whose panics are logged with a backtrace. A place has one each time
/// that the process runs: resolving its names costs a fraction of a second.
pub const TRACED_PLACES_MAX: usize = 64;

/// Frames of the panic machinery above the one that panicked, at most.
const MACHINERY_FRAMES: usize = 24;

/// Stack of the thread that resolves the names of a backtrace.
const TRACER_STACK_BYTES: usize = 1 << 20;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// The current second, and the number of panics in it.
static REPORTED: Mutex<(i64, u64)> = Mutex::new((0, 0));

/// Places that a backtrace was logged for.
static TRACED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Passes each panic as a line to `tell` from now on, which must not panic or block. The frames of
/// a backtrace are lines as well, and may follow later. With `RUST_BACKTRACE`, standard error gets
/// the panic, too.
pub fn report_to(tell: impl Fn(&str) + Send + Sync + 'static) {
    let before = std::panic::take_hook();
    let tell: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(tell);
    std::panic::set_hook(Box::new(move |info| {
        COUNT.fetch_add(1, Ordering::Relaxed);
        let text = panics::describe(info);
        if may_be_reported(Clock::start().unix_s()) {
            let name = std::thread::current().name().unwrap_or("?").to_owned();
            tell(&format!("thread '{name}' panicked at {text}"));
            if is_first_at(info) {
                trace(name, &tell);
            }
        }
        panics::remember(text);
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|wish| wish != "0") {
            before(info);
        }
    }));
}

/// Panics since [`report_to`].
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// True for the first panic of a place in the source.
fn is_first_at(info: &PanicHookInfo<'_>) -> bool {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let mut traced = TRACED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = traced.len() < TRACED_PLACES_MAX && !traced.contains(&place);
    if is_first {
        traced.push(place);
    }
    is_first
}

/// Logs the stack of this thread. Names are resolved on another one, because that reads the
/// program's file; only the main thread, whose end would be the process's, does it itself.
fn trace(name: String, tell: &Arc<dyn Fn(&str) + Send + Sync>) {
    let (trace, tell) = (Backtrace::force_capture(), Arc::clone(tell));
    let is_main = name == "main";
    let write = move || {
        for frame in frames(&trace.to_string()) {
            tell(&format!("backtrace of '{name}': {frame}"));
        }
    };
    if is_main {
        return write();
    }
    // Without a thread the log has the place alone.
    let _ = super::start("backtrace", Some(TRACER_STACK_BYTES), write);
}

/// The frames of a backtrace below the panic machinery, one line each.
fn frames(trace: &str) -> Vec<String> {
    let mut frames: Vec<String> = Vec::new();
    for line in trace.lines().map(str::trim) {
        let is_frame =
            line.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        match frames.last_mut() {
            Some(frame) if line.starts_with("at ") => {
                frame.push(' ');
                frame.push_str(line);
            }
            _ if is_frame => frames.push(line.to_owned()),
            _ => {}
        }
    }
    let machinery = &frames[..frames.len().min(MACHINERY_FRAMES)];
    let last = machinery.iter().rposition(|frame| frame.contains("panicking::"));
    frames.drain(..last.map_or(0, |index| index + 1));
    frames.truncate(FRAMES_MAX);
    frames.iter_mut().for_each(shorten);
    frames
}

/// Cuts the name of a long frame, and keeps its place in the source.
fn shorten(frame: &mut String) {
    let length = frame.chars().count();
    if length <= FRAME_CHARS_MAX {
        return;
    }
    let (name, place) = frame.rsplit_once(" at ").unwrap_or((frame.as_str(), ""));
    let room = FRAME_CHARS_MAX.saturating_sub(place.chars().count());
    let name: String = name.chars().take(room).collect();
    *frame = format!("{name}… at {place}").trim_end_matches(" at ").to_owned();
}

fn may_be_reported(now_s: i64) -> bool {
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if reported.0 != now_s {
        *reported = (now_s, 0);
    }
    reported.1 += 1;
    reported.1 <= REPORTED_PER_SECOND_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_is_a_line_with_its_place() {
        let trace = "   0: std::backtrace::Backtrace::create\n   1: core::panicking::panic_fmt\n\
                     \x20            at /library/core/src/panicking.rs:80:14\n   2: one::two\n\
                     \x20            at ./crates/one/src/two.rs:5:9\n   3: main\n";
        assert_eq!(frames(trace), ["2: one::two at ./crates/one/src/two.rs:5:9", "3: main"]);
        let deep: String = (0..FRAMES_MAX + 9).map(|frame| format!("  {frame}: f\n")).collect();
        assert_eq!(frames(&deep).len(), FRAMES_MAX);
        assert!(frames("").is_empty());
        let long = format!("  1: f<{}>\n     at a.rs:1:2\n", "x".repeat(FRAME_CHARS_MAX));
        let cut = frames(&long).remove(0);
        assert!(cut.chars().count() <= FRAME_CHARS_MAX + 5 && cut.ends_with("x… at a.rs:1:2"));
    }

    #[test]
    fn panics_logged_in_one_second_are_limited() {
        let reported = (0..REPORTED_PER_SECOND_MAX + 5).filter(|_| may_be_reported(-7)).count();
        assert_eq!(reported as u64, REPORTED_PER_SECOND_MAX);
        assert!(may_be_reported(-6));
    }
}
